"""What the probes share: from a fused node or a program to numbers on host classes and chips, through bytes.

A probe gives samples (a `Case` and the result that an independent oracle computes for it). Here they are lowered by the
kernel family, serialised, parsed, verified for the target and run: natively on host classes, interpreted for chips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from codegen.kernels import lower_node
from codegen.llvm.compile import assembly, compile_program
from codegen.llvm.kernel_image import unpack_image
from codegen.llvm.lower import lower
from codegen.targets import target
from codegen.targets.hosts import HOST_CLASSES
from codegen.tile.interpreter import interpret
from codegen.tile.ir import Program
from codegen.tile.text import parse_program, program_to_text
from codegen.tile.verifier import verify
from graph_opt.plan.records import KernelRecord
from tensor_types.dims import evaluate
from tests.kernels.lowered import Case, packed
from tests.llvm.emulation import EMULATED, RUNNABLE
from tests.llvm.native import Kernel

CHIPS = ("Ascend910B2", "Ascend310P3")
_PLAIN = [name for name, row in HOST_CLASSES.items() if name not in EMULATED]
HOSTS = [
    pytest.param(name, marks=pytest.mark.skipif(name not in RUNNABLE, reason=f"this processor is {RUNNABLE[-1]}"))
    for name in _PLAIN
]
"""Host classes as test parameters; those that the processor cannot run are skipped."""
_GUARD = 256
_MARK = 0x5A
_UNWRITTEN = 77


@dataclass
class Sample:
    """A fused node with its arguments, and what its outputs must be (float64, or integers for exact results)."""

    case: Case
    want: Mapping[str, np.ndarray]
    results: Mapping[str, np.ndarray]
    """An array of the right shape and dtype for every value that the node's operators make."""
    rtol: float = 0.0
    atol: float = 0.0


def sample(case: Case, want: Mapping[str, np.ndarray], rtol: float = 0.0, atol: float = 0.0) -> Sample:
    """A sample whose intermediate shapes and dtypes are those of onnxruntime."""
    return Sample(case, want, case.expected(), rtol, atol)


def serialised(program: Program, target_name: str) -> bytes:
    """A verified program as the bytes that are all a code generator gets."""
    verify(program, target(target_name))
    return program_to_text(program).encode()


@cache
def from_bytes(data: bytes, target_name: str) -> Program:
    """The program that the bytes say, verified; printing it gives the same bytes."""
    program = parse_program(data.decode())
    assert program_to_text(program).encode() == data
    verify(program, target(target_name))
    return program


@cache
def kernel(data: bytes, host: str) -> Kernel:
    """The native code of a serialised program."""
    return Kernel(from_bytes(data, host), host)


class Guarded:
    """A copy of an array at a multiple of 64 bytes, between marked bytes that no kernel may change."""

    def __init__(self, array: np.ndarray) -> None:
        self.raw = np.full(array.nbytes + 2 * _GUARD + 64, _MARK, np.uint8)
        self.start = _GUARD + -(self.raw.ctypes.data + _GUARD) % 64
        self.array = self.raw[self.start : self.start + array.nbytes].view(array.dtype).reshape(array.shape)
        self.array[...] = array

    def check(self, name: str) -> None:
        """AssertionError if a mark has changed."""
        end = self.start + self.array.nbytes
        assert (self.raw[: self.start] == _MARK).all(), f"a write before {name}"
        assert (self.raw[end:] == _MARK).all(), f"a write behind {name}"


def run_native(data: bytes, host: str, arrays: Mapping[str, np.ndarray], dims: Mapping[str, int]) -> int:
    """Runs a program natively on arrays by parameter name, results in place; gives its status."""
    code = kernel(data, host)
    for d in code.program.dims:
        assert dims[d.name] >= d.low, f"{d.name} = {dims[d.name]} is below {d.low}"
    guarded = {name: Guarded(a) for name, a in arrays.items()}
    status = code.run({name: g.array for name, g in guarded.items()}, dict(dims))
    for name, g in guarded.items():
        g.check(name)
        arrays[name][...] = g.array
    return status


def run_interpreted(data: bytes, chip: str, arrays: Mapping[str, np.ndarray], dims: Mapping[str, int]) -> int:
    """As `run_native`, by the interpreter and with the chip's rules verified; TaskStatus is raised."""
    interpret(from_bytes(data, chip), arrays, dims)
    return 0


def records_for(given: Sample, target_name: str) -> list[KernelRecord]:
    """The tasks of a sample's node; NotLowerable where the family has no kernel for the target."""
    records = lower_node(given.case.node(given.results), target(target_name))
    assert all(isinstance(r, KernelRecord) for r in records)
    return records  # type: ignore[return-value]


def check(samples: Sequence[Sample], target_name: str, one_program: bool = False) -> None:
    """Runs the samples on a host class or chip and compares; with `one_program` all must have the same programs."""
    chip = target_name in CHIPS
    texts = set()
    for given in samples:
        records = records_for(given, target_name)
        texts.add(tuple(r.program for r in records))
        got = _run(given, records, target_name, chip)
        for name, want in given.want.items():
            label = f"{target_name} {name} {given.case.dims or [a.shape for a in given.case.arrays.values()]}"
            if want.dtype.kind == "f":
                np.testing.assert_allclose(got[name].astype(np.float64), want, given.rtol, given.atol, err_msg=label)
            else:
                np.testing.assert_array_equal(got[name], want, err_msg=label)
    if one_program:
        assert len(texts) == 1, "the text of the program depends on a run-time size"


def _run(given: Sample, records: Sequence[KernelRecord], target_name: str, chip: bool) -> dict[str, np.ndarray]:
    case = given.case
    node = case.node(given.results)
    values: dict[str, np.ndarray] = {}
    for v in [*node.inputs, *node.outputs]:
        assert v is not None
        result = given.results.get(v.name)
        logical = case.arrays[v.name] if result is None else np.full(result.shape, _UNWRITTEN).astype(result.dtype)
        values[v.name] = np.array(v.format.to_physical(logical).reshape(v.format.physical_shape(logical.shape)))
    for name in case.constants:
        values.setdefault(name, case.arrays[name])
    for record in records:
        data = record.program.encode()
        program = from_bytes(data, target_name)
        dims = {d.name: evaluate(v, case.dims) for d, v in zip(program.dims, record.dims, strict=True)}
        assert evaluate(record.grid, case.dims) == evaluate(program.grid_size(), dims)
        arrays = {}
        for param, operand in zip(program.params, record.operands, strict=True):
            shape = tuple(evaluate(d, dims) for d in param.shape)
            if operand.value is None:
                arrays[param.name] = np.full(shape, 0xA5).astype(param.dtype.numpy)
            else:
                arrays[param.name] = np.array(packed(operand, values[operand.value])).reshape(shape)
        run = run_interpreted if chip else run_native
        assert run(data, target_name, arrays, dims) == 0
        for param, operand in zip(program.params, record.operands, strict=True):
            if operand.value is not None and operand.role in ("out", "inout"):
                values[operand.value] = arrays[param.name].reshape(values[operand.value].shape)
    return {v.name: v.format.to_logical(values[v.name], given.results[v.name].shape) for v in node.outputs}


def machine_text(data: bytes, host: str) -> str:
    """The assembly of a serialised program for a host class that need not be this machine's."""
    return assembly(lower(from_bytes(data, host), host), host)


def check_aarch64(data: bytes, *needed: str) -> None:
    """An object for 64-bit Arm is made, and its code holds the instructions and calls no function."""
    _, elf = unpack_image(compile_program(data, "aarch64"))
    assert elf[:4] == b"\x7fELF" and int.from_bytes(elf[18:20], "little") == 183
    text = machine_text(data, "aarch64")
    for instruction in needed:
        assert f"\t{instruction}\t" in text, f"no {instruction}"
    assert "\tbl\t" not in text and "\tblr\t" not in text, "a function is called"
