"""Writes a convolution whose weight the run makes as a product, which packs its operands itself.

    Conv(x, w, b)  -> Reshape(MatMul(w [groups, m, c*taps], patches [n, groups, c*taps, positions])) + b

The patches are cuts of the padded x, one a tap, joined.

Rules
1. Channels and space are numbers, windows have up to 64 taps. A constant weight has kernels of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from graph_opt.fusion.position_writer import Writer
from graph_opt.ir import Value
from graph_opt.ir.patterns import Declined, Match, any_value, attribute, op, optional
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass

_MOST_TAPS = 64


def _convolution(rewriter: Rewriter, match: Match) -> Declined | None:
    x, weight, bias, root = match["x"], match["w"], match.get("b"), match.root
    result = root.output.shape
    if weight.is_constant or x.shape is None or weight.shape is None or result is None:
        return Declined("a constant weight has kernels")
    known = (*x.shape[1:], *weight.shape, *result[1:])
    if not all(isinstance(d, int) and d > 0 for d in known) or x.shape[0] == 0 or not x.dtype.is_float:
        return Declined("an extent that only the run knows")
    sizes, kernel, out = ([int(d) for d in s[2:]] for s in (x.shape, weight.shape, result))  # type: ignore[arg-type]
    rank, taps, positions = len(sizes), prod(kernel), prod(out)
    channels, count = int(x.shape[1]), int(weight.shape[0])  # type: ignore[arg-type]
    if not rank or taps > _MOST_TAPS:
        return Declined(f"windows of {taps} elements")
    groups = int(attribute(root, "group"))  # type: ignore[call-overload]
    strides, dilations = ([int(s) for s in root.attrs.get(k) or (1,) * rank] for k in ("strides", "dilations"))  # type: ignore[attr-defined, union-attr]
    before = _before(root.attrs, sizes, kernel, out, strides, dilations)
    reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out, strides, kernel, dilations, strict=True)]
    behind = [max(0, r - n - b) for r, n, b in zip(reach, sizes, before, strict=True)]
    w = Writer(rewriter, match)
    if any(before) or any(behind):
        pads = w.number([0, 0, *before, 0, 0, *behind], "pads")
        x = w("Pad", x, pads, rewriter.constant(np.zeros((), x.dtype.numpy), f"{w.name}/zero", x.dtype))
    axes, steps = w.number(list(range(2, 2 + rank)), "axes"), w.number(strides, "steps")
    parted = w.number([0, groups, channels // groups, 1, positions], "parted")
    parts: list[Value] = []
    for tap in np.ndindex(*kernel):
        start = [t * d for t, d in zip(tap, dilations, strict=True)]
        end = [s + (o - 1) * step + 1 for s, o, step in zip(start, out, strides, strict=True)]
        cut = w("Slice", x, w.number(start, "starts"), w.number(end, "ends"), axes, steps)
        parts.append(w("Reshape", cut, parted))
    joined = w("Concat", *parts, axis=3) if len(parts) > 1 else parts[0]
    depth = channels // groups * taps
    patches = w("Reshape", joined, w.number([0, groups, depth, positions], "patches"))
    matrix = w("Reshape", weight, w.number([groups, count // groups, depth], "matrix"))
    made = w("Reshape", w("MatMul", matrix, patches), w.number([0, count, *out], "shape"))
    if bias is None:
        match.become(rewriter, "Identity", [made])
    else:
        match.become(rewriter, "Add", [made, w("Reshape", bias, w.number([count, *[1] * rank], "channels"))])
    return None


def _before(attrs: object, sizes: list[int], kernel: list[int], out: list[int], strides: list[int],
            dilations: list[int]) -> list[int]:  # fmt: skip
    """The pads before each axis of space."""
    assert isinstance(attrs, dict)
    auto = attrs.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            max(0, (o - 1) * s + (k - 1) * d + 1 - n)
            for o, s, k, d, n in zip(out, strides, kernel, dilations, sizes, strict=True)
        ]
        return [(t + (auto == "SAME_LOWER")) // 2 for t in total]
    pads = attrs.get("pads") if auto == "NOTSET" else None
    return [int(p) for p in pads or [0] * 2 * len(sizes)][: len(sizes)]


@dataclass(frozen=True)
class ExpandComputedWeights(RulePass):
    """See the module."""

    name: ClassVar[str] = "expand-computed-weights"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("convolution", op("Conv", any_value("x"), any_value("w"), optional(any_value("b"))), _convolution),
    )
