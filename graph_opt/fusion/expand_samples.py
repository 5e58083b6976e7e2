"""Writes operators that read an image between its elements as gathers of its pixels and their weighted sums.

    GridSample(x, grid)           -> sum over taps of (pixel of x at the tap, 0 outside) * weight
    RoiAlign(x, rois, batches)    -> mean over the samples of each bin of the same

A pixel is a row of channels: x is read with its channels last, its batch and space as one axis, by the position there.
Which pixels, and with what weights, is arithmetic on floats, in f32 as the model has it.

Rules
1. f32, 1 to 3 axes of space. Of cubic samples those with padding by reflection stay.
2. RoiAlign: means over a number of samples that the model gives; an index of no image becomes one of no pixel, so that
   it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as combinations
from typing import ClassVar

import numpy as np

from graph_opt.fusion.position_writer import NOWHERE, Writer
from graph_opt.ir import Value
from graph_opt.ir.patterns import Declined, Match, any_value, attribute, op
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass
from tensor_types.dtypes import F32

_CUBIC = -0.75
_MOST_AXES = 3


Tap = tuple[Value, "Value | None"]
"""A place along an axis, a whole number as f32, and its weight (None: 1)."""


class _Samples(Writer):
    """Reads of an image x [N, C, space...] at points between its elements."""

    def __init__(self, rewriter: Rewriter, match: Match, x: Value) -> None:
        super().__init__(rewriter, match)
        self.x, self.rank = x, len(x.shape or ()) - 2
        self.sizes = [self.extent(x, 2 + axis) for axis in range(self.rank)]
        self.lasts = [self("Sub", size, self.number(1)) for size in self.sizes]

    def real(self, value: Value) -> Value:
        return self("Cast", value, to=F32.onnx)

    def constant(self, value: float, word: str = "factor") -> Value:
        return self.rewriter.constant(np.float32(value), f"{self.name}/{word}")

    def rows(self) -> Value:
        """x as [N * space, C]."""
        moved = self("Transpose", self.x, perm=[0, *range(2, 2 + self.rank), 1])
        channels = self("Shape", self.x, start=1, end=2)
        return self("Reshape", moved, self("Concat", self.number([-1], "rows"), channels, axis=0))

    def taps(self, mode: str, at: Value) -> list[Tap]:
        """The taps along an axis at a point."""
        if mode == "nearest":
            return [(self("Round", at), None)]
        base = self("Floor", at)
        t = self("Sub", at, base)
        if mode == "linear":
            return [(base, self("Sub", self.constant(1), t)), (self("Add", base, self.constant(1)), t)]
        far = self("Sub", self.constant(1), t)
        weights = (self.outer(t), self.inner(t), self.inner(far), self.outer(far))
        return [(self("Add", base, self.constant(k - 1)), w) for k, w in enumerate(weights)]

    def polynomial(self, t: Value, *factors: float) -> Value:
        """Horner's form, highest power first."""
        total = self.constant(factors[0])
        for factor in factors[1:]:
            total = self("Add", self("Mul", total, t), self.constant(factor))
        return total

    def inner(self, t: Value) -> Value:
        """Cubic weight of a pixel at a distance t of up to 1."""
        return self.polynomial(t, _CUBIC + 2, -(_CUBIC + 3), 0, 1)

    def outer(self, t: Value) -> Value:
        """That of the pixel one further, at a distance of 1 + t."""
        return self.polynomial(self("Add", t, self.constant(1)), _CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)

    def between(self, value: Value, last: Value) -> Value:
        """Whether 0 <= value <= last."""
        return self("And", self("GreaterOrEqual", value, self.constant(0)), self("LessOrEqual", value, last))

    def sum(self, rows: Value, first: Value, taps: Sequence[Sequence[Tap]], zeros: bool) -> Value:
        """[points, C]: the sum of the pixels at every choice of one tap an axis. `first` is the image of each point;
        with `zeros` what lies outside counts as 0, else as the nearest pixel."""
        total = None
        axes = [
            [(self.inside(place, axis), self.between(place, self.real(last)) if zeros else None, weight)
             for place, weight in found]
            for axis, (found, last) in enumerate(zip(taps, self.lasts, strict=True))
        ]  # fmt: skip
        for choice in combinations(*axes):
            position, inside, weight = first, None, None
            for (place, within, factor), size in zip(choice, self.sizes, strict=True):
                position = self("Add", self("Mul", position, size), place)
                inside = within if inside is None or within is None else self("And", inside, within)
                weight = factor if weight is None or factor is None else self("Mul", weight, factor)
            part = self("Gather", rows, position, axis=0)
            along = self.number([-1], "along")
            if inside is not None:
                part = self("Where", self("Unsqueeze", inside, along), part, self.constant(0))
            if weight is not None:
                part = self("Mul", part, self("Unsqueeze", weight, along))
            total = part if total is None else self("Add", total, part)
        assert total is not None
        return total

    def inside(self, place: Value, axis: int) -> Value:
        """The nearest whole place on an axis, i64; NaN and infinities have one too."""
        near = self("Clip", place, self.constant(0), self.real(self.lasts[axis]))
        return self("Clip", self("Cast", near, to=7), self.number(0), self.lasts[axis])


def _grid_sample(rewriter: Rewriter, match: Match) -> Declined | None:
    x, grid, root = match["x"], match["grid"], match.root
    if x.shape is None or grid.shape is None or not 3 <= len(x.shape) <= 2 + _MOST_AXES:
        return Declined("its rank")
    if x.dtype != F32 or grid.dtype != F32 or 0 in x.shape:
        return Declined("its dtype, or an image of no elements")
    mode, padding = str(attribute(root, "mode")), str(attribute(root, "padding_mode"))
    corners = bool(attribute(root, "align_corners"))
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if mode == "cubic" and padding == "reflection":
        return Declined("cubic samples padded by reflection")
    w = _Samples(rewriter, match, x)
    taps = []
    for axis in range(w.rank):
        at = w("Gather", grid, w.number(w.rank - 1 - axis, "which"), axis=-1)
        size, one = w.real(w.sizes[axis]), w.constant(1)
        scaled = w("Add", at, one)
        if corners:
            at = w("Mul", w("Div", scaled, w.constant(2)), w("Sub", size, one))
        else:
            at = w("Div", w("Sub", w("Mul", scaled, size), one), w.constant(2))
        if padding == "reflection":
            at = _reflected(w, at, size, corners)
        taps.append(w.taps(mode, at))
    images = w("Reshape", w.positions(x, 0), w.number([-1, *[1] * w.rank], "along"))
    total = w.sum(w.rows(), images, taps, padding == "zeros")
    match.become(rewriter, "Transpose", [total], {"perm": [0, w.rank + 1, *range(1, w.rank + 1)]})
    return None


def _reflected(w: _Samples, at: Value, size: Value, corners: bool) -> Value:
    """The point folded back into the image, whose ends are the middles of its outer pixels or their edges."""
    low = w.constant(0 if corners else -0.5)
    span = w("Sub", size, w.constant(1)) if corners else size
    safe = w("Max", span, w.constant(1))  # of one pixel all points are the same
    away = w("Abs", w("Sub", at, low))
    times = w("Floor", w("Div", away, safe))
    rest = w("Sub", away, w("Mul", times, safe))
    odd = w("Sub", times, w("Mul", w("Floor", w("Div", times, w.constant(2))), w.constant(2)))
    folded = w("Add", w("Where", w("Greater", odd, w.constant(0)), w("Sub", safe, rest), rest), low)
    return w("Clip", folded, w.constant(0), w("Sub", size, w.constant(1)))


def _roi_align(rewriter: Rewriter, match: Match) -> Declined | None:
    x, rois, batches, root = match["x"], match["rois"], match["batches"], match.root
    ratio = int(attribute(root, "sampling_ratio"))  # type: ignore[call-overload]
    if x.shape is None or len(x.shape) != 4 or rois.shape is None or 0 in x.shape or {x.dtype, rois.dtype} != {F32}:
        return Declined("its rank or dtype")
    if ratio <= 0 or attribute(root, "mode") != "avg":
        return Declined("a number of samples that the data decides, or their maximum")
    w = _Samples(rewriter, match, x)
    half = attribute(root, "coordinate_transformation_mode") == "half_pixel"
    counts = [int(attribute(root, name)) for name in ("output_height", "output_width")]  # type: ignore[call-overload]
    shift, scale = w.constant(0.5 if half else 0.0), w.constant(float(attribute(root, "spatial_scale")))  # type: ignore[arg-type]
    ends = [w("Sub", w("Mul", w("Gather", rois, w.number(k, "which"), axis=1), scale), shift) for k in range(4)]
    taps, within = [], None
    for axis, bins in enumerate(counts):
        begin, end = ends[1 - axis], ends[3 - axis]
        length = w("Sub", end, begin)
        if not half:
            length = w("Max", length, w.constant(1))
        steps = (np.arange(bins * ratio, dtype=np.float32) + np.float32(0.5)) / np.float32(bins * ratio)
        steps = steps.reshape((-1, 1) if axis == 0 else (1, -1))
        along = w.number([1, 2], "along")
        offset = w("Mul", w("Unsqueeze", length, along), rewriter.constant(steps, f"{w.name}/steps"))
        at = w("Add", w("Unsqueeze", begin, along), offset)
        size = w.real(w.sizes[axis])
        near = w("And", w("GreaterOrEqual", at, w.constant(-1)), w("LessOrEqual", at, size))
        within = near if within is None else w("And", within, near)
        taps.append(w.taps("linear", w("Clip", at, w.constant(0), w.real(w.lasts[axis]))))
    image, images = w.as_i64(batches), w.extent(x, 0)
    wrong = w("Or", w("Less", image, w.number(0)), w("GreaterOrEqual", image, images))
    # Far beyond the pixels, and small enough to be multiplied with the sizes of the image.
    image = w("Where", wrong, w.number(int(NOWHERE) >> 40, "nowhere"), image)
    total = w.sum(w.rows(), w("Unsqueeze", image, w.number([1, 2], "along")), taps, zeros=False)
    assert within is not None
    total = w("Where", w("Unsqueeze", within, w.number([-1], "along")), total, w.constant(0))
    parts = w.number([-1, counts[0], ratio, counts[1], ratio], "parts")
    parted = w("Reshape", total, w("Concat", parts, w("Shape", x, start=1, end=2), axis=0))
    mean = w("ReduceMean", parted, w.number([2, 4], "samples"), keepdims=0)
    match.become(rewriter, "Transpose", [mean], {"perm": [0, 3, 1, 2]})
    return None


@dataclass(frozen=True)
class ExpandSamples(RulePass):
    """See the module."""

    name: ClassVar[str] = "expand-samples"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("grid", op("GridSample", any_value("x"), any_value("grid")), _grid_sample),
        Rule("regions", op("RoiAlign", any_value("x"), any_value("rois"), any_value("batches")), _roi_align),
    )
