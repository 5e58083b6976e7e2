"""Products with matrices that were gathered by expert, one for each row, become products of rows sorted by expert.

    MatMul(x[.., 1, K], Gather(W[E, K, N], indices[..]))       transformers 5 and others write routed experts so; the
    MatMul(Gather(W[E, N, K], indices[..]), x[.., K, 1])       matrix of an expert is copied for each row that chose it

becomes

    offsets, order, _, rows = MoeRoute(indices)
    Gather(GroupedMatMul(Gather(x, order), W, offsets), rows)

Rules
1. W is a constant with the experts first; indices come from a TopK among at most E, so each names an expert.
2. x has one row for each index, or one for several in turn.
3. Rows stay sorted between two such products (`sorted_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from graph_opt.fusion.expert_choice import distinct_range, unreshaped
from graph_opt.fusion.sorted_rows import keep_rows_sorted
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.core import AttrValue
from graph_opt.ir.passes import Note
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.shape_targets import reshape_target
from tensor_types.dims import Dim, product
from tensor_types.dtypes import I64


class _Misfit(Exception):  # noqa: N818 (an outcome, not an error)
    """Why a product with gathered matrices stays."""


@dataclass(frozen=True)
class GatheredExperts:
    """See the module."""

    name: str = "gathered-experts"
    notes: list[Note] = field(default_factory=list, compare=False)

    def apply(self, graph: Graph) -> bool:
        self.notes.clear()
        changed = False
        routes: dict[tuple[Value, int], Node] = {}
        for node in list(graph.nodes):
            found = _gathered(node)
            if found is None:
                continue
            try:
                _Rewrite(graph, node, found, routes).run()
                changed = True
            except _Misfit as reason:
                self.notes.append(Note(node.name, self.name, str(reason)))
        return keep_rows_sorted(graph, list(routes.values())) or changed


@dataclass(frozen=True)
class _Product:
    """`matrices` [E, .., ..] constant, picked by `indices`; `turned`: they stand on the left."""

    gather: Node
    matrices: Value
    indices: Value
    x: Value
    turned: bool


def _gathered(node: Node) -> _Product | None:
    if node.op != "MatMul":
        return None
    for place in (1, 0):
        picked, x = node.inputs[place], node.inputs[1 - place]
        gather = picked.producer if picked is not None else None
        if gather is None or x is None or gather.op not in ("Gather", "GatherND"):
            continue
        matrices, indices = gather.inputs[0], gather.inputs[1]
        if matrices is None or indices is None or not matrices.is_constant or matrices.rank != 3:
            continue
        if int(gather.attrs.get("axis", 0)) or int(gather.attrs.get("batch_dims", 0)):  # type: ignore[arg-type]
            continue
        if gather.op == "GatherND" and (indices.shape is None or indices.shape[-1] != 1):
            continue
        return _Product(gather, matrices, indices, x, place == 0)
    return None


class _Rewrite:
    def __init__(self, graph: Graph, node: Node, found: _Product, routes: dict[tuple[Value, int], Node]) -> None:
        self.graph, self.node, self.found, self.routes = graph, node, found, routes
        self.rewriter = Rewriter(graph)
        self.label = node.name or node.output.name

    def insert(self, op: str, inputs: Sequence[Value | None], part: str, **attrs: AttrValue) -> Value:
        name = f"{self.label}/{part}"
        return self.rewriter.insert(op, inputs, attrs, before=self.node, name=name).output

    def numbers(self, values: Sequence[int], part: str) -> Value:
        return self.rewriter.constant(np.array(values, np.int64), f"{self.label}/{part}")

    def run(self) -> None:
        found, node = self.found, self.node
        experts, *sides = found.matrices.shape or ()
        depth, width = sides[::-1] if found.turned else sides
        x, result = found.x, node.output
        if not isinstance(experts, int) or not isinstance(depth, int) or not isinstance(width, int):
            raise _Misfit("the extents of the matrices are not known")
        if x.shape is None or result.shape is None or x.rank < 2 or x.shape[-1 if found.turned else -2] != 1:
            raise _Misfit("more than one row for each index")
        source = _source(found.indices)
        limit = distinct_range(source)
        if limit is None or limit > experts:
            raise _Misfit("an index may be that of no expert: it does not come from a TopK among them")
        lead = result.shape[:-2]
        if found.gather.output.shape is None or found.gather.output.shape[:-2] != lead:
            raise _Misfit("indices are repeated for several rows")
        target = reshape_target((product(lead), width), result.shape)
        if target is None:
            raise _Misfit("the shape of the result is known at run time only")
        rows_in = self._rows(x, lead, depth)
        offsets, order, _, rows = self._route(experts).outputs
        matrices = found.matrices
        if found.turned:
            matrices = self.insert("Transpose", [matrices], "matrices", perm=(0, 2, 1))
        ordered = self.insert("Gather", [rows_in, order], "sorted", axis=0)
        made = self.insert("GroupedMatMul", [ordered, matrices, offsets], "product")
        back = self.insert("Gather", [made, self._flat(rows, "rows")], "rows_back", axis=0)
        shaped = self.insert("Reshape", [back, self.numbers(target, "shape")], "shaped")
        self.rewriter.replace(result, shaped)
        self.rewriter.absorb([found.gather.output], shaped)
        self.rewriter.erase_dead([node, found.gather])

    def _rows(self, x: Value, lead: Sequence[Dim], depth: int) -> Value:
        """x as [rows, depth], one row for each index."""
        assert x.shape is not None
        if x.shape[:-2] != tuple(lead):
            shape = self.insert("Shape", [self.found.indices], "extents")
            if self.found.gather.op == "GatherND":
                shape = self.insert("Shape", [self.found.indices], "extents", start=0, end=-1)
            ends = self.numbers([x.shape[-2], x.shape[-1]], "ends")  # type: ignore[list-item]
            target = self.insert("Concat", [shape, ends], "repeated_to", axis=0)
            x = self.insert("Expand", [x, target], "repeated")
        return self.insert("Reshape", [x, self.numbers([-1, depth], "row")], "rows_in")

    def _flat(self, value: Value, part: str) -> Value:
        return self.insert("Reshape", [value, self.numbers([-1], "flat")], part)

    def _route(self, experts: int) -> Node:
        """MoeRoute of the indices, each a choice of its own; the same for all products with them."""
        source = _source(self.found.indices)
        if (source, experts) not in self.routes:
            one = self.insert("Reshape", [source, self.numbers([-1, 1], "one")], "choices")
            if one.dtype != I64:
                one = self.insert("Cast", [one], "choices_i64", to=I64.onnx)
            outputs = [f"{self.label}/route/{part}" for part in ("offsets", "order", "tokens", "rows")]
            self.routes[source, experts] = self.rewriter.insert(
                "MoeRoute", [one], {"experts": experts}, before=self.node, outputs=outputs, name=f"{self.label}/route"
            )
        return self.routes[source, experts]


def _source(indices: Value) -> Value:
    """Indices before Reshapes and Casts, which keep their order."""
    value = unreshaped(indices)
    while value is not None and value.producer is not None and value.producer.op == "Cast":
        value = unreshaped(value.producer.inputs[0])
    return value if value is not None else indices
