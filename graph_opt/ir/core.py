"""The graph in SSA form, with use lists kept right by the data structure and the origin of every source tensor.

A *source tensor* is a tensor of the model as read. `Graph.origins` gives each of them exactly one state:

    same         the value holds the tensor itself (in whatever format)
    cast         the value holds it in another dtype
    slice, scale the value holds a part of it, or it up to a factor
    interior     it lives inside the fused kernel that makes `value`, and is never written to memory
    folded       it was computed at convert time; `value` is the constant, when it is still there
    dead         nothing needs it

Only `Rewriter` (graph_opt.ir.rewriter) redirects uses after import, because it demands the relation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from graph_opt.ir.order import Order, Outputs
from tensor_types.dims import Dim
from tensor_types.dtypes import DType
from tensor_types.formats import PLAIN, Format
from tensor_types.recipes import Recipe, Source
from tensor_types.relations import Relation

AttrValue: TypeAlias = int | float | str | bool | None | Sequence[int] | Sequence[float] | Sequence[str] | np.ndarray

Guards: TypeAlias = "tuple[tuple[Value, bool], ...]"
"""Conditions, each with what it must be, outer ones first: something happens only if all of them hold."""

RELATIONS = ("same", "cast", "slice", "scale", "interior", "folded", "dead")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a source tensor is now: its relation and the value that it refers to (None for dead)."""

    relation: str
    value: str | None


@dataclass(frozen=True)
class Requirement:
    """Two extents that only a run can compare."""

    left: Dim
    right: Dim
    relation: Relation


@dataclass(eq=False, slots=True)
class Value:
    """One tensor. `shape` is None while the rank is unknown; dims that only the data decides have fresh names `u0`...

    `recipe` tells the content of a constant, however big; `data` is that content as an array, for small ones: passes
    that change a big one add steps to its recipe. `content` is the symbolic content of a small integer tensor
    (flattened dims), which lets shape arithmetic fold away. `producer` is None for graph inputs, constants and outer
    values.

    `uses` are the keys (node, index), in the order in which they came: input `index` of the node, or its guard
    -1 - index where the index is negative.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...] | None
    format: Format = PLAIN
    recipe: Recipe | None = None
    content: tuple[Dim, ...] | None = None
    producer: Node | None = None
    uses: dict[tuple[Node, int], None] = field(default_factory=dict, repr=False)

    @property
    def is_constant(self) -> bool:
        return self.recipe is not None

    @property
    def data(self) -> np.ndarray | None:
        """The content of a constant, evaluated anew on every access when it is big and no view of its source."""
        return None if self.recipe is None else self.recipe.array()

    @property
    def rank(self) -> int:
        """Number of axes; ValueError while unknown."""
        if self.shape is None:
            raise ValueError(f"the rank of {self.name} is not known")
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    def __str__(self) -> str:
        shape = "?" if self.shape is None else ", ".join(map(str, self.shape))
        return f"%{self.name}: {self.dtype}[{shape}]"

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(eq=False, slots=True)
class Node:
    """One operator: `inputs` may hold None for absent optional ones. `op` is 'Domain::Name', or 'Name' for ai.onnx.

    `subgraphs` holds then_branch, else_branch, body; a `Fused` node has one, `body`, whose inputs and outputs are its
    own in order. Bodies of If, Loop and Scan may use values of the outer graph directly.

    `guards` are set by flattening an If: the node runs only if they hold. They are uses like inputs; change them
    through `set_guards` or `set_input` alone.
    """

    op: str
    name: str
    inputs: list[Value | None]
    outputs: list[Value]
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    subgraphs: dict[str, Graph] = field(default_factory=dict)
    guards: Guards = ()

    @property
    def output(self) -> Value:
        """The only or first output."""
        return self.outputs[0]

    def input(self, index: int) -> Value | None:
        """Input `index`, None when absent or beyond the end."""
        return self.inputs[index] if index < len(self.inputs) else None

    def operands(self) -> Iterator[tuple[int, Value]]:
        """What the node itself reads, each with the index of the use: inputs from 0 up, guards from -1 down."""
        for index, value in enumerate(self.inputs):
            if value is not None:
                yield index, value
        for number, (condition, _) in enumerate(self.guards):
            yield -1 - number, condition

    def set_input(self, index: int, value: Value | None) -> None:
        """Replaces an input or, by a negative index as in `Value.uses`, a guard, and keeps the use lists right."""
        if index < 0:
            assert value is not None, "a guard is a value"
            guards = list(self.guards)
            guards[-1 - index] = value, guards[-1 - index][1]
            self.set_guards(guards)
            return
        old = self.inputs[index]
        if old is not None:
            del old.uses[self, index]
        self.inputs[index] = value
        if value is not None:
            value.uses[self, index] = None

    def set_guards(self, guards: Iterable[tuple[Value, bool]]) -> None:
        """Replaces all guards and keeps the use lists right."""
        for number, (condition, _) in enumerate(self.guards):
            del condition.uses[self, -1 - number]
        self.guards = tuple(guards)
        for number, (condition, _) in enumerate(self.guards):
            condition.uses[self, -1 - number] = None

    def __str__(self) -> str:
        return f"{self.op} {self.name!r}"

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(eq=False, slots=True)
class Graph:
    """A graph: inputs, outputs, and `nodes` in an order in which producers precede uses."""

    name: str = "graph"
    inputs: list[Value] = field(default_factory=list)
    outputs: Outputs[Value] = field(default_factory=Outputs)
    nodes: Order[Node] = field(default_factory=Order)
    values: dict[str, Value] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    dims: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """Named dims of the model and their inclusive ranges."""
    states: dict[str, str] = field(default_factory=dict)
    """What lives from run to run in one buffer: input -> output that is its content afterwards. See `states`."""
    requirements: dict[Requirement, str] = field(default_factory=dict)
    """What shape inference took for granted, and the node that needs it. A run that breaks one must be refused."""
    warnings: list[str] = field(default_factory=list)
    """What the reader found odd in the model and did not need: a sentence each."""
    _suffixes: dict[str, int] = field(default_factory=dict, repr=False)
    """By name, a number below which all suffixes have been taken at some time."""

    def add_value(
        self,
        name: str,
        dtype: DType,
        shape: tuple[Dim, ...] | None,
        *,
        data: np.ndarray | Recipe | None = None,
        format: Format = PLAIN,
    ) -> Value:
        """A new value; a name that is taken gets a suffix."""
        recipe = data if data is None or isinstance(data, Recipe) else Source(np.asanyarray(data))
        value = Value(self.fresh_name(name), dtype, shape, format, recipe)
        self.values[value.name] = value
        return value

    def add_constant(self, name: str, data: np.ndarray | Recipe, dtype: DType) -> Value:
        """A new constant."""
        return self.add_value(name, dtype, tuple(data.shape), data=data)

    def fresh_name(self, name: str) -> str:
        """`name`, or with the next free suffix."""
        if name not in self.values:
            return name
        number = self._suffixes.get(name, 1)
        while f"{name}.{number}" in self.values:
            number += 1
        self._suffixes[name] = number
        return f"{name}.{number}"

    def add_node(
        self,
        op: str,
        inputs: Iterable[Value | None],
        outputs: Iterable[Value],
        attrs: Mapping[str, AttrValue] | None = None,
        *,
        name: str = "",
        before: Node | None = None,
        subgraphs: Mapping[str, Graph] | None = None,
        guards: Iterable[tuple[Value, bool]] = (),
    ) -> Node:
        """Appends a node, or inserts it before another; registers uses and producers."""
        node = Node(op, name, list(inputs), list(outputs), dict(attrs or {}), dict(subgraphs or {}), tuple(guards))
        for index, value in node.operands():
            value.uses[node, index] = None
        for value in node.outputs:
            value.producer = node
        if before is None:
            self.nodes.append(node)
        else:
            self.nodes.insert_before(before, node)
        return node

    def dissolve(self) -> None:
        """Parts everything, so that the memory of a graph that nobody needs any more is free at once: nodes and values
        refer to each other, and the search for such circles comes late."""
        for node in self.nodes:
            for body in node.subgraphs.values():
                body.dissolve()
            node.inputs, node.outputs, node.guards = [], [], ()
        for value in self.values.values():
            value.producer, value.uses = None, {}
        self.inputs, self.outputs, self.nodes, self.values = [], Outputs(), Order(), {}

    def is_output(self, value: Value) -> bool:
        return value in self.outputs

    def constants(self) -> list[Value]:
        """Constants in order of first registration."""
        return [v for v in self.values.values() if v.is_constant]
