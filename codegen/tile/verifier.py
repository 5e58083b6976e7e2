"""Decides if a tile program is well formed and safe on a target; what it accepts, native code runs without checks.

1. Every name is defined once and before its use; dtypes, ranks, extents and attributes fit the instruction.
2. Every access is proven to lie in its base, with dims, loop variables and axis variables anywhere in their ranges and
   with the conditions around the statement. Exceptions: TLOAD with `pad`, and the indices of TGATHER and TSCATTER,
   which the instruction checks when it runs.
3. `in` parameters are not written, `out` and `workspace` ones not read before the body has written them.
4. A destination is not written twice by one instruction and overlaps no source other than itself.
5. Two grid indices never touch the same element of a parameter if one writes it; TSCATTER without `reduce` is exempt,
   its author answers for the indices.
6. The target holds the tiles, and on a chip has the memory paths and engines.
7. What is proven of integers holds of the machine's: no value that is compared, divided or used as extent or index can
   leave 64 bits (`codegen.tile.arithmetic`). Where that depends on the dims, `verify` gives the bounds to be asked for
   when they are bound. Program dims and dims read from tensors are not negative, divisors are at least 1.
8. Verification and one launch stay within their budgets (`tensor_types.limits`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from codegen.targets.target import Target
from codegen.tile import chip_rules
from codegen.tile.arithmetic import LARGEST, Bounds, magnitude, parts, trips
from codegen.tile.grid_disjoint import Access, unseparated
from codegen.tile.instructions import INSTRUCTIONS
from codegen.tile.ir import ROLES, For, If, Imm, Instr, Param, Program, ReadDim, Stmt, Tile, View, linear_index, walk
from codegen.tile.operand_rules import Rules
from codegen.tile.scopes import narrow, with_axes
from codegen.tile.text import MAX_NESTING, MAX_STATEMENTS, statement_to_text
from tensor_types.dim_text import parse
from tensor_types.dims import Dim, Expr, dim, evaluate, names, product, substitute
from tensor_types.dtypes import DType
from tensor_types.effort import TooMuchWork, effort
from tensor_types.errors import OpenAtcError
from tensor_types.limits import VARIABLE, limit, shown
from tensor_types.proofs import Proofs, Range

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_AXIS = re.compile(r"_(\d+)")
_RESERVED = {"min", "max", "inf", "nan", "true", "false", "in", "body"}


class VerifyError(OpenAtcError):
    """The program is refused; `statement` is the text of what is at fault, `reason` says why."""

    default_code = "E17001"

    def __init__(self, program: str, statement: str, reason: str) -> None:
        super().__init__(reason, where={"kernel": program, "statement": statement})
        self.statement = statement
        self.reason = reason


def verify(program: Program, target: Target) -> Bounds:
    """Raises VerifyError unless the program is well formed and safe on the target, for dims within the bounds given."""
    verifier = _Verifier(program, target)
    steps = limit("verify_steps")
    try:
        with effort(steps):
            return verifier.run()
    except TooMuchWork as problem:
        reason = f"{problem.message}: its proofs need more than {shown(steps)} steps ({VARIABLE}=verify_steps=...)"
        raise VerifyError(program.name, verifier.at, reason) from None


@dataclass
class _Verifier:
    program: Program
    target: Target
    bases: dict[str, Param | Tile] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    """Every dim that is defined here, in order of definition."""
    written: set[str] = field(default_factory=set)
    accesses: dict[str, dict[object, Access]] = field(default_factory=dict)
    magnitudes: dict[str, Dim] = field(default_factory=dict)
    """What a name never exceeds, in dims of the program."""
    sized: dict[Dim, None] = field(default_factory=dict)
    """Magnitudes of everything that must fit the machine's integers."""
    launches: Dim = 1
    """How often the current statement runs, at most."""
    work: Dim = 0
    at: str = ""
    proven: set[object] = field(default_factory=set)
    """What has been proven here or further out: ranges only narrow on the way in, so it holds."""
    proofs: Proofs | None = None
    """Under the current ranges; None once they have changed."""

    def run(self) -> Bounds:
        self.declarations()
        self.at = "body"
        if sum(1 for _ in walk(self.program.body)) > MAX_STATEMENTS:
            raise self.error(f"more than {MAX_STATEMENTS} statements")
        with self.scope():
            self.body(self.program.body, 0)
        self.races()
        return self.bounds()

    def error(self, reason: str) -> VerifyError:
        return VerifyError(self.program.name, self.at, reason)

    def require(self, holds: bool, reason: str) -> None:
        if not holds:
            raise self.error(reason)

    def le(self, a: Dim, b: Dim) -> bool:
        if isinstance(a, int) and isinstance(b, int):
            return a <= b
        if (a, b) not in self.proven:
            self.proofs = self.proofs or Proofs(self.ranges)
            if not self.proofs.le(a, b):
                return False
            self.proven.add((a, b))
        return True

    def equal(self, a: Dim, b: Dim) -> bool:
        return a == b or (self.le(a, b) and self.le(b, a))

    # Names

    def declarations(self) -> None:
        program = self.program
        self.at = f"program {program.name}"
        self.require(bool(re.fullmatch(r"[a-z0-9_]+", program.name)), "a program's name is made of a-z, 0-9 and _")
        for param in program.dims:
            self.at = f"dim {param.name}"
            self.require(param.high is None or param.low <= param.high, "its range is empty")
            self.require(param.low >= 0, "a size is not negative")
            self.define(param.name, param.low, param.high)
            self.magnitudes[param.name] = dim(param.name)
            self.sized[dim(param.name)] = None
        for tensor in program.params:
            self.at = f"param {tensor.name}"
            self.fresh(tensor.name)
            self.require(tensor.role in ROLES, f"unknown role {tensor.role}")
            self.require(tensor.dtype.kind not in ("handle", "complex"), f"{tensor.dtype} has no tile instructions")
            for extent in (*tensor.shape, *(tensor.strides or ())):
                self.known(extent)
                self.require(self.le(0, extent), f"{extent} may be negative")
            self.require(tensor.strides is None or len(tensor.strides) == len(tensor.shape), "one stride per axis")
            self.bases[tensor.name] = tensor
        for tile in program.tiles:
            self.at = f"tile {tile.name}"
            self.fresh(tile.name)
            self.require(all(isinstance(n, int) and n > 0 for n in tile.shape), "extents are positive numbers")
            self.require(tile.depth >= 1, "depth is at least 1")
            self.require(tile.dtype.kind not in ("handle", "complex"), f"{tile.dtype} has no tile instructions")
            self.bases[tile.name] = tile
        if wrong := chip_rules.check_tiles(program.tiles, self.target):
            self.at = f"tile {wrong[0]}"
            raise self.error(wrong[1])
        constants = set(self.ranges)
        for var, extent in program.grid:
            self.at = f"grid {var} < {extent}"
            self.require(names(extent) <= constants, "a grid extent depends on the program's dims only")
            self.known(extent)
            self.require(self.le(0, extent), "the extent may be negative")
            self.define(var, 0, extent - 1)
            self.magnitudes[var] = magnitude(extent, self.magnitudes)
            self.launches = self.launches * trips(extent, self.magnitudes)

    def fresh(self, name: str) -> None:
        self.require(bool(_NAME.fullmatch(name)) and name not in _RESERVED, f"{name!r} is not a name")
        self.require(name not in self.bases and name not in self.ranges, f"{name} is defined already")

    def define(self, name: str, low: Dim, high: Dim | None) -> None:
        self.fresh(name)
        self.require(not _AXIS.fullmatch(name), f"{name} is an axis variable")
        self.require(".." not in name, f"{name} contains two dots")
        self.ranges[name] = (low, high)
        self.proofs = None

    def known(self, value: Dim, axes: tuple[Dim, ...] = ()) -> None:
        """Every dim in the value is defined, or the variable of one of these axes; divisors and size are right."""
        fact = ("known", value, axes)
        if fact in self.proven:
            return
        for name in sorted(names(value)):
            axis = _AXIS.fullmatch(name)
            fine = name in self.ranges if axis is None else name in map("_{}".format, range(len(axes)))
            self.require(fine, f"{name} is not defined")
        self.require(self.divisors(value), f"a divisor in {value} may be below 1")
        bounds = self.magnitudes
        if axes and not isinstance(value, int):
            bounds = {**bounds, **{f"_{k}": magnitude(n, bounds) for k, n in enumerate(axes)}}
        for part in parts(value):
            self.sized.setdefault(magnitude(part, bounds))
        self.proven.add(fact)

    def bounds(self) -> Bounds:
        """What is left to be asked when the dims are bound; VerifyError if no dims would do, or these ones do not."""
        self.at = f"program {self.program.name}"
        size: Dim = 0
        for part in self.sized:
            size = size + part
        work: Dim = self.work
        most = limit("launch_work")
        # A kernel that serves empty tensors alone serves nobody.
        lowest = {d.name: max(d.low, 1 if d.high is None else min(1, d.high)) for d in self.program.dims}
        if (least := evaluate(size, lowest)) > LARGEST:
            raise self.error(f"a size or index may reach {shown(least)}, beyond the integers of a machine")
        if (least := evaluate(work, lowest)) > most:
            reason = f"a launch may take {shown(least)} operations, at most {shown(most)} are allowed"
            raise self.error(f"{reason} ({VARIABLE}=launch_work=...)")
        try:
            parse(str(size)), parse(str(work))
        except ValueError:
            raise self.error("its sizes are too many to be bounded") from None
        highest = {d.name: d.high for d in self.program.dims if d.high is not None}
        if len(highest) == len(self.program.dims):
            # It grows with every dim, so the highest dims decide once for all; work is summed over a run.
            size = 0 if evaluate(size, highest) <= LARGEST else size
        return Bounds(size, work)

    def divisors(self, value: Dim) -> bool:
        if isinstance(value, int):
            return True
        atoms = [atom for monomial, _ in value.terms for atom in monomial]
        return all(
            all(map(self.divisors, atom.args)) and (atom.kind not in ("floordiv", "mod") or self.le(1, atom.args[1]))
            for atom in atoms
        )

    # Statements

    def body(self, stmts: tuple[Stmt, ...], depth: int) -> None:
        self.require(depth <= MAX_NESTING, f"statements nested deeper than {MAX_NESTING}")
        for stmt in stmts:
            self.at = statement_to_text(stmt)
            if isinstance(stmt, For):
                self.known(stmt.extent)
                self.require(self.le(0, stmt.extent), "the extent may be negative")
                with self.scope():
                    self.define(stmt.var, 0, stmt.extent - 1)
                    self.magnitudes[stmt.var] = magnitude(stmt.extent, self.magnitudes)
                    outside_launches = self.launches
                    self.launches = outside_launches * trips(stmt.extent, self.magnitudes)
                    self.work = self.work + self.launches
                    self.body(stmt.body, depth + 1)
                    self.launches = outside_launches
            elif isinstance(stmt, If):
                self.condition(stmt, depth)
            elif isinstance(stmt, ReadDim):
                self.require(not stmt.source.shape, "a dim is read from a view of rank 0")
                self.view(stmt.source)
                self.require(self.bases[stmt.source.base].dtype.is_integer, "a dim is read from integers")
                self.read(stmt.source)
                for end in (stmt.low, stmt.high):
                    self.known(end)
                self.require(self.le(0, stmt.low), "a size is not negative: its lowest value may be")
                self.define(stmt.var, stmt.low, stmt.high)
                self.magnitudes[stmt.var] = magnitude(stmt.high, self.magnitudes)
            else:
                self.instruction(stmt)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is defined and proven inside is forgotten behind it."""
        outside = self.ranges, self.proven, self.proofs
        self.ranges, self.proven, self.proofs = dict(self.ranges), set(self.proven), None
        yield
        self.ranges, self.proven, self.proofs = outside

    def condition(self, stmt: If, depth: int) -> None:
        self.known(stmt.left)
        self.known(stmt.right)
        self.require(stmt.relation in ("<", "<=", "=="), f"unknown relation {stmt.relation}")
        for arm, holds in ((stmt.then, True), (stmt.orelse, False)):
            with self.scope():
                narrow(self.ranges, stmt, holds)
                self.proofs = None
                self.body(arm, depth + 1)

    def instruction(self, instr: Instr) -> None:
        sources = [s for s in instr.srcs if isinstance(s, View)]
        for source in instr.srcs:
            if isinstance(source, Imm) and isinstance(source.value, Expr):
                own = {d.name for d in self.program.dims}
                self.require(names(source.value) <= own, "a size as a number depends on the program's dims only")
                self.known(source.value)
        padded = instr.op == "TLOAD" and instr.attr("pad") is not None
        for view in sources:
            self.view(view, bounded=not padded)
        reduced = instr.attr("axes", ())
        # A reduced axis has one element in dst, whatever the extent.
        self.view(instr.dst)
        if reason := Rules(self.dtype, self.equal).check(instr):
            raise self.error(reason)
        if reason := chip_rules.check_instruction(instr, self.bases, self.target):
            raise self.error(reason)
        if INSTRUCTIONS[instr.op].kind in ("sync", "hint"):
            return
        self.count(instr, sources)
        for view in sources:
            self.read(view)
        if instr.op == "TMATMUL_ACC" or instr.attr("acc") or instr.attr("reduce", "none") != "none":
            self.read(instr.dst)
        assert isinstance(reduced, tuple)
        self.write(instr, frozenset(reduced))
        in_place = INSTRUCTIONS[instr.op].kind in ("elementwise", "scan", "move")
        for view in sources:
            if view.base == instr.dst.base and not (in_place and _without_units(view) == _without_units(instr.dst)):
                self.require(self.apart(view, instr.dst), f"the destination overlaps the source {view.base}")

    def count(self, instr: Instr, sources: list[View]) -> None:
        """Adds the operations of an instruction: one for each element of its largest view, or product of a matmul."""
        shapes = [view.shape for view in (instr.dst, *sources)]
        if INSTRUCTIONS[instr.op].kind == "matmul":
            shapes = [(*sources[0].shape, sources[1].shape[-1])]
        counts = dict.fromkeys(product(trips(n, self.magnitudes) for n in shape) for shape in shapes)
        for elements in counts:
            self.work = self.work + self.launches * elements

    def dtype(self, base: str) -> DType:
        return self.bases[base].dtype

    # Views

    def view(self, view: View, bounded: bool = True) -> None:
        base = self.bases.get(view.base)
        if base is None:
            raise self.error(f"{view.base} is not defined")
        self.require(len(view.index) == len(base.shape), f"{view.base} has rank {len(base.shape)}")
        rank = len(view.shape)
        for extent in view.shape:
            self.known(extent)
            self.require(self.le(0, extent), f"extent {extent} of {view.base} may be negative")
        for index in view.index:
            self.known(index, view.shape)
            try:
                linear_index(index, rank)
            except ValueError as problem:
                raise self.error(str(problem)) from None
        if not bounded:
            return
        proofs = None
        for axis, (index, size) in enumerate(zip(view.index, base.shape, strict=True)):
            fact = ("inside", index, size, view.shape)
            if fact in self.proven:
                continue
            proofs = proofs or Proofs(with_axes(self.ranges, view))
            if not proofs.le(0, index):
                raise self.error(f"axis {axis} of {view.base}: {index} may be negative")
            if not proofs.le(index, size - 1):
                raise self.error(f"axis {axis} of {view.base}: {index} may reach beyond {size}")
            self.proven.add(fact)

    def read(self, view: View) -> None:
        base = self.bases[view.base]
        if isinstance(base, Param):
            if base.role in ("out", "workspace"):
                self.require(
                    view.base in self.written, f"{base.role} parameter {base.name} is read before it is written"
                )
            if base.role != "in":
                self.access(view, False)

    def write(self, instr: Instr, reduced: frozenset[int]) -> None:
        view, base = instr.dst, self.bases[instr.dst.base]
        if isinstance(base, Param):
            self.require(base.role != "in", f"{base.name} is an input and is written")
            self.written.add(base.name)
            if instr.op != "TSCATTER" or instr.attr("reduce", "none") != "none":
                self.access(view, True)
        self.require(self.injective(view, reduced), f"the destination {view.base} may hold one element twice")

    def access(self, view: View, writes: bool) -> None:
        ranges = with_axes(self.ranges, view)
        key = (view.index, writes, frozenset(ranges.items()))
        self.accesses.setdefault(view.base, {}).setdefault(key, Access(view.index, ranges, writes))

    def injective(self, view: View, free: frozenset[int]) -> bool:
        """True if different axis values give different elements; axes in `free` and of extent 1 do not count."""
        rank = len(view.shape)
        needed = {k for k, n in enumerate(view.shape) if k not in free and not (isinstance(n, int) and n <= 1)}
        for index in view.index:
            steps = {k: s for k, s in enumerate(linear_index(index, rank)[1]) if s != 0 and k not in free}
            span: Dim = 0
            # Mixed radix: each step exceeds what the smaller ones span together.
            sizes = {k: abs(s) if isinstance(s, int) else s for k, s in steps.items()}
            for k, size in sorted(sizes.items(), key=lambda item: (isinstance(item[1], Expr), str(item[1]).zfill(20))):
                if not self.le(span + 1, size):
                    break
                span = span + size * (view.shape[k] - 1)
            else:
                needed -= set(steps)
        return all(self.le(view.shape[k], 1) for k in needed)

    def apart(self, a: View, b: View) -> bool:
        """True if the views of one base share no element: on some axis one lies wholly before the other."""
        renamed: dict[str, Dim] = {f"_{k}": dim(f"_{k}..2") for k in range(len(b.shape))}
        ranges = with_axes(self.ranges, a)
        ranges.update({f"_{k}..2": (0, extent - 1) for k, extent in enumerate(b.shape)})
        proofs = Proofs(ranges)
        for left, right in zip(a.index, (substitute(i, renamed) for i in b.index), strict=True):
            if proofs.le(left + 1, right) or proofs.le(right + 1, left):
                return True
        return False

    def races(self) -> None:
        constants = frozenset(d.name for d in self.program.dims)
        for name, accesses in self.accesses.items():
            found = list(accesses.values())
            if not any(a.writes for a in found):
                continue
            self.at = f"param {name}"
            if open_ := unseparated(found, self.program.grid, constants):
                raise self.error(f"grid indices that differ in {', '.join(open_)} may write the same element")


def _without_units(view: View) -> View:
    """The view with axis variables of extent 1, which are always 0, left out."""
    return view.substitute({f"_{k}": 0 for k, extent in enumerate(view.shape) if extent == 1})
