"""What keeps a node out of a group, before any family is asked: shapes, formats, guards, uses."""

from __future__ import annotations

from collections.abc import Iterable

from graph_opt.fusion.families import Family, Kernels
from graph_opt.fusion.group_order import Group, GroupOrder
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.outline import Outline, outline
from graph_opt.ir.reads import public_values

_ALIASES = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}


class Joining:
    """Questions about the groups of a graph; every answer is None or the reason against."""

    def __init__(self, graph: Graph, kernels: Kernels, order: GroupOrder) -> None:
        self.graph, self.kernels, self.order = graph, kernels, order
        self.public = public_values(graph)

    def outline(self, nodes: Iterable[Node], family: str) -> Outline:
        """The Fused node that these nodes would be."""
        ordered = sorted(nodes, key=self.order.place.__getitem__)
        return outline(self.graph, ordered, family, public=self.public)

    def results(self, group: Group) -> list[Value]:
        """Values of the group that something outside reads."""
        made = (v for n in group.nodes for v in n.outputs)
        return [v for v in made if v in self.public or any(not self._is_in(u, group) for u, _ in v.uses)]

    def _is_in(self, node: Node, group: Group) -> bool:
        return self.order.group_of.get(node) is group

    def why_not_epilogue(self, group: Group, user: Node, family: Family) -> str | None:
        """Against a consumer in the kernel of an anchor."""
        if user.op not in family.epilogue:
            return f"not an epilogue of {family.name}"
        if len(user.outputs) != 1:
            return "it has several results"
        return self.why_apart(group, user)

    def why_apart(self, group: Group, user: Node) -> str | None:
        """Against an element-wise node in a group, all of whose results have one shape, format and guards."""
        first = group.anchor or group.nodes[0]
        if user.output.shape != first.output.shape:
            return "its result has another shape"
        if user.output.format != first.output.format:
            return "its result has another format"
        if user.guards != first.guards:
            return "it runs under another condition"
        return None

    def is_region_operator(self, node: Node) -> bool:
        """True if the node may be part of a region, as far as its operator tells."""
        region = self.kernels.family("region")
        return (
            region is not None and node.op in region.epilogue and node.op not in _ALIASES and len(node.outputs) == 1
            and all(v is None or v.shape is not None for v in (*node.inputs, node.output))
        )  # fmt: skip

    def region_before(self, group: Group) -> Group | None:
        """The region that makes the first operand of a group's anchor."""
        source = group.anchor.input(0) if group.anchor is not None else None
        producer = source.producer if source is not None else None
        region = self.order.group_of.get(producer) if producer is not None else None
        return region if region is not None and region is not group and region.family == "region" else None

    def why_not_prologue(self, group: Group, region: Group, family: Family) -> str | None:
        """Against a region in the kernel of an anchor that reads it."""
        anchor = group.anchor
        source = anchor.input(0) if anchor is not None else None
        if anchor is None or source is None or not any(v is source for n in region.nodes for v in n.outputs):
            return "it is not the first operand"
        if any(n.op not in family.prologue for n in region.nodes):
            return f"{family.name} takes no such prologue"
        if any(n.output.shape != source.shape for n in region.nodes):
            return "a result before it has another shape"
        for value in self.results(region):
            if value in self.public or any(not self._is_in(u, group) and not self._is_in(u, region)
                                           for u, _ in value.uses):  # fmt: skip
                return "what comes before it has other uses"
        if region.nodes[0].guards != anchor.guards:
            return "it runs under another condition"
        made = {v for n in region.nodes for v in n.outputs}
        if any(v in made for n in group.nodes if n is not anchor for v in n.inputs):
            return "an operand of its epilogue comes from there too"
        return None
