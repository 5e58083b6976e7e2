"""Single operators: a package each, made before or at first use, and kept for the process."""

from __future__ import annotations

import base64
import math
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.dataset import DataBuffer, TensorDesc, element_type
from acl_runtime.device.in_flight import Execution, Use
from acl_runtime.device.memory import Memory
from acl_runtime.om import PackageError, open_package
from acl_runtime.session import InferSession
from tensor_types.dtypes import DTYPES, DType
from tensor_types.errors import OpenAtcError


@dataclass(frozen=True)
class Operator:
    """Type, tensors (dtype and dims) and attributes; `constants` are values of inputs, by number."""

    kind: str
    inputs: tuple[tuple[DType, tuple[int, ...]], ...]
    outputs: tuple[tuple[DType, tuple[int, ...]], ...]
    attributes: tuple[tuple[str, Any], ...]
    constants: tuple[tuple[int, bytes], ...] = ()

    @classmethod
    def of(
        cls, kind: str, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc], attributes: dict[str, Any]
    ) -> Operator:
        """UNSUPPORTED_DATA_TYPE, or FEATURE_NOT_SUPPORT for a dynamic dim."""
        constants = tuple((n, d.constant) for n, d in enumerate(inputs) if d.constant is not None)
        frozen = tuple((name, _frozen(attributes[name])) for name in sorted(attributes))
        return cls(kind, tuple(map(_tensor, inputs)), tuple(map(_tensor, outputs)), frozen, constants)

    def header(self) -> dict[str, Any]:
        """As the header of its package has it (`operator`)."""
        sides = [[[t.name, list(dims)] for t, dims in side] for side in (self.inputs, self.outputs)]
        constants = {str(number): base64.b64encode(data).decode() for number, data in self.constants}
        return {"kind": self.kind, "inputs": sides[0], "outputs": sides[1], "attributes": dict(self.attributes),
                "constants": constants}  # fmt: skip

    @classmethod
    def of_header(cls, header: Mapping[str, Any]) -> Operator | None:
        """What `header` put into the header of a package; None if it is no single operator's. PackageError."""
        found = header.get("operator")
        if found is None:
            return None
        try:
            sides = [
                tuple((DTYPES[name], tuple(int(d) for d in dims)) for name, dims in found[key])
                for key in ("inputs", "outputs")
            ]
            frozen = tuple((str(name), _frozen(found["attributes"][name])) for name in sorted(found["attributes"]))
            constants = tuple((int(n), base64.b64decode(data)) for n, data in found["constants"].items())
            hash(frozen)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise PackageError(
                f"the operator of the package makes no sense: {error!r}", remedy="convert it again"
            ) from None
        return cls(str(found["kind"]), sides[0], sides[1], frozen, constants)


Compiler = Callable[[Path, Operator], None]
"""Writes the package of an operator. LookupError if there is none, OpenAtcError if it does not take the tensors."""


class Operators:
    """The operators of a process. Thread-safe."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._lock = threading.Lock()
        self._sessions: dict[Operator, InferSession] = {}
        self._packages: dict[Operator, Path] = {}

    def offer(self, path: Path) -> bool:
        """Uses a package for the operator that it was made of; whether it is one. PackageError, OSError."""
        operator = Operator.of_header(open_package(path).header)
        if operator is None:
            return False
        with self._lock:
            self._packages[operator] = path
        return True

    def load(self, path: Path, threads: int) -> bool:
        """As `offer`, and makes it ready now, so that the file is not needed any more."""
        if not self.offer(path):
            return False
        operator = Operator.of_header(open_package(path).header)
        assert operator is not None
        self.session(operator, threads)
        return True

    def session(self, operator: Operator, threads: int) -> InferSession:
        """OP_NOT_FOUND if there is no such operator or it does not take these tensors."""
        with self._lock:
            found = self._sessions.get(operator)
            if found is None:
                found = self._sessions[operator] = self._make(operator, threads)
            return found

    def prepare(
        self, operator: Operator, inputs: Sequence[DataBuffer], outputs: Sequence[DataBuffer], memory: Memory,
        threads: int,
    ) -> Execution:  # fmt: skip
        """Checks everything and gives the execution. Host memory goes as well as device memory: what an input holds is
        read now, and an output is written at the execution. OP_INPUT_NOT_MATCH, OP_OUTPUT_NOT_MATCH."""
        for what, code, buffers, tensors in (
            ("input", Code.OP_INPUT_NOT_MATCH, inputs, operator.inputs),
            ("output", Code.OP_OUTPUT_NOT_MATCH, outputs, operator.outputs),
        ):
            if len(buffers) != len(tensors):
                raise DeviceError(code, f"{len(buffers)} {what} buffers for {len(tensors)} descriptions")
            for number, (buffer, tensor) in enumerate(zip(buffers, tensors, strict=True)):
                if buffer.size < _nbytes(tensor):
                    reason = f"{what} {number} takes {_nbytes(tensor)} bytes, its buffer has {buffer.size}"
                    raise DeviceError(code, reason)
        session = self.session(operator, threads)
        constants = {n for n, _ in operator.constants}
        arrays, uses = [], []
        for number, (buffer, tensor) in enumerate(zip(inputs, operator.inputs, strict=True)):
            if number in constants:
                continue
            memory.check(buffer.address, _nbytes(tensor), f"input {number}")
            if memory.space(buffer.address) is memory.device:
                uses.append(Use(buffer.address, _nbytes(tensor), False, f"input {number} of {operator.kind}"))
                data = memory.device.view(buffer.address, _nbytes(tensor))
            else:
                data = memory.bytes(buffer.address, _nbytes(tensor))
            arrays.append(data.view(tensor[0].numpy).reshape(tensor[1]))
        for number, (buffer, tensor) in enumerate(zip(outputs, operator.outputs, strict=True)):
            memory.check(buffer.address, _nbytes(tensor), f"output {number}")
            uses.append(Use(buffer.address, _nbytes(tensor), True, f"output {number} of {operator.kind}"))
        places = [buffer.address for buffer in outputs]

        def run() -> None:
            try:
                results = session.infer(arrays)
            except OpenAtcError as error:
                raise DeviceError(Code.MODEL_EXECUTE, str(error)) from error
            for address, array, tensor in zip(places, results, operator.outputs, strict=True):
                if (array.shape, array.dtype) != (tensor[1], tensor[0].numpy):
                    made = f"{array.dtype} {list(array.shape)}"
                    reason = f"{operator.kind} made {made}, described was {tensor[0]} {list(tensor[1])}"
                    raise DeviceError(Code.OP_OUTPUT_NOT_MATCH, reason)
                if array.nbytes:
                    memory.move(address, np.ascontiguousarray(array).ctypes.data, array.nbytes)

        return Execution(tuple(uses), run)

    def _make(self, operator: Operator, threads: int) -> InferSession:
        package = self._packages.pop(operator, None)
        if package is not None:
            try:
                return InferSession(0, package, threads)
            except OpenAtcError as error:
                raise DeviceError(Code.OP_LOAD_FAILED, str(error)) from error
        # The mapping of the file outlives its name.
        with tempfile.TemporaryDirectory(prefix="acl", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "operator.om"
            try:
                self._compiler(path, operator)
                session = InferSession(0, path, threads)
            except LookupError as error:
                raise DeviceError(Code.OP_NOT_FOUND, str(error)) from error
            except OpenAtcError as error:
                raise DeviceError(Code.OP_NOT_FOUND, f"{operator.kind} does not take these tensors: {error}") from error
        return session


def _tensor(desc: TensorDesc) -> tuple[DType, tuple[int, ...]]:
    dtype = element_type(desc.dtype)
    if dtype is None or dtype.kind == "handle":
        raise DeviceError(Code.UNSUPPORTED_DATA_TYPE, f"data type {desc.dtype} is not taken by single operators")
    if any(d < 0 for d in desc.dims):
        raise DeviceError(Code.FEATURE_NOT_SUPPORT, f"dims {desc.dims}: single operators take fixed ones")
    return dtype, tuple(desc.dims)


def _nbytes(tensor: tuple[DType, tuple[int, ...]]) -> int:
    return math.prod(tensor[1]) * tensor[0].bytes


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
