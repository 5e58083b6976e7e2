"""What a program's own signal handlers raise ends a long execution, whose memory is free for the next one then."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from acl_runtime import InferSession
from acl_runtime.executor import Executor
from acl_runtime.executor.interruptible import Interruptible
from codegen.tile.text import parse_program, program_to_text
from graph_opt.plan import KernelRecord, Scheduled, TaskOperand, ValueInfo
from tensor_types.dtypes import F32
from tests.runtime.packages import write

sys.path.insert(0, str(Path(__file__).parent))
from executor_kernels import GraphBuilder

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers with signals")

_HOURS = """program p () {
  param in x: f32[4096, 16]
  param out y: f32[4096, 16]
  tile t: f32[1, 16] UB
  grid g < 4096
  body {
    TLOAD t[_0, _1]{1, 16}, x[g + _0, _1]{1, 16}
    for i < 30000000 {
      TADD t[_0, _1]{1, 16}, t[_0, _1]{1, 16}, t[_0, _1]{1, 16}
    }
    TSTORE y[g + _0, _1]{1, 16}, t[_0, _1]{1, 16}
  }
}
"""


class Rang(Exception):
    """What the handler of these tests raises."""


@pytest.fixture
def alarms() -> Iterator[None]:
    def ring(number: int, frame: object) -> None:
        raise Rang

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_handler_ends_a_long_execution(threads: int, alarms: None) -> None:
    """2000 chunks of 20 ms: it ends between two of them, more than once, and then a whole one goes through."""
    builder = GraphBuilder()
    counted = np.zeros(16, np.int64)
    first = builder.task("doze", dims=[20_000], grid=2000, grain=1)
    builder.task("increment", [counted], grid=16, grain=4, after=[first])
    run = Executor(threads).prepare(builder.build())
    run.is_long = True
    for _ in range(3):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        started = time.monotonic()
        with pytest.raises(Rang):
            run.execute()
        assert time.monotonic() - started < 5
    assert not counted.any()
    run.records["grid"][first] = 2
    run.execute()
    assert (counted == 1).all()


def test_what_handlers_raise_while_an_execution_ends_is_the_first(alarms: None) -> None:
    """Alarms without end neither leave the memory of a call that is under way, nor keep it from ending."""
    stopped, over = threading.Event(), threading.Event()

    def call(argument: int) -> int:
        stopped.wait(10)
        time.sleep(0.1)
        over.set()
        return argument

    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.01)
    with pytest.raises(Rang):
        Interruptible(call, [7]).call(stopped.set)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert over.is_set()
    assert Interruptible(call, [7]).call(stopped.set) == 7


def test_a_session_is_interrupted_and_runs_again(tmp_path: Path, alarms: None) -> None:
    values = [ValueInfo("x", F32, (4096, 16), "input"), ValueInfo("y", F32, (4096, 16), "temporary")]
    program = program_to_text(parse_program(_HOURS))
    record = KernelRecord(program, (TaskOperand("x", "in"), TaskOperand("y", "out")), (), 4096, "n", "region", work=1)
    write(tmp_path / "m.om", values, [Scheduled(record, ())], ["x"], ["y"])
    session = InferSession(0, tmp_path / "m.om", threads=1)
    for _ in range(2):
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        started = os.times().user
        with pytest.raises(Rang):
            session.infer([np.ones((4096, 16), np.float32)])
        assert os.times().user - started < 20  # all of it takes minutes
