"""Runs a tile program on numpy arrays: the oracle of the code generator, and a finder of mistakes in programs.

Beside the results it checks what native code cannot afford to: every access lies inside its base, no undefined or
stale tile data is read (a tile is undefined at the start of every grid index), no unwritten element of an `out` or
`workspace` parameter is read, and no two grid indices touch the same element when one of them writes it (but by
TSCATTER without `reduce`, whose indices the program's author answers for).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from codegen.tile import semantics
from codegen.tile.instructions import INSTRUCTIONS, STATUS_INDEX, STATUS_RANGE
from codegen.tile.ir import For, If, Imm, Instr, Operand, Program, ReadDim, Stmt, View, linear_index
from codegen.tile.observer import Observer, Touched
from codegen.tile.text import statement_to_text
from tensor_types.deadline import check_deadline
from tensor_types.dims import Dim, Expr, evaluate
from tensor_types.dtypes import BOOL, DType


class TaskStatus(Exception):
    """The task ended with a status: `code` is STATUS_INDEX or STATUS_RANGE, `index` the position or value."""

    def __init__(self, code: int, index: int) -> None:
        super().__init__(f"task status {code} at {index}")
        self.code = code
        self.index = index


class InterpreterError(Exception):
    """The program is wrong: an access out of bounds, undefined data read, or a race; names the statement."""


def interpret(
    program: Program,
    tensors: Mapping[str, np.ndarray],
    dims: Mapping[str, int],
    grid_order: Iterable[int] | None = None,
    observer: Observer | None = None,
) -> None:
    """Runs the program; `out` and `inout` arrays are written in place.

    `tensors` maps every parameter (workspaces may be left out) to an array of its shape and dtype with any strides.
    `grid_order` lists the flattened grid indices in the order to run them in; `observer` follows. InterpreterError for
    a wrong program, TaskStatus for a data-dependent index or dim out of range, ValueError for unfitting arguments,
    ResourceLimit once the run has used up its time.
    """
    memory = _parameters(program, tensors, _checked_dims(program, dims))
    extents = [evaluate(extent, dims) for _, extent in program.grid]
    size = int(np.prod(extents, dtype=np.int64))
    order = range(size) if grid_order is None else list(grid_order)
    if grid_order is not None and sorted(order) != list(range(size)):
        raise ValueError("grid_order is not a permutation of the grid")
    runner = _Runner(program, memory, observer)
    for flat in order:
        check_deadline()
        place = np.unravel_index(flat, extents) if extents else ()
        env = dict(dims)
        env.update((name, int(at)) for (name, _), at in zip(program.grid, place, strict=True))
        if observer is not None:
            observer.begin(flat, env)
        runner.index(flat + 1, env)
        if observer is not None:
            observer.end(flat)


def _checked_dims(program: Program, dims: Mapping[str, int]) -> Mapping[str, int]:
    for param in program.dims:
        value = dims.get(param.name)
        if value is None or value < param.low or (param.high is not None and value > param.high):
            raise ValueError(f"dim {param.name} = {value} is not in [{param.low}, {param.high}]")
    return dims


@dataclass
class _Memory:
    """A base with what is known of each element; `writer` and `reader` hold grid numbers from 1, -1 is several."""

    data: np.ndarray
    dtype: DType
    defined: np.ndarray | None
    writer: np.ndarray | None = None
    reader: np.ndarray | None = None


def _parameters(program: Program, tensors: Mapping[str, np.ndarray], dims: Mapping[str, int]) -> dict[str, _Memory]:
    memory: dict[str, _Memory] = {}
    for param in program.params:
        shape = tuple(evaluate(s, dims) for s in param.shape)
        data = tensors.get(param.name)
        if data is None and param.role == "workspace":
            data = np.zeros(shape, param.dtype.numpy)
        if data is None or data.shape != shape or data.dtype != param.dtype.numpy:
            found = "nothing" if data is None else f"{data.dtype}{list(data.shape)}"
            raise ValueError(f"parameter {param.name} needs {param.dtype}{list(shape)}, got {found}")
        if param.role == "in":
            memory[param.name] = _Memory(data, param.dtype, None)
            continue
        defined = None if param.role == "inout" else np.zeros(shape, bool)
        memory[param.name] = _Memory(data, param.dtype, defined, np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    return memory


@dataclass(frozen=True)
class _Window:
    """A view prepared for many evaluations: per base axis its offset and the step of each axis variable."""

    base: str
    axes: tuple[tuple[Dim, tuple[Dim, ...]], ...]
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class _Place:
    """A view at one moment: per base axis its offset and integer steps."""

    memory: _Memory
    starts: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]

    def of(self, array: np.ndarray) -> np.ndarray:
        """The window onto `array`, which has the shape of the base."""
        if 0 in self.shape:
            return np.empty(self.shape, array.dtype)
        strides = [0] * len(self.shape)
        for steps, stride in zip(self.steps, array.strides, strict=True):
            strides = [s + step * stride for s, step in zip(strides, steps, strict=True)]
        # The ellipsis keeps a view of a rank-0 base, where an empty index alone would copy.
        place: tuple[Any, ...] = (*(slice(s, None) for s in self.starts), ...)
        first = array[place]
        return as_strided(first, self.shape, strides)


@dataclass
class _Runner:
    program: Program
    memory: dict[str, _Memory]
    observer: Observer | None = None
    windows: dict[int, _Window] = field(default_factory=dict)
    number: int = 0
    env: dict[str, int] = field(default_factory=dict)
    stmt: Stmt | None = None

    def index(self, number: int, env: dict[str, int]) -> None:
        """Runs the body for one grid index."""
        self.number, self.env = number, env
        for tile in self.program.tiles:
            known = self.memory.get(tile.name)
            if known is None or known.defined is None:
                data = np.zeros(tile.shape, tile.dtype.numpy)
                self.memory[tile.name] = _Memory(data, tile.dtype, np.zeros(tile.shape, bool))
            else:
                known.defined[...] = False
        self.body(self.program.body)

    def body(self, stmts: tuple[Stmt, ...]) -> None:
        for stmt in stmts:
            self.stmt = stmt
            if isinstance(stmt, For):
                for value in range(evaluate(stmt.extent, self.env)):
                    check_deadline()
                    self.env[stmt.var] = value
                    if self.observer is not None:
                        self.observer.iteration(stmt, value)
                    self.body(stmt.body)
            elif isinstance(stmt, If):
                left, right = evaluate(stmt.left, self.env), evaluate(stmt.right, self.env)
                holds = {"<": left < right, "<=": left <= right, "==": left == right}[stmt.relation]
                self.body(stmt.then if holds else stmt.orelse)
            elif isinstance(stmt, ReadDim):
                value = int(self.read(stmt.source)[()])
                if not evaluate(stmt.low, self.env) <= value <= evaluate(stmt.high, self.env):
                    raise TaskStatus(STATUS_RANGE, value)
                self.env[stmt.var] = value
                if self.observer is not None:
                    self.observer.dim(stmt, self.touched(stmt.source), value)
            else:
                getattr(self, INSTRUCTIONS[stmt.op].kind)(stmt)
                if self.observer is not None:
                    sources = tuple(s if isinstance(s, Imm) else self.touched(s) for s in stmt.srcs)
                    self.observer.instruction(stmt, self.touched(stmt.dst), sources)

    # Instruction classes

    def move(self, stmt: Instr) -> None:
        source = stmt.srcs[0]
        dtype = self.memory[stmt.dst.base].dtype
        pad = stmt.attr("pad")
        if pad is not None and isinstance(source, View):
            value = self.padded(source, np.array(pad).astype(dtype.numpy))
        else:
            value = self.operand(source, dtype)
        self.write(stmt.dst, semantics.convert(value, dtype) if value.dtype != dtype.numpy else value)

    def elementwise(self, stmt: Instr) -> None:
        dtype = self.memory[stmt.dst.base].dtype
        views = [s for s in stmt.srcs[stmt.op == "TSEL" :] if isinstance(s, View)]
        common = self.memory[views[0].base].dtype if views else dtype
        srcs = [self.operand(s, BOOL if stmt.op == "TSEL" and i == 0 else common) for i, s in enumerate(stmt.srcs)]
        result = semantics.elementwise(stmt.op, srcs, dict(stmt.attrs), dtype)
        self.write(stmt.dst, np.broadcast_to(result, self.shape(stmt.dst)))

    def reduce(self, stmt: Instr) -> None:
        attrs = dict(stmt.attrs)
        axes = attrs["axes"]
        assert isinstance(axes, tuple)
        # A reduced axis has one element in dst, also when the source has none.
        dst = self.place(stmt.dst, {k: 1 for k in axes})
        held = self.read_place(dst) if attrs.get("acc") else None
        src = self.operand(stmt.srcs[0], dst.memory.dtype)
        self.write_place(dst, semantics.reduce(stmt.op, src, attrs, dst.memory.dtype, held))

    def scan(self, stmt: Instr) -> None:
        dtype = self.memory[stmt.dst.base].dtype
        self.write(stmt.dst, semantics.scan(self.operand(stmt.srcs[0], dtype), dict(stmt.attrs), dtype))

    def matmul(self, stmt: Instr) -> None:
        dtype = self.memory[stmt.dst.base].dtype
        held = self.read(stmt.dst) if stmt.op == "TMATMUL_ACC" else None
        a, b = (self.operand(s, dtype) for s in stmt.srcs)
        contracted, bits = stmt.attr("nk", 1), stmt.attr("bits", 0)
        assert isinstance(contracted, int) and isinstance(bits, int)
        self.write(stmt.dst, semantics.matmul(a, b, contracted, dtype, held, bits))

    def indexed(self, stmt: Instr) -> None:
        data, index = stmt.srcs
        assert isinstance(data, View) and isinstance(index, View)
        axis = stmt.attr("axis", 0)
        assert isinstance(axis, int)
        far = self.place(data if stmt.op == "TGATHER" else stmt.dst)
        positions = self.positions(self.place(index), self.read(index), far.shape[axis], bool(stmt.attr("wrap")))
        if not positions.size:
            return
        if stmt.op == "TGATHER":
            if far.memory.defined is not None:
                # Only the elements that are fetched need be defined.
                self.require(bool(np.take_along_axis(far.of(far.memory.defined), positions, axis).all()))
            self.note_read(far)
            self.write(stmt.dst, np.take_along_axis(far.of(far.memory.data), positions, axis))
            return
        values = self.read(data)
        where = tuple(positions if k == axis else np.arange(n).reshape((-1,) + (1,) * (positions.ndim - 1 - k))
                      for k, n in enumerate(positions.shape))  # fmt: skip
        reduce = stmt.attr("reduce", "none")
        memory = far.memory
        if reduce == "none":
            far.of(memory.data)[where] = values
        else:
            if memory.defined is not None:
                self.require(bool(far.of(memory.defined)[where].all()))
            with np.errstate(all="ignore"):
                semantics.SCATTER[str(reduce)].at(far.of(memory.data), where, values)
            self.note_write(far)
        if memory.defined is not None:
            far.of(memory.defined)[where] = True

    def hint(self, stmt: Instr) -> None:
        """There is no cache here."""

    def sync(self, stmt: Instr) -> None:
        """Engines run in program order here."""

    def positions(self, place: _Place, index: np.ndarray, extent: int, wrap: bool) -> np.ndarray:
        index = index.astype(np.int64) if index.dtype != np.uint64 else np.minimum(index, 1 << 62).astype(np.int64)
        if wrap:
            index = np.where(index < 0, index + extent, index)
        bad = np.flatnonzero((index < 0) | (index >= extent))
        if bad.size:
            base = place.memory.data
            numbers = place.of(np.arange(base.size).reshape(base.shape))
            raise TaskStatus(STATUS_INDEX, int(numbers.reshape(-1)[bad[0]]))
        return index

    # Views

    def shape(self, view: View) -> tuple[int, ...]:
        return tuple(evaluate(s, self.env) for s in view.shape)

    def window(self, view: View) -> _Window:
        known = self.windows.get(id(view))
        if known is None:
            axes = tuple(linear_index(i, len(view.shape)) for i in view.index)
            known = self.windows[id(view)] = _Window(view.base, axes, view.shape)
        return known

    def place(self, view: View, extents: Mapping[int, int] | None = None, bounded: bool = True) -> _Place:
        window = self.window(view)
        shape = tuple(evaluate(s, self.env) for s in window.shape)
        if extents:
            shape = tuple(extents.get(k, n) for k, n in enumerate(shape))
        if any(n < 0 for n in shape):
            raise self.error(f"view of {view.base} has a negative extent: {list(shape)}")
        starts = tuple(evaluate(start, self.env) for start, _ in window.axes)
        steps = tuple(tuple(evaluate(s, self.env) for s in axis) for _, axis in window.axes)
        memory = self.memory[view.base]
        if bounded and 0 not in shape:
            for k, (start, axis, size) in enumerate(zip(starts, steps, memory.data.shape, strict=True)):
                reach = [step * (n - 1) for step, n in zip(axis, shape, strict=True)]
                low, high = start + sum(min(r, 0) for r in reach), start + sum(max(r, 0) for r in reach)
                if low < 0 or high >= size:
                    raise self.error(f"axis {k} of {view.base} has {size} elements, the view spans {low}..{high}")
        return _Place(memory, starts, steps, shape)

    def touched(self, view: View) -> Touched:
        """The view as an observer sees it."""
        place = self.place(view, bounded=False)
        tile = self.program.tile(view.base)
        scope = "GM" if tile is None else tile.scope
        return Touched(view.base, place.memory.dtype, scope, place.starts, place.steps, place.shape)

    def operand(self, operand: Operand, dtype: DType) -> np.ndarray:
        if isinstance(operand, Imm):
            value = evaluate(operand.value, self.env) if isinstance(operand.value, Expr) else operand.value
            with np.errstate(all="ignore"):
                return np.asarray(value).astype(dtype.numpy)
        return self.read(operand)

    def read(self, view: View) -> np.ndarray:
        return self.read_place(self.place(view))

    def read_place(self, place: _Place) -> np.ndarray:
        if place.memory.defined is not None:
            self.require(bool(place.of(place.memory.defined).all()))
        self.note_read(place)
        # A copy: the destination may be the same memory.
        return place.of(place.memory.data).copy()

    def padded(self, view: View, pad: np.ndarray) -> np.ndarray:
        """The view with `pad` where an index lies outside the base."""
        place = self.place(view, bounded=False)
        inside = np.ones(place.shape, bool)
        index = []
        for start, steps, size in zip(place.starts, place.steps, place.memory.data.shape, strict=True):
            at = np.full((1,) * len(place.shape), start)
            for k, (step, n) in enumerate(zip(steps, place.shape, strict=True)):
                at = at + step * np.arange(n).reshape((-1,) + (1,) * (len(place.shape) - 1 - k))
            inside &= (at >= 0) & (at < size)
            index.append(np.broadcast_to(np.clip(at, 0, max(size - 1, 0)), place.shape))
        result = np.full(place.shape, pad, place.memory.dtype.numpy)
        where = tuple(i[inside] for i in index)
        memory = place.memory
        if memory.defined is not None:
            self.require(bool(memory.defined[where].all()))
        if memory.writer is not None and memory.reader is not None:
            self.races(memory.writer[where])
            memory.reader[where] = self.mixed(memory.reader[where])
        result[inside] = memory.data[where]
        return result

    def write(self, view: View, value: np.ndarray) -> None:
        self.write_place(self.place(view), value)

    def write_place(self, place: _Place, value: np.ndarray) -> None:
        if value.shape != place.shape and value.ndim:
            raise self.error(f"the result has shape {list(value.shape)}, the destination {list(place.shape)}")
        place.of(place.memory.data)[...] = value
        self.note_write(place)
        if place.memory.defined is not None:
            place.of(place.memory.defined)[...] = True

    # Checks

    def error(self, reason: str) -> InterpreterError:
        grid = ", ".join(f"{name}={self.env[name]}" for name, _ in self.program.grid)
        at = statement_to_text(self.stmt) if self.stmt else "?"
        return InterpreterError(f"{self.program.name}: {reason} [{at}] ({grid})")

    def require(self, defined: bool) -> None:
        if not defined:
            raise self.error("undefined data is read")

    def mixed(self, reader: np.ndarray) -> np.ndarray:
        return np.where((reader == 0) | (reader == self.number), self.number, -1)

    def races(self, numbers: np.ndarray) -> None:
        if ((numbers != 0) & (numbers != self.number)).any():
            raise self.error("two grid indices touch the same element and one writes it")

    def note_read(self, place: _Place) -> None:
        memory = place.memory
        if memory.writer is not None and memory.reader is not None:
            self.races(place.of(memory.writer))
            reader = place.of(memory.reader)
            reader[...] = self.mixed(reader)

    def note_write(self, place: _Place) -> None:
        memory = place.memory
        if memory.writer is not None and memory.reader is not None:
            self.races(place.of(memory.writer))
            self.races(place.of(memory.reader))
            place.of(memory.writer)[...] = self.number
