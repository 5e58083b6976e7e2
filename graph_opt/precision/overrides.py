"""What a user says of single operators, stronger than the lists of a mode.

An operator has one of these classes, the strongest first:

    keep     its dtype as in the model
    narrow   the narrow dtype, also where the mode has none; refused where no kernel computes it
    black    its own dtype
    gray     the dtype of the producers of its operands
    white    the narrow dtype of the mode
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graph_opt.ir import Graph, Node
from tensor_types.dtypes import DType

CLASSES = ("keep", "narrow", "black", "gray", "white")


@dataclass(frozen=True)
class Overrides:
    """`tensors` gives classes by source tensor: results of nodes as the model has them, so that nodes are found again
    after any rewriting. `operators` gives them by operator to nodes without one, such as passes make. `narrow` is the
    dtype of class narrow; a mode with another 16-bit float refuses it."""

    tensors: Mapping[str, str] = field(default_factory=dict)
    operators: Mapping[str, str] = field(default_factory=dict)
    narrow: DType | None = None

    def classes(self, graph: Graph) -> dict[Node, str]:
        """The class of every node that one was given for; where fusion put several into one node, the strongest."""
        found: dict[Node, list[str]] = {}
        for source, class_ in self.tensors.items():
            origin = graph.origins.get(source)
            value = graph.values.get(origin.value) if origin is not None and origin.value is not None else None
            if value is not None and value.producer is not None:
                found.setdefault(value.producer, []).append(class_)
        for node in graph.nodes:
            if node.op in self.operators:
                found.setdefault(node, [self.operators[node.op]])
        return {node: min(classes, key=CLASSES.index) for node, classes in found.items()}
