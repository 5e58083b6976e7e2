"""Multiply-add on codes of 2 or 4 bits that lie in 32-bit words, a word for each column of n: `bits` of TMATMUL.

A step takes a word of each column. Towards numbers, each code is masked out of its word and converted; a single row is
scaled instead of the codes being shifted. Towards bytes, codes at the same place of the word's four bytes are a quad:
code j lies in byte j % 4, so that consecutive k of a are their partners.
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen.llvm.cube_bytes import ByteQuads, QuadDot
from codegen.llvm.cube_elements import Elements, Factor
from codegen.llvm.cube_reduction import ReductionAxis
from codegen.llvm.text import Function, Value
from codegen.targets.hosts import HostClass
from codegen.tile.instructions import code_shifts
from tensor_types.dtypes import I8, U8, DType

_BYTE_PRODUCT = {
    4: "llvm.x86.ssse3.pmadd.ub.sw.128", 8: "llvm.x86.avx2.pmadd.ub.sw", 16: "llvm.x86.avx512.pmaddubs.w.512",
}  # fmt: skip
_WORD_PRODUCT = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
_NEON_LANES = 4
_MOST_BYTE_ROWS = 4
"""The words' quads and those of a row need registers beside the accumulators."""


def code_elements(
    target: HostClass, a: DType, acc: DType, bits: int, axes: Sequence[ReductionAxis]
) -> tuple[Elements, list[ReductionAxis]]:
    """(elements, axes) for words of codes; the innermost of `axes`, the codes of a word, is taken out.

    ValueError if a's elements for the codes of a word do not lie side by side.
    """
    if not axes or axes[-1].extent != 32 // bits or axes[-1].a != 1:
        raise ValueError("the k of a word lie side by side in a")
    rest = list(axes[:-1])
    if acc.is_float:
        return CodeNumbers(target, acc, bits), rest
    return CodeQuads(target, acc, bits, a), rest


class CodeNumbers(Elements):
    """Codes as numbers of the accumulator's dtype. A factor of b is the vector of words."""

    packed = True

    def __init__(self, target: HostClass, acc: DType, bits: int, scaled: bool = False) -> None:
        super().__init__(target, acc)
        self.target, self.bits, self.scaled = target, bits, scaled
        self.shifts = code_shifts(bits)
        self.parts = len(self.shifts)
        self.words = f"<{self.lanes} x i32>"

    def for_rows(self, rows: int, vectors: int) -> Elements:
        # Scaling costs one instruction for each row and code, shifting one for each vector and code.
        return CodeNumbers(self.target, self.acc, self.bits, scaled=rows < vectors)

    def load(self, fn: Function, pointer: str, dtype: DType, step: Value = 1, mask: str | None = None) -> Factor:
        return self.load_stored(fn, pointer, dtype, step, mask)

    def part_of(self, fn: Function, factor: Factor, part: int) -> Factor:
        shift, words = self.shifts[part], self.words
        code = (1 << self.bits) - 1
        if shift + self.bits == 32:
            value = fn.emit(f"lshr {words} {factor}, splat (i32 {shift})")
        elif self.scaled:
            value = fn.emit(f"and {words} {factor}, splat (i32 {code << shift})")
        else:
            moved = fn.emit(f"lshr {words} {factor}, splat (i32 {shift})") if shift else factor
            value = fn.emit(f"and {words} {moved}, splat (i32 {code})")
        return fn.emit(f"sitofp {words} {value} to {self.vector}")

    def broadcast_part(self, fn: Function, pointer: str, dtype: DType, part: int) -> Factor:
        shift = self.shifts[part]
        scalar = self._widen(fn, fn.load(self.storage(dtype), fn.offset(pointer, part, self.storage(dtype)),
                                         dtype.bytes), dtype, 0)  # fmt: skip
        vector = fn.splat(scalar, self.type, self.lanes)
        if self.scaled and 0 < shift < 32 - self.bits:
            vector = fn.emit(f"fmul {self.vector} {vector}, splat ({self.type} {_power(-shift)})")
        return vector


class CodeQuads(ByteQuads):
    """Codes multiplied with bytes, as those of the other signedness: their top bit is clear.

    A factor of b is the vector of words.
    """

    group = 1

    def __init__(self, target: HostClass, acc: DType, bits: int, a: DType) -> None:
        super().__init__(target, acc, a, U8 if a.kind == "int" else I8)
        self.bits = bits
        self.parts = 8 // bits
        self.most_rows = _MOST_BYTE_ROWS
        if target.architecture == "aarch64" and target.engines.dot_same_sign and self.lanes == _NEON_LANES:
            dot = "sdot" if a.kind == "int" else "udot"  # of one signedness, which codes have as well
            self.dot = QuadDot(f"llvm.aarch64.neon.{dot}.v4i32.v16i8", True)

    def edges(self) -> Elements | None:
        return None

    def load(self, fn: Function, pointer: str, dtype: DType, step: Value = 1, mask: str | None = None) -> Factor:
        return self.load_stored(fn, pointer, dtype, step, mask)

    def part_of(self, fn: Function, factor: Factor, part: int) -> Factor:
        t, code = self.vector, (1 << self.bits) - 1
        moved = fn.emit(f"lshr {t} {factor}, splat (i32 {part * self.bits})") if part else factor
        return fn.emit(f"and {t} {moved}, splat (i32 {code * 0x01010101})")

    def broadcast_part(self, fn: Function, pointer: str, dtype: DType, part: int) -> Factor:
        return fn.splat(fn.load("i32", fn.offset(pointer, 4 * part, "i8")), "i32", self.lanes)

    def multiply_add(self, fn: Function, a: Factor, b: Factor, c: str) -> str:
        if self.dot is not None:
            return self._dot(fn, self.dot, c, a, b)
        t = self.vector
        if self.pairs:
            wide = f"<{4 * self.lanes} x i8>"
            order = (b, a) if self.a.kind == "int" else (a, b)  # unsigned bytes first
            right, left = (fn.emit(f"bitcast {t} {factor} to {wide}") for factor in order)
            # No sum of two products of a code and a byte leaves 16 bits.
            words = fn.call(self.words, _BYTE_PRODUCT[self.lanes], f"{wide} {right}", f"{wide} {left}")
            ones = f"{self.words} splat (i16 1)"
            return self.add(fn, c, fn.call(t, _WORD_PRODUCT[self.lanes], f"{self.words} {words}", ones))
        for left, right in zip(self._split(fn, a, self.a), self._split(fn, b, U8), strict=True):
            c = self.add(fn, c, fn.emit(f"mul {t} {left}, {right}"))
        return c


def _power(exponent: int) -> str:
    """2 ** exponent as LLVM writes a float, which is by its bits in double precision."""
    return f"0x{(1023 + exponent) << 52:016X}"
