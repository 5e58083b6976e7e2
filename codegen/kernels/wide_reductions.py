"""Reductions of 64-bit integers for a vector engine that has none: those of their two 32-bit words.

A chunk is reduced by instructions on words, and chunks are put together by arithmetic on two words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from codegen.kernels.block_emitter import Operand, Words
from codegen.kernels.reduction_passes import ARG, Chunk, ReductionPasses, neutral
from codegen.tile.ir import Imm, View
from tensor_types.dtypes import BOOL, I32, I64

_LEAST = -(1 << 31)

OfChunk: TypeAlias = Callable[[ReductionPasses, Chunk, View, View], Words]
"""The words of a chunk's result, of the low and the high words of its numbers."""


@dataclass(frozen=True)
class _Rule:
    """`term` is computed of each number first, `of_chunk` of those of a chunk, and `join` of the results of chunks,
    beginning with `start`."""

    of_chunk: OfChunk
    join: str
    start: int
    term: Callable[[Chunk], Operand] = lambda chunk: chunk.x


def reduce_words(passes: ReductionPasses) -> Words:
    """The result of the anchor over all reduced positions, modulo 2**64."""
    rule = _RULES[passes.op]
    if passes.whole:
        with passes.passed() as chunk:
            return _of_chunk(passes, chunk, rule)
    total = _words(passes, rule.start)
    with passes.passed() as chunk:
        _keep(passes, total, passes.small.apply(rule.join, I64, total, _of_chunk(passes, chunk, rule)))
    return total


def position_of_words(passes: ReductionPasses) -> View:
    """The position, i32, of the first or last extreme along the one reduced axis."""
    task, small, last = passes.task, passes.small, bool(passes.anchor.attrs.get("select_last_index"))
    rule = _RULES["ReduceMax" if passes.op == "ArgMax" else "ReduceMin"]
    if not passes.reduced:
        place = passes.stat(I32)
        task.expands(place, 0)
        return place
    if passes.whole:
        with passes.passed() as chunk:
            return _position(passes, chunk, _of_chunk(passes, chunk, rule), last)
    best, place, base = _words(passes, rule.start), passes.stat(I32), passes.stat(I32)
    task.expands(place, 0)
    task.expands(base, 0)
    (group,) = passes.reduced
    mode = ("g" if passes.op == "ArgMax" else "l") + ("e" if last else "t")
    with passes.passed() as chunk:
        here = _of_chunk(passes, chunk, rule)
        at = _position(passes, chunk, here, last)
        better = small.apply("TCMP", BOOL, here, best, mode=mode)
        assert isinstance(better, View)
        task.add(at, at, base)
        task.sel(place, better, at, place)
        _keep(passes, best, small.apply("TSEL", I64, better, here, best))
        task.add(base, base, passes.pieces[group] or 0)
    return place


def _position(passes: ReductionPasses, chunk: Chunk, extreme: Words, last: bool) -> View:
    """Where in a chunk its extreme stands."""
    apply, x = chunk.emitter.apply, chunk.x
    assert isinstance(x, Words) and isinstance(extreme.low, View) and isinstance(extreme.high, View)
    equal = [
        apply("TCMP", BOOL, _held(passes, chunk, word), passes.spread(stat, chunk), mode="eq")
        for word, stat in ((x.low, extreme.low), (x.high, extreme.high))
    ]
    found = apply("TCVT", I32, apply("TAND", BOOL, *equal))
    return _row(passes, chunk, "TROWARGMAX", found, **({"last": 1} if last else {}))


def _words(passes: ReductionPasses, number: int) -> Words:
    """A number over the kept positions."""
    words = Words(passes.stat(I32), passes.stat(I32))
    for word, part in ((words.low, (number & 0xFFFFFFFF ^ 0x80000000) - 0x80000000), (words.high, number >> 32)):
        passes.task.expands(word, part)
    return words


def _keep(passes: ReductionPasses, kept: Words, words: Operand) -> None:
    assert isinstance(words, Words)
    passes.task.mov(kept.low, words.low)
    passes.task.mov(kept.high, words.high)


def _of_chunk(passes: ReductionPasses, chunk: Chunk, rule: _Rule) -> Words:
    term = rule.term(chunk)
    assert isinstance(term, Words)
    low, high = (_held(passes, chunk, word) for word in (term.low, term.high))
    return rule.of_chunk(passes, chunk, low, high) if passes.reduced else Words(low, high)


def _sum(passes: ReductionPasses, chunk: Chunk, low: View, high: View) -> Words:
    """low words are high half * 2**16 + low half; what the sum of the halves has beyond 32 bits is carried.

    The halves of 2**15 numbers, which no chunk of a chip exceeds, have a sum of 31 bits.
    """
    apply, small = chunk.emitter.apply, passes.small.apply
    halves = apply("TAND", I32, low, 0xFFFF), apply("TAND", I32, apply("TSHR", I32, low, 16), 0xFFFF)
    lower, upper, above = (_row(passes, chunk, "TROWSUM", part) for part in (*halves, high))
    carried = small("TADD", I32, upper, small("TAND", I32, small("TSHR", I32, lower, 16), 0xFFFF))
    carry = small("TAND", I32, small("TSHR", I32, carried, 16), 0xFFFF)
    total = small("TADD", I32, small("TSHL", I32, upper, 16), lower), small("TADD", I32, above, carry)
    return Words(*total)  # type: ignore[arg-type]


def _extreme(op: str) -> OfChunk:
    """That of the high words, and of the low ones beside it, which compare as unsigned numbers."""

    def of_chunk(passes: ReductionPasses, chunk: Chunk, low: View, high: View) -> Words:
        apply = chunk.emitter.apply
        above = _row(passes, chunk, op, high)
        tied = apply("TCMP", BOOL, high, passes.spread(above, chunk), mode="eq")
        ordered = apply("TXOR", I32, low, _LEAST)
        below = _row(passes, chunk, op, apply("TSEL", I32, tied, ordered, Imm(neutral(op, I32))))
        return Words(passes.small.apply("TXOR", I32, below, _LEAST), above)  # type: ignore[arg-type]

    return of_chunk


def _only(passes: ReductionPasses, chunk: Chunk, low: View, high: View) -> Words:
    """The one number of a chunk."""
    return Words(_row(passes, chunk, "TROWMAX", low), _row(passes, chunk, "TROWMAX", high))


def _held(passes: ReductionPasses, chunk: Chunk, word: View | Imm) -> View:
    """A word over the block, in a tile."""
    if isinstance(word, View):
        return word
    held = chunk.emitter.tile(I32)
    passes.task.expands(held, word)
    return held


def _row(passes: ReductionPasses, chunk: Chunk, op: str, part: object, **attrs: int) -> View:
    stat = passes.stat(I32)
    passes.task.instr(op, passes.spread(stat, chunk), part, axes=tuple(passes.reduced), **attrs)  # type: ignore[arg-type]
    return stat


_RULES = {
    "ReduceSum": _Rule(_sum, "TADD", 0),
    "ReduceMean": _Rule(_sum, "TADD", 0),
    "ReduceL1": _Rule(_sum, "TADD", 0, lambda c: c.emitter.apply("TABS", I64, c.x)),
    "ReduceSumSquare": _Rule(_sum, "TADD", 0, lambda c: c.emitter.apply("TMUL", I64, c.x, c.x)),
    "ReduceMax": _Rule(_extreme("TROWMAX"), "TMAX", -(1 << 63)),
    "ReduceMin": _Rule(_extreme("TROWMIN"), "TMIN", (1 << 63) - 1),
    "ReduceProd": _Rule(_only, "TMUL", 1),
}
ONE_BY_ONE = {**dict.fromkeys(ARG, False), **{op: rule.of_chunk is _only for op, rule in _RULES.items()}}
"""By operator that has a form for words: whether its chunks are single positions."""
