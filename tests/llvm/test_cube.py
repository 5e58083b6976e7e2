"""The micro-kernel generator against numpy in float64, on every host class that this machine executes."""

from __future__ import annotations

import ctypes
import itertools
import math
import platform
import re

import llvmlite.binding as llvm
import numpy as np
import pytest

from codegen.llvm.cube import emit_matmul
from codegen.llvm.cube_registers import balanced_split
from codegen.llvm.cube_site import MatmulSite, Operand, RegisterTile, row_pointers
from codegen.llvm.text import Function, module_text
from codegen.targets.hosts import HOST_CLASSES, HostClass
from tensor_types.dtypes import BF16, F16, F32, F64, I8, I32, U8, from_numpy
from tests.llvm.emulation import RUNNABLE, emulate, runs_on

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

SENTINEL = 77


def machine(host: HostClass) -> tuple[llvm.TargetMachine, str]:
    triple = f"{host.architecture}-unknown-linux-gnu"
    jit = platform.machine() == host.architecture
    made = llvm.Target.from_triple(triple).create_target_machine(
        cpu=host.cpu, features=host.features, opt=2, codemodel="jitdefault" if jit else "default", jit=jit
    )
    return made, triple


def compile_text(text: str, host: HostClass) -> llvm.ExecutionEngine:
    target, triple = machine(host)
    module = llvm.parse_assembly(text)
    module.triple = triple
    module.verify()
    code = target.emit_object(module)
    empty = llvm.parse_assembly("")
    empty.triple = triple
    engine = llvm.create_mcjit_compiler(empty, machine(host)[0])
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def store_into(dst: Operand):
    """A `finish` that stores the accumulators through the strides of dst (unit step in n)."""

    def finish(fn: Function, tile: RegisterTile) -> None:
        element = {"f32": "float", "f64": "double", "i32": "i32"}[dst.dtype.name]
        suffix = {"float": "f32", "double": "f64"}.get(element, element)
        vector = f"<{tile.lanes} x {element}>"
        for row, pointer in zip(tile.vectors, row_pointers(fn, dst, tile), strict=True):
            for v, (value, mask) in enumerate(zip(row, tile.masks, strict=True)):
                at = fn.offset(pointer, v * tile.lanes, element)
                if mask:
                    name = f"llvm.masked.store.v{tile.lanes}{suffix}.p0"
                    fn.call("void", name, f"{vector} {value}", f"ptr align {dst.dtype.bytes} {at}", mask)
                else:
                    fn.store(vector, value, at, dst.dtype.bytes)

    return finish


def strides_of(array: np.ndarray) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)


class Case:
    """One site over numpy views a[m.., k..] and b[k.., n]; names in `dynamic` become run-time values."""

    def __init__(self, a, b, m_rank, acc, *, dynamic="", n_max=None, initial=False):
        self.a, self.b, self.acc, self.initial = a, b, acc, initial
        self.m, self.k, self.n = a.shape[:m_rank], a.shape[m_rank:], b.shape[-1]
        assert b.shape[:-1] == self.k
        self.dynamic, self.n_max = dynamic, n_max or self.n
        width = self.n_max + 3
        self.dst = np.full((*self.m, width), SENTINEL, acc.numpy)
        if initial:
            values = np.random.default_rng(1).integers(-9, 9, (*self.m, self.n))
            self.dst[..., : self.n] = values
        self.expected = self.dst.copy()
        wide = np.int64 if acc.is_integer else np.float64
        left = a.astype(wide).reshape(math.prod(self.m), math.prod(self.k))
        product = left @ b.astype(wide).reshape(left.shape[1], self.n)
        before = self.dst[..., : self.n].astype(wide) if initial else 0
        self.expected[..., : self.n] = before + product.reshape(*self.m, self.n)

    def emit(self, name: str, host: HostClass) -> tuple[Function, list[int]]:
        values: list[int] = []
        params: list[str] = []

        def value(number: int, kind: str):
            if kind not in self.dynamic:
                return int(number)
            values.append(int(number))
            params.append(f"i64 %arg{len(values)}")
            return f"%arg{len(values)}"

        m_rank = len(self.m)
        m = tuple(value(e, "m") for e in self.m)
        k = tuple(value(e, "k") for e in self.k)
        n = value(self.n, "n")
        a_strides = tuple(value(s, "r" if i < m_rank else "c") for i, s in enumerate(strides_of(self.a)))
        b_strides = tuple(value(s, "b") for s in strides_of(self.b))
        a = Operand("%a", a_strides, from_numpy(self.a.dtype))
        b = Operand("%b", b_strides, from_numpy(self.b.dtype))
        dst = Operand("%d", strides_of(self.dst), self.acc)
        fn = Function(name, [], "void", "nounwind")
        initial = dst if self.initial else None
        site = MatmulSite(host, a, b, m, k, n, self.n_max, self.acc, initial, store_into(dst),
                          lambda size: fn.emit(f"alloca [{size} x i8], align 64"))  # fmt: skip
        emit_matmul(fn, site)
        fn.do("ret void")
        fn.params[:] = ["ptr %a", "ptr %b", "ptr %d", *params]
        return fn, values


def run(cases: list[Case], class_name: str | HostClass) -> str:
    """Compares the cases with their expected results; gives the text of the module, before emulation."""
    host = HOST_CLASSES[class_name] if isinstance(class_name, str) else class_name
    emitted = [case.emit(f"site{i}", host) for i, case in enumerate(cases)]
    text = module_text([fn for fn, _ in emitted])
    engine = compile_text(emulate(text, host.name), HOST_CLASSES[runs_on(host.name)])
    for i, (case, (_, values)) in enumerate(zip(cases, emitted, strict=True)):
        pointers = [x.ctypes.data for x in (case.a, case.b, case.dst)]
        kinds = [ctypes.c_int64] * (3 + len(values))
        ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address(f"site{i}"))(*pointers, *values)
        what = f"m={case.m} k={case.k} n={case.n} dynamic={case.dynamic!r} initial={case.initial}"
        if case.acc.is_integer:
            np.testing.assert_array_equal(case.dst, case.expected, what)
        else:
            np.testing.assert_allclose(case.dst, case.expected, rtol=2e-5, atol=2e-5, err_msg=what)
    return text


def random(rng: np.random.Generator, shape, dtype=F32) -> np.ndarray:
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype.numpy)
    return rng.standard_normal(shape).astype(dtype.numpy)


def panel(rng: np.random.Generator, k: tuple[int, ...], n: int, width: int, dtype=F32) -> np.ndarray:
    """b packed with `width` columns, of which n count; the rest holds NaN, which must not leak."""
    full = random(rng, (*k, width), dtype)
    full[..., n:] = np.nan if dtype.is_float else 99
    return full[..., :n]


@pytest.mark.parametrize("host", RUNNABLE)
@pytest.mark.parametrize("dynamic", ["", "m", "n", "k", "mnkr"])
def test_gemm_shapes_that_hurt(host: str, dynamic: str) -> None:
    rng = np.random.default_rng(0)
    shapes = [(m, 64, 19) for m in (range(1, 18) if len(dynamic) < 2 else (1, 5, 13))]
    shapes += [(5, n, 16) for n in (1, 15, 16, 17, 31, 48, 63, 64, 65)]
    shapes += [(7, 33, k) for k in (0, 1, 3, 16, 17, 37)] + [(1, 64, 67), (0, 16, 4), (3, 100, 0)]
    cases = []
    for i, (m, n, k) in enumerate(shapes):
        width = -(-n // 16) * 16
        b = panel(rng, (k,), n, width) if i % 2 else random(rng, (k, n))
        cases.append(Case(random(rng, (m, k)), b, 1, F32, dynamic=dynamic, n_max=width, initial=i % 3 == 0))
    run(cases, host)


@pytest.mark.parametrize("host", RUNNABLE)
def test_run_time_n_below_its_bound(host: str) -> None:
    rng = np.random.default_rng(1)
    cases = [
        Case(random(rng, (7, 21)), panel(rng, (21,), n, 64), 1, F32, dynamic="n", n_max=64) for n in (1, 5, 16, 40, 63)
    ]
    cases += [
        Case(random(rng, (3, 9)), random(rng, (9, n)), 1, F32, dynamic="nb", n_max=200) for n in (1, 64, 130, 200)
    ]
    run(cases, host)


@pytest.mark.parametrize("host", RUNNABLE)
@pytest.mark.parametrize("dynamic", ["", "m", "k", "mn"])
def test_convolution_views(host: str, dynamic: str) -> None:
    """NHWC and NCHW16c image-to-column views, strides, dilation, images narrower than a register tile."""
    rng = np.random.default_rng(2)
    cases = []
    for size, kernel, channels, step, dilation, n in (
        (7, 3, 8, 1, 1, 32), (7, 1, 16, 1, 1, 64), (14, 3, 4, 1, 1, 48), (9, 3, 5, 2, 1, 17), (5, 7, 3, 2, 1, 16),
        (3, 3, 16, 1, 2, 20), (1, 3, 4, 1, 1, 32), (2, 2, 6, 3, 1, 64),
    ):  # fmt: skip
        edge = (size - 1) * step + (kernel - 1) * dilation + 1
        image = random(rng, (edge, edge, channels))
        b = panel(rng, (kernel, kernel, channels), n, -(-n // 16) * 16)
        y, x, c = image.strides
        shape = (size, size, kernel, kernel, channels)
        view = np.lib.stride_tricks.as_strided(image, shape, (step * y, step * x, dilation * y, dilation * x, c))
        cases.append(Case(view, b, 2, F32, dynamic=dynamic))
    image = random(rng, (2, 9, 9, 16))
    c, y, x, lane = image.strides
    view = np.lib.stride_tricks.as_strided(image, (7, 7, 2, 3, 3, 16), (y, x, c, y, x, lane))
    cases.append(Case(view, panel(rng, (2, 3, 3, 16), 32, 32), 2, F32, dynamic=dynamic, initial=True))
    run(cases, host)


@pytest.mark.parametrize("host", RUNNABLE)
def test_three_m_axes_and_no_m_axis(host: str) -> None:
    rng = np.random.default_rng(3)
    b = random(rng, (6, 24))
    cases = [
        Case(random(rng, (2, 3, 5, 6)), b, 3, F32),
        Case(random(rng, (2, 3, 5, 6)), b, 3, F32, dynamic="m"),
        Case(random(rng, (2, 9, 2, 6)), b, 3, F32, initial=True),
        Case(random(rng, (6,)), b, 0, F32, initial=True),
        Case(random(rng, (2, 3, 5, 6)).transpose(2, 0, 1, 3), b, 3, F32, dynamic="r"),
    ]
    run(cases, host)


@pytest.mark.parametrize("host", RUNNABLE)
def test_strides(host: str) -> None:
    """a transposed, broadcast and reversed; b transposed (a dot product per element), unpacked, with a gap."""
    rng = np.random.default_rng(4)
    cases = []
    for dynamic, (m, k, n) in itertools.product(["", "rcb", "mnkrcb"], [(6, 20, 33), (1, 35, 16), (13, 5, 7)]):
        a, b = random(rng, (m, k)), random(rng, (k, n))
        cases += [
            Case(random(rng, (k, m)).T, b, 1, F32, dynamic=dynamic),
            Case(np.broadcast_to(random(rng, (k,)), (m, k)), b, 1, F32, dynamic=dynamic),
            Case(a[:, ::-1], b, 1, F32, dynamic=dynamic),
            Case(a, random(rng, (n, k)).T, 1, F32, dynamic=dynamic, initial=True),
            Case(a, random(rng, (k, n + 50))[:, 3 : n + 3], 1, F32, dynamic=dynamic),
        ]
    run(cases, host)


@pytest.mark.parametrize("host", RUNNABLE)
@pytest.mark.parametrize("dynamic", ["", "n", "k", "mnkb"])
def test_transposed_b(host: str, dynamic: str) -> None:
    """b stored [n, k]: one dot product per element, with two k axes, tails of k and n and other dtypes."""
    rng = np.random.default_rng(9)
    cases = []
    for m, k, n in ((1, 64, 64), (3, 1, 5), (2, 16, 1), (1, 37, 17), (4, 100, 33), (2, 0, 3), (7, 64, 35), (3, 300, 9)):
        cases.append(Case(random(rng, (m, k)), random(rng, (n, k)).T, 1, F32, dynamic=dynamic, initial=m == 3))
    cases.append(Case(random(rng, (2, 3, 9)), random(rng, (7, 3, 12))[..., :9].transpose(1, 2, 0), 1, F32))
    cases.append(Case(random(rng, (2, 40), BF16), random(rng, (21, 40), BF16).T, 1, F32, dynamic=dynamic))
    cases.append(Case(random(rng, (2, 70), I8), random(rng, (21, 70), I8).T, 1, I32, dynamic=dynamic))
    run(cases, host)


@pytest.mark.parametrize("host", RUNNABLE)
@pytest.mark.parametrize(
    ("a", "b", "acc"),
    [
        (F64, F64, F64),
        (F16, F16, F32),
        (BF16, BF16, F32),
        (F32, BF16, F32),
        (I8, I8, I32),
        (U8, I8, I32),
        (U8, U8, I32),
    ],
    ids=str,
)
def test_dtypes(host: str, a, b, acc) -> None:
    rng = np.random.default_rng(5)
    cases = []
    for m, k, n in ((6, 40, 32), (1, 64, 48), (5, 17, 13), (3, 2, 1)):
        width = -(-n // 16) * 16
        cases.append(Case(random(rng, (m, k), a), random(rng, (k, n), b), 1, acc))
        cases.append(Case(random(rng, (m, k), a), panel(rng, (k,), n, width, b), 1, acc, initial=True, dynamic="mnk"))
    run(cases, host)


BYTE_HOSTS = [HOST_CLASSES[name] for name in RUNNABLE]


def quads(b: np.ndarray) -> np.ndarray:
    """A [k, n] matrix as the view [k/4, 4, n] of memory packed [k/4][n][4], n padded to 16."""
    k, n = b.shape
    width = -(-n // 16) * 16
    packed = np.full((k // 4, width, 4), 55, b.dtype)
    packed[:, :n] = b.reshape(k // 4, 4, n).transpose(0, 2, 1)
    return packed[:, :n].transpose(0, 2, 1)


@pytest.mark.parametrize("host", BYTE_HOSTS, ids=lambda h: h.name)
@pytest.mark.parametrize(("a", "b"), [(U8, I8), (I8, I8), (U8, U8), (I8, U8)], ids=str)
def test_bytes_packed_by_four(host: HostClass, a, b) -> None:
    rng = np.random.default_rng(10)
    cases = []
    for m, k, n in ((6, 64, 64), (13, 36, 33), (1, 128, 48), (2, 4, 5), (3, 2048, 17)):
        for dynamic in ("", "mn"):
            left = random(rng, (m, k // 4, 4), a)
            left[0], extreme = np.iinfo(a.numpy).min, random(rng, (k, n), b)
            extreme[:, 0] = np.iinfo(b.numpy).min
            cases.append(Case(left, quads(extreme), 1, I32, dynamic=dynamic, initial=m == 13))
    run(cases, host)


@pytest.mark.parametrize("host", BYTE_HOSTS, ids=lambda h: h.name)
@pytest.mark.parametrize(("a", "b"), [(U8, I8), (I8, I8), (U8, U8)], ids=str)
def test_bytes_in_plain_panels(host: HostClass, a, b) -> None:
    rng = np.random.default_rng(11)
    cases = []
    for m, k, n in ((6, 64, 64), (13, 36, 33), (1, 129, 48), (2, 2, 5)):
        left, right = random(rng, (m, k), a), random(rng, (k, n), b)
        left[0], right[:, 0] = np.iinfo(a.numpy).max, np.iinfo(b.numpy).max
        cases.append(Case(left, right, 1, I32, dynamic="mn", initial=m == 13))
        cases.append(Case(random(rng, (m, 3, 10), a), panel(rng, (3, 10), n, 64, b), 1, I32))
    run(cases, host)


@pytest.mark.parametrize("host", RUNNABLE)
def test_every_half_value_widens_exactly(host: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)].reshape(-1, 16)
    one = np.ones((1, 1), np.float16)
    for row in (halves[::37], np.array([[np.inf, -np.inf, np.nan, 6e-8] * 4], np.float16)):
        b = np.ascontiguousarray(row.reshape(1, -1))
        case = Case(one, b, 1, F32)
        fn, _ = case.emit("site0", HOST_CLASSES[host])
        engine = compile_text(module_text([fn]), HOST_CLASSES[host])
        kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(engine.get_function_address("site0"))
        kernel(one.ctypes.data, b.ctypes.data, case.dst.ctypes.data)
        np.testing.assert_array_equal(case.dst[0, : b.size], b[0].astype(np.float32))


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy that ends at a page that must not be touched."""
    page, libc = 4096, ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    pages = -(-array.nbytes // page)
    address = libc.mmap(None, (pages + 1) * page, 3, 0x22, -1, 0)
    assert libc.mprotect(ctypes.c_void_p(address + pages * page), page, 0) == 0
    memory = (ctypes.c_uint8 * array.nbytes).from_address(address + pages * page - array.nbytes)
    copy = np.frombuffer(memory, np.uint8).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("host", RUNNABLE)
def test_b_is_not_read_past_its_end(host: str) -> None:
    rng = np.random.default_rng(6)
    cases = []
    for k, n, dynamic in ((5, 21, ""), (5, 21, "n"), (3, 1, ""), (16, 30, "nkb")):
        b = guarded(random(rng, (k, n)))
        cases.append(Case(random(rng, (3, k)), b, 1, F32, dynamic=dynamic, n_max=n + 40 if "n" in dynamic else None))
    # A panel of three vectors, for which ten rows take tiles of two.
    width = 3 * HOST_CLASSES[host].vector_bytes // 4
    cases.append(Case(random(rng, (10, 21)), guarded(random(rng, (21, width))), 1, F32, dynamic="n"))
    run(cases, host)


def assembly(case: Case, class_name: str) -> str:
    host = HOST_CLASSES[class_name]
    target, triple = machine(host)
    module = llvm.parse_assembly(module_text([case.emit("site", host)[0]]))
    module.triple = triple
    return target.emit_assembly(module)


def test_aarch64_multiplies_by_lane() -> None:
    rng = np.random.default_rng(7)
    text = assembly(Case(random(rng, (16, 64)), random(rng, (64, 12)), 1, F32), "aarch64")
    assert re.search(r"fmla\s+v\d+\.4s, v\d+\.4s, v\d+\.s\[\d\]", text)


def test_accumulators_stay_in_registers() -> None:
    """No vector goes to the stack in the full tiles of any class, with static or run-time row strides."""
    rng = np.random.default_rng(8)
    for name, n in (("x86-64-v4", 64), ("x86-64-v4", 48), ("x86-64-v4", 32), ("x86-64-v3", 16), ("x86-64-v2", 8)):
        for dynamic in ("", "k", "r", "mk"):
            text = assembly(Case(random(rng, (24, 256)), random(rng, (256, n)), 1, F32, dynamic=dynamic), name)
            spills = re.findall(r"mov[au]ps\s+%[xyz]mm\d+, -?\d*\(%rsp\)", text)
            assert not spills, (name, n, dynamic, spills)


def test_rows_share_the_columns_of_a_transposed_b() -> None:
    """Each column is read once for all rows of a tile."""
    rng = np.random.default_rng(10)
    text = assembly(Case(random(rng, (3, 64)), random(rng, (64, 64)).T, 1, F32), "x86-64-v4-bf16")
    multiplications = len(re.findall(r"vfmadd\d+ps", text))
    loads = len(re.findall(r"vmov[au]ps\s+-?\d*\(%\w+[^)]*\), %zmm", text))
    assert multiplications == 3 * 16 * 4 and loads < 2 * 16 * 4


def test_a_core_with_prefetchers_of_its_own_is_left_alone_with_few_rows() -> None:
    rng = np.random.default_rng(11)
    keys = Case(random(rng, (3, 64)), random(rng, (512, 64)).T, 1, F32)
    one, many = (Case(random(rng, (m, 2048), F16), panel(rng, (2048,), 64, 64, F16), 1, F32) for m in (1, 6))
    for case in (keys, one):
        assert "prefetch" in assembly(case, "x86-64-v4") and "prefetch" not in assembly(case, "x86-64-v4-bf16")
    assert "prefetch" in assembly(many, "x86-64-v4-bf16")


def test_a_last_vector_that_is_half_empty_is_half_as_wide() -> None:
    """Where that takes half the time; also of packed pairs of bf16 numbers."""
    rng = np.random.default_rng(9)
    cases = [Case(random(rng, (13, 18)), panel(rng, (18,), n, -(-n // 16) * 16), 1, F32, initial=n > 16)
             for n in (1, 3, 8, 9, 20, 24, 40, 72)]  # fmt: skip
    assert "<8 x float> @llvm.fma" in run(cases, "x86-64-v4-bf16")
    wide, narrow = (assembly(cases[5], name) for name in ("x86-64-v4", "x86-64-v4-bf16"))
    assert not re.search(r"vfmadd\d+ps.*%ymm", wide) and re.search(r"vfmadd\d+ps.*%ymm", narrow)
    for n in (5, 8, 24):
        a, b = random(rng, (13, 9, 2), BF16), random(rng, (9, 16 * -(-n // 16), 2), BF16)
        case = Case(a, b.transpose(0, 2, 1)[..., :n], 1, F32)
        assert "dpbf16ps.256" in run([case], "x86-64-v4-bf16")


def test_rejects_strides_that_do_not_fit() -> None:
    a, b = Operand("%a", (1,), F32), Operand("%b", (16, 1), F32)
    site = MatmulSite(HOST_CLASSES["x86-64-v4"], a, b, (4,), (8,), 16, 16, F32, None, lambda fn, tile: None, str)
    with pytest.raises(ValueError, match="stride"):
        emit_matmul(Function("f", []), site)


@pytest.mark.parametrize("extent", range(40))
@pytest.mark.parametrize("most", [1, 5, 6, 12])
def test_balanced_split_covers_the_extent(extent: int, most: int) -> None:
    covered = [s + i * size for s, count, size in balanced_split(extent, most) for i in range(count) for _ in [0]]
    sizes = [size for _, count, size in balanced_split(extent, most) for _ in range(count)]
    assert sum(sizes) == extent
    assert not sizes or (max(sizes) <= most and max(sizes) - min(sizes) <= 1)
    assert covered == [sum(sizes[:i]) for i in range(len(sizes))]
