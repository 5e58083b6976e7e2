"""How data reaches the engines of a target: explicit moves through the memories of a chip, nothing on a host.

A host reads operands where they lie, and its code generator keeps accumulators in registers. A chip loads blocks into
L1, extracts them to L0A and L0B by blocks of k, accumulates in L0C, and hands the accumulator to the vector engine
either directly (L0C to UB) or, where that path is missing, through a workspace in global memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from codegen.kernels.operands import NotLowerable
from codegen.kernels.region_task import KernelTask
from codegen.targets.target import Target
from codegen.tile.build import Buffer, broadcast
from codegen.tile.ir import Operand, View, axis
from tensor_types.dims import Dim, ceildiv, dim, dmax, dmin, names, substitute
from tensor_types.dtypes import F32, F64, I32, DType


def accumulator_dtype(source: DType) -> DType:
    """What products of a source dtype accumulate in."""
    if source.is_integer:
        return I32
    return F64 if source == F64 else F32


@dataclass(frozen=True)
class Part:
    """Some of an accumulator: its view, the static shape of tiles for it, and where its axes lie in the whole."""

    view: View
    shape: tuple[int, ...]
    places: Mapping[str, Dim] = field(default_factory=dict)

    def moved(self, index: Dim) -> Dim:
        """An expression over the axes of the whole, over those of the part."""
        return substitute(index, dict(self.places))


class MemoryPaths:
    """Emits the moves of one program. Shapes are static bounds of tiles, extents what of them is valid.

    `products` is how many different products the program has: they share the memories of the cube.
    """

    def __init__(self, task: KernelTask, target: Target, products: int = 1) -> None:
        self._products = products
        self.builder = task
        self.target = target
        self.explicit = target.explicit_memory
        self._grid: list[tuple[str, Dim]] = []
        self._tiles = self._loops = 0
        self._passing: dict[object, Buffer] = {}

    def grid(self, extent: Dim) -> Dim:
        """A parallel dimension; its variable, or 0 when the extent is 1."""
        if extent == 1:
            return 0
        # The prover takes inner variables first, by name where it cannot tell: x sorts behind loop variables.
        name = f"x{len(self._grid)}"
        self._grid.append((name, extent))
        return self.builder.grid(name, extent)

    def tile(self, dtype: DType, shape: Sequence[int], scope: str = "UB", depth: int = 1) -> Buffer:
        """A tile under a canonical name; rows are padded to whole blocks of a chip's memory."""
        sizes = list(shape) or [1]
        if self.explicit:
            block = max(1, self.target.memories[scope].align // dtype.bytes)
            sizes[-1] = -(-sizes[-1] // block) * block
        self._tiles += 1
        return self.builder.tile(f"t{self._tiles - 1}", dtype, sizes, scope, depth)

    def require(self, dtype: DType, cube: bool = False) -> None:
        """NotLowerable if an engine of a chip lacks the dtype."""
        if self.explicit and not (self.target.cube.rate(dtype) if cube else self.target.supports(dtype)):
            raise NotLowerable(f"{self.target.name} has no {dtype} in its {'cube' if cube else 'vector'} engine")

    def accumulator(self, dtype: DType, shape: Sequence[int], extents: Sequence[Dim]) -> View:
        """A block in L0C for the products of sources of `dtype`."""
        self.require(dtype, cube=True)
        return _block(self.tile(accumulator_dtype(dtype), shape, "L0C"), extents)

    def product(self, acc: View, shape: Sequence[int], a: View, b: View, dtype: DType, k_axes: int = 1) -> None:
        """acc[m.., n] = a[m.., k..] @ b[k.., n] for views in global memory; `shape` is the accumulator's static one."""
        nm = len(acc.shape) - 1
        if not self.explicit:
            self.builder.matmul(acc, a, b, nm=nm, nk=k_axes)
            return
        if k_axes != 1:
            raise NotLowerable("products on a chip have one k axis")
        k = a.shape[-1]
        step = self._k_block(shape, dtype)
        if isinstance(k, int):
            step = min(step, -(-k // 16) * 16)
        rows = _volume(shape[:-1])
        left = [self.passing(dtype, (*shape[:-1], step), s, 2) for s in ("L1", "L0A")]
        right = [self.passing(dtype, (step, shape[-1]), s, 2) for s in ("L1", "L0B")]
        assert rows > 0

        def part(op: str, start: Dim, count: Dim) -> None:
            part_a = _k_window(a, nm, start, count)
            part_b = _k_window(b, 0, start, count)
            b_, out = self.builder, []
            for tiles, view in ((left, part_a), (right, part_b)):
                l1, l0 = (_block(t, view.shape) for t in tiles)
                b_.load(l1, view)
                b_.extract(l0, l1)
                out.append(l0)
            b_.instr(op, acc, *out, nm=nm, nk=1)

        part("TMATMUL", 0, dmin(step, k))
        blocks = ceildiv(k, step)
        if blocks == 1:
            return
        # A run-time k may be 0: the first part then gives zeros and no other follows.
        rest = dmax(0, blocks - 1)
        var = f"k{self._tiles}"
        with self.builder.loop(var, rest) as i:
            part("TMATMUL_ACC", step * (i + 1), dmin(step, k - step * (i + 1)))

    def vector_input(self, view: View, shape: Sequence[int], dtype: DType) -> View:
        """A view in global memory as the vector engine reads it; axes that do not occur in it stay broadcast."""
        if not self.explicit:
            return view
        self.require(dtype)
        compact, used = _compact(view)
        block = _block(self.tile(dtype, [shape[k] for k in used]), compact.shape)
        self.builder.load(block, compact)
        return _spread(block, view.shape, used)

    def vector_f32(self, view: View, shape: Sequence[int], dtype: DType) -> View:
        """As `vector_input`, and numbers of another `dtype` converted to f32."""
        if dtype == F32:
            return self.vector_input(view, shape, dtype)
        compact, used = _compact(view)
        sizes = [shape[k] for k in used]
        block = _block(self.tile(F32, sizes), compact.shape)
        self.builder.cvt(block, self.vector_input(compact, sizes or (1,), dtype))
        return _spread(block, view.shape, used)

    def to_vector(self, acc: View, shape: Sequence[int], dtype: DType) -> View:
        """The accumulator (of `dtype`) where the vector engine can read it."""
        if not self.explicit:
            return acc
        block = _block(self.passing(dtype, shape, "UB"), acc.shape)
        if ("L0C", "UB") in self.target.paths:
            self.builder.mov(block, acc)
            return block
        at = self.private(dtype, shape, acc.shape)
        self.builder.store(at, acc)
        self.builder.load(block, at)
        return block

    @contextmanager
    def part(self, acc: View, shape: Sequence[int], elements: int) -> Iterator[Part]:
        """Parts of an accumulator of about so many elements, in a loop: what follows needs the vector's memory for
        one of them only. They are cut along the outermost axis of more than one."""
        whole = _volume(shape)
        cut = next((k for k, size in enumerate(shape) if size > 1), 0)
        size = max(1, elements * shape[cut] // whole)
        if elements >= whole or size >= shape[cut]:
            yield Part(acc, tuple(shape))
            return
        self._loops += 1
        count = acc.shape[cut]
        with self.builder.loop(f"v{self._loops}", ceildiv(count, size)) as v:
            rows = size if isinstance(count, int) and count % size == 0 else dmin(size, count - size * v)
            places: dict[str, Dim] = {f"_{cut}": axis(cut) + size * v}
            extents = tuple(rows if k == cut else n for k, n in enumerate(acc.shape))
            view = View(acc.base, tuple(substitute(i, places) for i in acc.index), extents)
            yield Part(view, tuple(size if k == cut else n for k, n in enumerate(shape)), places)

    def private(self, dtype: DType, shape: Sequence[int], extents: Sequence[Dim]) -> View:
        """A block of global memory that belongs to this grid index."""
        scratch = self.builder.workspace(dtype, (*(extent for _, extent in self._grid), *shape))
        return scratch.view(*(dim(name) for name, _ in self._grid), *map(axis, range(len(shape))), shape=extents)

    def store(
        self, dst: View, source: Operand | float, shape: Sequence[int] = (), dtype: DType | None = None
    ) -> None:
        """Writes a block in UB (of a host: anywhere) to global memory; `shape` and `dtype` are needed of a number."""
        if isinstance(source, View):
            self.builder.store(dst, source)
        elif not self.explicit:
            self.builder.expands(dst, source)
        else:
            assert dtype is not None
            self.require(dtype)
            # A tile of its own: those that data passes through may hold results that are yet to be stored.
            block = _block(self.tile(dtype, shape), dst.shape)
            self.builder.expands(block, source)
            self.builder.store(dst, block)

    def store_accumulator(self, dst: View, acc: View, shape: Sequence[int], dtype: DType) -> None:
        """Writes an accumulator to global memory as `dtype`, by the path that the target has."""
        if self.explicit and ("L0C", "GM") not in self.target.paths:
            block = _block(self.passing(dtype, shape, "UB", 2), acc.shape)
            self.builder.mov(block, acc)
            acc = block
        self.builder.store(dst, acc)

    def passing(self, dtype: DType, shape: Sequence[int], scope: str, depth: int = 1) -> Buffer:
        """A tile that data only passes through: products one after the other share it."""
        key = (dtype, tuple(shape), scope)
        if key not in self._passing:
            self._passing[key] = self.tile(dtype, shape, scope, depth)
        return self._passing[key]

    def _k_block(self, shape: Sequence[int], dtype: DType) -> int:
        """The largest block of k, in powers of two from 16, of which two fit L0A and L0B each."""
        widest = max(_volume(shape[:-1]), shape[-1])
        room = min(self.target.memories[s].bytes for s in ("L0A", "L0B")) // (2 * dtype.bytes * self._products)
        step = 16
        while step * 2 * widest <= room and step < 256:
            step *= 2
        return step


def _volume(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _block(buffer: Buffer, extents: Sequence[Dim]) -> View:
    """The block of these extents at the start of a tile."""
    return buffer.view(*map(axis, range(len(extents))), shape=extents)


def _compact(view: View) -> tuple[View, list[int]]:
    """A view without the axes that do not occur in it, and those that do; one element where none does."""
    used = [k for k in range(len(view.shape)) if any(f"_{k}" in names(i) for i in view.index)]
    renamed: dict[str, Dim] = {f"_{k}": axis(n) for n, k in enumerate(used)}
    extents = tuple(view.shape[k] for k in used) or (1,)
    return View(view.base, tuple(substitute(i, renamed) for i in view.index), extents), used


def _spread(block: View, shape: tuple[Dim, ...], used: Sequence[int]) -> View:
    """A compact block seen with all axes again."""
    return broadcast(block, shape, used) if used else View(block.base, (0,), shape)


def _k_window(view: View, position: int, start: Dim, count: Dim) -> View:
    """The part start .. start+count-1 along one axis of a view."""
    env: dict[str, Dim] = {f"_{position}": axis(position) + start}
    shape = tuple(count if k == position else s for k, s in enumerate(view.shape))
    return View(view.base, tuple(substitute(i, env) for i in view.index), shape)
