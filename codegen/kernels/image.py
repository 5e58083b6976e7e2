"""PrepareImage: an image as a camera or decoder gives it becomes a tensor, in one pass over memory.

What the attributes say is baked into the program: every channel is a view of the image. Where parameters say it at run
time (`tensor_types.images`), each row of the result is gathered at places computed from them; every place is checked
against the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensor_types.images as p
from codegen.kernels.image_blocks import Axis, Side, Span
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_inputs, outer_outputs, shape_of
from codegen.kernels.region import blocks, grid_blocks
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import Imm, View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.ir.ops import get
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, product, substitute
from tensor_types.dtypes import BOOL, F32, I32, U8, DType

_Number = View | Imm


@dataclass(frozen=True)
class ImageTiling(Tiling, kind="image"):
    """Blocks of at most `elements` pixels."""

    elements: int


def lower_image(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around a PrepareImage; NotLowerable says why there is none."""
    (op,) = body_of(node).nodes
    if op.op != "PrepareImage":
        raise NotLowerable("the body is not one PrepareImage")
    if 0 in shape_of(outer_outputs(node)[0][1]):
        return []
    at_run_time = op.input(1) is not None
    candidates = map(ImageTiling, halvings(1 << 12, 1 << 8))
    emit = _emit_by_parameters if at_run_time else _emit_by_attributes
    return first_fit(candidates, lambda chosen: [emit(_Kernel(node, op, target), chosen)], tiling)


class _Kernel:
    """The task, its operands, and what both kinds have in common."""

    def __init__(self, node: Node, op: Node, target: Target) -> None:
        self.task = KernelTask(node, "image", target)
        self.paths = MemoryPaths(self.task, target)
        self.op, declared = op, get(op.op)
        assert declared is not None
        self._defaults = {name: attr.default for name, attr in declared.attrs.items()}
        self.y = outer_outputs(node)[0][1]
        outer = outer_inputs(node)
        self.inputs = [outer.get(v.name, v) for v in op.inputs if v is not None]
        if any(not v.format.is_plain for v in (*self.inputs, self.y)):
            raise NotLowerable(f"an image from {self.inputs[0].format} to {self.y.format}")
        self.layout = str(self.attr("order"))
        if self.attr("format") == p.YUV:
            self._relate_to_squares()
        self.channels = int(self.attr("channels"))
        self.out = self.task.operand(self.y, "out", self.task.extents(shape_of(self.y)))

    def _relate_to_squares(self) -> None:
        """Open sizes of a YUV420SP image, which are even, count in squares of four pixels."""
        _, rows, width = shape_of(self.inputs[0])
        for size in (height := p.luma_rows(rows), width):
            if not isinstance(size, int):
                self.task.relate(size, 2 * self.task.extent(size // 2))
        self.task.relate(rows, self.task.extent(height) * 3 // 2)

    def attr(self, name: str) -> object:
        return self.op.attrs.get(name, self._defaults[name])

    def numbers(self, name: str) -> tuple[float, ...]:
        found = self.attr(name)
        return tuple(found) if isinstance(found, tuple | list) else ()

    def sizes(self, value: Value) -> dict[str, Dim]:
        return dict(zip(self.layout, shape_of(value), strict=True))

    def place(self, n: Dim, channel: Dim, y: Dim, x: Dim, shape: Sequence[Dim]) -> View:
        """Where elements of the result lie."""
        at = {"N": n, "C": channel, "H": y, "W": x}
        return self.out.view(*(at[letter] for letter in self.layout), shape=shape)

    def tile(self, shape: Sequence[int]) -> Buffer:
        return self.paths.tile(F32, shape)

    def convert(self, planes: Sequence[View], made: View, factors: Sequence[_Number], bias: _Number) -> None:
        """One colour of the centred planes: whole numbers below 2**24 until the last step, so the sum is exact."""
        task = self.task
        task.mul(made, planes[0], factors[0])
        for plane, factor in zip(planes[1:], factors[1:], strict=True):
            task.fma(made, plane, factor, made)
        task.add(made, made, bias)
        task.mul(made, made, 1 / 256)
        task.floor(made, made)
        task.max(made, made, 0.0)
        task.min(made, made, 255.0)

    def store(self, at: View, values: View, tiles: Sequence[int]) -> None:
        if self.y.dtype != F32:
            narrow = self.paths.passing(self.y.dtype, tiles, "UB").window((0,) * len(tiles), values.shape)
            self.task.cvt(narrow, values)
            values = narrow
        self.task.store(at, values)


def _emit_by_attributes(k: _Kernel, tiling: ImageTiling) -> Record:
    task, paths, image = k.task, k.paths, k.inputs[0]
    paths.require(U8)
    is_yuv = k.attr("format") == p.YUV
    result = k.sizes(k.y)
    n_images = task.extent(result["N"])
    above, below, left, right = (int(v) for v in k.numbers("padding"))
    top, start = (int(v) for v in k.numbers("crop")[:2] or (0, 0))
    given = task.operand(image, shape=(n_images, *task.extents(shape_of(image)[1:])))
    # Chroma has a number for each square of four pixels.
    unit = 2 if is_yuv else 1
    axes = [Axis(task.extent(result[side] - before - behind), before, behind, unit)
            for side, before, behind in (("H", above, below), ("W", left, right))]  # fmt: skip
    block = tuple(ceildiv(size, unit) for size in blocks([unit * a.units for a in axes], tiling.elements))
    tiles = (unit * block[0], unit * block[1])
    (n, *first), (_, *counts) = grid_blocks(task, (n_images, *(a.units for a in axes)), (1, *block))
    rows, columns = (Side(a, unit * at, unit * count, size)
                     for a, at, count, size in zip(axes, first, counts, block, strict=True))  # fmt: skip
    (y, high), (x, wide) = (rows.image, rows.size), (columns.image, columns.size)
    planes = []
    count = 3 if k.attr("matrix") else k.channels
    for plane in [int(v) for v in k.numbers("planes")][:count]:
        held = k.tile(tiles)
        whole = held.window((0, 0), (high, wide))
        if is_yuv and plane:
            squares = (high // 2, 2, wide // 2, 2)
            first = given.shape[1] * 2 // 3 + (top + y) // 2  # behind all rows of Y
            source = given.view(n, first + axis(0), start + x + 2 * axis(2) + plane - 1, shape=squares)
            put = held.view(2 * axis(0) + axis(1), 2 * axis(2) + axis(3), shape=squares)
            task.cvt(put, paths.vector_input(source, (tiles[0] // 2, 2, tiles[1] // 2, 2), U8))
        else:
            index: tuple[Dim, ...] = (n, top + y + axis(0), start + x + axis(1))
            source = given.view(*index, *(() if is_yuv else (plane,)), shape=(high, wide))
            task.cvt(whole, paths.vector_input(source, tiles, U8))
        planes.append(whole)
    if k.attr("matrix"):
        planes = _colours(k, planes, tiles)
    valid = (rows.inner.size, columns.inner.size)
    for channel, plane in enumerate(planes[: k.channels]):
        for name in ("mean", "least"):
            if number := k.numbers(name)[channel]:
                task.sub(plane, plane, number)
        if (factor := k.numbers("factor")[channel]) != 1:
            task.mul(plane, plane, factor)
        at = k.place(n, channel, rows.inner.start + axis(0), columns.inner.start + axis(1), valid)
        k.store(at, View(plane.base, plane.index, valid), tiles)
    _fill(k, n, rows, columns, tiles)
    operations = 4 + (12 if k.attr("matrix") else 0)
    return task.record(operations * product((n_images, result["H"], result["W"], k.channels)))


def _colours(k: _Kernel, planes: Sequence[View], tiles: tuple[int, int]) -> list[View]:
    made = []
    for plane, bias in zip(planes, k.numbers("input_bias"), strict=False):
        if bias:
            k.task.sub(plane, plane, bias)
    for row in range(k.channels):
        factors = [Imm(float(f)) for f in k.numbers("matrix")[3 * row : 3 * row + 3]]
        made.append(View(k.tile(tiles).name, planes[0].index, planes[0].shape))
        k.convert(planes, made[-1], factors, Imm(128 + 256 * k.numbers("output_bias")[row]))
    return made


def _fill(k: _Kernel, n: Dim, rows: Side, columns: Side, tiles: tuple[int, int]) -> None:
    """The padding that a block writes, row by row above and below the image."""
    task = k.task
    if not any(around for side in (rows, columns) for around in (side.axis.before, side.axis.behind)):
        return
    value = float(k.attr("padding_value"))  # type: ignore[arg-type]
    filled = k.tile(tiles) if k.paths.explicit else None
    if filled is not None:
        task.expands(filled.window((0, 0), tiles), value)

    def fill(row: Dim, count: Dim, across: Span) -> None:
        for channel in range(k.channels):
            at = k.place(n, channel, row + axis(0), across.start + axis(1), (count, across.size))
            if filled is None:
                task.expands(at, value)
            else:
                task.store(at, filled.window((0, 0), at.shape))

    for number, (chosen, down, is_outside) in enumerate(rows.parts(task)):
        with chosen:
            for condition, across, is_padding in columns.parts(task):
                with condition:
                    if is_outside:
                        with task.loop(f"r{number}", down.size) as r:
                            fill(down.start + r, 1, across)
                    elif is_padding:
                        fill(down.start, down.size, across)


def _emit_by_parameters(k: _Kernel, tiling: ImageTiling) -> Record:
    task, paths, (image, parameters) = k.task, k.paths, k.inputs
    result = k.sizes(k.y)
    height, width = result["H"], result["W"]
    if not (isinstance(height, int) and isinstance(width, int)):
        raise NotLowerable("a result whose size only the run knows")
    for dtype in (U8, I32, F32):
        paths.require(dtype)
    n_images, size = task.extent(result["N"]), task.extent(shape_of(image)[0])
    given, rows = task.operand(image, shape=(size,)), task.operand(parameters, shape=(n_images, p.COUNT))
    (columns,) = blocks((width,), tiling.elements)
    most = max(1, min(tiling.elements // columns, height))
    (n, first, start), (_, count, wide) = grid_blocks(task, (n_images, height, width), (1, most, columns))
    settings = paths.vector_input(rows.view(n, axis(0), shape=(p.COUNT,)), (p.COUNT,), F32)
    whole = paths.tile(I32, (p.COUNT,))
    task.cvt(whole.view(axis(0), shape=(p.COUNT,)), settings)

    def setting(at: int, shape: Sequence[Dim] = (wide,)) -> View:
        return whole.view(at, shape=shape)

    def real(at: int) -> View:
        index = tuple(substitute(i, {"_0": at}) for i in settings.index)
        return View(settings.base, index, (wide,))

    def line(dtype: DType = I32) -> View:
        return paths.tile(dtype, (columns,)).view(axis(0), shape=(wide,))

    def one(dtype: DType = I32) -> View:
        return paths.tile(dtype, (1,)).view(axis(0), shape=(1,))

    def spread(single: View) -> View:
        return View(single.base, (0,), (wide,))

    longest = max(height, width)
    ones, counted = (paths.tile(I32, (longest,)) for _ in range(2))
    task.expands(ones.view(axis(0), shape=(longest,)), 1)
    task.cumsum(*(t.view(axis(0), shape=(longest,)) for t in (counted, ones)), axis=0, exclusive=1)

    def position(steps: View, before: int, inner: int, begin: int, ends: Sequence[View]) -> None:
        """For positions of the result: where the image is read, and whether these are no padding; one tile to use."""
        at, within, spare, limit = ends
        shape = at.shape
        task.sub(at, steps, setting(before, shape))
        task.cmp(within, at, 0, mode="ge")
        task.cmp(spare, at, setting(inner, shape), mode="lt")
        task.instr("TAND", within, within, spare)
        task.sub(limit, setting(inner, shape), 1)
        task.min(at, at, limit)
        task.max(at, at, 0)
        task.add(at, at, setting(begin, shape))

    across = x, inside_x, _, spare = line(), line(BOOL), line(BOOL), line()
    down = y, inside_y, _, _ = one(), one(BOOL), one(BOOL), one()
    position(counted.view(start + axis(0), shape=(wide,)), p.PADDING_LEFT, p.WIDTH, p.LEFT, across)
    place, byte, inside, base, turn = line(), line(U8), line(BOOL), one(), one()
    planes, centred = [line(F32) for _ in range(p.PLANES)], [line(F32) for _ in range(3)]
    made, converts = line(F32), line(BOOL)
    task.cmp(converts, real(p.CONVERTS), 0.0, mode="ne")
    with task.loop("r", count) as r:
        position(counted.view(first + r, shape=(1,)), p.PADDING_TOP, p.HEIGHT, p.TOP, down)
        task.instr("TAND", inside, inside_x, spread(inside_y))
        for number, plane in enumerate(planes):
            at = p.PLANE + 5 * number
            task.mul(base, setting(at + p.HIGH, (1,)), 4096)
            task.add(base, base, setting(at + p.LOW, (1,)))
            task.shr(turn, y, setting(at + p.SHIFT, (1,)))
            task.mul(turn, turn, setting(at + p.ROW, (1,)))
            task.add(base, base, turn)
            task.shr(spare, x, setting(at + p.SHIFT))
            task.mul(spare, spare, setting(at + p.COLUMN))
            task.add(place, spare, spread(base))
            task.gather(byte, given.view(axis(0), shape=(size,)), place, axis=0)
            task.cvt(plane, byte)
        for number, plane in enumerate(centred):
            task.sub(plane, planes[number], real(p.INPUT_BIAS + number))
        for channel in range(k.channels):
            if channel < 3:
                factors = [real(p.MATRIX + 3 * channel + i) for i in range(3)]
                k.convert(centred, made, factors, real(p.OUTPUT_BIAS + channel))
                task.sel(made, converts, made, planes[channel])
            else:
                task.mov(made, planes[channel])
            task.sub(made, made, real(p.MEAN + channel))
            task.sub(made, made, real(p.LEAST + channel))
            task.mul(made, made, real(p.FACTOR + channel))
            task.sel(made, inside, made, 0.0)
            k.store(k.place(n, channel, first + r, start + axis(0), (wide,)), made, (columns,))
    return task.record(24 * product((n_images, height, width, k.channels)))
