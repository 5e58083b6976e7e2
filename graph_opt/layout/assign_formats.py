"""Assigns physical formats: channels last around convolutions, plain elsewhere.

Rules, applied to the nodes in order:
1. Operators of families that prefer channels-last data (`Family.prefers`) get it on input 0 and give it.
2. Operators that work at any order of axes (element-wise, Concat, Slice, Pad, Split, Resize, reductions of families
   that take channels last and that keep dims) follow their inputs: if one of full rank is channels last, all are made
   so, and the outputs are.
   So they do only where their family has a kernel for that (`Kernels.why_not_as`).
3. Reshapes that keep N and C and only regroup spatial axes keep channels last.
4. Everything else takes and gives plain data; so do graph inputs and outputs and the values that subgraphs use.
A relayout that moves only axes of extent 1 costs nothing: lowering turns it into an alias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graph_opt.fusion.families import Kernels
from graph_opt.ir import Graph, Node, Value, ops
from graph_opt.ir.rewriter import Rewriter
from tensor_types.formats import PLAIN, Format, channels_last

_FOLLOW = {"Concat", "Slice", "Pad", "Split", "Resize", "IfMerge"}
_REGROUP = {"Reshape", "Squeeze", "Unsqueeze"}
_FEW_CHANNELS = 4


@dataclass(frozen=True)
class AssignFormats:
    """See the module."""

    kernels: Kernels
    name: str = "assign-formats"

    def apply(self, graph: Graph) -> bool:
        wanting = {a for f in self.kernels.families if f.prefers == "channels_last" for a in f.anchors}
        reducing = {a for f in self.kernels.families if f.name == "reduction" for a in f.anchors}
        following = _FOLLOW | reducing
        relayouts: dict[tuple[str, Format], Value] = {}
        inner = _outer_values_of_subgraphs(graph)
        changed = False
        for node in list(graph.nodes):
            wanted = _wanted_format(node, wanting, following)
            data = _data_inputs(node, wanting)
            if wanted is not None and node.op in following and not self._has_kernel(graph, node, wanted, data):
                wanted = None
            for index, value in enumerate(node.inputs):
                if value is None or value.is_constant or value.shape is None:
                    continue
                format_ = wanted if index in data and wanted is not None and value.rank == _rank(wanted) else PLAIN
                if value.format != format_ and not (index == 0 and _reads_plain(node, value, wanting)):
                    node.set_input(index, _relayout(graph, node, value, format_, relayouts))
                    changed = True
            for value in node.outputs:
                if wanted is None or value.shape is None:
                    continue
                kept = channels_last(value.rank) if node.op in _REGROUP else wanted
                if value.rank == _rank(kept) and value.name not in inner:
                    value.format = kept
                    changed = True
        rewriter = Rewriter(graph)
        for value in list(graph.outputs):
            if value.format != PLAIN:
                plain = graph.add_value(value.name, value.dtype, value.shape)
                graph.add_node("Relayout", [value], [plain], name=f"{value.name}/relayout")
                uses = list(value.uses)
                rewriter.replace(value, plain)
                rewriter.redirect([u for u in uses if u[0].op != "Relayout" or u[0].output is not plain], value)
        return changed

    def _has_kernel(self, graph: Graph, node: Node, format_: Format, data: Sequence[int]) -> bool:
        """True if the node has a kernel in that format, or needs none."""
        return node.op == "IfMerge" or self.kernels.why_not_as(graph, node, data_format=format_, data=data) is None


def _reads_plain(node: Node, value: Value, wanting: set[str]) -> bool:
    """A convolution copies its padded input anyway; with few channels it puts them in place on the way."""
    channels = value.shape[1] if value.shape is not None and value.rank > 1 else None
    few = isinstance(channels, int) and channels <= _FEW_CHANNELS
    return node.op == "Conv" and node.op in wanting and value.format.is_plain and few


def _rank(format_: Format) -> int:
    permutation = format_.permutation
    return len(permutation) if permutation else -1


def _wanted_format(node: Node, wanting: set[str], following: set[str]) -> Format | None:
    """The format in which the node takes its data and gives its results; None is plain."""
    first = node.input(0)
    if node.op in wanting:
        return channels_last(first.rank) if first is not None and first.shape is not None and first.rank >= 3 else None
    if node.op in _REGROUP:
        return first.format if first is not None and _regroups_spatial_axes(first, node.output) else None
    if not _is_elementwise(node) and not (node.op in following and _keeps_rank(node)):
        return None
    formats = [v.format for v in node.inputs if v is not None and not v.is_constant and not v.format.is_plain]
    if not formats or any(o.shape is None or o.rank != _rank(formats[0]) for o in node.outputs):
        return None
    return formats[0]


def _is_elementwise(node: Node) -> bool:
    declared = ops.get(node.op)
    return declared is not None and declared.kind == "elementwise"


def _keeps_rank(node: Node) -> bool:
    first = node.input(0)
    return first is not None and all(v.shape is not None and v.rank == first.rank for v in (first, *node.outputs))


def _data_inputs(node: Node, wanting: set[str]) -> Sequence[int]:
    """Indices of the inputs that follow the format."""
    declared = ops.get(node.op)
    if node.op in wanting or node.op in ("Slice", "Pad", "Split", "Resize") or node.op in _REGROUP:
        return (0,)
    if declared is not None and declared.kind == "reduction":
        return (0,)
    return range(len(node.inputs))


def _regroups_spatial_axes(before: Value, after: Value) -> bool:
    """N and C stay in place and what follows them is regrouped, in channels-last order."""
    if before.format.is_plain or before.shape is None or after.shape is None or after.rank < 3:
        return False
    return before.format == channels_last(before.rank) and before.shape[:2] == after.shape[:2]


def _relayout(graph: Graph, node: Node, value: Value, format_: Format, made: dict[tuple[str, Format], Value]) -> Value:
    producer = value.producer
    if producer is not None and producer.op == "Relayout" and producer.inputs[0] is not None:
        if producer.inputs[0].format == format_:
            return producer.inputs[0]
    key = (value.name, format_)
    if key not in made:
        copy = graph.add_value(f"{value.name}/{'plain' if format_.is_plain else 'nhwc'}", value.dtype, value.shape)
        copy.format = format_
        guards = () if producer is None else producer.guards  # it runs whenever its value is made
        graph.add_node("Relayout", [value], [copy], name=copy.name, before=node, guards=guards)
        made[key] = copy
    return made[key]


def _outer_values_of_subgraphs(graph: Graph) -> set[str]:
    """Names of values that bodies of control flow use directly; these stay plain."""
    found: set[str] = set()

    def visit(inside: Graph) -> None:
        for node in inside.nodes:
            found.update(v.name for v in node.inputs if v is not None)
            for sub in node.subgraphs.values():
                visit(sub)
        found.update(v.name for v in inside.outputs)

    for node in graph.nodes:
        for sub in node.subgraphs.values():
            visit(sub)
    return found
