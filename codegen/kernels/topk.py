"""TopK by repeated selection: for each of the k results the first of the best elements that are left.

Among equal elements the lower index comes first. NaN counts as larger than every number. Rows with many elements or
many results are a matter of sorting, which the tile language does not have: the AI CPU takes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from codegen.kernels.index_words import IndexWords
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_values, shape_of
from codegen.kernels.region import grid_blocks
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import Imm, View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, product
from tensor_types.dtypes import BOOL, I32, I64, DType

_MOST_RESULTS = 64
_MOST_ELEMENTS = 1 << 13
"""Of a row."""


@dataclass(frozen=True)
class TopkTiling(Tiling, kind="topk"):
    """`rows` of a grid index."""

    rows: int


def lower_topk(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around a TopK; NotLowerable says why there is none."""
    body, values = body_of(node), outer_values(node)
    (top,) = body.nodes
    x, k = _operands(top, values)
    shape = shape_of(x)
    where = int(top.attrs.get("axis", -1)) % len(shape)  # type: ignore[arg-type]
    n = shape[where]
    if not isinstance(n, int) or n > _MOST_ELEMENTS or k > _MOST_RESULTS:
        raise NotLowerable("rows that are long, of run-time length, or of which many elements are wanted")
    if k > n:
        raise NotLowerable(f"{k} of {n} elements")
    if any(not v.format.is_plain for v in values.values()):
        raise NotLowerable("values in plain order only")
    if k == 0 or 0 in shape:
        return []
    # Rows of a chip's tiles are whole blocks of 32 B, for bytes too.
    most = max(1, (1 << 12) // (-(-n // 32) * 32) if target.explicit_memory else (1 << 13) // n)
    return first_fit(map(TopkTiling, halvings(most)), lambda chosen: _emit(node, target, chosen), tiling)


def _emit(node: Node, target: Target, tiling: TopkTiling) -> list[Record]:
    values, (top,) = outer_values(node), body_of(node).nodes
    x, k = _operands(top, values)
    shape = shape_of(x)
    where = int(top.attrs.get("axis", -1)) % len(shape)  # type: ignore[arg-type]
    n = shape[where]
    assert isinstance(n, int)
    task = KernelTask(node, "topk", target)
    paths = MemoryPaths(task, target)
    paths.require(x.dtype)
    outer, inner = (task.extent(product(part)) for part in (shape[:where], shape[where + 1 :]))
    # Rows of a block follow each other along the axes behind the row's own, if there are any.
    along = 0 if inner == 1 else 1
    extent = (outer, inner)[along]
    rows = min(tiling.rows, extent) if isinstance(extent, int) else tiling.rows
    starts, counts = grid_blocks(task, (outer, inner), (rows, 1) if along == 0 else (1, rows))
    place: list[Dim] = [s + axis(0) if i == along else s for i, s in enumerate(starts)]
    count = counts[along]

    def index(position: Dim) -> tuple[Dim, ...]:
        return (place[0], position, place[1])

    values_out, indices_out = (values.get(v.name) for v in (*top.outputs, *top.outputs[:1])[:2])
    selection = _Selection(task, paths, x.dtype, (rows, n), count, bool(top.attrs.get("largest", 1)))
    source = task.operand(x, "in", (outer, n, inner)).view(*index(axis(1)), shape=(count, n))
    task.load(selection.elements, source)
    words = IndexWords(task, paths, (rows, k))
    found = paths.tile(I32, (rows, k))
    selection.prepare()
    with task.loop("j", k) as j:
        selection.next(found.view(axis(0), j, shape=(count, n)))
    chosen = found.window((0, 0), (count, k))
    if values_out is not None:
        picked = paths.tile(x.dtype, (rows, k)).window((0, 0), (count, k))
        task.gather(picked, selection.elements, chosen, axis=1)
        task.store(task.operand(values_out, "out", (outer, k, inner)).view(*index(axis(1)), shape=(count, k)), picked)
    if len(top.outputs) > 1 and indices_out is not None:
        if words.dtype != I32:
            wide = paths.tile(I64, (rows, k)).window((0, 0), (count, k))
            task.cvt(wide, chosen)
            chosen = wide
        words.store(words.operand(indices_out, "out", (outer, k, inner)), index(axis(1)), chosen)
    return [task.record(8 * k * n * outer * inner)]


def _operands(top: Node, values: dict[str, Value]) -> tuple[Value, int]:
    """The data, and the number of results."""
    x, k = (None if v is None else values.get(v.name, v) for v in top.inputs)
    if x is None or k is None or not shape_of(x):
        raise NotLowerable("TopK of a number")
    content = k.content if k.data is None else tuple(int(v) for v in k.data.reshape(-1))
    if content is None or not isinstance(content[0], int):
        raise NotLowerable("a run-time number of results")
    return x, content[0]


class _Selection:
    """The rows [count, n] of a block, and which of their elements are left.

    `shape` are the static extents of tiles, `count` the rows that are valid.
    """

    def __init__(
        self, task: KernelTask, paths: MemoryPaths, dtype: DType, shape: tuple[int, int], count: Dim, largest: bool
    ) -> None:
        self.task, self.largest = task, largest
        self.extents: tuple[Dim, Dim] = (count, shape[1])
        self.worst = _worst(dtype, largest)
        self.elements, self.candidates = (self._whole(paths.tile(dtype, shape)) for _ in range(2))
        self.left, self.hit = (self._whole(paths.tile(BOOL, shape)) for _ in range(2))
        self.rank = self._whole(paths.tile(I32, shape))
        self.nan = self._whole(paths.tile(I32, shape)) if dtype.is_float else Imm(0)
        self.positions, self.best = paths.tile(I32, shape[1:]), paths.tile(dtype, shape[:1])

    def _whole(self, tile: Buffer) -> View:
        return tile.window((0, 0), self.extents)

    def prepare(self) -> None:
        """To be emitted once `elements` are there: everything is left."""
        task, n = self.task, self.extents[1]
        line = self.positions.window((0,), (n,))
        task.expands(line, 1)
        task.cumsum(line, line, axis=0, exclusive=1)
        task.expands(self.left, True)
        if isinstance(self.nan, View):
            # Numbers have rank 2 when they are the best, so NaN comes before them with 3 and behind them with 1.
            task.isnan(self.hit, self.elements)
            task.sel(self.nan, self.hit, Imm(3 if self.largest else 1), Imm(0))

    def next(self, found: View) -> None:
        """Takes the first of the best elements that are left; `found` gets its position, the same along axis 1."""
        task = self.task
        best = self.best.view(axis(0), shape=self.extents)
        task.sel(self.candidates, self.left, self.elements, self.worst)
        task.instr("TROWMAX" if self.largest else "TROWMIN", best, self.candidates, axes=(1,))
        task.cmp(self.hit, self.elements, best, mode="eq")
        task.sel(self.rank, self.hit, Imm(2), self.nan)
        task.sel(self.rank, self.left, self.rank, Imm(0))
        task.rowargmax(found, self.rank, axes=(1,))
        task.cmp(self.hit, self.positions.view(axis(1), shape=self.extents), found, mode="ne")
        task.instr("TAND", self.left, self.left, self.hit)


def _worst(dtype: DType, largest: bool) -> Imm:
    """What no element is worse than."""
    if dtype.is_float:
        return Imm(-inf if largest else inf)
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    return Imm(low if largest else low + (1 << dtype.bits) - 1)
