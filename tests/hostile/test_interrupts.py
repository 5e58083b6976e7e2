"""A kernel of hours is ended with the command that runs it, and nothing of the command stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graph_opt.plan import KernelRecord, Scheduled, TaskOperand, ValueInfo
from tensor_types.dtypes import F32
from tests.runtime.packages import write

ROOT = Path(__file__).parents[2]
_HOURS = """program p () {
  param in x: f32[16]
  param out y: f32[16]
  tile t: f32[16] UB
  body {
    TLOAD t[_0]{16}, x[_0]{16}
    for i < 1000000 {
      for j < 100000 {
        TSIN t[_0]{16}, t[_0]{16}
      }
    }
    TSTORE y[_0]{16}, t[_0]{16}
  }
}
"""


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        (["-m", "atc", "run", "--threads", "2"], signal.SIGINT, 130),
        pytest.param(["-m", "atc", "run"], signal.SIGTERM, 143, marks=pytest.mark.long),
        (["-m", "ais_bench", "--model"], signal.SIGINT, 130),
    ],
    ids=["run", "terminated", "ais_bench"],
)
def test_a_signal_ends_a_command_inside_a_kernel(
    tmp_path: Path, words: list[str], number: signal.Signals, code: int
) -> None:
    values = [ValueInfo("x", F32, (16,), "input"), ValueInfo("y", F32, (16,), "temporary")]
    record = KernelRecord(_HOURS, (TaskOperand("x", "in"), TaskOperand("y", "out")), (), 1, "n", "region", work=1)
    write(tmp_path / "m.om", values, [Scheduled(record, ())], ["x"], ["y"])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    child = subprocess.Popen(
        [sys.executable, *words, str(tmp_path / "m.om")], cwd=ROOT, env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for_work(child.pid)
        child.send_signal(number)
        assert child.wait(timeout=120) == code
    finally:
        child.kill()
        child.wait()
    assert not list(scratch.iterdir())


def _wait_for_work(process: int) -> None:
    """Until the kernel runs: the package's file is mapped, and processor time goes on."""
    stat = Path(f"/proc/{process}/stat")
    if not stat.exists():
        time.sleep(10)
        return
    maps = Path(f"/proc/{process}/maps")
    while "m.om" not in maps.read_text():
        time.sleep(0.1)
    mapped = _ticks(stat)
    while _ticks(stat) < mapped + os.sysconf("SC_CLK_TCK"):
        time.sleep(0.1)


def _ticks(stat: Path) -> int:
    return sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13]))
