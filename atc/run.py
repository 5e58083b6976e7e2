"""`atc run`: runs a package, or converts a model and runs it, and measures its latency."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime import InferSession
from acl_runtime.om import open_package
from atc.conversion import convert
from atc.inputs import concrete_shape, read_files, seeded
from tensor_types.dtypes import from_numpy


def run_model(
    path: Path,
    files: Sequence[str],
    input_shape: Mapping[str, Sequence[int]],
    loop: int,
    threads: int,
    output_dir: Path | None,
) -> dict[str, Any]:
    """Runs `loop` times after one warm-up and gives latency, outputs and share of the AI CPU for machines."""
    with tempfile.TemporaryDirectory() as folder:
        package = path
        if path.suffix == ".onnx":
            package = Path(folder) / "model.om"
            convert(path, package, input_shape=input_shape)
        session = InferSession(0, str(package), threads=threads)
        feeds = session_inputs(session, package, read_files(files), input_shape)
        outputs = session.infer(feeds)
        seconds = []
        for _ in range(loop):
            started = time.perf_counter()
            outputs = session.infer(feeds)
            seconds.append(time.perf_counter() - started)
        profile = session.profile(feeds)
    names = [o.name for o in session.get_outputs()]
    if output_dir is not None:
        output_dir.mkdir(parents=True, exist_ok=True)
        for name, value in zip(names, outputs, strict=True):
            np.save(output_dir / (re.sub(r"[^A-Za-z0-9]", "_", name) + ".npy"), value)
    milliseconds = np.array(seconds) * 1e3
    return {
        "latency_ms": {
            "median": float(np.median(milliseconds)),
            "p99": float(np.percentile(milliseconds, 99)),
            "min": float(milliseconds.min()),
        },
        "aicpu_share": profile.ai_cpu_share,
        "outputs": {
            n: {"shape": list(v.shape), "dtype": str(v.dtype)} for n, v in zip(names, outputs, strict=True)
        },
        "threads": threads,
        "compiled_at_run": session.compiled_at_run,
    }


def session_inputs(
    session: InferSession,
    package: Path,
    given: Mapping[str, np.ndarray],
    input_shape: Mapping[str, Sequence[int]],
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """One array per input: the given ones, seeded values for the rest. Named dims follow from what is given."""
    dims: dict[str, int] = {}
    bounds = json.loads(bytes(open_package(package).section("report"))).get("index_bounds", {})
    for tensor in session.get_inputs():
        known = given[tensor.name].shape if tensor.name in given else input_shape.get(tensor.name, ())
        for extent, declared in zip(known, tensor.shape, strict=False):
            if isinstance(declared, str) and extent > 0:
                dims[declared] = extent
    feeds = dict(given)
    for tensor in session.get_inputs():
        if tensor.name not in feeds:
            shape = concrete_shape(tensor.shape, dims)
            feeds[tensor.name] = seeded(tensor.name, from_numpy(tensor.dtype), shape, bounds.get(tensor.name), seed)
    return feeds
