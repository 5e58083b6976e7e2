"""PagedAttention of com.microsoft as ScatterPages and an attention through the block table.

1. Sequence b has tokens cumulative_sequence_length[b] .. of this call, behind past_seqlens[b] rows of the caches.
2. `slot_mapping` says which row of all pages a token's key and value go to, -1: none. Without it they go behind the
   past of their sequence, by its line of the block table; a page of -1 there takes none.
3. The caches that are results hold the new rows, and the attention reads those. A latent cache has no values of its
   own: they are the first columns of its keys.
4. `attention_metadata` tells bounds, which nothing here needs.
"""

from __future__ import annotations

import numpy as np

from frontend.normalise.contrib import DOMAIN, counted, whole
from frontend.normalise.contrib_attention import heads_normalised, queries_keys_values, scale_of
from frontend.normalise.pending import PendingNode, form
from graph_opt.ir import Value
from graph_opt.ir.core import AttrValue


@form(f"{DOMAIN}PagedAttention")
def _paged_attention(node: PendingNode) -> None:
    heads, kv_heads = int(node.number("num_heads")), int(node.number("kv_num_heads"))
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise node.error(f"{heads} heads of the queries and {kv_heads} of the keys")
    if any(node.attrs.get(f"{which}_quant_type", "NONE") != "NONE" for which in "kv"):
        raise node.refuse("a quantised cache")
    latent = node.attrs.get("kv_cache_layout", "SEPARATE") == "LATENT"
    if latent and (node.input(1) is None or node.input(2) is not None or node.input(4) is not None or kv_heads != 1):
        raise node.error("a latent cache has one head of keys and no values")
    tokens = _Tokens(node)
    first = node.ints([0], "first")
    q, k, v = (None if x is None else node.emit("Unsqueeze", [x, first]) for x in (node.input(i) for i in range(3)))
    assert q is not None
    if not latent:
        q, k, v = queries_keys_values(node, q, k, v, heads, kv_heads)
    assert k is not None
    epsilon = float(node.number("qk_norm_epsilon", 1e-6))
    q = tokens.rotated(heads_normalised(node, q, node.input(12), heads, epsilon), heads)
    k = tokens.rotated(heads_normalised(node, k, node.input(13), kv_heads, epsilon), kv_heads)
    slots = tokens.slots()
    caches = [
        node.emit("ScatterPages", [node.value(index), tokens.rows(new, kv_heads), slots])
        for index, new in ((3, k), (4, v))
        if new is not None
    ]
    for index, cache in enumerate(caches, 1):
        node.give(index, cache)
    del node.outputs[1:]
    operands = [tokens.rows(q, heads), caches[0], caches[-1], tokens.table, tokens.starts, tokens.lengths]
    made = node.emit("PagedAttention", [*operands, _sink(node, q)], _attributes(node))
    node.become("Reshape", [made, node.ints([0, -1], "joined")])


def _attributes(node: PendingNode) -> dict[str, AttrValue]:
    attrs: dict[str, AttrValue] = {**scale_of(node), "is_causal": int(node.number("is_causal", 1))}
    if cap := float(node.number("softcap", 0.0)):
        attrs["softcap"] = cap
    if (window := int(node.number("local_window_size", -1))) > 0:
        attrs["left_window_size"] = window - 1
    if width := int(node.number("v_head_size", 0)):
        attrs["v_head_size"] = width
    return attrs


def _sink(node: PendingNode, q: Value) -> Value | None:
    """The score of each head's key without value; smooth softmax has one of 0."""
    if node.input(11) is not None or not node.number("smooth_softmax", 0):
        return node.input(11)
    return node.constant(np.zeros(int(node.number("num_heads"))), q.dtype, "sink")


class _Tokens:
    """Where the tokens of a call stand: vectors over tokens and over sequences, i64."""

    def __init__(self, node: PendingNode) -> None:
        self.node = node
        self.starts, past, self.table = (whole(node, node.value(index)) for index in (5, 6, 7))
        self._ends = node.emit("Slice", [self.starts, node.ints([1], "second"), node.ints([1 << 62], "end")])
        begins = node.emit("Slice", [self.starts, node.ints([0], "first"), node.ints([-1], "last")])
        self._before = node.emit("Sub", [past, begins])
        """What turns the number of a token into its position."""
        self.lengths = node.emit("Add", [self._before, self._ends])
        self._found: tuple[Value, Value] | None = None

    def _places(self) -> tuple[Value, Value]:
        """The sequence of each token, and its position in that."""
        if self._found is None:
            node = self.node
            number = counted(node, node.value(0), 0)
            axis = node.ints([1], "axis")
            behind = node.emit("LessOrEqual", [self._ends, node.emit("Unsqueeze", [number, axis])])
            owner = node.emit("ReduceSum", [whole(node, behind), axis], {"keepdims": 0})
            before = node.emit("Gather", [self._before, owner], {"axis": 0})
            self._found = owner, node.emit("Add", [number, before])
        return self._found

    def slots(self) -> Value:
        """The row of all pages that each token's key and value go to; that behind the last for none."""
        node, slot = self.node, self.node.input(10)
        count, size = (node.emit("Shape", [node.value(3)], {"start": i, "end": i + 1}) for i in range(2))
        if slot is None:
            owner, position = self._places()
            axis = node.ints([1], "axis")
            parts = (owner, node.emit("Div", [position, size]))
            place = node.emit("Concat", [node.emit("Unsqueeze", [x, axis]) for x in parts], {"axis": 1})
            page = node.emit("GatherND", [self.table, place])
            slot = node.emit("Add", [node.emit("Mul", [page, size]), node.emit("Mod", [position, size])])
        slot = whole(node, slot)
        nowhere = node.emit("Less", [slot, node.ints([0], "first")])
        return node.emit("Where", [nowhere, node.emit("Mul", [count, size]), slot])

    def rotated(self, x: Value, heads: int) -> Value:
        """Each head of [1, tokens, heads * size] turned by the angles of its token's position, if the node asks."""
        node = self.node
        if not node.number("do_rotary", 0):
            return x
        if node.number("rotary_offset", 0):
            raise node.refuse("a rotation behind the first elements of a head")
        cos, sin = node.value(8), node.value(9)
        half = cos.shape[-1] if cos.shape is not None else None
        if not isinstance(half, int):
            raise node.error("the extent of cos_cache is not known")
        row = node.emit("Unsqueeze", [self._places()[1], node.ints([0], "axis")])
        attrs: dict[str, AttrValue] = {"interleaved": int(node.number("rotary_interleaved", 0)), "num_heads": heads,
                                       "rotary_embedding_dim": 2 * half}  # fmt: skip
        return node.emit("RotaryEmbedding", [x, cos, sin, row], attrs)

    def rows(self, x: Value, heads: int) -> Value:
        """[1, tokens, heads * size] as [tokens, heads, size]."""
        flat = self.node.emit("Squeeze", [x, self.node.ints([0], "axis")])
        return self.node.emit("Reshape", [flat, self.node.ints([0, heads, -1], "heads")])
