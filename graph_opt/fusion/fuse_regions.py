"""Loop fusion: every node that can run natively becomes part of one `Fused` node, and only those do.

1. An anchor (an operator of a family) opens a group. It takes in element-wise consumers (`Family.epilogue`), as long as
   they keep the shape and format of the anchor's result and the group ends with one result. What widens bytes for
   such a consumer alone (`widenings`) comes along.
2. Element-wise nodes that are left form regions: a node joins the region of a producer of the same shape and format.
3. A region whose results only one anchor of a reading family uses, at the shape of the anchor's input, joins it
   (`Family.prologue`).
4. No join may close a circle among groups. Nodes under different guards stay apart.
5. A group has at most `most_nodes` nodes: code of unlimited length takes unlimited time to compile. A region ends where
   the fewest results cross.
6. Families are asked for every group (`Kernels.why_not`). An epilogue ends before what its anchor's kernel does not
   take; an anchor that has no kernel by itself, like every node alone, goes to the AI CPU by itself. In a region the
   operators without a kernel stand alone, and the rest is formed anew; if only all of it together is too much, it is
   cut where the most is taken. A prologue that is not taken stays a region.
7. A `Fused` node of an earlier pass for which the answer has changed falls apart, and its operators are fused as above.
8. Nodes with a size that only the run decides, and that nothing before them tells, stay alone.

`FuseRegions.notes` says of every boundary between two kernels why it stands.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from graph_opt.fusion.boundaries import boundaries
from graph_opt.fusion.families import Family, Kernels
from graph_opt.fusion.group_order import Group, GroupOrder
from graph_opt.fusion.joining import Joining
from graph_opt.fusion.widenings import sink_widenings, widening
from graph_opt.ir import Graph, Node
from graph_opt.ir.data_dependent_sizes import LATE_SIZE, DataDependentSizes
from graph_opt.ir.passes import Note
from graph_opt.ir.rewriter import Rewriter

MOST_NODES = 40
"""Operators of a kernel, at most: twice as many take more than twice as long to compile, and a loop of so many has far
more arithmetic than memory traffic."""


@dataclass(frozen=True)
class FuseRegions:
    """See the module."""

    kernels: Kernels
    most_nodes: int = MOST_NODES
    name: str = "fuse-regions"
    notes: list[Note] = field(default_factory=list, compare=False)

    def apply(self, graph: Graph) -> bool:
        alone = self._checked(graph)
        sink_widenings(graph)
        state = _Fusion(graph, self.kernels, self.most_nodes, alone)
        state.open_anchors()
        state.form_regions()
        state.absorb_prologues()
        groups = [g for g in state.order if g.family]
        self.notes.extend(Note(node, self.name, reason) for node, reason in boundaries(state.joining, state.seams))
        Rewriter(graph).fuse_all([(g.nodes, g.family) for g in groups])
        state.order.dissolve()
        return bool(groups)

    def _checked(self, graph: Graph) -> set[Node]:
        """Takes Fused nodes without a kernel apart; the nodes with a size that nothing before them tells."""
        sizes, rewriter = DataDependentSizes(graph), Rewriter(graph)
        alone = set()
        for node in list(graph.nodes):
            parts = [node]
            if node.op == "Fused":
                reason = LATE_SIZE if sizes.are_late(node) else self.kernels.why_not(node)
                if reason is not None:
                    self.notes.append(Note(node.name, self.name, f"no {node.attrs['family']} kernel: {reason}"))
                    parts = rewriter.inline(node)
            for part in parts:
                if sizes.are_late(part):
                    alone.add(part)
                    sizes.decide(part)
        return alone


class _Fusion:
    def __init__(self, graph: Graph, kernels: Kernels, most_nodes: int, alone: set[Node]) -> None:
        self.graph, self.kernels, self.most_nodes = graph, kernels, most_nodes
        self.order = GroupOrder(graph)
        self.joining = Joining(graph, kernels, self.order)
        self.alone = alone
        """Nodes without a kernel: they take no part."""
        self.seams: dict[Node, str] = {}
        """Why a node is not in the kernel of its producer, where a family has been asked."""

    def _why_not(self, nodes: Iterable[Node], family: str) -> str | None:
        return self.kernels.why_not(self.joining.outline(nodes, family).node)

    # Anchors and what follows them

    def open_anchors(self) -> None:
        for node in list(self.graph.nodes):
            family = self.kernels.of_anchor(node.op)
            group = self.order.group_of[node]
            if family is not None and not group.family and node not in self.alone:
                self._open(group, node, family)

    def _open(self, group: Group, anchor: Node, family: Family) -> None:
        """Lets the anchor take the longest epilogue that its kernel takes."""
        group.family, group.anchor = family.name, anchor
        ends = self._grow_epilogue(group, anchor, family)
        taken, refused, reason = 0, len(ends), ""
        ask = len(ends) - 1  # all of it, as a rule
        while taken < refused:
            why = self._why_not(group.nodes[: ends[ask]], family.name)
            if why is None:
                taken = ask + 1
            else:
                refused, reason = ask, why
            ask = (taken + refused) // 2
        left = group.nodes[ends[taken - 1] if taken else 0 :]
        if taken < len(ends):
            self.seams[group.nodes[ends[taken - 1] if taken else 0]] = reason
        if not taken:
            self.alone.add(anchor)
            group.family, group.anchor = "", None
        self.order.leave(group, left)

    def _grow_epilogue(self, group: Group, anchor: Node, family: Family) -> list[int]:
        """Takes consumers in, in order; after how many nodes the group has one result."""
        ends = [1]
        if len(anchor.outputs) != 1 or not family.epilogue:
            return ends
        members = {anchor}
        open_uses = {anchor.output: self._uses(anchor)}
        pending: list[tuple[int, Node]] = []
        self._push_users(pending, anchor)
        while pending and len(members) < self.most_nodes:
            _, user = heapq.heappop(pending)
            if user in members or user in self.alone or self.order.group_of[user].family:
                continue
            if self.joining.why_not_epilogue(group, user, family) is not None:
                continue
            between = self.order.between(group, user)
            if between is None:
                continue
            self._take_widenings(group, user, family)
            between = self.order.between(group, user)
            assert between is not None
            self.order.join(group, user, between)
            members.add(user)
            for value in {v for v in user.inputs if v is not None and v in open_uses}:
                open_uses[value] -= sum(v is value for v in user.inputs)
                if not open_uses[value]:
                    del open_uses[value]
            open_uses[user.output] = self._uses(user)
            if len(open_uses) == 1:
                ends.append(len(group.nodes))
            self._push_users(pending, user)
        return ends

    def _take_widenings(self, group: Group, user: Node, family: Family) -> None:
        """Lets the chains that widen bytes for a node of the epilogue join before it."""
        for value in user.inputs:
            chain = widening(value) if value is not None and value not in self.joining.public else []
            free = all(
                self.order.group_of[n] is not group and not self.order.group_of[n].family and n not in self.alone
                and self.joining.why_not_epilogue(group, n, family) is None for n in chain
            )  # fmt: skip
            if not chain or not free or len(group.nodes) + len(chain) >= self.most_nodes:
                continue
            for node in chain:
                between = self.order.between(group, node)
                if between is None:
                    break
                self.order.join(group, node, between)

    def _uses(self, node: Node) -> int:
        """Readers of a node's result, one more if it is needed after all of them."""
        return len(node.output.uses) + (node.output in self.joining.public)

    def _push_users(self, pending: list[tuple[int, Node]], node: Node) -> None:
        for user in {u for u, _ in node.output.uses if u in self.order.place}:
            heapq.heappush(pending, (self.order.place[user], user))

    # Regions

    def form_regions(self) -> None:
        if self.kernels.family("region") is None:
            return
        pending = [n for n in self.graph.nodes if not self.order.group_of[n].family]
        while pending:
            formed = self._form(n for n in pending if n not in self.alone and self.joining.is_region_operator(n))
            pending = [n for group in formed for n in self._settled(group)]
            pending.sort(key=self.order.place.__getitem__)

    def _form(self, nodes: Iterable[Node]) -> list[Group]:
        """Regions of these nodes, which stand alone and come in graph order."""
        formed: dict[Group, None] = {}
        for node in nodes:
            if not any(self._joined(group, node) for group in self._regions_before(node, formed)):
                group = self.order.group_of[node]
                group.family = "region"
                formed[group] = None
            group = self.order.group_of[node]
            if len(group.nodes) > self.most_nodes:
                rest = self.order.split(group, _cheapest_cut(group.nodes, self.most_nodes))
                formed[rest] = None
        return list(formed)

    def _regions_before(self, node: Node, formed: dict[Group, None]) -> list[Group]:
        producers = [v.producer for v in node.inputs if v is not None and v.producer in self.order.group_of]
        groups = [self.order.group_of[p] for p in producers if p is not None]
        return [g for g in dict.fromkeys(groups) if g in formed]

    def _joined(self, group: Group, node: Node) -> bool:
        if self.joining.why_apart(group, node) is not None:
            return False
        between = self.order.between(group, node)
        if between is None:
            return False
        self.order.join(group, node, between)
        return True

    def _settled(self, group: Group) -> list[Node]:
        """Leaves of a region what its kernel takes; what has to be formed anew."""
        reason = self._why_not(group.nodes, "region")
        if reason is None:
            return []
        refused = {n: why for n in group.nodes if (why := self._why_not([n], "region")) is not None}
        if refused:
            self.alone.update(refused)
            self.seams.update(refused)
            count = 0
        else:
            count = self._most_taken(group.nodes)
            self.seams[group.nodes[count]] = reason
        rest = group.nodes[count:]
        if not count:
            group.family = ""
        self.order.leave(group, rest)
        return [n for n in rest if n not in self.alone]

    def _most_taken(self, nodes: Sequence[Node]) -> int:
        """How many of the first nodes are a kernel; each of them by itself is one, all of them are none."""
        taken, refused = 1, len(nodes)
        while refused - taken > 1:
            ask = (taken + refused) // 2
            if self._why_not(nodes[:ask], "region") is None:
                taken = ask
            else:
                refused = ask
        return taken

    # Prologues

    def absorb_prologues(self) -> None:
        for group in [g for g in self.order if g.anchor is not None]:
            family = self.kernels.family(group.family)
            region = self.joining.region_before(group)
            if family is None or region is None or len(region.nodes) + len(group.nodes) > self.most_nodes:
                continue
            if self.joining.why_not_prologue(group, region, family) is not None:
                continue
            reason = self._why_not([*region.nodes, *group.nodes], family.name)
            if reason is None:
                self.order.absorb(group, region)
            elif group.anchor is not None:
                self.seams[group.anchor] = reason


def _cheapest_cut(nodes: Sequence[Node], most: int) -> int:
    """How many of the first nodes to keep together: at most `most`, at least half of that, with few results behind."""
    place = {n: i for i, n in enumerate(nodes)}
    ends = [0] * (len(nodes) + 1)
    for node in nodes:
        readers = (place.get(user, len(nodes)) for user, _ in node.output.uses)  # others may yet follow
        ends[max(readers, default=place[node])] += 1
    crossing = 0
    best: tuple[int, int] | None = None
    for count in range(1, most + 1):
        crossing += 1 - ends[count - 1]
        if count >= most // 2 and count < len(nodes) and (best is None or crossing <= best[0]):
            best = crossing, count
    assert best is not None
    return best[1]
