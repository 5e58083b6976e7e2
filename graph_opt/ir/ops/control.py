"""Control flow: If, Loop, Scan, and IfMerge, which joins the branches of an If that was flattened."""

from __future__ import annotations

from graph_opt.ir.core import Graph, Value
from graph_opt.ir.ops.registry import GRAPH, INT, INTS, Inference, Shape, content_of, declare, is_fresh
from tensor_types.dims import Dim


def joined(ctx: Inference, index: int, values: list[Value]) -> None:
    """Types output `index` as what all `values` agree on: differing extents become fresh, differing ranks unknown."""
    first = values[0]
    shapes = [v.shape for v in values]
    if any(v.dtype != first.dtype for v in values):
        raise ctx.error(f"the branches give {' and '.join(str(v.dtype) for v in values)} for output {index}")
    if any(s is None or len(s) != len(shapes[0] or ()) for s in shapes) or shapes[0] is None:
        return ctx.set(index, first.dtype, None)
    known: list[Shape] = [s for s in shapes if s is not None]
    out: list[Dim] = []
    for axis, extent in enumerate(known[0]):
        agreed = all(s[axis] == extent for s in known)
        out.append(extent if agreed else ctx.fresh(index=index, axis=axis))
    contents = {content_of(v) for v in values}
    ctx.set(index, first.dtype, out, contents.pop() if len(contents) == 1 else None)


def _if(ctx: Inference) -> None:
    branches = [ctx.node.subgraphs["then_branch"], ctx.node.subgraphs["else_branch"]]
    decided = ctx.content(0)
    if decided is not None:
        branches = branches[:1] if decided[0] else branches[1:]  # the other need not even fit its operands
    for branch in branches:
        if len(branch.outputs) != len(ctx.node.outputs):
            raise ctx.error(f"a branch makes {len(branch.outputs)} tensors, the node {len(ctx.node.outputs)}")
        ctx.infer_body(branch)
    for index in range(len(ctx.node.outputs)):
        joined(ctx, index, [b.outputs[index] for b in branches])


def _if_merge(ctx: Inference) -> None:
    decided = ctx.content(0)
    sides = [ctx.value(1), ctx.value(2)]
    joined(ctx, 0, sides if decided is None else [sides[0] if decided[0] else sides[1]])


def _settle(ctx: Inference, body: Graph, first: int, states: list[tuple[Value, Value]]) -> None:
    """Infers a body whose (input, output) `states` are carried from one run to the next, node inputs from `first` on.

    Inputs start with the shapes of the initial values and are loosened until one run keeps them.
    """
    before = [inner.shape for inner, _ in states]
    for (inner, _), outer in zip(states, ctx.node.inputs[first:], strict=False):
        if outer is not None:
            inner.dtype, inner.shape, inner.content = outer.dtype, outer.shape, None
    loosened: dict[tuple[int, int], Dim] = {}
    for _ in range(8):
        ctx.infer_body(body)
        stable = True
        for number, (inner, after) in enumerate(states):
            if inner.shape is None:
                continue
            if after.shape is None or len(after.shape) != len(inner.shape):
                inner.shape, stable = None, False
                continue
            for axis, (old, new) in enumerate(zip(inner.shape, after.shape, strict=True)):
                if old != new and (number, axis) not in loosened:
                    known = before[number] or ()
                    again = axis < len(known) and is_fresh(str(known[axis]))
                    loosened[number, axis] = known[axis] if again else ctx.new_dim()
                    stable = False
            inner.shape = tuple(loosened.get((number, axis), d) for axis, d in enumerate(inner.shape))
        if stable:
            return
    for inner, _ in states:
        inner.shape = None
    ctx.infer_body(body)


def _loop(ctx: Inference) -> None:
    body = ctx.node.subgraphs["body"]
    count = len(ctx.node.inputs) - 2
    body.inputs[0].shape, body.inputs[1].shape = (), ()
    _settle(ctx, body, 2, list(zip(body.inputs[2:], body.outputs[1 : 1 + count], strict=True)))
    for index in range(count):
        # The result is the initial value when the body never runs.
        joined(ctx, index, [body.inputs[2 + index], body.outputs[1 + index]])
    trips = ctx.content(0)
    ends_early = not _stays_true(body.outputs[0])
    for index in range(count, len(ctx.node.outputs)):
        part = body.outputs[1 + index]
        known = trips is not None and not ends_early and (not ctx.has(1) or ctx.content(1) == (1,))
        steps = trips[0] if known and trips is not None else ctx.fresh(index=index)
        ctx.set(index, part.dtype, None if part.shape is None else (steps, *part.shape))


def _stays_true(value: Value) -> bool:
    """Whether a loop's condition output is the constant true or the condition that came in."""
    while value.producer is not None and value.producer.op == "Identity":
        value = value.producer.inputs[0] or value
    return content_of(value) == (1,) or (value.producer is None and not value.is_constant)


def _scan(ctx: Inference) -> None:
    body = ctx.node.subgraphs["body"]
    scans = int(ctx.attr("num_scan_inputs"))
    states = len(ctx.node.inputs) - scans
    in_axes = ctx.attr("scan_input_axes") or (0,) * scans
    outs = len(ctx.node.outputs) - states
    out_axes = ctx.attr("scan_output_axes") or (0,) * outs
    length: Dim | None = None
    for i in range(scans):
        shape, inner = ctx.shape(states + i), body.inputs[states + i]
        if shape is None:
            inner.shape = None
            continue
        axis = ctx.normal_axis(int(in_axes[i]), len(shape))
        length = shape[axis] if length is None else length
        inner.dtype, inner.shape = ctx.dtype(states + i), (*shape[:axis], *shape[axis + 1 :])
    _settle(ctx, body, 0, list(zip(body.inputs[:states], body.outputs[:states], strict=True)))
    for index in range(states):
        joined(ctx, index, [body.inputs[index], body.outputs[index]])
    for i in range(outs):
        part = body.outputs[states + i]
        if part.shape is None:
            ctx.set(states + i, part.dtype, None)
            continue
        axis = ctx.normal_axis(int(out_axes[i]), len(part.shape) + 1)
        steps = ctx.fresh(index=states + i, axis=axis) if length is None else length
        ctx.set(states + i, part.dtype, (*part.shape[:axis], steps, *part.shape[axis:]))


def _closed(ctx: Inference) -> None:
    """A finished loop, whose results keep the types that they had: its body is a graph of its own."""
    for index, value in enumerate(ctx.node.outputs):
        ctx.set(index, value.dtype, value.shape, value.content)


CLOSED = {"Loop": "ClosedLoop", "Scan": "ClosedScan"}
"""What a loop becomes whose body reads nothing from outside: the values that it captured, `captured` of them, are its
last operands and the last inputs of its body."""

declare("If", "cond", "control", _if, {"then_branch": GRAPH, "else_branch": GRAPH})
declare("IfMerge", "cond then else", "control", _if_merge, aicpu=None)
declare("Loop", "M? cond? v_initial*", "control", _loop, {"body": GRAPH})
declare(
    "Scan", "initial_state_and_scan_inputs*", "control", _scan,
    {"body": GRAPH, "num_scan_inputs": INT, "scan_input_axes": INTS, "scan_input_directions": INTS,
     "scan_output_axes": INTS, "scan_output_directions": INTS},
)  # fmt: skip
declare("ClosedLoop", "M? cond? initial_and_captured*", "control", _closed, {"body": GRAPH, "captured": 0}, aicpu=None)
declare(
    "ClosedScan", "initial_state_scan_inputs_and_captured*", "control", _closed,
    {"body": GRAPH, "captured": 0, "num_scan_inputs": INT, "scan_input_axes": INTS, "scan_input_directions": INTS,
     "scan_output_axes": INTS, "scan_output_directions": INTS}, aicpu=None,
)  # fmt: skip
