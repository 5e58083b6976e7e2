"""SelectBoxes: the boxes that NonMaxSuppression keeps, a grid index for each class of each image.

Boxes above the least score are gathered first, so that what follows works on these alone. Then the best of those that
are left is taken, and with it go all that it overlaps too much, until none is left or the limit is reached. Among
equal scores the lower index comes first; the overlap is compared as onnxruntime does, by f32 division.
"""

from __future__ import annotations

from math import inf

import numpy as np

from codegen.kernels.elementwise import immediate
from codegen.kernels.operands import NotLowerable, body_of, outer_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import Imm, View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim
from tensor_types.dtypes import BOOL, F32, I32, I64, DType

_MOST_BOXES = 1 << 16
"""Of an image: a dozen tiles hold a number for each."""
_LEAST_SCORE = float(np.finfo(np.float32).min)


def lower_box_selection(node: Node, target: Target) -> list[Record]:
    """One task for a Fused node around a SelectBoxes; NotLowerable says why there is none."""
    (select,) = body_of(node).nodes
    values = outer_values(node)
    if target.explicit_memory:
        raise NotLowerable("boxes are selected one by one, which a chip's vector engine does not pay for")
    operands = [None if v is None else values.get(v.name, v) for v in select.inputs]
    boxes, scores, overlap, least = (*operands, None, None)[:4]
    assert boxes is not None and scores is not None
    if any(not v.format.is_plain for v in values.values()):
        raise NotLowerable("values in plain order only")
    batch, count, _ = shape_of(boxes)
    if not isinstance(count, int) or count > _MOST_BOXES:
        raise NotLowerable("a run-time number of boxes, or very many")
    if 0 in (batch, count, shape_of(scores)[1]):
        return []
    task = KernelTask(node, "box_selection", target)
    kernel = _Selection(task, count, bool(select.attrs.get("center", 0)))
    index = (task.grid("b", task.extent(batch)), task.grid("c", task.extent(shape_of(scores)[1])))
    kernel.read(boxes, scores, index, kernel.number(least, _LEAST_SCORE), strict=least is not None)
    kernel.write(values[select.output.name], index, kernel.number(overlap, 0.0))
    return [task.record(64 * count * task.extent(batch) * task.extent(shape_of(scores)[1]))]


class _Selection:
    """One class of one image: `candidates` says how many boxes are above the least score, once `read` has run."""

    def __init__(self, task: KernelTask, count: int, center: bool) -> None:
        self.task, self.count, self.center = task, count, center
        self.names = 0
        self.candidates: Dim = 0
        self.chosen = self.buffer(I32, count + 1)
        self.scores, self.area = self.line(F32), self.line(F32)
        self.low, self.high = (self.line(F32), self.line(F32)), (self.line(F32), self.line(F32))
        self.scratch, self.numbers, self.flags = [self.line(F32) for _ in range(4)], self.line(I32), self.line(BOOL)

    def buffer(self, dtype: DType, size: int) -> Buffer:
        self.names += 1
        return self.task.tile(f"t{self.names}", dtype, (size,))

    def line(self, dtype: DType) -> Buffer:
        return self.buffer(dtype, self.count)

    def first(self, tile: Buffer) -> View:
        """The elements of the candidates."""
        return tile.window((0,), (self.candidates,))

    def at(self, tile: Buffer, position: Dim) -> View:
        """One element, repeated for each candidate."""
        return tile.view(position, shape=(self.candidates,))

    def number(self, value: Value | None, default: float) -> View | Imm:
        """A parameter of one element, for every candidate."""
        if value is None:
            return Imm(default)
        if (constant := immediate(value)) is not None:
            return Imm(float(constant.value))
        held = self.buffer(F32, 1)
        self.task.load(held.window((0,), (1,)), self.task.operand(value, "in", (1,)).window((0,), (1,)))
        return held.view(0, shape=(self.count,))

    def read(
        self, boxes: Value, scores: Value, index: tuple[Dim, Dim], least: View | Imm, strict: bool
    ) -> None:
        """Gathers scores and corners of the boxes whose score is above `least`, or at least that."""
        task, count = self.task, self.count
        b, c = index
        row = self.line(F32).whole()
        keep, number, slot = self.flags.whole(), self.numbers.whole(), self.line(I32).whole()
        shape = tuple(task.extents(shape_of(scores)))
        task.load(row, task.operand(scores, "in", shape).view(b, c, axis(0), shape=(count,)))
        if not strict:  # the least of all is no score to stop at
            task.max(row, row, Imm(_LEAST_SCORE))
        task.cmp(keep, row, least, mode="gt" if strict else "ge")
        task.cvt(number, keep)
        total = self.buffer(I32, 1)
        task.rowsum(total.view(0, shape=(count,)), number, axes=(0,))
        self.candidates = task.read("m", total.view(0, shape=()), 0, count)
        with task.when(1, "<=", self.candidates):
            task.cumsum(slot, number, axis=0, exclusive=1)
            task.sel(slot, keep, slot, Imm(count))
            task.expands(number, 1)
            task.cumsum(number, number, axis=0, exclusive=1)
            task.scatter(self.chosen.view(axis(0), shape=(count + 1,)), number, slot, axis=0)
            chosen = self.first(self.chosen)
            task.gather(self.first(self.scores), row, chosen, axis=0)
            table = task.operand(boxes, "in", tuple(task.extents(shape_of(boxes))))
            columns = [self.first(tile) for tile in self.scratch]
            for k, column in enumerate(columns):
                task.gather(column, table.view(b, axis(0), k, shape=(count,)), chosen, axis=0)
            self._corners(columns)

    def _corners(self, columns: list[View]) -> None:
        task = self.task
        sides = []
        for k in (0, 1):
            low, high = self.first(self.low[k]), self.first(self.high[k])
            if self.center:
                task.mul(columns[k + 2], columns[k + 2], 0.5)
                task.sub(low, columns[k], columns[k + 2])
                task.add(high, columns[k], columns[k + 2])
            else:
                task.min(low, columns[k], columns[k + 2])
                task.max(high, columns[k], columns[k + 2])
            task.sub(columns[k], high, low)
            sides.append(columns[k])
        task.mul(self.first(self.area), *sides)

    def write(self, result: Value, index: tuple[Dim, Dim], overlap: View | Imm) -> None:
        """Stores the indices of the boxes that are kept, best first, and -1 behind them."""
        task, most = self.task, shape_of(result)[2]
        assert isinstance(most, int)
        shape = tuple(task.extents(shape_of(result)))
        target = task.operand(result, "out", shape)
        none, one = self.buffer(I64, most).whole(), self.buffer(I64, 1).whole()
        task.expands(none, -1)
        task.store(target.view(*index, axis(0), shape=(most,)), none)
        with task.when(1, "<=", self.candidates):
            left, open_ = self.first(self.line(BOOL)), self.buffer(I32, 1)
            place = self.buffer(I32, 1)
            task.expands(left, True)
            task.expands(open_.whole(), 1)
            with task.loop("k", most) as k:
                more = task.read("a", open_.view(0, shape=()), 0, self.count)
                with task.when(1, "<=", more):
                    best = self.first(self.scratch[0])
                    task.sel(best, left, self.first(self.scores), Imm(-inf))
                    task.rowargmax(place.view(0, shape=(self.candidates,)), best, axes=(0,))
                    p = task.read("p", place.view(0, shape=()), 0, self.candidates - 1)
                    task.cvt(one, self.chosen.view(p, shape=(1,)))
                    task.store(target.view(*index, k, shape=(1,)), one)
                    self._drop(left, p, overlap)
                    number = self.first(self.numbers)
                    task.cvt(number, left)
                    task.rowsum(open_.view(0, shape=(self.candidates,)), number, axes=(0,))

    def _drop(self, left: View, p: Dim, overlap: View | Imm) -> None:
        """Takes the box at p away, and every other one whose overlap with it is above the limit."""
        task = self.task
        common, side, union, _ = (self.first(t) for t in self.scratch)
        for k, into in ((0, common), (1, side)):
            task.min(into, self.first(self.high[k]), self.at(self.high[k], p))
            task.max(union, self.first(self.low[k]), self.at(self.low[k], p))
            task.sub(into, into, union)
            task.max(into, into, 0.0)
        task.mul(common, common, side)
        task.add(union, self.first(self.area), self.at(self.area, p))
        task.sub(union, union, common)
        task.div(union, common, union)
        if isinstance(overlap, View):
            overlap = View(overlap.base, overlap.index, common.shape)
        far = self.first(self.flags)
        task.cmp(far, union, overlap, mode="gt")
        task.instr("TNOT", far, far)
        task.instr("TAND", left, left, far)
        task.expands(View(left.base, (p + axis(0),), (1,)), False)
