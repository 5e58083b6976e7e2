"""The shape of the loops of a nest: merged classes, the vector class, lanes, unrolling, and rows that run together."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.llvm.crossing import MOST_SQUARE, interleaved_class, square_class
from codegen.llvm.loop_nests import LoopNest, Member, Phase
from codegen.llvm.storage import Storage
from codegen.llvm.vector_code import VectorCode
from codegen.llvm.vector_ops import MOVES
from codegen.llvm.windows import Window
from codegen.tile.ir import Imm
from tensor_types.dims import Dim
from tensor_types.dtypes import BOOL, U8, U16, U32, U64, DType

_COSTLY = {"TEXP", "TEXP2", "TLOG", "TTANH", "TSIGMOID", "TERF", "TSIN", "TCOS", "TPOW"}
_MANY_TAPS = 4
"""From this many instructions on, rows that share operands are worth running together."""
_RAW = {8: U8, 16: U16, 32: U32, 64: U64}


def nest_keys(nest: LoopNest) -> list[Window]:
    """Every window of the loop nest once, in order of first use."""
    seen: dict[Window, None] = {}
    for member in nest.members():
        for key in [*member.reads(), member.dst]:
            seen.setdefault(key)
    return list(seen)


def raw_move(nest: LoopNest, storage: Storage) -> DType | None:
    """The integer dtype that stands for the elements when all instructions copy without converting."""
    dtypes = {storage.dtype(k.base) for k in nest_keys(nest)}
    members = nest.members()
    if nest.head is not None or len(dtypes) != 1 or any(m.step.instr.op not in MOVES for m in members):
        return None
    if any(isinstance(s, Imm) for m in members for s in m.srcs):
        return None
    return _RAW.get(8 * dtypes.pop().bytes)


def merged_extents(nest: LoopNest, storage: Storage, keys: list[Window]) -> dict[int, Dim]:
    """Extents of the loop classes, neighbours that are one run in every memory operand merged into the inner one.

    The class that vanishes has no entry. Two classes merge only if every instruction has both or neither, and treats
    them alike.
    """
    extents = dict(nest.extents)
    outer = set(nest.outer)
    steps = [storage.static_steps(k) for k in keys if storage.in_memory(k.base)]
    members = nest.members()

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

    def __init__(self, code: VectorCode, storage: Storage, nest: LoopNest, keys: list[Window],
                 extents: dict[int, Dim]) -> None:  # fmt: skip
        self.code = code
        self.nest = nest
        self.storage = storage
        self.extents = extents
        self.outer = [c for c in nest.outer if c in extents]
        self._steps = {k: storage.static_steps(k) for k in keys}
        self.vector_outer = self._choose_outer()
        self.scalar_outer = [c for c in self.outer if c != self.vector_outer]
        self.rows = 1
        self.row_loop: int | None = None
        self.lane_limit = self.code.host.vector_bytes
        phase = max(nest.phases, key=lambda p: len(p.members))
        self.lanes = self._lanes(self.vector_outer, nest.members()) if self.vector_outer is not None else 1
        self.unroll = self._unroll(self.vector_outer, nest.members(), self.lanes, 1)
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
        nest = self.nest
        inner: list[int] = []
        for phase in nest.phases:
            loops = [c for c in phase.loops if c not in nest.outer and c in self.extents]
            inner += [max(self._score(c, phase.members) for c in loops)] if loops else []
        if not self.outer:
            return None
        members = nest.members()
        best = max(self.outer, key=lambda c: (self._score(c, members), c))
        if inner and self._score(best, members) <= sum(inner):
            return None
        return best

    def vector_of(self, phase: Phase) -> int | None:
        """The vector class among a phase's inner classes; None if there is none or an outer class serves."""
        if self.vector_outer is not None:
            return None
        loops = [c for c in phase.loops if c not in self.nest.outer and c in self.extents]
        return max(loops, key=lambda c: (self._score(c, phase.members), c)) if loops else None

    def _widest(self, members: Sequence[Member]) -> int:
        dtypes = [self.storage.dtype(k.base) for m in members for k in [*m.reads(), m.dst]]
        raw = raw_move(self.nest, self.storage)
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
        nest = self.nest
        vector = self.vector_outer if self.vector_outer is not None else self.vector_of(phase)
        if vector is None:
            return
        if len(nest.phases) == 1 and not phase.reduced and self._choose_turn(vector, phase):
            return
        if self._choose_reuse(vector, phase):
            return
        short = self.extents[vector]
        if self.vector_outer is None and self.scalar_outer and any(p.reduced for p in nest.phases):
            limit = 1024 if self.code.host.registers == 32 else 256
            if isinstance(short, int) and short <= limit and len(nest.members()) <= 16:
                self.row_loop = self.scalar_outer[-1]
                self.rows = 4 if self.code.host.registers == 32 else 2
                extent = self.extents[self.row_loop]
                while isinstance(extent, int) and self.rows > extent:
                    self.rows //= 2

    def _choose_reuse(self, vector: int, phase: Phase) -> bool:
        """Rows that share operands: those that move with the lanes but not with the innermost scalar class."""
        if self.vector_outer != vector or not self.scalar_outer or len(self.nest.phases) > 1:
            return False
        loop = self.scalar_outer[-1]
        shared = [k for k, _ in self._accesses(phase.members) if vector in k.loops() and loop not in k.loops()]
        extent = self.extents[loop]
        taps = phase.reduced or len(phase.members) >= _MANY_TAPS
        if not shared or not taps or len(phase.members) > 40 or (isinstance(extent, int) and extent < 4):
            return False
        self.rows, self.row_loop = 4, loop
        self.unroll = min(self.unroll, 2 if self.code.host.registers == 32 else 1)
        return True

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
