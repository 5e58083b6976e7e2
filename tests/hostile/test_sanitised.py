"""Kernels that check every access: right programs give the same, one that leaves its tensor is stopped and touches nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from acl_runtime.executor.guarded_memory import guarded_zeros
from codegen.llvm.bounds_checks import STATUS_OUTSIDE, Checks, Range
from codegen.llvm.compile import compile_text
from codegen.llvm.lower import Lowering
from codegen.llvm.text import Function
from codegen.targets import target
from codegen.targets.hosts import host_class
from codegen.tile.ir import Program
from codegen.tile.text import parse_program
from codegen.tile.verifier import VerifyError, verify
from tests.llvm.native import HOSTS, Kernel, load
from tests.llvm.test_random_programs import Generator

ROOT = Path(__file__).parents[2]


class CheckedKernel(Kernel):
    """As `Kernel`, with checks; verified or not."""

    def __init__(self, program: Program, host: str) -> None:
        import ctypes

        self.program = program
        lowered = Lowering(program, host_class(host), checked=True)
        lowered.run()
        self.text = lowered.text()
        self._keep, address = load(compile_text(self.text, host), lowered.fn.name)
        p, i = ctypes.c_void_p, ctypes.c_int64
        self.call = ctypes.CFUNCTYPE(i, p, p, i, i, p)(address)
        self.scratch = np.zeros(lowered.storage.scratch_bytes + 64, np.uint8)


def _program(body: str, dims: str = "") -> Program:
    return parse_program(
        f"program p ({dims}) {{ param in x: f32[16] param in i: i64[16] param out y: f32[16] tile t: f32[64] UB "
        f"tile j: i64[16] UB body {{ {body} }} }}"
    )


@pytest.mark.parametrize(
    "body",
    [
        "TNEG y[_0 + n]{8}, x[_0]{8}",
        "TNEG y[_0 - n]{8}, x[_0]{8}",
        "TNEG y[_0]{8}, x[_0 + n]{8}",
        "TNEG y[_0]{3}, x[2*_0 + n]{3}",
        "TNEG y[_0]{n}, x[_0]{n}",
        "TEXPANDS y[n]{}, 1.0",
        "TEXPANDS t[_0]{64}, 0.0 TNEG t[_0 + 8*n]{8}, x[_0]{8} TSTORE y[_0]{16}, t[_0]{16}",
    ],
)
def test_what_leaves_its_tensor_is_stopped(body: str) -> None:
    """Programs that the verifier refuses; their accesses are right for n = 1 and leave the tensor for n = 40."""
    program = _program(body, "n in [0, inf]")
    with pytest.raises(VerifyError):
        verify(program, target(HOSTS[-1]))
    kernel = CheckedKernel(program, HOSTS[-1])
    for n, wrong in ((1, body.startswith("TNEG y[_0 - n]")), (40, True)):
        whole = np.full(4096, 7, np.float32)
        x, y = whole[1024:1040], whole[2048:2064]
        status = kernel.run({"x": x, "i": np.zeros(16, np.int64), "y": y}, {"n": n})
        assert (status & 255 == STATUS_OUTSIDE) == wrong, (n, status)
        assert (np.delete(whole, np.r_[2048:2064]) == 7).all()


def test_checked_programs_give_what_unchecked_ones_give() -> None:
    checked = 0
    for seed in range(6):
        generator = Generator(seed)
        program = generator.program()
        dims = {"m": generator.rows} if generator.dynamic else {}
        try:
            verify(program, target(HOSTS[-1]))
        except VerifyError:
            continue
        rng = np.random.default_rng(seed)
        from tensor_types.dims import evaluate

        shapes = {p.name: tuple(evaluate(d, dims) for d in p.shape) for p in program.params}
        arrays = {p.name: rng.integers(-9, 10, shapes[p.name]).astype(p.dtype.numpy) for p in program.params}
        results = []
        for kind in (Kernel, CheckedKernel):
            mine = {name: array.copy() for name, array in arrays.items()}
            results.append((kind(program, HOSTS[-1]).run(mine, dims), mine))
        (status, plain), (checked_status, tested) = results
        assert status == checked_status
        for name in arrays if not status else ():
            np.testing.assert_array_equal(plain[name], tested[name])
        checked += 1
    assert checked > 3


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["  %v = load float, ptr %elsewhere, align 4"], "unknown origin"),
        (["  store float 0.0, ptr %x, align 4"], "only read"),
        (["  call void @llvm.memset.p0.i64(ptr %y, i8 0, i64 4, i1 false)"], "cannot be checked"),
        (["  call void @llvm.x86.tilestored64(i16 1, i16 1, ptr %y, i64 1)"], "cannot be checked"),
        (["  %v = load x86_amx, ptr %y, align 4"], "x86_amx"),
    ],
)
def test_what_cannot_be_checked_is_refused(lines: list[str], reason: str) -> None:
    fn = Function("k", ["ptr %args", "ptr %dims", "i64 %begin", "i64 %end", "ptr %scratch"])
    fn.lines = [*lines, "  ret i64 0"]
    ranges = {"%x": Range("%x", "%xe", True), "%y": Range("%y", "%ye")}
    with pytest.raises((ValueError, KeyError), match=reason):
        Checks(fn, ranges, [0], 64).text()


def test_guard_pages_end_whoever_touches_them() -> None:
    """In a process of its own: one byte behind the block, then a page before it."""
    block = guarded_zeros(100, 4)
    block[:] = 1
    for at in ("+ 100", "- 4096"):
        code = (
            "import ctypes; from acl_runtime.executor.guarded_memory import guarded_zeros; b = guarded_zeros(100, 4); "
            f"ctypes.memset(b.ctypes.data {at}, 1, 1); print('touched')"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
        assert done.returncode == -11 and not done.stdout


_RUN = """
import sys, numpy as np
from acl_runtime import InferSession
from tensor_types.errors import OpenAtcError
for path in sys.argv[1:]:
    session = InferSession(0, path)
    draw = np.random.default_rng(0)
    arrays = []
    for spec in session.get_inputs():
        shape = [n if isinstance(n, int) else 3 for n in spec.shape]
        made = draw.standard_normal(shape) if spec.dtype.kind == "f" else np.ones(shape)
        arrays.append(made.astype(spec.dtype))
    try:
        for result in session.infer(arrays):
            print(np.asarray(result).tolist())
    except OpenAtcError as error:  # inputs that the model refuses
        print(error.code, error.message)
        assert error.code != "E19999"
"""


def _outputs(paths: list[Path], cache: Path, **more: str) -> str:
    environment = {**os.environ, "OPENATC_CACHE": str(cache), **more}
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *map(str, paths)], capture_output=True, text=True, cwd=ROOT, timeout=300,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.long
def test_models_run_sanitised_and_give_the_same(tmp_path: Path) -> None:
    from tests.hostile import packages

    packages.prepare(tmp_path)
    paths = sorted(tmp_path.glob("*.om"))
    plain = _outputs(paths, tmp_path / "cache")
    assert len(plain.splitlines()) >= len(paths)
    assert _outputs(paths, tmp_path / "cache", OPENATC_SANITISE="1") == plain


@pytest.mark.long
def test_random_programs_run_sanitised() -> None:
    for number in range(300):
        generator = Generator(random.Random(number).randrange(1 << 30))
        try:
            verify(program := generator.program(), target(HOSTS[-1]))
        except VerifyError:
            continue
        CheckedKernel(program, HOSTS[-1])
