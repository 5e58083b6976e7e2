"""Loading of object code, the executor's own compilation and its cache."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from acl_runtime.executor import Executor, LoadError, load_object
from acl_runtime.executor import native as native_module
from acl_runtime.executor.native_text import SYMBOLS, native_text
from acl_runtime.executor.pool import WorkerPool

sys.path.insert(0, str(Path(__file__).parent))
from executor_kernels import GraphBuilder, compile_ir

USES_LIBC = """
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memmove(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
declare float @expf(float)
declare double @tgamma(double)
define i64 @f(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {
  %a = call ptr @memcpy(ptr %args, ptr %args, i64 %begin)
  %b = call ptr @memmove(ptr %args, ptr %args, i64 %begin)
  %c = call ptr @memset(ptr %args, i32 0, i64 %begin)
  %x = call float @expf(float 0.0)
  %y = call double @tgamma(double 1.0)
  ret i64 0
}
"""


def test_libc_and_libm_resolve() -> None:
    assert load_object(compile_ir(USES_LIBC), ["f"])["f"]


def test_same_symbol_in_two_objects() -> None:
    text = "define i64 @f() {{ ret i64 {} }}"
    first, second = (load_object(compile_ir(text.format(n)), ["f"]) for n in (1, 2))
    assert first["f"] != second["f"]


def test_unresolved_symbols_are_errors() -> None:
    text = "declare i64 @no_such_function()\ndefine i64 @f() { %r = call i64 @no_such_function() ret i64 %r }"
    with pytest.raises(LoadError, match="cannot be linked"):
        load_object(compile_ir(text), ["f"])
    with pytest.raises(LoadError, match="cannot be linked"):
        load_object(compile_ir("define i64 @f() { ret i64 0 }"), ["absent"])
    assert load_object(compile_ir("define i64 @f() { ret i64 0 }"), ["f"])["f"]  # the linker is still usable


@pytest.mark.parametrize("damage", ["empty", "text", "half"])
def test_damaged_objects_are_errors(damage: str) -> None:
    good = compile_ir("define i64 @f() { ret i64 0 }")
    with pytest.raises(LoadError):
        load_object({"empty": b"", "text": b"no object", "half": good[: len(good) // 2]}[damage], ["f"])


def test_code_lives_as_long_as_its_object() -> None:
    code = load_object(compile_ir("define i64 @f(ptr %a, ptr %d, i64 %b, i64 %e, ptr %s) { ret i64 0 }"), ["f"])
    builder = GraphBuilder()
    builder.task("nothing", fn=code["f"])
    run = Executor(1).prepare(builder.build())
    gc.collect()
    run.execute()


@pytest.mark.parametrize(
    "triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-darwin", "x86_64-apple-darwin"]
)
@pytest.mark.parametrize("futex", [None, False])
def test_the_executor_compiles_for_every_platform(triple: str, futex: bool | None) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = native_text(triple, futex=futex)
    assert ("@syscall" in text) == ("linux" in triple and futex is None)
    with llvm.ObjectFileRef.from_data(native_module.compile_native(text, triple)) as parsed:
        assert any(section.is_text() and section.size() > 1000 for section in parsed.sections())


def test_no_executor_for_other_processors() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        native_text("riscv64-unknown-linux-gnu")


def test_posix_parking_wakes_and_stops(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variant for systems without futex, run here; all workers go to sleep between the executions."""
    monkeypatch.setenv("OPENATC_CACHE", str(tmp_path))
    triple = llvm.get_process_triple()
    posix = native_module.load_cached(native_text(triple, futex=False), triple)
    monkeypatch.setattr("acl_runtime.executor.pool.native", lambda: posix)
    monkeypatch.setattr("acl_runtime.executor.run.native", lambda: posix)
    monkeypatch.setattr("acl_runtime.executor.pool.SPIN_NS", 0)
    monkeypatch.setattr("acl_runtime.executor.pool.SPIN_NS_OVERSUBSCRIBED", 0)
    pool = WorkerPool(3)
    executor = Executor(1)
    executor.threads, executor._pool = 3, pool
    builder = GraphBuilder()
    x = np.zeros(64, np.int64)
    last: list[int] = []
    for _ in range(10):
        last = [builder.task("increment", [x], after=last, grid=64, grain=4), builder.task("nothing", after=last)]
    run = executor.prepare(builder.build())
    for execution in range(1, 100):
        run.execute()
        assert (x == 10 * execution).all()
    pool.stop()
    assert not any(thread.is_alive() and thread in pool._workers for thread in threading.enumerate())
    run.execute()
    assert (x == 1000).all()


def test_the_cache_is_used_and_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENATC_CACHE", str(tmp_path))
    triple = llvm.get_process_triple()
    text = native_text(triple)
    compiled: list[str] = []
    original = native_module.compile_native

    def compile_native(ir: str, triple: str) -> bytes:
        compiled.append(ir)
        return original(ir, triple)

    monkeypatch.setattr(native_module, "compile_native", compile_native)
    native_module.load_cached(text, triple)
    (path,) = tmp_path.rglob("*.o")
    native_module.load_cached(text, triple)
    assert len(compiled) == 1
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:100], b"", whole[:40] + b"\xff" + whole[41:]):
        path.write_bytes(content)
        native_module.load_cached(text, triple)
        assert path.read_bytes() == whole
    assert len(compiled) == 5
    assert list(tmp_path.rglob("*.o")) == [path] and len(list(path.parent.iterdir())) == 1


def test_an_unwritable_cache_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OPENATC_CACHE", str(tmp_path / "file" / "below"))
    triple = llvm.get_process_triple()
    assert native_module.load_cached(native_text(triple), triple).serial_start


def test_import_compiles_nothing_and_starts_no_thread(tmp_path: Path) -> None:
    program = (
        "import sys, threading, acl_runtime.executor as e; e.Executor(1); e.Executor(2);"
        "assert threading.active_count() == 1; from acl_runtime.executor.native import native;"
        "assert native.cache_info().currsize == 0;"
        "assert not {'onnx', 'frontend', 'graph_opt', 'atc', 'codegen.kernels'} & set(sys.modules)"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root), "OPENATC_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], cwd=root, env=env, check=True, timeout=60)
    assert not list(tmp_path.iterdir())


def test_every_entry_point_is_defined() -> None:
    text = native_text(llvm.get_process_triple())
    assert all(f"@{symbol}(" in text for symbol in SYMBOLS)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_loading_and_unloading_keeps_no_memory() -> None:
    """A linker keeps something of each object for ever: it must go when its objects are gone."""
    code = compile_ir("define i64 @f(i64 %n) { %m = add i64 %n, 7 \n ret i64 %m }")
    kept = load_object(code, ["f"])

    def load(count: int) -> int:
        for _ in range(count):
            load_object(code, ["f"])
        gc.collect()
        return resident_bytes()

    before = load(300)
    after = load(600)
    assert after - before < 600 * 2000, f"{(after - before) / 600:.0f} bytes an object"
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(kept["f"])
    assert call(1) == 8, "what is referenced stays, whatever came and went since"
