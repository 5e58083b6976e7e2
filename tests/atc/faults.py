"""Faults for tests: a conversion or a session that does one thing wrong, as a bug of the compiler would."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import atc.conversion
from acl_runtime.run_state import RunState
from graph_opt.ir import Graph
from tensor_types.recipes import Source

POINTER, COUNT = ctypes.c_void_p, ctypes.c_int64
KERNEL = ctypes.CFUNCTYPE(COUNT, POINTER, POINTER, COUNT, COUNT, POINTER)


@dataclass(frozen=True)
class Faulty:
    """A pass that spoils a graph."""

    spoil: Callable[[Graph], None]
    done: list[bool]
    name: ClassVar[str] = "faulty"

    def apply(self, graph: Graph) -> bool:
        if self.done:
            return False
        self.done.append(True)
        self.spoil(graph)
        return True


def spoil_graphs(patch: pytest.MonkeyPatch, spoil: Callable[[Graph], None]) -> None:
    """The shared passes of conversions from now on begin with this."""
    real = atc.conversion.shared_passes
    patch.setattr(atc.conversion, "shared_passes", lambda: [Faulty(spoil, []), *real()])


def spoil_kernel(patch: pytest.MonkeyPatch, node: str, stale: bool = False) -> None:
    """The last kernel of a node adds 1 to what it wrote first, or writes nothing, in sessions from now on."""
    real = RunState.attach

    def attach(self: RunState, *arguments: Any) -> None:
        real(self, *arguments)
        number = max(n for n, t in enumerate(self.plan.tasks) if node in t.node and t.program is not None)
        record = self.run.records[number]
        kernel = KERNEL(int(record["fn"]))
        task = self.plan.tasks[number]
        roles = [role for role, _ in self.binder.segment.kernel(task).facts.params]
        written = max(n for n, role in enumerate(roles) if role != "in")

        def call(args: int, dims: int, begin: int, end: int, scratch: int) -> int:
            status = 0 if stale else kernel(args, dims, begin, end, scratch)
            address = ctypes.cast(args, ctypes.POINTER(ctypes.c_uint64))[written]
            if not stale and begin == 0:
                ctypes.cast(address, ctypes.POINTER(ctypes.c_float))[0] += 1.0
            return status

        self.faulty = KERNEL(call)  # kept as long as its address is used
        record["fn"] = ctypes.cast(self.faulty, POINTER).value

    patch.setattr(RunState, "attach", attach)


def wrong_constant(name: str) -> Callable[[Graph], None]:
    """A fold that went wrong: a constant half as large again."""

    def spoil(graph: Graph) -> None:
        value = graph.values[name]
        assert value.data is not None
        value.recipe = Source((value.data * np.float32(1.5)).astype(value.dtype.numpy))

    return spoil


def without_node(name: str) -> Callable[[Graph], None]:
    """A Cast or a Transpose dropped as if it did nothing."""

    def spoil(graph: Graph) -> None:
        node = next(n for n in graph.nodes if n.name == name)
        node.op, node.attrs = "Identity", {}

    return spoil
