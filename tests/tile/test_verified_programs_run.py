"""What the verifier accepts, the interpreter runs without finding an access out of bounds or a race, at every size."""

from __future__ import annotations

import random

import numpy as np

from codegen.targets import target
from codegen.tile.interpreter import InterpreterError, interpret
from codegen.tile.ir import DimParam, For, If, Imm, Instr, Param, Program, Stmt, View, axis
from codegen.tile.verifier import VerifyError, verify
from tensor_types.dims import Dim, ceildiv, dim, dmax, dmin, evaluate
from tensor_types.dtypes import F32

HOST = target("x86-64-v3")
M, N = dim("m"), dim("n")


def _extent(draw: random.Random, grid: list[tuple[str, Dim]]) -> Dim:
    name = dim(draw.choice([n for n, _ in grid] or ["n"]))
    return draw.choice([1, 2, 3, M, N, dmin(2, M - 2 * name), dmin(3, N - 3 * name), dmax(M - N, 0), M - name])


def _index(draw: random.Random, names: list[str], rank: int) -> Dim:
    index: Dim = draw.choice([0, 0, 0, 0, 0, 1, -1])
    for k in range(rank):
        index = index + draw.choice([0, 0, 1, 1, 1, 2, -1]) * axis(k)
    for name in names:
        term: Dim = draw.choice([0, 0, 1, 1, 2, 3, N]) * dim(name)
        if draw.random() < 0.2:
            term = draw.choice(
                [dim(name) // 2, dim(name) % 2, 2 * (dim(name) // 2), dim(name) % 2 + 3 * (dim(name) // 2)]
            )
        index = index + term
    return index


def _statement(draw: random.Random, grid: list[tuple[str, Dim]], names: list[str], depth: int) -> Stmt:
    kind = draw.random()
    if depth < 2 and kind < 0.2:
        var = f"l{depth}"
        inner = _statement(draw, grid, [*names, var], depth + 1)
        return For(var, draw.choice([2, M, N, ceildiv(M, 2)]), (inner,))
    if depth < 2 and kind < 0.35:
        left, right = dim(draw.choice([*names, "m"])), draw.choice([0, 1, M - 1, N - 1, N])
        arms = [_statement(draw, grid, names, depth + 1) for _ in range(2)]
        return If(left, draw.choice(["<", "<=", "=="]), right, (arms[0],), (arms[1],) if draw.random() < 0.5 else ())
    shape = tuple(_extent(draw, grid) for _ in range(draw.choice([0, 1, 1, 2])))
    dst, src = (
        View(base, tuple(_index(draw, draw.sample(names, min(len(names), 1)), len(shape)) for _ in range(2)), shape)
        for base in "yx"
    )
    return Instr("TEXPANDS", dst, (Imm(1.0),)) if draw.random() < 0.7 else Instr("TNEG", dst, (src,))


def _program(draw: random.Random) -> Program:
    grid: list[tuple[str, Dim]] = [("g", draw.choice([2, M, N, ceildiv(M, 2), ceildiv(N, 3), M * N]))]
    if draw.random() < 0.4:
        grid.append(("h", draw.choice([2, 3, N])))
    if draw.random() < 0.15:
        grid = []
    shape = (draw.choice([M, N, 2 * M, M + N, M * N, 4]), draw.choice([M, N, 3 * N, M * N, 5]))
    params = (Param("x", F32, (M + N, 3 * M * N + 4)), Param("y", F32, shape, "out"))
    names = [n for n, _ in grid]
    body = tuple(_statement(draw, grid, names, 0) for _ in range(draw.choice([1, 1, 2])))
    return Program("random", params, (), tuple(grid), body, (DimParam("m", 1), DimParam("n", 1, 9)))


def test_accepted_programs_never_go_wrong() -> None:
    draw = random.Random(5)
    accepted = refused_and_wrong = 0
    for _ in range(4000):
        program = _program(draw)
        try:
            verify(program, HOST)
            safe = True
        except VerifyError:
            safe = False
            # Only a sample of the refused ones is run: it shows that the programs can go wrong at all.
            if draw.random() > 0.05:
                continue
        accepted += safe
        for _ in range(4):
            dims = {"m": draw.randint(1, 6), "n": draw.randint(1, 6)}
            arrays = {p.name: np.zeros([evaluate(s, dims) for s in p.shape], np.float32) for p in program.params}
            try:
                interpret(program, arrays, dims)
            except InterpreterError as wrong:
                assert not safe, f"{program} at {dims}: {wrong}"
                refused_and_wrong += 1
                break
    assert accepted > 80
    assert refused_and_wrong > 50
