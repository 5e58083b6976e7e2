"""MultiHeadAttention, Attention, QAttention and DecoderMaskedMultiHeadAttention of com.microsoft as the standard
Attention.

1. Operands become [B, N, S, H]: of one tensor of theirs each, or packed as [B, S, N, 3, H], [B, L, N, 2, H] or behind
   one product. A bias is added before.
2. What a padding mask hides gets `mask_filter_value` added to its scores, as onnxruntime has it, and is not removed.
3. A past grows, or is a buffer with `past_sequence_length` rows in use: then new rows are written behind those.
"""

from __future__ import annotations

from frontend.normalise.contrib import DOMAIN, counted, whole
from frontend.normalise.pending import PendingNode, form
from frontend.normalise.quantised_products import dequantised
from graph_opt.ir import Value
from graph_opt.ir.core import AttrValue

_HEADS_FIRST: dict[str, AttrValue] = {"perm": (0, 2, 1, 3)}
_FILTER = -10000.0


def by_head(node: PendingNode, x: Value, heads: int, bias: Value | None = None) -> Value:
    """[B, S, N*H] or [B, S, N, H], with a bias [N*H] added, as [B, N, S, H]."""
    if len(x.shape or ()) == 3:
        if bias is not None:
            x, bias = node.emit("Add", [x, bias]), None
        x = node.emit("Reshape", [x, node.ints([0, 0, heads, -1], "heads")])
    elif bias is not None:
        x = node.emit("Add", [x, node.emit("Reshape", [bias, node.ints([heads, -1], "heads")])])
    return node.emit("Transpose", [x], _HEADS_FIRST)


def joined_heads(node: PendingNode, x: Value) -> list[Value]:
    """Operands of the Reshape that makes [B, S, N*H] of [B, N, S, H]."""
    return [node.emit("Transpose", [x], _HEADS_FIRST), node.ints([0, 0, -1], "joined")]


def queries_keys_values(
    node: PendingNode, q: Value, k: Value | None, v: Value | None, heads: int, kv_heads: int
) -> tuple[Value, Value, Value]:  # fmt: skip
    """Operands [B, S, heads * size], cut from the queries where these hold all three."""
    if k is not None and v is not None:
        return q, k, v
    width = q.shape[-1] if q.shape is not None else None
    if not isinstance(width, int) or width % (heads + 2 * kv_heads):
        raise node.error("the width of packed queries, keys and values is not one of their heads")
    size = width // (heads + 2 * kv_heads)
    sizes = node.ints([size * heads, size * kv_heads, size * kv_heads], "sizes")
    q, k, v = node.emit_all("Split", [q, sizes], {"axis": -1}, 3)
    return q, k, v


def heads_normalised(node: PendingNode, x: Value, weight: Value | None, heads: int, epsilon: float) -> Value:
    """[B, S, heads * size], each head divided by its root of the mean square if there is a weight for that."""
    if weight is None:
        return x
    split = node.emit("Reshape", [x, node.ints([0, 0, heads, -1], "heads")])
    normal = node.emit("RMSNormalization", [split, weight], {"axis": -1, "epsilon": epsilon})
    return node.emit("Reshape", [normal, node.ints([0, 0, -1], "joined")])


def scale_of(node: PendingNode) -> dict[str, AttrValue]:
    """The attribute of the standard operator; 0 means its default."""
    scale = float(node.number("scale", 0.0))
    return {"scale": scale} if scale else {}


def _parts(node: PendingNode, x: Value, axis: int, count: int) -> list[Value]:
    """The `count` parts of an axis of that extent, without the axis."""
    return [node.emit("Gather", [x, node.ints(i, "part")], {"axis": axis}) for i in range(count)]


def _cut(node: PendingNode, x: Value, sizes: list[int], axis: int) -> list[Value]:
    return node.emit_all("Split", [x, node.ints(sizes, "sizes")], {"axis": axis}, len(sizes))


def _width(node: PendingNode, x: Value) -> int:
    """The extent of the last axis."""
    if x.shape is None or not isinstance(x.shape[-1], int):
        raise node.error(f"the last extent of {x.name} is not known")
    return x.shape[-1]


def _added_mask(
    node: PendingNode, q: Value, mask: Value | None, bias: Value | None, total: Value | None
) -> Value | None:
    """What is added to the scores. Masks: [B] lengths, [B, T], [B, S, T], [B, 1, S, T]."""
    if mask is None:
        return bias
    if mask.shape is None:
        raise node.error("a mask of unknown rank")
    rank = len(mask.shape)
    if rank == 1:
        rows = q.shape[0] if q.shape is not None else None
        if mask.shape[0] != rows or total is None:
            raise node.refuse(f"a mask {list(mask.shape)} that may not be the lengths of the sequences")
        ends = node.emit("Reshape", [whole(node, mask), node.ints([-1, 1, 1, 1], "column")])
        seen = node.emit("Less", [total, ends])
    elif rank in (2, 3):
        axes = node.ints([1, 2] if rank == 2 else [1], "axes")
        seen = node.emit("Cast", [node.emit("Unsqueeze", [mask, axes])], {"to": 9})
    else:
        raise node.refuse(f"a mask of rank {rank}")
    hidden = node.constant(float(node.number("mask_filter_value", _FILTER) or _FILTER), q.dtype, "filter")
    added = node.emit("Where", [seen, node.constant(0, q.dtype, "nothing"), hidden])
    return added if bias is None else node.emit("Add", [added, bias])


def _attend(
    node: PendingNode, operands: list[Value], mask: Value | None, bias: Value | None, past: list[Value | None],
    used: Value | None, causal: int,
) -> list[Value]:  # fmt: skip
    """The result [B, N, S, H] and the present keys and values. `used`: the rows of a past of fixed capacity."""
    q, k, v = operands
    attrs = {"is_causal": causal, **scale_of(node)}
    if used is not None and past[0] is not None:
        batch = node.emit("Shape", [q], {"start": 0, "end": 1})
        start = node.emit("Expand", [node.emit("Reshape", [whole(node, used), node.ints([1], "one")]), batch])
        k, v = (node.emit("TensorScatter", [p, x, start], {"axis": -2}) for p, x in zip(past, (k, v), strict=True))
        ends = node.emit("Add", [start, node.emit("Shape", [q], {"start": 2, "end": 3})])
        added = _added_mask(node, q, mask, bias, counted(node, k, 2))
        return [node.emit("Attention", [q, k, v, added, None, None, ends], attrs), k, v]
    total = None
    if mask is not None and len(mask.shape or ()) == 1:
        count = node.emit("Shape", [k], {"start": 2, "end": 3})
        if past[0] is not None:
            count = node.emit("Add", [count, node.emit("Shape", [past[0]], {"start": 2, "end": 3})])
        total = node.emit("Range", [node.ints(0, "start"), node.emit("Squeeze", [count]), node.ints(1, "step")])
    added = _added_mask(node, q, mask, bias, total)
    if past[0] is None:
        return [node.emit("Attention", [q, k, v, added], attrs), k, v]
    return node.emit_all("Attention", [q, k, v, added, *past], attrs, 3)


def _multi_head(
    node: PendingNode, bias: Value | None, mask: Value | None, added: Value | None, past: list[Value | None],
    used: Value | None,
) -> None:  # fmt: skip
    heads = int(node.number("num_heads"))
    if heads < 1:
        raise node.error(f"num_heads {heads} must be above 0")
    query, key, value = node.value(0), node.input(1), node.input(2)
    if query.shape is None:
        raise node.error("a query of unknown rank")
    sources = [query, key, value]
    if key is None:
        if len(query.shape) != 5:
            raise node.error("without keys the query must be [batch, sequence, heads, 3, size]")
        sources = list(_parts(node, query, 3, 3))
    elif value is None:
        if key.shape is None or len(key.shape) != 5:
            raise node.error("without values the key must be [batch, sequence, heads, 2, size]")
        sources = [query, *_parts(node, key, 3, 2)]
    biases: list[Value | None] = [None, None, None]
    if bias is not None:
        width = heads * _width(node, sources[0]) if key is None else _width(node, query)
        biases = list(_cut(node, bias, [width, width, _width(node, bias) - 2 * width], 0))
    operands: list[Value] = []
    for x, own in zip(sources, biases, strict=True):
        assert x is not None
        crossed = key is not None and value is not None and x is not query and len(x.shape or ()) == 4
        operands.append(x if crossed else by_head(node, x, heads, own))
    result, *present = _attend(node, operands, mask, added, past, used, int(node.number("unidirectional", 0)))
    for index, cache in enumerate(present, 1):
        node.give(index, cache)
    if node.wants(3):
        raise node.refuse("the scores as a result")
    del node.outputs[1:]
    node.become("Reshape", joined_heads(node, result))


@form(f"{DOMAIN}MultiHeadAttention")
def _multi_head_attention(node: PendingNode) -> None:
    bias, mask, added, past_k, past_v, used, beams = (node.input(i) for i in range(3, 10))
    if beams is not None:
        raise node.refuse("cache_indirection of a beam search")
    _multi_head(node, bias, mask, added, [past_k, past_v], used)


@form(f"{DOMAIN}DecoderMaskedMultiHeadAttention")
def _decoder_masked(node: PendingNode) -> None:
    mask, added, past_k, past_v, used, _width, beams, bias = (node.input(i) for i in range(3, 11))
    if beams is not None:
        raise node.refuse("cache_indirection of a beam search")
    if not node.number("past_present_share_buffer", 0):
        used = None
    _multi_head(node, bias, mask, added, [past_k, past_v], used)


def _of_one_product(
    node: PendingNode, x: Value, weights: Value, bias: Value | None, mask: Value | None, past: Value | None,
    added: Value | None,
) -> None:  # fmt: skip
    """Attention whose queries, keys and values are one product of x."""
    heads = int(node.number("num_heads"))
    if heads < 1:
        raise node.error(f"num_heads {heads} must be above 0")
    if node.number("do_rotary", 0) or node.number("past_present_share_buffer", 0):
        raise node.refuse("Attention with a rotation or with a shared buffer")
    width = _width(node, weights)
    sizes = node.attrs.get("qkv_hidden_sizes") or (width // 3,) * 3
    if not isinstance(sizes, list | tuple) or len(sizes) != 3 or sum(sizes) != width:
        raise node.error(f"qkv_hidden_sizes {sizes} are not the columns of {width}")
    product = node.emit("MatMul", [x, weights])
    if bias is not None:
        product = node.emit("Add", [product, bias])
    operands = [by_head(node, part, heads) for part in _cut(node, product, [int(s) for s in sizes], -1)]
    pasts: list[Value | None] = [None, None] if past is None else list(_parts(node, past, 0, 2))
    result, *present = _attend(node, operands, mask, added, pasts, None, int(node.number("unidirectional", 0)))
    if node.wants(1):
        axis = node.ints([0], "axis")
        node.give(1, node.emit("Concat", [node.emit("Unsqueeze", [p, axis]) for p in present], {"axis": 0}))
    del node.outputs[1:]
    node.become("Reshape", joined_heads(node, result))


@form(f"{DOMAIN}Attention")
def _attention(node: PendingNode) -> None:
    bias, mask, past, added = (node.input(i) for i in (2, 3, 4, 5))
    _of_one_product(node, node.value(0), node.value(1), bias, mask, past, added)


@form(f"{DOMAIN}QAttention")
def _quantised_attention(node: PendingNode) -> None:
    bias, mask, past = (node.input(i) for i in (2, 5, 8))
    x = dequantised(node, node.value(0), node.value(3), node.input(6))
    weights = dequantised(node, node.value(1), node.value(4), node.input(7))
    _of_one_product(node, x, weights, bias, mask, past, None)
