"""Trees: walks through decision trees without branches, a block of rows and a block of trees side by side.

Every walk takes as many steps as the deepest tree of its block needs; a leaf leads to itself. A step is three gathers:
of the record, of the column that it names, of the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from codegen.kernels.operands import NotLowerable, body_of, outer_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import Imm, View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmin
from tensor_types.dtypes import BOOL, I64, DType

_MOST_COLUMNS = 1 << 14
_MOST_RESULTS = 1 << 10


@dataclass(frozen=True)
class TreesTiling(Tiling, kind="trees"):
    """`rows` of a grid index."""

    rows: int


def lower_trees(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around a Trees; NotLowerable says why there is none."""
    if target.explicit_memory:
        raise NotLowerable("walks through trees jump in memory, which a chip's vector engine does not")
    (walk,) = body_of(node).nodes
    values = outer_values(node)
    if any(not v.format.is_plain for v in values.values()):
        raise NotLowerable("values in plain order only")
    results, features = (int(walk.attrs[name]) for name in ("results", "features"))  # type: ignore[arg-type]
    if features > _MOST_COLUMNS or results > _MOST_RESULTS:
        most = f"a kernel takes {_MOST_COLUMNS} and {_MOST_RESULTS}"
        raise NotLowerable(f"{features} features and {results} results: {most}")
    if shape_of(values[walk.output.name])[0] == 0:
        return []
    candidates = map(TreesTiling, halvings(max(1, min(32, (1 << 16) // features))))
    return first_fit(candidates, lambda chosen: [_Walks(node, target, chosen.rows).emit()], tiling)


class _Walks:
    """The task of a Trees node with so many rows a block."""

    def __init__(self, node: Node, target: Target, rows: int) -> None:
        (walk,) = body_of(node).nodes
        values = outer_values(node)
        operands = [None if v is None else values.get(v.name, v) for v in walk.inputs]
        self.x, self.records, self.thresholds, self.weights, self.roots, self.depths, self.targets = operands
        self.result = values[walk.output.name]
        self.task, self.rows = KernelTask(node, "trees", target), rows
        self.features, self.shift = int(walk.attrs["features"]), int(walk.attrs["shift"])  # type: ignore[arg-type]
        self.aggregate, self.results = str(walk.attrs["aggregate"]), int(walk.attrs["results"])  # type: ignore[arg-type]
        self.depth = int(walk.attrs["depth"])  # type: ignore[arg-type]
        self.names = 0

    def tile(self, dtype: DType, *shape: int) -> Buffer:
        self.names += 1
        return self.task.tile(f"t{self.names}", dtype, shape)

    def table(self, value: Value | None) -> Buffer:
        assert value is not None
        return self.task.operand(value, "in", tuple(self.task.extents(shape_of(value))))

    def emit(self) -> Record:
        task, rows, features = self.task, self.rows, self.features
        assert self.x is not None and self.records is not None and self.roots is not None and self.weights is not None
        dtype, at_dtype = self.x.dtype, self.records.dtype
        total = task.extent(shape_of(self.x)[0])
        width = task.extent(shape_of(self.x)[1], features)
        blocks, block = shape_of(self.roots)
        count, sizes = shape_of(self.records)[0], (blocks, block, shape_of(self.weights)[1])
        if not isinstance(count, int) or not all(isinstance(s, int) for s in sizes):
            raise NotLowerable("tables of run-time sizes")
        first = task.grid("r", ceildiv(total, rows)) * rows
        here = dmin(rows, total - first)

        columns = self.tile(dtype, rows, 2 * features)
        source = task.operand(self.x, "in", (total, width)).view(first + axis(0), axis(1), shape=(here, features))
        self._columns(columns, source, here)
        sums = self.tile(dtype, rows, self.results)
        start = {"MIN": inf, "MAX": -inf}.get(self.aggregate, 0.0)
        task.expands(sums.window((0, 0), (here, self.results)), start)

        shape = (here, int(block))
        at, record, column = (self.tile(at_dtype, rows, int(block)).window((0, 0), shape) for _ in range(3))
        value, threshold = (self.tile(dtype, rows, int(block)).window((0, 0), shape) for _ in range(2))
        above = self.tile(BOOL, rows, int(block)).window((0, 0), shape)
        roots = self.tile(I64, int(block))
        spread = View(columns.name, (axis(0), axis(1)), (here, 2 * features))

        def lines(table: Value | None, extent: int, *more: Dim) -> View:
            """A table of one column, the same for every row of the block."""
            return self.table(table).view(axis(1), *more, shape=(here, extent))

        depths, targets = self.table(self.depths), self.table(self.targets)
        with task.loop("b", int(blocks)) as b:
            task.load(roots.whole(), self.table(self.roots).view(b, axis(0), shape=(int(block),)))
            task.cvt(at, roots.view(axis(1), shape=shape))
            steps = task.read("steps", depths.view(b, shape=()), 0, self.depth)
            with task.loop("s", steps):
                task.gather(record, lines(self.records, count), at, axis=1)
                task.instr("TAND", column, record, Imm((1 << self.shift) - 1))
                task.gather(value, spread, column, axis=1)
                task.gather(threshold, lines(self.thresholds, count), at, axis=1)
                task.cmp(above, value, threshold, mode="gt")
                task.cvt(column, above)
                task.instr("TSHR", record, record, Imm(self.shift))
                task.add(at, record, column)
            if sizes[2] == 1:
                target = task.read("target", targets.view(b, shape=()), 0, self.results - 1)
                task.gather(value, lines(self.weights, count, 0), at, axis=1)
                self._take(sums.view(axis(0), target, shape=shape), value)
            else:
                with task.loop("c", self.results) as c:
                    task.gather(value, lines(self.weights, count, c), at, axis=1)
                    self._take(sums.view(axis(0), c, shape=shape), value)
        result = task.operand(self.result, "out", (total, self.results))
        task.store(result.view(first + axis(0), axis(1), shape=(here, self.results)),
                   sums.window((0, 0), (here, self.results)))  # fmt: skip
        return task.record(16 * int(blocks) * int(block) * total)

    def _columns(self, columns: Buffer, source: View, here: Dim) -> None:
        """The features of the rows twice, a missing value above all numbers and below them."""
        task, features = self.task, self.features
        held = self.tile(columns.dtype, self.rows, features).window((0, 0), (here, features))
        missing = self.tile(BOOL, self.rows, features).window((0, 0), (here, features))
        task.load(held, source)
        task.isnan(missing, held)
        for place, number in ((0, inf), (features, -inf)):
            task.sel(columns.view(axis(0), place + axis(1), shape=(here, features)), missing, Imm(number), held)

    def _take(self, into: View, value: View) -> None:
        op = {"MIN": "TROWMIN", "MAX": "TROWMAX"}.get(self.aggregate, "TROWSUM")
        self.task.instr(op, into, value, axes=(1,), acc=1)
