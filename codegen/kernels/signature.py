"""What the tasks of a Fused node depend on, names left out; and the tasks of one node as those of another like it."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.plan.records import AliasRecord, KernelRecord, Record
from tensor_types.dims import names as dim_names
from tensor_types.recipes import Recipe

_WRITTEN_OUT = 64
"""Constants of at most so many elements count by their content, others by identity."""
_BIG = "constant"


@dataclass(frozen=True)
class Signature:
    """`key` is all that lowering looks at; `names` are those of the values, outer ones first, in a fixed order.

    `structure` is the key without the identities of `constants`, which are those that do not stand in it by content.
    """

    structure: Hashable
    names: tuple[str, ...]
    constants: tuple[weakref.ref[Recipe], ...]

    @cached_property
    def key(self) -> Hashable:
        """What an equal signature has in this process, too, where constants have an identity."""
        return self.structure, tuple(map(id, self.constants_in_order()))

    def constants_in_order(self) -> list[Recipe | None]:
        """The constants as far as they still live."""
        return [c() for c in self.constants]

    def holds(self, other: Signature) -> bool:
        """True if an equal key means equal constants: those of this signature still live, and are the other's."""
        pairs = zip(self.constants_in_order(), other.constants_in_order(), strict=True)
        return all(mine is not None and mine is its for mine, its in pairs)


def signature(node: Node) -> Signature | None:
    """The signature of a Fused node; None if its tasks may depend on more: a user's function, or a nested body."""
    body = node.subgraphs["body"] if node.op == "Fused" else None
    if body is None or node.attrs.get("family") == "custom" or any(n.subgraphs for n in body.nodes):
        return None
    inner = list(body.values.values())
    number = {id(v): i for i, v in enumerate(inner)}
    outer = [v for v in (*node.inputs, *node.outputs) if v is not None]
    values = [*outer, *inner]
    constants = [v.recipe for v in values if v.recipe is not None and v.recipe.size > _WRITTEN_OUT]
    structure = (
        _attrs(node),
        tuple(map(_facts, values)),
        tuple(v is None for v in node.inputs),
        tuple(number[id(v)] for v in (*body.inputs, *body.outputs)),
        tuple((n.op, _attrs(n), _numbers(n.inputs, number), _numbers(n.outputs, number)) for n in body.nodes),
        _ranges(body, values),
    )
    return Signature(structure, tuple(v.name for v in values), tuple(map(weakref.ref, constants)))


def renamed(records: Iterable[Record], mine: Signature, its: Signature, node: str) -> list[Record] | None:
    """Records of a node as those of a node `node` of equal signature; None if names leave that open."""
    names = dict(zip(mine.names, its.names, strict=True))
    if any(names[a] != b for a, b in zip(mine.names, its.names, strict=True)):
        return None
    result: list[Record] = []
    for record in records:
        if isinstance(record, KernelRecord):
            operands = tuple(replace(o, value=names[o.value]) if o.value is not None else o for o in record.operands)
            result.append(replace(record, operands=operands, node=node))
        elif isinstance(record, AliasRecord):
            result.append(replace(record, output=names[record.output], input=names[record.input], node=node))
        else:
            return None
    return result


def _facts(value: Value) -> Hashable:
    data: Hashable = None
    if value.recipe is not None:
        data = _content(value.recipe) if value.recipe.size <= _WRITTEN_OUT else _BIG
    return value.dtype.name, value.shape, value.format, value.content, data


def _content(recipe: Recipe) -> Hashable:
    array = recipe.array()
    return recipe.key if array.dtype.hasobject else (array.shape, array.tobytes())


def _attrs(node: Node) -> Hashable:
    return tuple((k, _plain(v)) for k, v in sorted(node.attrs.items())) if node.attrs else ()


def _plain(value: object) -> Hashable:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0; as text they are not.
    return repr(value)


def _numbers(values: Sequence[Value | None], number: dict[int, int]) -> tuple[int, ...]:
    return tuple(-1 if v is None else number[id(v)] for v in values)


def _ranges(body: Graph, values: Iterable[Value]) -> Hashable:
    """Named dims of the values and their ranges."""
    dims = {d for v in values for d in (*(v.shape or ()), *(v.content or ())) if not isinstance(d, int)}
    if not dims:
        return ()
    found = sorted({name for d in dims for name in dim_names(d)})
    return tuple((name, body.dims.get(name)) for name in found)
