"""Places that cannot be used: no HOME, folders that may only be read, full disks, few files. Each a code and a remedy, or
a run that says once what it does without."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest

from acl_runtime.om import open_package
from codegen.cache_files import CacheFiles
from codegen.llvm import worker_pool
from codegen.llvm.workers import CompileError, compile_many
from tests.hostile.sources import model

ROOT = Path(__file__).parents[2]
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2


def as_others() -> None:
    """In a child: permissions of files hold for root too."""
    if os.geteuid() == 0:
        for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def atc(*words: object, before: Callable[[], None] | None = None, **environment: str | None) -> tuple[int, str]:
    """Exit code and all that a command prints. A variable that is None is unset."""
    variables = {k: v for k, v in {**os.environ, **environment}.items() if v is not None}
    done = subprocess.run(
        [sys.executable, "-m", "atc", *map(str, words)], capture_output=True, text=True, cwd=ROOT, env=variables,
        preexec_fn=before, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    onnx.save(model("mlp"), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "ro"
    folder.mkdir(mode=0o500)
    yield folder
    folder.chmod(0o700)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two pages, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k,mode=700", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.long
def test_without_a_home(mlp: Path, tmp_path: Path) -> None:
    code, said = atc("convert", mlp, "-o", tmp_path / "m.om", HOME=None, OPENATC_CACHE=None, XDG_CACHE_HOME=None)
    assert code == 0, said
    open_package(tmp_path / "m.om", verify=True)


@pytest.mark.long
def test_a_home_that_cannot_be_written_is_said_once(mlp: Path, tmp_path: Path, read_only: Path) -> None:
    given = {"HOME": str(read_only), "OPENATC_CACHE": None, "XDG_CACHE_HOME": None}
    code, said = atc("convert", mlp, "-o", tmp_path / "m.om", before=as_others, **given)
    assert code == 0 and said.count("OPENATC_CACHE") == 1 and "Permission denied" in said, said
    code, said = atc("env", "--json", before=as_others, **given)
    assert code == 0 and json.JSONDecoder().raw_decode(said)[0]["cache_state"].startswith("only read"), said


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file where its folder should be: what no permission helps against."""
    (tmp_path / "cache").write_text("")
    files = CacheFiles(tmp_path / "cache" / "objects", 1 << 20)
    files.write("a", b"content")
    files.write("b", b"content")
    assert files.read("a") is None and not files.is_writable()
    assert len(caplog.messages) == 1 and "OPENATC_CACHE" in caplog.messages[0]
    assert CacheFiles(tmp_path / "new" / "objects", 1 << 20).is_writable()


def test_an_interrupt_leaves_no_half_file_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    files = CacheFiles(tmp_path / "cache" / "objects", 1 << 20)
    with pytest.raises(KeyboardInterrupt):
        files.write("a", b"content")
    assert not list(files.folder.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("words", [("convert", "M", "-o", "RO/m.om"), ("key", "new", "RO/key")])
def test_folders_that_cannot_be_written(mlp: Path, read_only: Path, words: tuple[str, ...]) -> None:
    given = [w.replace("RO", str(read_only)).replace("M", str(mlp)) if w in ("M",) or "RO" in w else w for w in words]
    code, said = atc(*given, before=as_others)
    assert code == 7 and "E13004" in said and "Permission denied" in said and "remedy" in said, said
    assert not list(read_only.iterdir())


@pytest.mark.long
def test_a_full_disk(mlp: Path, tmp_path: Path, small_disk: Path) -> None:
    onnx.save(model("branches"), tmp_path / "b.onnx")
    code, said = atc("convert", tmp_path / "b.onnx", "-o", small_disk / "b.om")
    assert code == 5 and "E14001" in said and "No space left" in said, said
    assert not list(small_disk.iterdir())
    code, said = atc("convert", tmp_path / "b.onnx", "-o", tmp_path / "b.om", OPENATC_CACHE=str(small_disk / "cache"))
    assert code == 0 and said.count("No space left") == 1, said
    (small_disk / "fill").write_bytes(b"")
    code, said = atc("run", tmp_path / "b.om", OPENATC_CACHE=str(small_disk / "cache"))
    assert code == 0, said


def _few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))


@pytest.mark.long
def test_few_files(mlp: Path, tmp_path: Path) -> None:
    code, said = atc("convert", mlp, "-o", tmp_path / "m.om", before=_few_files, OPENATC_CACHE=str(tmp_path / "cache"))
    assert code in (0, 5, 7) and "Traceback" not in said, said
    assert code == 0 or "remedy" in said, said
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.long
def test_sigterm_leaves_no_temporaries(mlp: Path, tmp_path: Path) -> None:
    """Ended while it waits for a compile worker, when the most is under way."""
    temporary, place = tmp_path / "tmp", tmp_path / "out"
    temporary.mkdir()
    place.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "OPENATC_CACHE": str(tmp_path / "cache")}
    for pause in (0.3, 1.0, 1.6, 2.2):
        child = subprocess.Popen(
            [sys.executable, "-m", "atc", "convert", str(mlp), "-o", str(place / "m.om")], cwd=ROOT, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(pause)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) in (0, 143, -signal.SIGTERM)
        assert not list(temporary.iterdir()) and {p.name for p in place.iterdir()} <= {"m.om"}


def test_python_that_is_dead_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that ends at once, and one that says nothing: a code, in time, and the next program compiles."""
    program = b"program p () {\n  param out y: f32[1]\n  body {\n    TEXPANDS y[0]{}, 1.0\n  }\n}\n"
    for command in (["false"], ["sleep", "30"]):
        with monkeypatch.context() as patch:
            patch.setattr(worker_pool, "POOL", pool := type(worker_pool.POOL)())
            patch.setattr("codegen.llvm.workers.POOL", pool)
            patch.setattr(worker_pool, "worker_command", lambda descriptor, target, c=command: c)
            patch.setenv("OPENATC_COMPILE_TIMEOUT", "1")
            with pytest.raises(CompileError):
                compile_many([program], "x86-64-v3")
    assert compile_many([program], "x86-64-v3")
