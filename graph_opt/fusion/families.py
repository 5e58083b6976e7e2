"""What kernels can do, as data: the driver hands it to the passes, which know no kernel.

    kernels = Kernels(families, targets)
    kernels.why_not(outline(graph, members, "matmul").node)     None, or why no kernel of the family does all of it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from graph_opt.fusion.hypothetical import as_if, by_itself
from graph_opt.ir.core import AttrValue, Graph, Node, Value
from graph_opt.ir.outline import outline
from tensor_types.dtypes import DType
from tensor_types.errors import InvalidModel
from tensor_types.formats import PLAIN, Format, channels_last

NO_FAMILY = "no kernel for it"

Claim = Callable[[Node, Any], str | None]
"""A Fused node, which may be hypothetical, and a target -> None if there is a kernel of it, else why there is none."""


@dataclass(frozen=True)
class Family:
    """A family of kernels. `anchors`: operators it computes (empty for pure element-wise regions).

    `claims` is the only word on what it takes: types, formats, bodies. The rest tells what is worth asking: `prologue`
    and `epilogue` are operators it may take in before and after the anchor, at the same index of the tensor.
    """

    name: str
    anchors: frozenset[str]
    claims: Claim
    prologue: frozenset[str] = frozenset()
    epilogue: frozenset[str] = frozenset()
    prefers: str = "plain"
    """The format in which the family is fastest: 'plain' or 'channels_last'."""
    retypes: bool = True
    """Whether a precision mode may change the dtype that an anchor computes in."""


@dataclass(frozen=True)
class Kernels:
    """The families and the targets that the graph is lowered for: what counts is what all of them can do."""

    families: tuple[Family, ...]
    targets: tuple[Any, ...]

    @cached_property
    def _by_name(self) -> dict[str, Family]:
        return {f.name: f for f in self.families}

    @cached_property
    def _by_anchor(self) -> dict[str, Family]:
        return {a: f for f in reversed(self.families) for a in f.anchors}

    def family(self, name: object) -> Family | None:
        """The family of that name."""
        return self._by_name.get(str(name))

    def of_anchor(self, op: str) -> Family | None:
        """The family that computes the operator."""
        return self._by_anchor.get(op)

    def of_node(self, node: Node) -> Family | None:
        """The family of a node that stands alone: that of its anchor, else of element-wise regions."""
        if node.op == "Fused":
            return self.family(node.attrs.get("family"))
        region = self.family("region")
        return self.of_anchor(node.op) or (region if region is not None and node.op in region.epilogue else None)

    def why_not(self, fused: Node) -> str | None:
        """Why no kernel does what a Fused node says, on some target; None if there is one on each."""
        family = self.family(fused.attrs.get("family"))
        if family is None:
            return NO_FAMILY
        answers = (family.claims(fused, target) for target in self.targets)
        return next((reason for reason in answers if reason is not None), None)

    def why_not_alone(self, graph: Graph, node: Node) -> str | None:
        """The same of a node of the graph by itself. If nothing reads a result yet, something will read the first."""
        family = self.of_node(node)
        return NO_FAMILY if family is None else self.why_not(_alone(graph, node, family))

    def preferred_format(self, op: str, data: Value) -> Format:
        """The format in which the family of an operator wants its data."""
        family = self.of_anchor(op)
        wants = family is not None and family.prefers == "channels_last" and data.shape is not None and data.rank >= 3
        return channels_last(data.rank) if wants else PLAIN

    def why_not_as(
        self, graph: Graph, node: Node, *, dtypes: Mapping[int, DType] | None = None, absent: Collection[int] = (),
        op: str = "", attrs: Mapping[str, Mapping[str, AttrValue]] | None = None, data_format: Format | None = None,
        data: Collection[int] = (0,),
    ) -> str | None:  # fmt: skip
        """The same of a node as it would be with other operands, see `hypothetical.as_if`."""
        family = self.of_anchor(op) if op else self.of_node(node)
        if family is None:
            return NO_FAMILY
        try:
            fused = as_if(
                graph, node, family.name, dtypes=dtypes, absent=absent, op=op, attrs=attrs, data_format=data_format,
                data=data,
            )  # fmt: skip
        except InvalidModel as error:
            return error.message
        return self.why_not(fused)

    def why_not_made(
        self, graph: Graph, op: str, inputs: Sequence[Value], attrs: Mapping[str, AttrValue] | None = None
    ) -> str | None:
        """The same of an operator that a pass would make of these values, see `hypothetical.by_itself`."""
        family = self.of_anchor(op)
        if family is None:
            return NO_FAMILY
        try:
            return self.why_not(by_itself(graph, op, family.name, inputs, attrs))
        except InvalidModel as error:
            return error.message


def _alone(graph: Graph, node: Node, family: Family) -> Node:
    if node.op == "Fused":
        return node
    read = {v for v in node.outputs if v.uses or graph.is_output(v)} or {node.output}
    return outline(graph, [node], family.name, public=read).node
