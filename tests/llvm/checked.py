"""Compares native runs of a program with the interpreter on every host class that this machine can run."""

from __future__ import annotations

import numpy as np

from codegen.tile.interpreter import TaskStatus, interpret
from codegen.tile.ir import Program
from codegen.tile.text import parse_program, program_to_text
from tensor_types.dims import evaluate
from tests.llvm.native import HOSTS, Kernel


def outputs(program: Program, tensors: dict[str, np.ndarray], dims: dict[str, int]) -> dict[str, np.ndarray]:
    """Fresh arrays for the parameters that `tensors` lacks, filled with a number that is easy to see."""
    shapes = {p.name: tuple(evaluate(s, dims) for s in p.shape) for p in program.params}
    return {p.name: np.full(shapes[p.name], 77).astype(p.dtype.numpy) for p in program.params if p.name not in tensors}


def compare(program: Program, tensors: dict[str, np.ndarray], dims: dict[str, int] | None = None, rtol: float = 0.0,
            atol: float = 0.0, hosts: list[str] | None = None) -> list[Kernel]:  # fmt: skip
    """Runs the program natively and interpreted, statuses and all written parameters compared; gives the kernels."""
    dims = dims or {}
    assert parse_program(program_to_text(program)) == program
    fresh = outputs(program, tensors, dims)
    wanted = {k: v.copy() for k, v in {**tensors, **fresh}.items()}
    status = 0
    try:
        interpret(program, wanted, dims)
    except TaskStatus as ended:
        status = ended.code | ended.index << 8
    kernels = []
    for host in hosts or HOSTS:
        native = {k: v.copy() for k, v in {**tensors, **fresh}.items()}
        kernels.append(Kernel(program, host))
        assert kernels[-1].run(native, dims) == status
        if status:
            continue
        for p in program.params:
            if p.role in ("out", "inout"):
                got, want = native[p.name], wanted[p.name]
                if p.dtype.is_float:
                    got, want = got.astype(np.float64), want.astype(np.float64)
                np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=f"{host} {p.name}")
    return kernels
