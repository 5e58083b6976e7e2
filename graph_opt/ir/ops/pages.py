"""Operators of paged caches, which only the compiler makes: keys and values in pages that several sequences share.

A cache is [pages, page size, heads, width]. Row `i` of a sequence lies in row `i % page size` of the page that entry
`i // page size` of the sequence's line of the block table names. A *slot* counts the rows of all pages.
"""

from __future__ import annotations

from graph_opt.ir.ops.registry import FLOAT, Inference, declare
from tensor_types.dtypes import I64


def _scatter_pages(ctx: Inference) -> None:
    """pages [pages, page size, ..] with rows [tokens, ..] written at slots [tokens], i64, one after the other. The slot
    behind the last takes no row; one further is an error."""
    pages, rows, slots = ctx.shape(0), ctx.shape(1), ctx.shape(2)
    if ctx.dtype(1) != ctx.dtype() or ctx.dtype(2) != I64:
        raise ctx.error("writes rows of the dtype of the pages at i64 slots")
    if pages is not None and rows is not None:
        if len(pages) < 3 or len(rows) != len(pages) - 1:
            raise ctx.error(f"rows {list(rows)} are none of pages {list(pages)}")
        for of_pages, of_rows in zip(pages[2:], rows[1:], strict=True):
            ctx.agreed((of_pages, of_rows))
        if slots is not None:
            ctx.agreed((rows[0], *slots))
    ctx.set(0, ctx.dtype(), pages)


def _paged_attention(ctx: Inference) -> None:
    """Q [tokens, heads, width]: the queries of all sequences, sequence b has tokens starts[b] .. starts[b + 1] - 1. It
    has lengths[b] keys, and its last query stands at the last of them. block_table [sequences, most pages], starts and
    lengths are i64. Values are the first `v_head_size` columns of value_pages (0: all). A head's sink is the score of a
    further key without value. Pages behind a sequence's last key are not looked at."""
    q, k, v, table, starts, lengths = (ctx.shape(index) for index in range(6))
    if any(ctx.dtype(index) != I64 for index in (3, 4, 5)):
        raise ctx.error("block_table, starts and lengths are i64")
    if q is None or k is None or v is None:
        return ctx.set(0, ctx.dtype(), None)
    if len(q) != 3 or len(k) != 4 or len(v) != 4:
        raise ctx.error("queries are [tokens, heads, width], pages [pages, page size, heads, width]")
    for left, right in ((k[0], v[0]), (k[1], v[1]), (k[2], v[2]), (q[2], k[3])):
        ctx.agreed((left, right))
    if table is not None and starts is not None and lengths is not None:
        if (len(table), len(starts), len(lengths)) != (2, 1, 1):
            raise ctx.error("block_table is [sequences, pages], starts [sequences + 1], lengths [sequences]")
        ctx.agreed((table[0], lengths[0]))
        ctx.expect(4, (lengths[0] + 1,))
    width = int(ctx.attr("v_head_size"))
    if width < 0 or (isinstance(v[3], int) and width > v[3]):
        raise ctx.error(f"v_head_size {width} of values of {v[3]}")
    ctx.set(0, ctx.dtype(), (*q[:2], width or v[3]))


declare("ScatterPages", "pages rows slots", "movement", _scatter_pages)
declare(
    "PagedAttention", "Q key_pages value_pages block_table starts lengths head_sink?", "cube", _paged_attention,
    {"is_causal": 1, "scale": FLOAT, "softcap": 0.0, "left_window_size": -1, "v_head_size": 0},
)  # fmt: skip
