"""SparseAttention of com.microsoft as RotaryEmbedding, TensorScatter and Attention with a mask.

1. The caches are buffers: new rows are written behind those of each sequence, as for GroupQueryAttention.
2. Layouts of blocks come as compressed rows. Written out they are truth values [layouts, blocks, blocks]: what of them
   a query sees is the line of its own block, each column repeated for the keys of a block. Head h has layout
   h % layouts. Of constant layouts this is computed when the model is converted.
3. A query sees no key behind its own, whatever its layout says.
"""

from __future__ import annotations

from frontend.normalise.contrib import DOMAIN, counted, whole
from frontend.normalise.contrib_attention import by_head, joined_heads, scale_of
from frontend.normalise.group_query import CachedHeads
from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value
from tensor_types.dtypes import BOOL


@form(f"{DOMAIN}SparseAttention")
def _sparse_attention(node: PendingNode) -> None:
    do = CachedHeads(node, node.value(8), node.value(7), (9, 10))
    q, k, v = do.operands()
    if node.number("do_rotary", 0):
        q, k = (do.rotated(x, count) for x, count in ((q, do.heads), (k, do.kv_heads)))
    q, k, v = (by_head(node, x, count) for x, count in ((q, do.heads), (k, do.kv_heads), (v, do.kv_heads)))
    k, v = (node.emit("TensorScatter", [node.value(i), x, do.before], {"axis": -2}) for i, x in ((3, k), (4, v)))
    node.give(1, k)
    node.give(2, v)
    del node.outputs[1:]
    mask = _seen(node, do, counted(node, k, 2))
    ends = node.emit("Add", [do.before, do.count])
    attrs = {**scale_of(node), "is_causal": 1}
    node.become("Reshape", joined_heads(node, node.emit("Attention", [q, k, v, mask, None, None, ends], attrs)))


def _seen(node: PendingNode, do: CachedHeads, keys: Value) -> Value:
    """Which keys [B, layouts or heads, S, T] lie in blocks that a query's layout has."""
    size = int(node.number("sparse_block_size"))
    layouts = node.value(5).shape
    if size < 1 or layouts is None or len(layouts) != 2 or not isinstance(layouts[0], int) or layouts[0] < 1:
        raise node.error("the blocks or the number of their layouts are not known")
    count = layouts[0]
    if do.heads % count:
        raise node.error(f"{do.heads} heads of {count} layouts of blocks")
    block = node.ints(size, "block")
    lines = node.emit("Gather", [_layouts(node), node.emit("Div", [do.positions(), block])], {"axis": 1})
    seen = node.emit("Gather", [lines, node.emit("Div", [keys, block])], {"axis": 3})
    seen = node.emit("Transpose", [seen], {"perm": (1, 0, 2, 3)})
    if count in (1, do.heads):
        return seen
    turns = node.ints([head % count for head in range(do.heads)], "turns")
    return node.emit("Gather", [seen, turns], {"axis": 1})


def _layouts(node: PendingNode) -> Value:
    """The compressed rows written out, bool [layouts, blocks, blocks]."""
    ends, columns = whole(node, node.value(5)), whole(node, node.value(6))
    one, last = node.ints([1], "one"), node.ints([1 << 62], "end")
    ends = node.emit("Slice", [ends, one, last, one])
    blocks = node.emit("Shape", [ends], {"start": 1, "end": 2})
    number = node.emit("Unsqueeze", [counted(node, columns, 1), node.ints([0], "axis")])
    passed = node.emit("LessOrEqual", [node.emit("Unsqueeze", [ends, node.ints([2], "axis")]), number])
    row = node.emit("ReduceSum", [whole(node, passed), one], {"keepdims": 0})
    # What fills up a layout behind its last block goes to a place of its own, which is cut off.
    size = node.emit("Mul", [blocks, blocks])
    place = node.emit("Add", [node.emit("Mul", [row, blocks]), columns])
    place = node.emit("Where", [node.emit("Less", [row, blocks]), place, size])
    layouts = node.emit("Shape", [ends], {"start": 0, "end": 1})
    room = node.emit("Concat", [layouts, node.emit("Add", [size, one])], {"axis": 0})
    nothing = node.emit("Expand", [node.constant(False, BOOL, "no"), room])
    each = node.emit("Expand", [node.constant(True, BOOL, "yes"), node.emit("Shape", [place])])
    flat = node.emit("ScatterElements", [nothing, place, each], {"axis": 1})
    flat = node.emit("Slice", [flat, node.ints([0], "first"), size, one])
    return node.emit("Reshape", [flat, node.emit("Concat", [layouts, blocks, blocks], {"axis": 0})])
