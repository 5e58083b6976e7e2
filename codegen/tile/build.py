"""Builds tile programs: declarations return handles, statements append to the open body.

    b = ProgramBuilder("scale")
    m = b.dim("m", low=1)
    x = b.param("x", F32, (m, 768))
    y = b.param("y", F32, (m, 768), "out")
    t = b.tile("t", F32, (64, 768))
    mb = b.grid("mb", ceildiv(m, 64))
    rows = dmin(64, m - 64 * mb)
    block = t.window((0, 0), (rows, 768))
    b.load(block, x.window((64 * mb, 0), (rows, 768)))
    with b.loop("k", 3):
        b.mul(block, block, 0.5)
    b.store(y.window((64 * mb, 0), (rows, 768)), block)
    program = b.finish()

Every instruction of `codegen.tile.instructions` is a method: its name in lower case without the T.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from codegen.tile.instructions import INSTRUCTIONS
from codegen.tile.ir import (
    AttrValue,
    DimParam,
    For,
    If,
    Imm,
    Instr,
    Operand,
    Param,
    Program,
    ReadDim,
    Scalar,
    Stmt,
    Tile,
    View,
    axis,
)
from tensor_types.dims import Dim, Expr, dim, substitute
from tensor_types.dtypes import DType


@dataclass(frozen=True)
class Buffer:
    """The handle of a declared parameter or tile; as an operand it stands for its whole extent."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]

    def view(self, *index: Dim, shape: Sequence[Dim]) -> View:
        """The view with these index expressions (over `axis(k)`) and axis extents."""
        return View(self.name, index, tuple(shape))

    def window(self, start: Sequence[Dim], shape: Sequence[Dim]) -> View:
        """The block of extents `shape` at `start`, of the buffer's own rank."""
        index = tuple(first + axis(k) for k, first in enumerate(start))
        return View(self.name, index, tuple(shape))

    def whole(self) -> View:
        """All of it."""
        return self.window((0,) * len(self.shape), self.shape)


Argument: TypeAlias = Buffer | View | Imm | Scalar | Expr
"""What an instruction takes as operand: numbers become immediates, buffers their whole view."""


def broadcast(view: View, shape: Sequence[Dim], axes: Sequence[int]) -> View:
    """The view with extents `shape` in which axis k of `view` has become axis `axes[k]`; other axes repeat it.

    A permutation of all axes is a transpose.
    """
    env: dict[str, Dim] = {f"_{old}": axis(new) for old, new in enumerate(axes)}
    return View(view.base, tuple(substitute(i, env) for i in view.index), tuple(shape))


class ProgramBuilder:
    """Collects declarations and statements of one program; `finish` gives it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._dims: list[DimParam] = []
        self._params: list[Param] = []
        self._tiles: list[Tile] = []
        self._grid: list[tuple[str, Dim]] = []
        self._bodies: list[list[Stmt]] = [[]]

    def dim(self, name: str, low: int = 0, high: int | None = None) -> Expr:
        """Declares a run-time scalar in [low, high]."""
        self._dims.append(DimParam(name, low, high))
        return dim(name)

    def param(
        self, name: str, dtype: DType, shape: Sequence[Dim], role: str = "in", strides: Sequence[Dim] | None = None
    ) -> Buffer:
        """Declares a tensor in global memory; strides count elements."""
        param = Param(name, dtype, tuple(shape), role, None if strides is None else tuple(strides))
        self._params.append(param)
        return Buffer(name, dtype, param.shape)

    def tile(self, name: str, dtype: DType, shape: Sequence[int], scope: str = "UB", depth: int = 1) -> Buffer:
        """Declares an on-chip buffer."""
        self._tiles.append(Tile(name, dtype, tuple(shape), scope, depth))
        return Buffer(name, dtype, tuple(shape))

    def grid(self, var: str, extent: Dim) -> Expr:
        """Appends a parallel dimension to the grid, outermost first; gives its variable."""
        self._grid.append((var, extent))
        return dim(var)

    @contextmanager
    def loop(self, var: str, extent: Dim) -> Iterator[Expr]:
        """A sequential loop around the statements inside the `with`; gives its variable."""
        self._bodies.append([])
        yield dim(var)
        body = tuple(self._bodies.pop())
        self._append(For(var, extent, body))

    @contextmanager
    def when(self, left: Dim, relation: str, right: Dim) -> Iterator[None]:
        """Runs the statements inside only if `left relation right`."""
        self._bodies.append([])
        yield
        then = tuple(self._bodies.pop())
        self._append(If(left, relation, right, then))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The other branch of the `when` just before it."""
        last = self._bodies[-1][-1] if self._bodies[-1] else None
        if not isinstance(last, If) or last.orelse:
            raise ValueError("otherwise() does not follow a when()")
        self._bodies.append([])
        yield
        orelse = tuple(self._bodies.pop())
        self._bodies[-1][-1] = If(last.left, last.relation, last.right, last.then, orelse)

    def read(self, var: str, source: View, low: Dim, high: Dim) -> Expr:
        """Defines a dim from an integer element of a tensor (`source` has rank 0)."""
        self._append(ReadDim(var, source, low, high))
        return dim(var)

    def instr(self, op: str, dst: Buffer | View, *srcs: Argument, **attrs: AttrValue) -> None:
        """Appends an instruction; attributes are stored in their declared order."""
        declared = INSTRUCTIONS[op].attrs
        if unknown := set(attrs) - set(declared):
            raise ValueError(f"{op} has no attribute {', '.join(sorted(unknown))}")
        view = dst.whole() if isinstance(dst, Buffer) else dst
        ordered = tuple((name, attrs[name]) for name in declared if name in attrs)
        self._append(Instr(op, view, tuple(map(_operand, srcs)), ordered))

    def __getattr__(self, name: str) -> Callable[..., None]:
        op = f"T{name.upper()}"
        if op not in INSTRUCTIONS or not name.islower():
            raise AttributeError(name)

        def emit(dst: Buffer | View, *srcs: Argument, **attrs: AttrValue) -> None:
            self.instr(op, dst, *srcs, **attrs)

        return emit

    def finish(self) -> Program:
        """The program so far."""
        return Program(
            self.name,
            tuple(self._params),
            tuple(self._tiles),
            tuple(self._grid),
            tuple(self._bodies[0]),
            tuple(self._dims),
        )

    def _append(self, stmt: Stmt) -> None:
        self._bodies[-1].append(stmt)


def _operand(value: Argument) -> Operand:
    if isinstance(value, Buffer):
        return value.whole()
    return value if isinstance(value, View | Imm) else Imm(value)
