"""What lowering gives: records in the order of the nodes, each with the guards under which it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_opt.ir import Graph, Node
from graph_opt.plan.records import AicpuRecord, KernelRecord, Record

Guards = tuple[tuple[str, int], ...]
"""(name of a bool value, expected byte), outer first."""


@dataclass
class Lowered:
    """Records in order, and the guards of each; the bodies of loops, lowered in their turn."""

    records: list[Record] = field(default_factory=list)
    guards: list[Guards] = field(default_factory=list)
    bodies: list[tuple[Graph, Lowered]] = field(default_factory=list)

    def add(self, record: Record, node: Node) -> None:
        """Appends a record of a node, which runs under the guards of the node."""
        self.records.append(record)
        self.guards.append(guards_of(node))

    @property
    def kernels(self) -> list[KernelRecord]:
        """The native ones, those of bodies last."""
        own = [r for r in self.records if isinstance(r, KernelRecord)]
        return own + [r for _, body in self.bodies for r in body.kernels]

    @property
    def aicpu(self) -> list[AicpuRecord]:
        """Those of the AI CPU, those of bodies last; a loop is none, the runtime repeats its body."""
        own = [r for r in self.records if isinstance(r, AicpuRecord) and r.body is None]
        return own + [r for _, body in self.bodies for r in body.aicpu]

    @property
    def has_guards(self) -> bool:
        """Whether any record runs under a condition."""
        return any(self.guards) or any(body.has_guards for _, body in self.bodies)


def guards_of(node: Node) -> Guards:
    """The conditions under which a node of a flattened branch runs."""
    return tuple((condition.name, int(expected)) for condition, expected in node.guards)
