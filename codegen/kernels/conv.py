"""The convolution family: implicit GEMM and depthwise kernels with bias and element-wise epilogue in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from codegen.kernels.attached import Attached, store_results
from codegen.kernels.block_emitter import Operand
from codegen.kernels.conv_core import ConvShape, conv_tilings, emit_conv, weight_packing, weight_shape
from codegen.kernels.conv_cube import (
    cube_tilings,
    emit_conv_on_cube,
    emit_transposed_on_cube,
    transposed_tilings_on_cube,
)
from codegen.kernels.conv_geometry import Axis, axis_lows, output_extents, sliding_axes, transposed_axes
from codegen.kernels.conv_transpose import TransposedShape, emit_transposed, transposed_tilings
from codegen.kernels.depthwise_core import ChannelsFirst, DepthwiseShape, WindowTiling, emit_depthwise, window_tilings
from codegen.kernels.elementwise import ElementwiseEmitter
from codegen.kernels.memory_paths import MemoryPaths, accumulator_dtype
from codegen.kernels.operands import NotLowerable, body_of, outer_inputs, outer_outputs, shape_of
from codegen.kernels.region_space import Space, order
from codegen.kernels.region_task import KernelTask, physical
from codegen.kernels.tiling import Tiling, first_fit
from codegen.kernels.winograd_core import (
    Winograd,
    WinogradTiling,
    is_faster,
    transformed_packing,
    transformed_shape,
    winograd_tilings,
)
from codegen.kernels.winograd_dilated import DilatedWinograd
from codegen.targets.target import Target
from codegen.tile.ir import View
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, product
from tensor_types.dtypes import BF16, F16, F32, F64, I8
from tensor_types.formats import channels_last, panels


@dataclass(frozen=True)
class _Way:
    """One way of computing a convolution: its tilings by falling preference, and its tasks under one of them."""

    candidates: Iterable[Tiling]
    emit: Callable[[Any], list[Record]]


def lower_conv(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around a Conv or ConvTranspose; NotLowerable says why there is none."""
    ways = _ways(node, target)
    if ways is None:
        return []
    points = None if tiling is None else isinstance(tiling, WinogradTiling)
    return first_fit(ways(points).candidates, lambda chosen: ways(points).emit(chosen), tiling)


def tilings_conv(node: Node, target: Target) -> list[Iterable[Tiling]]:
    """The tilings of each algorithm by falling preference: sums over windows, products of points."""
    ways = _ways(node, target)
    return [] if ways is None else [ways(points).candidates for points in (False, True)]


def _ways(node: Node, target: Target) -> Callable[[bool | None], _Way] | None:
    """How the node is computed, by products of points, or not so, or (None) as the estimate says; None where there is
    nothing to compute. NotLowerable says why there is no way."""
    body = body_of(node)
    anchor = body.nodes[0]
    if anchor.op not in ("Conv", "ConvInteger", "ConvTranspose"):
        raise NotLowerable(f"{anchor.op} is no convolution")
    values = outer_inputs(node)
    x, w, third = (None if v is None else values.get(v.name, v) for v in (*anchor.inputs, None)[:3])
    bias = None if anchor.op == "ConvInteger" else third
    assert x is not None and w is not None
    if not w.is_constant:
        raise NotLowerable(f"the weight {w.name} is not constant")
    shape_of(x)
    shape_of(anchor.output)
    if x.rank < 3 or not isinstance(shape_of(x)[1], int):
        raise NotLowerable("no static number of channels")
    if anchor.op == "ConvInteger":
        _check_bytes(anchor, x, w, target)
    elif x.dtype not in (F32, F64, F16, BF16) or x.dtype != w.dtype:
        raise NotLowerable(f"a convolution of {x.dtype} with {w.dtype}")
    if any(d == 0 for _, v in outer_outputs(node) for d in shape_of(v)):
        return None
    return lambda points: _Lowering(node, target, x, w, bias).way(points)


def _check_bytes(anchor: Node, x: Value, w: Value, target: Target) -> None:
    """NotLowerable unless the kernel multiplies these bytes, four channels at a time."""
    _, _, x_zero, w_zero = (*anchor.inputs, None, None)[:4]
    outside = x_zero if anchor.attrs.get("zero_outside") else None
    if x_zero is not outside or (w_zero is not None and (w_zero.recipe is None or w_zero.recipe.size != 1)):
        raise NotLowerable("zero points of a ConvInteger that were not folded")
    if target.explicit_memory and (w_zero is not None or outside is not None):
        raise NotLowerable("a ConvInteger with a zero point of the weight or pads that a run decides, on a chip")
    if int(anchor.attrs.get("group", 1) or 1) != 1 or shape_of(w)[1] % 4:  # type: ignore[call-overload, operator]
        raise NotLowerable("an integer convolution with groups, or with channels that are no multiple of 4")
    if x.format != channels_last(x.rank):
        raise NotLowerable("an integer convolution takes channels-last data")
    if target.explicit_memory and (x.dtype, w.dtype) != (I8, I8):
        raise NotLowerable(f"the cube of {target.name} multiplies signed bytes only")


class _Lowering:
    def __init__(self, node: Node, target: Target, x: Value, w: Value, bias: Value | None) -> None:
        self.node, self.target, self.x, self.w, self.bias = node, target, x, w, bias
        self.anchor = body_of(node).nodes[0]
        self.attached = Attached(body_of(node).nodes[1:], outer_inputs(node), [self.anchor.output.name])
        self.outputs = outer_outputs(node)
        self._start()
        self.emitters = 0
        self.vector = 0
        """Elements of a block that bias and epilogue take at a time; 0: all of them."""
        assert self.anchor.output.shape is not None
        self.shape: tuple[Dim, ...] = self.anchor.output.shape
        self.format = self.outputs[0][1].format

    def _start(self) -> None:
        self.task = KernelTask(self.node, "conv", self.target)
        self.paths = MemoryPaths(self.task, self.target)

    def way(self, points: bool | None) -> _Way:
        """How the node is computed, as `_ways` says; to be called once."""
        if any(v.shape != self.shape or v.format != self.format for _, v in self.outputs):
            raise NotLowerable("results of different shapes or formats")
        assert self.w.shape is not None and self.x.shape is not None
        groups = int(self.anchor.attrs.get("group", 1) or 1)  # type: ignore[arg-type]
        channels, features = int(self.x.shape[1]), int(self.w.shape[0])  # type: ignore[arg-type]
        kernel = [int(k) for k in self.w.shape[2:]]  # type: ignore[arg-type]
        if self.anchor.op == "ConvTranspose":
            return self._transposed(groups, channels, int(self.w.shape[1]), kernel)  # type: ignore[arg-type]
        axes = sliding_axes(self.anchor, self.x.shape[2:], self.shape[2:], kernel)
        if axes is None:
            raise NotLowerable("SAME pads of a run-time size with a stride")
        last = channels_last(len(self.shape))
        if groups == channels == features and groups > 1:
            if self.target.explicit_memory or self.x.format == last:
                return self._depthwise(axes, channels)
        conv = ConvShape(
            self.x.shape[0], tuple(axes), groups, channels // groups, features // groups, self.x.dtype,
            self.x.format != last, int(self.anchor.attrs.get("pad_value", 0) or 0),  # type: ignore[call-overload]
            self._together(channels // groups), self._weight_zero(),
        )  # fmt: skip
        if conv.is_pixelwise and not conv.plain and self.format == last:
            made = self._pixelwise(conv)
            if made is not None:
                return made
        conv = replace(conv, batch=self.task.extent(self.x.shape[0]), axes=self._program_axes(axes))
        if self._pairs_taps(conv):
            conv = conv.with_even_rows()
        space = self._space(merge=False)
        if points is None:
            points = is_faster(conv, self.target)
        if points and not self.anchor.attrs.get("direct"):
            return _Way(winograd_tilings(conv, self.target), lambda chosen: self._emit_points(chosen, conv, space))
        return self._product(conv, space, pixelwise=False)

    def _weight_zero(self) -> int:
        zero = self.anchor.input(3) if self.anchor.op == "ConvInteger" else None
        return 0 if zero is None or zero.recipe is None else int(zero.recipe.array().reshape(()))

    def _outside(self) -> View | None:
        """What lies outside of the input, where only the run knows it."""
        value = self.anchor.input(2) if self.anchor.op == "ConvInteger" else None
        if value is None:
            return None
        value = outer_inputs(self.node).get(value.name, value)
        return self.task.operand(value, "in", (1,)).window((0,), (1,))

    def _together(self, channels: int) -> int:
        """Channels of a column that lie together in the packed weight of a host."""
        if self.target.explicit_memory or self.x.format != channels_last(self.x.rank):
            return 1
        if self.x.dtype.is_integer:
            return 4
        engines = self.target.engines
        pairs = engines.tile_registers or engines.dot_bf16
        return 2 if self.x.dtype == BF16 and pairs and channels % 2 == 0 else 1

    def _pairs_taps(self, conv: ConvShape) -> bool:
        """True if the host multiplies bf16 numbers in pairs and the taps of a plain row are neighbours."""
        last = conv.axes[-1]
        whole = conv.plain and conv.groups == 1 and last.kernel > 1 and last.dilation == 1
        return whole and conv.dtype == BF16 and self.target.engines.dot_bf16

    def _space(self, merge: bool) -> Space:
        channel = order(self.format, len(self.shape)).index(1)
        values = [*self.attached.extras.values(), *(v for _, v in self.outputs)]
        return Space(self.task, self.shape, self.format, values, apart=[channel], merge=merge)

    def _program_axes(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        """The axes over program dims; run-time outputs are expressions of the inputs."""
        lows = axis_lows(axes)
        sizes = [self.task.extent(a.size, lows[a.size]) for a in axes]
        result = []
        for a, size, out in zip(axes, sizes, output_extents(self.anchor, axes, sizes), strict=True):
            result.append(Axis(size, self.task.relate(a.out, out), a.kernel, a.stride, a.dilation, a.before, a.after))
        return tuple(result)

    def _pixelwise(self, conv: ConvShape) -> _Way | None:
        """A matrix product over all pixels, if every operand sees batch and pixels as at most two axes."""
        space = self._space(merge=True)
        if len(space.groups) > 3:
            self._start()
            return None
        extents = space.extents[:-1]
        batch: Dim = extents[0] if len(extents) == 2 else 1
        pixels: Dim = extents[-1] if extents else 1
        flat = replace(conv, batch=batch, axes=(Axis(pixels, pixels, 1, 1, 1, 0, 0),))
        return self._product(flat, space, pixelwise=True)

    def _product(self, conv: ConvShape, space: Space, pixelwise: bool) -> _Way:
        tilings = cube_tilings(conv, self.target) if self.target.explicit_memory else conv_tilings(conv, self.target)
        return _Way(tilings, lambda chosen: self._emit(chosen, conv, space, pixelwise))

    def _emit(self, tiling: Any, conv: ConvShape, space: Space, pixelwise: bool) -> list[Record]:
        task, w, target, panel = self.task, self.w, self.target, tiling.panel
        # A cube's operand is made from any order of the input: the weight's channels always lie innermost.
        form = replace(conv, plain=False) if target.explicit_memory else conv
        x = task.operand(self.x, shape=conv.input_shape())
        permute, reshape, packing = weight_packing(form, panel, w.rank)
        weight = task.operand(w, shape=weight_shape(form, panel), permute=permute, reshape=reshape, packing=packing)

        def finish(acc: View, index: tuple[Dim, ...]) -> None:
            self._finish(space, acc, task.tile_shape(acc.base), index, pixelwise, self.bias)

        if target.explicit_memory:
            self.vector = tiling.vector
            emit_conv_on_cube(self.paths, conv, tiling, x, weight, finish)
        else:
            emit_conv(task, conv, tiling, x, weight, finish, self._outside())
        return [task.record(work=self._work(product(conv.kernel) * conv.channels))]

    def _emit_points(self, tiling: WinogradTiling, conv: ConvShape, space: Space) -> list[Record]:
        task = self.task
        x = task.operand(self.x, shape=conv.input_shape())
        permute, packing = transformed_packing(conv, tiling)
        weight = task.operand(
            self.w, shape=transformed_shape(conv, tiling), permute=permute, packing=packing, dtype=F32
        )

        def finish(acc: View, index: tuple[Dim, ...]) -> None:
            self._finish(space, acc, task.tile_shape(acc.base)[-len(conv.axes) - 1 :], index, False, self.bias)

        kind = DilatedWinograd if conv.axes[-1].dilation > 1 else Winograd
        kind(task, conv, tiling, x, weight, finish).emit()
        return [task.record(work=self._work(product(conv.kernel) * conv.channels))]

    def _transposed(self, groups: int, channels: int, features: int, kernel: Sequence[int]) -> _Way:
        task = self.task
        assert self.x.shape is not None
        axes = transposed_axes(self.anchor, self.x.shape[2:], self.shape[2:], kernel)
        least = [max(0, -(-(a.before + a.after - a.reach) // a.stride) + 1) for a in axes]  # no output is below 0
        sizes = [task.extent(a.size, low) for a, low in zip(axes, least, strict=True)]
        program = [
            Axis(size, task.relate(a.out, (size - 1) * a.stride + a.reach - a.before - a.after), a.kernel, a.stride,
                 a.dilation, a.before, a.after)
            for a, size in zip(axes, sizes, strict=True)
        ]  # fmt: skip
        last = channels_last(len(self.shape))
        shape = TransposedShape(
            task.extent(self.x.shape[0]), tuple(program), groups, channels // groups, features, self.x.dtype,
            self.x.format != last,
        )  # fmt: skip
        tilings = transposed_tilings_on_cube if self.target.explicit_memory else transposed_tilings
        return _Way(tilings(shape, self.target), lambda chosen: self._emit_transposed(chosen, shape, kernel))

    def _emit_transposed(self, tiling: Any, shape: TransposedShape, kernel: Sequence[int]) -> list[Record]:
        task, w, panel = self.task, self.w, tiling.panel
        groups, features = shape.groups, shape.features
        channels = groups * shape.channels
        spatial = tuple(a.size for a in shape.axes)
        physical_ = (channels, *spatial) if shape.plain else (*spatial, channels)
        x = task.operand(self.x, shape=(shape.batch, *physical_))
        if not self.target.explicit_memory and tiling.together:
            columns = prod(kernel) * features
            weight = task.operand(
                w, shape=(groups, 1, channels // groups, panel), permute=(0, *range(2, w.rank), 1),
                reshape=(groups, channels // groups, columns), packing=panels(panel, 3),
            )  # fmt: skip
        else:
            weight = task.operand(
                w, shape=(*kernel, groups, -(-features // panel), channels // groups, panel),
                permute=(*range(2, w.rank), 0, 1), reshape=(*kernel, groups, channels // groups, features),
                packing=panels(panel, len(kernel) + 3),
            )  # fmt: skip
        space = self._space(merge=False)

        def finish(acc: View, index: tuple[Dim, ...]) -> None:
            self._finish(space, acc, task.tile_shape(acc.base), index, False, self.bias)

        if self.target.explicit_memory:
            self.vector = tiling.vector
            emit_transposed_on_cube(self.paths, shape, tiling, x, weight, finish)
        else:
            emit_transposed(task, shape, x, weight, tiling, finish)
        return [task.record(work=self._work(product(kernel) * shape.channels))]

    def _depthwise(self, axes: Sequence[Axis], channels: int) -> _Way:
        task = self.task
        assert self.x.shape is not None and self.w.shape is not None
        batch = task.extent(self.x.shape[0])
        shape = DepthwiseShape(batch, self._program_axes(axes), channels, accumulator_dtype(self.x.dtype))
        tilings = window_tilings(shape, self.target)
        return _Way(tilings, lambda chosen: self._emit_depthwise(chosen, shape))

    def _emit_depthwise(self, tiling: WindowTiling, shape: DepthwiseShape) -> list[Record]:
        task, batch, channels = self.task, shape.batch, shape.channels
        spatial = tuple(a.size for a in shape.axes)
        if self.x.format == channels_last(self.x.rank):
            x = task.operand(self.x, shape=(batch, *spatial, channels))
        else:
            x = ChannelsFirst.of(task.operand(self.x, shape=(batch, channels, *spatial)))
        rank = self.w.rank
        kernel = tuple(a.kernel for a in shape.axes)
        weight = task.operand(
            self.w, shape=(*kernel, channels), permute=(*range(2, rank), 1, 0), reshape=(*kernel, channels)
        )
        bias = None if self.bias is None else task.operand(self.bias, shape=(channels,))
        space = self._space(merge=False)

        def finish(acc: View, sizes: tuple[int, ...], index: tuple[Dim, ...]) -> None:
            self._finish(space, acc, sizes, index, False, None)

        emit_depthwise(self.paths, shape, x, weight, bias, finish, tiling)
        return [task.record(work=self._work(shape.taps))]

    def _work(self, per_output: Dim) -> Dim:
        return 2 * per_output * product(self.task.extent(d) for d in self.shape)

    def _finish(
        self, space: Space, acc: View, sizes: tuple[int, ...], index: tuple[Dim, ...], pixelwise: bool,
        bias: Value | None,
    ) -> None:  # fmt: skip
        """Bias, epilogue and store of one block; `index` is batch, positions.., channel."""
        with self.paths.part(acc, sizes, self.vector or prod(sizes)) as part:
            moved = tuple(part.moved(i) for i in index)
            self._finish_part(space, part.view, part.shape, moved, pixelwise, bias)

    def _finish_part(
        self, space: Space, acc: View, sizes: tuple[int, ...], index: tuple[Dim, ...], pixelwise: bool,
        bias: Value | None,
    ) -> None:  # fmt: skip
        task, dtype, paths = self.task, self.anchor.output.dtype, self.paths
        wide_dtype = accumulator_dtype(dtype)
        emitter = ElementwiseEmitter(task, sizes, acc.shape, prefix=f"e{self.emitters}_")
        self.emitters += 1
        if pixelwise:
            groups = list(index[-len(space.groups) :]) if len(space.groups) > 1 else [index[-1]]
        else:
            logical = (index[0], index[-1], *index[1:-1])
            places = order(self.format, len(self.shape))
            groups = [logical[places[g[0]]] for g in space.groups]
        on_cube = task.scope(acc.base) == "L0C"
        result: Operand = paths.to_vector(acc, sizes, wide_dtype) if on_cube else acc
        if bias is not None:
            row = task.operand(bias, shape=physical(bias)).view(index[-1], shape=acc.shape)
            wide: Operand = paths.vector_input(row, sizes, bias.dtype)
            if bias.dtype != wide_dtype:
                wide = emitter.apply("TCVT", wide_dtype, wide)
            result = emitter.apply("TADD", wide_dtype, result, wide)
        if dtype in (F16, BF16):
            result = emitter.apply("TCVT", dtype, result)
        def view(value: Value, role: str = "in") -> View:
            return space.view(value, groups, acc.shape, role)

        given = {self.anchor.output.name: result}
        operands = self.attached.emit(emitter, paths, view, given, body_of(self.node).outputs)
        store_results(paths, emitter, self.outputs, operands, lambda value: view(value, "out"))
