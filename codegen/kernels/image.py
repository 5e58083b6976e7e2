"""PrepareImage: an image as a camera or decoder gives it becomes a tensor, in one pass over memory.

What the attributes say is baked into the program: every channel is a view of the image, blocks are rows of the result
without its padding, and the blocks of the first rows fill what is above and below. Where parameters say it at run time
(`tensor_types.images`), each row of the result is gathered at places computed from them; every place is
checked against the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import tensor_types.images as p
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
from tensor_types.dims import Dim, dmin, product
from tensor_types.dtypes import BOOL, F32, I32, U8

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
    if at_run_time and target.explicit_memory:
        raise NotLowerable("bytes at places that only the run knows")
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
        self.channels = int(self.attr("channels"))
        self.out = self.task.operand(self.y, "out", self.task.extents(shape_of(self.y)))

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
    given = task.operand(image, shape=(n_images, *task.extents(shape_of(image)[1:])))
    above, below, left, right = (int(v) for v in k.numbers("padding"))
    top, start = (int(v) for v in k.numbers("crop")[:2] or (0, 0))
    rows, columns = (task.extent(result[side]) - around for side, around in (("H", above + below), ("W", left + right)))
    block = blocks((rows, columns), tiling.elements)
    if is_yuv:
        block = (block[0] + block[0] % 2, block[1] + block[1] % 2)
    # Chroma has a number for each square of four: blocks are whole squares, of which the last may end outside.
    even = (rows + rows % 2, columns + columns % 2) if is_yuv else (rows, columns)
    (n, y, x), (_, high, wide) = grid_blocks(task, (n_images, *even), (1, *block))
    tiles: tuple[int, int] = block
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
    valid = (dmin(high, rows - y), dmin(wide, columns - x)) if is_yuv else (high, wide)
    for channel, plane in enumerate(planes[: k.channels]):
        for name in ("mean", "least"):
            if number := k.numbers(name)[channel]:
                task.sub(plane, plane, number)
        if (factor := k.numbers("factor")[channel]) != 1:
            task.mul(plane, plane, factor)
        at = k.place(n, channel, above + y + axis(0), left + x + axis(1), valid)
        k.store(at, View(plane.base, plane.index, valid), tiles)
    if above or below or left or right:
        _fill(k, (n, y, x), (rows, columns), valid, tiles)
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


def _fill(
    k: _Kernel, at: Sequence[Dim], inner: tuple[Dim, Dim], valid: tuple[Dim, Dim], tiles: tuple[int, int]
) -> None:
    """The padding: beside a block's rows, and above and below by the blocks of the first rows."""
    n, y, x = at
    above, below, left, right = (int(v) for v in k.numbers("padding"))
    width = left + inner[1] + right
    value = float(k.attr("padding_value"))  # type: ignore[arg-type]

    def fill(first: Dim, rows: Dim, column: Dim, columns: Dim, most: tuple[int, int]) -> None:
        for channel in range(k.channels):
            view = k.place(n, channel, first + axis(0), column + axis(1), (rows, columns))
            k.paths.store(view, value, most, k.y.dtype)

    def once(index: Dim) -> AbstractContextManager[None]:
        return k.task.when(index, "==", 0) if not isinstance(index, int) else nullcontext()

    assert isinstance(width, int)
    with once(x):
        for column, columns in ((0, left), (left + inner[1], right)):
            if columns:
                fill(above + y, valid[0], column, columns, (tiles[0], columns))
        with once(y):
            for row, rows in ((0, above), (above + inner[0], below)):
                if rows:
                    with k.task.loop(f"r{'ab'[row != 0]}", rows) as r:
                        fill(row + r, 1, 0, width, (1, width))


def _emit_by_parameters(k: _Kernel, tiling: ImageTiling) -> Record:
    task, (image, parameters) = k.task, k.inputs
    result = k.sizes(k.y)
    height, width = result["H"], result["W"]
    if not (isinstance(height, int) and isinstance(width, int)):
        raise NotLowerable("a result whose size only the run knows")
    n_images, size = task.extent(result["N"]), task.extent(shape_of(image)[0])
    given, rows = task.operand(image, shape=(size,)), task.operand(parameters, shape=(n_images, p.COUNT))
    most = max(1, min(tiling.elements // width, height))
    (n, first), (_, count) = grid_blocks(task, (n_images, height), (1, most))
    whole = task.tile("whole", I32, (p.COUNT,))
    task.cvt(whole.view(axis(0), shape=(p.COUNT,)), rows.view(n, axis(0), shape=(p.COUNT,)))

    def setting(at: int, shape: Sequence[Dim] = (width,)) -> View:
        return whole.view(at, shape=shape)

    def real(at: int) -> View:
        return rows.view(n, at, shape=(width,))

    def line(name: str, dtype: object = I32, length: int = width) -> View:
        return task.tile(name, dtype, (length,)).view(axis(0), shape=(length,))  # type: ignore[arg-type]

    counted = task.tile("counted", I32, (max(height, width),))
    ones, steps = line("ones", I32, max(height, width)), counted.view(axis(0), shape=(max(height, width),))
    task.expands(ones, 1)
    task.cumsum(steps, ones, axis=0, exclusive=1)
    x, y, inside_x, inside = line("x"), line("y", I32, 1), line("inside_x", BOOL), line("inside", BOOL)
    other, unit, other_unit = line("other", BOOL), line("inside_y", BOOL, 1), line("other_y", BOOL, 1)

    def position(at: View, steps: View, before: int, inner: int, start: int, within: View, spare: View) -> None:
        """Where the image is read for positions of the result, and whether these are no padding."""
        shape = at.shape
        task.sub(at, steps, setting(before, shape))
        task.cmp(within, at, 0, mode="ge")
        task.cmp(spare, at, setting(inner, shape), mode="lt")
        task.instr("TAND", within, within, spare)
        task.sub(limit := View("limit", at.index, shape), setting(inner, shape), 1)
        task.min(at, at, limit)
        task.max(at, at, 0)
        task.add(at, at, setting(start, shape))

    task.tile("limit", I32, (width,))
    position(x, counted.view(axis(0), shape=(width,)), p.PADDING_LEFT, p.WIDTH, p.LEFT, inside_x, other)
    place, spare, byte = line("place"), line("spare"), line("byte", U8)
    base, turn = line("base", I32, 1), line("turn", I32, 1)
    planes = [line(f"plane{i}", F32) for i in range(p.PLANES)]
    centred = [line(f"centred{i}", F32) for i in range(3)]
    made, converts = line("made", F32), line("converts", BOOL)
    task.cmp(converts, real(p.CONVERTS), 0.0, mode="ne")
    with task.loop("r", count) as r:
        position(y, counted.view(first + r, shape=(1,)), p.PADDING_TOP, p.HEIGHT, p.TOP, unit, other_unit)
        task.instr("TAND", inside, inside_x, View(unit.base, (0,), (width,)))
        for number, plane in enumerate(planes):
            at = p.PLANE + 5 * number
            task.mul(base, setting(at + p.HIGH, (1,)), 4096)
            task.add(base, base, setting(at + p.LOW, (1,)))
            task.shr(turn, y, setting(at + p.SHIFT, (1,)))
            task.mul(turn, turn, setting(at + p.ROW, (1,)))
            task.add(base, base, turn)
            task.shr(spare, x, setting(at + p.SHIFT))
            task.mul(spare, spare, setting(at + p.COLUMN))
            task.add(place, spare, View(base.base, (0,), (width,)))
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
            k.store(k.place(n, channel, first + r, axis(0), (width,)), made, (width,))
    return task.record(24 * product((n_images, height, width, k.channels)))
