"""Multiply-add on 8-bit integers: several k at once, as the instruction sets offer it.

Two ways in which b can hand over consecutive k for one column:
- *quads*: b is packed [k/4][n][4], so its innermost k axis has extent 4 and unit stride, and n steps by 4. Four
  products per 32-bit lane: the dot product of bytes of the class (vpdpbusd, sdot, udot, usdot), else two vpmaddwd on
  the even and the odd bytes.
- *pairs*: rows of b are contiguous (a plain panel). Two rows are interleaved as they are loaded, for vpmaddwd.

Everything is exact modulo 2**32. Classes without these instructions widen each element (`Elements`) or each byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.llvm.cube_elements import Elements, Factor
from codegen.llvm.cube_reduction import ReductionAxis
from codegen.llvm.text import Function, Value
from codegen.targets.hosts import HostClass
from tensor_types.dtypes import DType

_PAIR_PRODUCT = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
_VPDPBUSD = {8: "llvm.x86.avx512.vpdpbusd.256", 16: "llvm.x86.avx512.vpdpbusd.512"}
_EDGE = f"splat (i32 {0x80808080 - (1 << 32)})"
"""Bytes of 128, or of -128."""


def byte_elements(
    target: HostClass, a: DType, b: DType, acc: DType, axes: Sequence[ReductionAxis], n_step: Value
) -> tuple[Elements, list[ReductionAxis]] | None:
    """(elements, axes) for 8-bit operands that can be multiplied several k at a time, else None.

    The axes returned are those of `axes` (merged, outermost first) with the grouped k taken out of the innermost one.
    """
    if not axes or any(t.bits != 8 or not t.is_integer for t in (a, b)) or acc.bits != 32:
        return None
    inner = axes[-1]
    if inner == ReductionAxis(4, 1, 1) and n_step == 4:
        return ByteQuads(target, acc, a, b), list(axes[:-1])
    even = isinstance(inner.extent, int) and inner.extent % 2 == 0
    if target.architecture == "x86_64" and even and n_step == 1 and inner.a == 1 and isinstance(inner.b, int):
        assert isinstance(inner.extent, int)
        halved = ReductionAxis(inner.extent // 2, 2, 2 * inner.b)
        return BytePairs(target, acc, inner.b), [*axes[:-1], halved]
    return None


class BytePairs(Elements):
    """Two k per step from two contiguous rows of b, `row_step` elements apart."""

    group = 2

    def __init__(self, target: HostClass, acc: DType, row_step: int) -> None:
        super().__init__(target, acc)
        self.row_step = row_step
        self.words = f"<{2 * self.lanes} x i16>"
        self.bytes = f"<{2 * self.lanes} x i8>"

    def load(self, fn: Function, pointer: str, dtype: DType, step: Value = 1, mask: str | None = None) -> Factor:
        half = f"<{self.lanes} x i8>"
        rows = [self.load_stored(fn, fn.offset(pointer, at, "i8"), dtype, step, mask) for at in (0, self.row_step)]
        order = ", ".join(f"i32 {lane + row * self.lanes}" for lane in range(self.lanes) for row in (0, 1))
        mixed = fn.emit(f"shufflevector {half} {rows[0]}, {half} {rows[1]}, <{2 * self.lanes} x i32> <{order}>")
        return self._extend(fn, mixed, dtype)

    def broadcast(self, fn: Function, pointer: str, dtype: DType) -> Factor:
        pair = fn.splat(fn.load("i16", pointer), "i16", self.lanes)
        return self._extend(fn, fn.emit(f"bitcast <{self.lanes} x i16> {pair} to {self.bytes}"), dtype)

    def multiply_add(self, fn: Function, a: Factor, b: Factor, c: str) -> str:
        product = fn.call(self.vector, _PAIR_PRODUCT[self.lanes], f"{self.words} {a}", f"{self.words} {b}")
        return self.add(fn, c, product)

    def _extend(self, fn: Function, value: str, dtype: DType) -> str:
        return fn.emit(f"{'sext' if dtype.kind == 'int' else 'zext'} {self.bytes} {value} to {self.words}")


@dataclass(frozen=True)
class QuadDot:
    """An instruction for four products in a 32-bit lane, and what makes the operands suit its signs.

    `swapped`: it takes b as its first factor. `a_moves`: the bytes of a move by 128 to the other signedness, and the
    sums exceed the real ones by those of `edges()`, which are the same for all rows. `b_moves`: those of b move; what
    the sums lack, 128 times the bytes of a, is subtracted step by step.
    """

    callee: str
    bytes: bool
    """Its factors are vectors of bytes, else of 32-bit words."""
    swapped: bool = False
    a_moves: bool = False
    b_moves: bool = False


def quad_dot(target: HostClass, lanes: int, a: DType, b: DType) -> QuadDot | None:
    """How a class multiplies bytes of these two signednesses, or None if it has no instruction for it."""
    signs = (a.kind, b.kind)
    engines = target.engines
    if target.architecture == "x86_64" and engines.dot_u8s8 and lanes in _VPDPBUSD:
        same = {"a_moves": signs == ("int", "int"), "b_moves": signs == ("uint", "uint")}
        return QuadDot(_VPDPBUSD[lanes], False, swapped=signs == ("int", "uint"), **same)
    if target.architecture != "aarch64" or lanes != 4 or not engines.dot_same_sign:
        return None
    if a.kind != b.kind and engines.dot_u8s8:
        return QuadDot("llvm.aarch64.neon.usdot.v4i32.v16i8", True, swapped=a.kind == "int")
    if a.kind == b.kind == "uint":
        return QuadDot("llvm.aarch64.neon.udot.v4i32.v16i8", True)
    return QuadDot("llvm.aarch64.neon.sdot.v4i32.v16i8", True, a_moves=a.kind == "uint", b_moves=b.kind == "uint")


class ByteQuads(Elements):
    """Four k per step from one 32-bit lane of a and of b."""

    group = 4
    packed = True

    def __init__(self, target: HostClass, acc: DType, a: DType, b: DType) -> None:
        super().__init__(target, acc)
        self.a, self.b, self.target = a, b, target
        self.dot = quad_dot(target, self.lanes, a, b)
        self.pairs = target.architecture == "x86_64"
        self.words = f"<{2 * self.lanes} x i16>"

    def edges(self) -> Elements | None:
        """Elements that take every byte of a for 128 or -128, where a moves up or down by as much; else None."""
        moves = self.dot is not None and self.dot.a_moves
        return _Edges(self.target, self.acc, self.a, self.b) if moves else None

    def load(self, fn: Function, pointer: str, dtype: DType, step: Value = 4, mask: str | None = None) -> Factor:
        if mask:
            name = f"llvm.masked.load.v{self.lanes}i32.p0"
            quads = fn.call(self.vector, name, f"ptr align 1 {pointer}", mask, f"{self.vector} zeroinitializer")
        else:
            quads = fn.load(self.vector, pointer)
        if self.dot is None:
            return self._split(fn, quads, dtype)
        return self._moved(fn, quads) if self.dot.b_moves else quads

    def broadcast(self, fn: Function, pointer: str, dtype: DType) -> Factor:
        quads = fn.splat(fn.load("i32", pointer), "i32", self.lanes)
        if self.dot is None:
            return self._split(fn, quads, dtype)
        if self.dot.b_moves:
            return quads, self._dot(fn, self.dot, "zeroinitializer", quads, _EDGE)
        return self._moved(fn, quads) if self.dot.a_moves else quads

    def multiply_add(self, fn: Function, a: Factor, b: Factor, c: str) -> str:
        if self.dot is not None:
            if self.dot.b_moves:
                left, lacking = a
                return fn.emit(f"sub {self.vector} {self._dot(fn, self.dot, c, left, b)}, {lacking}")
            return self._dot(fn, self.dot, c, a, b)
        for left, right in zip(a, b, strict=True):
            if self.pairs:
                product = fn.call(
                    self.vector, _PAIR_PRODUCT[self.lanes], f"{self.words} {left}", f"{self.words} {right}"
                )
            else:
                product = fn.emit(f"mul {self.vector} {left}, {right}")
            c = self.add(fn, c, product)
        return c

    def _dot(self, fn: Function, dot: QuadDot, c: str, a: str, b: str) -> str:
        t = self.vector
        factors = [b, a] if dot.swapped else [a, b]
        if not dot.bytes:
            return fn.call(t, dot.callee, f"{t} {c}", *(f"{t} {factor}" for factor in factors))
        wide = f"<{4 * self.lanes} x i8>"
        cast = [fn.emit(f"bitcast {t} {factor} to {wide}") for factor in factors]
        return fn.call(t, dot.callee, f"{t} {c}", *(f"{wide} {factor}" for factor in cast))

    def _moved(self, fn: Function, quads: str) -> str:
        """Bytes between signed and unsigned ones, 128 apart: the top bit flips."""
        return fn.emit(f"xor {self.vector} {quads}, {_EDGE}")

    def _split(self, fn: Function, quads: str, dtype: DType) -> Factor:
        """The bytes as vectors that multiply lane by lane: even and odd ones as 16-bit words, or four of 32 bits."""
        right = "ashr" if dtype.kind == "int" else "lshr"
        if self.pairs:
            w = self.words
            words = fn.emit(f"bitcast {self.vector} {quads} to {w}")
            even = fn.emit(f"{right} {w} {fn.emit(f'shl {w} {words}, splat (i16 8)')}, splat (i16 8)")
            return even, fn.emit(f"{right} {w} {words}, splat (i16 8)")
        t = self.vector
        parts = []
        for byte in range(4):
            high = fn.emit(f"shl {t} {quads}, splat (i32 {24 - 8 * byte})") if byte < 3 else quads
            parts.append(fn.emit(f"{right} {t} {high}, splat (i32 24)"))
        return tuple(parts)


class _Edges(ByteQuads):
    """Every byte of a is 128."""

    def broadcast(self, fn: Function, pointer: str, dtype: DType) -> Factor:
        return _EDGE
