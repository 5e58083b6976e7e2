"""Strings and n-grams: always on the AI CPU."""

from __future__ import annotations

from graph_opt.ir.ops.broadcast import broadcast
from graph_opt.ir.ops.registry import FLOATS, INT, INTS, STRING, STRINGS, Inference, declare
from tensor_types.dtypes import BOOL, F32, I64, STR


def _concat(ctx: Inference) -> None:
    ctx.set(0, STR, broadcast(ctx, ctx.shape(0), ctx.shape(1)))


def _split(ctx: Inference) -> None:
    shape = ctx.shape()
    ctx.set(0, STR, None if shape is None else (*shape, ctx.fresh(axis=len(shape))))
    ctx.set(1, I64, shape)


def _match(ctx: Inference) -> None:
    ctx.set(0, BOOL, ctx.shape())


def _normalize(ctx: Inference) -> None:
    shape = ctx.shape()
    if shape is None:
        return ctx.set(0, STR, None)
    if not ctx.attr("stopwords"):
        return ctx.set(0, STR, shape)
    ctx.set(0, STR, (*shape[:-1], ctx.fresh(axis=len(shape) - 1)))


def _tf_idf(ctx: Inference) -> None:
    shape, indexes = ctx.shape(), ctx.attr("ngram_indexes")
    ctx.set(0, F32, None if shape is None else (*shape[:-1], max(int(i) for i in indexes) + 1))


declare("StringConcat", "X Y", "aicpu", _concat)
declare("StringSplit", "X", "aicpu", _split, {"delimiter": STRING, "maxsplit": INT})
declare("RegexFullMatch", "X", "aicpu", _match, {"pattern": STRING})
declare(
    "StringNormalizer", "X", "aicpu", _normalize,
    {"case_change_action": "NONE", "is_case_sensitive": 0, "locale": STRING, "stopwords": STRINGS},
)  # fmt: skip
declare(
    "TfIdfVectorizer", "X", "aicpu", _tf_idf,
    {"max_gram_length": INT, "max_skip_count": INT, "min_gram_length": INT, "mode": STRING, "ngram_counts": INTS,
     "ngram_indexes": INTS, "pool_int64s": INTS, "pool_strings": STRINGS, "weights": FLOATS},
)  # fmt: skip
