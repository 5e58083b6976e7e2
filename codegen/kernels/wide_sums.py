"""Sums of 64-bit integers for a vector engine that has none: those of their words, with one carry for a chunk."""

from __future__ import annotations

from codegen.kernels.block_emitter import Words
from codegen.kernels.reduction_passes import Chunk, ReductionPasses
from codegen.tile.ir import Imm, View
from tensor_types.dtypes import I32, I64

MOST = 1 << 15
"""Halves of 16 bits of so many words have a sum of 31 bits."""


def sum_of_words(passes: ReductionPasses) -> Words:
    """The sum over all reduced positions, modulo 2**64. A chunk has at most `MOST` of them."""
    if passes.whole:
        with passes.passed() as chunk:
            return _sum_of_chunk(passes, chunk)
    total = Words(passes.stat(I32), passes.stat(I32))
    for word in (total.low, total.high):
        passes.task.expands(word, 0)
    with passes.passed() as chunk:
        more = passes.small.apply("TADD", I64, total, _sum_of_chunk(passes, chunk))
        assert isinstance(more, Words)
        passes.task.mov(total.low, more.low)
        passes.task.mov(total.high, more.high)
    return total


def _sum_of_chunk(passes: ReductionPasses, chunk: Chunk) -> Words:
    """low words are high half * 2**16 + low half; what the sum of the halves has beyond 32 bits is carried."""
    apply, small = chunk.emitter.apply, passes.small.apply
    assert isinstance(chunk.x, Words)
    low, high = (_held(passes, chunk, word) for word in (chunk.x.low, chunk.x.high))
    if not passes.reduced:
        return Words(low, high)
    halves = apply("TAND", I32, low, 0xFFFF), apply("TAND", I32, apply("TSHR", I32, low, 16), 0xFFFF)
    lower, upper, above = (_row_sum(passes, chunk, part) for part in (*halves, high))
    carried = small("TADD", I32, upper, small("TAND", I32, small("TSHR", I32, lower, 16), 0xFFFF))
    carry = small("TAND", I32, small("TSHR", I32, carried, 16), 0xFFFF)
    total = small("TADD", I32, small("TSHL", I32, upper, 16), lower), small("TADD", I32, above, carry)
    return Words(*total)  # type: ignore[arg-type]


def _held(passes: ReductionPasses, chunk: Chunk, word: View | Imm) -> View:
    """A word over the block, in a tile."""
    if isinstance(word, View):
        return word
    held = chunk.emitter.tile(I32)
    passes.task.expands(held, word)
    return held


def _row_sum(passes: ReductionPasses, chunk: Chunk, part: object) -> View:
    stat = passes.stat(I32)
    passes.task.instr("TROWSUM", passes.spread(stat, chunk), part, axes=tuple(passes.reduced))  # type: ignore[arg-type]
    return stat
