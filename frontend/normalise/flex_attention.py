"""FlexAttention of ai.onnx.preview: attention whose scores and weights go through bodies of the model."""

from __future__ import annotations

import math

import numpy as np

from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value
from tensor_types.dtypes import F32, F64, DType, from_onnx


@form("ai.onnx.preview::FlexAttention")
def _flex_attention(node: PendingNode) -> None:
    """softmax(Q Kᵀ · scale) V; `score_mod` changes the scores and `prob_mod` the weights, in the softmax's dtype."""
    q, k, v = (node.value(i) for i in range(3))
    if any(x.shape is None or len(x.shape) != 4 for x in (q, k, v)):
        raise node.error("Q, K and V have four axes")
    width = q.shape[3]  # type: ignore[index]
    scale = node.attrs.get("scale")
    if scale is None:
        if not isinstance(width, int):
            raise node.refuse("a head size that only the run knows, without a scale,")
        scale = 1.0 / math.sqrt(width)
    if not node.bodies and "softmax_precision" not in node.attrs:
        return node.become("Attention", [q, k, v], {"scale": float(scale)})  # type: ignore[arg-type]
    narrow = F64 if q.dtype == F64 else F32
    wide = from_onnx(int(node.number("softmax_precision", narrow.onnx)))
    k, v = _for_each_query_head(node, q, k), _for_each_query_head(node, q, v)
    root = node.constant(np.sqrt(np.float32(scale)), q.dtype, "scale")  # type: ignore[arg-type]
    keys = node.emit("Transpose", [node.emit("Mul", [k, root])], {"perm": (0, 1, 3, 2)})
    scores = _cast(node, node.emit("MatMul", [node.emit("Mul", [q, root]), keys]), wide)
    scores = _through(node, "score_mod", scores)
    weights = _through(node, "prob_mod", node.emit("Softmax", [scores], {"axis": -1}))
    result = node.emit("MatMul", [weights, _cast(node, v, wide)])
    return node.become("Cast", [result], {"to": v.dtype.onnx})


def _for_each_query_head(node: PendingNode, q: Value, x: Value) -> Value:
    """Keys or values with as many heads as the queries, each of them for a run of query heads."""
    wanted, heads = q.shape[1], x.shape[1]  # type: ignore[index]
    if wanted == heads:
        return x
    if not isinstance(wanted, int) or not isinstance(heads, int) or not heads or wanted % heads:
        raise node.error(f"{wanted} heads of queries for {heads} of keys")
    return node.emit("Gather", [x, node.ints(np.arange(wanted) // (wanted // heads), "heads")], {"axis": 1})


def _cast(node: PendingNode, value: Value, dtype: DType) -> Value:
    return value if value.dtype == dtype else node.emit("Cast", [value], {"to": dtype.onnx})


def _through(node: PendingNode, body: str, value: Value) -> Value:
    """A value changed by a body that keeps shape and dtype."""
    if body not in node.bodies:
        return value
    (result,) = node.bodies[body]([value])
    if result.dtype != value.dtype:
        raise node.error(f"{body} gives {result.dtype} for {value.dtype}")
    return result
