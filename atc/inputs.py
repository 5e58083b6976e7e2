"""Inputs for a run: from `name=file.npy`, seeded sensible values for the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atc.usage import UsageError
from tensor_types.array_files import read_arrays
from tensor_types.dtypes import DType
from tensor_types.errors import InvalidModel

if TYPE_CHECKING:
    from acl_runtime.session import TensorInfo
    from graph_opt.ir import Graph, Value


def index_bounds(graph: Graph) -> dict[str, int]:
    """For every integer input that indexes a table of known size: the size of the smallest such table."""
    bounds: dict[str, int] = {}
    for value in graph.inputs:
        if value.dtype.is_integer:
            sizes = [s for s in _table_sizes(value, 0) if s is not None]
            if sizes:
                bounds[value.name] = min(sizes)
    return bounds


def _table_sizes(value: Value, depth: int) -> list[int | None]:
    found: list[int | None] = []
    for node, index in value.uses:
        if node.op == "Gather" and index == 1 and node.inputs[0] is not None and node.inputs[0].shape is not None:
            axis = node.attrs.get("axis", 0)
            extent = node.inputs[0].shape[axis]  # type: ignore[index]
            found.append(extent if isinstance(extent, int) else None)
        elif node.op in ("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten") and depth < 8:
            found.extend(_table_sizes(node.output, depth + 1))
    return found


def seeded(name: str, dtype: DType, shape: Sequence[int], bound: int | None, seed: int = 0) -> np.ndarray:
    """Seeded values: normal floats, indices below `bound`, ones for integers that index nothing (masks), booleans."""
    generator = np.random.default_rng([seed, *name.encode()])
    if dtype.is_float:
        return generator.standard_normal(tuple(shape), dtype=np.float32).astype(dtype.numpy)
    if dtype.name == "bool":
        return generator.integers(0, 2, tuple(shape)).astype(np.bool_)
    if bound is not None:
        return generator.integers(0, bound, tuple(shape)).astype(dtype.numpy)
    return np.ones(tuple(shape), dtype.numpy)


class RawBytes(bytes):
    """The bytes of a .bin file: elements of an input in row-major order, of its dtype."""

    def array(self, tensor: TensorInfo, shape: Sequence[int]) -> np.ndarray:
        """As an array of the input's shape. UsageError if there are more or fewer bytes than it takes."""
        wanted = math.prod(shape) * tensor.dtype.itemsize
        if len(self) != wanted:
            raise UsageError(
                f"the file has {len(self)} bytes, {tensor.dtype}[{', '.join(map(str, shape))}] takes {wanted}",
                where={"flag": "--input", "tensor": tensor.name}, remedy="give a fitting file, or sizes with --dims",
            )  # fmt: skip
        return np.frombuffer(self, tensor.dtype).reshape(tuple(shape))


def read_files(given: Sequence[str]) -> dict[str, Any]:
    """What `name=file` arguments hold: an array of .npy, a list of .npz, RawBytes of .bin. A file.npz alone holds
    arrays of several inputs by name.

    UsageError names one that cannot be read, or is given twice.
    """
    found: dict[str, Any] = {}
    for text in given:
        if "=" not in text and text.endswith(".npz"):
            found.update(_loaded(text, text))
            continue
        name, equals, path = text.rpartition("=")
        if not equals or not name:
            raise UsageError(f"--input {text!r}", where={"flag": "--input"}, remedy="write name=file.npy")
        if name in found:
            raise UsageError("--input names an input twice", where={"flag": "--input", "tensor": name},
                             remedy="give each input one file")  # fmt: skip
        loaded = _loaded(path, name)
        found[name] = list(loaded.values()) if isinstance(loaded, dict) else loaded
    return found


def _loaded(path: str, name: str) -> Any:
    try:
        if path.endswith(".bin"):
            return RawBytes(Path(path).read_bytes())
        return read_arrays(path)
    except (OSError, ValueError) as error:
        reason = "it holds no array" if "pickle" in str(error) else getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}", where={"flag": "--input", "tensor": name},
                         remedy="give a .npy, .npz or .bin file") from error  # fmt: skip


def check_given(
    tensors: Sequence[TensorInfo], given: Mapping[str, Any], wishes: Mapping[str, Sequence[int]]
) -> None:
    """InvalidModel where arrays or wished shapes (-1: any extent) do not fit the inputs of a package, or one another.

    What is wrong with the shape of an array alone is the session's to say.
    """
    named = {t.name: t for t in tensors}
    for name, value in given.items():
        if isinstance(value, list) and name in named and not named[name].dtype.hasobject:
            raise InvalidModel("a sequence for a tensor input", where={"tensor": name, "flag": "--input"},
                               remedy="give a .npy file; .npz stands for a sequence")  # fmt: skip
    fixed: dict[str, int] = {}
    for name, wish in wishes.items():
        if name not in named:
            raise _refused("E10016", f"the model has no input {name!r}", tensors, name)
        shape = named[name].shape
        value = given.get(name)
        array_shape = value.shape if isinstance(value, np.ndarray) else None
        for own, what in ((shape, "an input"), (array_shape, "an array")):
            if own is not None and len(wish) != len(own):
                raise _refused("E10049", f"{len(wish)} dims given for {what} of rank {len(own)}", tensors, name)
        for axis, extent in enumerate(wish):
            own = shape[axis] if shape is not None else -1
            if extent == -1:
                continue
            if isinstance(own, str) and fixed.setdefault(own, extent) != extent:
                reason = f"axis {axis} ({own}) is {fixed[own]} in another place, not {extent}"
                raise _refused("E10050", reason, tensors, name)
            if isinstance(own, int) and own not in (-1, extent):
                raise _refused("E10050", f"axis {axis} is {own} in the model, not {extent}", tensors, name)
            if array_shape is not None and array_shape[axis] != extent:
                reason = f"axis {axis} is {array_shape[axis]} in the file of --input, not {extent}"
                raise _refused("E10050", reason, tensors, name)


def _refused(code: str, reason: str, tensors: Sequence[TensorInfo], name: str) -> InvalidModel:
    shown = ("any rank" if t.shape is None else ", ".join(map(str, t.shape)) for t in tensors)
    known = "; ".join(f"{t.name}: {t.dtype}[{shape}]" for t, shape in zip(tensors, shown, strict=True))
    return InvalidModel(
        reason, code=code, where={"tensor": name, "flag": "--input_shape"}, remedy=f"the model's inputs are {known}"
    )
