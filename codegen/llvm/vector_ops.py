"""Element-wise instructions on vectors: one instruction and its operand vectors in, the result vector out.

The same evaluator serves loops over tiles and the epilogues of matrix products.
"""

from __future__ import annotations

import math

from codegen.llvm import vector_math
from codegen.llvm.conversions import convert, is_reduced, narrow_to_nibble, round_to
from codegen.llvm.ranges import ANYTHING, of_operation
from codegen.llvm.vector_code import Vec, VectorCode, constant_number
from codegen.tile.ir import Imm, Instr
from tensor_types.dtypes import BOOL, F32, F64, DType

MOVES = {"TLOAD", "TSTORE", "TMOV", "TEXTRACT", "TTRANS", "TEXPANDS"}
"""Instructions that copy, and may convert as TCVT does."""

_FLOAT = {"TADD": "fadd", "TSUB": "fsub", "TMUL": "fmul", "TDIV": "fdiv"}
_INTEGER = {"TADD": "add", "TSUB": "sub", "TMUL": "mul", "TAND": "and", "TOR": "or", "TXOR": "xor"}
_EXACT = frozenset(("TABS", "TNEG", "TMAX", "TMIN", "TRELU", "TSIGN"))
"""Of numbers that f16 or bf16 hold they give such numbers."""
_ROUNDING = {"TFLOOR": "llvm.floor", "TCEIL": "llvm.ceil", "TTRUNC": "llvm.trunc"}
_COMPARE_FLOAT = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_COMPARE_SIGNED = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_COMPARE_UNSIGNED = {"eq": "eq", "ne": "ne", "lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge"}


class UnsupportedInstruction(ValueError):
    """An instruction on a dtype that has no native code."""


def source_dtype(instr: Instr, views: list[DType], dst: DType) -> DType:
    """The dtype that immediates of an instruction take; `views` are the dtypes of its view operands in order."""
    if instr.op == "TSEL":
        views = views[1:] if instr.srcs and not isinstance(instr.srcs[0], Imm) else views
    return views[0] if views else dst


def evaluate(code: VectorCode, instr: Instr, operands: list[Vec], dtype: DType) -> Vec:
    """The result of an element-wise or moving instruction in `dtype`.

    Operands have register form and agree in dtype where the instruction asks for it; one-lane operands are repeated.
    """
    lanes = max((a.lanes for a in operands), default=1)
    args = [code.broadcast(a, lanes) for a in operands]
    if instr.op == "TCVT":
        return convert(code, args[0], dtype, bool(instr.attr("round")), bool(instr.attr("sat")))
    if instr.op in MOVES:
        return convert(code, args[0], dtype)
    if instr.op == "TSEL":
        return code.select(args[0], args[1], args[2])
    if is_reduced(args[0].dtype):
        wide = [Vec(a.text, F32, a.lanes) for a in args]
        result = _float(code, instr, wide)
        if instr.op in _EXACT:
            return Vec(result.text, dtype, result.lanes)
        return round_to(code, result, dtype) if is_reduced(dtype) else result
    if args[0].dtype.is_float:
        return _float(code, instr, args)
    if args[0].dtype == BOOL:
        return _bool(code, instr, args)
    return narrow_to_nibble(code, _integer(code, instr, args))


def _float(code: VectorCode, instr: Instr, args: list[Vec]) -> Vec:
    result = _float_result(code, instr, args)
    if len(args) == 2 and (known := of_operation(instr.op, *map(code.range_of, args))) != ANYTHING:
        code.ranges[result.text] = known
    return result


def _float_result(code: VectorCode, instr: Instr, args: list[Vec]) -> Vec:
    op, a = instr.op, args[0]
    b = args[1] if len(args) > 1 else a
    if op in _FLOAT:
        return code.op(_FLOAT[op], a, b)
    if op in ("TMAX", "TMIN"):
        return maximum(code, a, b) if op == "TMAX" else minimum(code, a, b)
    if op in vector_math.UNARY:
        return vector_math.unary(code, op, a)
    if op == "TROUND":
        return code.round_even(a)
    if op in _ROUNDING:
        return code.call(_ROUNDING[op], a)
    if op == "TFMA":
        return code.fma(a, b, args[2])
    if op == "TPOW":
        return _power(code, instr, a, b)
    if op == "TREM":
        return _floor_mod(code, a, b)
    if op == "TFMOD":
        return code.op("frem", a, b)
    if op == "TCMP":
        return code.compare(_COMPARE_FLOAT[str(instr.attr("mode"))], a, b)
    zero, one = code.like(0.0, a), code.like(1.0, a)
    if op == "TABS":
        return code.abs(a)
    if op == "TNEG":
        return code.neg(a)
    if op == "TSQRT":
        return code.call("llvm.sqrt", a)
    if op == "TRSQRT":
        return code.op("fdiv", one, code.call("llvm.sqrt", a))
    if op == "TRECIP":
        return code.op("fdiv", one, a)
    if op == "TRELU":
        return code.select(code.compare("ogt", zero, a), zero, a)
    if op == "TSIGN":
        signed = code.select(
            code.compare("ogt", a, zero), one, code.select(code.compare("olt", a, zero), code.neg(one), zero)
        )
        return code.select(code.compare("uno", a, a), a, signed)
    if op == "TISNAN":
        return code.compare("uno", a, a)
    if op == "TISINF":
        return code.compare("oeq", code.abs(a), code.like(math.inf, a))
    raise UnsupportedInstruction(f"{op} on {a.dtype}")


def maximum(code: VectorCode, a: Vec, b: Vec) -> Vec:
    """The larger float; NaN if either is NaN."""
    return _extreme(code, "ogt", a, b)


def minimum(code: VectorCode, a: Vec, b: Vec) -> Vec:
    """The smaller float; NaN if either is NaN."""
    return _extreme(code, "olt", a, b)


def _extreme(code: VectorCode, predicate: str, a: Vec, b: Vec) -> Vec:
    if constant_number(b) is not None:
        a, b = b, a
    # One machine instruction, which gives b when either is NaN; that is wrong only when a is the NaN.
    larger = code.select(code.compare(predicate, a, b), a, b)
    return larger if constant_number(a) is not None else code.select(code.compare("uno", a, a), a, larger)


def _power(code: VectorCode, instr: Instr, a: Vec, b: Vec) -> Vec:
    exponent = instr.srcs[1].value if isinstance(instr.srcs[1], Imm) else None
    if exponent == 2:
        return code.op("fmul", a, a)
    if exponent == 3:
        return code.op("fmul", code.op("fmul", a, a), a)
    if exponent == 1:
        return a
    if exponent == -1:
        return code.op("fdiv", code.like(1.0, a), a)
    return vector_math.per_lane(code, "pow", a, b) if a.dtype == F64 else vector_math.pow(code, a, b)


def _floor_mod(code: VectorCode, a: Vec, b: Vec) -> Vec:
    rest = code.op("frem", a, b)
    zero = code.like(0.0, a)
    opposite = code.op("xor", code.compare("olt", rest, zero), code.compare("olt", b, zero))
    nonzero = code.compare("une", rest, zero)
    moved = code.select(code.op("and", opposite, nonzero), code.op("fadd", rest, b), rest)
    return code.select(code.compare("oeq", rest, zero), code.call("llvm.copysign", zero, b), moved)


def _bool(code: VectorCode, instr: Instr, args: list[Vec]) -> Vec:
    op, a = instr.op, args[0]
    b = args[1] if len(args) > 1 else a
    if op in ("TAND", "TMUL", "TMIN"):
        return code.op("and", a, b)
    if op in ("TOR", "TADD", "TMAX"):
        return code.op("or", a, b)
    if op == "TXOR":
        return code.op("xor", a, b)
    if op == "TNOT":
        return code.op("xor", a, code.like(True, a))
    if op == "TCMP":
        return code.compare(_COMPARE_UNSIGNED[str(instr.attr("mode"))], a, b)
    raise UnsupportedInstruction(f"{op} on bool")


def _integer(code: VectorCode, instr: Instr, args: list[Vec]) -> Vec:
    op, a = instr.op, args[0]
    b = args[1] if len(args) > 1 else a
    signed = a.dtype.kind == "int"
    zero = code.like(0, a)
    if op in _INTEGER:
        return code.op(_INTEGER[op], a, b)
    if op in ("TMAX", "TMIN"):
        return code.call(f"llvm.{'s' if signed else 'u'}{op[1:].lower()}", a, b)
    if op in ("TDIV", "TREM", "TFMOD"):
        return _integer_division(code, op, a, b)
    if op in ("TSHL", "TSHR"):
        return _shift(code, op, a, b)
    if op == "TCMP":
        return code.compare((_COMPARE_SIGNED if signed else _COMPARE_UNSIGNED)[str(instr.attr("mode"))], a, b)
    if op == "TABS":
        return code.select(code.compare("slt", a, zero), code.neg(a), a) if signed else a
    if op == "TNEG":
        return code.neg(a)
    if op == "TRELU":
        return code.call("llvm.smax", zero, a) if signed else a
    if op == "TNOT":
        return code.op("xor", a, code.like(-1 if signed else (1 << a.dtype.bits) - 1, a))
    if op == "TSIGN":
        negative = code.cast("sext", code.compare("slt", a, zero), a.dtype) if signed else zero
        positive = code.cast("zext", code.compare("sgt" if signed else "ne", a, zero), a.dtype)
        return code.op("or", negative, positive)
    if op in ("TFLOOR", "TCEIL", "TROUND", "TTRUNC"):
        return a
    if op in ("TISNAN", "TISINF"):
        return code.const(False, BOOL, a.lanes)
    if op == "TFMA":
        return code.op("add", code.op("mul", a, b), args[2])
    if op == "TPOW":
        wide = [convert(code, x, F64) for x in (a, b)]
        return convert(code, vector_math.per_lane(code, "pow", *wide), a.dtype)
    if op in ("TSQRT", "TEXP", "TEXP2", "TLOG", "TRSQRT", "TRECIP", "TTANH", "TSIGMOID", "TERF", "TSIN", "TCOS"):
        return convert(code, _float(code, instr, [convert(code, a, F64)]), a.dtype)
    raise UnsupportedInstruction(f"{op} on {a.dtype}")


def _integer_division(code: VectorCode, op: str, a: Vec, b: Vec) -> Vec:
    """Division and remainders without traps: a zero divisor gives 0, and least / -1 wraps."""
    signed = a.dtype.kind == "int"
    zero, one = code.like(0, a), code.like(1, a)
    by_zero = code.compare("eq", b, zero)
    safe = code.select(by_zero, one, b)
    if not signed:
        result = code.op("udiv" if op == "TDIV" else "urem", a, safe)
        return code.select(by_zero, zero, result)
    by_minus_one = code.compare("eq", b, code.like(-1, b))
    safe = code.select(by_minus_one, one, safe)
    if op == "TDIV":
        result = code.select(by_minus_one, code.neg(a), code.op("sdiv", a, safe))
        return code.select(by_zero, zero, result)
    rest = code.select(code.op("or", by_zero, by_minus_one), zero, code.op("srem", a, safe))
    if op == "TFMOD":
        return rest
    opposite = code.compare("slt", code.op("xor", rest, b), zero)
    moved = code.op("and", opposite, code.compare("ne", rest, zero))
    return code.select(moved, code.op("add", rest, b), rest)


def _shift(code: VectorCode, op: str, a: Vec, b: Vec) -> Vec:
    width = code.like(a.dtype.bits, a)
    # An unsigned comparison sends negative amounts the way of large ones.
    inside = code.compare("ult", b, width)
    amount = code.select(inside, b, code.like(0, b))
    if op == "TSHL":
        return code.select(inside, code.op("shl", a, amount), code.like(0, a))
    if a.dtype.kind == "int":
        return code.select(inside, code.op("ashr", a, amount), code.op("ashr", a, code.like(a.dtype.bits - 1, a)))
    return code.select(inside, code.op("lshr", a, amount), code.like(0, a))
