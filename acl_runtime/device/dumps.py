"""Dumps: the tensors of every layer of an execution as files that Ascend's comparison tools read.

    FOLDER/<start>/<device>/<model>/<model id>/<execution>/<type>.<name>.<task>.<stream>.<microseconds>

A file is the length of a header (u64), the header, a message of protobuf whose data fields are empty, and the bytes of
inputs and outputs, one behind the other, in logical order. With `dump_data: stats` it is a table of statistics instead,
and its name ends in .csv.
"""

from __future__ import annotations

import re
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.dump_statistics import table_of
from acl_runtime.om import FusedGraph, NodeDesc, TensorDesc
from acl_runtime.om.model_def import GE_DTYPE
from acl_runtime.om.replace_file import replace_file
from acl_runtime.om.wire import integer, message, packed, text
from acl_runtime.session import InferSession
from tensor_types.dtypes import from_numpy

_NCHW, _ND = 0, 2
_LONGEST_NAME = 255
"""Bytes of a file's name."""
_LONGEST_FOLDER = 60
"""Characters of a model's name as a folder: each may take four bytes."""


@dataclass(frozen=True)
class DumpSettings:
    """folder: where; mode: input, output or all; models: layers by model, none: all of them, without models: every
    model; steps: inclusive ranges of executions, none: every one; is_statistics: tables of statistics, not tensors."""

    folder: Path
    mode: str
    models: Mapping[str, tuple[str, ...]]
    steps: tuple[tuple[int, int], ...] = ()
    is_statistics: bool = False
    start: str = field(default_factory=lambda: time.strftime("%Y%m%d%H%M%S"))

    def layers(self, *names: str) -> tuple[str, ...] | None:
        """The layers of a model with one of these names, () for all; None if it is not dumped."""
        if not self.models:
            return ()
        return next((self.models[name] for name in names if name in self.models), None)


class ModelDump:
    """Writes the tensors of one model, whose session keeps them."""

    def __init__(
        self, settings: DumpSettings, session: InferSession, graph: FusedGraph, name: str, model_id: int,
        layers: tuple[str, ...],
    ) -> None:  # fmt: skip
        """INVALID_DUMP_CONFIG for a layer that the model does not have."""
        self.lock = threading.Lock()
        """Held from an execution to the end of its dump: the session keeps the tensors of the last one."""
        self._settings, self._session = settings, session
        self._start = settings.folder / settings.start
        self._place = Path(_plain(name)[:_LONGEST_FOLDER]) / str(model_id)
        self._described = {t.name: t for t in (*graph.inputs, *(t for n in graph.nodes for t in n.outputs))}
        known = {name for n in graph.nodes for name in (n.name, *n.source_names)}
        if missing := [layer for layer in layers if layer not in known]:
            raise DeviceError(Code.INVALID_DUMP_CONFIG, f"{name} has no layer {missing[0]}")
        self._nodes = [
            (task, n) for task, n in enumerate(graph.nodes) if not layers or {n.name, *n.source_names} & {*layers}
        ]
        self._names = set(session.tensor_names())
        self._executions = 0

    def write(self, device: int, stream: int) -> None:
        """Writes what the last execution left. WRITE_FILE if a file cannot be written."""
        number = self._executions
        self._executions += 1
        steps = self._settings.steps
        if steps and not any(first <= number <= last for first, last in steps):
            return
        folder = self._start / str(device) / self._place / str(number)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for task, node in self._nodes:
                now = time.time_ns() // 1000
                ending = ".csv" if self._settings.is_statistics else ""
                stem = f"{_plain(node.type)}.{_plain(node.name)}.{task}.{stream}.{now}{ending}"
                if len(stem.encode()) > _LONGEST_NAME:
                    stem = self._numbered(folder, stem)
                with replace_file(folder / stem) as file:
                    for part in [self._table(node)] if ending else self._parts(node, now):
                        file.write(part)
        except OSError as error:
            raise DeviceError(Code.WRITE_FILE, f"cannot write a dump into {folder}: {error.strerror}") from error

    def _numbered(self, folder: Path, stem: str) -> str:
        """The short name of a long one, which stands in mapping.csv."""
        with open(folder / "mapping.csv", "a+") as file:
            file.seek(0)
            number = str(len(file.readlines()))
            file.write(f"{number},{stem}\n")
        return number

    def _parts(self, node: NodeDesc, now: int) -> Iterator[bytes | memoryview]:
        header = text(1, "2.0") + integer(2, now)
        data: list[np.ndarray] = []
        if self._settings.mode in ("output", "all"):
            for index, desc in enumerate(node.outputs):
                array = self._array(desc.name)
                origin = text(1, node.source_names[-1] if node.source_names else node.name) + integer(2, index)
                body, found = _tensor(desc, array), array
                header += message(3, body + message(4, origin) + integer(6, 0 if found is None else found.nbytes))
                data += [] if found is None else [found]
        inputs: list[np.ndarray] = []
        if self._settings.mode in ("input", "all"):
            for name in node.inputs:
                array = self._array(name) if name else None
                known = self._described.get(name) or TensorDesc(name, "f32", ())
                header += message(4, _tensor(known, array) + integer(5, 0 if array is None else array.nbytes))
                inputs += [] if array is None else [array]
        header += text(6, node.name)
        yield struct.pack("<Q", len(header))
        yield header
        for array in (*inputs, *data):
            yield array.tobytes()

    def _table(self, node: NodeDesc) -> bytes:
        """Statistics of inputs and outputs, as the mode asks."""
        wanted = {"Input": [n for n in node.inputs if n], "Output": [t.name for t in node.outputs]}
        if self._settings.mode != "all":
            wanted = {kind: names for kind, names in wanted.items() if kind.lower() == self._settings.mode}
        rows = [(kind, n, self._array(name)) for kind, names in wanted.items() for n, name in enumerate(names)]
        return table_of([(kind, n, array) for kind, n, array in rows if array is not None])

    def _array(self, name: str) -> np.ndarray | None:
        """None for a tensor that is in no memory, and for one that is no array of numbers."""
        if name not in self._names:
            return None
        found = self._session.read(name)
        return found if isinstance(found, np.ndarray) and not found.dtype.hasobject else None


def _tensor(desc: TensorDesc, array: np.ndarray | None) -> bytes:
    """Fields data_type, format and shape, which OpInput and OpOutput share."""
    shape = desc.shape if array is None else array.shape
    kind = desc.dtype if array is None else from_numpy(array.dtype).name
    return integer(1, GE_DTYPE.get(kind, 0)) + integer(2, _NCHW if len(shape) == 4 else _ND) + message(
        3, packed(1, shape)
    )


def _plain(name: str) -> str:
    return re.sub(r"[/\\.\s\x00-\x1f\x7f]", "_", name)
