"""Single operators on a stream."""

from __future__ import annotations

import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from acl._call import integer, integers, plain, status, text, valued, word
from acl._process import handles, memory, stream_in_context, threads
from acl.op._attributes import Attributes
from acl.op._compiler import operators
from acl.util import owner_of
from acl_runtime.device import Code, DataBuffer, DeviceError, Execution, TensorDesc, submit
from acl_runtime.device.operators import Operator
from acl_runtime.om import PackageError

__all__ = [
    "cast",
    "compile",
    "compile_and_execute",
    "create_handle",
    "destroy_handle",
    "execute",
    "execute_v2",
    "execute_with_handle",
    "load",
    "set_compile_flag",
    "set_max_op_queue_num",
    "set_model_dir",
]

_lock = threading.Lock()
_folders: list[str] = []


@dataclass(eq=False)
class _Prepared:
    operator: Operator


@status(text)
def set_model_dir(folder: str) -> None:
    """Names the folder of the packages of `atc --singleop`; once. Operators that are not there are made at first use.

    100025 for a file that is no package; packages of other models are passed over.
    """
    if not os.path.isdir(folder):
        raise DeviceError(Code.READ_MODEL_FAILURE, f"there is no folder {folder}")
    with _lock:
        if _folders:
            raise DeviceError(Code.REPEAT_INITIALIZE, f"the folder is {_folders[0]} already")
        for path in sorted(Path(folder).rglob("*.om")):
            try:
                operators.offer(path)
            except (PackageError, OSError) as error:
                raise DeviceError(Code.OP_LOAD_FAILED, f"{path}: {error}") from error
        _folders.append(folder)


@status(word, word)
def load(address: int, size: int) -> None:
    """Takes the package of a single operator from memory. 100025 for what is none."""
    if not size:
        raise DeviceError(Code.INVALID_PARAM, "a size of 0")
    memory().check(address, size, "the package")
    data = memory().bytes(address, size).tobytes()
    with tempfile.TemporaryDirectory(prefix="acl", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "operator.om"
        path.write_bytes(data)
        try:
            is_operator = operators.load(path, threads())
        except PackageError as error:
            raise DeviceError(Code.OP_LOAD_FAILED, str(error)) from error
    if not is_operator:
        raise DeviceError(Code.OP_LOAD_FAILED, "the package is no single operator's: make it with atc --singleop")


@status(word)
def set_max_op_queue_num(count: int) -> None:
    """Without effect: operators are kept for the process."""
    if not count:
        raise DeviceError(Code.INVALID_PARAM, "a count of 0")


@status(integer)
def set_compile_flag(flag: int) -> None:
    """Without effect: operators have fixed dims."""


@status(text, integers, integers, integers, integers, word, word)
def execute_v2(
    kind: str, inputs: list[int], buffers: list[int], outputs: list[int], targets: list[int], attr: int, stream: int
) -> None:
    """Runs an operator at the stream's turn. Buffers may be host memory: inputs are read now. 100024: no operator."""
    _run(_operator(kind, inputs, outputs, attr), buffers, targets, stream)


@status(text, integers, integers, integers, integers, word, word)
def execute(
    kind: str, inputs: list[int], buffers: list[int], outputs: list[int], targets: list[int], attr: int, stream: int
) -> None:
    """The same as `execute_v2`, which is newer."""
    _run(_operator(kind, inputs, outputs, attr), buffers, targets, stream)


@status(text, integers, integers, integers, integers, word, integer, integer, text, word)
def compile_and_execute(
    kind: str, inputs: list[int], buffers: list[int], outputs: list[int], targets: list[int], attr: int, engine: int,
    flag: int, path: str, stream: int,
) -> None:  # fmt: skip
    """The same; engine, flag and path make no difference here."""
    _run(_operator(kind, inputs, outputs, attr), buffers, targets, stream)


@status(text, integers, integers, word, integer, integer, text)
def compile(kind: str, inputs: list[int], outputs: list[int], attr: int, engine: int, flag: int, path: str) -> None:
    """Makes an operator before its first use."""
    operators.session(_operator(kind, inputs, outputs, attr), threads())


@valued(text, integers, integers, word)
def create_handle(kind: str, inputs: list[int], outputs: list[int], attr: int) -> int:
    """An operator that is found once and run often."""
    operator = _operator(kind, inputs, outputs, attr)
    operators.session(operator, threads())
    return handles.of(_Prepared(operator))


@status(word, integers, integers, word)
def execute_with_handle(handle: int, buffers: list[int], targets: list[int], stream: int) -> None:
    """Runs it at the stream's turn."""
    _run(handles.get(handle, _Prepared).operator, buffers, targets, stream)


@plain(word, failure=None)
def destroy_handle(handle: int) -> None:
    handles.remove(handle, _Prepared)


@status(word, word, word, word, integer, word)
def cast(source: int, buffer: int, target: int, target_buffer: int, truncate: int, stream: int) -> None:
    """Converts elements; towards zero, as from floats to integers always."""
    _run(_operator("Cast", [source], [target], 0), [buffer], [target_buffer], stream)


def _operator(kind: str, inputs: list[int], outputs: list[int], attr: int) -> Operator:
    attributes = handles.get(attr, Attributes) if attr else {}
    return Operator.of(
        kind, [handles.get(d, TensorDesc) for d in inputs], [handles.get(d, TensorDesc) for d in outputs], attributes
    )


def _run(operator: Operator, inputs: list[int], outputs: list[int], stream: int) -> None:
    run(operator, [handles.get(b, DataBuffer) for b in inputs], [handles.get(b, DataBuffer) for b in outputs], stream)


def run(operator: Operator, inputs: list[DataBuffer], outputs: list[DataBuffer], stream: int) -> None:
    """Queues an operator over buffers."""
    queue = stream_in_context(stream)
    work = operators.prepare(operator, inputs, outputs, memory(), threads())
    kept = [owner_of(b.address, b.size) for b in outputs]

    def task(objects: object = kept) -> None:
        work.run()

    submit(memory(), queue, Execution(work.uses, task))
