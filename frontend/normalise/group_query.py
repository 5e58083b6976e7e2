"""GroupQueryAttention of com.microsoft as RotaryEmbedding, TensorScatter and Attention.

1. A sequence b holds seqlens_k[b] + 1 tokens with those of this call; a call with as many tokens as the longest one is
   the first, so that its tokens stand at 0 .. S-1 even where it is padded behind.
2. The present is as long as the longest sequence, or as the past if that is a buffer with room: the past is padded to
   that and the new rows are written behind those of each sequence. A present that the file declares as long as the past
   is such a buffer always. Without past the new rows are the present.
3. Keys behind a sequence's own are not read (`nonpad_kv_seqlen`).
4. A sink is a key in front of all others, of zeros, whose score is the sink; its value is 0.
"""

from __future__ import annotations

import numpy as np

from frontend.normalise.contrib import DOMAIN, counted, whole
from frontend.normalise.contrib_attention import (
    by_head,
    heads_normalised,
    joined_heads,
    queries_keys_values,
    scale_of,
)
from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value
from graph_opt.ir.core import AttrValue


@form(f"{DOMAIN}GroupQueryAttention")
def _group_query_attention(node: PendingNode) -> None:
    _refuse_forms(node)
    lengths = node.emit("Add", [whole(node, node.value(5)), node.ints(1, "one")])
    do = CachedHeads(node, lengths, node.value(6), (7, 8))
    q, k, v = do.operands()
    if node.number("do_rotary", 0):
        q, k = (do.rotated(x, count, node.input(9)) for x, count in ((q, do.heads), (k, do.kv_heads)))
    q, k, v = (by_head(node, x, count) for x, count in ((q, do.heads), (k, do.kv_heads), (v, do.kv_heads)))
    if do.past is not None:
        k, v = do.written(k, 3), do.written(v, 4)
    node.give(1, k)
    node.give(2, v)
    del node.outputs[1:]
    node.become("Reshape", joined_heads(node, do.attention(q, k, v)))


def _refuse_forms(node: PendingNode) -> None:
    for name in ("k_quant_type", "v_quant_type"):
        if node.attrs.get(name, "NONE") != "NONE":
            raise node.refuse("a quantised cache")
    if node.input(12) is not None or node.input(13) is not None:
        raise node.refuse("a quantised cache")
    if node.number("sliding_window_cache", 0) or node.input(16) is not None:
        raise node.refuse("a cache that slides, or lengths of the queries,")
    if node.number("qk_output", 0) or node.wants(3):
        raise node.refuse("the scores as a result")


class CachedHeads:
    """The steps of one node whose caches are its inputs 3 and 4. Vectors over the batch are i64 [B]."""

    def __init__(self, node: PendingNode, lengths: Value, total: Value, angles: tuple[int, int]) -> None:
        """`lengths`: tokens of each sequence with those of this call; `total`: of the longest. `angles`: the inputs
        that hold cosines and sines."""
        self.node, self.angles = node, angles
        self.heads, self.kv_heads = int(node.number("num_heads")), int(node.number("kv_num_heads"))
        if self.heads < 1 or self.kv_heads < 1 or self.heads % self.kv_heads:
            raise node.error(f"{self.heads} heads of the queries and {self.kv_heads} of the keys")
        self.past = node.input(3)
        if (self.past is None) != (node.input(4) is None):
            raise node.error("past_key and past_value go together")
        one = node.ints([1], "one")
        self.query = node.value(0)
        self.count = node.emit("Shape", [self.query], {"start": 1, "end": 2})
        """Tokens of this call, [1]."""
        self.whole = node.emit("Reshape", [whole(node, total), one])
        """Tokens of the longest sequence, [1]."""
        self.lengths = node.emit("Reshape", [whole(node, lengths), node.ints([-1], "flat")])
        behind = node.emit("Sub", [self.lengths, self.count])
        first = node.emit("Equal", [self.whole, self.count])
        self.before = node.emit("Where", [first, node.ints([0], "none"), behind])
        """Where the new tokens start."""
        self.pads: Value | None = None

    def operands(self) -> tuple[Value, Value, Value]:
        """Queries, keys and values [B, S, heads * size], normalised by head if the node has weights for that."""
        node = self.node
        q, k, v = queries_keys_values(node, self.query, node.input(1), node.input(2), self.heads, self.kv_heads)
        return self._normal(q, 14, "q", self.heads), self._normal(k, 15, "k", self.kv_heads), v

    def _normal(self, x: Value, index: int, which: str, heads: int) -> Value:
        common = float(self.node.number("qk_norm_epsilon", 1e-6))
        epsilon = float(self.node.number(f"{which}_norm_epsilon", common))
        return heads_normalised(self.node, x, self.node.input(index), heads, epsilon)

    def positions(self) -> Value:
        """Where each token stands, [B, S]."""
        column = self.node.emit("Unsqueeze", [self.before, self.node.ints([1], "axis")])
        return self.node.emit("Add", [column, counted(self.node, self.query, 1)])

    def rotated(self, x: Value, heads: int, positions: Value | None = None) -> Value:
        """Each head turned by the angles of its token's position."""
        node = self.node
        cos, sin = (node.value(index) for index in self.angles)
        positions = self.positions() if positions is None else positions
        half = cos.shape[-1] if cos.shape is not None else None
        if not isinstance(half, int):
            raise node.error("the extent of cos_cache is not known")
        attrs: dict[str, AttrValue] = {"interleaved": int(node.number("rotary_interleaved", 0)), "num_heads": heads,
                                       "rotary_embedding_dim": 2 * half}  # fmt: skip
        return node.emit("RotaryEmbedding", [x, cos, sin, positions], attrs)

    def written(self, new: Value, index: int) -> Value:
        """The present: the past of input `index` with room for all, and the new rows behind those of each sequence."""
        node, past = self.node, self.node.value(index)
        name = node.outputs[index - 2] if node.wants(index - 2) else ""
        present = node.declared.get(name, ())
        if past.shape is not None and len(present) == 4 and str(present[2]) == str(past.shape[2]):
            return node.emit("TensorScatter", [past, new, self.before], {"axis": -2})
        room = node.emit("Pad", [past, self.missing(past), None, node.ints([2], "axis")])
        return node.emit("TensorScatter", [room, new, self.before], {"axis": -2})

    def missing(self, past: Value) -> Value:
        """Pads of the past for the rows that it lacks. Where data say how many, both presents get one extent."""
        if self.pads is None:
            node = self.node
            held = node.emit("Shape", [past], {"start": 2, "end": 3})
            missing = node.emit("Sub", [node.emit("Max", [self.whole, held]), held])
            if missing.content is None:
                missing = node.emit("Shape", [node.emit("ConstantOfShape", [missing])])
            self.pads = node.emit("Concat", [node.ints([0], "before"), missing], {"axis": 0})
        return self.pads

    def attention(self, q: Value, k: Value, v: Value) -> Value:
        node, bias, sink = self.node, self.node.input(10), self.node.input(11)
        causal, window = int(node.number("causal", 1)), int(node.number("local_window_size", -1))
        attrs: dict[str, AttrValue] = {**scale_of(node), "is_causal": causal}
        if cap := float(node.number("softcap", 0.0)):
            attrs["softcap"] = cap
        ends: Value | None = None
        if self.past is not None or not causal:
            ends = node.emit("Add", [self.before, self.count]) if causal else self.lengths
        smooth = node.number("smooth_softmax", -1) == 1
        if sink is None and not smooth:
            if window > 0:
                attrs["left_window_size"] = window - 1
            return node.emit("Attention", [q, k, v, bias, None, None, ends], attrs)
        k, v = (self._with_row(x) for x in (k, v))
        if ends is not None:
            ends = node.emit("Add", [ends, node.ints([1], "sink")])
        mask = self._sink_mask(q, k, sink, bias, window)
        if ends is None:  # as many keys as queries and the sink, which stands before the first query
            ends = node.emit("Expand", [node.emit("Add", [self.count, node.ints([1], "sink")]),
                                        node.emit("Shape", [q], {"start": 0, "end": 1})])  # fmt: skip
        return node.emit("Attention", [q, k, v, mask, None, None, ends], attrs)

    def _with_row(self, x: Value) -> Value:
        """[B, N, T, H] with a row of zeros in front."""
        return self.node.emit("Pad", [x, self.node.ints([0, 0, 1, 0, 0, 0, 0, 0], "row")])

    def _sink_mask(self, q: Value, k: Value, sink: Value | None, bias: Value | None, window: int) -> Value | None:
        """What is added to the scores [B, N, S, 1 + T]: the sink's own, the bias, the window's -inf."""
        node = self.node
        columns = counted(node, k, 2)
        is_sink = node.emit("Equal", [columns, node.ints(0, "sink")])
        nothing = node.constant(0, q.dtype, "nothing")
        rest: Value | None = nothing
        if bias is not None:
            held = node.emit("Add", [node.emit("Shape", [bias], {"start": 3, "end": 4}), node.ints([1], "one")])
            longer = node.emit("Sub", [node.emit("Shape", [k], {"start": 2, "end": 3}), held])
            pads = node.emit("Concat", [node.ints([0, 0, 0, 1, 0, 0, 0], "front"), longer], {"axis": 0})
            rest = node.emit("Pad", [bias, pads])
        if window > 0:
            start = node.emit("Reshape", [self.before, node.ints([-1, 1, 1, 1], "column")])
            turn = node.emit("Unsqueeze", [counted(node, self.query, 1), node.ints([1], "axis")])
            rows = node.emit("Add", [start, turn])
            # Key j stands in column j + 1.
            last = node.emit("Sub", [rows, node.ints(window - 2, "window")])
            near = node.emit("GreaterOrEqual", [columns, last])
            rest = node.emit("Where", [near, rest, node.constant(-np.inf, q.dtype, "hidden")])
        elif sink is None and bias is None:
            return None
        own = nothing if sink is None else node.emit("Reshape", [sink, node.ints([1, -1, 1, 1], "heads")])
        mask = node.emit("Where", [is_sink, own, rest])
        rank = len(mask.shape or ())
        return mask if rank == 4 else node.emit("Unsqueeze", [mask, node.ints(list(range(4 - rank)), "axes")])
