"""Groups of nodes in an order in which producers come first, kept while the groups grow.

Every node starts as a group of its own, in the order of the graph. Joining a node to a group closes a circle if the
node depends on the group by way of a third one. All such ways lie between the two in the order, so the search stays
there; what it finds is moved before the group, and no later search meets it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from graph_opt.ir import Graph, Node
from graph_opt.ir.reads import read_values

MOST_SEARCHED = 1000
"""Groups that a search visits at most; one that would go on is taken to have met a circle."""

_SPACING = 1 << 48
_STEP = 1 << 16


@dataclass(eq=False)
class Group:
    """Nodes in graph order that become one kernel; `family` is empty while none has been given to them."""

    nodes: list[Node]
    family: str = ""
    anchor: Node | None = None
    label: int = 0
    before: Group | None = None
    after: Group | None = None


class GroupOrder:
    """The groups of all nodes of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.group_of: dict[Node, Group] = {}
        self._head = Group([], label=-_SPACING)
        last = self._head
        for node in graph.nodes:
            group = self.group_of[node] = Group([node])
            _link(last, group)
            last = group
        self._renumber()

    def dissolve(self) -> None:
        """Parts the groups, which refer to each other, so that their memory is free as soon as nobody needs them."""
        for group in list(self):
            group.before = group.after = None

    def __iter__(self) -> Iterator[Group]:
        """The groups in order."""
        group = self._head.after
        while group is not None:
            yield group
            group = group.after

    def between(self, group: Group, node: Node) -> list[Group] | None:
        """The groups behind `group` that `node`, which stands alone, depends on; None if one depends on `group`."""
        found: dict[Group, None] = {}
        pending = [node]
        while pending:
            reader = pending.pop()
            for producer in self._producers(reader):
                other = self.group_of[producer]
                if other is group:
                    if reader is not node:
                        return None
                elif other.label > group.label and other not in found:
                    found[other] = None
                    pending.extend(other.nodes)
                    if len(found) > MOST_SEARCHED:
                        return None
        return sorted(found, key=lambda g: g.label)

    def join(self, group: Group, node: Node, between: Sequence[Group]) -> None:
        """Lets a node that stands alone join a group; `between` as that function found it."""
        _unlink(self.group_of[node])
        self._insert(group.before, between, moved=True)
        group.nodes.append(node)
        self.group_of[node] = group

    def leave(self, group: Group, nodes: Iterable[Node]) -> None:
        """Lets nodes stand alone again, behind what stays of the group: nothing that stays may depend on them."""
        going = sorted(nodes, key=self.place.__getitem__)
        gone = set(going)
        group.nodes = [n for n in group.nodes if n not in gone]
        alone = [Group([n]) for n in going]
        self.group_of.update(zip(going, alone, strict=True))
        self._insert(group, alone)
        if not group.nodes:
            _unlink(group)

    def split(self, group: Group, count: int) -> Group:
        """Takes all but the first `count` nodes, in graph order, away into a group of their own, which follows."""
        group.nodes.sort(key=self.place.__getitem__)
        rest = Group(group.nodes[count:], group.family)
        group.nodes = group.nodes[:count]
        self.group_of.update(dict.fromkeys(rest.nodes, rest))
        self._insert(group, [rest])
        return rest

    def absorb(self, group: Group, producer: Group) -> None:
        """Lets a group take in one whose results nothing else reads."""
        _unlink(producer)
        group.nodes = [*producer.nodes, *group.nodes]
        self.group_of.update(dict.fromkeys(producer.nodes, group))

    def _producers(self, node: Node) -> Iterator[Node]:
        for value in read_values(node):
            if value.producer is not None and value.producer in self.group_of:
                yield value.producer

    def _insert(self, at: Group | None, groups: Sequence[Group], moved: bool = False) -> None:
        """Puts groups behind another, in order."""
        if not groups:
            return
        if moved:
            for group in groups:
                _unlink(group)
        last = at if at is not None else self._head
        following = last.after
        room = (following.label if following is not None else last.label + _SPACING) - last.label
        step = min(_STEP, room // (len(groups) + 1))
        for group in groups:
            _link(last, group)
            group.label = last.label + step
            last = group
        if not step:
            self._renumber()

    def _renumber(self) -> None:
        for number, group in enumerate(self):
            group.label = number * _SPACING


def _link(before: Group, group: Group) -> None:
    group.before, group.after = before, before.after
    if before.after is not None:
        before.after.before = group
    before.after = group


def _unlink(group: Group) -> None:
    if group.before is not None:
        group.before.after = group.after
    if group.after is not None:
        group.after.before = group.before
    group.before = group.after = None
