"""From serialised bytes to objects: determinism, workers, cache, host classes."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.cache_files import CacheFiles
from codegen.llvm.cache import ObjectCache
from codegen.llvm.compile import assembly, compile_program
from codegen.llvm.detect import detect_host_class
from codegen.llvm.kernel_image import unpack_image
from codegen.llvm.lower import lower, scratch_bytes, symbol_name
from codegen.llvm.vector_code import UnsupportedDType
from codegen.llvm.workers import compile_many
from codegen.targets.hosts import HOST_CLASSES, HOSTS
from codegen.tile.build import ProgramBuilder
from codegen.tile.text import program_to_text
from tensor_types.dtypes import DTYPES, F32, F64
from tensor_types.errors import EnvironmentProblem, InvalidModel
from tests.llvm.test_reductions import softmax

ROOT = Path(__file__).resolve().parents[2]


def serialised(count: int) -> list[bytes]:
    return [program_to_text(softmax(8 + i, 40).finish()).encode() for i in range(count)]


def test_workers_give_the_same_bytes_in_order() -> None:
    programs = serialised(5)
    assert compile_many(programs, "x86-64-v3", workers=2) == compile_many(programs, "x86-64-v3", workers=1)


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "import sys, hashlib; from codegen.llvm.compile import compile_program;"
        "print(hashlib.sha256(compile_program(sys.stdin.buffer.read(), 'x86-64-v4')).hexdigest())"
    )
    digests = set()
    for seed in ("0", "1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", script], input=serialised(1)[0], env=env, capture_output=True, check=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_program_is_named(workers: int) -> None:
    programs = [*serialised(2), b"program broken {", b"program broken {"]
    with pytest.raises(InvalidModel, match="program broken"):
        compile_many(programs, "x86-64-v3", workers=workers)


def test_the_cache_keeps_checks_and_evicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENATC_CACHE", str(tmp_path))
    cache = ObjectCache()
    (first, second) = serialised(2)
    objects = cache.compile([first, second, first], "x86-64-v3")
    assert objects[0] == objects[2] == compile_program(first, "x86-64-v3")
    assert cache.get(first, "x86-64-v3") == objects[0]
    assert cache.get(first, "x86-64-v2") is None, "another class has another object"
    path = tmp_path / "objects" / cache.key(first, "x86-64-v3")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    assert cache.get(first, "x86-64-v3") is None, "a damaged file is not an object"
    os.utime(path, (1, 1))
    small = ObjectCache(limit=cache.size() - 1)
    small.evict()
    assert not path.exists()
    assert small.get(second, "x86-64-v3") == objects[1], "the least recently used one went"
    assert small.clear() == 1
    assert small.size() == 0


def test_a_full_folder_is_looked_through_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by every conversion: with 100 000 files each would take seconds more."""
    files = CacheFiles(tmp_path / "cache" / "answers", 8000)
    looked = []
    monkeypatch.setattr(os, "scandir", lambda folder, scan=os.scandir: looked.append(folder) or scan(folder))
    for number in range(20):
        files.write(f"{number:02}", bytes(968))  # 1000 with their digest
        os.utime(files.folder / f"{number:02}", (number, number))
        files.tend()
    assert len(looked) == 1 and files.size() == 20_000
    os.utime(files.folder / ".evicted", (1, 1))
    files.tend()
    kept = sorted(p.name for p in files.folder.iterdir())
    assert kept == [".evicted", "13", "14", "15", "16", "17", "18", "19"], "an eighth is free, the oldest went"
    assert files.clear() == 7 and not list(files.folder.iterdir())


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners of files")
@pytest.mark.parametrize("part", ["", "objects", "file"])
def test_code_that_others_can_have_put_there_is_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("OPENATC_CACHE", str(folder))
    cache, (program,) = ObjectCache(), serialised(1)
    before = os.umask(0)
    try:
        (code,) = cache.compile([program], "x86-64-v3")
    finally:
        os.umask(before)
    assert cache.get(program, "x86-64-v3") == code, "what it makes is its own whatever the umask says"
    path = folder / "objects" / cache.key(program, "x86-64-v3") if part == "file" else folder / part
    path.chmod(path.stat().st_mode | 0o020)
    assert cache.get(program, "x86-64-v3") is None
    assert cache.compile([program], "x86-64-v3") == [code]
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == (0 if part == "file" else 1), "a cache that is not used is said once"
    assert all(str(path) in line and "chmod go-w" in line for line in said)
    assert bool(cache.problem()) == bool(said)


def test_a_cache_that_cannot_be_written_still_compiles(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = ObjectCache(blocked / "objects")
    (program,) = serialised(1)
    assert cache.compile([program], "x86-64-v3") == [compile_program(program, "x86-64-v3")]


def test_the_environment_forces_a_host_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENATC_HOST", raising=False)
    assert detect_host_class() in HOST_CLASSES
    monkeypatch.setenv("OPENATC_HOST", "x86-64-v2")
    assert detect_host_class() == "x86-64-v2"
    monkeypatch.setenv("OPENATC_HOST", "z80")
    with pytest.raises(EnvironmentProblem, match="z80"):
        detect_host_class()


def test_aarch64_code_uses_its_vector_unit() -> None:
    b = ProgramBuilder("fused")
    x, y, z = (b.param(n, F32, (64, 64), r) for n, r in (("x", "in"), ("y", "in"), ("z", "out")))
    t, u = b.tile("t", F32, (64, 64)), b.tile("u", F32, (64, 64))
    b.load(t, x)
    b.load(u, y)
    b.fma(t, t, u, t)
    b.exp(t, t)
    b.store(z, t)
    text = assembly(lower(b.finish(), "aarch64"), "aarch64")
    assert "fmla\tv" in text
    assert "\tbl\t" not in text, "no calls"
    _, code = unpack_image(compile_program(program_to_text(b.finish()).encode(), "aarch64"))
    assert code[:4] == b"\x7fELF"


@pytest.mark.parametrize("host", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_code_stays_inside_its_class(host: str) -> None:
    text = assembly(lower(softmax(64, 128).finish(), host), host)
    assert ("zmm" in text) == (host == "x86-64-v4")
    assert ("ymm" in text) == (host != "x86-64-v2")
    assert ("vfmadd" in text) == (host != "x86-64-v2")
    assert "call" not in text, "no library calls"


def test_a_target_does_as_well_as_its_name() -> None:
    program = softmax(8, 8).finish()
    for host in HOSTS:
        assert lower(program, host) == lower(program, host.name)
        assert scratch_bytes(program, host) == scratch_bytes(program, host.name)


def test_arithmetic_on_a_dtype_without_vector_code_is_an_error_that_names_it() -> None:
    b = ProgramBuilder("small_floats")
    kind = DTYPES["f8e5m2"]
    x, y, t = b.param("x", kind, (8,)), b.param("y", kind, (8,), "out"), b.tile("t", kind, (8,))
    b.add(t, x.whole(), x.whole())
    b.store(y, t)
    with pytest.raises(UnsupportedDType, match="f8e5m2"):
        lower(b.finish(), "x86-64-v4")


def test_the_symbol_names_the_program() -> None:
    program = softmax(8, 8).finish()
    assert symbol_name(program).startswith("k_")
    assert len(symbol_name(program)) == 18
    assert f"define i64 @{symbol_name(program)}(ptr %args, ptr %dims, i64 %begin, i64 %end, ptr %scratch)" in lower(
        program, "x86-64-v4"
    )


def relocations(elf: bytes) -> set[int]:
    """Types of all relocations of an ELF64 object."""
    sections, size, count = struct.unpack_from("<Q", elf, 40)[0], *struct.unpack_from("<HH", elf, 58)
    found = set()
    for n in range(count):
        kind, offset, length = struct.unpack_from("<4xI16xQQ", elf, sections + n * size)
        if kind == 4:  # SHT_RELA
            found |= {struct.unpack_from("<8xI", elf, at)[0] for at in range(offset, offset + length, 24)}
    return found


@pytest.mark.parametrize("host", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-vnni", "x86-64-amx"])
def test_code_reaches_its_constants_and_libm_from_anywhere(host: str) -> None:
    """Code, constants and libraries may lie more than 2 GiB apart: every reference is a 64-bit address."""
    b = ProgramBuilder("far")
    x, y = b.param("x", F32, (64,)), b.param("y", F32, (64,), "out")
    wide, out = b.param("w", F64, (8,)), b.param("z", F64, (8,), "out")
    b.exp(y, x)
    b.exp(out, wide)
    found = relocations(unpack_image(compile_program(program_to_text(b.finish()).encode(), host))[1])
    assert found == {1}  # R_X86_64_64
