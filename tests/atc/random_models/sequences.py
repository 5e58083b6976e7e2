"""Sequences: recurrent networks, attention, normalisations and rotary embeddings."""

from __future__ import annotations

import numpy as np

from tests.atc.random_models.builder import Builder, Refused, Tensor, Theme, ints, number

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(b: Builder) -> None:
    x, op = b.real(0, 3, fixed=[2]), b.pick("GRU", "LSTM", "LSTM", "RNN")
    if not x.least(0):
        raise Refused  # without a step onnxruntime gives what its memory holds
    direction, hidden = b.pick("forward", "reverse", "bidirectional"), b.pick(*range(1, 12))
    ways, gates = 1 + (direction == "bidirectional"), GATES[op]
    weights = [b.floats(ways, gates * hidden, k, scale=0.4) for k in (x.shape[2], hidden)]
    bias = b.floats(ways, 2 * gates * hidden, scale=0.3) if b.chance(0.6) else None
    lengths = state = None
    if x.is_fixed(1):
        lengths = b.integers(1, x.least(0) + 1, x.shape[1], dtype=np.int32) if b.chance(0.4) else None
        state = b.floats(ways, x.shape[1], hidden) if b.chance(0.3) else None
    peepholes = [None, b.floats(ways, 3 * hidden, scale=0.2)] if op == "LSTM" and b.chance(0.3) else []
    extra: dict[str, object] = {"linear_before_reset": b.pick(0, 1)} if op == "GRU" else {}
    if b.chance(0.2):
        extra["clip"] = 0.7
    if op != "LSTM" and b.chance(0.2):
        extra["activations"] = ["Sigmoid", "Relu"] * ways if op == "GRU" else ["Relu"] * ways
    operands = [x, *weights, bias, lengths, state, *peepholes]
    results = 3 if op == "LSTM" else 2
    y = b.several(results, op, *operands, hidden_size=hidden, direction=direction, **extra)[0]
    b.add("Reshape", b.add("Transpose", y, perm=[0, 2, 1, 3]), ints(0, 0, -1))


def turn(b: Builder) -> None:
    x = b.real(3)
    rest = range(3, x.rank)
    b.add("Transpose", x, perm=b.pick([1, 0, 2, *rest], [0, 2, 1, *rest]))


def channel_norm(b: Builder) -> None:
    x = b.real(3, fixed=[1])
    c = x.shape[1]
    groups = {"num_groups": b.pick(*[g for g in range(1, c + 1) if c % g == 0])} if b.chance(0.5) else {}
    op = "GroupNormalization" if groups else "InstanceNormalization"
    b.add(op, x, b.floats(c), b.floats(c), epsilon=1e-3, **groups)


def row_norm(b: Builder) -> None:
    x = b.real(3, fixed=[-1])
    axis = b.pick(*[a for a in range(1, x.rank) if x.is_fixed(*range(a, x.rank))])
    op = b.pick("RMSNormalization", "LayerNormalization")
    parameters = [b.floats(*x.shape[axis:]) for _ in range(2 if op[0] == "L" and b.chance(0.6) else 1)]
    b.add(op, x, *parameters, axis=axis - b.pick(0, x.rank), epsilon=1e-3)


def written_norm(b: Builder) -> None:
    """A layer normalisation in primitives."""
    x = b.real(2)
    centred = b.add("Sub", x, b.add("ReduceMean", x, ints(-1)))
    square = b.add("Mul", centred, centred) if b.chance(0.5) else b.add("Pow", centred, number(2))
    b.add("Div", centred, b.add("Sqrt", b.add("Add", b.add("ReduceMean", square, ints(-1)), number(1e-3))))


def project(b: Builder, x: Tensor, width: int) -> Tensor:
    return b.add("MatMul", x, b.floats(x.shape[-1], width, scale=x.shape[-1] ** -0.5))


def heads(b: Builder, x: Tensor, count: int) -> Tensor:
    """[batch, sequence, count * width] -> [batch, count, sequence, width]."""
    return b.add("Transpose", b.add("Reshape", x, ints(0, 0, count, -1)), perm=[0, 2, 1, 3])


def written_attention(b: Builder) -> None:
    """Scaled dot-product attention in primitives."""
    x = b.real(0, 3, fixed=[2])
    source = b.real(0, 3, fixed=[2]) if b.chance(0.3) else x
    count, width = b.pick(1, 2, 4), b.pick(4, 8, 5)
    q, k, v = (heads(b, project(b, t, count * width), count) for t in (x, source, source))
    scale, style = number(width**-0.5), b.pick("after", "both", "divide")
    if style == "both":
        q, k = (b.add("Mul", t, np.sqrt(scale)) for t in (q, k))
    scores = b.add("MatMul", q, b.add("Transpose", k, perm=[0, 1, 3, 2]))
    if style != "both":
        scores = b.add("Mul", scores, scale) if style == "after" else b.add("Div", scores, 1 / scale)
    if b.chance(0.5):
        scores = only_the_past(b, scores)
    out = b.add("MatMul", b.add("Softmax", scores, axis=-1), v)
    b.add("Reshape", b.add("Transpose", out, perm=[0, 2, 1, 3]), ints(0, 0, count * width))


def only_the_past(b: Builder, scores: Tensor) -> Tensor:
    """A causal mask, written with the extents of the run."""
    square = b.add("Slice", b.add("Shape", scores), ints(2), ints(4))
    lower = b.add("Trilu", b.add("Expand", number(1), square), upper=0)
    if b.chance(0.5):
        return b.add("Where", b.add("Equal", lower, number(0)), number(-1e4), scores)
    return b.add("Add", scores, b.add("Mul", b.add("Sub", number(1), lower), number(-1e4)))


def attention(b: Builder) -> None:
    x = b.real(0, 3, fixed=[2])
    (many, few), width = b.pick((1, 1), (2, 2), (4, 2), (4, 1)), b.pick(4, 8)
    three = [project(b, x, n * width) for n in (many, few, few)]
    extra = {"is_causal": b.pick(0, 1), "softcap": b.pick(0.0, 0.0, 2.0), "scale": b.pick(0.5, 0.25)}
    if b.chance(0.5):
        b.add("Attention", *three, q_num_heads=many, kv_num_heads=few, **extra)
    else:
        b.add("Attention", *(heads(b, t, n) for t, n in zip(three, (many, few, few), strict=True)), **extra)


def rotary(b: Builder) -> None:
    """RotaryEmbedding with positions of the run, or with its tables ready."""
    x = b.operand("float32", wanted=lambda t: t.rank == 4 and t.is_fixed(3) and t.shape[3] % 2 == 0)
    half = x.shape[3] // 2
    interleaved = b.pick(0, 1)
    if x.is_fixed(0, 2):
        angles = b.floats(x.shape[0], x.shape[2], half)
        b.add("RotaryEmbedding", x, np.cos(angles), np.sin(angles), interleaved=interleaved)
    else:
        angles = b.floats(64, half)
        places = b.input(np.int64, *(dim_of(b, x, a) for a in (0, 2)), make=lambda *s: b.rng.integers(0, 64, s))
        b.add("RotaryEmbedding", x, np.cos(angles), np.sin(angles), places, interleaved=interleaved)


def dim_of(b: Builder, x: Tensor, axis: int) -> int | str:
    """An extent as a dim of an input."""
    extents = [v.shape[axis] for v in x.values]
    return b.pick(*[n for n in b.sizes[0] if [s[n] for s in b.sizes] == extents], *extents[: len({*extents}) == 1])


def written_rotary(b: Builder) -> None:
    """As exporters write it, with tables cut to the run's length."""
    x = b.operand("float32", wanted=lambda t: t.rank == 4 and t.is_fixed(3) and t.shape[3] % 2 == 0)
    half, angles = x.shape[3] // 2, b.floats(64, x.shape[3] // 2)
    length = b.add("Shape", x, start=2, end=3)
    cos, sin = (
        b.add("Slice", np.concatenate([t, t], -1), ints(0), length, ints(0)) for t in (np.cos(angles), np.sin(angles))
    )
    one, two = (b.add("Slice", x, ints(f), ints(t), ints(3)) for f, t in ((0, half), (half, 1 << 40)))
    turned = b.add("Concat", b.add("Neg", two), one, axis=-1)
    b.add("Add", b.add("Mul", x, cos), b.add("Mul", turned, sin))


def dense(b: Builder) -> None:
    x = b.real(2, fixed=[-1])
    y = project(b, x, b.pick(8, 16, 3, x.shape[-1]))
    if b.chance(0.6):
        y = b.add("Add", y, b.floats(y.shape[-1]))
    b.add(b.pick("Relu", "Gelu", "Tanh", "Sigmoid", "Swish"), y)


def residual(b: Builder) -> None:
    x = b.real()
    shapes = [v.shape for v in x.values]
    y = b.operand("float32", wanted=lambda t: t is not x and [v.shape for v in t.values] == shapes)
    b.add(b.pick("Add", "Mul"), x, y)


def split_heads(b: Builder) -> None:
    x = b.real(0, 3, fixed=[2])
    heads(b, x, b.pick(*[c for c in (1, 2, 3, 4) if x.shape[2] % c == 0]))


def convolve(b: Builder) -> None:
    x, k = b.real(0, 3, fixed=[1]), b.pick(1, 3, 5)
    group = b.pick(1, x.shape[1])
    b.add("Conv", x, b.floats(x.shape[1], x.shape[1] // group, k, scale=0.3), pads=[k // 2] * 2, group=group)


def pool(b: Builder) -> None:
    b.add(b.pick("ReduceMean", "ReduceMax", "ReduceLogSumExp"), b.real(0, 3), ints(b.pick(1, 2)))


def start(b: Builder) -> None:
    b.input(np.float32, "n", b.pick("w", 7), b.pick(8, 12, 16), make=b.floats)
    b.input(np.float32, b.pick("n", 2), b.pick(2, 4), "h", 8, make=b.floats)
    b.input(np.float32, "w", b.pick("n", 3), 6, make=b.floats)


SEQUENCES = Theme(
    start,
    [recurrent] * 2 + [written_attention] * 2 + [attention] * 2 + [dense] * 3 + [
        turn, channel_norm, row_norm, written_norm, rotary, written_rotary, residual, residual, split_heads,
        split_heads, convolve, pool,
    ],
    opsets=(23,),
)  # fmt: skip
