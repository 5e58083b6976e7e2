"""`atc run`: runs a package, or converts a model and runs it, and measures its latency."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime import InferSession
from acl_runtime.device.preparation import plain_images
from acl_runtime.om import open_package
from atc.input_sizes import concrete_shape, free_dims, wished_dims
from atc.inputs import RawBytes, check_given, read_files, seeded
from atc.options import Options
from atc.outputs import describe
from atc.package_texts import report_of
from atc.usage import UsageError
from atc.writing import make_folder
from tensor_types.dim_text import parse as parse_dim
from tensor_types.dims import names
from tensor_types.dtypes import from_numpy


def run_model(
    path: Path,
    files: Sequence[str],
    input_shape: Mapping[str, Sequence[int]],
    loop: int,
    threads: int,
    output_dir: Path | None,
    chip: str | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    warmup: int = 1,
    duration: float = 0.0,
) -> dict[str, Any]:
    """Runs `loop` times, and on until `duration` seconds are over, and gives latency, outputs and share of the AI CPU
    for machines.

    `warmup` runs come before, which count nowhere. `dims` are sizes by name for inputs without a file. With
    `output_dir`, which is made when it is absent, the outputs are saved and described with their files. With `chip` its
    programs are interpreted: the latency is the interpreter's, without warm-up, and no share is known.
    """
    if output_dir is not None:
        make_folder(output_dir, "--output-dir")
    with tempfile.TemporaryDirectory() as folder:
        package = path
        if path.suffix == ".onnx":
            from atc.conversion import convert  # a package needs no compiler

            package = Path(folder) / "model.om"
            chips = Options().soc_version if chip is None else (chip,)
            convert(path, package, Options(input_shape=dict(input_shape), soc_version=chips))
        session = InferSession(0, package, threads=threads, chip=chip)
        feeds = session_inputs(session, package, read_files(files), input_shape, dims=dims)
        for _ in range(warmup if chip is None else 0):
            session.infer(feeds)
        outputs: list[np.ndarray] = []
        seconds: list[float] = []
        end = time.perf_counter() + duration
        while len(seconds) < loop or time.perf_counter() < end:
            started = time.perf_counter()
            outputs = session.infer(feeds)
            seconds.append(time.perf_counter() - started)
        share = session.profile(feeds).ai_cpu_share if chip is None else None
    names = [o.name for o in session.get_outputs()]
    milliseconds = np.array(seconds) * 1e3
    return {
        "latency_ms": {
            "median": float(np.median(milliseconds)),
            "mean": float(milliseconds.mean()),
            "p90": float(np.percentile(milliseconds, 90)),
            "p99": float(np.percentile(milliseconds, 99)),
            "min": float(milliseconds.min()),
        },
        "runs": len(seconds),
        "aicpu_share": share,
        "outputs": describe(names, outputs, output_dir),
        "threads": threads,
        "compiled_at_run": session.compiled_at_run,
        **({} if chip is None else {"on": chip}),
    }


def session_inputs(
    session: InferSession,
    package: Path,
    given: Mapping[str, np.ndarray],
    input_shape: Mapping[str, Sequence[int]],
    seed: int = 0,
    *,
    dims: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """One array per input: the given ones, seeded values for the rest. Named dims follow from what is given and from
    `dims`, in a package with gears from its last one; the others are chosen so that the model can run.

    UsageError for an input that no values can be made up for (strings, unknown rank), and for wrong `dims`.
    """
    bounds = _report(package).get("index_bounds", {})
    known: dict[str, int] = wished_dims(dims or {}, session.dims)
    tensors = session.get_inputs()
    check_given(tensors, given, input_shape)
    for tensor in tensors:
        if not tensor.shape:
            continue
        shape = getattr(given.get(tensor.name), "shape", None) or input_shape.get(tensor.name, ())
        for extent, declared in zip(shape, tensor.shape, strict=False):
            if declared in session.dims and extent > 0:
                known[declared] = extent
    header = open_package(package).header
    if not known:
        known = _last_gear(tensors, header.get("gears"))
    images = {row["input"] for row in header.get("aipp", ())}
    declared_tensors = [(from_numpy(t.dtype), t.shape) for t in tensors]
    sizes = free_dims(declared_tensors, known, session.dims, session.requirements)
    settings = {row["parameters"]: row for row in header.get("aipp", ()) if row["mode"] == "dynamic"}
    feeds = dict(given)
    for tensor in tensors:
        if isinstance(given.get(tensor.name), RawBytes):
            feeds[tensor.name] = given[tensor.name].array(tensor, concrete_shape(tensor.shape or (), sizes))
        if tensor.name in feeds:
            continue
        if tensor.shape is None or tensor.dtype.hasobject:
            raise UsageError(
                "no values can be made up for this input", code="E10001", where={"tensor": tensor.name},
                remedy=f"give it with --input {tensor.name}=file.npy, a sequence as .npz",
            )  # fmt: skip
        shape = concrete_shape(tensor.shape, sizes)
        if tensor.name in settings:
            row = settings[tensor.name]
            feeds[tensor.name] = plain_images(tuple(row["result"]), row["max_bytes"], shape[0])
            continue
        if tensor.name in images:
            feeds[tensor.name] = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
            continue
        feeds[tensor.name] = seeded(tensor.name, from_numpy(tensor.dtype), shape, bounds.get(tensor.name), seed)
    return feeds


def _last_gear(tensors: Sequence[Any], gears: Mapping[str, Any] | None) -> dict[str, int]:
    """Sizes of the dims that gears choose, of the last combination."""
    shapes = {t.name: t.shape or () for t in tensors}
    rows = gears["axes"] if gears else ()
    last = gears["combinations"][-1] if gears else ()
    return {dim: last[row["value"]] for row in rows for dim in names(parse_dim(shapes[row["input"]][row["axis"]]))}


def _report(package: Path) -> dict[str, Any]:
    return report_of(open_package(package))
