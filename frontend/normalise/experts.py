"""MoE and QMoE of com.microsoft by the compiler's own routed experts: one row for each choice, sorted by expert.

choices   the k largest of router_probs, weighted by a softmax over all experts, or over the k (normalised)
expert    fc2(activation(fc1(x)) [* fc3(x)]), matrices [E, out, in]; swiglu takes its gate out of fc1's columns
"""

from __future__ import annotations

from frontend.normalise.block_quantised import first_columns, unpacked
from frontend.normalise.contrib import DOMAIN
from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value
from graph_opt.ir.core import AttrValue
from tensor_types.dtypes import U8

_PLAIN: dict[str, tuple[str, dict[str, AttrValue]]] = {
    "relu": ("Relu", {}), "gelu": ("Gelu", {"approximate": "tanh"}),
    "silu": ("Swish", {}), "identity": ("Identity", {}),
}  # fmt: skip
"""onnxruntime's gelu is the one with tanh."""


@form(f"{DOMAIN}MoE")
def _mixture_of_experts(node: PendingNode) -> None:
    third = node.input(6)
    _experts(node, (node.value(2), node.value(4), third), (node.input(3), node.input(5), node.input(7)))


@form(f"{DOMAIN}QMoE")
def _quantised_experts(node: PendingNode) -> None:
    """Matrices as codes [E, out, in * bits / 8] with a scale for each row or each block of it."""
    if node.attrs.get("quant_type", "int") != "int" or any(node.input(i) is not None for i in range(14, 21)):
        raise node.refuse("QMoE with other than whole codes, or with weights or scales of its own for the router")
    if int(node.number("weights_prepacked", -1)) > 0:
        raise node.refuse("weights in the order of one kernel of onnxruntime")
    matrices = [_dequantised(node, which) for which in (1, 2, 3)]
    first, second = matrices[0], matrices[1]
    if first is None or second is None:
        raise node.error("a matrix is missing")
    _experts(node, (first, second, matrices[2]), (node.input(4), node.input(7), node.input(10)))


def _dequantised(node: PendingNode, which: int) -> Value | None:
    codes, scales, zeros = node.input(3 * which - 1), node.input(3 * which), node.input(10 + which)
    if codes is None:
        return None
    if scales is None or scales.shape is None:
        raise node.error(f"the scales of fc{which} are missing")
    bits = int(node.number(f"fc{which}_expert_weight_bits", 0) or node.number("expert_weight_bits", 4))
    if bits not in (2, 4, 8):
        raise node.refuse(f"codes of {bits} bits")
    codes = unpacked(node, codes, bits)
    depth = _last(node, codes)
    if len(scales.shape) == 2:
        scales = node.emit("Unsqueeze", [scales, node.ints([2], "blocks")])
    blocks = _last(node, scales)
    block = int(node.number("block_size", 0)) or depth
    if zeros is None:
        middle = node.constant(1 << (bits - 1), U8, "middle")
        points = node.emit("Expand", [middle, node.emit("Shape", [scales])])
    else:
        if len(zeros.shape or ()) == 2:
            raise node.refuse("zero points of rows")
        points = first_columns(node, unpacked(node, zeros, bits), blocks)
    made = node.emit("DequantizeLinear", [codes, scales, points], {"axis": 2, "block_size": block})
    dtype = node.value(0).dtype
    return made if made.dtype == dtype else node.emit("Cast", [made], {"to": dtype.onnx})


def _experts(node: PendingNode, matrices: tuple[Value, Value, Value | None], biases: tuple[Value | None, ...]) -> None:
    """The node as routed experts of the matrices and biases of fc1, fc2 and fc3."""
    x, router, (first, second, third) = node.value(0), node.value(1), matrices
    count = int(node.number("k", 1))
    experts = None if first.shape is None or len(first.shape) != 3 else first.shape[0]
    if not isinstance(experts, int) or not 1 <= count <= experts:
        raise node.error(f"k {count} of an unknown or smaller number of experts")
    if node.number("use_sparse_mixer", 0):
        raise node.refuse("the sparse mixer")
    tokens = x if node.rank() == 2 else node.emit("Reshape", [x, node.ints([-1, _last(node, x)], "tokens")])
    normal = bool(node.number("normalize_routing_weights", 0))
    scores = router if normal else node.emit("Softmax", [router], {"axis": -1})
    weights, indices = node.emit_all("TopK", [scores, node.ints([count], "k")], {"axis": -1}, 2)
    if normal:
        weights = node.emit("Softmax", [weights], {"axis": -1})
    offsets, choices, owners, rows = node.emit_all("MoeRoute", [indices], {"experts": experts}, 4)
    flat = node.ints([-1], "flat")
    expert = node.emit("Gather", [node.emit("Reshape", [indices, flat]), choices], {"axis": 0})
    weight = node.emit("Gather", [node.emit("Reshape", [weights, flat]), choices], {"axis": 0})

    def product(rows_in: Value, matrix: Value, bias: Value | None) -> Value:
        turned = node.emit("Transpose", [matrix], {"perm": (0, 2, 1)})
        made = node.emit("GroupedMatMul", [rows_in, turned, offsets])
        return made if bias is None else node.emit("Add", [made, node.emit("Gather", [bias, expert], {"axis": 0})])

    own = node.emit("Gather", [tokens, owners], {"axis": 0})
    inner = _activated(node, product(own, first, biases[0]))
    if third is not None:
        inner = node.emit("Mul", [inner, product(own, third, biases[2])])
    result = product(inner, second, biases[1])
    result = node.emit("Mul", [result, node.emit("Unsqueeze", [weight, node.ints([1], "column")])])
    by_token = node.emit("Gather", [result, rows], {"axis": 0})
    attrs: dict[str, AttrValue] = {"keepdims": 0}
    if node.rank() == 2:
        return node.become("ReduceSum", [by_token, node.ints([1], "choices")], attrs)
    total = node.emit("ReduceSum", [by_token, node.ints([1], "choices")], attrs)
    return node.become("Reshape", [total, node.emit("Shape", [x])], {"allowzero": 1})


def _last(node: PendingNode, x: Value) -> int:
    if x.shape is None or not isinstance(x.shape[-1], int):
        raise node.error(f"the last extent of {x.name} is not known")
    return x.shape[-1]


def _activated(node: PendingNode, x: Value) -> Value:
    kind = str(node.attrs.get("activation_type", "relu"))
    if kind in _PLAIN:
        operator, attrs = _PLAIN[kind]
        return node.emit(operator, [x], attrs)
    fusion = int(node.number("swiglu_fusion", 0))
    if kind != "swiglu" or fusion not in (1, 2):
        raise node.refuse(f"the activation {kind} with swiglu_fusion {fusion}")
    if node.number("swiglu_limit_after_activation", 0):
        raise node.refuse("a limit behind the activation")
    half = _last(node, x) // 2
    if fusion == 1:  # gate and linear part in turns
        pairs = node.emit("Reshape", [x, node.ints([0, half, 2], "pairs")])
        gate, linear = (node.emit("Gather", [pairs, node.ints(i, "part")], {"axis": 2}) for i in range(2))
    else:
        gate, linear = node.emit_all("Split", [x, node.ints([half, half], "halves")], {"axis": 1}, 2)
    limit = float(node.number("swiglu_limit", 0.0))
    if limit > 0:
        most, least = node.constant(limit, x.dtype, "limit"), node.constant(-limit, x.dtype, "least")
        gate, linear = node.emit("Min", [gate, most]), node.emit("Clip", [linear, least, most])
    gate = node.emit("Swish", [gate], {"alpha": float(node.number("activation_alpha", 1.0))})
    beta = node.constant(float(node.number("activation_beta", 0.0)), x.dtype, "beta")
    return node.emit("Mul", [gate, node.emit("Add", [linear, beta])])
