"""A pass is a small frozen dataclass: its fields are its options, `name` its name, `apply` changes the graph.

@dataclass(frozen=True)
class FuseConvBn:
    name: ClassVar[str] = "fuse-conv-bn"
    def apply(self, graph: Graph) -> bool: ...

run_passes(graph, [FoldConstants(), FuseConvBn()], verify=True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from graph_opt.ir.core import Graph
from graph_opt.ir.verifier import InvalidGraph
from graph_opt.ir.verifier import verify as verify_graph


class Pass(Protocol):
    """What the driver needs of a pass."""

    @property
    def name(self) -> str: ...

    def apply(self, graph: Graph) -> bool:
        """Changes the graph in place; whether it changed."""
        ...


Observer = Callable[[Pass, Graph, bool], None]
"""Called after each pass with whether it changed the graph: for dumps, reports and time lines."""


def run_passes(graph: Graph, passes: Iterable[Pass], *, verify: bool = False, observer: Observer | None = None) -> bool:
    """Applies the passes in order; whether any changed the graph. With `verify`, InvalidGraph names the guilty pass."""
    changed = False
    for step in passes:
        modified = step.apply(graph)
        changed |= modified
        if verify:
            try:
                verify_graph(graph)
            except InvalidGraph as error:
                raise InvalidGraph(f"after pass {step.name}: {error}") from error
        if observer is not None:
            observer(step, graph, modified)
    return changed
