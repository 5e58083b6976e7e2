"""Products of row groups with a matrix each (mixture of experts): how many rows a group has, only the run knows.

Rows of x are sorted by group; `ends[g]` is the row behind group g's last one. The grid runs over panels of columns, so
that grid indices never share a result however the rows fall; groups and blocks of rows are loops inside.
"""

from __future__ import annotations

from codegen.kernels.conv_core import panel_width
from codegen.kernels.memory_paths import MemoryPaths, accumulator_dtype
from codegen.kernels.region_task import KernelTask
from codegen.targets.target import Target
from codegen.tile.ir import Program, axis
from graph_opt.ir.core import Node
from tensor_types.dims import Dim, ceildiv, dmin
from tensor_types.dtypes import I64, DType

_ROWS = 96
_CHIP_ROWS, _CHIP_COLUMNS = 64, 128


def grouped_matmul_program(groups: int, k: int, n: int, dtype: DType, target: Target) -> Program:
    """y[m, n] = x[m, k] @ w[group of the row] with run-time m (dim d0).

    Parameters: p0 x [m, k], p1 w (for hosts in panels [groups, ceil(n/NR), k, NR], for chips [groups, k, n]), p2 ends
    i64 [groups] (non-decreasing, at most m; otherwise the task ends with status RANGE), p3 y [m, n]. Rows behind the
    last group are not written.
    """
    task = KernelTask(Node("GroupedMatMul", "", [], []), "grouped_matmul")
    paths = MemoryPaths(task, target)
    m = task.dim("d0")
    if target.explicit_memory:
        rows, columns = _CHIP_ROWS, min(-(-n // 16) * 16, _CHIP_COLUMNS)
        weight: tuple[int, ...] = (groups, k, n)
    else:
        lanes = max(1, target.vector_bytes // 4)
        rows, columns = _ROWS, panel_width(n, (4 if target.registers >= 32 else 2) * lanes, lanes)
        weight = (groups, -(-n // columns), k, columns)
    x, w = task.param("p0", dtype, (m, k)), task.param("p1", dtype, weight)
    ends, y = task.param("p2", I64, (groups,)), task.param("p3", dtype, (m, n), "out")
    p = paths.grid(ceildiv(n, columns))
    width: Dim = columns if n % columns == 0 else dmin(columns, n - columns * p) if n > columns else n
    acc_tile = paths.tile(accumulator_dtype(dtype), (rows, columns), "L0C")

    def group(g: Dim, first: Dim, last: Dim) -> None:
        with task.loop("i", ceildiv(last - first, rows)) as i:
            count = dmin(rows, last - first - rows * i)
            shape = (count, width)
            acc = acc_tile.window((0, 0), shape)
            source = x.view(first + rows * i + axis(0), axis(1), shape=(count, k))
            if target.explicit_memory:
                right = w.view(g, axis(0), columns * p + axis(1), shape=(k, width))
            else:
                right = w.view(g, p, axis(0), axis(1), shape=(k, width))
            paths.product(acc, (rows, columns), source, right, dtype)
            paths.store_accumulator(
                y.view(first + rows * i + axis(0), columns * p + axis(1), shape=shape), acc, (rows, columns), dtype
            )

    group(0, 0, task.read("end", ends.view(0, shape=()), 0, m))
    if groups > 1:
        with task.loop("g", groups - 1) as g:
            first = task.read("first", ends.view(g, shape=()), 0, m)
            group(g + 1, first, task.read("last", ends.view(g + 1, shape=()), first, m))
    return task.finish()
