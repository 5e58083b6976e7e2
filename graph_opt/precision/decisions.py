"""Which operators of a graph a policy runs in its narrow dtype; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graph_opt.ir import Graph, Node, Value, ops
from graph_opt.ir.ops.registry import is_fresh
from graph_opt.ir.reads import captured_values
from graph_opt.precision.lists import ACCUMULATES, KEEPS_OPERANDS, RENORMALISES, UNTOUCHED_INPUTS, WHITE, Policy
from tensor_types.dims import names
from tensor_types.dtypes import F32

_ALIASES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "IfMerge"})


def narrow_nodes(
    graph: Graph, policy: Policy, is_able: Callable[[Node], bool], classes: Mapping[Node, str] | None = None
) -> set[Node]:
    """The nodes that run in `policy.narrow`, in three sweeps. `classes` are the user's (`overrides`).

    1. Backwards from TopK, indices, phases and the like: what feeds them keeps its dtype.
    2. Forwards: white nodes become narrow; gray ones if every f32 operand that is not a constant comes from a narrow
       node (or always, as the policy says).
    3. Backwards: a gray node that no narrow node reads keeps f32; its cast would come a node later anyhow.

    A class that the user gave goes before the lists of the policy, and white and narrow nodes before sweep 1.
    `is_able` says of a node that computes in f32 whether it could in the narrow dtype.
    """
    if policy.narrow is None:
        return set()
    given = classes or {}
    captured = _captured_producers(graph)
    kept = _feeding_sensitive(graph) | captured

    def class_of(node: Node) -> str:
        name = operator(node)
        listed = "black" if name in policy.black else "white" if name in policy.white else policy.gray
        return given.get(node) or listed

    chosen: set[Node] = set()
    for node in graph.nodes:
        class_ = class_of(node)
        held = captured if given.get(node) in ("white", "narrow") else kept
        if node in held or not _computes_f32(node) or is_late(node) or class_ in _KEEPING:
            continue
        operands = data_operands(node)
        follows = policy.gray != "keep" and bool(operands) and all(v.producer in chosen for v in operands)
        if (class_ in ("white", "narrow") or follows) and is_able(node):
            chosen.add(node)
    for node in reversed(graph.nodes):
        read = any(user in chosen for v in node.outputs for user, _ in v.uses)
        if node in chosen and class_of(node) not in ("white", "narrow") and not read:
            chosen.discard(node)
    return chosen


_KEEPING = ("keep", "black")


def operator(node: Node) -> str:
    """The operator that decides: of an attention with the transposes around it, Attention."""
    if node.op == "Fused":
        return next((n.op for n in node.subgraphs["body"].nodes if n.op in WHITE), node.op)
    return node.op


def narrowable_inputs(node: Node) -> list[int]:
    """Indices of the f32 inputs whose dtype goes with the node's."""
    if node.op == "Fused":
        body = node.subgraphs["body"]
        kept = {id(n.input(i)) for n in body.nodes for i in UNTOUCHED_INPUTS.get(n.op, ())}
        untouched = [i for i, v in enumerate(body.inputs) if id(v) in kept]
    else:
        untouched = list(UNTOUCHED_INPUTS.get(node.op, ()))
    return [i for i, v in enumerate(node.inputs) if v is not None and v.dtype == F32 and i not in untouched]


def data_operands(node: Node) -> list[Value]:
    """The values behind `narrowable_inputs` that are not constants."""
    values = [node.inputs[i] for i in narrowable_inputs(node)]
    return [v for v in values if v is not None and not v.is_constant]


def is_elementwise(node: Node) -> bool:
    return _kind(node) == "elementwise"


def _kind(node: Node) -> str:
    declared = ops.get(node.op)
    return declared.kind if declared is not None else ""


@dataclass(frozen=True)
class Inside:
    """What stays inside the kernel of a narrow product, in f32: element-wise nodes and values."""

    nodes: set[Node]
    values: set[Value]


def inside_kernels(graph: Graph, narrow: set[Node]) -> Inside:
    """An accumulator is inside if only narrow element-wise nodes of its shape read it.

    Such a node computes in f32 if all its operands are inside the same kernel; then its own result can be inside.
    """
    anchor: dict[Value, Node] = {}
    nodes: set[Node] = set()
    for node in graph.nodes:
        if node not in narrow:
            continue
        if node.op in ACCUMULATES:
            home: Node | None = node
        elif is_elementwise(node):
            homes = {anchor.get(v) for v in data_operands(node)}
            home = homes.pop() if len(homes) == 1 else None
            if home is not None:
                nodes.add(node)
        else:
            home = None
        result = node.output
        if home is None or graph.is_output(result) or not result.uses:
            continue
        if all(u in narrow and is_elementwise(u) and u.output.shape == result.shape for u, _ in result.uses):
            anchor[result] = home
    return Inside(nodes, set(anchor))


def is_depthwise(node: Node) -> bool:
    """True for a convolution of one channel at a time, which is no work for a cube."""
    weight = node.input(1)
    if node.op != "Conv" or node.attrs.get("group", 1) == 1 or weight is None or weight.shape is None:
        return False
    return weight.shape[1] == 1


def needs_no_kernel(node: Node) -> bool:
    """True if the node only renames bytes, of whatever dtype."""
    return node.op in _ALIASES


def is_late(node: Node) -> bool:
    """True if only the run decides a size: such nodes run on the AI CPU, to which narrow floats are a burden."""
    values = [v for v in (*node.inputs, *node.outputs) if v is not None]
    return any(v.shape is None or any(is_fresh(name) for d in v.shape for name in names(d)) for v in values)


def _computes_f32(node: Node) -> bool:
    """True if results are f32 and no index, length or truth value comes out beside them."""
    return node.output.dtype == F32 and all(v.dtype == F32 for v in node.outputs)


def _feeding_sensitive(graph: Graph) -> set[Node]:
    """Up to the nearest products, and on through what is linear: a bank of filters keeps its dtype as a whole."""
    pending: list[Node] = []
    filters: set[Node] = set()
    for node in graph.nodes:
        takes_f32 = any(v is not None and v.dtype == F32 for v in node.inputs)
        gives_integers = any(v.dtype.is_integer for v in node.outputs)
        if takes_f32 and (node.op in KEEPS_OPERANDS or gives_integers and node.op not in ("Shape", "Size")):
            pending.extend(_producers(node))
    found: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in found or node.op in RENORMALISES:
            continue
        found.add(node)
        linear = [p for p in _producers(node) if operator(p) in WHITE or _kind(p) in ("movement", "shape")]
        behind_product = operator(node) in WHITE or node in filters
        filters.update(linear if behind_product else ())
        pending.extend(linear if behind_product else _producers(node))
    return found


def _producers(node: Node) -> list[Node]:
    return [v.producer for v in node.inputs if v is not None and v.producer is not None and v.dtype == F32]


def _captured_producers(graph: Graph) -> set[Node]:
    """Nodes whose results subgraphs read: bodies of control flow keep the dtypes that they were written for."""
    return {v.producer for n in graph.nodes for v in captured_values(n) if v.producer is not None}
