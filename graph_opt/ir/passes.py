"""A pass is a small frozen dataclass: its fields are its options, `name` its name, `apply` changes the graph.

@dataclass(frozen=True)
class FuseConvBn:
    name: ClassVar[str] = "fuse-conv-bn"
    def apply(self, graph: Graph) -> bool: ...

run_passes(graph, [FoldConstants(), FuseConvBn()], verify=True)

A pass that leaves things undone may say why: it then has `notes`, and `notes_of(passes)` gathers them for the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

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


@dataclass(frozen=True)
class Note:
    """Why something stands as it does: the node, the pass or rule that left it so, and its reason."""

    node: str
    step: str
    reason: str


@dataclass(frozen=True)
class Declining:
    """What a pass keeps that declines candidates: in `declined` the reason of each, by the name of its node."""

    name: ClassVar[str]
    declined: dict[str, str] = field(default_factory=dict, compare=False, kw_only=True)

    @property
    def notes(self) -> list[Note]:
        """The declined candidates, for the report."""
        return [Note(node, self.name, reason) for node, reason in self.declined.items()]


@runtime_checkable
class Reporting(Protocol):
    """A pass that explains what it left undone."""

    @property
    def notes(self) -> Sequence[Note]: ...


def notes_of(passes: Iterable[Pass]) -> list[Note]:
    """All notes in the order of the passes."""
    return [note for step in passes if isinstance(step, Reporting) for note in step.notes]


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
