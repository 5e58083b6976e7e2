"""Extents of which only the run knows whether they are equal or one is 1: a node is lowered once for each case.

    Add(x[s], y[u])     s == u,   s == 1 and u != 1,   u == 1 and s != 1

In each case sizes are replaced by what they are there, so that families meet only broadcasts that they know. A case's
programs have an outermost grid axis of extent 1 if it holds and 0 if not: of a run's tasks those of one case work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import cast

from codegen.kernels.built_programs import program_of, text_of
from codegen.kernels.family_table import POINTWISE
from codegen.kernels.operands import NotLowerable
from codegen.tile.ir import DimParam
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.order import Outputs
from graph_opt.plan.records import KernelRecord, Record
from tensor_types.dims import Dim, Expr, dim, dmax, dmin
from tensor_types.dims import product as product_of
from tensor_types.dims import replace as replaced

_MOST = 9
"""Most cases of one node; each is a kernel."""
_PRODUCTS = frozenset({"MatMul", "MatMulInteger", "com.microsoft::FusedMatMul"})
"""Operators whose axes before the last two broadcast."""


@dataclass(frozen=True)
class Case:
    """`node` with the sizes that it has when `holds`, which is 1 or 0, is 1."""

    node: Node
    holds: Dim


def broadcast_cases(node: Node) -> list[Case] | None:
    """The cases of a Fused node; None if it is known how everything in it broadcasts.

    NotLowerable if they are too many.
    """
    body = node.subgraphs["body"]
    classes = _classes(body.nodes)
    if not classes:
        return None
    choices = [list(c.choices()) for c in classes]
    count = 1
    for options in choices:
        count *= len(options)
    if count > _MOST or any(n.subgraphs for n in body.nodes):
        raise NotLowerable(f"{count} ways in which its extents may broadcast, {_MOST} at most are compiled")
    result = []
    for chosen in product(*choices):
        env = {k: v for sizes, _ in chosen for k, v in sizes.items()}
        result.append(Case(_under(node, env), product_of(holds for _, holds in chosen)))
    if any(_classes(c.node.subgraphs["body"].nodes) for c in result):
        raise NotLowerable("its extents may or may not broadcast")
    return result


def conditional(record: KernelRecord, holds: Dim) -> KernelRecord:
    """The record as one that has work only if `holds` is 1."""
    program = program_of(record.program)
    assert all(d.name != "case" for d in program.dims)
    grid = (("in_case", dim("case")), *program.grid)
    dims = (*program.dims, DimParam("case", 0, 1))
    text = text_of(replace(program, grid=grid, dims=dims))
    return replace(record, program=text, dims=(*record.dims, holds), grid=record.grid * holds)


class _Class:
    """Extents that are equal unless they are 1.

    `results` gives the extents that others broadcast to, by those. One that is among these itself is as long as the
    longest; one that is not is made of the others.
    """

    def __init__(self) -> None:
        self.members: dict[Dim, None] = {}
        self.results: dict[Dim, list[Dim]] = {}
        self.made: set[Dim] = set()

    def choices(self) -> Iterator[tuple[dict[Expr, Dim], Dim]]:
        """For each case what its extents are, and whether it holds. Cases exclude each other and cover what may be."""
        free = [m for m in self.members if m not in self.made]
        lasting = [m for m in free if m in self.results]
        unsure = [m for m in free if m not in lasting]
        most = len(unsure) if lasting else len(unsure) - 1
        for count in range(most + 1):
            for ones in combinations(unsure, count):
                whole = next(m for m in (*lasting, *unsure) if m not in ones)
                off = sum((_distance(m, 1 if m in ones else whole) for m in free), start=cast(Dim, 0))
                holds = 1 - dmin(1, off)
                yield self._sizes(ones, whole), holds * dmin(1, _distance(whole, 1)) if ones else holds

    def _sizes(self, ones: Sequence[Dim], whole: Dim) -> dict[Expr, Dim]:
        """What each extent is if those of `ones` are 1 and the other free ones equal `whole`."""
        sizes: dict[Dim, Dim] = dict.fromkeys(self.members, whole)
        sizes.update(dict.fromkeys(ones, 1))
        for result, parts in self.results.items():  # in graph order: the parts are known
            if result in self.made:
                sizes[result] = 1 if all(sizes[p] == 1 for p in parts if p != result) else whole
        return {k: v for k, v in sizes.items() if isinstance(k, Expr)}


def _distance(a: Dim, b: Dim) -> Dim:
    return dmax(a, b) - dmin(a, b)


def _classes(nodes: Iterable[Node]) -> list[_Class]:
    """The extents that meet in some operator and may or may not broadcast, in classes of those that meet."""
    of: dict[Dim, _Class] = {}
    for node in nodes:
        for result, parts in _meetings(node):
            if all(p == result for p in parts):
                continue
            joined = _Class()
            for old in dict.fromkeys(of[d] for d in (*parts, result) if d in of):
                joined.members.update(old.members)
                joined.results.update(old.results)
                joined.made |= old.made
            if result not in parts and result not in joined.members:
                joined.made.add(result)
            joined.members.update(dict.fromkeys((*parts, result)))
            joined.results[result] = list(dict.fromkeys([*joined.results.get(result, ()), *parts]))
            of.update(dict.fromkeys(joined.members, joined))
    return list(dict.fromkeys(of.values()))


def _meetings(node: Node) -> Iterator[tuple[Dim, list[Dim]]]:
    """Every axis of the result on which operands broadcast: its extent, and those of the operands that are not 1."""
    if node.op not in POINTWISE and node.op not in _PRODUCTS and node.op != "Expand":
        return
    operands = node.inputs[:1] if node.op == "Expand" else node.inputs
    shapes = [v.shape or () for v in operands if v is not None]
    result = node.output.shape or ()
    skipped = 2 if node.op in _PRODUCTS else 0
    if any(len(s) < skipped for s in shapes):
        return
    for axis in range(skipped + 1, len(result) + 1):
        parts = list(dict.fromkeys(s[-axis] for s in shapes if len(s) >= axis and s[-axis] != 1))
        if node.op == "Expand" and result[-axis] not in parts:
            parts.append(result[-axis])
        if parts:
            yield result[-axis], parts


def _under(node: Node, env: Mapping[Expr, Dim]) -> Node:
    """A Fused node in no graph like `node`, its sizes replaced."""
    body = node.subgraphs["body"]
    inner = Graph(body.name, dims=body.dims)
    values = {v: _sized(v, env) for v in body.values.values()}
    inner.values.update((v.name, v) for v in values.values())
    inner.inputs, inner.outputs = [values[v] for v in body.inputs], Outputs(values[v] for v in body.outputs)
    for n in body.nodes:
        operands = [None if v is None else values[v] for v in n.inputs]
        inner.add_node(n.op, operands, [values[v] for v in n.outputs], n.attrs, name=n.name)
    outer = {v: _sized(v, env) for v in (*node.inputs, *node.outputs) if v is not None}
    operands = [None if v is None else outer[v] for v in node.inputs]
    results = [outer[v] for v in node.outputs]
    return Node("Fused", node.name, operands, results, node.attrs, {"body": inner}, node.guards)


def _sized(value: Value, env: Mapping[Expr, Dim]) -> Value:
    shape = None if value.shape is None else tuple(replaced(d, env) for d in value.shape)
    content = None if value.content is None else tuple(replaced(d, env) for d in value.content)
    return Value(value.name, value.dtype, shape, value.format, value.recipe, content)


def all_kernels(records: Sequence[Record]) -> list[KernelRecord]:
    """The records, all of which are kernels. NotLowerable if one is none: a case cannot be a view."""
    kernels = [r for r in records if isinstance(r, KernelRecord)]
    if len(kernels) < len(records):
        raise NotLowerable("its result may or may not be a view")
    return kernels
