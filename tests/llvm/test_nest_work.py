"""The work of partitioning a run grows with its length: what is counted are pairs of instructions that are compared."""

from __future__ import annotations

import pytest

from codegen.llvm import nest_builder
from codegen.llvm.loop_nests import LoopNest
from codegen.llvm.nest_builder import MAX_MEMBERS, NestBuilder
from codegen.tile.build import ProgramBuilder
from codegen.tile.ir import Instr, Program
from tensor_types.dtypes import F32


def chain(length: int, kind: str) -> Program:
    """y = ((x * 1.5 + 1.5) * ...): a tile a step, one tile for all, or steps that have nothing to do with each other."""
    b = ProgramBuilder("chain")
    x, y = b.param("x", F32, (64,)), b.param("y", F32, (64,), "out")
    tile = b.tile("t0", F32, (64,))
    b.load(tile, x)
    first = tile
    for i in range(length):
        result = tile if kind == "in place" else b.tile(f"t{i + 1}", F32, (64,))
        (b.add if i % 2 else b.mul)(result, first if kind == "apart" else tile, 1.5)
        tile = result
    b.store(y, tile)
    return b.finish()


def compared(monkeypatch: pytest.MonkeyPatch, program: Program) -> tuple[int, list[int]]:
    """Pairs of instructions that were compared, and the sizes of the nests."""
    calls = []
    real = nest_builder.dependences_between
    monkeypatch.setattr(nest_builder, "dependences_between", lambda a, b: calls.append(1) or real(a, b))
    builder = NestBuilder()
    for instr in program.body:
        assert isinstance(instr, Instr)
        builder.add(instr)
    monkeypatch.setattr(nest_builder, "dependences_between", real)
    units = builder.units()
    assert all(isinstance(unit, LoopNest) for unit in units)
    return len(calls), [len(unit.members()) for unit in units if isinstance(unit, LoopNest)]


@pytest.mark.parametrize("kind", ["a tile a step", "in place", "apart"])
def test_work_grows_with_length(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    (short, _), (long, sizes) = (compared(monkeypatch, chain(n, kind)) for n in (100, 400))
    assert long <= 4.6 * short
    assert sum(sizes) == 402 and max(sizes) <= MAX_MEMBERS
    if kind == "a tile a step":
        assert long <= 2 * 402, "each step is compared with the one that it reads, and no other"
        assert len(sizes) == -(-402 // MAX_MEMBERS)
