"""Pooling: maximum, average and Lp over windows, in channels-last or plain order; global pools are reductions."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.kernels.conv_geometry import Axis, axis_lows, output_extents, sliding_axes
from codegen.kernels.depthwise_core import ChannelsFirst, DepthwiseShape, emit_windows
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, shape_of
from codegen.kernels.reduction import lower_reduction
from codegen.kernels.region_space import body_of, outer_outputs, outer_values
from codegen.kernels.region_task import KernelTask
from codegen.targets.target import Target
from codegen.tile.ir import View
from graph_opt.ir.core import Node
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, product
from tensor_types.dtypes import BF16, F16, F32
from tensor_types.formats import channels_last

_CHIP_BLOCK = 64
"""Positions of a block on a chip, to begin with."""


def lower_pool(node: Node, target: Target) -> list[Record]:
    """One task for a Fused node around a pooling operator; NotLowerable says why there is none."""
    body = body_of(node)
    if any(n.op.startswith("Global") for n in body.nodes):
        return lower_reduction(node, target)
    if len(body.nodes) != 1 or body.nodes[0].op not in ("MaxPool", "AveragePool"):
        raise NotLowerable(f"{body.nodes[0].op} has no kernel")
    most = _CHIP_BLOCK
    while True:
        task, work = _pooled(node, body.nodes[0], target, most)
        if not target.explicit_memory or task.bytes_in("UB") <= target.memories["UB"].bytes:
            return [task.record(work)] if work != 0 else []
        most //= 2
        if not most:
            raise NotLowerable("no block of positions fits the vector engine's memory")


def _pooled(node: Node, op: Node, target: Target, most: int) -> tuple[KernelTask, Dim]:
    """The task and its work; on a chip for blocks of `most` positions."""
    outputs = outer_outputs(node)
    if len(outputs) != 1:
        raise NotLowerable("indices as a result")
    source = op.inputs[0]
    assert source is not None
    x, y = outer_values(node).get(source.name, source), outputs[0][1]
    shape, result = shape_of(x), shape_of(y)
    average = op.op == "AveragePool"
    narrow = x.dtype in (F16, BF16)
    if x.format != y.format or (average and narrow and not target.explicit_memory):
        raise NotLowerable(f"{op.op} of {x.dtype} from {x.format} to {y.format}")
    task = KernelTask(node, "pool")
    paths = MemoryPaths(task, target)
    paths.require(x.dtype)
    if any(d == 0 for d in result):
        return task, 0
    kernel = [int(k) for k in op.attrs["kernel_shape"]]  # type: ignore[union-attr]
    axes = sliding_axes(op, shape[2:], result[2:], kernel)
    if axes is None:
        raise NotLowerable("SAME pads of a run-time size")
    include = bool(op.attrs.get("count_include_pad", 0))
    ceil = bool(op.attrs.get("ceil_mode", 0))
    padded = any(a.padded for a in axes)
    static = all(isinstance(a.size, int) for a in axes)
    if average and ceil and padded and include:
        raise NotLowerable("AveragePool with ceil_mode that counts pads")
    if average and padded and not include and not static:
        raise NotLowerable("AveragePool of a run-time size that does not count pads")
    # A chip's vectors run along channels in either order; on the host plain rows are contiguous.
    last = x.format == channels_last(len(shape))
    merged = not last and not target.explicit_memory
    batch = task.extent(shape[0] * shape[1] if merged else shape[0])
    channels = 1 if merged else shape[1]
    if not isinstance(channels, int):
        raise NotLowerable("a run-time number of channels")
    windows = _program_axes(task, op, axes, ceil)
    pooled = DepthwiseShape(batch, windows, channels, F32 if average and narrow else x.dtype)
    spatial = tuple(a.size for a in windows), tuple(a.out for a in windows)
    if last or merged:
        source_buffer = task.operand(x, shape=(batch, *spatial[0], channels))
        target_buffer = task.operand(y, "out", (batch, *spatial[1], channels))
    else:
        source_buffer = ChannelsFirst.of(task.operand(x, shape=(batch, channels, *spatial[0])))
        target_buffer = ChannelsFirst.of(task.operand(y, "out", (batch, channels, *spatial[1])))
    volume = product(kernel)
    assert isinstance(volume, int)

    lowest: float | int = 0.0
    if not average:
        lowest = float("-inf") if x.dtype.is_float else -(1 << (x.dtype.bits - 1)) if x.dtype.kind == "int" else 0
    combine = task.add if average else task.max

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
        if average:
            task.mul(acc, acc, 1.0 / (volume if include else max(taps, 1)))

    def finish(block: View, sizes: tuple[int, ...], index: tuple[Dim, ...]) -> None:
        if pooled.dtype != y.dtype:
            wide, block = block, paths.passing(y.dtype, sizes, "UB").window((0,) * len(sizes), block.shape)
            task.cvt(block, wide)
        task.store(target_buffer.view(*index, shape=block.shape), block)

    emit_windows(
        paths, pooled, source_buffer, chain, close, finish, lowest, most,
        partial=not (average and include), counted=average and padded and not include,
    )  # fmt: skip
    return task, product(task.extent(d) for d in result) * volume


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
