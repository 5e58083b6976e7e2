"""Random tile programs: chains of element-wise, reducing and moving instructions over shared tiles and odd views.

Values are small whole numbers, so results are exact whatever the order of combination.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from codegen.tile.build import Buffer, ProgramBuilder
from codegen.tile.ir import Program, View, axis
from tensor_types.dims import Dim, dmin
from tensor_types.dtypes import BF16, F32, I32
from tests.llvm.checked import compare
from tests.llvm.native import HOSTS

BINARY = ["add", "sub", "max", "min"]


class Generator:
    """Writes one random program; every tile is fully defined before it is read."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.b = ProgramBuilder(f"random{seed}")
        pick = self.random.choice
        self.rows, self.columns = pick([1, 2, 5, 8, 17]), pick([1, 3, 16, 21, 40])
        self.dtype = pick([F32, F32, I32, BF16])
        self.dynamic = self.random.random() < 0.4
        self.row_count: Dim = self.b.dim("m", 1) if self.dynamic else self.rows
        self.grid: Dim = 0
        self.defined: list[Buffer] = []
        self.count = 0

    def shape(self, kind: str) -> tuple[Dim, ...]:
        return {
            "mn": (self.valid, self.columns),
            "m": (self.valid,),
            "n": (self.columns,),
            "nm": (self.columns, self.valid),
        }[kind]

    def tile(self, kind: str) -> Buffer:
        full = {
            "mn": (self.rows, self.columns),
            "m": (self.rows,),
            "n": (self.columns,),
            "nm": (self.columns, self.rows),
        }
        self.count += 1
        return self.b.tile(f"{kind}{self.count}", self.dtype, full[kind])

    @staticmethod
    def kind(tile: Buffer) -> str:
        return tile.name.rstrip("0123456789")

    def whole(self, tile: Buffer) -> View:
        shape = self.shape(self.kind(tile))
        return tile.window((0,) * len(shape), shape)

    def operand(self, kind: str) -> View | float:
        """Something with the extents of `kind`: a tile, turned or repeated, a row or a column, or a number."""
        shape = self.shape(kind)
        if self.random.random() < 0.15:
            return float(self.random.randint(-3, 3))
        tile = self.random.choice(self.defined)
        have, name = self.kind(tile), tile.name
        if kind in ("mn", "nm"):
            m, n = (axis(0), axis(1)) if kind == "mn" else (axis(1), axis(0))
            if self.random.random() < 0.15:
                m = 0  # one row for all
            elif self.random.random() < 0.1:
                n = self.columns - 1 - n  # backwards
            return View(name, {"mn": (m, n), "nm": (n, m), "m": (m,), "n": (n,)}[have], shape)
        along = axis(0)
        index = {
            "m": {"mn": (along, 0), "nm": (0, along), "m": (along,)},
            "n": {"mn": (0, along), "nm": (along, 0), "n": (along,)},
        }
        return View(name, index[kind][have], shape) if have in index[kind] else 1.0

    def step(self) -> None:
        b, pick = self.b, self.random.choice
        choice = self.random.random()
        if choice < 0.6 or not any(len(self.kind(t)) == 2 for t in self.defined):
            kind = pick(["mn", "mn", "mn", "nm", "m", "n"])
            old = [t for t in self.defined if self.kind(t) == kind]
            target = pick(old) if old and self.random.random() < 0.5 else self.tile(kind)
            sources = [self.operand(kind), self.operand(kind)]
            # A destination may be read at the same place only.
            sources = [
                s for s in sources if not (isinstance(s, View) and s.base == target.name and s != self.whole(target))
            ]
            sources += [2.0] * (2 - len(sources))
            b.instr("T" + pick(BINARY).upper(), self.whole(target), *sources)
            self.define(target)
        elif choice < 0.85:
            source = pick([t for t in self.defined if len(self.kind(t)) == 2])
            have = self.kind(source)
            kept = pick("mn")
            target = self.tile(kept)
            k = have.index(kept)
            op = pick(["TROWMAX", "TROWMIN", "TROWSUM"]) if self.random.random() < 0.8 else "TROWMAX"
            b.instr(op, View(target.name, (axis(k),), self.shape(have)), self.whole(source), axes=(1 - k,))
            t = self.whole(target)
            b.max(t, t, -9.0)
            b.min(t, t, 9.0)
            self.define(target)
        else:
            source = pick(self.defined)
            target = self.tile(self.kind(source))
            b.mov(self.whole(target), self.whole(source))
            self.define(target)

    def define(self, tile: Buffer) -> None:
        """Keeps values small, so that bf16 holds them exactly, and makes the tile readable."""
        if self.random.random() < 0.5 or self.dtype == BF16:
            t = self.whole(tile)
            self.b.max(t, t, -9.0)
            self.b.min(t, t, 9.0)
        if tile not in self.defined:
            self.defined.append(tile)

    def program(self) -> Program:
        b = self.b
        x = b.param("x", self.dtype, (self.row_count, self.columns))
        blocks: Dim = 1
        self.valid: Dim = self.rows
        if self.dynamic:
            blocks = (self.row_count + self.rows - 1) // self.rows
            g = b.grid("g", blocks)
            self.valid = dmin(self.rows, self.row_count - self.rows * g)
            self.grid = g
        first = self.tile("mn")
        b.load(self.whole(first), x.window((self.rows * self.grid, 0), self.shape("mn")))
        self.defined.append(first)
        for _ in range(self.random.randint(2, 14)):
            self.step()
        if self.random.random() < 0.4:
            with b.loop("i", self.random.randint(0, 3)):
                known = list(self.defined)
                for _ in range(self.random.randint(1, 4)):
                    self.step()
            self.defined = known  # the loop may not run
        for number, tile in enumerate(self.defined):
            kind = self.kind(tile)
            shape = tuple(self.row_count if c == "m" else self.columns for c in kind)
            if kind == "n":
                shape, start = (blocks, self.columns), None
            out = b.param(f"y{number}", self.dtype, shape, "out")
            if kind == "n":
                b.store(out.view(self.grid, axis(0), shape=self.shape("n")), self.whole(tile))
                continue
            start = tuple(self.rows * self.grid if c == "m" else 0 for c in kind)
            b.store(out.window(start, self.shape(kind)), self.whole(tile))
        return b.finish()


@pytest.mark.parametrize("seed", range(80))
def test_random_program(seed: int) -> None:
    generator = Generator(seed)
    program = generator.program()
    rng = np.random.default_rng(seed)
    for rows in (1, generator.rows, 2 * generator.rows + 1) if generator.dynamic else (generator.rows,):
        x = rng.integers(-9, 10, (rows, generator.columns)).astype(generator.dtype.numpy)
        compare(program, {"x": x}, {"m": rows} if generator.dynamic else {}, hosts=[HOSTS[seed % len(HOSTS)]])
