"""Folds BatchNormalization into the convolution before it; what stands alone becomes Mul and Add.

Rules
1. Conv or ConvTranspose with constant weight (and bias), used only by a BatchNormalization with constant parameters:
   the weight is scaled per output channel and the bias shifted. Computed in float64, stored in the weight's dtype.
2. A grouped ConvTranspose keeps its BatchNormalization apart: its weight axis mixes groups.
3. Any other inference BatchNormalization becomes Mul and Add by per-channel constants, for the loop fusion to take.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_opt.ir import Graph, Node
from graph_opt.ir.rewriter import Rewriter


@dataclass(frozen=True)
class FuseConvBatchNorm:
    """See the module."""

    name: str = "fuse-conv-bn"

    def apply(self, graph: Graph) -> bool:
        changed = False
        for node in list(graph.nodes):
            if node.op != "BatchNormalization" or len(node.inputs) < 5 or node.attrs.get("training_mode"):
                continue
            scale_shift = _scale_and_shift(node)
            if scale_shift is None or node.inputs[0] is None or node.inputs[0].shape is None:
                continue
            if not _fold_into_convolution(graph, node, *scale_shift):
                _as_mul_add(graph, node, *scale_shift)
            changed = True
        if changed:
            Rewriter(graph).erase_dead()
        return changed


def _scale_and_shift(node: Node) -> tuple[np.ndarray, np.ndarray] | None:
    data = [v.data if v is not None else None for v in node.inputs[1:5]]
    if any(d is None for d in data):
        return None
    gamma, beta, mean, variance = (np.asarray(d, np.float64) for d in data)
    epsilon = node.attrs.get("epsilon", 1e-5)
    scale = gamma / np.sqrt(variance + float(epsilon))  # type: ignore[arg-type]
    return scale, beta - mean * scale


def _fold_into_convolution(graph: Graph, node: Node, scale: np.ndarray, shift: np.ndarray) -> bool:
    source = node.inputs[0]
    assert source is not None
    conv = source.producer
    if conv is None or conv.op not in ("Conv", "ConvTranspose") or len(source.uses) != 1 or graph.is_output(source):
        return False
    transposed = conv.op == "ConvTranspose"
    if transposed and conv.attrs.get("group", 1) != 1:
        return False
    weight, bias = conv.input(1), conv.input(2)
    if weight is None or weight.data is None or (bias is not None and bias.data is None):
        return False
    if conv.attrs.get("guards") != node.attrs.get("guards"):
        return False
    channel_axis = 1 if transposed else 0
    factor = scale.reshape([-1 if a == channel_axis else 1 for a in range(weight.data.ndim)])
    old_bias = 0.0 if bias is None else np.asarray(bias.data, np.float64)
    new_weight = (np.asarray(weight.data, np.float64) * factor).astype(weight.data.dtype)
    new_bias = (old_bias * scale + shift).astype(weight.data.dtype)
    rewriter = Rewriter(graph)
    fused = rewriter.insert(
        conv.op,
        [
            conv.inputs[0],
            graph.add_constant(f"{weight.name}/bn", new_weight, weight.dtype),
            graph.add_constant(f"{weight.name}/bn_bias", new_bias, weight.dtype),
        ],
        conv.attrs,
        before=node,
        outputs=[f"{node.output.name}/conv"],
        name=conv.name,
    )
    rewriter.absorb([source], fused.output)
    rewriter.replace(node.output, fused.output)
    return True


def _as_mul_add(graph: Graph, node: Node, scale: np.ndarray, shift: np.ndarray) -> None:
    value = node.inputs[0]
    assert value is not None
    shape = [-1] + [1] * (value.rank - 2)
    rewriter = Rewriter(graph)
    guards = {"guards": node.attrs["guards"]} if "guards" in node.attrs else {}
    type_ = value.dtype.numpy
    factor = rewriter.constant(scale.reshape(shape).astype(type_), f"{node.output.name}/scale")
    offset = rewriter.constant(shift.reshape(shape).astype(type_), f"{node.output.name}/shift")
    product = rewriter.insert("Mul", [value, factor], guards, before=node, name=f"{node.name}/scale")
    total = rewriter.insert("Add", [product.output, offset], guards, before=node, name=f"{node.name}/shift")
    rewriter.replace(node.output, total.output)
