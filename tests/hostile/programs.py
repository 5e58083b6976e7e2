"""Random tile programs that the verifier accepts: native code gives what the interpreter gives, and leaves the bytes
around every parameter as they are."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from codegen.targets import target
from codegen.tile.interpreter import InterpreterError, TaskStatus, interpret
from codegen.tile.ir import Program
from codegen.tile.verifier import VerifyError, verify
from tensor_types.dims import evaluate
from tests.llvm.native import HOSTS, Kernel
from tests.llvm.test_random_programs import Generator
from tests.tile import test_verified_programs_run as loose

_FENCE = 64
_MARK = 0xA5


def prepare(folder: Path) -> None:
    """Nothing is needed."""


def fenced(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A copy of an array, and the bytes around it."""
    whole = np.full(array.nbytes + 2 * _FENCE, _MARK, np.uint8)
    inner = whole[_FENCE : _FENCE + array.nbytes].view(array.dtype).reshape(array.shape)
    inner[...] = array
    return inner, whole


class Case:
    def __init__(self, folder: Path) -> None:
        self.host = target(HOSTS[-1])

    def run(self, draw: random.Random) -> str:
        if draw.random() < 0.5:
            generator = Generator(draw.randrange(1 << 30))
            program = generator.program()
            rows = draw.choice([1, generator.rows, 2 * generator.rows + 1]) if generator.dynamic else generator.rows
            dims = {"m": rows} if generator.dynamic else {}
        else:
            program = loose._program(draw)
            dims = {"m": draw.randint(1, 6), "n": draw.randint(1, 6)}
        try:
            verify(program, self.host)
        except VerifyError:
            return "refused"
        return self.compare(draw, program, dims)

    def compare(self, draw: random.Random, program: Program, dims: dict[str, int]) -> str:
        rng = np.random.default_rng(draw.randrange(1 << 30))
        shapes = {p.name: tuple(evaluate(s, dims) for s in p.shape) for p in program.params}
        arrays = {p.name: rng.integers(-9, 10, shapes[p.name]).astype(p.dtype.numpy) for p in program.params}
        wanted = {name: array.copy() for name, array in arrays.items()}
        status = 0
        try:
            interpret(program, wanted, dims)
        except TaskStatus as ended:
            status = ended.code | ended.index << 8
        except InterpreterError as error:
            if "undefined" in str(error):
                return "reads undefined data"
            raise
        kernel = Kernel(program, self.host.name)
        fences = {name: fenced(array) for name, array in arrays.items()}
        native = {name: inner for name, (inner, _) in fences.items()}
        if kernel.run(native, dims) != status:
            raise AssertionError(f"another status than the interpreter's {status}")
        for name, (inner, whole) in fences.items():
            ends = np.concatenate([whole[:_FENCE], whole[_FENCE + inner.nbytes :]])
            if (ends != _MARK).any():
                raise AssertionError(f"bytes around {name} were written")
            if not status and not np.array_equal(inner, wanted[name], equal_nan=inner.dtype.kind == "f"):
                raise AssertionError(f"{name} differs from the interpreter's")
        return "equal"
