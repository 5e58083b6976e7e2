"""A node on its way into the graph, and the table of rules that change its form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graph_opt.ir import Graph, Value
from graph_opt.ir.core import AttrValue
from graph_opt.ir.infer import infer_node
from tensor_types.dtypes import F32, DType, from_numpy
from tensor_types.errors import InvalidModel

NEWEST = 1 << 30
APPLIES_BODIES = frozenset({"ai.onnx.preview::FlexAttention"})
"""Operators that run each of their graph attributes once, so that its nodes stand where the operator stood."""


@dataclass
class PendingNode:
    """`outputs` are wished names ('' for one that nobody reads); `opset` is that of the operator's domain."""

    graph: Graph
    op: str
    name: str
    opset: int
    inputs: list[Value | None]
    attrs: dict[str, AttrValue]
    outputs: list[str]
    reserved: set[str]
    """Names of source tensors, which no helper value may take."""
    replaced: dict[str, Value] = field(default_factory=dict)
    """Outputs that a helper node makes instead of this one."""
    declared: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    """Shapes of outputs as the file declares them, '' for an extent without a name."""
    bodies: Mapping[str, Callable[[Sequence[Value]], list[Value]]] = field(default_factory=dict)
    """Graph attributes of an operator in `APPLIES_BODIES`: each adds its nodes for given inputs, gives its results."""

    def input(self, index: int) -> Value | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def value(self, index: int) -> Value:
        """Input `index`; InvalidModel when it is absent."""
        value = self.input(index)
        if value is None:
            raise InvalidModel(
                f"input {index} is missing", where={"node": self.name, "op": self.op},
                remedy="the operator needs it: export the model again",
            )  # fmt: skip
        return value

    def rank(self, index: int = 0) -> int:
        """Rank of an input; InvalidModel when the old form has no meaning without it."""
        value = self.value(index)
        if value.shape is None:
            raise self.error(f"opset {self.opset} form of an operator whose input {value.name} has no known rank")
        return len(value.shape)

    def set_input(self, index: int, value: Value | None) -> None:
        """Sets an input, also beyond the present ones."""
        self.inputs += [None] * (index + 1 - len(self.inputs))
        self.inputs[index] = value

    def error(self, message: str) -> InvalidModel:
        return InvalidModel(message, where={"node": self.name, "op": self.op}, remedy="export with a newer opset")

    def free_name(self, wish: str) -> str:
        name, number = wish, 1
        while name in self.reserved or name in self.graph.values:
            name, number = f"{wish}.{number}", number + 1
        return name

    def constant(self, data: object, dtype: DType | type, name: str = "const") -> Value:
        """A new constant."""
        array = np.asarray(data, dtype.numpy if isinstance(dtype, DType) else dtype)
        return self.graph.add_constant(self.free_name(f"{self.name}.{name}"), array, from_numpy(array.dtype))

    def ints(self, values: object, name: str) -> Value:
        """An int64 constant: a vector, or a scalar for a single int."""
        return self.constant(values, np.int64, name)

    def emit(self, op: str, inputs: Iterable[Value | None], attrs: Mapping[str, AttrValue] | None = None) -> Value:
        """A helper node before this one; its only output, typed."""
        return self.emit_all(op, inputs, attrs, 1)[0]

    def emit_all(
        self, op: str, inputs: Iterable[Value | None], attrs: Mapping[str, AttrValue] | None, count: int
    ) -> list[Value]:
        """A helper node before this one; its first `count` outputs, typed."""
        outputs = [self.graph.add_value(self.free_name(f"{self.name}.{op.lower()}"), F32, None) for _ in range(count)]
        node = self.graph.add_node(op, inputs, outputs, attrs, name=outputs[0].name)
        infer_node(self.graph, node)
        return outputs

    def wants(self, index: int) -> bool:
        """Whether the model gives output `index` a name."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def give(self, index: int, value: Value) -> None:
        """A helper makes output `index`, one behind the first; the node itself loses it."""
        if self.wants(index):
            self.replaced[self.outputs[index]] = self.emit("Identity", [value])
            self.outputs[index] = ""

    def number(self, name: str, default: float | None = None) -> Any:
        """An attribute that is one number; InvalidModel if it is missing and has no default, or is something else."""
        value = self.attrs.get(name, default)
        if value is None:
            raise self.error(f"the attribute {name} is missing")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f"the attribute {name} is no number")
        return value

    def refuse(self, what: str) -> InvalidModel:
        """The error for a form of an operator that openatc does not compute."""
        return InvalidModel(
            f"{what} is not supported", where={"node": self.name, "op": self.op},
            remedy="export without it, or register the operator with atc.register_op",
        )  # fmt: skip

    def become(self, op: str, inputs: Iterable[Value | None], attrs: Mapping[str, AttrValue] | None = None) -> None:
        """This node is from now on another one, in the newest form."""
        self.op, self.inputs, self.attrs, self.opset = op, list(inputs), dict(attrs or {}), NEWEST

    def move_to_input(self, attr: str, index: int, dtype: DType | type = np.int64) -> None:
        """An attribute of the old form becomes a constant input."""
        if attr in self.attrs:
            self.set_input(index, self.constant(self.attrs.pop(attr), dtype, attr))


Rule = Callable[[PendingNode], None]
_RULES: dict[str, list[tuple[int, Rule]]] = {}


def form(names: str, before: int = NEWEST + 1) -> Callable[[Rule], Rule]:
    """Registers how nodes of these operators, of an opset before `before`, reach the newest form."""

    def register(change: Rule) -> Rule:
        for name in names.split():
            _RULES.setdefault(name, []).append((before, change))
        return change

    return register


def normalise(node: PendingNode) -> None:
    """Applies every rule that concerns the node, oldest forms first; each once."""
    done: set[Rule] = set()
    while True:
        rules = sorted(_RULES.get(node.op, ()), key=lambda item: item[0])
        change = next((c for below, c in rules if node.opset < below and c not in done), None)
        if change is None:
            return
        done.add(change)
        change(node)


def has_form(op: str) -> bool:
    """Whether some older form of an operator of that name is read as others."""
    return op in _RULES
