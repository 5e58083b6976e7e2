"""Tile programs as data: parameters, tiles, a parallel grid, loops and tile instructions over views.

A program reads and writes *parameters* (tensors in global memory) through *tiles* (on-chip buffers). Its body runs once
per grid index; grid indices are independent of each other and may run in any order on any core.

Every operand of an instruction is a `View`: a base (parameter or tile), one index expression per axis of the base, and
the extents of the view's own axes. Index expressions are dims over grid and loop variables, the program's dims and the
*axis variables* `_0`, `_1`, ... of the view, linear in the latter:

    a[64*mb + _0, _1]{min(64, m - 64*mb), 768}      a block of rows with a tail
    x[n, 2*_0 + _2, 2*_1 + _3, _4]{8, 56, 3, 3, 64} image-to-column view of a 3x3 convolution with stride 2
    b[_1]{64, 768}                                  a row broadcast over 64 rows (axis 0 does not occur)

Instructions are listed with their meaning in `codegen.tile.instructions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from tensor_types.dims import Dim, Expr, dim, names, product, substitute
from tensor_types.dtypes import DType

Scalar: TypeAlias = int | float | bool
AttrValue: TypeAlias = int | float | bool | str | tuple[int, ...]

SCOPES = ("UB", "L1", "L0A", "L0B", "L0C")
ROLES = ("in", "out", "inout", "workspace")


def axis(number: int) -> Expr:
    """The axis variable `_number` of a view."""
    return dim(f"_{number}")


@dataclass(frozen=True)
class DimParam:
    """A run-time scalar of the program, its inclusive lowest and highest value (None: unbounded)."""

    name: str
    low: int = 0
    high: int | None = None


@dataclass(frozen=True)
class Param:
    """A tensor in global memory. `strides` count elements and may hold dims; None means dense row-major.

    Roles: `in` (never written), `out` (written, never read before written), `inout`, and `workspace`
    (undefined at the start, dead at the end, private to the task; shape may be any dims).
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    role: str = "in"
    strides: tuple[Dim, ...] | None = None

    def element_strides(self) -> tuple[Dim, ...]:
        """Strides in elements, dense ones filled in."""
        if self.strides is not None:
            return self.strides
        return tuple(product(self.shape[i + 1 :]) for i in range(len(self.shape)))


@dataclass(frozen=True)
class Tile:
    """An on-chip buffer of static shape, dense row-major, undefined at the start of every grid index.

    `depth` is the number of buffers in rotation over the iterations of the innermost loop that writes it
    (2 = double buffering); it never changes results.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    scope: str = "UB"
    depth: int = 1


@dataclass(frozen=True)
class View:
    """A strided window: `index[i]` locates axis i of the base, `shape[k]` is the extent of axis variable `_k`."""

    base: str
    index: tuple[Dim, ...]
    shape: tuple[Dim, ...]

    def substitute(self, env: dict[str, Dim]) -> View:
        """The view with dims (not axis variables) replaced."""
        return View(
            self.base,
            tuple(substitute(i, env) for i in self.index),
            tuple(substitute(s, env) for s in self.shape),
        )


@dataclass(frozen=True)
class Imm:
    """An immediate scalar operand; converted to the dtype of the instruction's other operands.

    That of TEXPANDS may be an expression of the program's dims, for an integer destination, in which it wraps.
    """

    value: Scalar | Expr


Operand: TypeAlias = View | Imm


@dataclass(frozen=True)
class Instr:
    """One tile instruction: `dst = op(srcs)` with attributes as declared in `codegen.tile.instructions`."""

    op: str
    dst: View
    srcs: tuple[Operand, ...] = ()
    attrs: tuple[tuple[str, AttrValue], ...] = ()

    def attr(self, name: str, default: AttrValue | None = None) -> AttrValue | None:
        """The attribute's value, or the default."""
        return dict(self.attrs).get(name, default)


@dataclass(frozen=True)
class For:
    """A sequential loop: `var` runs over 0 .. extent-1 in order; tiles keep their content between iterations."""

    var: str
    extent: Dim
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class If:
    """`left relation right` ('<', '<=', '==') selects one of two bodies."""

    left: Dim
    relation: str
    right: Dim
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True)
class ReadDim:
    """Defines the dim `var` from one integer element of a tensor (row counts, sequence lengths).

    The value must lie in [low, high]; otherwise the task ends with status RANGE and the value as its index.
    """

    var: str
    source: View
    low: Dim
    high: Dim


Stmt: TypeAlias = Instr | For | If | ReadDim


@dataclass(frozen=True)
class Program:
    """A kernel. `grid` lists (variable, extent), outermost first; the flattened index is row-major over it."""

    name: str
    params: tuple[Param, ...]
    tiles: tuple[Tile, ...]
    grid: tuple[tuple[str, Dim], ...]
    body: tuple[Stmt, ...]
    dims: tuple[DimParam, ...] = field(default=())

    def param(self, name: str) -> Param | None:
        """The parameter of that name."""
        return next((p for p in self.params if p.name == name), None)

    def tile(self, name: str) -> Tile | None:
        """The tile of that name."""
        return next((t for t in self.tiles if t.name == name), None)

    def grid_size(self) -> Dim:
        """Number of grid indices."""
        return product(extent for _, extent in self.grid)


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement of a body, outer ones first, in program order."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, For):
            yield from walk(stmt.body)
        elif isinstance(stmt, If):
            yield from walk(stmt.then)
            yield from walk(stmt.orelse)


@lru_cache(maxsize=1 << 15)
def linear_index(index: Dim, rank: int) -> tuple[Dim, tuple[Dim, ...]]:
    """(offset, steps): index == offset + sum(steps[k] * _k). ValueError if it is not linear in the axis variables."""
    steps: list[Dim] = []
    rest = index
    for k in range(rank):
        name = f"_{k}"
        zero = substitute(index, {n: 0 for n in names(index) if n.startswith("_") and n[1:].isdigit()})
        step = substitute(index, {n: int(n == name) for n in names(index) if n.startswith("_") and n[1:].isdigit()})
        steps.append(step - zero)
        rest = rest - (step - zero) * dim(name)
    if any(n.startswith("_") and n[1:].isdigit() for n in names(rest)):
        raise ValueError(f"index {index} is not linear in the axis variables")
    return rest, tuple(steps)


def element_strides(view: View, base: Param | Tile) -> tuple[Dim, tuple[Dim, ...]]:
    """(offset, strides) of a view in elements of its base: what a code generator needs of it."""
    rank = len(view.shape)
    if isinstance(base, Param):
        base_strides = base.element_strides()
    else:
        base_strides = tuple(product(base.shape[i + 1 :]) for i in range(len(base.shape)))
    offset: Dim = 0
    strides: list[Dim] = [0] * rank
    for index, stride in zip(view.index, base_strides, strict=True):
        start, steps = linear_index(index, rank)
        offset = offset + start * stride
        strides = [s + step * stride for s, step in zip(strides, steps, strict=True)]
    return offset, tuple(strides)
