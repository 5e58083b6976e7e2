"""Matrix operators: MatMul, Gemm, convolutions, attention, Einsum."""

from __future__ import annotations

import re

from graph_opt.ir.ops.broadcast import broadcast
from graph_opt.ir.ops.pooling import WINDOW, window_shape
from graph_opt.ir.ops.registry import FLOAT, INT, INTS, STRING, Inference, Rule, Shape, declare, listed, same
from tensor_types.dims import Dim, floordiv
from tensor_types.dtypes import I32, DType
from tensor_types.dtypes import dtype as dtype_of


def matmul_shape(ctx: Inference, a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape of a numpy matmul; InvalidModel when the inner extents differ."""
    if a is None or b is None:
        return None
    if not a or not b:
        raise ctx.error("a scalar operand")
    row = max(len(b) - 2, 0)
    ctx.agreed((a[-1], b[row]), of=lambda: f"axis {len(a) - 1} of A {listed(a)} and axis {row} of B {listed(b)}")
    lead = broadcast(ctx, a[:-2], b[:-2])
    assert lead is not None
    return (*lead, *(a[-2:-1] if len(a) > 1 else ()), *(b[-1:] if len(b) > 1 else ()))


def _result_dtype(ctx: Inference, given: DType) -> DType:
    """The dtype of a product: its operands', or its accumulator's where a pass asks for it.

    `result_dtype` is no attribute of the operators: models have none, so it is not declared.
    """
    wanted = ctx.node.attrs.get("result_dtype")
    return dtype_of(str(wanted)) if wanted else given


def _matmul(ctx: Inference) -> None:
    ctx.set(0, _result_dtype(ctx, ctx.dtype()), matmul_shape(ctx, ctx.shape(0), ctx.shape(1)))


def _matmul_integer(ctx: Inference) -> None:
    ctx.set(0, I32, matmul_shape(ctx, ctx.shape(0), ctx.shape(1)))


def _qlinear_matmul(ctx: Inference) -> None:
    ctx.set(0, ctx.dtype(7), matmul_shape(ctx, ctx.shape(0), ctx.shape(3)))


def _gemm(ctx: Inference) -> None:
    a, b = ctx.shape(0), ctx.shape(1)
    if a is None or b is None:
        return ctx.set(0, ctx.dtype(), ctx.fresh_shape(2))
    left = a[::-1] if ctx.attr("transA") else a
    right = b[::-1] if ctx.attr("transB") else b
    if len(left) != 2 or len(right) != 2:
        raise ctx.error("the operands are not matrices")
    ctx.set(0, ctx.dtype(), matmul_shape(ctx, left, right))


def _partial(ctx: Inference, shape: Shape | None, channels: Dim | None, weight: Shape | None) -> Shape | None:
    """What is known of a convolution's output when one operand's shape is not."""
    rank = len(shape or weight or ())
    if not rank:
        return None
    out = list(ctx.fresh_shape(rank))
    batch = out[0] if shape is None else shape[0]
    return (batch, out[1] if channels is None else channels, *out[2:])


def conv_like(x: int, w: int, dtype: DType | int, bias: int | None = None) -> Rule:
    """Convolution of input `x` with weight `w`; `dtype` is the output's, or the input that has it. `bias` is the number
    of that input."""

    def rule(ctx: Inference) -> None:
        out_dtype = _result_dtype(ctx, ctx.dtype(dtype) if isinstance(dtype, int) else dtype)
        shape, weight = ctx.shape(x), ctx.shape(w)
        if weight is None or shape is None:
            return ctx.set(0, out_dtype, _partial(ctx, shape, None if weight is None else weight[0], weight))
        if len(shape) != len(weight):
            raise ctx.error(f"ranks {len(shape)} and {len(weight)} of input and weight differ")
        group = int(ctx.attr("group"))
        factor = f" times group {group}" if group != 1 else ""
        channels = f"channels, axis 1 of the input {listed(shape)} and axis 1 of the weight {listed(weight)}{factor}"
        ctx.agreed((shape[1], weight[1] * group), of=lambda: channels)
        if bias is not None:
            ctx.expect(bias, weight[:1])
        kernel = ctx.attr("kernel_shape") or weight[2:]
        ctx.set(0, out_dtype, (shape[0], weight[0], *window_shape(ctx, shape[2:], kernel)))

    return rule


def _conv_transpose(ctx: Inference) -> None:
    shape, weight, dtype = ctx.shape(0), ctx.shape(1), _result_dtype(ctx, ctx.dtype())
    if shape is None or weight is None:
        channels = None if weight is None else weight[1] * int(ctx.attr("group"))
        return ctx.set(0, dtype, _partial(ctx, shape, channels, weight))
    rank = len(shape) - 2
    if len(weight) != len(shape):
        raise ctx.error(f"ranks {len(shape)} and {len(weight)} of input and weight differ")
    ctx.agreed((shape[1], weight[0]), of=lambda: f"channels, axis 1 of {listed(shape)} and axis 0 of {listed(weight)}")
    ctx.expect(2, (weight[1] * int(ctx.attr("group")),))
    kernel = ctx.attr("kernel_shape") or weight[2:]
    strides, dilations = ctx.attr("strides") or (1,) * rank, ctx.attr("dilations") or (1,) * rank
    pads, extra = ctx.attr("pads") or (0,) * (2 * rank), ctx.attr("output_padding") or (0,) * rank
    auto_pad, wanted = ctx.attr("auto_pad"), ctx.attr("output_shape")
    spatial: list[Dim] = []
    for i in range(rank):
        if wanted:
            spatial.append(int(wanted[-rank:][i]))
        elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            spatial.append(shape[i + 2] * int(strides[i]))
        else:
            cut = 0 if auto_pad == "VALID" else int(pads[i]) + int(pads[rank + i])
            full = (shape[i + 2] - 1) * int(strides[i]) + int(extra[i]) + (kernel[i] - 1) * int(dilations[i]) + 1
            spatial.append(full - cut)
    ctx.set(0, dtype, (shape[0], weight[1] * int(ctx.attr("group")), *spatial))


def _causal_conv(ctx: Inference) -> None:
    shape, weight = ctx.shape(0), ctx.shape(1)
    ctx.set(0, ctx.dtype(), shape)
    state = None if shape is None or weight is None else (*shape[:2], *(w - 1 for w in weight[2:]))
    ctx.set(1, ctx.dtype(), state)


def _attention(ctx: Inference) -> None:
    """ONNX Attention: operands [B, H, S, D], or [B, S, H*D] with head counts."""
    q, k, v = ctx.shape(0), ctx.shape(1), ctx.shape(2)
    if q is None or k is None or v is None:
        return ctx.set_all(ctx.dtype(), None)
    if len(q) not in (3, 4) or len(k) != len(q) or len(v) != len(q):
        raise ctx.error(f"Q, K and V are of ranks {len(q)}, {len(k)} and {len(v)}, expected is 3 or 4 for all of them")
    if len(q) == 3:
        heads, kv_heads = ctx.attr("q_num_heads"), ctx.attr("kv_num_heads")
        if heads is None or kv_heads is None or int(heads) < 1 or int(kv_heads) < 1:
            raise ctx.error("operands of rank 3 need q_num_heads and kv_num_heads, of 1 at least")
        q_heads: Dim = int(heads)
        k = (k[0], int(kv_heads), k[1], floordiv(k[2], int(kv_heads)))
        v = (v[0], int(kv_heads), v[1], floordiv(v[2], int(kv_heads)))
        out: Shape = (q[0], q[1], q_heads * v[3])
        length = q[1]
    else:
        q_heads, length = q[1], q[2]
        out = (*q[:3], v[3])
    for left, right in ((q[0], k[0]), (k[0], v[0]), (k[1], v[1]), (k[2], v[2])):
        ctx.agreed((left, right))
    past = ctx.shape(4) if ctx.has(4) else None
    for index in (4, 5):
        if ctx.has(index) and ctx.rank(index) not in (None, 4):
            raise ctx.error(f"a cache of rank {ctx.rank(index)}, expected is 4")
    total = k[2] if past is None else past[2] + k[2]
    ctx.set(0, ctx.dtype(), out)
    ctx.set(1, ctx.dtype(1), (k[0], k[1], total, k[3]))
    ctx.set(2, ctx.dtype(2), (v[0], v[1], total, v[3]))
    ctx.set(3, ctx.dtype(), (q[0], q_heads, length, total))


def _linear_attention(ctx: Inference) -> None:
    """Operands [B, S, H*D]; the state is [B, H, Dk, Dv]."""
    for index, rank in enumerate((3, 3, 3, 4, 3, 3)):
        if ctx.has(index) and ctx.rank(index) not in (None, rank):
            raise ctx.error(f"input {index} is of rank {ctx.rank(index)}, expected is {rank}")
    heads, kv_heads = ctx.attr("q_num_heads"), ctx.attr("kv_num_heads")
    if heads is None or kv_heads is None or int(kv_heads) < 1 or int(heads) < 1 or int(heads) % int(kv_heads):
        raise ctx.error(f"q_num_heads is {heads}, which is no multiple of kv_num_heads, {kv_heads}, of 1 at least")
    q, k, v = ctx.shape(0), ctx.shape(1), ctx.shape(2)
    if q is None or k is None or v is None:
        return ctx.set_all(ctx.dtype(), None)
    past, decay, beta = (ctx.shape(index) if ctx.has(index) else None for index in (3, 4, 5))
    depth = _per_head(ctx, k[2], int(kv_heads))
    width = _per_head(ctx, v[2], int(kv_heads))
    ctx.agreed((_per_head(ctx, q[2], int(heads)), depth))
    batch = ctx.agreed([s[0] for s in (q, k, v, past, decay, beta) if s is not None])
    length = ctx.agreed([s[1] for s in (q, k, v, decay, beta) if s is not None])
    if past is not None:
        for extent, wanted in zip(past[1:], (int(kv_heads), depth, width), strict=True):
            ctx.agreed((extent, wanted))
    for rows, allowed in ((decay, (int(kv_heads), k[2])), (beta, (int(kv_heads), 1))):
        if rows is not None and isinstance(rows[2], int) and not any(ctx.same(rows[2], n) for n in allowed):
            raise ctx.error(f"{rows[2]} factors of a token, expected are {allowed[0]} or {allowed[1]}")
    ctx.set(0, ctx.dtype(), (batch, length, width * int(heads)))
    ctx.set(1, ctx.dtype(3) if ctx.has(3) else ctx.dtype(), (batch, int(kv_heads), depth, width))


def _per_head(ctx: Inference, extent: Dim, heads: int) -> Dim:
    if isinstance(extent, int) and extent % heads:
        raise ctx.error(f"{extent} elements are no {heads} heads of equal size")
    return floordiv(extent, heads)


def _rotary(ctx: Inference) -> None:
    """X is [B, H, S, D], or [B, S, H*D] with num_heads; an even part of each head turns."""
    x = ctx.shape()
    if x is not None:
        heads, turning = ctx.attr("num_heads"), int(ctx.attr("rotary_embedding_dim"))
        if len(x) not in (3, 4) or (len(x) == 3 and (heads is None or int(heads) < 1)):
            raise ctx.error(f"X is of rank {len(x)}, expected is 4, or 3 with num_heads of 1 at least")
        size = _per_head(ctx, x[2], int(heads)) if len(x) == 3 else x[3]
        if turning < 0 or turning % 2 or (isinstance(size, int) and (turning > size or (not turning and size % 2))):
            raise ctx.error(f"{turning or size} elements of a head of {size} cannot turn in pairs")
    same(ctx)


def _einsum(ctx: Inference) -> None:
    equation = re.sub(r"\s", "", str(ctx.attr("equation")))
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ctx.node.inputs):
        raise ctx.error(f"equation {equation!r} has {len(terms)} terms for {len(ctx.node.inputs)} inputs")
    extents: dict[str, list[Dim]] = {}
    ellipses: list[Shape] = []
    for index, term in enumerate(terms):
        shape = ctx.shape(index)
        if shape is None:
            return ctx.set(0, ctx.dtype(), None)
        before, dots, after = term.partition("...")
        if len(shape) < len(before + after) or (not dots and len(shape) != len(before)):
            raise ctx.error(f"term {term!r} of equation {equation!r} does not fit rank {len(shape)}")
        inner = len(shape) - len(after)
        for letter, extent in zip(before + after, (*shape[: len(before)], *shape[inner:]), strict=True):
            extents.setdefault(letter, []).append(extent)
        ellipses.append(shape[len(before) : inner] if dots else ())
    dots_shape = broadcast(ctx, *ellipses) or ()
    if not arrow:
        once = sorted(c for c in extents if left.count(c) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    before, dots, after = right.partition("...")
    unknown = sorted(set(before + after) - extents.keys())
    if unknown:
        raise ctx.error(f"equation {equation!r}: no input has the index {unknown[0]!r}")

    def agreed(letter: str) -> Dim:
        return ctx.agreed(extents[letter], broadcast=True, of=lambda: f"index {letter!r} of equation {equation!r}")

    common = {letter: agreed(letter) for letter in extents}
    out = [*(common[c] for c in before), *(dots_shape if dots else ()), *(common[c] for c in after)]
    ctx.set(0, ctx.dtype(), out)


_CONV = {**WINDOW, "group": 1}
declare("MatMul", "A B", "cube", _matmul)
declare("MatMulInteger", "A B a_zero_point? b_zero_point?", "cube", _matmul_integer)
declare("QLinearMatMul", "a a_scale a_zero_point b b_scale b_zero_point y_scale y_zero_point", "cube", _qlinear_matmul)
declare("Gemm", "A B C?", "cube", _gemm, {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0})
# `direct` is ours: the sum over the window and no shorter way.
declare("Conv", "X W B?", "cube", conv_like(0, 1, 0, 2), {**_CONV, "direct": 0})
# Ours: `pad_value`, what pads count as behind the subtraction of the zero point; with `zero_outside` that of x is not
# subtracted, it is what pads count as.
declare(
    "ConvInteger", "x w x_zero_point? w_zero_point?", "cube", conv_like(0, 1, I32),
    {**_CONV, "pad_value": 0, "zero_outside": 0},
)  # fmt: skip
declare(
    "QLinearConv", "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B?", "cube",
    conv_like(0, 3, 7, 8), _CONV,
)  # fmt: skip
declare("ConvTranspose", "X W B?", "cube", _conv_transpose, {**_CONV, "output_padding": INTS, "output_shape": INTS})
declare(
    "DeformConv", "X W offset B? mask?", "cube", conv_like(0, 1, 0, 3),
    {"dilations": INTS, "group": 1, "kernel_shape": INTS, "offset_group": 1, "pads": INTS, "strides": INTS},
)  # fmt: skip
declare("CausalConvWithState", "input weight bias? past_state?", "cube", _causal_conv, {"activation": "none"})
declare(
    "Attention", "Q K V attn_mask? past_key? past_value? nonpad_kv_seqlen?", "cube", _attention,
    {"is_causal": 0, "kv_num_heads": INT, "q_num_heads": INT, "qk_matmul_output_mode": 0, "scale": FLOAT,
     "softcap": 0.0, "softmax_precision": INT, "left_window_size": -1, "right_window_size": -1},
)  # fmt: skip
declare(
    "LinearAttention", "query key value past_state? decay? beta?", "cube", _linear_attention,
    {"chunk_size": 64, "kv_num_heads": INT, "q_num_heads": INT, "scale": 0.0, "update_rule": "gated_delta"},
)  # fmt: skip
declare(
    "RotaryEmbedding", "X cos_cache sin_cache position_ids?", "elementwise", _rotary,
    {"interleaved": 0, "num_heads": INT, "rotary_embedding_dim": 0},
)  # fmt: skip
declare("Einsum", "Inputs*", "cube", _einsum, {"equation": STRING})
