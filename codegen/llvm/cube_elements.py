"""How elements in memory become vector lanes of the accumulator, and the multiply-add of two of them.

One `Elements` serves one matmul: it loads vectors of b and of the initial value, broadcasts elements of a, widens both
to the accumulator's type and multiplies and adds. Everything that differs between dtypes and host classes is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from codegen.llvm.cube_registers import LATENCY_CHAINS
from codegen.llvm.text import Function, Value
from codegen.targets.hosts import HostClass
from tensor_types.dtypes import DType

_LLVM_TYPE = {
    "f32": "float", "f64": "double", "f16": "half", "bf16": "i16", "i8": "i8", "u8": "i8", "i16": "i16", "u16": "i16",
    "i32": "i32", "u32": "i32", "i64": "i64", "u64": "i64", "bool": "i8",
}  # fmt: skip
_SUFFIX = {"float": "f32", "double": "f64", "half": "f16"}


Factor: TypeAlias = Any
"""What `load` and `broadcast` hand to `multiply_add`: an SSA vector, or a tuple where a factor has several parts."""


class Elements:
    """Loads, broadcasts, widening and multiply-add towards accumulators of dtype `acc` on one target."""

    group = 1
    """Consecutive k per multiply-add."""
    packed = False
    """The consecutive k of one column lie together in b."""
    parts = 1
    """Multiply-adds that one factor of b takes, each with a part of it and a broadcast of its own."""
    chains = LATENCY_CHAINS
    """Independent accumulators that hide the latency of a multiply-add."""
    most_rows = 0
    """Rows of a register tile at most; 0 where accumulators alone decide."""

    def __init__(self, target: HostClass, acc: DType) -> None:
        self.acc = acc
        self.lanes = target.vector_bytes // acc.bytes
        self.type = _LLVM_TYPE[acc.name]
        self.vector = f"<{self.lanes} x {self.type}>"
        self.fused = target.engines.fma
        self.native_half = target.engines.f16_conversion
        """Without half conversions (F16C) llvm would call a library function for each element."""

    def for_rows(self, rows: int, vectors: int) -> Elements:
        """The elements for register tiles of so many rows and vectors."""
        return self

    def part_of(self, fn: Function, factor: Factor, part: int) -> Factor:
        """Part number `part` of a factor of b."""
        return factor

    def broadcast_part(self, fn: Function, pointer: str, dtype: DType, part: int) -> Factor:
        """The factor of a for that part; `pointer` is at the first k of the step."""
        return self.broadcast(fn, pointer, dtype)

    def storage(self, dtype: DType) -> str:
        """The LLVM type in which elements of `dtype` are loaded."""
        return "i16" if dtype.name == "f16" and not self.native_half else _LLVM_TYPE[dtype.name]

    def multiply_add(self, fn: Function, a: Factor, b: Factor, c: str) -> str:
        """a * b + c on vectors of the accumulator's type; one rounding where the target has FMA, else two."""
        t = self.vector
        if not self.acc.is_float:
            return fn.emit(f"add {t} {c}, {fn.emit(f'mul {t} {a}, {b}')}")
        if not self.fused:
            return fn.emit(f"fadd {t} {c}, {fn.emit(f'fmul {t} {a}, {b}')}")
        return fn.call(t, f"llvm.fma.v{self.lanes}{_SUFFIX[self.type]}", f"{t} {a}", f"{t} {b}", f"{t} {c}")

    def add(self, fn: Function, a: str, b: str) -> str:
        """The sum of two accumulator vectors."""
        return fn.emit(f"{'fadd' if self.acc.is_float else 'add'} {self.vector} {a}, {b}")

    def broadcast(self, fn: Function, pointer: str, dtype: DType) -> Factor:
        """One element of `dtype` at `pointer`, widened, in every lane."""
        scalar = fn.load(self.storage(dtype), pointer, dtype.bytes)
        return fn.splat(self._widen(fn, scalar, dtype, 0), self.type, self.lanes)

    def load(self, fn: Function, pointer: str, dtype: DType, step: Value = 1, mask: str | None = None) -> Factor:
        """A vector of elements of `dtype`, `step` elements apart, widened; lanes outside the mask are not read."""
        return self._widen(fn, self.load_stored(fn, pointer, dtype, step, mask), dtype, self.lanes)

    def load_stored(self, fn: Function, pointer: str, dtype: DType, step: Value, mask: str | None) -> str:
        """The vector as it is stored."""
        storage = self.storage(dtype)
        narrow = f"<{self.lanes} x {storage}>"
        suffix = f"v{self.lanes}{_SUFFIX.get(storage, storage)}"
        if step != 1:
            lanes = range(self.lanes)
            if isinstance(step, int):
                offsets = "<" + ", ".join(f"i64 {lane * step}" for lane in lanes) + ">"
            else:
                iota = "<" + ", ".join(f"i64 {lane}" for lane in lanes) + ">"
                wide = f"<{self.lanes} x i64>"
                offsets = fn.emit(f"mul {wide} {fn.splat(step, 'i64', self.lanes)}, {iota}")
            pointers = fn.emit(f"getelementptr {storage}, ptr {pointer}, <{self.lanes} x i64> {offsets}")
            chosen = mask or f"<{self.lanes} x i1> splat (i1 true)"
            loaded = fn.call(
                narrow, f"llvm.masked.gather.{suffix}.v{self.lanes}p0",
                f"<{self.lanes} x ptr> align {dtype.bytes} {pointers}", chosen, f"{narrow} zeroinitializer",
            )  # fmt: skip
        elif mask:
            name = f"llvm.masked.load.{suffix}.p0"
            loaded = fn.call(narrow, name, f"ptr align {dtype.bytes} {pointer}", mask, f"{narrow} zeroinitializer")
        else:
            loaded = fn.load(narrow, pointer, dtype.bytes)
        return loaded

    def _widen(self, fn: Function, value: str, dtype: DType, lanes: int) -> str:
        """`value`, a vector of `lanes` elements (0: a scalar) as loaded, in the accumulator's type."""

        def typed(element: str) -> str:
            return f"<{lanes} x {element}>" if lanes else element

        def constant(number: int) -> str:
            return f"splat (i32 {number})" if lanes else str(number)

        def convert(op: str, from_: str, what: str, to: str) -> str:
            return fn.emit(f"{op} {typed(from_)} {what} to {typed(to)}")

        storage = self.storage(dtype)
        if dtype.name == "bf16":
            bits = fn.emit(f"shl {typed('i32')} {convert('zext', 'i16', value, 'i32')}, {constant(16)}")
            value, storage = convert("bitcast", "i32", bits, "float"), "float"
        elif dtype.name == "f16":
            if self.native_half:
                value = convert("fpext", "half", value, "float")
            else:
                value = _half_to_float(fn, value, typed, constant)
            storage = "float"
        if storage == self.type:
            return value
        if storage == "float" and self.type == "double":
            return convert("fpext", "float", value, "double")
        signed = dtype.kind == "int"
        if self.acc.is_float:
            return convert("sitofp" if signed else "uitofp", storage, value, self.type)
        return convert("sext" if signed else "zext", storage, value, self.type)


def _half_to_float(fn: Function, value: str, typed: Callable[[str], str], constant: Callable[[int], str]) -> str:
    """f16 bits to f32 with integer operations: exponent and mantissa shifted into place, then scaled by 2**112.

    The product normalises denormals; infinities and NaNs get the full exponent back.
    """
    i32, f32 = typed("i32"), typed("float")
    bits = fn.emit(f"zext {typed('i16')} {value} to {i32}")
    magnitude = fn.emit(f"and {i32} {bits}, {constant(0x7FFF)}")
    shifted = fn.emit(f"shl {i32} {magnitude}, {constant(13)}")
    as_float = fn.emit(f"bitcast {i32} {shifted} to {f32}")
    two_to_112 = "0x46F0000000000000"
    scale = f"splat (float {two_to_112})" if i32.startswith("<") else two_to_112
    scaled = fn.emit(f"bitcast {f32} {fn.emit(f'fmul {f32} {as_float}, {scale}')} to {i32}")
    special = fn.emit(f"icmp uge {i32} {magnitude}, {constant(0x7C00)}")
    full = fn.emit(f"or {i32} {shifted}, {constant(0x7F800000)}")
    condition = typed("i1")
    chosen = fn.emit(f"select {condition} {special}, {i32} {full}, {i32} {scaled}")
    sign = fn.emit(f"shl {i32} {fn.emit(f'and {i32} {bits}, {constant(0x8000)}')}, {constant(16)}")
    return fn.emit(f"bitcast {i32} {fn.emit(f'or {i32} {chosen}, {sign}')} to {f32}")
