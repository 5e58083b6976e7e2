"""A matrix product as its kernel sees it: operands as matrices, transposition and zero points told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.kernels.operands import NotLowerable, body_of, outer_values, shape_of
from graph_opt.ir.core import Node, Value
from tensor_types.dims import Dim

ANCHORS = frozenset({"MatMul", "MatMulInteger", "com.microsoft::FusedMatMul"})


@dataclass(frozen=True)
class Problem:
    """The product of a Fused node: its operands as matrices, transposition undone."""

    anchor: Node
    a: Value
    b: Value
    k: Dim
    n: Dim
    trans_a: bool
    trans_b: bool
    alpha: float
    a_zero: Value | None
    b_zero: Value | None

    @property
    def packed(self) -> bool:
        """True if b is a constant, which can have any form."""
        return self.b.is_constant


def problem_of(node: Node) -> Problem:
    """Reads the anchor of the body; NotLowerable if it is none or its operands have an unexpected form."""
    nodes = body_of(node).nodes
    anchor = nodes[0]
    if anchor.op not in ANCHORS:
        raise NotLowerable(f"{anchor.op} is no product")
    values = outer_values(node)
    a, b = (_value(anchor, i, values) for i in (0, 1))
    zeros = [_zero_point(anchor, i, values) for i in (2, 3)] if anchor.op == "MatMulInteger" else [None, None]
    sa, sb = shape_of(a), shape_of(b)
    if len(sa) < 2 or len(sb) < 2 or not a.format.is_plain or not b.format.is_plain:
        raise NotLowerable("operands need two axes at least in plain order")
    trans_a, trans_b = (bool(anchor.attrs.get(name, 0)) for name in ("transA", "transB"))
    k_a, k_b = sa[-2 if trans_a else -1], sb[-1 if trans_b else -2]
    k = k_a if isinstance(k_a, int) else k_b
    alpha = float(anchor.attrs.get("alpha", 1.0))  # type: ignore[arg-type]
    return Problem(anchor, a, b, k, sb[-2 if trans_b else -1], trans_a, trans_b, alpha, zeros[0], zeros[1])


def _zero_point(node: Node, index: int, values: dict[str, Value]) -> Value | None:
    """The zero point of an operand, None when it is 0; NotLowerable unless it is one number."""
    inner = node.input(index)
    if inner is None:
        return None
    value = values.get(inner.name, inner)
    if value.data is not None and not value.data.any():
        return None
    if any(d != 1 for d in shape_of(value)):
        raise NotLowerable("a zero point for each row or column")
    return value


def _value(node: Node, index: int, values: dict[str, Value]) -> Value:
    value = node.inputs[index]
    assert value is not None
    return values.get(value.name, value)


def check_broadcast(name: str, shape: Sequence[Dim], result: Sequence[Dim]) -> None:
    """NotLowerable unless it is known which axes repeat."""
    for size, whole in zip(shape, result, strict=True):
        if size != 1 and size != whole:
            raise NotLowerable(f"{name}: extent {size} against {whole} may or may not broadcast")


def leading_axes(value: Value, rank: int) -> tuple[Dim, ...]:
    """The batch axes of an operand of a product of `rank` axes."""
    lead = shape_of(value)[:-2]
    return (*(1 for _ in range(rank - 2 - len(lead))), *lead)
