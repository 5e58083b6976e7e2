"""Matrix products with what follows them: a loop nest's instructions run on the accumulators of each register tile."""

from __future__ import annotations

from codegen.llvm.access import Access, Point, point
from codegen.llvm.conversions import convert
from codegen.llvm.cube import emit_matmul
from codegen.llvm.cube_site import MatmulSite, Operand, RegisterTile
from codegen.llvm.evaluator import Block, Evaluator
from codegen.llvm.loop_nests import LoopNest, Member
from codegen.llvm.storage import Storage
from codegen.llvm.text import Function, Value
from codegen.llvm.vector_code import Vec, VectorCode
from codegen.llvm.windows import Window
from codegen.targets.hosts import host_class
from codegen.tile.ir import View
from tensor_types.dims import names
from tensor_types.dtypes import BOOL, F32, F64, I32, DType

_UNBOUNDED = 1 << 40


def accumulator_dtype(source: DType) -> DType:
    """What products of a source dtype accumulate in."""
    if source == F64:
        return F64
    return F32 if source.is_float else I32


def emit_product(code: VectorCode, storage: Storage, nest: LoopNest) -> None:
    """Emits a loop nest whose head is a TMATMUL or TMATMUL_ACC."""
    assert nest.head is not None
    _Product(code, storage, nest, nest.head).emit()


class _Product:
    def __init__(self, code: VectorCode, storage: Storage, nest: LoopNest, head: Member) -> None:
        self.code, self.storage, self.nest, self.head = code, storage, nest, head
        instr = head.step.instr
        rank = len(instr.dst.shape)
        kept = [k for k in range(rank) if instr.dst.shape[k] != 1]
        number = dict(zip(kept, head.loops, strict=True))
        self.m_axes = [k for k in kept if k < rank - 1]
        self.m_loops = [number[k] for k in self.m_axes]
        self.n_loop = number.get(rank - 1)
        self.evaluator = Evaluator(code, storage, frozenset(m.dst.base for m in (head, *nest.members())))
        self.accesses: dict[Window, Access] = {}
        self.acc_dtype = F32

    def emit(self) -> None:
        """The product and its epilogue."""
        instr, storage, dims = self.head.step.instr, self.storage, self.storage.dims
        rank = len(instr.dst.shape)
        a_view, b_view = instr.srcs
        assert isinstance(a_view, View) and isinstance(b_view, View)
        self.acc_dtype = accumulator_dtype(storage.dtype(a_view.base))
        keys = {k: None for m in self.nest.members() for k in [*m.reads(), m.dst]}
        keys[self.head.dst] = None
        self.accesses = {k: storage.access(k) for k in keys}
        a, b = storage.view_access(a_view), storage.view_access(b_view)
        nm = rank - 1
        bits = instr.attr("bits", 0)
        assert isinstance(bits, int)
        k_axes = range(nm, len(a_view.shape))
        m = tuple(dims.value(instr.dst.shape[k]) for k in self.m_axes)
        n = dims.value(instr.dst.shape[-1])
        initial = None
        if self.head.step.reads_dst:
            held = storage.view_access(instr.dst)
            strides = (*(held.step(k) for k in self.m_axes), held.step(rank - 1))
            initial = Operand(held.pointer, strides, held.dtype)
        site = MatmulSite(
            target=host_class(self.code.host),
            a=Operand(a.pointer, tuple(a.step(k) for k in [*self.m_axes, *k_axes]), a.dtype),
            b=Operand(b.pointer, tuple(b.step(k) for k in range(len(b_view.shape))), b.dtype),
            m=m,
            k=tuple(dims.value(a_view.shape[k]) for k in k_axes),
            n=n,
            n_max=n if isinstance(n, int) else self._most_columns(instr.dst),
            acc_dtype=self.acc_dtype,
            initial=initial,
            finish=self._finish,
            # Products run one after the other: those of one size share their workspace.
            workspace=lambda size: storage.allocate(("matmul", size), size),
            bits=bits,
        )
        emit_matmul(self.code.fn, site)

    def _most_columns(self, dst: View) -> int:
        """A static bound of n: the extents of the tile's axes that n walks along."""
        tile = self.storage.program.tile(dst.base)
        if tile is None:
            return _UNBOUNDED
        last = f"_{len(dst.shape) - 1}"
        return min(size for index, size in zip(dst.index, tile.shape, strict=True) if last in names(index))

    def _finish(self, fn: Function, tile: RegisterTile) -> None:
        columns: dict[str | None, list[int]] = {}
        for v, mask in enumerate(tile.masks):
            columns.setdefault(mask, []).append(v)
        accesses = self.accesses
        moves: list[tuple[int, Value]] = list(zip(self.m_loops, tile.origin, strict=True))
        if self.n_loop is not None:
            moves.append((self.n_loop, tile.n_start))
        for loop, index in moves:
            accesses = {k: a.advanced(fn, loop, index) for k, a in accesses.items()}
        for mask, vectors in columns.items():
            self._columns(tile, mask, vectors, accesses)

    def _columns(
        self, tile: RegisterTile, mask: str | None, vectors: list[int], accesses: dict[Window, Access]
    ) -> None:
        """Runs the epilogue on the vectors of all rows that share a mask."""
        lanes = tile.lanes if self.n_loop is not None else 1
        head = self.head
        dtype = self.storage.dtype(head.dst.base)
        known: dict[tuple[Window, Point], Vec] = {}
        points = []
        for row, offset in enumerate(tile.offsets):
            for v in vectors:
                offsets = dict(zip(self.m_loops, offset, strict=True))
                if self.n_loop is not None:
                    offsets[self.n_loop] = v * tile.lanes
                points.append(point(offsets))
                value = Vec(tile.vectors[row][v], self.acc_dtype, tile.lanes)
                if self.n_loop is None:
                    value = self.code.shuffle(value, value, [0])
                known[(head.dst, points[-1])] = convert(self.code, value, dtype)
        limit = Vec(mask.split("> ", 1)[1], BOOL, lanes) if mask is not None and self.n_loop is not None else None
        block = Block(accesses, tuple(points), lanes, limit, self.n_loop, known, {})
        members = self.nest.members()
        values = dict(known)
        self.evaluator.run(members, block, values)
        self.evaluator.store(members, block, values)
        if self.storage.in_memory(head.dst.base) and all(m.dst != head.dst for m in members):
            for at in points:
                self.evaluator.store_value(block, head.dst, at, known[(head.dst, at)])
