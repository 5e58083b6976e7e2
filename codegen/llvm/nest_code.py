"""The code of a loop nest: outer loops, then per phase inner loops over blocks of vectors.

One loop class is the vector class. Instructions are evaluated for all points of a block on registers; values that a
later phase needs stay in registers if they belong to outer indices only, else they go to the tile's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codegen.llvm.access import Point, point
from codegen.llvm.evaluator import Block, Evaluator
from codegen.llvm.liveness import forget_overwritten
from codegen.llvm.loop_nests import LoopNest, Member, Phase
from codegen.llvm.loop_plan import LoopPlan, merged_extents, nest_keys, raw_move
from codegen.llvm.loops import Chunk, carried, over_rows, over_vectors
from codegen.llvm.reductions import Reduction
from codegen.llvm.storage import Storage
from codegen.llvm.text import Value
from codegen.llvm.vector_code import Vec, VectorCode
from codegen.llvm.vector_memory import load_vector
from codegen.llvm.windows import Window
from codegen.tile.ir import Imm
from tensor_types.dims import Expr

_UNROLLED_TAPS = 4
"""Reduced loops of at most this many turns (the taps of a window) are written out ..."""
_SMALL_STEP = 32
"""... if one turn evaluates at most this many instructions."""


class NestCode:
    """Emits one loop nest."""

    def __init__(self, code: VectorCode, storage: Storage, nest: LoopNest) -> None:
        self.code = code
        self.fn = code.fn
        self.storage = storage
        self.nest = nest
        self.evaluator = Evaluator(code, storage, frozenset(m.dst.base for m in nest.members()))
        self.keys = nest_keys(nest)
        self.raw = raw_move(nest, storage)
        self.lengths: dict[int, Value] = {}
        self.extents = merged_extents(nest, storage, self.keys)
        self.plan = LoopPlan(code, storage, nest, self.keys, self.extents)

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
        # Extents, and sizes that are numbers, are computed here, where they dominate every loop.
        for number in (s for m in self.nest.members() for s in m.srcs if isinstance(s, Imm)):
            if isinstance(number.value, Expr):
                self.storage.dims.value(number.value)
        self.lengths = {c: self.storage.dims.value(extent) for c, extent in sorted(self.extents.items())}
        merged = {c: 0 for c in self.nest.extents if c not in self.extents}
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
        ready = self._preload(self.nest.members(), block, loop, {})

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
        written = {m.dst.base for m in self.nest.members()}
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
        for phase in self.nest.phases:
            result = self._phase(phase, replace(block, known=known))
            stale = {k for m in phase.members for k in forget_overwritten([w for w, _ in known], m.dst)}
            known = {k: v for k, v in known.items() if k[0] not in stale}
            known.update(result)

    def _phase(self, phase: Phase, block: Block) -> dict[tuple[Window, Point], Vec]:
        """Emits a phase; gives the values that belong to outer indices only."""
        inner = [c for c in sorted(phase.loops) if c not in self.nest.outer and c in self.extents]
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
        if phase.loops <= set(self.nest.outer):
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
        if member.dst.loops() <= set(self.nest.outer):
            result[(member.dst, own)] = value
        if self.storage.in_memory(member.dst.base):
            self.evaluator.store_value(block, member.dst, own, value)

    def _around(
        self,
        phase: Phase,
        loops: list[int],
        vector: int | None,
        block: Block,
        order: list[tuple[int, Point]],
        reductions: dict[int, Reduction],
        held: list[Vec],
    ) -> list[Vec]:
        """The accumulators after the reduced loops."""
        if loops:
            extent = self._extent(loops[0])
            if isinstance(extent, int) and extent <= _UNROLLED_TAPS and len(order) * len(phase.members) <= _SMALL_STEP:
                for i in range(extent):
                    inner = self._advance(block, loops[0], i)
                    held = self._around(phase, loops[1:], vector, inner, order, reductions, held)
                return held
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
        outer = set(self.nest.outer)
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
