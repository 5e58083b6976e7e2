"""The MODEL_DEF partition: the fused graph as the public protobuf message, for viewers and for `inspect`.

It takes and gives a neutral description; nothing here is executed. Viewers decide on what they show by rules that
are stricter than the schema, and `encode` keeps them: map entries state key and value, both ends of an edge state
the same dtype and shape, every op has its own name, and only inputs, outputs and constants become ops of the types
`Data`, `NetOutput` and `Const`, so that a viewer shows one node more per input and output and none other.

Field numbers are those of the public GE schema (`ge_ir.proto`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from . import wire
from .errors import PackageError

Scalar = str | int | float | bool
Attribute = Scalar | Sequence[Scalar]

MAX_BYTES = 64 << 20
MAX_RANK = 32
ORIGIN_ATTRIBUTE = "_datadump_original_op_names"
"""The attribute under which viewers and dump tools look for the source nodes of a fused one."""

GE_DTYPE = {
    "f32": 1, "f16": 2, "i8": 3, "u8": 4, "i16": 5, "u16": 6, "i32": 7, "i64": 8, "u32": 9, "u64": 10,
    "bool": 11, "f64": 12, "str": 13, "c64": 16, "c128": 17, "handle": 23, "bf16": 27, "i4": 28,
}  # fmt: skip
_DTYPE_OF_GE = {number: name for name, number in GE_DTYPE.items()}
_DTYPE_ATTRIBUTE = "dtype"
"""Carries the name of a dtype that the schema has no number for, or none that viewers know."""
_RESERVED_TYPES = frozenset(("Data", "NetOutput", "Const"))
_STRINGS, _INTEGERS, _FLOATS, _BOOLS = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class TensorDesc:
    """A tensor; `shape` in elements with -1 for a symbolic dimension, `dtype` a name of `tensor_types.dtypes`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    format: str = "ND"


@dataclass(frozen=True, slots=True)
class ConstDesc:
    """A constant: `size` bytes at byte `offset` of the weights section."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int
    format: str = "ND"


@dataclass(frozen=True, slots=True)
class NodeDesc:
    """A kernel or AI CPU task. `inputs` are tensor names, "" for an absent optional one; names of nodes are unique.
    `source_names` are the nodes of the user's model that it computes."""

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[TensorDesc, ...]
    attrs: Mapping[str, Attribute] = field(default_factory=dict)
    source_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """The graph after fusion. `nodes` are in an order in which every tensor is produced before it is read."""

    name: str
    inputs: tuple[TensorDesc, ...]
    outputs: tuple[TensorDesc, ...]
    nodes: tuple[NodeDesc, ...]
    constants: tuple[ConstDesc, ...] = ()
    attrs: Mapping[str, Attribute] = field(default_factory=dict)
    """What the model as a whole says of itself, such as its chip."""

    @property
    def dynamic(self) -> bool:
        """Whether an input has a symbolic dimension."""
        return any(dim < 0 for desc in self.inputs for dim in desc.shape)


def encode(graph: FusedGraph) -> bytes:
    """The MODEL_DEF message of `graph`.

    Raises PackageError if a tensor is read before it is produced, a name is given twice, an attribute is neither
    a scalar nor a list of scalars of one type, or a dtype is unknown.
    """
    return encode_model(graph.name, encode_graph(graph), graph.attrs)


def encode_model(name: str, body: bytes, attrs: Mapping[str, Attribute]) -> bytes:
    """The MODEL_DEF message of a graph that `encode_graph` gave, with attributes of the model: those of a graph do not
    count."""
    about = {key: _attribute(name, key, value) for key, value in sorted(attrs.items())}
    encoded = wire.text(1, name) + wire.integer(2, 1) + wire.message(7, body)
    encoded += b"".join(wire.map_entry(11, key, value) for key, value in about.items())
    if len(encoded) > MAX_BYTES:
        raise _misuse(f"the graph description has {len(encoded)} bytes, the limit is {MAX_BYTES}")
    return encoded


def encode_graph(graph: FusedGraph) -> bytes:
    """The part of the message that describes ops and tensors; raises as `encode` does."""
    names = _OpNames(node.name for node in graph.nodes)
    place: dict[str, tuple[str, bytes]] = {}
    """Tensor name -> its reference "op:index" and its description."""
    ops: list[bytes] = []

    def produce(tensor: TensorDesc | ConstDesc, reference: str) -> bytes:
        if not tensor.name or tensor.name in place:
            raise _misuse(f"tensor {tensor.name!r} is produced twice or has no name")
        described = _tensor(tensor)
        place[tensor.name] = reference, described
        return described

    for desc in graph.inputs:
        op = names.claim(desc.name)
        ops.append(_op(op, "Data", [], [produce(desc, f"{op}:0")], {}))
    for const in graph.constants:
        op = names.claim(const.name)
        described = produce(const, f"{op}:0")
        where = described + wire.integer(11, const.size) + wire.integer(18, const.offset)
        ops.append(_op(op, "Const", [], [described], {"value": wire.message(12, wire.message(1, where))}))
    for node in graph.nodes:
        if node.type in _RESERVED_TYPES or not node.type:
            raise _misuse(f"node {node.name} has the type {node.type!r}, which viewers do not show as a node")
        read = [_read(place, name, node.name) for name in node.inputs]
        attrs = {key: _attribute(node.name, key, value) for key, value in node.attrs.items()}
        if node.source_names:
            attrs[ORIGIN_ATTRIBUTE] = _attribute(node.name, ORIGIN_ATTRIBUTE, node.source_names)
        made = [produce(desc, f"{node.name}:{i}") for i, desc in enumerate(node.outputs)]
        ops.append(_op(node.name, node.type, read, made, attrs))
    results = [_read(place, desc.name, "NetOutput") for desc in graph.outputs]
    ops.append(_op(names.claim("NetOutput"), "NetOutput", results, [], {}))

    parts = [wire.text(1, graph.name)]
    parts += (wire.text(4, place[desc.name][0]) for desc in graph.inputs)
    parts += (wire.text(5, reference) for reference, _ in results)
    parts += (wire.message(6, op) for op in ops)
    return b"".join(parts)


class _OpNames:
    """Names of ops: those of the nodes stand, others make way with a numbered suffix."""

    def __init__(self, node_names: Iterable[str]) -> None:
        self._taken: set[str] = set()
        for name in node_names:
            if not name or name in self._taken:
                raise _misuse(f"node name {name!r} is empty or given twice")
            self._taken.add(name)

    def claim(self, wanted: str) -> str:
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name


def _read(place: Mapping[str, tuple[str, bytes]], name: str, reader: str) -> tuple[str, bytes]:
    """Reference and description. Readers pair them by position, so an absent input has empty ones."""
    if not name:
        return "", b""
    if name not in place:
        raise _misuse(f"{reader} reads tensor {name!r} before anything produces it")
    return place[name]


def _op(
    name: str, op_type: str, read: Sequence[tuple[str, bytes]], produced: Sequence[bytes], attrs: Mapping[str, bytes]
) -> bytes:
    out = [wire.text(1, name), wire.text(2, op_type)]
    out += [wire.text(5, reference) for reference, _ in read]
    out += [wire.map_entry(10, key, attrs[key]) for key in sorted(attrs)]
    out += [wire.message(33, description) for _, description in read]
    out += [wire.message(34, description) for description in produced]
    return b"".join(out)


def _tensor(desc: TensorDesc | ConstDesc) -> bytes:
    if len(desc.shape) > MAX_RANK or any(dim < -1 for dim in desc.shape):
        raise _misuse(f"tensor {desc.name} has the shape {desc.shape}")
    return wire.text(1, desc.name) + _type(desc.dtype, desc.shape, desc.format)


@lru_cache(maxsize=256)
def _type(dtype: str, shape: tuple[int, ...], layout: str) -> bytes:
    number = GE_DTYPE.get(dtype, 0)
    out = wire.integer(2, number) + wire.message(3, wire.packed(1, shape) if shape else b"") + wire.text(4, layout)
    if not number:
        out += wire.map_entry(5, _DTYPE_ATTRIBUTE, _string(dtype))
    return out


def _string(value: str) -> bytes:
    return wire.message(2, _printable(value))


def _printable(value: str) -> bytes:
    """ASCII with escapes: viewers show other bytes as numbers or garbled."""
    if value.isascii() and value.isprintable():
        return value.encode()
    shown = "".join(c if c.isascii() and c.isprintable() else c.encode("unicode_escape").decode()
                    for c in value)  # fmt: skip
    return shown.encode()


def _attribute(node: str, key: str, value: Attribute) -> bytes:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return wire.integer(5, value)
    if isinstance(value, int):
        return wire.integer(3, _int64(node, key, value))
    if isinstance(value, float):
        return wire.single(4, _float32(value))
    if isinstance(value, list | tuple):
        return wire.message(1, _list(node, key, value))
    raise _misuse(f"attribute {key} of node {node} is a {type(value).__name__}")


def _list(node: str, key: str, values: Sequence[Scalar]) -> bytes:
    if not values:
        return b""
    if all(isinstance(v, str) for v in values):
        return b"".join(wire.message(2, _printable(str(v))) for v in values) + wire.integer(20, _STRINGS)
    if all(isinstance(v, bool) for v in values):
        return wire.packed(5, map(int, values)) + wire.integer(20, _BOOLS)
    if all(isinstance(v, int) for v in values):
        return wire.packed(3, (_int64(node, key, int(v)) for v in values)) + wire.integer(20, _INTEGERS)
    if all(isinstance(v, int | float) for v in values):
        floats = np.array([_float32(v) for v in values], dtype="<f4").tobytes()
        return wire.message(4, floats) + wire.integer(20, _FLOATS)
    raise _misuse(f"attribute {key} of node {node} mixes types or nests lists")


def _int64(node: str, key: str, value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise _misuse(f"attribute {key} of node {node} is beyond 64 bits")
    return value


def _float32(value: float | int | str) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _misuse(message: str) -> PackageError:
    return PackageError(message, remedy="this is a fault of the compiler: report it with the model")


def decode(data: memoryview) -> FusedGraph:
    """The graph of a MODEL_DEF message that `encode` wrote; `encode(decode(x)) == x`.

    Text of attributes stays in its escaped, shown form. Raises PackageError for anything else.
    """
    if len(data) > MAX_BYTES:
        raise _foreign(f"{len(data)} bytes, the limit is {MAX_BYTES}")
    bodies = [wire.as_message(value) for number, value in wire.fields(data) if number == 7]
    if len(bodies) != 1:
        raise _foreign(f"{len(bodies)} graphs instead of one")
    name, ops = "", []
    for number, value in wire.fields(bodies[0]):
        if number == 1:
            name = wire.as_text(value)
        elif number == 6:
            ops.append(_decode_op(wire.as_message(value)))
    tensor_names = {f"{op.name}:{i}": desc.name for op in ops for i, desc in enumerate(op.produced)}
    tensor_names[""] = ""
    inputs: list[TensorDesc] = []
    constants: list[ConstDesc] = []
    nodes: list[NodeDesc] = []
    outputs: list[TensorDesc] = []
    for op in ops:
        unknown = [reference for reference in op.references if reference not in tensor_names]
        if unknown or len(op.read) != len(op.references):
            raise _foreign(f"op {op.name} reads {unknown or 'inputs'} that nothing describes")
        if op.type == "Data":
            inputs += op.produced
        elif op.type == "NetOutput":
            outputs += op.read
        elif op.type == "Const":
            constants.append(_decode_const(op))
        else:
            nodes.append(_node(op, tuple(tensor_names[reference] for reference in op.references)))
    entries = (_decode_entry(wire.as_message(value)) for number, value in wire.fields(data) if number == 11)
    attrs = {key: _decode_attribute(content) for key, content in entries}
    return FusedGraph(name, tuple(inputs), tuple(outputs), tuple(nodes), tuple(constants), attrs)


@dataclass(slots=True)
class _Op:
    name: str = ""
    type: str = ""
    references: list[str] = field(default_factory=list)
    attrs: dict[str, memoryview] = field(default_factory=dict)
    read: list[TensorDesc] = field(default_factory=list)
    produced: list[TensorDesc] = field(default_factory=list)


def _decode_op(data: memoryview) -> _Op:
    op = _Op()
    for number, value in wire.fields(data):
        if number == 1:
            op.name = wire.as_text(value)
        elif number == 2:
            op.type = wire.as_text(value)
        elif number == 5:
            op.references.append(wire.as_text(value))
        elif number == 10:
            key, content = _decode_entry(wire.as_message(value))
            op.attrs[key] = content
        elif number == 33:
            op.read.append(_decode_tensor(wire.as_message(value)))
        elif number == 34:
            op.produced.append(_decode_tensor(wire.as_message(value)))
    return op


def _decode_entry(data: memoryview) -> tuple[str, memoryview]:
    parts = dict(wire.fields(data))
    if 1 not in parts or 2 not in parts:
        raise _foreign("a map entry without key or value")
    return wire.as_text(parts[1]), wire.as_message(parts[2])


def _decode_tensor(data: memoryview) -> TensorDesc:
    name, dtype, layout = "", "", ""
    shape: list[int] = []
    for number, value in wire.fields(data):
        if number == 1:
            name = wire.as_text(value)
        elif number == 2:
            dtype = _DTYPE_OF_GE.get(wire.as_integer(value), dtype)
        elif number == 3:
            for inner, dims in wire.fields(wire.as_message(value)):
                shape += wire.as_integers(dims) if inner == 1 else []
        elif number == 4:
            layout = wire.as_text(value)
        elif number == 5:
            key, content = _decode_entry(wire.as_message(value))
            if key == _DTYPE_ATTRIBUTE:
                dtype = str(_decode_attribute(content))
    if len(shape) > MAX_RANK or any(dim < -1 for dim in shape):
        raise _foreign(f"a tensor of the shape {shape[:MAX_RANK]}")
    return TensorDesc(name, dtype, tuple(shape), layout)


def _decode_const(op: _Op) -> ConstDesc:
    size = offset = -1
    if "value" in op.attrs:
        tensor = dict(wire.fields(op.attrs["value"])).get(12)
        desc = dict(wire.fields(wire.as_message(tensor))).get(1) if tensor is not None else None
        if desc is not None:
            numbers = dict(wire.fields(wire.as_message(desc)))
            size, offset = wire.as_integer(numbers.get(11, -1)), wire.as_integer(numbers.get(18, -1))
    if len(op.produced) != 1 or size < 0 or offset < 0:
        raise _foreign(f"constant {op.name} does not point into the weights")
    produced = op.produced[0]
    return ConstDesc(produced.name, produced.dtype, produced.shape, offset, size, produced.format)


def _node(op: _Op, inputs: tuple[str, ...]) -> NodeDesc:
    attrs = {key: _decode_attribute(content) for key, content in op.attrs.items()}
    origin = attrs.pop(ORIGIN_ATTRIBUTE, [])
    sources = tuple(str(name) for name in origin) if isinstance(origin, list) else ()
    return NodeDesc(op.name, op.type, inputs, tuple(op.produced), attrs, sources)


def _decode_attribute(data: memoryview) -> Attribute:
    for number, value in wire.fields(data):
        if number == 1:
            return _decode_list(wire.as_message(value))
        if number == 2:
            return wire.as_text(value)
        if number == 3:
            return wire.as_integer(value)
        if number == 4:
            return wire.as_single(value)
        if number == 5:
            return bool(wire.as_integer(value))
    raise _foreign("an attribute of an unknown kind")


def _decode_list(data: memoryview) -> list[Scalar]:
    out: list[Scalar] = []
    for number, value in wire.fields(data):
        if number == 2:
            out.append(wire.as_text(value))
        elif number == 3:
            out += wire.as_integers(value)
        elif number == 4:
            out += wire.as_singles(value)
        elif number == 5:
            out += map(bool, wire.as_integers(value))
    return out


def _foreign(what: str) -> PackageError:
    return PackageError(
        f"the graph description is not one that atc convert wrote: {what}",
        remedy="the file is damaged or from another compiler: convert the model again",
    )
