"""Products of com.microsoft with their scales as products of dequantised operands, which become those of bytes.

    MatMulIntegerToFloat    MatMul of DequantizeLinear of both operands, + bias
    DynamicQuantizeMatMul   the same, the first operand quantised by DynamicQuantizeLinear before
"""

from __future__ import annotations

from frontend.normalise.contrib import DOMAIN
from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value


def dequantised(node: PendingNode, codes: Value, scale: Value, zero: Value | None) -> Value:
    """Codes as numbers; scale and zero point are for all or for each element of the last axis."""
    return node.emit("DequantizeLinear", [codes, scale, zero], {"axis": -1})


def _product(node: PendingNode, a: Value, b: Value, bias: Value | None) -> None:
    if bias is None:
        return node.become("MatMul", [a, b])
    return node.become("Add", [node.emit("MatMul", [a, b]), bias])


@form(f"{DOMAIN}MatMulIntegerToFloat")
def _matmul_integer_to_float(node: PendingNode) -> None:
    a = dequantised(node, node.value(0), node.value(2), node.input(4))
    _product(node, a, dequantised(node, node.value(1), node.value(3), node.input(5)), node.input(6))


@form(f"{DOMAIN}DynamicQuantizeMatMul")
def _dynamic_quantize_matmul(node: PendingNode) -> None:
    codes, scale, zero = node.emit_all("DynamicQuantizeLinear", [node.value(0)], {}, 3)
    weight = dequantised(node, node.value(1), node.value(2), node.input(3))
    _product(node, dequantised(node, codes, scale, zero), weight, node.input(4))
