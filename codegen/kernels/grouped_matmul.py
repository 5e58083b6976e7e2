"""Products of row groups with a matrix each (mixture of experts): how many rows a group has, only the run knows.

Rows of x are sorted by group; group g has rows offsets[g] .. offsets[g + 1] - 1. The grid runs over panels of columns,
so that grid indices never share a result however the rows fall; groups and blocks of rows are loops inside. The
element-wise epilogue runs on the accumulators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codegen.kernels.attached import Attached, store_results
from codegen.kernels.block_emitter import Operand
from codegen.kernels.conv_core import panel_width
from codegen.kernels.elementwise import ElementwiseEmitter
from codegen.kernels.memory_paths import MemoryPaths, accumulator_dtype
from codegen.kernels.operands import NotLowerable, body_of, outer_outputs, outer_values, shape_of
from codegen.kernels.region_space import Space
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmin
from tensor_types.formats import PLAIN, panels


@dataclass(frozen=True)
class GroupedMatmulTiling(Tiling, kind="grouped_matmul"):
    """`rows` of a group and `columns` of the result in a block."""

    rows: int
    columns: int


def lower_grouped_matmul(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around a GroupedMatMul; NotLowerable says why there is none."""
    kernel = _Lowering(node, target)
    if 0 in shape_of(kernel.anchor.output):
        return []
    return first_fit(kernel.candidates(), lambda chosen: _Lowering(node, target).emit(chosen), tiling)


class _Lowering:
    def __init__(self, node: Node, target: Target) -> None:
        self.target = target
        self.body, self.values = body_of(node), outer_values(node)
        self.anchor, *self.rest = self.body.nodes
        if self.anchor.op != "GroupedMatMul":
            raise NotLowerable(f"{self.anchor.op} is no grouped product")
        self.attached = Attached(self.rest, self.values, [self.anchor.output.name])
        self.x, self.w, self.offsets = (self._outer(v) for v in self.anchor.inputs)
        self.outputs = outer_outputs(node)
        self.task = KernelTask(node, "grouped_matmul", target)
        self.paths = MemoryPaths(self.task, target)

    def _outer(self, value: Value | None) -> Value:
        assert value is not None
        return self.values.get(value.name, value)

    def candidates(self) -> Iterator[GroupedMatmulTiling]:
        n = shape_of(self.w)[-1]
        if not isinstance(n, int):
            raise NotLowerable("matrices of run-time size")
        if self.target.explicit_memory:
            columns, most, least = min(-(-n // 32) * 32, 128), 64, 16
        else:
            lanes = max(1, self.target.vector_bytes // accumulator_dtype(self.x.dtype).bytes)
            columns, most, least = panel_width(n, (4 if self.target.registers >= 32 else 2) * lanes, lanes), 96, 1
        for rows in halvings(most, least):
            yield GroupedMatmulTiling(rows, columns)

    def emit(self, tiling: GroupedMatmulTiling) -> list[Record]:
        task, paths = self.task, self.paths
        self.rows, self.columns = tiling.rows, tiling.columns
        self.packed = self.w.is_constant and not self.target.explicit_memory
        result = self.anchor.output
        shape = shape_of(result)
        groups, k, n = shape_of(self.w)
        if not (isinstance(groups, int) and isinstance(k, int) and isinstance(n, int)):
            raise NotLowerable("matrices of run-time size")
        if any(o.shape != shape for _, o in self.outputs) or any(not v.format.is_plain for v in self.values.values()):
            raise NotLowerable("results differ in shape from the product, or values are not in plain order")
        self._check_extras()
        seen = [*self.attached.extras.values(), *(o for _, o in self.outputs)]
        self.space = Space(task, shape, PLAIN, seen, apart=(0, 1))
        m = self.space.extents[0]
        x = task.operand(self.x, "in", (m, k))
        w = self._weight(groups, k, n)
        offsets = task.operand(self.offsets, "in", (groups + 1,))
        p = paths.grid(ceildiv(n, self.columns))
        width: Dim = n if n <= self.columns else self.columns
        if n % self.columns and n > self.columns:
            width = dmin(self.columns, n - self.columns * p)
        block = (self.rows, self.columns)
        accumulator = paths.accumulator(self.x.dtype, block, block)
        with task.loop("g", groups) as g:
            first = task.read("first", offsets.view(g, shape=()), 0, m)
            last = task.read("last", offsets.view(g + 1, shape=()), first, m)
            with task.loop("i", ceildiv(last - first, self.rows)) as i:
                start = first + self.rows * i
                extents = (dmin(self.rows, last - start), width)
                acc = View(accumulator.base, accumulator.index, extents)
                if self.packed:
                    right = w.view(g, p, axis(0), axis(1), shape=(k, width))
                else:
                    right = w.view(g, axis(0), self.columns * p + axis(1), shape=(k, width))
                source = x.view(start + axis(0), axis(1), shape=(extents[0], k))
                paths.product(acc, block, source, right, self.x.dtype)
                self._finish(acc, block, (start + axis(0), self.columns * p + axis(1)))
        return [task.record(2 * m * k * n)]

    def _check_extras(self) -> None:
        """NotLowerable unless it is known how further operands broadcast to the product."""
        result = shape_of(self.anchor.output)
        for v in self.attached.extras.values():
            shape = shape_of(v)
            if len(shape) > 2 or any(d not in (1, whole) for d, whole in zip(shape[::-1], result[::-1], strict=False)):
                raise NotLowerable(f"{v.name} may or may not broadcast")

    def _weight(self, groups: int, k: int, n: int) -> Buffer:
        """The matrices as [groups, k, n], constants of hosts in panels [groups, ceil(n/NR), k, NR]."""
        if not self.packed:
            return self.task.operand(self.w, "in", (groups, k, n))
        shape = (groups, -(-n // self.columns), k, self.columns)
        return self.task.operand(self.w, "in", shape, packing=panels(self.columns, 3))

    def _finish(self, acc: View, block: tuple[int, int], index: Sequence[Dim]) -> None:
        """Computes and stores the results of the block at `index`."""
        paths, made = self.paths, self.anchor.output

        def view(value: Value, role: str = "in") -> View:
            return self.space.view(value, index, acc.shape, role)

        if not self.rest:
            ((_, outer),) = self.outputs
            paths.store_accumulator(view(outer, "out"), acc, block, made.dtype)
            return
        emitter = ElementwiseEmitter(self.task, block, acc.shape)
        source = accumulator_dtype(self.x.dtype)
        result: Operand = paths.to_vector(acc, block, source)
        if made.dtype != source:
            result = emitter.apply("TCVT", made.dtype, result)
        operands = self.attached.emit(emitter, paths, view, {made.name: result}, self.body.outputs)
        store_results(paths, emitter, self.outputs, operands, lambda value: view(value, "out"))
