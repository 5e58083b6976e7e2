"""Every element-wise instruction on every dtype, on shapes around the lane counts, against the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from codegen.tile.build import ProgramBuilder
from codegen.tile.instructions import INSTRUCTIONS
from codegen.tile.interpreter import interpret
from codegen.tile.ir import Program
from tensor_types.dtypes import BOOL, DTYPES, F32, I8, DType
from tests.llvm.native import HOSTS, Kernel

FLOAT_UNARY = [
    "TABS", "TNEG", "TEXP", "TEXP2", "TLOG", "TSQRT", "TRSQRT", "TRECIP", "TRELU", "TTANH", "TSIGMOID", "TERF", "TSIN",
    "TCOS", "TFLOOR", "TCEIL", "TROUND", "TTRUNC", "TSIGN",
]  # fmt: skip
FLOAT_BINARY = ["TADD", "TSUB", "TMUL", "TDIV", "TREM", "TFMOD", "TMAX", "TMIN", "TPOW"]
INT_UNARY = ["TABS", "TNEG", "TRELU", "TSIGN", "TNOT"]
INT_BINARY = ["TADD", "TSUB", "TMUL", "TDIV", "TREM", "TFMOD", "TMAX", "TMIN", "TAND", "TOR", "TXOR", "TSHL", "TSHR"]
CONVERTED = [
    DTYPES[n] for n in ("f32", "f64", "f16", "bf16", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool")
]
MODES = ["eq", "ne", "lt", "le", "gt", "ge"]
SPECIAL = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-40, -1e-40, 3e38, -3e38, 88.7, 88.8,
    -87.5, -103.0, -104.5, 127.9, 128.0, -149.0, -150.0, 1e-8, 3.0, -3.0, 8191.0, 1e6, 3e10, -7e25, 0.7853982,
]  # fmt: skip


def every_op(dtype: DType, shape: tuple[int, ...], immediate: float | None = None) -> Program:
    """One program that stores the result of every instruction on a, b and c."""
    b = ProgramBuilder(f"every_{dtype}")
    x, y, z = (b.param(n, dtype, shape) for n in "abc")
    tx, ty, tz = (b.tile(f"t{n}", dtype, shape) for n in "abc")
    for tile, param in ((tx, x), (ty, y), (tz, z)):
        b.load(tile, param)
    right = ty if immediate is None else immediate

    def emit(op: str, *args: object, result: DType = dtype, name: str = "", **attrs: object) -> None:
        label = f"{op}_{name}".lower()
        t, out = b.tile(f"r_{label}", result, shape), b.param(f"o_{label}", result, shape, "out")
        b.instr(op, t, *args, **attrs)
        b.store(out, t)

    for op in FLOAT_UNARY if dtype.is_float else INT_UNARY:
        emit(op, tx)
    for op in FLOAT_BINARY if dtype.is_float else INT_BINARY:
        emit(op, tx, right)
    for mode in MODES:
        emit("TCMP", tx, right, result=BOOL, name=mode, mode=mode)
    mask = b.tile("mask", BOOL, shape)
    b.instr("TCMP", mask, tx, ty, mode="lt")
    emit("TSEL", mask, ty, tz)
    emit("TNOT", mask, result=BOOL, name="bool")
    if dtype.is_float:
        emit("TFMA", tx, ty, tz)
        emit("TISNAN", tx, result=BOOL)
        emit("TISINF", tx, result=BOOL)
    return b.finish()


def operand_values(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    if dtype.is_float:
        values = [rng.normal(0, 4, size) for _ in "abc"]
        for value in values:
            count = min(size, 2 * size // 3 + 1)
            value[rng.permutation(size)[:count]] = rng.choice(SPECIAL, count)
    else:
        bits = dtype.bits
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << bits) - 1)
        values = [rng.integers(low, high, size, dtype.numpy, endpoint=True) for _ in "abc"]
        small = rng.integers(-2 if dtype.kind == "int" else 0, 9, size).astype(dtype.numpy)
        values[1] = np.where(rng.random(size) < 0.6, small, values[1])
        values[0][: min(3, size)] = [low, high, 0][: min(3, size)]
        values[1][: min(3, size)] = np.array([-1, 0, 1]).astype(dtype.numpy)[: min(3, size)]
    with np.errstate(all="ignore"):
        return {n: v.reshape(shape).astype(dtype.numpy) for n, v in zip("abc", values, strict=True)}


def ulps(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Distance in units in the last place of the dtype (of f32 for f64); NaN equals NaN."""
    got64, wanted64 = got.astype(np.float64), wanted.astype(np.float64)
    kind = np.float32 if got.dtype == np.float64 else got.dtype
    with np.errstate(all="ignore"):
        info = ml_dtypes.finfo(kind)
        exponent = np.floor(np.log2(np.abs(wanted64), where=wanted64 != 0, out=np.full(wanted64.shape, -1e9)))
        exponent = np.maximum(exponent, float(info.minexp))
        distance = np.abs(got64 - wanted64) / np.exp2(exponent - info.nmant)
    same = (got64 == wanted64) | (np.isnan(got64) & np.isnan(wanted64))
    distance = np.where(same, 0, distance)
    return np.where(np.isnan(distance), np.inf, distance)


def check(program: Program, host: str, tensors: dict[str, np.ndarray], dims: dict[str, int] | None = None) -> None:
    """Runs natively and in the interpreter, and compares all outputs."""
    outs = [p for p in program.params if p.role != "in"]
    native = {k: v.copy() for k, v in tensors.items()}
    wanted = {k: v.copy() for k, v in tensors.items()}
    for p in outs:
        if p.name not in tensors:
            shape = tuple(int(s) for s in p.shape)
            native[p.name], wanted[p.name] = (np.zeros(shape, p.dtype.numpy) for _ in range(2))
    assert Kernel(program, host).run(native, dims) == 0
    interpret(program, wanted, dims or {})
    for p in outs:
        op = p.name.split("_")[1].upper() if "_" in p.name else ""
        limit = INSTRUCTIONS[op].ulp if op in INSTRUCTIONS else 0.0
        if p.dtype.is_float:
            distance = ulps(native[p.name], wanted[p.name])
            worst = np.unravel_index(np.argmax(distance), distance.shape)
            operands = {k: v[worst] for k, v in tensors.items() if v.shape == distance.shape}
            assert distance[worst] <= limit, (p.name, native[p.name][worst], wanted[p.name][worst], operands)
        else:
            np.testing.assert_array_equal(native[p.name], wanted[p.name], p.name)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("dtype", [t for t in CONVERTED if t != BOOL], ids=str)
def test_every_instruction(dtype: DType, host: str) -> None:
    check(every_op(dtype, (3, 37)), host, operand_values(dtype, (3, 37)))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("op", ["TERF", "TTANH", "TSIGMOID"])
def test_bounded_functions_keep_their_bounds(op: str, host: str) -> None:
    b = ProgramBuilder("bounded")
    x, y = b.param("a", F32, (1 << 16,)), b.param("y", F32, (1 << 16,), "out")
    t = b.tile("t", F32, (1 << 16,))
    b.load(t, x)
    b.instr(op, t, t)
    b.store(y, t)
    tensors = {"a": np.linspace(-20, 20, 1 << 16, dtype=np.float32), "y": np.zeros(1 << 16, np.float32)}
    assert Kernel(b.finish(), host).run(tensors) == 0
    assert 0.999999 < tensors["y"].max() <= 1 and tensors["y"].min() >= -1


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("size", [1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 65])
def test_sizes_around_the_lanes(size: int, host: str) -> None:
    b = ProgramBuilder("sizes")
    x, y = b.param("a", F32, (size,)), b.param("o_tadd", F32, (size,), "out")
    z = b.param("o_tcvt", I8, (size,), "out")
    t, u = b.tile("t", F32, (size,)), b.tile("u", I8, (size,))
    b.load(t, x)
    b.add(t, t, 1.5)
    b.cvt(u, t)
    b.store(y, t)
    b.store(z, u)
    check(b.finish(), host, {"a": np.linspace(-200, 200, size, dtype=np.float32)})


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("source", CONVERTED, ids=str)
def test_conversions(source: DType, host: str) -> None:
    shape = (67,)
    b = ProgramBuilder("convert")
    x = b.param("a", source, shape)
    t = b.tile("t", source, shape)
    b.load(t, x)
    for target in CONVERTED:
        for name, attrs in (("plain", {}), ("round", {"round": 1}), ("sat", {"sat": 1})):
            if target == source or ((target.is_float or target == BOOL) and attrs):
                continue
            r, o = b.tile(f"r_{name}_{target}", target, shape), b.param(f"{name}.{target}", target, shape, "out")
            b.cvt(r, t, **attrs)
            b.store(o, r)
    rng = np.random.default_rng(3)
    if source == BOOL:
        data = rng.random(67) < 0.5
    elif source.is_float:
        data = operand_values(source, shape)["a"]
        with np.errstate(all="ignore"):
            data[:40] = (rng.normal(0, 1, 40) * np.exp2(rng.uniform(-30, 70, 40))).astype(source.numpy)
    else:
        data = operand_values(source, shape)["a"]
    check(b.finish(), host, {"a": data})


@pytest.mark.parametrize("host", HOSTS)
def test_immediates_and_powers(host: str) -> None:
    for value in (2.0, 3.0, 0.25, -1.0, 0.0, 1.0, float("nan"), float("inf")):
        check(every_op(F32, (21,), value), host, operand_values(F32, (21,), 5))


def test_functions_stay_within_their_ulp_on_dense_inputs() -> None:
    size = 1 << 14
    ranges = {"TEXP": (-104, 89), "TEXP2": (-150, 128), "TTANH": (-10, 10), "TERF": (-5, 5), "TSIGMOID": (-104, 90),
              "TSIN": (-1e5, 1e5), "TCOS": (-30, 30)}  # fmt: skip
    for op, (low, high) in ranges.items():
        b = ProgramBuilder("dense")
        x, y = b.param("a", F32, (size,)), b.param(f"o_{op.lower()}", F32, (size,), "out")
        t = b.tile("t", F32, (size,))
        b.load(t, x)
        b.instr(op, t, t)
        b.store(y, t)
        data = np.random.default_rng(1).uniform(low, high, size).astype(np.float32)
        for host in HOSTS:
            check(b.finish(), host, {"a": data})
