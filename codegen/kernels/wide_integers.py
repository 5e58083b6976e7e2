"""Instructions on 64-bit integers for a vector engine that has none: it computes with their two 32-bit words.

Results are those of 64-bit arithmetic that wraps, and casts are those of TCVT. One is not exact: a number of more than
one word comes to a float as high * 2**32 + low, which is two roundings, less than one unit in the last place apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from codegen.kernels.block_emitter import BlockEmitter, Operand, Words
from codegen.kernels.operands import NotLowerable
from codegen.targets.target import Target
from codegen.tile.ir import Imm, View
from tensor_types.dtypes import BOOL, F32, I32, I64, U32, DType

Word: TypeAlias = View | Imm

_LEAST = -(1 << 31)
_BASE = 4294967296.0
"""2**32: what the high word counts."""
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def in_words(dtype: DType, target: Target) -> bool:
    """True if the target sees numbers of the dtype as pairs of 32-bit words."""
    return dtype == I64 and target.explicit_memory and not target.supports(I64)


def emit_wide(
    e: BlockEmitter, op: str, dtype: DType, operands: Sequence[Operand], attrs: Mapping[str, int | str]
) -> View | Words:
    """The instructions of `op` where its result or an operand is of words; NotLowerable if there are none."""
    m = _Wide(e)
    if op == "TCVT":
        return _converted(m, dtype, operands[0], attrs)
    if op not in _RULES:
        raise NotLowerable(f"{op} has no form for 64-bit integers in 32-bit words")
    if op == "TSEL":
        condition, *rest = operands
        return _select(m, condition, *map(words_of, rest))
    if op == "TCMP":
        return m.held(_compare(m, str(attrs["mode"]), *map(words_of, operands)), BOOL)
    return m.both(_RULES[op](m, *map(words_of, operands)))


def words_of(operand: Operand) -> Words:
    """An operand of 64 bits as its words."""
    if isinstance(operand, Words):
        return operand
    assert isinstance(operand, Imm)
    number = int(operand.value)
    return Words(Imm(_signed(number)), Imm(_signed(number >> 32)))


def _signed(number: int) -> int:
    """The low 32 bits as a signed number."""
    return (number & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


class _Wide:
    """Arithmetic on words. What numbers alone decide is decided here."""

    def __init__(self, e: BlockEmitter) -> None:
        self.e = e

    def __call__(self, op: str, *operands: Word | int, dtype: DType = I32, **attrs: int | str) -> View:
        result = self.e.apply(op, dtype, *operands, **attrs)
        assert isinstance(result, View)
        return result

    def held(self, word: Word, dtype: DType = I32) -> View:
        """A word in a tile."""
        return word if isinstance(word, View) else self("TEXPANDS", word, dtype=dtype)

    def both(self, words: Words) -> Words:
        """Words in tiles."""
        return Words(self.held(words.low), self.held(words.high))

    def add(self, a: Word, b: Word) -> Word:
        if isinstance(a, Imm) and isinstance(b, Imm):
            return Imm(_signed(int(a.value) + int(b.value)))
        return b if a == Imm(0) else a if b == Imm(0) else self("TADD", a, b)

    def sub(self, a: Word, b: Word) -> Word:
        if isinstance(a, Imm) and isinstance(b, Imm):
            return Imm(_signed(int(a.value) - int(b.value)))
        return a if b == Imm(0) else self("TSUB", a, b)

    def mul(self, a: Word, b: Word) -> Word:
        if isinstance(a, Imm) and isinstance(b, Imm):
            return Imm(_signed(int(a.value) * int(b.value)))
        return Imm(0) if Imm(0) in (a, b) else self("TMUL", a, b)

    def halves(self, a: Word) -> tuple[Word, Word]:
        """The low and the high 16 bits, neither negative."""
        if isinstance(a, Imm):
            return Imm(int(a.value) & 0xFFFF), Imm(int(a.value) >> 16 & 0xFFFF)
        return self("TAND", a, 0xFFFF), self.upper(a)

    def upper(self, a: Word) -> Word:
        """The high 16 bits."""
        if isinstance(a, Imm):
            return Imm(int(a.value) >> 16 & 0xFFFF)
        return self("TAND", self("TSHR", a, 16), 0xFFFF)

    def test(self, mode: str, a: Word, b: Word | int, unsigned: bool = False) -> Word:
        """A comparison of single words."""
        left, right = a, b if isinstance(b, View | Imm) else Imm(b)
        if unsigned:
            left, right = self._biased(left), self._biased(right)
        if isinstance(left, Imm):
            if isinstance(right, Imm):
                x, y = int(left.value), int(right.value)
                return Imm({"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "eq": x == y, "ne": x != y}[mode])
            mode, left, right = _SWAPPED[mode], right, left
        return self("TCMP", left, right, dtype=BOOL, mode=mode)

    def _biased(self, a: Word) -> Word:
        """The word whose signed order is the unsigned one of `a`."""
        return Imm(_signed(int(a.value) + _LEAST)) if isinstance(a, Imm) else self("TXOR", a, _LEAST)

    def count(self, test: Word) -> Word:
        """A test as 0 or 1."""
        return Imm(int(test.value)) if isinstance(test, Imm) else self("TCVT", test)

    def pick(self, condition: Operand, a: Word, b: Word) -> Word:
        assert not isinstance(condition, Words)
        return self("TSEL", condition, a, b)


def _select(m: _Wide, condition: Operand, a: Words, b: Words) -> Words:
    return m.both(Words(m.pick(condition, a.low, b.low), m.pick(condition, a.high, b.high)))


def _compare(m: _Wide, mode: str, a: Words, b: Words) -> Word:
    if mode in ("eq", "ne"):
        differs = m("TOR", m("TXOR", a.low, b.low), m("TXOR", a.high, b.high))
        return m.test(mode, differs, 0)
    decided = m.test(mode[0] + "t", a.high, b.high)
    tied = m.test("eq", a.high, b.high)
    return m("TOR", decided, m("TAND", tied, m.test(mode, a.low, b.low, unsigned=True), dtype=BOOL), dtype=BOOL)


def _add(m: _Wide, a: Words, b: Words) -> Words:
    if isinstance(a.low, Imm):
        a, b = b, a
    low = m.add(a.low, b.low)
    carry = Imm(0) if b.low == Imm(0) else m.count(m.test("lt", low, b.low, unsigned=True))
    return Words(low, m.add(m.add(a.high, b.high), carry))


def _sub(m: _Wide, a: Words, b: Words) -> Words:
    borrow = Imm(0) if b.low == Imm(0) else m.count(m.test("lt", a.low, b.low, unsigned=True))
    return Words(m.sub(a.low, b.low), m.sub(m.sub(a.high, b.high), borrow))


def _mul(m: _Wide, a: Words, b: Words) -> Words:
    """Schoolbook, in halves of 16 bits: the 64 bits of low * low, and what the high words add to the upper ones."""
    (a0, a1), (b0, b1) = m.halves(a.low), m.halves(b.low)
    low, left, right = m.mul(a0, b0), m.mul(a0, b1), m.mul(a1, b0)
    middle = m.add(m.upper(low), m.add(m.halves(left)[0], m.halves(right)[0]))
    carried = m.add(m.add(m.upper(left), m.upper(right)), m.upper(middle))
    high = m.add(m.mul(a1, b1), carried)
    return Words(m.mul(a.low, b.low), m.add(high, m.add(m.mul(a.high, b.low), m.mul(a.low, b.high))))


def _neg(m: _Wide, a: Words) -> Words:
    return _sub(m, words_of(Imm(0)), a)


def _abs(m: _Wide, a: Words) -> Words:
    return _select(m, m.test("lt", a.high, 0), _neg(m, a), a)


def _sign(m: _Wide, a: Words) -> Words:
    below = m("TSHR", a.high, 31)
    some = m.count(m.test("ne", m("TOR", a.low, a.high), 0))
    return Words(m("TOR", below, some), below)


def _extreme(mode: str) -> Rule:
    return lambda m, a, b: _select(m, _compare(m, mode, a, b), a, b)


def _wordwise(op: str) -> Rule:
    def rule(m: _Wide, *operands: Words) -> Words:
        return Words(m(op, *(o.low for o in operands)), m(op, *(o.high for o in operands)))

    return rule


def _quotient(m: _Wide, a: Words, b: Words) -> Words:
    """a / b towards 0, and 0 for b = 0."""
    whole, _ = _divided(m, a, b)
    return _signed_as(m, m("TXOR", a.high, b.high), _unless_zero(m, b, whole))


def _remainder(m: _Wide, a: Words, b: Words) -> Words:
    """a - b * (a / b towards 0), which has the sign of a; 0 for b = 0."""
    _, rest = _divided(m, a, b)
    return _signed_as(m, a.high, _unless_zero(m, b, rest))


def _modulo(m: _Wide, a: Words, b: Words) -> Words:
    """As `_remainder` with the sign of b."""
    rest = m.both(_remainder(m, a, b))
    other = m.test("lt", m("TXOR", rest.high, b.high), 0)
    some = m.test("ne", m("TOR", rest.low, rest.high), 0)
    return _select(m, m("TAND", other, some, dtype=BOOL), _add(m, rest, b), rest)


def _signed_as(m: _Wide, sign: Word, magnitude: Words) -> Words:
    return _select(m, m.test("lt", m.held(sign), 0), _neg(m, magnitude), magnitude)


def _unless_zero(m: _Wide, b: Words, result: Words) -> Words:
    """The result, or 0 where b is 0."""
    some = m.test("ne", m("TOR", b.low, b.high), 0)
    return _select(m, some, result, words_of(Imm(0)))


def _divided(m: _Wide, a: Words, b: Words) -> tuple[Words, Words]:
    """|a| // |b| and |a| % |b| of unsigned numbers by long division: a loop over the 64 bits of |a|."""
    divisor = _abs(m, m.both(b))
    low, high, rest_low, rest_high = (
        m.held(word) for words in (_abs(m, m.both(a)), words_of(Imm(0))) for word in (words.low, words.high)
    )
    put = m.e.builder.instr
    with m.e.repeat(64):
        top = m("TAND", m("TSHR", high, 31), 1)
        crossing = m("TAND", m("TSHR", low, 31), 1)
        out = m("TAND", m("TSHR", rest_low, 31), 1)
        for word, brought in ((rest_high, out), (rest_low, top), (high, crossing)):
            put("TOR", word, m("TSHL", word, 1), brought)
        put("TSHL", low, low, 1)
        now = Words(rest_low, rest_high)
        fits = _unsigned_at_least(m, now, divisor)
        less = _sub(m, now, divisor)
        put("TSEL", rest_low, fits, less.low, rest_low)
        put("TSEL", rest_high, fits, less.high, rest_high)
        put("TOR", low, low, m.held(m.count(fits)))
    return Words(low, high), Words(rest_low, rest_high)


def _unsigned_at_least(m: _Wide, a: Words, b: Words) -> Word:
    decided = m.test("gt", a.high, b.high, unsigned=True)
    tied = m.test("eq", a.high, b.high)
    return m("TOR", decided, m("TAND", tied, m.test("ge", a.low, b.low, unsigned=True), dtype=BOOL), dtype=BOOL)


def _converted(m: _Wide, dtype: DType, x: Operand, attrs: Mapping[str, int | str]) -> View | Words:
    if attrs:
        raise NotLowerable("a rounding or saturating cast of 64-bit integers")
    if isinstance(x, Words):
        return _narrowed(m, dtype, x)
    if isinstance(x, Imm):
        return m.both(words_of(Imm(int(x.value))))
    source = m.e.builder.element_type(x)
    if source == BOOL:
        return Words(m("TCVT", x), m.held(Imm(0)))
    if source.is_integer:
        low = x if source == I32 else m("TCVT", x)
        return Words(low, m.held(Imm(0)) if source == U32 else m("TSHR", low, 31))
    return _of_float(m, x if source == F32 else m("TCVT", x, dtype=F32))


def _narrowed(m: _Wide, dtype: DType, x: Words) -> View | Words:
    """Words as numbers of another dtype."""
    if dtype == I64:
        return x
    if dtype == BOOL:
        return m.held(m.test("ne", m("TOR", x.low, x.high), 0), BOOL)
    if dtype.is_integer:
        return m.held(x.low) if dtype == I32 else m("TCVT", x.low, dtype=dtype)
    fits = m.test("eq", x.high, m("TSHR", x.low, 31))
    upper = m("TMUL", m("TCVT", x.high, dtype=F32), Imm(_BASE), dtype=F32)
    lower = m("TCVT", m("TCVT", x.low, dtype=U32), dtype=F32)
    both = m("TADD", upper, lower, dtype=F32)
    found = m("TSEL", fits, m("TCVT", x.low, dtype=F32), both, dtype=F32)
    return found if dtype == F32 else m("TCVT", found, dtype=dtype)


def _of_float(m: _Wide, x: View) -> Words:
    """f32 numbers towards 0; what is beyond becomes the least or the greatest, NaN 0.

    The magnitude is a multiple of its last place, so its high word and what is left of it are exact.
    """
    whole = m("TABS", m("TTRUNC", x, dtype=F32), dtype=F32)
    over = m("TFLOOR", m("TMUL", whole, Imm(1 / _BASE), dtype=F32), dtype=F32)
    under = m("TSUB", whole, m("TMUL", over, Imm(_BASE), dtype=F32), dtype=F32)
    low = m("TCVT", m("TCVT", under, dtype=U32))
    high = m("TCVT", over)
    beyond = m("TCMP", whole, Imm(2.0**63), dtype=BOOL, mode="ge")
    magnitude = Words(m.pick(beyond, Imm(-1), low), high)
    signed = _select(m, m("TCMP", x, Imm(0.0), dtype=BOOL, mode="lt"), _neg(m, magnitude), magnitude)
    least = m("TCMP", x, Imm(-(2.0**63)), dtype=BOOL, mode="le")
    return _select(m, least, words_of(Imm(-(1 << 63))), signed)


Rule: TypeAlias = Callable[..., Words]

_RULES: dict[str, Rule | None] = {
    "TEXPANDS": lambda m, a: a,
    "TADD": _add,
    "TSUB": _sub,
    "TMUL": _mul,
    "TDIV": _quotient,
    "TFMOD": _remainder,
    "TREM": _modulo,
    "TNEG": _neg,
    "TABS": _abs,
    "TSIGN": _sign,
    "TMAX": _extreme("ge"),
    "TMIN": _extreme("le"),
    "TNOT": _wordwise("TNOT"),
    "TAND": _wordwise("TAND"),
    "TOR": _wordwise("TOR"),
    "TXOR": _wordwise("TXOR"),
    "TCMP": None,
    "TSEL": None,
}
"""By instruction: its result's words of the operands' words. Comparisons and choices take or give something else."""
