"""Shortens element-wise chains where the result is the same bit for bit.

Rules
1. x / 2^k becomes x * 2^-k for floats.
2. Integers: (x * a) * b becomes x * (a * b), (x + a) + b becomes x + (a + b), which hold modulo 2^n. Floats: only
   (x * a) * b with a power of two a, |a| >= 1 and |b| >= 1, where the first product is exact.
3. Neg of Neg, Not of Not.
4. A Cast of a lossless Cast reads the source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dtypes import DType


@dataclass(frozen=True)
class SimplifyArithmetic:
    """See the module."""

    name: ClassVar[str] = "simplify-arithmetic"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        changed = False
        for node in graph.nodes[:]:
            rule = _RULES.get(node.op)
            new = None if rule is None else rule(rewriter, node)
            if new is None or (graph.is_output(node.output) and (new.producer is None or graph.is_output(new))):
                continue
            rewriter.replace(node.output, new, "same")
            changed = True
        if changed:
            rewriter.erase_dead()
        return changed


def uniform(value: Value | None) -> float | int | None:
    """The number that every element of a constant has."""
    if value is None or value.data is None or not value.data.size:
        return None
    first = value.data.reshape(-1)[0]
    same = bool((value.data == first).all())
    return first.item() if same and value.dtype.kind in ("float", "int", "uint") else None


def _divide(rewriter: Rewriter, node: Node) -> Value | None:
    x, divisor = node.inputs[0], node.inputs[1]
    number = uniform(divisor)
    if x is None or divisor is None or divisor.data is None or number is None or not x.dtype.is_float:
        return None
    if not _power_of_two(float(number)):
        return None
    with np.errstate(all="ignore"):
        inverse = (1.0 / np.asarray(divisor.data, np.float64)).astype(divisor.dtype.numpy)
    tiny = np.abs(inverse.astype(np.float64).reshape(-1)[0])
    if float(tiny) * abs(float(number)) != 1.0 or x.dtype.name not in _SMALLEST_NORMAL:
        return None  # the reciprocal is no number of this dtype
    if tiny < _SMALLEST_NORMAL[x.dtype.name]:
        return None
    factor = rewriter.constant(inverse, f"{divisor.name}.reciprocal", divisor.dtype)
    return _insert(rewriter, node, "Mul", [x, factor])


_SMALLEST_NORMAL = {"f64": 2.0**-1022, "f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-14}


def _chain(rewriter: Rewriter, node: Node) -> Value | None:
    outer = _constant_operand(node)
    inner_node = None if outer is None else outer[0].producer
    if outer is None or inner_node is None or inner_node.op != node.op:
        return None
    inner = _constant_operand(inner_node)
    if inner is None:
        return None
    (_, b), (x, a) = outer, inner
    assert a.data is not None and b.data is not None
    first, second = a.data.reshape(-1)[0], b.data.reshape(-1)[0]
    multiply = node.op == "Mul"
    if x.dtype.is_float and not (
        multiply and _power_of_two(float(first)) and abs(float(first)) >= 1 and abs(float(second)) >= 1
    ):
        return None
    if not (x.dtype.is_float or x.dtype.is_integer):
        return None
    with np.errstate(all="ignore"):
        joined = np.multiply(first, second) if multiply else np.add(first, second)
    if x.dtype.is_float and not np.isfinite(np.float64(joined)):
        return None
    rank = max(a.rank, b.rank)
    factor = rewriter.constant(np.asarray(joined).reshape((1,) * rank), f"{node.output.name}.joined", x.dtype)
    return _insert(rewriter, node, node.op, [x, factor])


def _constant_operand(node: Node) -> tuple[Value, Value] | None:
    """The variable operand of a commutative node and its constant of one element."""
    for index in (1, 0):
        found, other = node.inputs[index], node.inputs[1 - index]
        if found is not None and other is not None and found.data is not None and found.data.size == 1:
            return None if other.is_constant else (other, found)
    return None


def _power_of_two(number: float) -> bool:
    return bool(np.isfinite(number)) and number != 0 and abs(np.frexp(number)[0]) == 0.5


def _twice(rewriter: Rewriter, node: Node) -> Value | None:
    before = None if node.inputs[0] is None else node.inputs[0].producer
    return before.inputs[0] if before is not None and before.op == node.op else None


def _cast(rewriter: Rewriter, node: Node) -> Value | None:
    before = None if node.inputs[0] is None else node.inputs[0].producer
    source = before.inputs[0] if before is not None and before.op == "Cast" else None
    if before is None or source is None or not _lossless(source.dtype, before.output.dtype):
        return None
    if source.dtype == node.output.dtype:
        return source
    return _insert(rewriter, node, "Cast", [source])


def _lossless(narrow: DType, wide: DType) -> bool:
    if narrow.kind == "bool":
        return wide.is_integer or wide.is_float
    if narrow.is_integer and wide.is_integer:
        signs = narrow.kind == wide.kind or wide.kind == "int"
        return signs and (wide.bits > narrow.bits or narrow == wide)
    return (narrow.name, wide.name) in {
        ("f16", "f32"), ("bf16", "f32"), ("f16", "f64"), ("bf16", "f64"), ("f32", "f64"),
    }  # fmt: skip


def _insert(rewriter: Rewriter, node: Node, op: str, inputs: list[Value | None]) -> Value:
    output = rewriter.insert(op, inputs, node.attrs, before=node, name=node.name).output
    output.shape, output.content, output.format = node.output.shape, node.output.content, node.output.format
    return output


_RULES: dict[str, Callable[[Rewriter, Node], Value | None]] = {
    "Div": _divide,
    "Mul": _chain,
    "Add": _chain,
    "Neg": _twice,
    "Not": _twice,
    "Cast": _cast,
}
