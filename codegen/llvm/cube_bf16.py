"""Multiply-add on bf16 numbers two k at a time, where the host class has an instruction for it.

Two ways in which b can hand over consecutive k for one column: *pairs*, packed [k/2][n][2], so that its innermost k
axis has extent 2 and unit stride, and n steps by 2; or *rows*, a plain panel of which two rows are interleaved as they
are loaded. Sums stay in f32. The instructions take denormal numbers for zero and round in an order of their own, within
the bound of an f32 sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen.llvm.cube_elements import Elements, Factor
from codegen.llvm.cube_reduction import ReductionAxis
from codegen.llvm.text import Function, Value
from codegen.targets.hosts import HostClass
from tensor_types.dtypes import BF16, F32, DType

_PAIR_PRODUCT = {
    ("x86_64", 8): "llvm.x86.avx512bf16.dpbf16ps.256",
    ("x86_64", 16): "llvm.x86.avx512bf16.dpbf16ps.512",
    ("aarch64", 4): "llvm.aarch64.neon.bfdot.v4f32.v8bf16",
}
"""By architecture and f32 lanes."""


def bf16_elements(
    target: HostClass, a: DType, b: DType, acc: DType, axes: Sequence[ReductionAxis], n_step: Value
) -> tuple[Elements, list[ReductionAxis]] | None:
    """(elements, axes) for bf16 operands that can be multiplied two k at a time, else None; as `byte_elements`."""
    if not target.engines.dot_bf16 or not axes or (a, b, acc) != (BF16, BF16, F32):
        return None
    inner = axes[-1]
    if inner == ReductionAxis(2, 1, 1) and n_step == 2:
        return Bf16Pairs(target), list(axes[:-1])
    even = isinstance(inner.extent, int) and inner.extent % 2 == 0
    if even and n_step == 1 and inner.a == 1 and isinstance(inner.b, int):
        assert isinstance(inner.extent, int)
        return Bf16Rows(target, inner.b), [*axes[:-1], ReductionAxis(inner.extent // 2, 2, 2 * inner.b)]
    return None


class Bf16Pairs(Elements):
    """Two k per step from one 32-bit lane of a and of b."""

    group = 2
    packed = True
    chains = 16
    """The instruction takes six cycles in two pipes."""

    def __init__(self, target: HostClass) -> None:
        super().__init__(target, F32)
        self.callee = _PAIR_PRODUCT[target.architecture, self.lanes]
        self.numbers = f"<{2 * self.lanes} x bfloat>"

    def load(self, fn: Function, pointer: str, dtype: DType, step: Value = 2, mask: str | None = None) -> Factor:
        words = f"<{self.lanes} x i32>"
        if mask:
            name = f"llvm.masked.load.v{self.lanes}i32.p0"
            pairs = fn.call(words, name, f"ptr align 2 {pointer}", mask, f"{words} zeroinitializer")
        else:
            pairs = fn.load(words, pointer, 2)
        return fn.emit(f"bitcast {words} {pairs} to {self.numbers}")

    def broadcast(self, fn: Function, pointer: str, dtype: DType) -> Factor:
        pair = fn.splat(fn.load("i32", pointer, 2), "i32", self.lanes)
        return fn.emit(f"bitcast <{self.lanes} x i32> {pair} to {self.numbers}")

    def multiply_add(self, fn: Function, a: Factor, b: Factor, c: str) -> str:
        return fn.call(self.vector, self.callee, f"{self.vector} {c}", f"{self.numbers} {a}", f"{self.numbers} {b}")


class Bf16Rows(Bf16Pairs):
    """Two k per step from two contiguous rows of b, `row_step` elements apart."""

    packed = False

    def __init__(self, target: HostClass, row_step: int) -> None:
        super().__init__(target)
        self.row_step = row_step

    def load(self, fn: Function, pointer: str, dtype: DType, step: Value = 1, mask: str | None = None) -> Factor:
        row = f"<{self.lanes} x i16>"
        rows = [self.load_stored(fn, fn.offset(pointer, at, "i16"), dtype, 1, mask) for at in (0, self.row_step)]
        order = ", ".join(f"i32 {lane + half * self.lanes}" for lane in range(self.lanes) for half in (0, 1))
        mixed = fn.emit(f"shufflevector {row} {rows[0]}, {row} {rows[1]}, <{2 * self.lanes} x i32> <{order}>")
        return fn.emit(f"bitcast <{2 * self.lanes} x i16> {mixed} to {self.numbers}")
