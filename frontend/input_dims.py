"""Shapes of graph inputs: names of dims made legal, wishes of the user applied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import onnx

from frontend.tensors import element_type
from graph_opt.ir.ops.registry import is_fresh
from tensor_types.dims import Dim, dim
from tensor_types.dtypes import HANDLE, DType
from tensor_types.errors import InvalidModel

Shape = tuple[Dim, ...] | None
Ranges = dict[str, tuple[int, int | None]]
_RANGE = re.compile(r"(\d+)~(\d+|-1)?")


def value_type(proto: onnx.ValueInfoProto) -> DType:
    """The element type; sequences, optionals and the like are handles."""
    kind = proto.type.WhichOneof("value")
    if kind not in ("tensor_type", None):
        return HANDLE
    if kind is None or not proto.type.tensor_type.elem_type:
        raise InvalidModel("an input has no type", where={"tensor": proto.name}, remedy="declare its element type")
    return element_type(proto.type.tensor_type.elem_type, proto.name)


def declared_text(proto: onnx.ValueInfoProto) -> str:
    """An input as users see it in messages: name, type, shape."""
    tensor = proto.type.tensor_type
    dims = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
    shape = f"[{', '.join(dims)}]" if tensor.HasField("shape") else "[any rank]"
    return f"{proto.name}: {value_type(proto)}{shape}"


class DimNames:
    """Legal dim names for those of the file: equal names stay equal, different ones different."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def named(self, source: str) -> str:
        """The dim name for a name of the file."""
        if source not in self._given:
            self._given[source] = self._free(source)
        return self._given[source]

    def unnamed(self, tensor: str, axis: int) -> str:
        """A name for a dim without one."""
        name = self._free(f"{tensor}_{axis}")
        self._given[f"\0{name}"] = name
        return name

    def _free(self, wish: str) -> str:
        word = re.sub(r"\W", "_", wish, flags=re.ASCII)
        word = word if re.match(r"[A-Za-z_]", word) else f"d{word}"
        if is_fresh(word) or word in ("min", "max"):
            word += "_"  # the IR reads these names in its own way
        taken, name, number = set(self._given.values()), word, 1
        while name in taken:
            name, number = f"{word}_{number}", number + 1
        return name


def input_shapes(
    inputs: Iterable[onnx.ValueInfoProto], wishes: Mapping[str, Sequence[int | str]]
) -> tuple[dict[str, Shape], Ranges]:
    """Shape of each graph input, and the ranges of the named dims.

    A dim that is somewhere the first axis, or is called a batch, is at least 1; others may be 0.
    """
    protos = list(inputs)
    for name in wishes:
        if name not in {p.name for p in protos}:
            raise _refused("E10016", f"the model has no input {name!r}", protos, name)
    names, shapes = DimNames(), {}
    for proto in protos:
        shapes[proto.name] = _declared(proto, names)
    fixed: dict[str, int] = {}
    bounds: Ranges = {}
    for proto in protos:
        if proto.name in wishes:
            _apply(proto, wishes[proto.name], shapes, names, fixed, bounds, protos)
    ranges: Ranges = {}
    for name, shape in shapes.items():
        if shape is None:
            continue
        shapes[name] = tuple(fixed.get(str(d), d) for d in shape)
        for axis, extent in enumerate(shapes[name] or ()):
            key = str(extent)
            if isinstance(extent, int):
                continue
            low = 1 if axis == 0 or "batch" in key.lower() else 0
            first, last = ranges.get(key, (0, None))
            ranges[key] = bounds.get(key, (max(first, low), last))
    return shapes, ranges


def _declared(proto: onnx.ValueInfoProto, names: DimNames) -> Shape:
    if value_type(proto) is HANDLE:
        return ()
    tensor = proto.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    out: list[Dim] = []
    for axis, extent in enumerate(tensor.shape.dim):
        if extent.HasField("dim_value") and extent.dim_value >= 0:
            out.append(extent.dim_value)
        elif extent.dim_param:
            out.append(dim(names.named(extent.dim_param)))
        else:
            out.append(dim(names.unnamed(proto.name, axis)))
    return tuple(out)


def _apply(
    proto: onnx.ValueInfoProto, wish: Sequence[int | str], shapes: dict[str, Shape], names: DimNames,
    fixed: dict[str, int], bounds: Ranges, protos: list[onnx.ValueInfoProto],
) -> None:  # fmt: skip
    shape = shapes[proto.name]
    if shape is None:
        shape = tuple(dim(names.unnamed(proto.name, axis)) for axis in range(len(wish)))
    if len(wish) != len(shape):
        raise _refused("E10049", f"{len(wish)} dims given for an input of rank {len(shape)}", protos, proto.name)
    out = list(shape)
    for axis, extent in enumerate(wish):
        own = shape[axis]
        span = _RANGE.fullmatch(extent) if isinstance(extent, str) else None
        if extent == -1:
            continue
        if isinstance(extent, int):
            if extent < 0:
                raise _refused("E10011", f"dim {axis} is {extent}, but must be positive or -1", protos, proto.name)
            if isinstance(own, int):
                if own != extent:
                    raise _refused("E10001", f"dim {axis} is {own} in the model, not {extent}", protos, proto.name)
            elif fixed.setdefault(str(own), extent) != extent:
                reason = f"dim {axis} ({own}) is {fixed[str(own)]} in another place, not {extent}"
                raise _refused("E10001", reason, protos, proto.name)
        elif isinstance(own, int):
            if span is None or not int(span[1]) <= own <= (own if span[2] in (None, "-1") else int(span[2])):
                raise _refused("E10050", f"dim {axis} is {own} in the model, not {extent}", protos, proto.name)
        elif span is not None:
            high = None if span[2] in (None, "-1") else int(span[2])
            if high is not None and high < int(span[1]):
                raise _refused("E10001", f"the range {extent} of dim {axis} is empty", protos, proto.name)
            bounds[str(own)] = (int(span[1]), high)
        else:
            out[axis] = dim(names.named(extent))
    shapes[proto.name] = tuple(out)


def _refused(code: str, reason: str, protos: list[onnx.ValueInfoProto], name: str) -> InvalidModel:
    known = "; ".join(declared_text(p) for p in protos)
    return InvalidModel(
        reason, code=code, where={"tensor": name, "flag": "--input_shape"}, remedy=f"the model's inputs are {known}"
    )
