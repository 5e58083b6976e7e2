"""An observer sees every instruction of a run with its sizes, in order, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from codegen.tile.interpreter import interpret
from codegen.tile.ir import For, Imm, Instr, ReadDim
from codegen.tile.observer import Observer, Touched
from codegen.tile.text import parse_program
from tests.tile import programs

ROWS = """program rows (m in [1, 100]) {
  param in x: f32[m, 16]
  param in n: i32[1]
  param out y: f32[m, 8]
  tile t: f32[2, 8] UB
  grid i < (m + 1)//2
  body {
    read count = n[0]{} in [0, 2]
    for j < 2 {
      TLOAD t[_0, _1]{min(2, m - 2*i), 8}, x[2*i + _0, 8*j + _1]{min(2, m - 2*i), 8}
      TADDS t[_0, _1]{min(2, m - 2*i), 8}, t[_0, _1]{min(2, m - 2*i), 8}, 1.0
    }
    TSTORE y[2*i + _0, _1]{min(2, m - 2*i), 8}, t[_0, _1]{min(2, m - 2*i), 8}
  }
}
"""


class Log(Observer):
    def __init__(self) -> None:
        self.lines: list[object] = []

    def begin(self, index: int, env: Mapping[str, int]) -> None:
        self.lines.append(("begin", index, env["i"]))

    def end(self, index: int) -> None:
        self.lines.append(("end", index))

    def iteration(self, loop: For, value: int) -> None:
        self.lines.append((loop.var, value))

    def instruction(self, instr: Instr, dst: Touched, srcs: tuple[Touched | Imm, ...]) -> None:
        shown = [s.value if isinstance(s, Imm) else (s.scope, s.start, s.shape, s.elements) for s in (dst, *srcs)]
        self.lines.append((instr.op, *shown))

    def dim(self, stmt: ReadDim, source: Touched, value: int) -> None:
        self.lines.append((stmt.var, source.scope, value))


def test_a_run_is_seen_in_program_order() -> None:
    log, program = Log(), parse_program(ROWS)
    x, y = np.arange(48, dtype=np.float32).reshape(3, 16), np.zeros((3, 8), np.float32)
    interpret(program, {"x": x, "n": np.array([1], np.int32), "y": y}, {"m": 3}, observer=log)
    np.testing.assert_array_equal(y, x[:, 8:] + 1)
    last = log.lines[log.lines.index(("begin", 1, 1)) :]  # the tail: one row
    tile = ("UB", (0, 0), (1, 8), 8)
    assert last == [
        ("begin", 1, 1),
        ("count", "GM", 1),
        ("j", 0),
        ("TLOAD", tile, ("GM", (2, 0), (1, 8), 8)),
        ("TADD", tile, tile, 1.0),
        ("j", 1),
        ("TLOAD", tile, ("GM", (2, 8), (1, 8), 8)),
        ("TADD", tile, tile, 1.0),
        ("TSTORE", ("GM", (2, 0), (1, 8), 8), tile),
        ("end", 1),
    ]


class Work(Observer):
    """Counts multiply-adds, and bytes that leave global memory."""

    products = 0
    loaded = 0

    def instruction(self, instr: Instr, dst: Touched, srcs: tuple[Touched | Imm, ...]) -> None:
        for s in srcs:
            if isinstance(s, Touched) and s.scope == "GM":
                self.loaded += s.elements * s.dtype.bytes
        if instr.op.startswith("TMATMUL"):
            left = srcs[0]
            assert isinstance(left, Touched)
            self.products += left.elements * dst.shape[-1]


def test_a_count_of_work_is_that_of_the_problem() -> None:
    work = Work()
    a, b, c = np.ones((50, 24), np.float32), np.ones((24, 32), np.float32), np.zeros((50, 32), np.float32)
    interpret(programs.matmul(), {"a": a, "b": b, "c": c}, {"m": 50}, observer=work)
    assert work.products == 50 * 24 * 32
    assert work.loaded >= a.nbytes + b.nbytes
    assert (c == 24).all()
