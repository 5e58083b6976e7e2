"""Losses over classes, written as LogSoftmax, a gather of each target's class and a reduction."""

from __future__ import annotations

from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value


@form("SoftmaxCrossEntropyLoss")
def _cross_entropy(node: PendingNode) -> None:
    """The likelihood loss of the scores' log-probabilities, which are the second output."""
    log_probability = node.emit("LogSoftmax", [node.value(0)], {"axis": 1})
    node.give(1, log_probability)
    del node.outputs[1:]
    node.become("NegativeLogLikelihoodLoss", [log_probability, *node.inputs[1:]], node.attrs)


@form("NegativeLogLikelihoodLoss")
def _likelihood_loss(node: PendingNode) -> None:
    """Log-probabilities [N, C, d...] at the classes [N, d...], negated, weighted by class and reduced."""
    log_probability, target, weight = node.value(0), node.value(1), node.input(2)
    zero = node.constant(0, log_probability.dtype, "zero")
    used: Value | None = None
    if "ignore_index" in node.attrs:
        ignored = node.emit("Equal", [target, node.constant(int(node.number("ignore_index")), target.dtype, "ignored")])
        used = node.emit("Not", [ignored])
        target = node.emit("Where", [used, target, node.constant(0, target.dtype, "first")])
    column = node.emit("Unsqueeze", [target, node.ints([1], "axis")])
    picked = node.emit("GatherElements", [log_probability, column], {"axis": 1})
    loss = node.emit("Neg", [node.emit("Squeeze", [picked, node.ints([1], "axis")])])
    factors: Value | None = None
    if weight is not None:
        factors = node.emit("Gather", [weight, target], {"axis": 0})
        loss = node.emit("Mul", [loss, factors])
    if used is not None:
        # Not a product with 0: what is not used may be infinite.
        loss = node.emit("Where", [used, loss, zero])
        factors = node.emit("Where", [used, factors or node.constant(1, zero.dtype, "one"), zero])
    reduction = str(node.attrs.get("reduction", "mean"))
    if reduction == "none":
        return node.become("Identity", [loss])
    if reduction not in ("sum", "mean"):
        raise node.error(f"there is no reduction {reduction!r}")
    if reduction == "mean" and factors is not None:
        total, used_up = (node.emit("ReduceSum", [x], {"keepdims": 0}) for x in (loss, factors))
        return node.become("Div", [total, used_up])
    node.become("ReduceMean" if reduction == "mean" else "ReduceSum", [loss], {"keepdims": 0})
