"""The loop nest of a region: outer loops, then per phase inner loops over blocks of vectors.

One loop class is the vector class. A *block* is a set of points around the current indices: a few rows of an outer
class, a few vectors along the vector class. Instructions are evaluated for all points of a block on registers; values
that a later phase needs stay in registers if they belong to outer indices only, else they go to the tile's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from codegen.llvm.access import Access, Point, point
from codegen.llvm.crossing import (
    MOST_SQUARE,
    interleaved_class,
    load_block,
    square_class,
    store_block,
)
from codegen.llvm.liveness import forget_overwritten
from codegen.llvm.loops import Chunk, carried, over_rows, over_vectors
from codegen.llvm.reductions import Reduction
from codegen.llvm.regions import Member, Phase, Region
from codegen.llvm.storage import Storage
from codegen.llvm.text import Value
from codegen.llvm.vector_code import Vec, VectorCode
from codegen.llvm.vector_memory import load_vector, store_vector
from codegen.llvm.vector_ops import MOVES, evaluate, source_dtype
from codegen.llvm.windows import Window
from codegen.tile.ir import Imm
from tensor_types.dims import Dim
from tensor_types.dtypes import BOOL, I64, U8, U16, U32, U64, DType

_COSTLY = {"TEXP", "TEXP2", "TLOG", "TTANH", "TSIGMOID", "TERF", "TSIN", "TCOS", "TPOW"}
_RAW = {8: U8, 16: U16, 32: U32, 64: U64}


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

    def __init__(self, code: VectorCode, storage: Storage) -> None:
        self.code = code
        self.storage = storage

    def operand(self, block: Block, values: dict[tuple[Window, Point], Vec], key: Window, at: Point) -> Vec:
        """The value of a window at a point: from registers, or loaded once per block."""
        loops = key.loops()
        own = tuple((c, o) for c, o in at if c in loops)
        for known in (values, block.known):
            if (key, own) in known:
                return known[(key, own)]
        access = block.accesses[key]
        step = access.lane_step(block.vector_loop) if block.vector_loop is not None else 0
        lanes, mask = (1, None) if block.vector_loop is None else (block.lanes, block.mask)
        if step not in (0, 1) and mask is None and block.vector_loop is not None:
            turned = load_block(self.code, access, block.points, block.vector_loop, lanes, loops)
            if turned is not None:
                values.update({(key, p): v for p, v in turned.items()})
                return values[(key, own)]
        value = load_vector(self.code, access.address(self.code.fn, own), access.dtype, step, lanes, mask)
        values[(key, own)] = value
        return value

    def run(self, members: Sequence[Member], block: Block, values: dict[tuple[Window, Point], Vec],
            slots: dict[tuple[int, Point], list[Vec]] | None = None) -> None:  # fmt: skip
        """Evaluates members on all points; results go to `values`, reductions into `slots`."""
        for number, member in enumerate(members):
            instr = member.step.instr
            dtype = self.storage.dtype(member.dst.base)
            for at in block.points:
                operands = self._operands(block, values, member, at, dtype)
                if member.step.kind == "reduce":
                    assert slots is not None
                    self._accumulate(block, member, number, at, operands[0], slots)
                    continue
                own = tuple((c, o) for c, o in at if c in member.dst.loops())
                values[(member.dst, own)] = evaluate(self.code, instr, operands, dtype)

    def _operands(self, block: Block, values: dict[tuple[Window, Point], Vec], member: Member, at: Point,
                  dtype: DType) -> list[Vec]:  # fmt: skip
        instr = member.step.instr
        views = [self.storage.dtype(s.base) for s in member.srcs if isinstance(s, Window)]
        common = source_dtype(instr, views, dtype)
        result = []
        for position, source in enumerate(member.srcs):
            if isinstance(source, Imm):
                wanted = BOOL if instr.op == "TSEL" and position == 0 else common
                result.append(self.code.const(source.value, wanted, 1))
            else:
                result.append(self.operand(block, values, source, at))
        return result

    def _accumulate(self, block: Block, member: Member, number: int, at: Point, element: Vec,
                    slots: dict[tuple[int, Point], list[Vec]]) -> None:  # fmt: skip
        code = self.code
        reduction = Reduction.of(member.step.instr, self.storage.dtype(member.step.instr.srcs[0].base))  # type: ignore[union-attr]
        element = code.broadcast(element, block.lanes)
        index = None
        held = slots[(number, at)]
        lanes = held[0].lanes
        if reduction.finds_index:
            (loop,) = member.reduced or (None,)
            index = self._index_vector(block, loop, at) if loop is not None else code.const(0, I64, block.lanes)
        if element.lanes != lanes:
            mask = code.lane_mask(element.lanes, lanes)
            element = code.widen(element, code.const(0, element.dtype, lanes))
            index = None if index is None else code.widen(index, code.const(0, I64, lanes))
        else:
            mask = block.mask if block.vector_loop in member.reduced else None
        slots[(number, at)] = reduction.take(code, held, element, index, mask)

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


class RegionCode:
    """Emits one region."""

    def __init__(self, code: VectorCode, storage: Storage, region: Region) -> None:
        self.code = code
        self.fn = code.fn
        self.storage = storage
        self.region = region
        self.evaluator = Evaluator(code, storage)
        self.keys = _keys(region)
        self.raw = _raw_move(region, storage)
        self.lengths: dict[int, Value] = {}
        self.extents = merged_extents(region, storage, self.keys)
        self.plan = LoopPlan(code, storage, region, self.keys, self.extents)

    def emit(self) -> None:
        """The whole nest."""
        plan = self.plan
        accesses = {}
        for key in self.keys:
            if key.base in self.storage.rows and self.storage.in_memory(key.base):
                access = self.storage.row_access(key, plan.block_extents(), plan.vector_outer)
            else:
                access = self.storage.access(key)
            accesses[key] = access if self.raw is None else replace(access, dtype=self.raw)
        # Extents are computed here, where they dominate every loop.
        self.lengths = {c: self.storage.dims.value(extent) for c, extent in sorted(self.extents.items())}
        merged = {c: 0 for c in self.region.extents if c not in self.extents}
        block = Block(accesses, ((),), 1, None, None, {}, merged)
        self._outer(list(plan.scalar_outer), block)

    def _advance(self, block: Block, loop: int, index: Value) -> Block:
        accesses = {k: a.advanced(self.fn, loop, index) for k, a in block.accesses.items()}
        return replace(block, accesses=accesses, indices={**block.indices, loop: index})

    def _extent(self, loop: int) -> Value:
        return self.lengths[loop]

    def _outer(self, loops: list[int], block: Block) -> None:
        plan = self.plan
        if loops:
            loop = loops[0]
            rows = plan.rows if loop == plan.row_loop else 1

            def body(index: Value, count: int) -> None:
                inner = self._advance(block, loop, index)
                points = tuple(point({**dict(p), loop: r}) for p in block.points for r in range(count))
                self._outer(loops[1:], replace(inner, points=points))

            over_rows(self.code, self._extent(loop), rows, body)
            return
        if plan.vector_outer is None:
            self._phases(block)
            return
        loop = plan.vector_outer
        ready = self._preload(self.region.members(), block, loop, {})

        def chunk(c: Chunk, held: list[Vec]) -> list[Vec]:
            self._phases(self._at_chunk(ready, loop, c))
            return held

        over_vectors(self.code, self._extent(loop), plan.lanes, plan.unroll, [], chunk)

    def _at_chunk(self, block: Block, loop: int, c: Chunk) -> Block:
        inner = self._advance(block, loop, c.start)
        points = tuple(point({**dict(p), loop: u * c.lanes}) for p in block.points for u in range(c.count))
        return replace(inner, points=points, lanes=c.lanes, mask=c.mask, vector_loop=loop)

    def _preload(self, members: Sequence[Member], block: Block, loop: int | None,
                 values: dict[tuple[Window, Point], Vec]) -> Block:  # fmt: skip
        """Loads operands that the coming vector loop does not move along, so that it need not."""
        known = dict(block.known)
        written = {m.dst.base for m in self.region.members()}
        for member in members:
            for key in member.reads():
                if key.base in written or (loop is not None and loop in key.loops()):
                    continue
                if not key.loops() <= set(block.indices):
                    continue
                for at in block.points:
                    own = tuple((c, o) for c, o in at if c in key.loops())
                    if (key, own) not in known:
                        access = block.accesses[key]
                        address = access.address(self.fn, own)
                        known[(key, own)] = load_vector(self.code, address, access.dtype, 0, 1)
        return replace(block, known=known)

    def _phases(self, block: Block) -> None:
        known = dict(block.known)
        for phase in self.region.phases:
            result = self._phase(phase, replace(block, known=known))
            stale = {k for m in phase.members for k in forget_overwritten([w for w, _ in known], m.dst)}
            known = {k: v for k, v in known.items() if k[0] not in stale}
            known.update(result)

    def _phase(self, phase: Phase, block: Block) -> dict[tuple[Window, Point], Vec]:
        """Emits a phase; gives the values that belong to outer indices only."""
        inner = [c for c in sorted(phase.loops) if c not in self.region.outer and c in self.extents]
        vector = self.plan.vector_of(phase)
        kept = [c for c in inner if c not in phase.reduced and c != vector]
        result: dict[tuple[Window, Point], Vec] = {}
        self._kept(phase, kept, vector, block, result)
        return result

    def _kept(self, phase: Phase, kept: list[int], vector: int | None, block: Block,
              result: dict[tuple[Window, Point], Vec]) -> None:  # fmt: skip
        if kept:
            loop = kept[0]
            rows = self.plan.rows if loop == self.plan.row_loop else 1

            def body(index: Value, count: int) -> None:
                inner = self._advance(block, loop, index)
                points = tuple(point({**dict(p), loop: r}) for p in block.points for r in range(count))
                self._kept(phase, kept[1:], vector, replace(inner, points=points), result)

            over_rows(self.code, self._extent(loop), rows, body)
            return
        reduced = [c for c in sorted(phase.reduced) if c != vector and c in self.extents]
        if vector is None:
            self._reduced(phase, reduced, None, block, result)
            return
        if vector in phase.reduced:
            self._reduced(phase, reduced, vector, block, result)
            return
        ready = self._preload(phase.members, block, vector, {})

        def chunk(c: Chunk, held: list[Vec]) -> list[Vec]:
            self._reduced(phase, reduced, None, self._at_chunk(ready, vector, c), result)
            return held

        over_vectors(self.code, self._extent(vector), self.plan.lanes_of(phase), self.plan.unroll_of(phase), [], chunk)

    def _reduced(self, phase: Phase, loops: list[int], vector: int | None, block: Block,
                 result: dict[tuple[Window, Point], Vec]) -> None:  # fmt: skip
        """Runs the reduced loops around the evaluation of blocks, accumulators carried."""
        members = phase.members
        reductions = {
            i: Reduction.of(m.step.instr, self.storage.dtype(m.step.instr.srcs[0].base))  # type: ignore[union-attr]
            for i, m in enumerate(members) if m.step.kind == "reduce"
        }  # fmt: skip
        if not reductions:
            values: dict[tuple[Window, Point], Vec] = {}
            self._evaluate(members, block, values, None)
            self._keep(members, values, result)
            return
        lanes, copies = (block.lanes, 1)
        if vector is not None:
            lanes, copies = self.plan.lanes_of(phase), self.plan.unroll_of(phase)
        slot_points = {
            (i, point({**dict(at), **({vector: u * lanes} if vector is not None else {})}))
            for i in reductions for at in block.points for u in range(copies)
        }  # fmt: skip
        order = sorted(slot_points)
        held = [v for i, _ in order for v in reductions[i].neutral(self.code, lanes)]
        if phase.loops <= set(self.region.outer):
            # Reductions over axes of extent 1: other results of the phase belong to outer indices too.
            values = {}
            held = self._step(phase, block, order, reductions, held, values)
            self._keep(members, values, result)
        else:
            held = self._around(phase, loops, vector, block, order, reductions, held)
        slots = _unflatten(order, reductions, held)
        for i, reduction in reductions.items():
            member = members[i]
            for at in block.points:
                total: list[Vec] | None = None
                for u in range(copies):
                    mine = slots[(i, point({**dict(at), **({vector: u * lanes} if vector is not None else {})}))]
                    total = mine if total is None else reduction.merge(self.code, total, mine)
                assert total is not None
                if vector is not None:
                    total = reduction.horizontal(self.code, total)
                self._finish(member, reduction, block, at, total, result)

    def _finish(self, member: Member, reduction: Reduction, block: Block, at: Point, total: list[Vec],
                result: dict[tuple[Window, Point], Vec]) -> None:  # fmt: skip
        own = tuple((c, o) for c, o in at if c in member.dst.loops())
        old = None
        if member.step.reads_dst:
            old = self.evaluator.operand(block, {}, member.dst, own)
            old = self.code.broadcast(old, total[0].lanes)
        value = reduction.result(self.code, total, old, self.storage.dtype(member.dst.base))
        if member.dst.loops() <= set(self.region.outer):
            result[(member.dst, own)] = value
        if self.storage.in_memory(member.dst.base):
            self.evaluator.store_value(block, member.dst, own, value)

    def _around(self, phase: Phase, loops: list[int], vector: int | None, block: Block,
                order: list[tuple[int, Point]], reductions: dict[int, Reduction], held: list[Vec]) -> list[Vec]:  # fmt: skip
        if loops:
            return carried(
                self.code, self._extent(loops[0]), 1, 0, held,
                lambda i, v: self._around(
                    phase, loops[1:], vector, self._advance(block, loops[0], i), order, reductions, v
                ),
            )  # fmt: skip
        if vector is None:
            return self._step(phase, block, order, reductions, held, {})
        ready = self._preload(phase.members, block, vector, {})
        return over_vectors(
            self.code, self._extent(vector), self.plan.lanes_of(phase), self.plan.unroll_of(phase), held,
            lambda c, v: self._step(phase, self._at_chunk(ready, vector, c), order, reductions, v, {}),
        )  # fmt: skip

    def _step(self, phase: Phase, block: Block, order: list[tuple[int, Point]], reductions: dict[int, Reduction],
              held: list[Vec], values: dict[tuple[Window, Point], Vec]) -> list[Vec]:  # fmt: skip
        slots = _unflatten(order, reductions, held)
        self._evaluate(phase.members, block, values, slots)
        return [v for key in order for v in slots[key]]

    def _evaluate(self, members: Sequence[Member], block: Block, values: dict[tuple[Window, Point], Vec],
                  slots: dict[tuple[int, Point], list[Vec]] | None) -> None:  # fmt: skip
        if self.raw is not None:
            self._move_raw(members, block, values)
            return
        self.evaluator.run(members, block, values, slots)
        self.evaluator.store(members, block, values)

    def _move_raw(self, members: Sequence[Member], block: Block, values: dict[tuple[Window, Point], Vec]) -> None:
        """Copies that convert nothing move plain integers, whatever the dtype."""
        for member in members:
            (source,) = member.srcs
            assert isinstance(source, Window)
            for at in block.points:
                own = tuple((c, o) for c, o in at if c in member.dst.loops())
                values[(member.dst, own)] = self.evaluator.operand(block, values, source, at)
        self.evaluator.store(members, block, values)

    def _keep(self, members: Sequence[Member], values: dict[tuple[Window, Point], Vec],
              result: dict[tuple[Window, Point], Vec]) -> None:  # fmt: skip
        outer = set(self.region.outer)
        for member in members:
            if member.dst.loops() <= outer:
                result.update({k: v for k, v in values.items() if k[0] == member.dst})


def _unflatten(order: list[tuple[int, Point]], reductions: dict[int, Reduction],
               held: list[Vec]) -> dict[tuple[int, Point], list[Vec]]:  # fmt: skip
    slots, at = {}, 0
    for key in order:
        width = 2 if reductions[key[0]].finds_index else 1
        slots[key] = held[at : at + width]
        at += width
    return slots


def _keys(region: Region) -> list[Window]:
    """Every window of the region once, in order of first use."""
    seen: dict[Window, None] = {}
    for member in region.members():
        for key in [*member.reads(), member.dst]:
            seen.setdefault(key)
    return list(seen)


def _raw_move(region: Region, storage: Storage) -> DType | None:
    """The integer dtype that stands for the elements when all instructions copy without converting."""
    dtypes = {storage.dtype(k.base) for k in _keys(region)}
    members = region.members()
    if region.head is not None or len(dtypes) != 1 or any(m.step.instr.op not in MOVES for m in members):
        return None
    if any(isinstance(s, Imm) for m in members for s in m.srcs):
        return None
    return _RAW.get(8 * dtypes.pop().bytes)


def merged_extents(region: Region, storage: Storage, keys: list[Window]) -> dict[int, Dim]:
    """Extents of the loop classes, neighbours that are one run in every memory operand merged into the inner one.

    The class that vanishes has no entry. Two classes merge only if every instruction has both or neither, and treats
    them alike.
    """
    extents = dict(region.extents)
    outer = set(region.outer)
    steps = [storage.static_steps(k) for k in keys if storage.in_memory(k.base)]
    members = region.members()

    def alike(a: int, b: int) -> bool:
        return (a in outer) == (b in outer) and all(
            (a in m.loops) == (b in m.loops) and (a in m.reduced) == (b in m.reduced) for m in members
        )

    def one_run(a: int, b: int) -> bool:
        return all(s.get(a, 0) == s.get(b, 0) * extents[b] for s in steps)

    while True:
        pair = next(
            ((a, b) for a in sorted(extents) for b in sorted(extents) if a != b and alike(a, b) and one_run(a, b)), None
        )
        if pair is None:
            return extents
        a, b = pair
        extents[b] = extents[a] * extents[b]
        del extents[a]


class LoopPlan:
    """Which class is the vector class, how many lanes and vectors, and which outer class runs several rows at once."""

    def __init__(self, code: VectorCode, storage: Storage, region: Region, keys: list[Window],
                 extents: dict[int, Dim]) -> None:  # fmt: skip
        self.code = code
        self.region = region
        self.storage = storage
        self.extents = extents
        self.outer = [c for c in region.outer if c in extents]
        self._steps = {k: storage.static_steps(k) for k in keys}
        self.vector_outer = self._choose_outer()
        self.scalar_outer = [c for c in self.outer if c != self.vector_outer]
        self.rows = 1
        self.row_loop: int | None = None
        self.lane_limit = self.code.host.vector_bytes
        phase = max(region.phases, key=lambda p: len(p.members))
        self.lanes = self._lanes(self.vector_outer, region.members()) if self.vector_outer is not None else 1
        self.unroll = self._unroll(self.vector_outer, region.members(), self.lanes, 1)
        self._choose_rows(phase)

    def _accesses(self, members: Sequence[Member]) -> list[tuple[Window, int]]:
        weighted = []
        for member in members:
            weighted += [(k, 1) for k in member.reads() if self.storage.in_memory(k.base)]
            if self.storage.in_memory(member.dst.base):
                weighted.append((member.dst, 2))
        return weighted

    def _score(self, loop: int, members: Sequence[Member]) -> int:
        """How well the lanes of memory operands fit a class: contiguous is good, strided is bad."""
        score = 0
        for key, weight in self._accesses(members):
            step = self._steps[key].get(loop, 0)
            easy = step == 0 or interleaved_class(self._steps[key], self.extents, loop) is not None
            score += weight if step == 1 else 0 if easy else -2 * weight
        extent = self.extents[loop]
        if isinstance(extent, int) and extent < 4:
            score -= 3
        return score

    def _choose_outer(self) -> int | None:
        region = self.region
        inner: list[int] = []
        for phase in region.phases:
            loops = [c for c in phase.loops if c not in region.outer and c in self.extents]
            inner += [max(self._score(c, phase.members) for c in loops)] if loops else []
        if not self.outer:
            return None
        members = region.members()
        best = max(self.outer, key=lambda c: (self._score(c, members), c))
        if inner and self._score(best, members) <= sum(inner):
            return None
        return best

    def vector_of(self, phase: Phase) -> int | None:
        """The vector class among a phase's inner classes; None if there is none or an outer class serves."""
        if self.vector_outer is not None:
            return None
        loops = [c for c in phase.loops if c not in self.region.outer and c in self.extents]
        return max(loops, key=lambda c: (self._score(c, phase.members), c)) if loops else None

    def _widest(self, members: Sequence[Member]) -> int:
        dtypes = [self.storage.dtype(k.base) for m in members for k in [*m.reads(), m.dst]]
        raw = _raw_move(self.region, self.storage)
        widths = [4 if d.is_float and d.bits <= 16 and raw is None else d.bytes for d in dtypes]
        if any(m.step.instr.op.startswith("TROWARG") for m in members):
            widths.append(8)
        return max(widths, default=4)

    def _lanes(self, loop: int, members: Sequence[Member]) -> int:
        lanes = min(max(self.code.host.vector_bytes // self._widest(members), 1), self.lane_limit)
        extent = self.extents[loop]
        if isinstance(extent, int):
            while lanes > 1 and lanes // 2 >= extent:
                lanes //= 2
        return lanes

    def _unroll(self, loop: int | None, members: Sequence[Member], lanes: int, rows: int) -> int:
        if loop is None:
            return 1
        wide = self.code.host.registers == 32
        most = 4 if wide else 2
        costly = any(m.step.instr.op in _COSTLY for m in members)
        if rows > 1:
            most = max((most if costly else 2 * most) // rows, 1)
        elif any(m.reduced for m in members):
            most = 4
        elif costly:
            most = 2
        if len(members) > 12:
            most = min(most, 2)
        extent = self.extents[loop]
        if isinstance(extent, int):
            most = min(most, max(extent // lanes, 1))
        return most

    def lanes_of(self, phase: Phase) -> int:
        """Lanes of a phase with an inner vector class."""
        loop = self.vector_of(phase)
        assert loop is not None
        return self._lanes(loop, phase.members)

    def unroll_of(self, phase: Phase) -> int:
        """Vectors per block of a phase with an inner vector class."""
        return self._unroll(self.vector_of(phase), phase.members, self.lanes_of(phase), self.rows)

    def _choose_rows(self, phase: Phase) -> None:
        """Several rows at once: to fill a register transpose, or to overlap the latencies of short reductions."""
        region = self.region
        vector = self.vector_outer if self.vector_outer is not None else self.vector_of(phase)
        if vector is None:
            return
        if len(region.phases) == 1 and not phase.reduced and self._choose_turn(vector, phase):
            return
        short = self.extents[vector]
        if self.vector_outer is None and self.scalar_outer and any(p.reduced for p in region.phases):
            limit = 1024 if self.code.host.registers == 32 else 256
            if isinstance(short, int) and short <= limit and len(region.members()) <= 16:
                self.row_loop = self.scalar_outer[-1]
                self.rows = 4 if self.code.host.registers == 32 else 2
                extent = self.extents[self.row_loop]
                while isinstance(extent, int) and self.rows > extent:
                    self.rows //= 2

    def _choose_turn(self, vector: int, phase: Phase) -> bool:
        """Rows that fill an interleaved run or a square block, if an operand lies across the lanes."""
        keys = [k for k, _ in self._accesses(phase.members) if self.storage.dtype(k.base) != BOOL]
        for key in keys:
            loop = interleaved_class(self._steps[key], self.extents, vector)
            if loop is not None:
                width = self._steps[key][vector]
                assert isinstance(width, int)
                self.rows, self.row_loop, self.unroll = width, loop, 1
                return True
        for key in keys:
            loop = square_class(self._steps[key], self.extents, vector)
            full = self.code.host.vector_bytes // self._widest(phase.members)
            if loop is not None and min(self._lanes(vector, phase.members), MOST_SQUARE) == min(full, MOST_SQUARE) >= 4:
                self.lane_limit = MOST_SQUARE
                self.lanes = min(self.lanes, MOST_SQUARE)
                self.rows, self.row_loop, self.unroll = min(full, MOST_SQUARE), loop, 1
                return True
        return False

    def block_extents(self) -> dict[int, int]:
        """Elements of each outer class that one block covers."""
        extents = dict.fromkeys(self.outer, 1)
        if self.row_loop in extents:
            extents[self.row_loop] = self.rows
        if self.vector_outer is not None:
            extents[self.vector_outer] = self.lanes * self.unroll
        return extents
