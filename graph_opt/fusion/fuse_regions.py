"""Loop fusion: every node that can run natively becomes part of one `Fused` node.

1. An anchor (an operator of a family) opens a group. It takes in element-wise consumers that its family absorbs
   (`epilogue`), as long as they keep the shape of the anchor's result and the group ends with one result.
2. Element-wise nodes that are left form regions: a node joins the region of a producer of the same shape.
3. A region whose results only one anchor of a reading family uses, at the shape of the anchor's input, joins it
   (`prologue`).
No join may close a cycle among groups. Nodes under different guards stay apart. `FuseRegions.notes` says of every
boundary between two kernels why it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graph_opt.fusion.traits import FamilyTraits
from graph_opt.ir import Graph, Node, Value, ops
from graph_opt.ir.passes import Note
from graph_opt.ir.rewriter import Rewriter, read_values

_ALIASES = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}


@dataclass(eq=False)
class _Group:
    family: str
    nodes: list[Node]
    anchor: Node | None = None

    def outside_values(self, graph: Graph) -> list[Value]:
        """Results that something outside the group uses."""
        inside = set(map(id, self.nodes))
        return [
            v
            for n in self.nodes
            for v in n.outputs
            if graph.is_output(v) or any(id(user) not in inside for user, _ in v.uses)
        ]


@dataclass(frozen=True)
class FuseRegions:
    """See the module. `traits` are the families' declarations."""

    traits: tuple[FamilyTraits, ...]
    name: str = "fuse-regions"
    notes: list[Note] = field(default_factory=list, compare=False)

    def apply(self, graph: Graph) -> bool:
        state = _Fusion(graph, self.traits)
        state.open_anchors()
        state.form_regions()
        state.absorb_prologues()
        groups = state.groups()
        self.notes.extend(Note(node, self.name, reason) for node, reason in state.boundaries())
        rewriter = Rewriter(graph)
        for group in groups:
            rewriter.fuse(group.nodes, group.family)
        return bool(groups)


class _Fusion:
    def __init__(self, graph: Graph, traits: Sequence[FamilyTraits]) -> None:
        self.graph = graph
        self.by_anchor: Mapping[str, FamilyTraits] = {a: t for t in traits for a in t.anchors}
        self.by_name = {t.name: t for t in traits}
        self.group_of: dict[int, _Group] = {}
        self.spans: dict[_Group, tuple[int, int]] = {}
        """First and last place in the graph of what joined a group, whether it stayed or not."""
        self.order = {id(n): i for i, n in enumerate(graph.nodes)}

    def groups(self) -> list[_Group]:
        seen: dict[int, _Group] = {}
        for node in self.graph.nodes:
            group = self.group_of.get(id(node))
            if group is not None:
                seen[id(group)] = group
        for group in seen.values():
            group.nodes.sort(key=lambda n: self.order[id(n)])
        return list(seen.values())

    def open_anchors(self) -> None:
        for node in self.graph.nodes:
            family = self.by_anchor.get(node.op)
            if family is not None and id(node) not in self.group_of and _dtype_of(node) in family.dtypes:
                self._grow_epilogue(_Group(family.name, [], node), node, family)

    def _join(self, group: _Group, node: Node) -> None:
        group.nodes.append(node)
        self.group_of[id(node)] = group
        at = self.order[id(node)]
        first, last = self.spans.get(group, (at, at))
        self.spans[group] = min(first, at), max(last, at)

    def _grow_epilogue(self, group: _Group, anchor: Node, family: FamilyTraits) -> None:
        """Takes consumers in order and keeps the longest prefix that leaves one result."""
        self._join(group, anchor)
        if len(anchor.outputs) != 1 or not family.epilogue:
            return
        shape, kept = anchor.output.shape, 1
        while True:
            candidate = self._next_consumer(group, family, shape)
            if candidate is None:
                break
            self._join(group, candidate)
            if len(group.outside_values(self.graph)) == 1:
                kept = len(group.nodes)
        for node in group.nodes[kept:]:
            del self.group_of[id(node)]
        del group.nodes[kept:]

    def _next_consumer(self, group: _Group, family: FamilyTraits, shape: object) -> Node | None:
        users = {id(u): u for n in group.nodes for v in n.outputs for u, _ in v.uses}
        for user in sorted(users.values(), key=lambda n: self.order.get(id(n), -1)):
            if id(user) in self.group_of or id(user) not in self.order:
                continue
            if self._why_not_epilogue(group, user, family, shape) is None:
                return user
        return None

    def _why_not_epilogue(self, group: _Group, user: Node, family: FamilyTraits, shape: object) -> str | None:
        if user.op not in family.epilogue:
            return f"not an epilogue of {family.name}"
        if len(user.outputs) != 1:
            return "it has several results"
        return self._why_apart(group, group.nodes[0], user, shape)

    def _why_apart(self, group: _Group, member: Node, user: Node, shape: object) -> str | None:
        """What keeps an element-wise node out of a group whose results have this shape; `member` is of the group."""
        if user.output.shape != shape:
            return "its result has another shape"
        if user.output.format != member.output.format:
            return "its result has another format"
        if user.guards != member.guards:
            return "it runs under another condition"
        if self._closes_cycle(group, user):
            return "another operand depends on this kernel"
        return None

    def _closes_cycle(self, group: _Group, user: Node) -> bool:
        """True if an operand of `user` from outside depends on the group (over contracted groups)."""
        floor = self._floor(group)
        start = [
            v.producer for v in read_values(user)
            if v.producer is not None and self.group_of.get(id(v.producer)) is not group
        ]  # fmt: skip
        seen: set[int] = set()
        stack: list[Node] = list(start)
        while stack:
            node = stack.pop()
            if id(node) in seen or self.order.get(id(node), -1) < floor:
                continue
            seen.add(id(node))
            other = self.group_of.get(id(node))
            if other is group:
                return True
            members = other.nodes if other is not None else [node]
            for member in members:
                seen.add(id(member))
                stack.extend(v.producer for v in read_values(member) if v.producer is not None)
        return False

    def _floor(self, group: _Group) -> int:
        """A place in the graph before which nothing depends on the group: no other group reaches across it."""
        floor, _ = self.spans[group]
        while True:
            lower = min((a for g, (a, b) in self.spans.items() if a < floor <= b and g is not group), default=floor)
            if lower == floor:
                return floor
            floor = lower

    def form_regions(self) -> None:
        region = self.by_name.get("region")
        if region is None:
            return
        for node in self.graph.nodes:
            if id(node) in self.group_of or not self._is_region_op(node, region):
                continue
            home = self._region_of_producer(node)
            if home is None:
                home = _Group("region", [])
            self._join(home, node)

    def _is_region_op(self, node: Node, region: FamilyTraits) -> bool:
        declared = ops.get(node.op)
        return (
            declared is not None
            and node.op in region.epilogue
            and node.op not in _ALIASES
            and len(node.outputs) == 1
            and node.output.shape is not None
            and all(v is None or (v.shape is not None and v.dtype.name in region.dtypes) for v in node.inputs)
            and node.output.dtype.name in region.dtypes
        )

    def _region_of_producer(self, node: Node) -> _Group | None:
        for value in node.inputs:
            producer = value.producer if value is not None else None
            group = self.group_of.get(id(producer)) if producer is not None else None
            if producer is None or group is None or group.family != "region" or group.anchor is not None:
                continue
            if self._why_apart(group, producer, node, group.nodes[-1].output.shape) is None:
                return group
        return None

    def absorb_prologues(self) -> None:
        for group in self.groups():
            family = self.by_name[group.family]
            if group.anchor is None or not family.prologue:
                continue
            source = group.anchor.input(0)
            producer = source.producer if source is not None else None
            region = self.group_of.get(id(producer)) if producer is not None else None
            if region is None or region is group or region.family != "region":
                continue
            if self._why_not_prologue(group, region, family) is None:
                for node in region.nodes:
                    self.group_of[id(node)] = group
                group.nodes[:0] = region.nodes

    def _why_not_prologue(self, group: _Group, region: _Group, family: FamilyTraits) -> str | None:
        anchor = group.anchor
        source = anchor.input(0) if anchor is not None else None
        if anchor is None or source is None or not any(v is source for n in region.nodes for v in n.outputs):
            return "it is not the first operand"
        if any(n.op not in family.prologue for n in region.nodes):
            return f"{family.name} takes no such prologue"
        if any(n.output.shape != source.shape for n in region.nodes):
            return "a result before it has another shape"
        inside = {id(n) for n in (*group.nodes, *region.nodes)}
        for value in region.outside_values(self.graph):
            if self.graph.is_output(value) or any(id(user) not in inside for user, _ in value.uses):
                return "what comes before it has other uses"
        if region.nodes[0].guards != anchor.guards:
            return "it runs under another condition"
        if self._region_enters_epilogue(group, region):
            return "an operand of its epilogue comes from there too"
        return None

    def _region_enters_epilogue(self, group: _Group, region: _Group) -> bool:
        """An epilogue operand made by the region would need the region twice."""
        made = {id(v) for n in region.nodes for v in n.outputs}
        return any(id(v) in made for n in group.nodes if n is not group.anchor for v in n.inputs if v is not None)

    def boundaries(self) -> list[tuple[str, str]]:
        """(node that ends a kernel, why the kernel that reads it is another one), one row per pair of kernels."""
        rows: dict[tuple[int, int], tuple[str, str]] = {}
        for group in self.groups():
            for value in group.outside_values(self.graph):
                for user, _ in value.uses:
                    other = self.group_of.get(id(user))
                    if other is not None and other is not group and (id(group), id(other)) not in rows:
                        reason = self._why_boundary(group, user, other)
                        rows[id(group), id(other)] = (group.nodes[-1].name, f"before {user.op}: {reason}")
        return list(rows.values())

    def _why_boundary(self, group: _Group, user: Node, other: _Group) -> str:
        if other.anchor is not None:
            if group.anchor is not None:
                return "a kernel has one anchor"
            if user is not other.anchor:
                return f"it follows the {other.anchor.op} in its kernel"
            return self._why_not_prologue(other, group, self.by_name[other.family]) or "it opens a kernel"
        if group.anchor is None:
            reason = self._why_apart(group, group.nodes[-1], user, group.nodes[-1].output.shape)
            return reason or "it joined the kernel of another operand"
        reason = self._why_not_epilogue(group, user, self.by_name[group.family], group.anchor.output.shape)
        return reason or "this kernel would have two results"


def _dtype_of(node: Node) -> str:
    first = node.input(0)
    return first.dtype.name if first is not None else node.output.dtype.name
