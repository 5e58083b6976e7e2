"""Pooling: maximum, average and Lp over windows, in channels-last or plain order; global pools are reductions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from codegen.kernels.conv_geometry import Axis, axis_lows, output_extents, sliding_axes
from codegen.kernels.depthwise_core import ChannelsFirst, DepthwiseShape, WindowTiling, emit_windows, window_tilings
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_inputs, outer_outputs, shape_of
from codegen.kernels.reduction import lower_reduction
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit
from codegen.targets.target import Target
from codegen.tile.ir import View
from graph_opt.ir.core import Node
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, product
from tensor_types.dtypes import BF16, F16, F32
from tensor_types.formats import channels_last

_LARGEST_WINDOW = 1 << 14
"""Elements of a window: programs treat the taps of a row one by one."""


def lower_pool(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around a pooling operator; NotLowerable says why there is none."""
    body = body_of(node)
    if any(n.op.startswith("Global") for n in body.nodes):
        return lower_reduction(node, target, tiling)
    if len(body.nodes) != 1 or body.nodes[0].op not in ("MaxPool", "AveragePool"):
        raise NotLowerable(f"{body.nodes[0].op} has no kernel")
    if any(d == 0 for _, v in outer_outputs(node) for d in shape_of(v)):
        return []
    kernel = _Pool(node, body.nodes[0], target)
    return first_fit(kernel.candidates(), lambda chosen: _Pool(node, body.nodes[0], target).emit(chosen), tiling)


class _Pool:
    """One pooling operator: its window shape over program dims, and the task that walks over it."""

    def __init__(self, node: Node, op: Node, target: Target) -> None:
        outputs = outer_outputs(node)
        if [inner for inner, _ in outputs] != [v.name for v in op.outputs[:1]]:
            raise NotLowerable("indices as a result")
        source = op.inputs[0]
        assert source is not None
        self.x, self.y = outer_inputs(node).get(source.name, source), outputs[0][1]
        x, shape, self.result = self.x, shape_of(self.x), shape_of(self.y)
        self.average = op.op == "AveragePool"
        narrow = x.dtype in (F16, BF16)
        if x.format != self.y.format or (self.average and narrow and not target.explicit_memory):
            raise NotLowerable(f"{op.op} of {x.dtype} from {x.format} to {self.y.format}")
        self.task = KernelTask(node, "pool", target)
        self.paths = MemoryPaths(self.task, target)
        self.paths.require(x.dtype)
        kernel = [int(k) for k in op.attrs["kernel_shape"]]  # type: ignore[union-attr]
        if prod(kernel) > _LARGEST_WINDOW:
            raise NotLowerable(f"windows of {prod(kernel)} elements: a kernel takes {_LARGEST_WINDOW}")
        axes = sliding_axes(op, shape[2:], self.result[2:], kernel)
        if axes is None:
            raise NotLowerable("SAME pads of a run-time size")
        self.include = bool(op.attrs.get("count_include_pad", 0))
        ceil = bool(op.attrs.get("ceil_mode", 0))
        padded = any(a.padded for a in axes)
        if self.average and ceil and padded and self.include:
            raise NotLowerable("AveragePool with ceil_mode that counts pads")
        # A chip's vectors run along channels in either order; on the host plain rows are contiguous.
        self.last = x.format == channels_last(len(shape))
        self.merged = not self.last and not target.explicit_memory
        batch = self.task.extent(shape[0] * shape[1] if self.merged else shape[0])
        channels = 1 if self.merged else shape[1]
        if not isinstance(channels, int):
            raise NotLowerable("a run-time number of channels")
        windows = _program_axes(self.task, op, axes, ceil)
        self.windows = DepthwiseShape(batch, windows, channels, F32 if self.average and narrow else x.dtype)
        self.partial = not (self.average and self.include)
        self.counted = self.average and padded and not self.include

    def candidates(self) -> Iterator[WindowTiling]:
        return window_tilings(self.windows, self.task.target, self.partial, self.counted)

    def emit(self, tiling: WindowTiling) -> list[Record]:
        task, paths, x, y, windows = self.task, self.paths, self.x, self.y, self.windows
        sizes, outs = tuple(a.size for a in windows.axes), tuple(a.out for a in windows.axes)
        batch, channels = windows.batch, windows.channels
        if self.last or self.merged:
            source = task.operand(x, shape=(batch, *sizes, channels))
            destination = task.operand(y, "out", (batch, *outs, channels))
        else:
            source = ChannelsFirst.of(task.operand(x, shape=(batch, channels, *sizes)))
            destination = ChannelsFirst.of(task.operand(y, "out", (batch, channels, *outs)))
        lowest: float | int = 0.0
        if not self.average:
            lowest = float("-inf") if x.dtype.is_float else -(1 << (x.dtype.bits - 1)) if x.dtype.kind == "int" else 0
        combine = task.add if self.average else task.max

        def chain(acc: View, terms: list[tuple[tuple[Dim, ...], View]], channel: Dim, resume: bool) -> None:
            if not terms:
                task.expands(acc, lowest)
            held = acc if resume else None
            for _, view in terms:
                if held is not None:
                    combine(acc, held, view)
                elif len(terms) == 1:
                    task.mov(acc, view)
                held = view if held is None else acc

        def close(acc: View, taps: int) -> None:
            if self.average:
                task.mul(acc, acc, 1.0 / (windows.taps if self.include else max(taps, 1)))

        def finish(block: View, sizes: tuple[int, ...], index: tuple[Dim, ...]) -> None:
            if windows.dtype != y.dtype:
                wide, block = block, paths.passing(y.dtype, sizes, "UB").window((0,) * len(sizes), block.shape)
                task.cvt(block, wide)
            task.store(destination.view(*index, shape=block.shape), block)

        emit_windows(paths, windows, source, chain, close, finish, lowest, tiling, self.partial, self.counted)
        return [task.record(product(task.extent(d) for d in self.result) * windows.taps)]


def _program_axes(task: KernelTask, op: Node, axes: Sequence[Axis], ceil: bool) -> tuple[Axis, ...]:
    lows = axis_lows(axes)
    sizes = [task.extent(a.size, lows[a.size]) for a in axes]
    outs = [task.extent(a.out) for a in axes] if ceil else [
        task.relate(a.out, out) for a, out in zip(axes, output_extents(op, axes, sizes), strict=True)
    ]  # fmt: skip
    return tuple(
        Axis(size, out, a.kernel, a.stride, a.dilation, a.before, a.after)
        for a, size, out in zip(axes, sizes, outs, strict=True)
    )
