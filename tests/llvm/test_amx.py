"""AMX code, its intrinsics emulated: against float64 and integers, and bit by bit against the instruction's model."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ml_dtypes import bfloat16

from codegen.llvm import detect
from codegen.llvm.compile import assembly
from codegen.llvm.detect import detect_host_class
from codegen.llvm.lower import lower, scratch_bytes
from codegen.llvm.text import Function, module_text
from codegen.targets.hosts import HOST_CLASSES
from codegen.tile.build import ProgramBuilder
from codegen.tile.instructions import STATUS_RANGE
from codegen.tile.ir import Program, View, axis
from codegen.tile.text import parse_program
from tensor_types.dims import ceildiv, dmax, dmin
from tensor_types.dtypes import BF16, F32, I8, I32, I64, U8, DType
from tests.kernels.lowered import Case as NodeCase
from tests.kernels.lowered import reference
from tests.llvm.emulation import emulate, runs_on
from tests.llvm.native import HOSTS, Kernel
from tests.llvm.test_cube import Case, compile_text, guarded, panel, random, run
from tests.probes.probe import Sample, check, records_for, sample
from tests.probes.test_bf16_gemm import bf16_gemm
from tests.probes.test_int8_gemm import int8_gemm

AMX = "x86-64-amx"
runs = pytest.mark.skipif("x86-64-v4" not in HOSTS, reason=f"this processor is {HOSTS[-1]}")
rng = np.random.default_rng(0)


def surrounded(array: np.ndarray) -> np.ndarray:
    """The array inside a larger one of NaN or, for integers, 99."""
    filler = np.nan if array.dtype.kind not in "iu" else 99
    whole = np.full([size + 5 for size in array.shape], filler).astype(array.dtype)
    view = whole[tuple(slice(2, 2 + size) for size in array.shape)]
    view[...] = array
    return view


def grouped(b: np.ndarray, width: int) -> np.ndarray:
    """b [k, n] as the view [k/g, g, n] of memory [k/g][width][g]; NaN or 99 stands behind the n columns."""
    k, n = b.shape
    group = 4 // b.itemsize
    whole = np.full((k // group, width, group), np.nan if b.dtype.kind not in "iu" else 99).astype(b.dtype)
    whole[:, :n] = b.reshape(k // group, group, n).transpose(0, 2, 1)
    return guarded(whole)[:, :n].transpose(0, 2, 1)


def groups_of(a: np.ndarray) -> np.ndarray:
    """The last axis in groups of 32 bits."""
    group = 4 // a.itemsize
    step = a.strides[-1]
    shape, strides = (*a.shape[:-1], a.shape[-1] // group, group), (*a.strides[:-1], group * step, step)
    return np.lib.stride_tricks.as_strided(a, shape, strides)


def on_tiles(text: str) -> list[bool]:
    """Which of the sites, in order, have code for tiles."""
    return ["call void @llvm.x86.tdp" in site for site in text.split("define ")[1:]]


SHAPES = [
    (1, 2, 1), (5, 4, 16), (15, 30, 15), (16, 32, 16), (17, 34, 17), (31, 40, 33), (32, 64, 32), (33, 66, 65),
    (47, 74, 64), (65, 62, 31), (97, 128, 47), (40, 1022, 48),
]  # fmt: skip
"""m, k, n: one, primes, one off each tile, k of a half-empty last step."""


@runs
@pytest.mark.parametrize("dynamic", ["", "m", "mnr"])
@pytest.mark.parametrize("padded", [True, False])
def test_pairs_of_bf16_numbers(dynamic: str, padded: bool) -> None:
    cases = []
    for m, k, n in SHAPES:
        width = -(-n // 16) * 16
        b = grouped(random(rng, (k, n), BF16), width if padded else n)
        a = groups_of(surrounded(random(rng, (m, k), BF16)))
        cases.append(Case(a, b, 1, F32, dynamic=dynamic, n_max=width, initial=m % 2 == 1))
    assert all(on_tiles(run(cases, AMX)))


@runs
@pytest.mark.parametrize(("a", "b"), [(U8, I8), (I8, I8), (U8, U8), (I8, U8)], ids=str)
@pytest.mark.parametrize("dynamic", ["", "mn"])
def test_quads_of_bytes(a: DType, b: DType, dynamic: str) -> None:
    cases = []
    for m, k, n in ((5, 64, 16), (3, 64, 33), (17, 36, 33), (33, 136, 64), (7, 1020, 17)):
        left, right = random(rng, (m, k), a), random(rng, (k, n), b)
        left[0], right[:, 0] = np.iinfo(a.numpy).min, np.iinfo(b.numpy).min
        left[-1], right[:, -1] = np.iinfo(a.numpy).max, np.iinfo(b.numpy).max
        width = -(-n // 16) * 16
        left = groups_of(surrounded(left))
        cases.append(Case(left, grouped(right, width), 1, I32, dynamic=dynamic, initial=m == 17, n_max=width))
    assert on_tiles(run(cases, AMX)) == [case.m[0] >= 5 or bool(dynamic) for case in cases]


@runs
@pytest.mark.parametrize("dynamic", ["", "m", "n", "mnr"])
def test_plain_rows_of_bf16_numbers(dynamic: str) -> None:
    """b as a panel or as it comes, odd and even k; neither operand is read past its end."""
    cases = []
    for m, k, n in ((32, 16, 16), (33, 17, 5), (40, 31, 48), (9, 33, 64), (97, 97, 49)):
        width = -(-n // 16) * 16
        a = guarded(random(rng, (m, k), BF16))
        b = guarded(random(rng, (k, n), BF16)) if m % 2 else panel(rng, (k,), n, width, BF16)
        cases.append(Case(a, b, 1, F32, dynamic=dynamic, n_max=width, initial=m == 40))
    assert on_tiles(run(cases, AMX)) == [case.m[0] >= 32 or "m" in dynamic for case in cases]


@runs
def test_a_is_not_read_past_its_end() -> None:
    cases = []
    for m, k, n in ((1, 2, 16), (13, 34, 16), (29, 70, 48), (33, 132, 32)):
        a = groups_of(guarded(random(rng, (m, k), BF16)))
        for dynamic in ("", "m"):
            cases.append(Case(a, grouped(random(rng, (k, n), BF16), n), 1, F32, dynamic=dynamic))
    assert all(on_tiles(run(cases, AMX)))


@runs
@pytest.mark.parametrize("dynamic", ["", "m"])
def test_image_to_column_views(dynamic: str) -> None:
    """Images narrower than a tile, as wide and wider; strides, dilation, one pixel row per tile row or several."""
    cases = []
    for size, kernel, channels, step, dilation, n in (
        (7, 3, 32, 1, 1, 32), (14, 1, 64, 1, 1, 64), (14, 3, 18, 1, 1, 48), (9, 3, 32, 2, 1, 17), (6, 3, 17, 1, 2, 20),
        (18, 2, 16, 1, 1, 16), (33, 1, 32, 1, 1, 16),
    ):  # fmt: skip
        edge = (size - 1) * step + (kernel - 1) * dilation + 1
        image = surrounded(random(rng, (edge, edge, channels), BF16))
        b = panel(rng, (kernel, kernel, channels), n, -(-n // 16) * 16, BF16)
        y, x, c = image.strides
        shape = (size, size, kernel, kernel, channels)
        view = np.lib.stride_tricks.as_strided(image, shape, (step * y, step * x, dilation * y, dilation * x, c))
        cases.append(Case(view, b, 2, F32, dynamic=dynamic))
    columns = surrounded(random(rng, (37, 1, 32), BF16))
    cases.append(Case(columns, panel(rng, (32,), 20, 32, BF16), 2, F32, dynamic=dynamic))
    stack = surrounded(random(rng, (2, 4, 9, 32), BF16))
    cases.append(Case(stack, panel(rng, (32,), 32, 32, BF16), 3, F32, dynamic=dynamic, initial=True))
    assert all(on_tiles(run(cases, AMX)))


@runs
def test_what_does_not_suit_tiles_is_computed_on_vectors() -> None:
    """Few rows, a transposed a or b, a run-time k, plain bytes, no m axis, nothing to add."""
    a, b = random(rng, (40, 64), BF16), random(rng, (64, 32), BF16)
    cases = [
        Case(a[:31], b, 1, F32),
        Case(random(rng, (64, 40), BF16).T, b, 1, F32),
        Case(a, random(rng, (32, 64), BF16).T, 1, F32),
        Case(a, b, 1, F32, dynamic="k"),
        Case(a, b, 1, F32, dynamic="c"),
        Case(a[0], b, 0, F32),
        Case(groups_of(a)[0], grouped(b, 32), 0, F32),
        Case(a[:, :0], b[:0], 1, F32, initial=True),
        Case(a[:0], b, 1, F32),
        Case(random(rng, (40, 64), I8), random(rng, (64, 32), I8), 1, I32),
        Case(groups_of(random(rng, (4, 64), I8)), grouped(random(rng, (64, 32), I8), 32), 1, I32),
        Case(random(rng, (40, 64)), random(rng, (64, 32)), 1, F32),
        Case(random(rng, (40, 64)), b, 1, F32),
    ]
    text = run(cases, AMX)
    assert not any(on_tiles(text))
    assert "tilecfg" not in text


def flushed(values: np.ndarray) -> np.ndarray:
    return np.where(np.abs(values) < np.float32(2.0**-126), np.copysign(np.float32(0), values), values)


def model(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The f32 result of TDPBF16PS over steps of 32 k; sums of two are exact in float64 for the numbers used here."""
    a, b = (flushed(x.astype(np.float32)).astype(np.float64) for x in (a, b))
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, a.shape[1], 32):
            chains = np.zeros((2, *total.shape), np.float32)
            for k in range(start, start + 32):
                fused = a[:, k : k + 1] * b[k] + chains[k % 2]
                chains[k % 2] = flushed(fused.astype(np.float32))
            total = flushed(total + flushed(chains[0] + chains[1]))
    return total


@runs
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_bit_follows_the_instruction() -> None:
    """Rounding, denormal operands, products and sums, infinities, NaN and overflow."""
    a, b = random(rng, (48, 96), BF16), random(rng, (96, 32), BF16)
    a[:8] = 0
    lone = [(1e-39, 1e30), (1e-20, 1e-20), (2.0**-126, 0.5), (np.inf, 0.0), (np.nan, 1.0), (3e38, 3e38), (-3e38, 3e38)]
    for row, (left, right) in enumerate(lone):
        a[row, row], b[row, 0] = left, right
        a[8:, row], b[row, 1:] = 0, 1
    # One step leaves the least normal number; in the next the two chains cancel to half of it.
    small = 2.0**-63
    for k, left, right in ((10, small, small), (40, 1.5 * small, small), (41, -small, small)):
        a[7, k], a[8:, k], b[k] = left, 0, right
    want = model(a, b)
    assert not np.array_equal(want, a.astype(np.float64) @ b.astype(np.float64), equal_nan=True)
    assert np.isnan(want).any() and np.isinf(want).any() and want[7, 5] == 2.0**-126
    for left, right in ((groups_of(a), grouped(b, 32)), (a, b)):
        case = Case(left, right, 1, F32)
        case.expected[:, :32] = want
        run([case], AMX)
        np.testing.assert_array_equal(case.dst[:, :32], want)
        np.testing.assert_array_equal(np.signbit(case.dst[:, :32]), np.signbit(want))


def configuration(rows: int, words: int, depth: int) -> np.ndarray:
    """Tile 0 of rows x 16 words, 1 of rows x `words`, 2 of `depth` x 16 words."""
    table = np.zeros(64, np.uint8)
    table[0], table[16:22:2], table[48:51] = 1, (64, 4 * words, 64), (rows, rows, depth)
    return table


@runs
def test_the_emulation_refuses_what_the_processor_refuses() -> None:
    """Without a configuration, or with sizes that do not fit, the result is not the product."""
    fn = Function("site", ["ptr %config", "ptr %a", "ptr %b", "ptr %d"], "void", "nounwind")
    fn.call("void", "llvm.x86.ldtilecfg", "ptr %config")
    fn.call("void", "llvm.x86.tilezero", "i8 0")
    for tile, pointer in ((1, "%a"), (2, "%b")):
        fn.call("void", "llvm.x86.tileloadd64", f"i8 {tile}", f"ptr {pointer}", "i64 64")
    fn.call("void", "llvm.x86.tdpbssd", "i8 0", "i8 1", "i8 2")
    fn.call("void", "llvm.x86.tilestored64", "i8 0", "ptr %d", "i64 64")
    fn.call("void", "llvm.x86.tilerelease")
    fn.do("ret void")
    engine = compile_text(emulate(module_text([fn]), AMX), HOST_CLASSES[runs_on(AMX)])
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(engine.get_function_address("site"))
    a, b = random(rng, (16, 64), I8), random(rng, (16, 16, 4), I8)
    for rows, words, depth, legal in ((16, 16, 16, True), (9, 5, 5, True), (16, 0, 0, False), (16, 8, 16, False)):
        d = np.full((16, 16), 77, np.int32)
        table = configuration(rows, words, depth)
        call(*(x.ctypes.data for x in (table, a, b, d)))
        want = np.einsum("mkg,kng->mn", a[:rows].reshape(rows, 16, 4)[:, :words].astype(np.int64), b[:words])
        assert np.array_equal(d[:rows], want) == legal
        assert (d[rows:] == 77).all()
    table[0] = 0
    call(*(x.ctypes.data for x in (table, a, b, d)))
    assert (d[0] == -1).all()


def linear_bf16() -> Program:
    """y = relu(x @ w + bias) for as many rows as a tensor says, w in plain rows; a wrong number ends the task."""
    b = ProgramBuilder("linear")
    m = b.dim("m", 1)
    x, w = b.param("x", BF16, (m, 100)), b.param("w", BF16, (100, 40))
    _bias, count, y = b.param("bias", F32, (40,)), b.param("count", I64, ()), b.param("y", BF16, (m, 40), "out")
    c = b.tile("c", F32, (48, 40), "L0C")
    g = b.grid("g", ceildiv(m, 48))
    rows = b.read("rows", count.view(shape=()), 0, m)
    valid = dmax(0, dmin(48, rows - 48 * g))
    acc = c.window((0, 0), (valid, 40))
    b.matmul(acc, x.window((48 * g, 0), (valid, 100)), w, nm=1, nk=1)
    b.add(acc, acc, View("bias", (axis(1),), (valid, 40)))
    b.relu(acc, acc)
    b.store(y.window((48 * g, 0), (valid, 40)), acc)
    return b.finish()


def straight(text: str) -> list[str]:
    """Names of AMX instructions and returns in the order of the text, runs of equal ones as one."""
    found = re.findall(r"call void @llvm\.x86\.(tile\w+|ldtilecfg|tdp\w+)|^  (ret) ", text, re.M)
    names = [name or end for name, end in found]
    return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]


@pytest.mark.parametrize("made", ["pairs", "plain", "quads"])
def test_machine_code(made: str) -> None:
    """The real instructions are there, and a configuration is released before the function can end."""
    if made == "plain":
        program = linear_bf16()
    else:
        given = bf16_gemm(97, 64, 65) if made == "pairs" else int8_gemm(97, 68, 65)
        (record,) = records_for(given, AMX)
        program = parse_program(record.program)
    text = lower(program, AMX)
    # Four results and two tiles of a; of b what does not come as whole steps: all of plain rows, 4 words of 17 and zeros.
    copied = {"pairs": 0, "plain": 4 * 13, "quads": 9}[made]
    assert scratch_bytes(program, AMX) == (6 << 10) + 2 * 64 * copied
    names = straight(text)
    inside = False
    for name in names:
        assert inside == (name not in ("ldtilecfg", "ret")), names
        inside = name == "ldtilecfg" or (inside and name != "tilerelease")
    code = assembly(text, AMX)
    instruction = "tdpbssd" if made == "quads" else "tdpbf16ps"
    for needed in ("ldtilecfg", "tilerelease", "tilezero", "tileloadd", "tilestored", instruction):
        assert re.search(rf"\t{needed}\b", code), needed
    assert len(re.findall(r"\tldtilecfg\b", code)) == text.count("@llvm.x86.ldtilecfg(ptr @")
    for other in ("x86-64-v4-vnni", "x86-64-v3"):
        assert "tile" not in assembly(lower(program, other), other)


@runs
@pytest.mark.parametrize("count", [0, 1, 31, 32, 48, 61, 70, 71])
def test_a_status_leaves_no_configuration_behind(count: int) -> None:
    """Rows that a tensor counts: the checked number is the only early end, and rows behind it are not written."""
    program = linear_bf16()
    values = {"x": random(rng, (70, 100), BF16), "w": random(rng, (100, 40), BF16), "bias": random(rng, (40,))}
    tensors = {**values, "count": np.array(count), "y": np.full((70, 40), 77, bfloat16)}
    status = Kernel(program, AMX).run(tensors, {"m": 70})
    if count > 70:
        assert status == STATUS_RANGE | count << 8
        return
    assert status == 0
    x, w, bias = (values[name].astype(np.float64) for name in ("x", "w", "bias"))
    want = np.maximum(x @ w + bias, 0)
    np.testing.assert_allclose(tensors["y"][:count].astype(np.float64), want[:count], rtol=2.0**-8, atol=1e-4)
    assert (tensors["y"][count:] == 77).all()


def conv_bf16(size: int, channels: int, features: int, kernel: int, run_time: bool = False) -> Sample:
    shape = (1, channels, size, size + 2)
    x, w = random(rng, shape, BF16), random(rng, (features, channels, kernel, kernel), BF16)
    bias = random(rng, (features,), BF16)
    pads = [kernel // 2] * 4
    symbolic = {"x": (1, channels, "h", "w"), "y": (1, features, "h", "w")} if run_time else {}
    case = NodeCase("conv", [("Conv", ["x", "k", "b"], ["y"], {"pads": pads})], {"x": x, "k": w, "b": bias}, ["y"],
                 ["k", "b"], symbolic, ["x", "y"], {"h": size, "w": size + 2}, wide=True)  # fmt: skip
    exact = reference(case.ops, {n: a.astype(np.float32) for n, a in case.arrays.items()}, ["y"])
    return sample(case, {"y": exact["y"]}, 2.0**-8, 2e-3)


@runs
@pytest.mark.parametrize("shape", [(14, 64, 48, 1), (15, 32, 33, 3), (20, 17, 16, 3)], ids=str)
def test_convolutions(shape: tuple[int, int, int, int]) -> None:
    given = conv_bf16(*shape)
    check([given], AMX)
    for record in records_for(given, AMX):
        assert "tdpbf16ps" in lower(parse_program(record.program), AMX)
    check([conv_bf16(*shape, run_time=True)], AMX)


def product_bf16(m: int, k: int, n: int, transposed: bool, run_time: bool) -> Sample:
    """A batched product whose right operand only the run knows."""
    a, b = random(rng, (3, m, k), BF16), random(rng, (3, n, k) if transposed else (3, k, n), BF16)
    attrs = {"transB": 1} if transposed else {}
    symbolic = {"b": (3, k, "n"), "y": (3, m, "n")} if run_time else {}
    case = NodeCase("matmul", [("com.microsoft::FusedMatMul", ["a", "b"], ["y"], attrs)], {"a": a, "b": b}, ["y"], [],
                 symbolic, dims={"n": n}, wide=True)  # fmt: skip
    want = a.astype(np.float64) @ (b.swapaxes(1, 2) if transposed else b).astype(np.float64)
    return Sample(case, {"y": want}, {"y": want.astype(bfloat16)}, 2.0**-8, 1e-4)


@runs
@pytest.mark.parametrize(("m", "k", "n"), [(5, 64, 33), (32, 33, 40), (70, 96, 65)])
@pytest.mark.parametrize(("transposed", "run_time"), [(False, False), (False, True), (True, False)])
def test_products_of_two_run_time_operands(m: int, k: int, n: int, transposed: bool, run_time: bool) -> None:
    given = product_bf16(m, k, n, transposed, run_time)
    check([given], AMX)
    (record,) = records_for(given, AMX)
    assert ("tdpbf16ps" in lower(parse_program(record.program), AMX)) == (m >= 32)


def test_weights_are_packed_in_pairs() -> None:
    """Where rows suffice: even k; otherwise plain panels. Other host classes never see pairs."""
    for (m, k), pairs in {(64, 64): True, (5, 64): True, (4, 64): False, (64, 65): False}.items():
        (record,) = records_for(bf16_gemm(m, k, 48), AMX)
        assert ("split(0,2)" in str(record.operands[1].packing)) == pairs
        assert "TCVT" not in record.program
    (record,) = records_for(bf16_gemm(20, 65, 48), AMX)
    assert "TCVT" in record.program, "few rows of odd k are widened for vectors"
    for host in ("x86-64-v4-vnni", "x86-64-v3", "aarch64"):
        (record,) = records_for(bf16_gemm(64, 64, 48), host)
        assert "split(0,2)" not in str(record.operands[1].packing)


FEATURES = ["sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt",
            "movbe", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512bf16", "amx-tile", "amx-int8",
            "amx-bf16"]  # fmt: skip


@pytest.mark.parametrize("granted", [True, False])
@pytest.mark.parametrize("vnni", [True, False])
def test_amx_needs_the_permission_of_the_system(monkeypatch: pytest.MonkeyPatch, granted: bool, vnni: bool) -> None:
    asked = []
    features = dict.fromkeys([*FEATURES, *(["avx512vnni"] if vnni else [])], True)
    monkeypatch.delenv("OPENATC_HOST", raising=False)
    monkeypatch.setattr(detect.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: features)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "sapphirerapids")
    monkeypatch.setattr(detect, "_processor", lambda: "")  # nothing is remembered of it
    monkeypatch.setattr(detect, "machine_features", detect.machine_features.__wrapped__)  # asks anew
    monkeypatch.setattr(detect, "request_amx", lambda: asked.append(1) or granted)
    if not vnni:
        assert detect_host_class() == "x86-64-v4"
        assert not asked
        return
    assert detect_host_class() == (AMX if granted else "x86-64-v4-vnni")
    assert len(asked) == 1
    monkeypatch.setenv("OPENATC_HOST", AMX)
    assert detect_host_class() == AMX
    assert len(asked) == 2
    monkeypatch.setenv("OPENATC_HOST", "x86-64-v4")
    assert detect_host_class() == "x86-64-v4"
    assert len(asked) == 2


def test_the_permission_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the system counts: 0 grants it."""
    for answer in (0, -1):
        calls = []
        system = SimpleNamespace(syscall=lambda *args, c=calls, a=answer: c.append(args) or a)
        monkeypatch.setattr(detect.sys, "platform", "linux")
        monkeypatch.setattr(detect.platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(detect.ctypes, "CDLL", lambda _, s=system: s)
        detect.request_amx.cache_clear()
        assert [detect.request_amx() for _ in range(3)] == [answer == 0] * 3
        assert calls == [(158, 0x1023, 18)]
    detect.request_amx.cache_clear()


def test_llvm_is_asked_once_for_each_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENATC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(detect, "_processor", lambda: "one")
    expected = detect._x86_features()
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {"avx": True, "fma": False})
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "znver3")
    assert detect._x86_features() == expected
    monkeypatch.setattr(detect, "_processor", lambda: "another")
    assert detect._x86_features() == {"avx", "zen"}
