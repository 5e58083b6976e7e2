"""What a package can be compared with: onnxruntime, ONNX's reference evaluator, another package, a folder of dumps.

An oracle takes the model, its inputs and the source tensors that are wanted, and gives a `Golden`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from acl_runtime import InferSession
from acl_runtime.om import open_package
from atc.golden import Golden, golden_tensors, structure
from atc.package_texts import graph_of
from atc.usage import UsageError
from tensor_types.array_files import read_array
from tensor_types.errors import EnvironmentProblem

Oracle = Callable[[Path, Mapping[str, Any], Mapping[str, np.dtype]], Golden]

_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_OF_A_DUMP = re.compile(r"(?P<node>.+)\.(?P<index>\d+)\.\d{10,}")
"""`node.output.microseconds`, as msit names the tensors of onnxruntime."""


def golden_by_onnxruntime(model: Path, inputs: Mapping[str, Any], wanted: Mapping[str, np.dtype]) -> Golden:
    """onnxruntime, as `atc.golden` says."""
    return golden_tensors(model, inputs, wanted)


def oracle_of(against: str, flag: str = "--against") -> Oracle:
    """onnxruntime, `reference`, a package (.om) or a folder of .npy files. UsageError for anything else."""
    if against in ("", "onnxruntime"):
        return golden_by_onnxruntime
    if against == "reference":
        return partial(golden_tensors, run=_run_reference, name="onnx.reference")
    path = Path(against)
    if path.is_dir():
        return partial(_of_folder, path)
    if path.is_file():
        return partial(_of_package, path)
    raise UsageError(f"{flag} {against!r} does not exist", code="E10001", where={"flag": flag},
                     remedy="name onnxruntime, reference, a package (.om) or a folder of .npy files")  # fmt: skip


def _run_reference(proto: onnx.ModelProto, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """All outputs by ONNX's own reference implementation. EnvironmentProblem if it lacks an operator."""
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(proto)
        names = [o.name for o in proto.graph.output]
        found = evaluator.run(names, {n: inputs[n] for n in evaluator.input_names})
    except Exception as error:  # whatever its implementations raise
        raise EnvironmentProblem(
            f"onnx.reference {onnx.__version__} cannot run the model: {error}",
            remedy="compare with onnxruntime, which is the default",
        ) from error
    return dict(zip(names, found, strict=True))


def _of_package(path: Path, model: Path, inputs: Mapping[str, Any], wanted: Mapping[str, np.dtype]) -> Golden:
    """What another package of the same model computes; tensors that it does not write have no value."""
    quantised, parents, _ = structure(model)
    session = InferSession(0, path, keep=True)
    graph = graph_of(open_package(path))
    feeds = {}
    for tensor in session.get_inputs():
        if tensor.name not in inputs:
            raise UsageError(
                f"{path} has an input that the package beside it has not", code="E10016",
                where={"tensor": tensor.name, "flag": "--against"}, remedy="name a package of the same model",
            )  # fmt: skip
        given = inputs[tensor.name]
        is_plain = isinstance(given, np.ndarray) and not tensor.dtype.hasobject
        feeds[tensor.name] = given.astype(tensor.dtype) if is_plain else given
    results = session.infer(feeds)
    values: dict[str, Any] = dict(zip((o.name for o in session.get_outputs()), results, strict=True))
    in_memory = set(session.tensor_names())
    for source, origin in graph.origins.items():
        if source in wanted and origin.relation in ("same", "cast") and origin.value in in_memory:
            values.setdefault(source, session.read(str(origin.value)))
    return Golden(values, quantised, parents, name=path.name)


def _of_folder(folder: Path, model: Path, inputs: Mapping[str, Any], wanted: Mapping[str, np.dtype]) -> Golden:
    """Tensors from `NAME.npy`, characters that file names cannot have as '_', or `NODE.OUTPUT.MICROSECONDS.npy`.

    UsageError if no file is one of the model's tensors.
    """
    quantised, parents, places = structure(model)
    tensors = {file_name(name): name for name in (*parents, *inputs)}
    by_place = {file_name(node) + f":{index}": tensor for place, tensor in places.items()
                for node, _, index in [place.rpartition(":")]}  # fmt: skip
    values: dict[str, Any] = {}
    for path in sorted(folder.glob("*.npy")):
        name = tensors.get(path.stem)
        if name is None and (found := _OF_A_DUMP.fullmatch(path.stem)):
            name = by_place.get(f"{found['node']}:{found['index']}")
        if name is None:
            continue
        try:
            values[name] = read_array(path)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {path}: {error}", where={"flag": "--against"},
                             remedy="give .npy files") from error  # fmt: skip
    if not values:
        raise UsageError(
            f"no .npy file in {folder} is named after a tensor of the model", code="E10016",
            where={"flag": "--against"}, remedy=f"name them as {file_name(next(iter(parents), 'tensor'))}.npy",
        )  # fmt: skip
    return Golden(values, quantised, parents, name=folder.name)


def dumped_inputs(folder: Path, names: list[str]) -> dict[str, np.ndarray]:
    """The inputs among the tensors of a folder of dumps: what the dump was made of."""
    found = {name: folder / f"{file_name(name)}.npy" for name in names}
    return {name: read_array(path) for name, path in found.items() if path.is_file()}


def file_name(tensor: str) -> str:
    """A tensor's name as that of a file, without the suffix."""
    return _IN_FILE_NAMES.sub("_", tensor)
