"""Cuts, joins and the arithmetic between them become one `piecewise` kernel, which moves nothing but the result.

    a, b = x[..., :h], x[..., h:];  y = Concat(a*c - b*s, a*s + b*c)           rotary embedding, as its operator says it
    y = x*c + Concat(-x[..., h:], x[..., :h])*s                                as exporters write it

Rules
1. A group starts at a Concat, goes down through element-wise nodes of its shape, and takes in what only the group
   uses: element-wise nodes, Concat, Slice, Split, Squeeze, Unsqueeze, Transposes that keep the last axis, and Reshapes
   between Concat and arithmetic that merge a short last axis with the one before (interleaved channels). Values are
   floats in plain order, and broadcasting is certain.
2. Positions and extents along axes that are cut or joined are static.
3. An element-wise node that an anchor's kernel would take as its epilogue stays with the anchor.
4. There is a cut, a join and arithmetic in the group, else the movement kernels do as well. Pieces and nodes are few:
   the code is written once per piece. The family is asked for all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_opt.fusion.families import Family, Kernels
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.outline import outline
from graph_opt.ir.passes import Note
from graph_opt.ir.reads import public_values
from graph_opt.ir.rewriter import Rewriter

_CUTS = ("Slice", "Split")
_UNITS = ("Squeeze", "Unsqueeze")
_MOST_PIECES, _MOST_NODES = 8, 64


@dataclass(frozen=True)
class FusePiecewise:
    """See the module. Without the family `piecewise` nothing happens."""

    kernels: Kernels
    name: str = "fuse-piecewise"
    notes: list[Note] = field(default_factory=list, compare=False)

    def apply(self, graph: Graph) -> bool:
        family = self.kernels.family("piecewise")
        if family is None:
            return False
        place = {n: i for i, n in enumerate(graph.nodes)}
        growth, public = _Growth(graph, family, self.kernels), public_values(graph)
        changed, rewriter = False, Rewriter(graph)
        # From the end, so that a Concat inside the group of another is found there.
        for node in reversed(list(graph.nodes)):
            if node.op != "Concat" or graph.values.get(node.output.name) is not node.output:
                continue
            members = growth.group(node)
            if members is None:
                continue
            members.sort(key=place.__getitem__)
            reason = self.kernels.why_not(outline(graph, members, family.name, public=public).node)
            if reason is None:
                rewriter.fuse(members, family.name)
                changed = True
            else:
                self.notes.append(Note(node.name, self.name, reason))
        return changed


class _Growth:
    """Finds the group of a Concat."""

    def __init__(self, graph: Graph, family: Family, kernels: Kernels) -> None:
        self.graph, self.family, self.kernels = graph, family, kernels

    def group(self, concat: Node) -> list[Node] | None:
        """Its members in no order; None if the rules are against it."""
        if not self._fits(concat):
            return None
        root = at = concat
        while (user := self._only_user(at)) is not None and self._fits(user) and user.guards == concat.guards:
            if self._is_pointwise(user) and user.output.shape == at.output.shape and not self._kept(user):
                root = user
            elif user.op != "Reshape":
                break
            at = user
        members = self._closure(root)
        if not any(n.op in _CUTS for n in members) or not any(map(self._is_pointwise, members)):
            return None
        return members if len(members) <= _MOST_NODES and sum(map(_pieces, members)) <= _MOST_PIECES else None

    def _only_user(self, node: Node) -> Node | None:
        users = {id(u): u for u, _ in node.output.uses}
        return next(iter(users.values())) if len(users) == 1 and not self.graph.is_output(node.output) else None

    def _closure(self, root: Node) -> list[Node]:
        """The root and the producers that fit and that nothing else uses, until no more comes."""
        members = {id(root): root}
        while True:
            found = [
                p for n in members.values() for v in n.inputs
                if v is not None and (p := v.producer) is not None and id(p) not in members
                and self._joins(p, members) and p.guards == root.guards
            ]  # fmt: skip
            if not found:
                return list(members.values())
            members.update((id(p), p) for p in found)

    def _joins(self, node: Node, members: dict[int, Node]) -> bool:
        only_here = all(
            not self.graph.is_output(v) and all(id(user) in members for user, _ in v.uses) for v in node.outputs
        )
        return only_here and self._fits(node) and not (self._is_pointwise(node) and self._kept(node))

    def _is_pointwise(self, node: Node) -> bool:
        return node.op in self.family.epilogue and len(node.outputs) == 1

    def _kept(self, node: Node) -> bool:
        """True if the node continues the result of an anchor, which nothing else uses."""
        for value in node.inputs:
            producer = value.producer if value is not None else None
            if value is None or producer is None or len(value.uses) != 1 or value.shape != node.output.shape:
                continue
            if self._takes_more(producer) or (self._is_pointwise(producer) and self._kept(producer)):
                return True
        return False

    def _fits(self, node: Node) -> bool:
        data = node.inputs if self._is_pointwise(node) or node.op == "Concat" else node.inputs[:1]
        for value in (*data, *node.outputs):
            if value is not None and not (value.shape is not None and value.format.is_plain and value.dtype.is_float):
                return False
        if self._is_pointwise(node):
            return all(v is None or _broadcasts(v, node.output) for v in node.inputs)
        rule = _STATIC.get(node.op)
        return rule is not None and rule(node)

    def _takes_more(self, anchor: Node) -> bool:
        family = self.kernels.of_anchor(anchor.op)
        return family is not None and bool(family.epilogue)


def _pieces(node: Node) -> int:
    """How many pieces a member makes of what it gives."""
    source = node.input(0)
    if node.op == "Reshape" and source is not None and source.shape is not None and isinstance(source.shape[-1], int):
        return source.shape[-1]
    return len(node.inputs) if node.op == "Concat" else 0


def _broadcasts(value: Value, result: Value) -> bool:
    assert value.shape is not None and result.shape is not None
    return all(a in (1, b) for a, b in zip(reversed(value.shape), reversed(result.shape), strict=False))


def _static_axis(node: Node) -> bool:
    """Every tensor is static along the axis of a Concat or Split."""
    where = int(node.attrs.get("axis", 0))  # type: ignore[call-overload]
    tensors = [*node.inputs, node.output] if node.op == "Concat" else [node.inputs[0], *node.outputs]
    return all(v is not None and v.shape is not None and isinstance(v.shape[where], int) for v in tensors)


def _static_slice(node: Node) -> bool:
    source, starts, axes, steps = node.inputs[0], node.input(1), node.input(3), node.input(4)
    if starts is None or starts.data is None or any(v is not None and v.data is None for v in (axes, steps)):
        return False
    cut = range(starts.data.size) if axes is None or axes.data is None else [int(a) for a in axes.data.reshape(-1)]
    assert source is not None and source.shape is not None and node.output.shape is not None
    return all(isinstance(v[a], int) for v in (source.shape, node.output.shape) for a in cut)


def _keeps_last_axis(node: Node) -> bool:
    perm = list(node.attrs.get("perm", ()))  # type: ignore[call-overload]
    return bool(perm) and perm[-1] == len(perm) - 1


def _moves_only_units(node: Node) -> bool:
    source = node.inputs[0]
    assert source is not None and source.shape is not None and node.output.shape is not None
    return [d for d in source.shape if d != 1] == [d for d in node.output.shape if d != 1]


def _merges_short_axis(node: Node) -> bool:
    """[.., n, m] as [.., n*m] with a static n and a small m."""
    source = node.inputs[0]
    assert source is not None and source.shape is not None and node.output.shape is not None
    before, after = source.shape, node.output.shape
    if len(before) != len(after) + 1 or before[:-2] != after[:-1]:
        return False
    inner = before[-1]
    return isinstance(after[-1], int) and isinstance(inner, int) and 1 < inner <= _MOST_PIECES


_STATIC = {
    "Concat": _static_axis, "Split": _static_axis, "Slice": _static_slice, "Transpose": _keeps_last_axis,
    "Reshape": _merges_short_axis,
    **dict.fromkeys(_UNITS, _moves_only_units),
}  # fmt: skip
"""Moving operators that a group takes in, and when."""
