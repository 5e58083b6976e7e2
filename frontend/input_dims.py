"""Shapes of graph inputs: names of dims made legal, wishes of the user applied."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import onnx

from frontend.tensors import element_type
from graph_opt.ir.ops.registry import is_fresh
from tensor_types.dims import Dim, dim
from tensor_types.dtypes import HANDLE, DType
from tensor_types.errors import InvalidModel

Shape: TypeAlias = tuple[Dim, ...] | None
Ranges: TypeAlias = dict[str, tuple[int, int | None]]
DimWish: TypeAlias = int | tuple[int, int | None]
"""What a user wants of a dim: a size, -1 for the model's own, or the least and the greatest size (None: no limit)."""
Wishes: TypeAlias = Mapping[str | int, Sequence[DimWish]]
"""Wishes for the dims of inputs, by the name of the input or by its number."""


def value_type(proto: onnx.ValueInfoProto) -> DType:
    """The element type; sequences, optionals and the like are handles."""
    kind = proto.type.WhichOneof("value")
    if kind == "tensor_type" and proto.type.tensor_type.elem_type:
        return element_type(proto.type.tensor_type.elem_type, proto.name)
    if kind in (None, "tensor_type"):
        raise InvalidModel(
            "an input has no type", code="E13025", where={"tensor": proto.name}, remedy="declare its element type"
        )
    return HANDLE


def input_shapes(inputs: Iterable[onnx.ValueInfoProto], wishes: Wishes) -> tuple[dict[str, Shape], Ranges]:
    """Shape of each graph input, and the ranges of the named dims: from 0 on (an empty batch, a cache before the first
    token, no detections), or as wished."""
    protos = {p.name: p for p in inputs}
    wished = dict(_by_name(wishes, protos))
    names = _DimNames(protos.values())
    shapes = {name: _declared(proto, names) for name, proto in protos.items()}
    fixed: dict[str, int] = {}
    limits: dict[str, tuple[int, int | None]] = {}
    for name, wish in wished.items():
        _apply(name, wish, shapes, names, fixed, limits, protos)
    for name, shape in shapes.items():
        if shape is not None:
            shapes[name] = tuple(fixed.get(str(d), d) for d in shape)
    free = [d for shape in shapes.values() for d in shape or () if not isinstance(d, int)]
    return shapes, {str(d): limits.get(str(d), (0, None)) for d in free}


def _by_name(
    wishes: Wishes, protos: Mapping[str, onnx.ValueInfoProto]
) -> Iterator[tuple[str, Sequence[DimWish]]]:
    names = list(protos)
    for key, wish in wishes.items():
        if isinstance(key, int):
            if key >= len(names):
                reason = f"shapes are given for {len(wishes)} inputs, the model has {len(names)}"
                raise _refused("E10016", reason, protos, names[-1] if names else "")
            yield names[key], wish
        elif key in protos:
            yield key, wish
        else:
            near = difflib.get_close_matches(key, names, 1)
            meant = f", did you mean {near[0]!r}?" if near else ""
            raise _refused("E10016", f"the model has no input {key!r}{meant}", protos, key)


_NO_NAMES = ("", "?", "-1", "None")
"""What exporters write for a dim that has no name of its own."""


class _DimNames:
    """Legal dim names for those of the file: equal names stay equal, different ones different."""

    def __init__(self, protos: Iterable[onnx.ValueInfoProto]) -> None:
        self._taken: set[str] = set()
        self._given: dict[str, str] = {}
        found = [d.dim_param for p in protos for d in p.type.tensor_type.shape.dim if d.dim_param not in _NO_NAMES]
        for source in sorted(set(found), key=lambda name: (_legal(name) != name, found.index(name))):
            self._given[source] = self._free(source)  # names that are legal as they are come first

    def named(self, source: str) -> Dim:
        """The dim of a name of the file."""
        return dim(self._given[source])

    def unnamed(self, tensor: str, axis: int) -> Dim:
        """A dim without a name: named after its place."""
        return dim(self._free(f"{tensor}_{axis}"))

    def _free(self, wish: str) -> str:
        word = name = _legal(wish)
        number = 1
        while name in self._taken:
            name, number = f"{word}_{number}", number + 1
        self._taken.add(name)
        return name


def _legal(wish: str) -> str:
    word = re.sub(r"[^A-Za-z0-9_]", "_", wish)
    if not re.match(r"[A-Za-z]", word) or is_fresh(word) or word in ("min", "max"):
        word = f"dim_{word}"  # the IR reads `u0`, min and max in its own way
    return word


def _declared(proto: onnx.ValueInfoProto, names: _DimNames) -> Shape:
    if value_type(proto) is HANDLE:
        return ()
    tensor = proto.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    out: list[Dim] = []
    for axis, extent in enumerate(tensor.shape.dim):
        if extent.HasField("dim_value") and extent.dim_value >= 0:
            out.append(int(extent.dim_value))
        elif extent.dim_param not in _NO_NAMES:
            out.append(names.named(extent.dim_param))
        else:
            out.append(names.unnamed(proto.name, axis))
    return tuple(out)


def _apply(
    name: str, wish: Sequence[DimWish], shapes: dict[str, Shape], names: _DimNames, fixed: dict[str, int],
    limits: Ranges, protos: Mapping[str, onnx.ValueInfoProto],
) -> None:  # fmt: skip
    """Notes in `fixed` and `limits` what the wish says of the dims of one input."""
    shape = shapes[name]
    if shape is None:
        shape = tuple(names.unnamed(name, axis) for axis in range(len(wish)))
        shapes[name] = shape
    if len(wish) != len(shape):
        raise _refused("E10049", f"{len(wish)} dims given for an input of rank {len(shape)}", protos, name)
    for axis, (extent, own) in enumerate(zip(wish, shape, strict=True)):
        if extent == -1:
            continue
        low, high = extent if isinstance(extent, tuple) else (extent, extent)
        if isinstance(own, int):
            if not (low <= own and (high is None or own <= high)):
                reason = f"axis {axis} is {own} in the model, not {_shown(extent)}"
                raise _refused("E10050", reason, protos, name, "; export it with an open dim there for other sizes")
            continue
        if low < 1 or (high is not None and high < low):
            raise _refused("E10011", f"axis {axis} is {_shown(extent)}, but must be positive or -1", protos, name)
        before = limits.get(str(own), (1, None))
        limits[str(own)] = both = _intersection(before, (low, high))
        if both[1] is not None and both[0] > both[1]:
            reason = f"axis {axis} ({own}) is {_shown(before)} in another place, not {_shown(extent)}"
            raise _refused("E10050", reason, protos, name)
        if both[0] == both[1]:
            fixed[str(own)] = both[0]


def _intersection(a: tuple[int, int | None], b: tuple[int, int | None]) -> tuple[int, int | None]:
    highs = [high for high in (a[1], b[1]) if high is not None]
    return max(a[0], b[0]), min(highs, default=None)


def _shown(extent: DimWish) -> str:
    if isinstance(extent, int):
        return str(extent)
    low, high = extent
    return str(low) if low == high else f"{low}~{'' if high is None else high}"


def _refused(
    code: str, reason: str, protos: Mapping[str, onnx.ValueInfoProto], name: str, more: str = ""
) -> InvalidModel:
    known = "; ".join(_declared_text(p) for p in protos.values())
    return InvalidModel(
        reason, code=code, where={"tensor": name, "flag": "--input_shape"},
        remedy=f"the model's inputs are {known}{more}",
    )  # fmt: skip


def _declared_text(proto: onnx.ValueInfoProto) -> str:
    """An input as users see it in messages: name, type, shape."""
    tensor = proto.type.tensor_type
    dims = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
    shape = f"[{', '.join(dims)}]" if tensor.HasField("shape") else "[any rank]"
    return f"{proto.name}: {value_type(proto)}{shape}"
