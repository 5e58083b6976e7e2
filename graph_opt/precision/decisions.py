"""Which operators of a graph a policy runs in its narrow dtype; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from graph_opt.fusion.traits import FamilyTraits
from graph_opt.ir import Graph, Node, Value, ops
from graph_opt.ir.rewriter import captured_values
from graph_opt.precision.lists import ACCUMULATES, CHOOSES, RENORMALISES, UNTOUCHED_INPUTS, WHITE, Policy
from tensor_types.dtypes import F32

_ALIASES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "IfMerge"})


def narrow_nodes(graph: Graph, policy: Policy, traits: Sequence[FamilyTraits]) -> set[Node]:
    """The nodes that run in `policy.narrow`, in three sweeps.

    1. Backwards from choices (TopK, indices, phases): what feeds them keeps its dtype.
    2. Forwards: white nodes become narrow; gray ones if every f32 operand that is not a constant comes from a narrow
       node (or always, as the policy says).
    3. Backwards: a gray node that no narrow node reads keeps f32; its cast would come a node later anyhow.
    """
    if policy.narrow is None:
        return set()
    kept = _feeding_choices(graph) | _captured_producers(graph)
    able = _able_operators(policy.narrow.name, traits) - policy.black
    chosen: set[Node] = set()
    for node in graph.nodes:
        if node in kept or node.op not in able or not _computes_f32(node):
            continue
        if node.op in WHITE or policy.gray == "narrow":
            chosen.add(node)
        elif policy.gray == "follow":
            operands = list(data_operands(node))
            if operands and all(v.producer in chosen for v in operands):
                chosen.add(node)
    for node in reversed(graph.nodes):
        read = any(user in chosen for v in node.outputs for user, _ in v.uses)
        if node in chosen and node.op not in WHITE and policy.gray == "follow" and not read:
            chosen.discard(node)
    return chosen


def data_operands(node: Node) -> Iterator[Value]:
    """The f32 operands that the run computes and whose dtype goes with the node's."""
    untouched = UNTOUCHED_INPUTS.get(node.op, ())
    for index, value in enumerate(node.inputs):
        if value is not None and value.dtype == F32 and not value.is_constant and index not in untouched:
            yield value


def is_elementwise(node: Node) -> bool:
    declared = ops.get(node.op)
    return declared is not None and declared.kind == "elementwise"


def stays_wide(value: Value, graph: Graph, narrow: set[Node], wide: set[Node]) -> bool:
    """True if a result never reaches memory: an accumulator, or what is computed from it, for element-wise readers."""
    producer = value.producer
    if producer is None or graph.is_output(value) or not value.uses:
        return False
    if producer not in wide and not (producer in narrow and producer.op in ACCUMULATES):
        return False
    return all(u in narrow and is_elementwise(u) and u.output.shape == value.shape for u, _ in value.uses)


def wide_nodes(graph: Graph, narrow: set[Node]) -> set[Node]:
    """Narrow element-wise nodes inside a kernel: they compute in f32, and what the kernel writes is rounded once."""
    wide: set[Node] = set()
    for node in graph.nodes:
        if node in narrow and is_elementwise(node):
            operands = list(data_operands(node))
            if operands and all(stays_wide(v, graph, narrow, wide) for v in operands):
                wide.add(node)
    return wide


def _able_operators(narrow: str, traits: Sequence[FamilyTraits]) -> frozenset[str]:
    """Operators with a native kernel in the narrow dtype, and those that need none."""
    able = set(_ALIASES)
    for family in traits:
        if narrow in family.dtypes:
            able |= family.anchors or family.epilogue
    return frozenset(able)


def _computes_f32(node: Node) -> bool:
    """True if results are f32 and no index, length or truth value comes out beside them."""
    return node.output.dtype == F32 and all(v.dtype == F32 for v in node.outputs)


def _feeding_choices(graph: Graph) -> set[Node]:
    pending: list[Node] = []
    for node in graph.nodes:
        takes_f32 = any(v is not None and v.dtype == F32 for v in node.inputs)
        gives_integers = any(v.dtype.is_integer for v in node.outputs)
        if takes_f32 and (node.op in CHOOSES or gives_integers and node.op not in ("Shape", "Size")):
            pending.extend(_producers([node]))
    found: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in found or node.op in RENORMALISES:
            continue
        found.add(node)
        if node.op not in WHITE:
            pending.extend(_producers([node]))
    return found


def _producers(nodes: Iterable[Node]) -> list[Node]:
    return [v.producer for n in nodes for v in n.inputs if v is not None and v.producer is not None and v.dtype == F32]


def _captured_producers(graph: Graph) -> set[Node]:
    """Nodes whose results subgraphs read: bodies of control flow keep the dtypes that they were written for."""
    return {v.producer for n in graph.nodes for v in captured_values(n) if v.producer is not None}
