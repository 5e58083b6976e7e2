"""Tile programs of a chip as kernels of this process: verified for the chip and executed by the interpreter.

Slow, and exact in meaning: what a program does on the chip's memories is what happens here, instruction by instruction.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from codegen.llvm.kernel_image import KernelFacts, facts_of
from codegen.llvm.sound_program import read_program
from codegen.tile.interpreter import interpret
from codegen.tile.ir import Param, Program
from codegen.tile.observer import Observer
from tensor_types.dims import evaluate


@dataclass(frozen=True, eq=False)
class ChipKernel:
    """A program of a chip and its facts."""

    facts: KernelFacts
    program: Program
    address: int = 0
    """No native code: the executor hands such a task back."""

    def run(self, arguments: Sequence[int], dims: Sequence[int], observer: Observer | None = None) -> None:
        """Executes the whole grid. `arguments` are addresses of the parameters, `dims` values in the program's order.

        TaskStatus for a data-dependent index or size out of range.
        """
        named = {d.name: int(v) for d, v in zip(self.program.dims, dims, strict=True)}
        params = zip(self.program.params, arguments, strict=True)
        tensors = {p.name: _tensor(p, int(address), named) for p, address in params}
        interpret(self.program, tensors, named, observer=observer)


def chip_kernels(texts: Sequence[str], chip: str) -> list[ChipKernel]:
    """The kernels of program texts, in order. InvalidModel or VerifyError if one is not sound for the chip."""
    made: dict[str, ChipKernel] = {}
    for text in texts:
        if text not in made:
            program, bounds = read_program(text, chip)
            made[text] = ChipKernel(facts_of(program, bounds, program.name, 0), program)
    return [made[text] for text in texts]


def _tensor(param: Param, address: int, dims: dict[str, int]) -> np.ndarray:
    """The parameter's elements where they lie; binding has checked that they lie within their tensor."""
    shape = tuple(evaluate(d, dims) for d in param.shape)
    dtype = np.dtype(param.dtype.numpy)
    if not prod(shape):
        return np.empty(shape, dtype)
    strides = [evaluate(d, dims) * dtype.itemsize for d in param.element_strides()]
    nbytes = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + dtype.itemsize
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.ndarray(shape, dtype, memory, 0, tuple(strides))
