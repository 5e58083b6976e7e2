"""What the package computed in the run that is compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from acl_runtime import InferSession
from atc.isolation import Isolation
from graph_opt.ir import Graph
from graph_opt.ir.states import updates


class Device:
    """What the package computed, by the names of its graph."""

    def __init__(
        self, graph: Graph, session: InferSession, isolation: Isolation, details: bool, begin: Mapping[str, np.ndarray]
    ) -> None:
        self.graph = graph
        self.details = details
        self.isolation = isolation
        self.session = session
        self.in_memory = set(session.tensor_names())
        self.narrow = _narrow(graph)
        self.overwritten = {before.name for before in updates(graph).values()}
        """Versions of states that another has taken the place of when the run ends."""
        self.begun = {last: begin[first] for first, last in graph.states.items()}
        """What the states held before, by their last versions."""

    def ran(self, name: str) -> bool:
        """False if the tensor belongs to a branch that was not taken."""
        producer = self.graph.values[name].producer
        for condition, expected in () if producer is None else producer.guards:
            if condition.name in self.in_memory and self.ran(condition.name):
                taken = self.session.read(condition.name)
                if bool(np.asarray(taken).reshape(-1)[0]) is not expected:
                    return False
        return True

    def rows_in_use(self, name: str, value: Any, expected: Any) -> tuple[Any, str]:
        """A state after the run, and a word on rows that count nowhere: those that the run left alone and of which the
        oracle, which makes a new tensor, holds zeros. They are taken from the oracle."""
        begin = self.begun.get(name)
        if begin is None or not isinstance(expected, np.ndarray) or expected.shape != begin.shape or begin.ndim < 2:
            return value, ""
        idle = np.all(value == begin, axis=-1, keepdims=True) & np.all(expected == 0, axis=-1, keepdims=True)
        note = f"{int(idle.sum())} of {idle.size} rows are not in use" if idle.any() else ""
        return np.where(idle, expected.astype(begin.dtype), value), note

    def kernel(self, name: str) -> str:
        """Name of the kernel, or operator of the AI CPU task, that writes a value."""
        value = self.graph.values.get(name)
        producer = value.producer if value is not None else None
        return "" if producer is None else self.isolation.kernel(producer)


def _narrow(graph: Graph) -> dict[str, str]:
    """The 16-bit float ('bf16' before 'f16') that lies on the way to a value, by name; wider values are left out."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        body = node.subgraphs.get("body")
        near = [v for v in (*node.inputs, *node.outputs, *(body.values.values() if body else ())) if v is not None]
        dtypes = {v.dtype.name for v in near} | {found[v.name] for v in node.inputs if v and v.name in found}
        narrow = next((d for d in ("bf16", "f16") if d in dtypes), None)
        if narrow:
            found.update((v.name, narrow) for v in node.outputs)
    return found
