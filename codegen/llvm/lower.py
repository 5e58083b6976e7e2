"""Tile program to LLVM module text: the function around the body, control flow, and the units of each straight run.

Kernel ABI: `i64 @k_<digest>(ptr args, ptr dims, i64 begin, i64 end, ptr scratch)`. `args` holds the address of each
parameter and `dims` the value of each dim, in the program's order; grid indices begin..end-1 are run; `scratch` is
private to the thread, 64-byte aligned and `scratch_bytes` long. The result is 0, or `code | index << 8` of the check
that failed; a kernel never traps.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache

from codegen.llvm.alias import resolve_aliases
from codegen.llvm.bounds_checks import Checks, Range
from codegen.llvm.checks import require
from codegen.llvm.conversions import convert
from codegen.llvm.dims_ssa import DimValues
from codegen.llvm.indexed import emit_indexed
from codegen.llvm.kernel_image import param_bytes
from codegen.llvm.liveness import row_layouts, tiles_in_memory
from codegen.llvm.loop_nests import LoopNest, Unit
from codegen.llvm.matmul import emit_product
from codegen.llvm.nest_builder import NestBuilder
from codegen.llvm.nest_code import NestCode
from codegen.llvm.padded_load import emit_padded_load
from codegen.llvm.prefetch import emit_prefetch
from codegen.llvm.scan import emit_scan
from codegen.llvm.storage import Storage
from codegen.llvm.text import Function, module_text
from codegen.llvm.vector_code import VectorCode
from codegen.llvm.vector_memory import load_vector
from codegen.targets.hosts import HostClass, host_class
from codegen.tile.instructions import INSTRUCTIONS, STATUS_RANGE
from codegen.tile.ir import For, If, Instr, Program, ReadDim, Stmt, View
from codegen.tile.text import program_to_text
from tensor_types.dtypes import I64


@dataclass
class Loop:
    """A sequential loop over nodes."""

    stmt: For
    body: list[Node]


@dataclass
class Branch:
    """A choice between two lists of nodes."""

    stmt: If
    then: list[Node]
    orelse: list[Node]


Node = Unit | Loop | Branch | ReadDim


def symbol_name(program: Program) -> str:
    """The exported function's name: `k_` and 16 hex digits of the serialised program's digest."""
    return "k_" + hashlib.sha256(program_to_text(program).encode()).hexdigest()[:16]


def schedule(body: tuple[Stmt, ...]) -> list[Node]:
    """The body with its straight runs partitioned into units."""
    nodes: list[Node] = []
    builder = NestBuilder()
    for stmt in body:
        if isinstance(stmt, Instr):
            builder.add(stmt)
            continue
        nodes += builder.units()
        builder = NestBuilder()
        if isinstance(stmt, For):
            nodes.append(Loop(stmt, schedule(stmt.body)))
        elif isinstance(stmt, If):
            nodes.append(Branch(stmt, schedule(stmt.then), schedule(stmt.orelse)))
        else:
            nodes.append(stmt)
    return nodes + builder.units()


@dataclass
class Units:
    """All units in program order, the numbers of those inside loops, and the views that other nodes read."""

    units: list[Unit] = field(default_factory=list)
    repeated: set[int] = field(default_factory=set)
    views: list[View] = field(default_factory=list)

    def add(self, nodes: list[Node], repeated: bool = False) -> None:
        """Appends what nodes hold."""
        for node in nodes:
            if isinstance(node, ReadDim):
                self.views.append(node.source)
            elif isinstance(node, Loop):
                self.add(node.body, True)
            elif isinstance(node, Branch):
                self.add(node.then, repeated)
                self.add(node.orelse, repeated)
            else:
                if repeated:
                    self.repeated.add(len(self.units))
                self.units.append(node)


class Lowering:
    """Emits one program for one host class."""

    def __init__(self, program: Program, host: HostClass, checked: bool = False) -> None:
        """`checked`: the text asks of every access whether it stays within its base (`bounds_checks`)."""
        self.checked = checked
        self.ranges: dict[str, Range] = {}
        self.program = resolve_aliases(program)
        self.fn = Function(
            symbol_name(program), ["ptr %args", "ptr %dims", "i64 %begin", "i64 %end", "ptr %scratch"],
            attributes="nounwind",
        )  # fmt: skip
        self.code = VectorCode(self.fn, host)
        self.dims = DimValues(self.fn)

    def run(self) -> None:
        """Emits the function."""
        fn, program = self.fn, self.program
        pointers = {}
        for number, param in enumerate(program.params):
            pointers[param.name] = fn.load("ptr", fn.offset("%args", number, "ptr"), 8)
        for number, dim in enumerate(program.dims):
            value = dim.low if dim.low == dim.high else fn.load("i64", fn.offset("%dims", number, "i64"), 8)
            self.dims.bind(dim.name, value)
        if self.checked:
            for param in program.params:
                low = pointers[param.name]
                high = fn.offset(low, self.dims.value(param_bytes(param)), "i8")
                self.ranges[low] = Range(low, high, param.role == "in")
        self.storage = Storage(fn, self.dims, program, pointers, "%scratch")
        nodes = schedule(program.body)
        found = Units()
        found.add(nodes)
        tiles = {t.name for t in program.tiles}
        self.storage.resident = tiles_in_memory(found.units, found.views) & tiles
        rows = row_layouts(found.units, found.views, found.repeated)
        self.storage.rows = {base: layout for base, layout in rows.items() if base in self.storage.resident}
        extents = [self.dims.value(extent) for _, extent in program.grid]
        with fn.loop("%end", 1, "%begin") as flat, self.dims.scope():
            rest = flat
            for (name, _), extent in zip(reversed(program.grid[1:]), reversed(extents[1:]), strict=True):
                outer = fn.floordiv(rest, extent)
                self.dims.bind(name, fn.sub(rest, fn.mul(outer, extent)))
                rest = outer
            if program.grid:
                self.dims.bind(program.grid[0][0], rest)
            self._nodes(nodes)
        fn.do("ret i64 0")

    def text(self) -> str:
        """The module, once it has run."""
        if self.checked:
            storage = self.storage
            return Checks(self.fn, self.ranges, storage.allocations(), storage.scratch_bytes).text()
        return module_text([self.fn])

    def _nodes(self, nodes: list[Node]) -> None:
        for node in nodes:
            if isinstance(node, LoopNest):
                self._nest(node)
            elif isinstance(node, Instr):
                self._instruction(node)
            elif isinstance(node, ReadDim):
                self._read_dim(node)
            elif isinstance(node, Loop):
                extent = self.dims.value(node.stmt.extent)
                with self.fn.loop(extent) as index, self.dims.scope():
                    self.dims.bind(node.stmt.var, index)
                    self._nodes(node.body)
            else:
                self._branch(node)

    def _nest(self, nest: LoopNest) -> None:
        if nest.head is not None:
            with self.dims.scope():
                emit_product(self.code, self.storage, nest)
        else:
            # What is computed inside its loops does not dominate what follows.
            with self.dims.scope():
                NestCode(self.code, self.storage, nest).emit()

    def _instruction(self, instr: Instr) -> None:
        kind = INSTRUCTIONS[instr.op].kind
        with self.dims.scope():
            if kind == "move":
                emit_padded_load(self.code, self.storage, instr)
            elif kind == "hint":
                emit_prefetch(self.code, self.storage, instr)
            elif kind == "scan":
                emit_scan(self.code, self.storage, instr)
            else:
                emit_indexed(self.code, self.storage, instr)

    def _read_dim(self, node: ReadDim) -> None:
        fn, code = self.fn, self.code
        access = self.storage.view_access(node.source)
        value = convert(code, load_vector(code, access.pointer, access.dtype, 0, 1), I64)
        number = code.extract(value, 0)
        low = fn.emit(f"icmp sge i64 {number}, {self.dims.value(node.low)}")
        high = fn.emit(f"icmp sle i64 {number}, {self.dims.value(node.high)}")
        require(fn, fn.emit(f"and i1 {low}, {high}"), STATUS_RANGE, number)
        self.dims.bind(node.var, number)

    def _branch(self, node: Branch) -> None:
        fn, stmt = self.fn, node.stmt
        left, right = self.dims.value(stmt.left), self.dims.value(stmt.right)
        predicate = {"<": "slt", "<=": "sle", "==": "eq"}[stmt.relation]
        condition = fn.emit(f"icmp {predicate} i64 {left}, {right}")

        def side(nodes: list[Node]) -> None:
            with self.dims.scope():
                self._nodes(nodes)

        orelse = (lambda: side(node.orelse)) if node.orelse else None
        fn.when(condition, lambda: side(node.then), orelse)


def lowering(program: Program, target: object, checked: bool = False) -> Lowering:
    """The lowering of a verified program for a host class (a `Target` or its name): its text and its scratch memory
    come from the same run. `checked` as in `Lowering`."""
    return _lowered(program, host_class(target), checked)


@lru_cache(maxsize=8)
def _lowered(program: Program, host: HostClass, checked: bool) -> Lowering:
    done = Lowering(program, host, checked)
    done.run()
    return done


def lower(program: Program, target: object) -> str:
    """LLVM module text of a verified program for a host class (a `Target` or its name)."""
    return lowering(program, target).text()


def scratch_bytes(program: Program, target: object) -> int:
    """Bytes of scratch memory that one thread needs to run the program's kernel."""
    return lowering(program, target).storage.scratch_bytes
