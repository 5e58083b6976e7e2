"""Rows that were sorted by expert stay so: what is computed row by row does not care for their order.

A Gather by the order of a MoeRoute, behind operators on rows behind a Gather by its inverse, goes in front of them. The
two Gathers cancel, and what else the operators read is sorted instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from graph_opt.ir import Graph, Node, Value, ops
from graph_opt.ir.rewriter import Rewriter

_SHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
_WITHIN_ROWS = frozenset({"Split", "Slice"})


def keep_rows_sorted(graph: Graph, routes: Sequence[Node]) -> bool:
    """For each route whose choices are rows: moves its order in front of what is computed row by row."""
    changed = False
    for route in routes:
        order = route.outputs[1]
        for gather in [n for n, _ in list(order.uses) if n.op == "Gather" and n.inputs[1] is order]:
            source = gather.inputs[0]
            if source is None or int(gather.attrs.get("axis", 0)):  # type: ignore[arg-type]
                continue
            sorting = _Sorting(graph, route, gather)
            if sorting.ends_sorted(source, 0):
                rewriter = sorting.rewriter
                rewriter.replace(gather.output, sorting.sorted(source))
                rewriter.erase_dead([gather])
                changed = True
    return changed


class _Sorting:
    """What a Gather by the order of a route reads, rewritten with sorted rows."""

    def __init__(self, graph: Graph, route: Node, gather: Node) -> None:
        self.route, self.gather = route, gather
        self.rewriter = Rewriter(graph)
        self.rows = (route.outputs[1].shape or (None,))[0]
        self._made: dict[Value, Value] = {}

    def ends_sorted(self, value: Value, depth: int) -> bool:
        """Whether some of what the value is computed of was sorted before."""
        if self._unsorted(value) is not None:
            return True
        node = value.producer
        return node is not None and depth < 64 and self._passes(node) and any(
            v is not None and self._is_rows(v) and self.ends_sorted(v, depth + 1) for v in self._row_inputs(node)
        )  # fmt: skip

    def sorted(self, value: Value) -> Value:
        """The value with sorted rows."""
        if value not in self._made:
            before = self._unsorted(value)
            node = value.producer
            if before is not None:
                self._made[value] = before
            elif node is not None and self._passes(node) and self.ends_sorted(value, 0):
                row_inputs = self._row_inputs(node)
                inputs = [self.sorted(v) if v is not None and v in row_inputs and self._is_rows(v) else v
                          for v in node.inputs]  # fmt: skip
                name = f"{self.gather.name}/{node.name or node.output.name}"
                outputs = [f"{name}.{k}" for k in range(len(node.outputs))]
                made = self.rewriter.insert(node.op, inputs, node.attrs, before=self.gather, outputs=outputs, name=name)
                self._made.update(zip(node.outputs, made.outputs, strict=True))
            else:
                self._made[value] = self._gathered(value)
        return self._made[value]

    def _gathered(self, value: Value) -> Value:
        """Rows that were not sorted: lines picked from a table are picked in order."""
        node, order = value.producer, self.route.outputs[1]
        name = f"{self.gather.name}/{value.name}"
        if node is not None and node.op == "Gather" and not int(node.attrs.get("axis", 0)):  # type: ignore[arg-type]
            table, index = node.inputs
            if table is not None and table.is_constant and index is not None and index.rank == 1:
                picked = self._insert("Gather", [index, order], f"{name}/index")
                return self._insert("Gather", [table, picked], name)
        return self._insert("Gather", [value, order], name)

    def _insert(self, op: str, inputs: Sequence[Value], name: str) -> Value:
        return self.rewriter.insert(op, inputs, {"axis": 0}, before=self.gather, name=name).output

    def _unsorted(self, value: Value) -> Value | None:
        """The sorted rows that a value is, brought back into the order of the choices; None if it is none."""
        node = value.producer
        if node is None or node.op != "Gather" or int(node.attrs.get("axis", 0)):  # type: ignore[arg-type]
            return None
        index = node.inputs[1]
        while index is not None and index.producer is not None and index.producer.op in _SHAPES:
            index = index.producer.inputs[0]
        return node.inputs[0] if index is self.route.outputs[3] else None

    def _is_rows(self, value: Value) -> bool:
        return bool(value.shape) and value.shape is not None and value.shape[0] == self.rows and not value.is_constant

    def _row_inputs(self, node: Node) -> list[Value | None]:
        return node.inputs[:1] if node.op in _SHAPES | _WITHIN_ROWS else list(node.inputs)

    def _passes(self, node: Node) -> bool:
        """Whether the node computes each row of its results of that row of its operands alone."""
        if node.subgraphs or node.guards != self.gather.guards or not all(self._is_rows(v) for v in node.outputs):
            return False
        first = node.inputs[0] if node.inputs else None
        if node.op in _SHAPES:
            return first is not None and self._is_rows(first)
        if node.op in _WITHIN_ROWS:
            return first is not None and self._is_rows(first) and self._spares_rows(node)
        declared = ops.get(node.op)
        if declared is None or declared.kind != "elementwise" or not declared.deterministic or len(node.outputs) != 1:
            return False
        rank = node.output.rank
        return all(v is None or self._is_rows(v) and v.rank == rank or _spreads(v, rank) for v in node.inputs)

    def _spares_rows(self, node: Node) -> bool:
        if node.op == "Split":
            return int(node.attrs.get("axis", 0)) % node.outputs[0].rank != 0  # type: ignore[arg-type]
        axes = node.input(3)
        return axes is not None and axes.data is not None and all(int(a) % node.output.rank for a in axes.data.flat)


def _spreads(value: Value, rank: int) -> bool:
    """The same for every row."""
    return value.shape is not None and (len(value.shape) < rank or value.shape[0] == 1)
