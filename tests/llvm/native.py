"""Runs tile programs natively in tests: compile for a host class, load, call with numpy arrays."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import numpy as np

from codegen.llvm.compile import compile_text
from codegen.llvm.lower import lower, scratch_bytes, symbol_name
from codegen.targets.hosts import host_class
from codegen.tile.ir import Program
from tensor_types.dims import evaluate
from tests.llvm.emulation import RUNNABLE, emulate, runs_on

HOSTS = RUNNABLE
"""Host classes that this machine can run."""
_counter = iter(range(1 << 30))
_jit: list[llvm.LLJIT] = []


def load(obj: bytes, symbol: str) -> tuple[object, int]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if not _jit:
        _jit.append(llvm.create_lljit_compiler())
    library = llvm.JITLibraryBuilder().add_object_img(obj).add_current_process().export_symbol(symbol)
    tracker = library.link(_jit[0], f"lib{next(_counter)}")
    return tracker, tracker[symbol]


def call_kernel(address: int, args: np.ndarray, dims: np.ndarray) -> int:
    """Calls code of the kernels' ABI with these arrays as `args` and `dims`, an empty grid and no scratch."""
    p, i = ctypes.c_void_p, ctypes.c_int64
    return ctypes.CFUNCTYPE(i, p, p, i, i, p)(address)(args.ctypes.data, dims.ctypes.data, 0, 0, None)


class Kernel:
    def __init__(self, program: Program, target: object) -> None:
        self.program = program
        self.text = lower(program, target)
        symbol = symbol_name(program)
        name = host_class(target).name
        code = compile_text(emulate(self.text, name), runs_on(name))
        self._keep, address = load(code, symbol)
        p, i = ctypes.c_void_p, ctypes.c_int64
        self.call = ctypes.CFUNCTYPE(i, p, p, i, i, p)(address)
        size = scratch_bytes(program, target) + 64
        self.scratch = np.full(size, 0xA5, np.uint8)

    def arguments(self, tensors: dict[str, np.ndarray], dims: dict[str, int] | None = None) -> tuple:
        dims = dims or {}
        self.args = np.array([tensors[q.name].ctypes.data for q in self.program.params], np.uint64)
        self.dims = np.array([dims[d.name] for d in self.program.dims], np.int64)
        total = evaluate(self.program.grid_size(), dims)
        start = self.scratch.ctypes.data
        return self.args.ctypes.data, self.dims.ctypes.data, 0, total, start + (-start) % 64

    def run(self, tensors: dict[str, np.ndarray], dims: dict[str, int] | None = None) -> int:
        return self.call(*self.arguments(tensors, dims))
