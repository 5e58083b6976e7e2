"""Compile workers: isolated from the current folder, bounded in time, replaced when they fail."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from codegen.llvm import worker_pool
from codegen.llvm.compile import compile_program
from codegen.llvm.worker import LARGEST_FRAME, ProtocolError, receive_frame
from codegen.llvm.worker_pool import POOL, Worker, WorkerFailed, worker_command
from codegen.llvm.workers import CompileError, compile_many, worker_count
from codegen.tile.text import program_to_text
from codegen.tile.verifier import VerifyError
from tensor_types.errors import EnvironmentProblem, InvalidModel
from tests.llvm.test_reductions import softmax

HOST = "x86-64-v3"
ROOT = Path(__file__).resolve().parents[2]
ANSWERS = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); "


def serialised(columns: int) -> bytes:
    return program_to_text(softmax(4, columns).finish()).encode()


@pytest.fixture(autouse=True)
def no_warm_workers() -> None:
    POOL.end_all()


def instead(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Workers run the script, with the socket's descriptor as its argument."""
    monkeypatch.setattr(worker_pool, "worker_command", lambda fd, _: [sys.executable, "-c", script, str(fd)])


def modules_of_a_worker() -> list[str]:
    """Top-level names of what a worker has imported after one program."""
    script = (
        "import atexit, sys; atexit.register(lambda: print(*sorted({m.split('.')[0] for m in sys.modules})))\n"
        "import codegen.llvm.worker; from codegen.llvm.compile import compile_program\n"
        "compile_program(sys.stdin.buffer.read(), 'x86-64-v3')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=serialised(8), cwd=ROOT, capture_output=True, check=True
    )
    own = ("codegen", "tensor_types", "__main__")
    return [name for name in done.stdout.decode().split() if name not in own and name not in sys.builtin_module_names]


@pytest.mark.parametrize("does", ["raise SystemExit('planted')", "print('planted' * 9999, flush=True)"])
def test_modules_in_the_current_folder_are_not_imported(tmp_path: Path, does: str) -> None:
    planted = modules_of_a_worker()
    assert {"llvmlite", "copy", "json", "socket"} <= set(planted) and "numpy" not in planted, "it starts quickly"
    for name in [*planted, "numpy", "ml_dtypes", "sitecustomize", "usercustomize", "codegen", "tensor_types"]:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n{does}\n")
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "PYTHONPATH": f"{os.pathsep}."}
    with ours, theirs, subprocess.Popen(
        worker_command(theirs.fileno(), HOST), cwd=tmp_path, env=environment, pass_fds=[theirs.fileno()]
    ) as process:  # fmt: skip
        worker = Worker.__new__(Worker)
        worker.stream, worker.process = ours, process
        answer = worker.ask(serialised(8), 120)
        process.kill()
    assert answer[1:] == compile_program(serialised(8), HOST)
    assert not (tmp_path / "ran").exists()


def test_a_worker_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, ANSWERS + "import time; time.sleep(600)")
    monkeypatch.setenv("OPENATC_COMPILE_TIMEOUT", "0.5")
    started = time.monotonic()
    with pytest.raises(CompileError, match=r"longer than 0\.5 s \(OPENATC_COMPILE_TIMEOUT\).*\[op program softmax"):
        compile_many([serialised(8)], HOST)
    assert time.monotonic() - started < 60 and not POOL._all


def test_a_worker_that_answers_a_byte_now_and_then_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, ANSWERS + "import time\nwhile True: s.send(b'\\1\\0\\0\\0'[:1]); time.sleep(0.05)")
    monkeypatch.setenv("OPENATC_COMPILE_TIMEOUT", "0.5")
    with pytest.raises(CompileError, match=r"longer than|protocol"):
        compile_many([serialised(8)], HOST)


def test_a_worker_that_prints_is_heard_only_when_it_dies(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    instead(monkeypatch, ANSWERS + "print('\\0' * 99, 'last words', flush=True); s.recv(9); sys.exit(9)")
    with pytest.raises(CompileError, match=r"exit status 9\).*last words.*program softmax"):
        compile_many([serialised(8)], HOST)
    assert capfd.readouterr() == ("", "")


def test_lengths_beyond_the_limit_are_refused() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall((LARGEST_FRAME + 1).to_bytes(4, "little"))
        with pytest.raises(ProtocolError, match="a frame of 268435457 bytes"):
            receive_frame(ours)


def test_a_worker_stays_warm_and_a_dead_one_is_replaced() -> None:
    first = compile_many([serialised(8)], HOST)
    (worker,) = POOL._all
    assert compile_many([serialised(8)], HOST) == first and POOL._all == {worker}
    worker.process.kill()
    worker.process.wait()
    with pytest.raises(CompileError, match="killed by signal 9"):
        compile_many([serialised(8)], HOST)
    assert compile_many([serialised(8)], HOST) == first


def test_idle_workers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_many([serialised(8)], HOST)
    (worker,) = POOL._all
    worker.idle_since -= 1000
    compile_many([serialised(8)], HOST)
    assert worker.process.returncode is not None and worker not in POOL._all


def test_a_worker_that_ended_while_its_parent_was_held_up_is_replaced() -> None:
    """It is taken as warm, and ends by itself before it is asked: the end of the stream is as good as time."""
    worker = POOL.take(HOST)
    worker.stream.shutdown(socket.SHUT_WR)
    worker.process.wait(60)
    POOL.give_back(HOST, worker)
    assert compile_many([serialised(8)], HOST) == [compile_program(serialised(8), HOST)]
    (now,) = POOL._all
    assert now is not worker


def test_a_program_that_is_not_sound_keeps_its_kind_of_error() -> None:
    text = serialised(8)
    with pytest.raises(InvalidModel, match="canonical"):
        compile_many([text + b" "], HOST)
    with pytest.raises(VerifyError) as caught:
        compile_many([text.replace(b"in x: f32[4, 8]", b"in x: f32[4, 7]")], HOST)
    assert caught.value.code == "E17001" and caught.value.statement


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", "inf"])
def test_the_time_out_must_be_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("OPENATC_COMPILE_TIMEOUT", value)
    with pytest.raises(EnvironmentProblem, match="OPENATC_COMPILE_TIMEOUT"):
        compile_many([serialised(8)], HOST)


def test_a_system_without_processes_is_an_error_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", none)
    with pytest.raises(CompileError, match="no compile worker starts.*temporarily unavailable"):
        compile_many([serialised(8)], HOST)


def test_a_forked_child_starts_workers_of_its_own() -> None:
    expected = compile_many([serialised(8)], HOST)
    child = os.fork()
    if not child:
        try:
            os._exit(0 if not POOL._all and compile_many([serialised(8)], HOST) == expected else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert compile_many([serialised(8)], HOST) == expected, "the parent's worker still answers the parent"


def test_few_programs_start_few_workers() -> None:
    assert worker_count([b" " * 100] * 20) == 1
    assert worker_count([b" " * (1 << 20)]) == 1
    assert worker_count([b" " * (1 << 20)] * 100) == len(os.sched_getaffinity(0))


def test_worker_failed_is_no_error_of_the_user() -> None:
    assert not issubclass(WorkerFailed, EnvironmentProblem)
