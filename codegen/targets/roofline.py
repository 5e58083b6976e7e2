"""Roofline estimate of a tile program: the larger of compute time and transfer time, spread over the cores.

The program is walked once per grid index class: loop extents and view extents are evaluated, for samples of the
variables on which these depend; operations are counted by engine and dtype, and bytes by crossing of the border between
global memory and tiles. All of these pass the last cache; memory gives each tensor once, and again what is asked for
again of the part that the cache cannot hold. There is no latency, no queue and no overlap between tasks: it is labelled
an estimate wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, prod

from codegen.targets.target import Target
from codegen.tile.instructions import INSTRUCTIONS
from codegen.tile.ir import For, If, Instr, Program, ReadDim, Stmt, View, linear_index, walk
from tensor_types.dims import evaluate, names
from tensor_types.dtypes import DType

_SAMPLES = 64
"""Grid indices that are walked; a larger grid is sampled evenly, its ends included."""
_TRIPS = 4
"""Iterations of one loop that are walked, likewise."""


@dataclass(frozen=True)
class Estimate:
    """Seconds on the whole target; `bound` is 'cube', 'vector', 'cache' or 'memory'; flops count a multiply-add as two.

    `bytes` are those that pass the last cache.
    """

    seconds: float
    bound: str
    flops: float
    bytes: float


@dataclass
class _Count:
    deciding: frozenset[str]
    cube: dict[DType, float] = field(default_factory=dict)
    """Multiply-adds by dtype."""
    vector: dict[DType, float] = field(default_factory=dict)
    """Elements by dtype."""
    reads: dict[str, float] = field(default_factory=dict)
    """Bytes by parameter."""
    writes: dict[str, float] = field(default_factory=dict)


def estimate(program: Program, dims: Mapping[str, int], target: Target) -> Estimate:
    """The estimate at these dim values; a dim read from a tensor counts with its highest value.

    ValueError if the target has no engine for a dtype that the program computes in.
    """
    extents = [evaluate(extent, dims) for _, extent in program.grid]
    size = prod(extents)
    count = _Count(_deciding(program))
    grid = [(name, extent) for (name, _), extent in zip(program.grid, extents, strict=True) if name in count.deciding]
    indices = _spread(prod(extent for _, extent in grid), _SAMPLES) if size else []
    for flat in indices:
        env = dict(dims)
        for name, extent in reversed(grid):
            flat, env[name] = divmod(flat, extent)
        _walk(program, program.body, env, size / len(indices), count)
    cube = _cycles(count.cube, target.cube.rates)
    vector = _cycles(count.vector, target.vector.rates)
    cubes, vectors = (_speed_up(size, cores) for cores in (target.cube_cores, target.vector_cores))
    cores = cubes if count.cube else vectors
    read, written = sum(count.reads.values()), sum(count.writes.values())
    cycles = {
        "cube": cube / cubes,
        "vector": vector / vectors,
        "cache": (read / target.l2_read + written / target.l2_write) / cores,
        "memory": _memory_bytes(program, dims, target, count) / (target.ddr_read * cores),
    }
    bound = max(cycles, key=lambda name: cycles[name])
    flops = 2 * sum(count.cube.values()) + sum(count.vector.values())
    return Estimate(cycles[bound] / (target.clock_mhz * 1e6), bound, flops, read + written)


def _deciding(program: Program) -> frozenset[str]:
    """Names on which extents, trip counts or conditions depend: other variables move views and change no amount."""
    found: set[str] = set()
    for stmt in walk(program.body):
        if isinstance(stmt, For):
            found |= names(stmt.extent)
        elif isinstance(stmt, If):
            found |= names(stmt.left) | names(stmt.right)
        elif isinstance(stmt, ReadDim):
            found |= names(stmt.high)
        else:
            views = (v for v in (stmt.dst, *stmt.srcs) if isinstance(v, View))
            found.update(name for view in views for extent in view.shape for name in names(extent))
    return frozenset(found)


def _memory_bytes(program: Program, dims: Mapping[str, int], target: Target, count: _Count) -> float:
    """Bytes that memory gives or takes; what a task leaves in the cache for itself alone stays there."""
    total = 0.0
    for param in program.params:
        size = prod(evaluate(d, dims) for d in param.shape) * param.dtype.bytes
        if param.role == "workspace" and size <= target.l2_bytes:
            continue
        for traffic in (count.reads, count.writes):
            moved = traffic.get(param.name, 0.0)
            once = min(moved, size)
            total += once + (moved - once) * max(0.0, 1 - target.l2_bytes / max(size, 1))
    return total


def _spread(size: int, most: int) -> list[int]:
    if size <= most:
        return list(range(size))
    if most == 1:
        return [0]
    return [round(i * (size - 1) / (most - 1)) for i in range(most)]


def _speed_up(tasks: int, cores: int) -> float:
    """Cores that work on average: the last wave may leave some idle."""
    return tasks / ceil(tasks / cores) if tasks else 1.0


def _cycles(work: Mapping[DType, float], rates: Mapping[str, int]) -> float:
    total = 0.0
    for dtype, amount in work.items():
        # What the engine has no mode for runs on the core's scalar unit, one element a cycle.
        total += amount / (rates.get(dtype.name) or 1)
    return total


def _walk(program: Program, body: tuple[Stmt, ...], env: dict[str, int], weight: float, count: _Count) -> None:
    for stmt in body:
        if isinstance(stmt, For):
            trips = evaluate(stmt.extent, env)
            walked = _spread(max(trips, 0), _TRIPS if stmt.var in count.deciding else 1)
            for value in walked:
                _walk(program, stmt.body, {**env, stmt.var: value}, weight * trips / len(walked), count)
        elif isinstance(stmt, If):
            left, right = evaluate(stmt.left, env), evaluate(stmt.right, env)
            holds = {"<": left < right, "<=": left <= right, "==": left == right}[stmt.relation]
            _walk(program, stmt.then if holds else stmt.orelse, env, weight, count)
        elif isinstance(stmt, ReadDim):
            env[stmt.var] = evaluate(stmt.high, env)
        else:
            _instruction(program, stmt, env, weight, count)


def _instruction(program: Program, instr: Instr, env: Mapping[str, int], weight: float, count: _Count) -> None:
    kind = INSTRUCTIONS[instr.op].kind
    if kind in ("sync", "hint"):
        return
    views = [s for s in instr.srcs if isinstance(s, View)]
    for view, traffic in (*((v, count.reads) for v in views), (instr.dst, count.writes)):
        param = program.param(view.base)
        if param is not None:
            moved = _elements(view, env) * param.dtype.bytes * weight
            traffic[param.name] = traffic.get(param.name, 0.0) + moved
    if kind == "matmul":
        left = views[0]
        dtype = _dtype(program, left)
        amount = prod(evaluate(s, env) for s in left.shape) * evaluate(views[1].shape[-1], env)
        count.cube[dtype] = count.cube.get(dtype, 0.0) + amount * weight
    elif kind != "move":
        dtype = _dtype(program, views[0]) if views else _dtype(program, instr.dst)
        amount = max(prod(evaluate(s, env) for s in v.shape) for v in (*views, instr.dst))
        count.vector[dtype] = count.vector.get(dtype, 0.0) + amount * weight


def _elements(view: View, env: Mapping[str, int]) -> int:
    """Elements of the base that a view touches at most: axes that it repeats count once."""
    used = {k for index in view.index for k, step in enumerate(linear_index(index, len(view.shape))[1]) if step != 0}
    return prod(evaluate(extent, env) for k, extent in enumerate(view.shape) if k in used)


def _dtype(program: Program, view: View) -> DType:
    base = program.param(view.base) or program.tile(view.base)
    assert base is not None
    return base.dtype
