"""Optimisers of ai.onnx.preview.training: one step, written as element-wise operators for each tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value
from tensor_types.dtypes import DType

DOMAIN = "ai.onnx.preview.training::"


@dataclass(frozen=True)
class _Step:
    """Arithmetic in the dtype of one tensor; `rate` and `count` are the first inputs of the node in it."""

    node: PendingNode
    dtype: DType
    rate: Value
    count: Value

    def __call__(self, op: str, *operands: Value | float) -> Value:
        values = [v if isinstance(v, Value) else self.node.constant(v, self.dtype, "factor") for v in operands]
        return self.node.emit(op, values)

    def number(self, name: str, default: float) -> float:
        return float(self.node.number(name, default))

    def regularised(self, x: Value, gradient: Value) -> Value:
        """The gradient with that of the penalty of large weights."""
        penalty = self.number("norm_coefficient", 0.0)
        return self("Add", gradient, self("Mul", x, penalty)) if penalty else gradient

    def first(self, then: Value | float, otherwise: Value | float) -> Value:
        """One number for the first step of all and another for later ones."""
        later = self.node.emit("Greater", [self.count, self.node.constant(0, self.count.dtype, "none")])
        made = [v if isinstance(v, Value) else self.node.constant(v, self.dtype, "factor") for v in (otherwise, then)]
        return self.node.emit("Where", [later, *made])


Rule = Callable[[_Step, list[Value]], list[Value]]
"""For one tensor: it, its gradient and what is kept between steps -> it and what is kept, afterwards."""


def _each(node: PendingNode, kept: int, rule: Rule) -> None:
    """Inputs are rate, count of steps, all tensors, all gradients, then what is kept; results in the same order."""
    groups = 2 + kept
    tensors, rest = divmod(len(node.inputs) - 2, groups)
    if rest or tensors < 1:
        raise node.error(f"{len(node.inputs)} inputs: rate, count and {groups} for each tensor are expected")
    results: list[list[Value]] = []
    for k in range(tensors):
        mine = [node.value(2 + group * tensors + k) for group in range(groups)]
        dtype = mine[0].dtype
        rate, count = (v if v.dtype == dtype else node.emit("Cast", [v], {"to": dtype.onnx})
                       for v in (node.value(0), node.value(1)))  # fmt: skip
        results.append(rule(_Step(node, dtype, rate, count), mine))
    ordered = [results[k][group] for group in range(groups - 1) for k in range(tensors)]
    for index, value in enumerate(ordered[1:], 1):
        node.give(index, value)
    del node.outputs[1:]
    node.become("Identity", ordered[:1])


def _adagrad(step: _Step, mine: list[Value]) -> list[Value]:
    x, gradient, squares = mine
    slope = step.regularised(x, gradient)
    slower = step("Add", step("Mul", step.count, step.number("decay_factor", 0.0)), 1.0)
    rate = step("Div", step.rate, slower)
    squares = step("Add", squares, step("Mul", slope, slope))
    size = step("Add", step("Sqrt", squares), step.number("epsilon", 1e-6))
    return [step("Sub", x, step("Div", step("Mul", rate, slope), size)), squares]


def _adam(step: _Step, mine: list[Value]) -> list[Value]:
    x, gradient, mean, squares = mine
    alpha, beta = step.number("alpha", 0.9), step.number("beta", 0.999)
    slope = step.regularised(x, gradient)
    mean = step("Add", step("Mul", mean, alpha), step("Mul", slope, 1 - alpha))
    squares = step("Add", step("Mul", squares, beta), step("Mul", step("Mul", slope, slope), 1 - beta))
    size = step("Add", step("Sqrt", squares), step.number("epsilon", 1e-6))
    # What was kept began as 0: both averages are too small at first, which the rate makes good.
    grown = (step("Sub", 1.0, step("Pow", factor, step.count)) for factor in (beta, alpha))
    corrected = step("Div", step("Mul", step.rate, step("Sqrt", next(grown))), next(grown))
    rate = step.first(step.rate, corrected)
    moved = step("Sub", x, step("Mul", rate, step("Div", mean, size)))
    shrink = step.number("norm_coefficient_post", 0.0)
    return [step("Mul", moved, 1 - shrink) if shrink else moved, mean, squares]


def _momentum(step: _Step, mine: list[Value]) -> list[Value]:
    x, gradient, kept = mine
    alpha, mode = step.number("alpha", 0.0), step.node.attrs.get("mode", "standard")
    slope = step.regularised(x, gradient)
    kept = step("Add", step("Mul", kept, alpha), step("Mul", slope, step.first(1.0, step.number("beta", 0.0))))
    if mode not in ("standard", "nesterov"):
        raise step.node.error(f"the mode {mode!r} is neither standard nor nesterov")
    change = kept if mode == "standard" else step("Add", slope, step("Mul", kept, alpha))
    return [step("Sub", x, step("Mul", step.rate, change)), kept]


@form(DOMAIN + "Adagrad")
def _read_adagrad(node: PendingNode) -> None:
    _each(node, 1, _adagrad)


@form(DOMAIN + "Adam")
def _read_adam(node: PendingNode) -> None:
    _each(node, 2, _adam)


@form(DOMAIN + "Momentum")
def _read_momentum(node: PendingNode) -> None:
    _each(node, 1, _momentum)
