"""Evaluates instructions on a block: a few rows of an outer class and a few vectors along the vector class.

Operands come from registers or are loaded once per block; results stay in registers until the block's end, where those
that memory must hold are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen.llvm.access import Access, Point
from codegen.llvm.crossing import load_block, store_block
from codegen.llvm.loop_nests import Member
from codegen.llvm.reductions import Reduction
from codegen.llvm.storage import Storage
from codegen.llvm.text import Value
from codegen.llvm.vector_code import Vec, VectorCode
from codegen.llvm.vector_memory import load_vector, store_vector
from codegen.llvm.vector_ops import evaluate, source_dtype
from codegen.llvm.windows import Window
from codegen.tile.ir import Imm
from tensor_types.dims import Expr
from tensor_types.dtypes import BOOL, F32, F64, I64, DType


@dataclass(frozen=True)
class Block:
    """Where evaluation stands: accesses at the current indices, the points around them, lanes and mask."""

    accesses: Mapping[Window, Access]
    points: tuple[Point, ...]
    lanes: int
    mask: Vec | None
    vector_loop: int | None
    """The class whose elements lie in the lanes; None while values are single elements."""
    known: Mapping[tuple[Window, Point], Vec]
    """Values in registers from earlier phases, and operands loaded ahead of the loop."""
    indices: Mapping[int, Value]
    """Current index of each class; the points' offsets come on top."""


class Evaluator:
    """Evaluates a phase's instructions on blocks."""

    def __init__(self, code: VectorCode, storage: Storage, written: frozenset[str]) -> None:
        self.code = code
        self.storage = storage
        self.written = written
        """Bases that the loop nest writes; what is loaded from others is the same wherever it is needed again."""

    def operand(self, block: Block, values: dict[tuple[Window, Point], Vec], key: Window, at: Point) -> Vec:
        """The value of a window at a point: from registers, or loaded once per block."""
        loops = key.loops()
        own = tuple((c, o) for c, o in at if c in loops)
        for known in (values, block.known):
            if (key, own) in known:
                return known[(key, own)]
        place = (key, own)
        if key.base not in self.written:
            # The same element under another window and point: taps of neighbouring outputs share their inputs.
            place = (key.shifted(dict(own)), ())
            if place in values:
                return values[place]
        access = block.accesses[key]
        step = access.lane_step(block.vector_loop) if block.vector_loop is not None else 0
        lanes, mask = (1, None) if block.vector_loop is None else (block.lanes, block.mask)
        if step not in (0, 1) and mask is None and block.vector_loop is not None:
            turned = load_block(self.code, access, block.points, block.vector_loop, lanes, loops)
            if turned is not None:
                values.update({(key, p): v for p, v in turned.items()})
                return values[(key, own)]
        value = load_vector(self.code, access.address(self.code.fn, own), access.dtype, step, lanes, mask)
        values[place] = value
        return value

    def run(self, members: Sequence[Member], block: Block, values: dict[tuple[Window, Point], Vec],
            slots: dict[tuple[int, Point], list[Vec]] | None = None) -> None:  # fmt: skip
        """Evaluates members on all points; results go to `values`, reductions into `slots`."""
        products = self._products(members)
        for number, member in enumerate(members):
            instr = member.step.instr
            dtype = self.storage.dtype(member.dst.base)
            if member.dst in products:
                continue
            for at in block.points:
                if member.step.kind == "reduce":
                    assert slots is not None
                    source = products.get(member.srcs[0], member)
                    operands = self._operands(block, values, source, at, dtype)
                    self._accumulate(block, member, number, at, operands, slots)
                    continue
                operands = self._operands(block, values, member, at, dtype)
                own = tuple((c, o) for c, o in at if c in member.dst.loops())
                values[(member.dst, own)] = evaluate(self.code, instr, operands, dtype)

    def _products(self, members: Sequence[Member]) -> dict[Window | Imm, Member]:
        """Products that only one sum takes: they are added with one rounding and have no value of their own."""
        found: dict[Window | Imm, Member] = {}
        for i, sum_ in enumerate(members):
            if sum_.step.instr.op != "TROWSUM" or not sum_.reduced:
                continue
            key = sum_.srcs[0]
            assert isinstance(key, Window)
            writers = [j for j, m in enumerate(members) if m.dst.base == key.base]
            readers = [j for j, m in enumerate(members) if any(r.base == key.base for r in m.reads())]
            if len(writers) != 1 or readers != [i] or self.storage.in_memory(key.base):
                continue
            product = members[writers[0]]
            inputs = {s.base for s in product.srcs if isinstance(s, Window)}
            later = {m.dst.base for m in members[writers[0] + 1 : i]}
            if product.dst == key and product.step.instr.op == "TMUL" and not inputs & later:
                if self.storage.dtype(key.base) in (F32, F64):
                    found[key] = product
        return found

    def _operands(self, block: Block, values: dict[tuple[Window, Point], Vec], member: Member, at: Point,
                  dtype: DType) -> list[Vec]:  # fmt: skip
        instr = member.step.instr
        views = [self.storage.dtype(s.base) for s in member.srcs if isinstance(s, Window)]
        common = source_dtype(instr, views, dtype)
        result = []
        for position, source in enumerate(member.srcs):
            if isinstance(source, Imm):
                wanted = BOOL if instr.op == "TSEL" and position == 0 else common
                result.append(self._immediate(source, wanted))
            else:
                result.append(self.operand(block, values, source, at))
        return result

    def _immediate(self, number: Imm, dtype: DType) -> Vec:
        if not isinstance(number.value, Expr):
            return self.code.const(number.value, dtype, 1)
        return self.code.scalar(self.storage.dims.value(number.value), dtype)

    def _accumulate(self, block: Block, member: Member, number: int, at: Point, operands: list[Vec],
                    slots: dict[tuple[int, Point], list[Vec]]) -> None:  # fmt: skip
        code = self.code
        reduction = Reduction.of(member.step.instr, self.storage.dtype(member.step.instr.srcs[0].base))  # type: ignore[union-attr]
        elements = [code.broadcast(a, block.lanes) for a in operands]
        index = None
        held = slots[(number, at)]
        lanes = held[0].lanes
        if reduction.finds_index:
            (loop,) = member.reduced or (None,)
            index = self._index_vector(block, loop, at) if loop is not None else code.const(0, I64, block.lanes)
        if block.lanes != lanes:
            mask: Vec | None = code.lane_mask(block.lanes, lanes)
            elements = [code.widen(a, code.const(0, a.dtype, lanes)) for a in elements]
            index = None if index is None else code.widen(index, code.const(0, I64, lanes))
        else:
            mask = block.mask if block.vector_loop in member.reduced else None
        slots[(number, at)] = reduction.take(code, held, elements, index, mask)

    def _index_vector(self, block: Block, loop: int, at: Point) -> Vec:
        code = self.code
        start = code.fn.add(block.indices.get(loop, 0), dict(at).get(loop, 0))
        if isinstance(start, int):
            base = code.const(start, I64, block.lanes)
        else:
            base = code.broadcast(code.from_scalar(start, I64), block.lanes)
        if loop != block.vector_loop:
            return base
        numbers = "<" + ", ".join(f"i64 {i}" for i in range(block.lanes)) + ">"
        return code.op("add", base, Vec(numbers, I64, block.lanes))

    def store(self, members: Sequence[Member], block: Block, values: dict[tuple[Window, Point], Vec]) -> None:
        """Writes the results that memory must hold, last values only."""
        written: dict[Window, Member] = {}
        for member in members:
            if member.step.kind != "reduce" and self.storage.in_memory(member.dst.base):
                written[member.dst] = member
        for key in written:
            places = sorted({tuple((c, o) for c, o in p if c in key.loops()) for p in block.points})
            if not self._store_turned(block, key, places, values):
                for at in places:
                    self.store_value(block, key, at, values[(key, at)])

    def _store_turned(
        self, block: Block, key: Window, places: list[Point], values: dict[tuple[Window, Point], Vec]
    ) -> bool:
        access, vector = block.accesses[key], block.vector_loop
        if block.mask is not None or vector is None or access.lane_step(vector) in (0, 1):
            return False
        return store_block(
            self.code,
            access,
            {p: self.code.broadcast(values[(key, p)], block.lanes) for p in places},
            vector,
            block.lanes,
        )

    def store_value(self, block: Block, key: Window, at: Point, value: Vec) -> None:
        """Writes one value to its window."""
        access = block.accesses[key]
        vector = block.vector_loop is not None and block.vector_loop in key.loops()
        lanes, mask = (block.lanes, block.mask) if vector else (1, None)
        step = access.lane_step(block.vector_loop) if vector and block.vector_loop is not None else 1
        value = self.code.broadcast(value, lanes)
        store_vector(self.code, value, access.address(self.code.fn, at), step, mask)
