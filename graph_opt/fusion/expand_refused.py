"""Writes an operator that no kernel of a target takes as what it is defined by, if there are kernels of all of that.

Operators by meaning are made for all targets at once, before any of them is asked. This pass asks for the targets of
its graph, so that a form which one of them refuses costs no other its fusion, and no target the operator as a whole.

    Softmax(x)             -> e = exp(x - max(x));  e / sum(e)
    LogSoftmax(x)          -> d = x - max(x);  d - log(sum(exp(d)))
    LayerNormalization     -> d = x - mean(x);  d / sqrt(mean(d*d) + epsilon) * scale + bias; mean, 1 / root
    RMSNormalization       -> x / sqrt(mean(x*x) + epsilon) * scale
    InstanceNormalization  -> as LayerNormalization, over all axes behind the channels
    Gelu(x)                -> x * 0.5 * (1 + erf(x / sqrt(2))), or with tanh

Rules
1. f16 and bf16 compute in f32 between two Casts, as the kernels do.
2. If any part has no kernel either, the operator stays as it is: one task of the AI CPU is better than several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import pi
from typing import ClassVar

import numpy as np

from graph_opt.fusion.families import Kernels
from graph_opt.ir.core import AttrValue, Graph, Node, Value
from graph_opt.ir.patterns import attribute
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dtypes import BF16, F16, F32, DType


class _Definition:
    """The operators that stand for a node, in front of it. Results are typed as those of the node at the end."""

    def __init__(self, rewriter: Rewriter, node: Node) -> None:
        self.rewriter, self.node = rewriter, node
        self.made: list[Node] = []
        x = node.inputs[0]
        assert x is not None
        self.compute = F32 if x.dtype in (F16, BF16) else x.dtype
        self.rank = x.rank

    def __call__(self, op: str, *inputs: Value | float, **attrs: AttrValue) -> Value:
        operands = [v if isinstance(v, Value) else self.number(v) for v in inputs]
        name = f"{self.node.name or self.node.output.name}/{op.lower()}"
        self.made.append(self.rewriter.insert(op, operands, attrs, before=self.node, name=name))
        return self.made[-1].output

    def number(self, value: float) -> Value:
        """A constant of the dtype that is computed in."""
        return self.rewriter.constant(np.array(value, self.compute.numpy), f"{self.node.output.name}/c", self.compute)

    def integers(self, values: Sequence[int]) -> Value:
        return self.rewriter.constant(np.array(values, np.int64), f"{self.node.output.name}/axes")

    def input(self, index: int) -> Value | None:
        """An input in the dtype that is computed in."""
        value = self.node.input(index)
        return None if value is None else self.cast(value, self.compute)

    @property
    def x(self) -> Value:
        value = self.input(0)
        assert value is not None
        return value

    def cast(self, value: Value, dtype: DType) -> Value:
        return value if value.dtype == dtype else self("Cast", value, to=dtype.onnx)

    def over(self, op: str, value: Value, axes: Sequence[int]) -> Value:
        """A reduction that keeps its axes."""
        return self(op, value, self.integers(axes), keepdims=1)

    def axes_from(self, default: int) -> tuple[int, ...]:
        """All axes from that of the attribute on."""
        return tuple(range(int(self.node.attrs.get("axis", default)) % self.rank, self.rank))  # type: ignore[arg-type]


def _softmax(d: _Definition) -> list[Value]:
    axis = [int(attribute(d.node, "axis")) % d.rank]  # type: ignore[arg-type]
    x = d.x
    power = d("Exp", d("Sub", x, d.over("ReduceMax", x, axis)))
    return [d("Div", power, d.over("ReduceSum", power, axis))]


def _log_softmax(d: _Definition) -> list[Value]:
    axis = [int(attribute(d.node, "axis")) % d.rank]  # type: ignore[arg-type]
    x = d.x
    below = d("Sub", x, d.over("ReduceMax", x, axis))
    return [d("Sub", below, d("Log", d.over("ReduceSum", d("Exp", below), axis)))]


def _scaled(d: _Definition, value: Value, axes: Sequence[int], factors: Iterable[Value | None]) -> tuple[Value, Value]:
    """(value / root of the mean of its squares, times and plus the factors; 1 / that root)."""
    squares = d.over("ReduceMean", d("Mul", value, value), axes)
    inverse = d("Reciprocal", d("Sqrt", d("Add", squares, float(attribute(d.node, "epsilon")))))  # type: ignore[arg-type]
    result = d("Mul", value, inverse)
    for op, factor in zip(("Mul", "Add"), factors, strict=False):
        result = result if factor is None else d(op, result, factor)
    return result, inverse


def _layer(d: _Definition) -> list[Value]:
    axes, x = d.axes_from(-1), d.x
    mean = d.over("ReduceMean", x, axes)
    result, inverse = _scaled(d, d("Sub", x, mean), axes, (d.input(1), d.input(2)))
    return [result, mean, inverse]


def _rms(d: _Definition) -> list[Value]:
    return [_scaled(d, d.x, d.axes_from(-1), (d.input(1),))[0]]


def _instance(d: _Definition) -> list[Value]:
    axes, x = tuple(range(2, d.rank)), d.x
    behind = d.integers(tuple(range(1, d.rank - 1)))
    columns = [None if v is None else d("Unsqueeze", v, behind) for v in (d.input(1), d.input(2))]
    return [_scaled(d, d("Sub", x, d.over("ReduceMean", x, axes)), axes, columns)[0]]


def _gelu(d: _Definition) -> list[Value]:
    x = d.x
    if attribute(d.node, "approximate") == "tanh":
        cubic = d("Mul", d("Mul", d("Mul", x, x), x), 0.044715)
        gate = d("Tanh", d("Mul", d("Add", x, cubic), (2 / pi) ** 0.5))
    else:
        gate = d("Erf", d("Mul", x, 0.5**0.5))
    return [d("Mul", d("Mul", x, 0.5), d("Add", gate, 1.0))]


_DEFINITIONS: dict[str, Callable[[_Definition], list[Value]]] = {
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "LayerNormalization": _layer,
    "RMSNormalization": _rms,
    "InstanceNormalization": _instance,
    "Gelu": _gelu,
}
_FREE = frozenset({"Unsqueeze"})
"""Operators that rename bytes."""


@dataclass(frozen=True)
class ExpandRefused:
    """See the module."""

    kernels: Kernels
    name: ClassVar[str] = "expand-refused"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        changed = False
        for node in [n for n in graph.nodes if n.op in _DEFINITIONS]:
            x = node.inputs[0]
            if x is None or x.shape is None or x.rank == 0 or not x.format.is_plain:
                continue
            if self.kernels.why_not_alone(graph, node) is not None:
                changed |= self._expand(rewriter, node)
        return changed

    def _expand(self, rewriter: Rewriter, node: Node) -> bool:
        """Whether the node was replaced; else the graph is as it was."""
        graph, definition = rewriter.graph, _Definition(rewriter, node)
        results = _DEFINITIONS[node.op](definition)
        typed = [
            (old, definition.cast(new, old.dtype))
            for old, new in zip(node.outputs, results, strict=False)
            if old is node.output or old.uses or graph.is_output(old)
        ]
        asked = [part for part in definition.made if part.op not in _FREE]
        taken = all(self.kernels.why_not_alone(graph, part) is None for part in asked)
        if taken:
            for old, new in typed:
                rewriter.replace(old, new, "same")
        rewriter.erase_dead([node] if taken else definition.made[::-1])
        return taken
