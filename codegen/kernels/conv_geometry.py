"""Sliding windows over spatial axes: extents, pads and blocks that convolution and pooling share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graph_opt.ir.core import Node
from tensor_types.dims import Dim, ceildiv, dmax, floordiv


@dataclass(frozen=True)
class Axis:
    """One spatial axis: `size` input and `out` output positions; a window of `kernel` taps, `dilation` apart."""

    size: Dim
    out: Dim
    kernel: int
    stride: int
    dilation: int
    before: int
    """Padding in front; negative pads crop."""
    after: int
    """Padding behind that output positions reach at most; more where `ceil_mode` rounds up."""

    @property
    def reach(self) -> int:
        """Input positions from a window's first tap to its last, inclusive."""
        return (self.kernel - 1) * self.dilation + 1

    def span(self, outputs: Dim) -> Dim:
        """Input positions that a run of so many output positions covers."""
        return (outputs - 1) * self.stride + self.reach

    def outputs_within(self, positions: int, gaps: bool) -> int:
        """The longest run of output positions that reads at most so many input positions, at least 1.

        `gaps`: what a dilated window steps over counts as well.
        """
        spanned = (positions - self.reach) // self.stride + 1
        return max(1, spanned if gaps else max(spanned, positions // self.kernel))

    def reads(self, outputs: int, gaps: bool) -> int:
        """Input positions that a run of so many output positions reads."""
        span = self.span(outputs)
        assert isinstance(span, int)
        return span if gaps else min(span, outputs * self.kernel)

    @property
    def padded(self) -> bool:
        """True if a window may leave the input."""
        return self.before > 0 or self.after > 0

    @property
    def is_identity(self) -> bool:
        """True if output positions are input positions."""
        return self.kernel == 1 and self.stride == 1 and self.before == 0 and self.after == 0


def _numbers(node: Node, name: str, rank: int, default: int) -> list[int]:
    value = node.attrs.get(name)
    return [default] * rank if value is None else [int(v) for v in value]  # type: ignore[union-attr]


def sliding_axes(node: Node, size: Sequence[Dim], out: Sequence[Dim], kernel: Sequence[int]) -> list[Axis] | None:
    """The spatial axes of a Conv or pooling node; None where `SAME` pads depend on a run-time size."""
    rank = len(kernel)
    strides = _numbers(node, "strides", rank, 1)
    dilations = _numbers(node, "dilations", rank, 1)
    pads = _numbers(node, "pads", 2 * rank, 0)
    auto = str(node.attrs.get("auto_pad", "NOTSET") or "NOTSET")
    axes = []
    for i in range(rank):
        before, after = pads[i], pads[rank + i]
        reach = (kernel[i] - 1) * dilations[i] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            total = dmax(0, (ceildiv(size[i], strides[i]) - 1) * strides[i] + reach - size[i])
            if not isinstance(total, int):
                if strides[i] != 1:
                    return None
                total = reach - 1
            before = total // 2 if auto == "SAME_UPPER" else total - total // 2
            after = total - before
        elif auto == "VALID":
            before = after = 0
        # What the last window really reaches: less than the pads where strides skip them, more in ceil mode.
        excess = (out[i] - 1) * strides[i] + reach - before - size[i]
        further = strides[i] if node.attrs.get("ceil_mode") else 0
        after = max(excess, 0) if isinstance(excess, int) else max(after, 0) + further
        axes.append(Axis(size[i], out[i], kernel[i], strides[i], dilations[i], before, after))
    return axes


def axis_lows(axes: Sequence[Axis]) -> Mapping[Dim, int]:
    """The least size of each input axis, by graph dim, with which every output has at least one position."""
    lows: dict[Dim, int] = {}
    for a in axes:
        lows[a.size] = max(lows.get(a.size, 0), a.reach - a.before - a.after)
    return lows


def output_extents(node: Node, axes: Sequence[Axis], sizes: Sequence[Dim]) -> list[Dim]:
    """Output positions as expressions of the input sizes (of a Conv, or of a pooling node without ceil_mode)."""
    same = str(node.attrs.get("auto_pad", "NOTSET") or "NOTSET").startswith("SAME")
    return [
        a.out if isinstance(a.out, int)
        else ceildiv(size, a.stride) if same
        else floordiv(size + (a.before + a.after - a.reach), a.stride) + 1
        for a, size in zip(axes, sizes, strict=True)
    ]  # fmt: skip


def transposed_axes(node: Node, size: Sequence[Dim], out: Sequence[Dim], kernel: Sequence[int]) -> list[Axis]:
    """The spatial axes of a ConvTranspose, pads worked out from its output shape; `after` may be negative."""
    rank = len(kernel)
    strides, dilations = _numbers(node, "strides", rank, 1), _numbers(node, "dilations", rank, 1)
    pads = _numbers(node, "pads", 2 * rank, 0)
    auto = str(node.attrs.get("auto_pad", "NOTSET") or "NOTSET")
    axes = []
    for i in range(rank):
        reach = (kernel[i] - 1) * dilations[i] + 1
        # Everything that the output lacks of the full result; output_padding makes it less.
        total = (size[i] - 1) * strides[i] + reach - out[i]
        before = pads[i] if auto == "NOTSET" else 0
        extra = _numbers(node, "output_padding", rank, 0)[i]
        if isinstance(total, int) and (auto.startswith("SAME") or node.attrs.get("output_shape")):
            whole = total + extra
            before = whole // 2 if auto == "SAME_UPPER" else whole - whole // 2
        after = total - before
        if not isinstance(after, int):
            after = pads[rank + i] - extra
        axes.append(Axis(size[i], out[i], kernel[i], strides[i], dilations[i], before, after))
    return axes


def tap_classes(axis: Axis) -> list[tuple[int, int, tuple[int, ...]]]:
    """(first output, count, taps inside the input) for runs of output positions of a static axis."""
    assert isinstance(axis.size, int) and isinstance(axis.out, int)
    runs: list[tuple[int, int, tuple[int, ...]]] = []
    for o in range(axis.out):
        first = o * axis.stride - axis.before
        taps = tuple(t for t in range(axis.kernel) if 0 <= first + t * axis.dilation < axis.size)
        if runs and runs[-1][2] == taps:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, taps)
        else:
            runs.append((o, 1, taps))
    return runs


def even_block(extent: int, most: int) -> int:
    """A block of at most `most` that cuts the extent into equal parts, or nearly equal ones."""
    parts = max(1, -(-extent // max(1, most)))
    for count in range(parts, min(2 * parts, extent) + 1):
        if extent % count == 0:
            return extent // count
    return -(-extent // parts)
