"""From a lowered graph to what planning takes."""

from __future__ import annotations

from collections import defaultdict

from codegen.lowering import Lowered, guards_of
from graph_opt.fusion.fuse_caches import HELD, ROOM
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.data_dependent_sizes import told_by_inputs
from graph_opt.ir.ops.registry import is_fresh
from graph_opt.plan import Growing, GuardedRequirement, PlanInput, Scheduled, ValueInfo
from graph_opt.simplify.scopes import control_graphs
from tensor_types.dims import names


def plan_input(graph: Graph, lowered: Lowered) -> PlanInput:
    """The graph's values and the records as planning wants them."""
    held = {*graph.states, *graph.states.values()}
    inputs = tuple(v.name for v in graph.inputs if v.name not in held)
    outputs = tuple(v.name for v in graph.outputs if v.name not in held)
    kinds = {**dict.fromkeys(outputs, "output"), **dict.fromkeys(inputs, "input")}

    def kind(value: Value) -> str:
        if value.is_constant:
            return "constant"
        if value.name in graph.states:
            return "state"
        return kinds.get(value.name, "temporary")

    infos = [ValueInfo(v.name, v.dtype, v.shape, kind(v), v.format) for v in graph.values.values()]
    scheduled = [Scheduled(r, guards=g) for r, g in zip(lowered.records, lowered.guards, strict=True)]
    told = told_by_inputs(graph)
    late = {name: bounds for name, bounds in graph.dims.items() if is_fresh(name) and name not in told}
    dims = {name: bounds for name, bounds in graph.dims.items() if name not in late}
    in_bodies = {n.name for body in control_graphs(graph) if body is not graph for n in body.nodes}
    guards = {n.name: guards_of(outer) for outer in graph.nodes for n in (outer, *_inside(outer))}
    requirements = []
    for r, node in graph.requirements.items():
        # A size that does not fit is no fault in a branch that does not run; bodies check their operands themselves.
        if node in guards or node not in in_bodies:
            requirements.append(GuardedRequirement(r.left, r.right, r.relation, node, guards.get(node, ())))
    return PlanInput(
        tuple(infos), tuple(scheduled), inputs, outputs, dims, tuple(requirements), late, tuple(graph.states),
        tuple(plan_input(body, made) for body, made in lowered.bodies),
        _growing(graph),
    )  # fmt: skip


def _growing(graph: Graph) -> tuple[Growing, ...]:
    """The caches that have room in this graph."""
    found: dict[tuple[str, str, int], list[tuple[str, str]]] = defaultdict(list)
    for node in graph.nodes:
        if node.attrs.get("family") == "append" and ROOM in node.attrs and node.inputs[0] is not None:
            room, shape = str(node.attrs[ROOM]), node.output.shape or ()
            axis = next(k for k, extent in enumerate(shape) if room in names(extent))
            found[str(node.attrs[HELD]), room, axis].append((node.inputs[0].name, node.output.name))
    return tuple(Growing(*key, tuple(pairs)) for key, pairs in found.items())


def _inside(node: Node) -> list[Node]:
    return node.subgraphs["body"].nodes if node.op == "Fused" else []
