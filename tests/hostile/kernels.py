"""Tile programs of real kernels, changed: where the verifier still accepts them, native code gives what the interpreter
gives, and touches nothing outside of its parameters and its scratch memory, however a plan lays the parameters."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import onnx

from atc.pipeline import shared_passes, target_passes
from codegen.kernels import kernels
from codegen.llvm.kernel_image import param_bytes
from codegen.lowering import lower_graph
from codegen.targets import target
from codegen.tile.arithmetic import LARGEST
from codegen.tile.interpreter import InterpreterError, TaskStatus, interpret
from codegen.tile.ir import Param, Program
from codegen.tile.text import parse_program
from codegen.tile.verifier import VerifyError, verify
from frontend import read_model
from graph_opt.ir.passes import run_passes
from graph_opt.plan import KernelRecord
from tensor_types.dims import evaluate
from tensor_types.errors import OpenAtcError
from tests.conformance.node_cases import load_cases
from tests.conformance.test_node_cases import SAMPLE
from tests.hostile.packages import change_program
from tests.hostile.sources import LATE, MODELS, model
from tests.llvm.native import HOSTS, Kernel

_FENCE, _MARK = 256, 0xA5
_LARGEST_BYTES, _MOST_WORK = 1 << 20, 200_000
_CORPUS = "kernels.json"


def prepare(folder: Path, cases: bool = True) -> None:
    """Writes the programs that are changed: those of small models and of the node tests."""
    host = target(HOSTS[-1])
    texts: dict[str, None] = {}
    models = [model(name) for name in (*MODELS, *LATE)]
    if cases:
        models += [load_cases((module,))[f"test_{name}"].model for module, name in SAMPLE.items()]
    for source in models:
        onnx.save(source, folder / "source.onnx")
        try:
            graph = read_model(folder / "source.onnx")
            run_passes(graph, shared_passes())
            run_passes(graph, target_passes(kernels([host])))
            lowered = lower_graph(graph, host)
        except OpenAtcError:
            continue
        texts.update((r.program, None) for r in lowered.records if isinstance(r, KernelRecord))
    (folder / _CORPUS).write_text(json.dumps(list(texts)))


class _Memory:
    """Bytes of parameters, each between fences of its own, or all of them over each other."""

    def __init__(self, params: list[tuple[Param, tuple[int, ...], tuple[int, ...], int]], draw: random.Random,
                 together: bool) -> None:  # fmt: skip
        room = max((n for *_, n in params), default=0) + 64 if together else 0
        self.blocks = []
        self.arrays: dict[str, np.ndarray] = {}
        if together:
            self.blocks = [np.full(room + 2 * _FENCE, _MARK, np.uint8)]
            self.blocks[0][_FENCE : _FENCE + room] = np.frombuffer(draw.randbytes(room), np.uint8)
        for param, shape, strides, nbytes in params:
            start = _FENCE
            if together:
                block = self.blocks[0]
                start += draw.randrange(0, room - nbytes + 1, param.dtype.bytes)
            else:
                block = np.full(nbytes + 2 * _FENCE, _MARK, np.uint8)
                self.blocks.append(block)
            dtype = np.dtype(param.dtype.numpy)
            self.arrays[param.name] = np.ndarray(
                shape, dtype, block.data, start, tuple(s * dtype.itemsize for s in strides)
            )
        self.rooms = [room] if together else [n for *_, n in params]

    def touched(self) -> bool:
        """True if a byte of a fence is another than it was."""
        return any(
            (block[:_FENCE] != _MARK).any() or (block[_FENCE + room :] != _MARK).any()
            for block, room in zip(self.blocks, self.rooms, strict=True)
        )


class Case:
    def __init__(self, folder: Path) -> None:
        self.texts: list[str] = json.loads((folder / _CORPUS).read_text())
        self.host = target(HOSTS[-1])

    def run(self, draw: random.Random) -> str:
        text = draw.choice(self.texts)
        for _ in range(draw.choice([0, 1, 1, 1, 2, 2, 3, 5])):
            text = change_program(draw, text)
        try:
            program = parse_program(text)
            bounds = verify(program, self.host)
        except (ValueError, VerifyError):
            return "refused"
        dims = {}
        for d in program.dims:
            near = [
                d.low,
                d.low + 1,
                d.low + draw.randrange(7),
                draw.randrange(64),
                d.low if d.high is None else d.high,
            ]
            n = draw.choice(near)
            dims[d.name] = max(d.low, n if d.high is None else min(n, d.high))
        if evaluate(bounds.size, dims) > LARGEST or evaluate(bounds.work, dims) > _MOST_WORK:
            return "too much work"
        params = []
        for param in program.params:
            nbytes = evaluate(param_bytes(param), dims)
            if nbytes > _LARGEST_BYTES:
                return "too large"
            if nbytes < 0:
                return "no bytes"
            shape = tuple(evaluate(n, dims) for n in param.shape)
            params.append((param, shape, tuple(evaluate(n, dims) for n in param.element_strides()), nbytes))
        return self.compare(draw, program, dims, params)

    def compare(self, draw: random.Random, program: Program, dims: dict[str, int],
                params: list[tuple[Param, tuple[int, ...], tuple[int, ...], int]]) -> str:  # fmt: skip
        together = draw.random() < 0.2
        native = _Memory(params, draw, together)
        kernel = Kernel(program, self.host.name)
        size = kernel.scratch.nbytes - 64
        kernel.scratch = np.full(size + 64 + _FENCE, _MARK, np.uint8)
        end = -kernel.scratch.ctypes.data % 64 + size
        if together:
            kernel.run(native.arrays, dims)
            self.untouched(native, kernel.scratch[end:])
            return "over each other"
        wild = draw.random() < 0.3
        rng = np.random.default_rng(draw.randrange(1 << 30))
        for array in native.arrays.values():
            array[...] = _values(rng, array, wild)
        wanted = {name: array.copy() for name, array in native.arrays.items()}
        status, undefined = 0, False
        try:
            interpret(program, wanted, dims)
        except TaskStatus as ended:
            status = ((ended.code | ended.index << 8) + (1 << 63)) % (1 << 64) - (1 << 63)
        except InterpreterError as error:
            if "undefined" not in str(error):
                raise
            undefined = True
        given = kernel.run(native.arrays, dims)
        self.untouched(native, kernel.scratch[end:])
        if undefined:
            return "reads undefined data"
        if given != status:
            raise AssertionError(f"status {given}, the interpreter's is {status}")
        if status:
            return "ended with a status"
        if not all(p.dtype.is_integer or p.dtype.kind == "bool" for p in (*program.params, *program.tiles)):
            return "within its memory"
        for name, array in native.arrays.items():
            if not np.array_equal(array, wanted[name]):
                raise AssertionError(f"{name} differs from the interpreter's")
        return "equal"

    def untouched(self, memory: _Memory, behind_scratch: np.ndarray) -> None:
        if memory.touched():
            raise AssertionError("bytes around a parameter were written")
        if (behind_scratch != _MARK).any():
            raise AssertionError("bytes behind the scratch memory were written")


def _values(rng: np.random.Generator, array: np.ndarray, wild: bool) -> np.ndarray:
    kind = array.dtype.kind
    if kind in "iu":
        info = np.iinfo(array.dtype)
        low, high = (info.min, info.max) if wild else (0, 3)
        return rng.integers(low, high, array.shape, array.dtype, endpoint=True)
    if kind == "b":
        return rng.integers(0, 2, array.shape).astype(bool)
    return (
        rng.standard_normal(array.shape).astype(array.dtype)
        if kind == "f"
        else rng.integers(0, 4, array.shape).astype(array.dtype)
    )
