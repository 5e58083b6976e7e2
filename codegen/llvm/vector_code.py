"""Vector values and the primitive operations on them: what LLVM offers, with lane counts and constants handled.

A `Vec` is an SSA vector of any lane count (1 included). In registers f16 and bf16 values are f32 vectors that hold
exactly representable numbers, bool is a vector of i1, and 4-bit integers are i8.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass

from codegen.llvm.ranges import ANYTHING, Range
from codegen.llvm.text import Function, Value
from codegen.targets.hosts import HostClass
from codegen.tile.ir import Scalar
from tensor_types.dtypes import BOOL, F32, F64, I32, I64, DType


class UnsupportedDType(ValueError):
    """Arithmetic on a dtype that the host has no vector code for."""


@dataclass(frozen=True)
class Vec:
    """An SSA vector (or vector constant): its text, element dtype and lane count."""

    text: str
    dtype: DType
    lanes: int


_REGISTER_TYPE = {
    "f32": "float", "f64": "double", "f16": "float", "bf16": "float", "bool": "i1",
    "i4": "i8", "u4": "i8", "i8": "i8", "u8": "i8", "i16": "i16", "u16": "i16",
    "i32": "i32", "u32": "i32", "i64": "i64", "u64": "i64",
}  # fmt: skip
_MEMORY_TYPE = {**_REGISTER_TYPE, "f16": "i16", "bf16": "i16", "bool": "i8"}
_SUFFIX = {"float": "f32", "double": "f64"}


def register_type(dtype: DType) -> str:
    """LLVM element type of the dtype in a register; UnsupportedDType where it has none."""
    if dtype.name not in _REGISTER_TYPE:
        raise UnsupportedDType(f"no vector code for {dtype}: it can only be copied")
    return _REGISTER_TYPE[dtype.name]


def memory_type(dtype: DType) -> str:
    """LLVM element type of the dtype in memory; dtypes that can only be copied are integers of their size."""
    return _MEMORY_TYPE.get(dtype.name, f"i{8 * dtype.bytes}")


def vector_type(dtype: DType, lanes: int) -> str:
    """LLVM vector type of the dtype in registers."""
    return f"<{lanes} x {register_type(dtype)}>"


def scalar_constant(value: Scalar, dtype: DType) -> str:
    """The text of a scalar constant of the dtype's register type; f16 and bf16 are rounded first."""
    kind = register_type(dtype)
    if kind in ("float", "double"):
        number = _rounded(float(value), dtype)
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if kind == "i1":
        return "true" if value else "false"
    if isinstance(value, float):
        value = 0 if value != value else int(max(min(value, 2.0**64), -(2.0**64)))
    bits = dtype.bits
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if dtype.kind == "int" and wrapped >> (bits - 1) else wrapped)


_CONSTANT = re.compile(r"splat \((?:float|double) 0x([0-9A-F]{16})\)")


def constant_number(a: Vec) -> float | None:
    """The number in all lanes of a float constant; None for what is no constant, and for NaN."""
    found = _CONSTANT.fullmatch(a.text)
    if found is None:
        return None
    number = float(struct.unpack("<d", int(found[1], 16).to_bytes(8, "little"))[0])
    return None if math.isnan(number) else number


def _rounded(value: float, dtype: DType) -> float:
    """The number of the dtype that is nearest to the value."""
    if dtype == F64:
        return value
    if dtype == F32:
        try:
            return float(struct.unpack("<f", struct.pack("<f", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    import numpy as np

    with np.errstate(all="ignore"):
        return float(np.asarray(value).astype(dtype.numpy))


class VectorCode:
    """Emits primitive vector operations into a function for one host class."""

    def __init__(self, fn: Function, host: HostClass) -> None:
        self.fn = fn
        self.host = host
        self.ranges: dict[str, Range] = {}
        """Of float vectors, by their text."""
        self.unrounded: dict[str, Vec] = {}
        """By the text of a float vector rounded to nearest even: the vector that was rounded."""

    def range_of(self, a: Vec) -> Range:
        """What is known of a float vector."""
        if (number := constant_number(a)) is not None:
            return Range(number, number, True)
        return self.ranges.get(a.text, ANYTHING)

    def const(self, value: Scalar, dtype: DType, lanes: int) -> Vec:
        """A vector constant with the value in all lanes."""
        return Vec(f"splat ({register_type(dtype)} {scalar_constant(value, dtype)})", dtype, lanes)

    def scalar(self, value: Value, dtype: DType) -> Vec:
        """A size, an i64, as one element of an integer dtype, in which it wraps."""
        if isinstance(value, int):
            return self.const(value, dtype, 1)
        kind = register_type(dtype)
        if kind != "i64":
            value = self.fn.emit(f"trunc i64 {value} to {kind}")
        return Vec(self.fn.emit(f"insertelement <1 x {kind}> poison, {kind} {value}, i32 0"), dtype, 1)

    def like(self, value: Scalar, other: Vec) -> Vec:
        """A constant of the dtype and lanes of another vector."""
        return self.const(value, other.dtype, other.lanes)

    def typed(self, a: Vec) -> str:
        """'type value' as LLVM wants its operands."""
        return f"{vector_type(a.dtype, a.lanes)} {a.text}"

    def op(self, name: str, a: Vec, b: Vec) -> Vec:
        """A two-operand LLVM instruction such as fadd, add, shl, and."""
        return Vec(self.fn.emit(f"{name} {self.typed(a)}, {b.text}"), a.dtype, a.lanes)

    def neg(self, a: Vec) -> Vec:
        if register_type(a.dtype) in _SUFFIX:
            return Vec(self.fn.emit(f"fneg {self.typed(a)}"), a.dtype, a.lanes)
        return self.op("sub", self.like(0, a), a)

    def compare(self, predicate: str, a: Vec, b: Vec) -> Vec:
        """fcmp or icmp, by the dtype; the predicate is LLVM's ('oeq', 'slt')."""
        kind = "fcmp" if register_type(a.dtype) in _SUFFIX else "icmp"
        return Vec(self.fn.emit(f"{kind} {predicate} {self.typed(a)}, {b.text}"), BOOL, a.lanes)

    def select(self, condition: Vec, a: Vec, b: Vec) -> Vec:
        return Vec(self.fn.emit(f"select {self.typed(condition)}, {self.typed(a)}, {self.typed(b)}"), a.dtype, a.lanes)

    def cast(self, name: str, a: Vec, dtype: DType) -> Vec:
        """An LLVM cast instruction such as bitcast, sext, fptrunc; none when the register types agree."""
        source, wanted = vector_type(a.dtype, a.lanes), vector_type(dtype, a.lanes)
        if source == wanted:
            return Vec(a.text, dtype, a.lanes)
        return Vec(self.fn.emit(f"{name} {source} {a.text} to {wanted}"), dtype, a.lanes)

    def bits(self, a: Vec) -> Vec:
        """The bits of a float vector as signed integers of the same width."""
        return self.cast("bitcast", a, I64 if a.dtype == F64 else I32)

    def from_bits(self, a: Vec) -> Vec:
        """A float vector of the given bits."""
        return self.cast("bitcast", a, F64 if a.dtype.bits == 64 else F32)

    def call(self, intrinsic: str, *args: Vec, extra: tuple[str, ...] = ()) -> Vec:
        """A vector intrinsic that is overloaded on the type of its first argument."""
        first = args[0]
        kind = register_type(first.dtype)
        name = f"{intrinsic}.v{first.lanes}{_SUFFIX.get(kind, kind)}"
        text = self.fn.call(vector_type(first.dtype, first.lanes), name, *(self.typed(a) for a in args), *extra)
        return Vec(text, first.dtype, first.lanes)

    def fma(self, a: Vec, b: Vec, c: Vec) -> Vec:
        """a*b + c: fused where the class has FMA, else two roundings (never a call)."""
        if self.host.engines.fma:
            return self.call("llvm.fma", a, b, c)
        return self.op("fadd", self.op("fmul", a, b), c)

    def horner(self, x: Vec, coefficients: list[float]) -> Vec:
        """A polynomial, highest power first."""
        total = self.like(coefficients[0], x)
        for c in coefficients[1:]:
            total = self.fma(total, x, self.like(c, x))
        return total

    def round_even(self, a: Vec) -> Vec:
        rounded = self.call("llvm.roundeven", a)
        self.unrounded[rounded.text] = a
        return rounded

    def abs(self, a: Vec) -> Vec:
        return self.call("llvm.fabs", a)

    def broadcast(self, a: Vec, lanes: int) -> Vec:
        """A one-lane vector in all of `lanes` lanes; a constant just changes its count."""
        if a.lanes == lanes:
            return a
        if a.text.startswith("splat"):
            return Vec(a.text, a.dtype, lanes)
        kind = vector_type(a.dtype, 1)
        text = self.fn.emit(f"shufflevector {kind} {a.text}, {kind} poison, <{lanes} x i32> zeroinitializer")
        return Vec(text, a.dtype, lanes)

    def shuffle(self, a: Vec, b: Vec, lanes: list[int]) -> Vec:
        """Lanes of the concatenation of two vectors."""
        mask = ", ".join(f"i32 {i}" for i in lanes)
        text = self.fn.emit(f"shufflevector {self.typed(a)}, {self.typed(b)}, <{len(lanes)} x i32> <{mask}>")
        return Vec(text, a.dtype, len(lanes))

    def widen(self, a: Vec, fill: Vec) -> Vec:
        """`a` in the low lanes, the lanes of `fill` (a constant) above."""
        if a.lanes == fill.lanes:
            return a
        low = Vec(fill.text, fill.dtype, a.lanes)
        return self.shuffle(a, low, [i if i < a.lanes else a.lanes for i in range(fill.lanes)])

    def extract(self, a: Vec, lane: int | str) -> str:
        """A scalar SSA value of one lane."""
        return self.fn.emit(f"extractelement {self.typed(a)}, i64 {lane}")

    def from_scalar(self, scalar: str, dtype: DType) -> Vec:
        """A one-lane vector of a scalar SSA value."""
        kind = register_type(dtype)
        return Vec(self.fn.emit(f"insertelement <1 x {kind}> poison, {kind} {scalar}, i64 0"), dtype, 1)

    def lane_mask(self, remaining: int | str, lanes: int) -> Vec:
        """i1 lanes that are set for lane numbers below `remaining`."""
        if isinstance(remaining, int):
            text = "<" + ", ".join(f"i1 {'true' if i < remaining else 'false'}" for i in range(lanes)) + ">"
            return Vec(text, BOOL, lanes)
        clipped = self.fn.minimum(remaining, lanes)
        narrow = self.fn.emit(f"trunc i64 {clipped} to i32")
        limit = self.broadcast(self.from_scalar(narrow, I32), lanes)
        numbers = "<" + ", ".join(f"i32 {i}" for i in range(lanes)) + ">"
        return Vec(self.fn.emit(f"icmp ugt <{lanes} x i32> {limit.text}, {numbers}"), BOOL, lanes)
