"""Small packages for the runtime's tests: hand-written tile programs, planned and written to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime.om import FusedGraph
from acl_runtime.package_layout import ClassPart, plan_texts, write_model
from acl_runtime.stored_constants import lay_out
from codegen.llvm.detect import detect_host_class
from codegen.tile.build import ProgramBuilder
from codegen.tile.ir import axis
from codegen.tile.text import program_to_text
from graph_opt.plan import (
    AicpuRecord,
    GuardedRequirement,
    KernelRecord,
    PlanInput,
    Scheduled,
    TaskOperand,
    ValueInfo,
    model_to_json,
    plan_model,
)
from tensor_types.dims import Dim, Expr, ceildiv, dmin
from tensor_types.dtypes import F32, I64
from tensor_types.recipes import Source

BLOCK = 64
VIEWER = FusedGraph("test", (), (), (), ())


def elementwise(ops: Sequence[str], n_inputs: int = 1, symbolic: bool = True, size: int = 0) -> str:
    """Program over flat f32 arrays of d0 elements: the unary or binary instructions in turn, left to right."""
    b = ProgramBuilder("elementwise")
    count: Dim = b.dim("d0", low=1) if symbolic else size
    sources = [b.param(f"p{i}", F32, (count,)) for i in range(n_inputs)]
    target = b.param(f"p{n_inputs}", F32, (count,), "out")
    tiles = [b.tile(f"t{i}", F32, (BLOCK,)) for i in range(n_inputs)]
    block = b.grid("g", ceildiv(count, BLOCK))
    rows = dmin(BLOCK, count - BLOCK * block)
    views = [t.window((0,), (rows,)) for t in tiles]
    for view, source in zip(views, sources, strict=True):
        b.load(view, source.view(BLOCK * block + axis(0), shape=(rows,)))
    for op in ops:
        if op in ("add", "sub", "mul"):
            getattr(b, op)(views[0], views[0], views[1])
        else:
            getattr(b, op)(views[0], views[0])
    b.store(target.view(BLOCK * block + axis(0), shape=(rows,)), views[0])
    return program_to_text(b.finish())


def gather(rows: int, columns: int, count: int) -> str:
    """y[i] = table[index[i]] over rows; an index out of range ends the task."""
    b = ProgramBuilder("gather")
    table, index = b.param("p0", F32, (rows, columns)), b.param("p1", I64, (count,))
    target = b.param("p2", F32, (count, columns), "out")
    picked, chosen = b.tile("t0", F32, (count, columns)), b.tile("t1", I64, (count,))
    b.load(chosen, index)
    b.gather(picked.whole(), table.whole(), chosen.view(axis(0), shape=(count, columns)), axis=0, wrap=1)
    b.store(target, picked)
    return program_to_text(b.finish())


def kernel(text: str, reads: Sequence[str], write: str, size: Dim | None, **more: Any) -> Scheduled:
    """A record of an element-wise program over `size` elements (None: the program has no dims)."""
    operands = [TaskOperand(r, "in") for r in reads] + [TaskOperand(write, "out")]
    grid = 1 if size is None and not isinstance(more.get("grid"), int | Expr) else more.pop("grid", None)
    if grid is None:
        assert size is not None
        grid = ceildiv(size, BLOCK)
    guards = more.pop("guards", ())
    dims = () if size is None else (size,)
    node = more.pop("node", f"make_{write}")
    record = KernelRecord(text, tuple(operands), dims, grid, node, "region", **{"work": size or 0, **more})
    return Scheduled(record, guards)


def host(op: str, reads: Sequence[str | None], writes: Sequence[str], **attrs: Any) -> Scheduled:
    return Scheduled(AicpuRecord(op, tuple(reads), tuple(writes), f"host_{op}", attrs))


def write(
    path: Path,
    values: Sequence[ValueInfo],
    records: Sequence[Scheduled],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    dims: Mapping[str, tuple[int, int | None]] | None = None,
    late_dims: Mapping[str, tuple[int, int | None]] | None = None,
    requirements: Sequence[GuardedRequirement] = (),
    constants: Mapping[str, np.ndarray] | None = None,
    host_class: str | None = None,
    objects: list[bytes] | None = None,
    packed: bool = True,
) -> dict[str, Any]:
    """Plans and writes a package; gives the plan's JSON."""
    ends = (tuple(inputs), tuple(outputs))
    model = PlanInput(
        tuple(values), tuple(records), *ends, dict(dims or {}), tuple(requirements), late_dims=dict(late_dims or {})
    )
    json_plan = model_to_json(plan_model(model))
    part = ClassPart(plan_texts(json_plan), objects)
    recipes = {n: Source(a) for n, a in (constants or {}).items()}
    table = lay_out(recipes, json_plan if packed else None)
    name = host_class or detect_host_class()
    write_model(path, classes={name: part}, constants=recipes, table=table, viewer=VIEWER, header={"tool": "test"})
    return json_plan
