"""Cook-Toom's algorithm for short correlations, exact: y = A ((G w) * (B x)) with few products.

Winograd's convolutions F(m, r) are these, nested along each axis: m outputs of a window of r taps from m + r - 1
products (Lavin and Gray, "Fast algorithms for convolutional neural networks", arXiv:1509.09308). The polynomials are
evaluated at 0, at infinity and at pairs p, -p, which share most of their sums.

>>> scheme = cook_toom(4, 3)
>>> [str(c) for c in scheme.inputs[0]]
['4', '0', '-5', '0', '1', '0']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

Row = tuple[Fraction, ...]
Matrix = tuple[Row, ...]

_PAIRS = (Fraction(1), Fraction(2), Fraction(1, 2))
"""The evaluation points p of pairs p, -p, in the order in which they are taken: those of the smallest error first
(Barabasz et al., "Error analysis and improving the accuracy of Winograd convolution", arXiv:1803.10986)."""
MOST_POINTS = 2 * len(_PAIRS) + 2
"""Of a scheme, the point at infinity among them."""


@dataclass(frozen=True)
class Scheme:
    """F(outputs, taps): y[outputs] = A (G w[taps] * B x[points]) is the correlation of x with w."""

    outputs: int
    taps: int
    inputs: Matrix
    """B [points][points]."""
    weights: Matrix
    """G [points][taps]."""
    sums: Matrix
    """A [outputs][points]."""

    @property
    def points(self) -> int:
        return len(self.inputs)

    @property
    def pairs(self) -> tuple[int, ...]:
        """The numbers j of points whose negative is point j + 1."""
        return tuple(range(1, self.points - 1, 2))


@lru_cache(maxsize=64)
def cook_toom(outputs: int, taps: int) -> Scheme:
    """F(outputs, taps). ValueError unless it has 1 point, or an even number of at most `MOST_POINTS`."""
    points = outputs + taps - 1
    if points == 1:
        one = ((Fraction(1),),)
        return Scheme(1, 1, one, one, one)
    if min(outputs, taps) < 1 or points % 2 or points > MOST_POINTS:
        raise ValueError(f"F({outputs}, {taps}): a scheme has 2, 4, ... {MOST_POINTS} points, not {points}")
    finite = [Fraction(0)]
    for p in _PAIRS[: points // 2 - 1]:
        finite += [p, -p]
    inputs, weights = [], []
    for i, a in enumerate(finite):
        others = finite[:i] + finite[i + 1 :]
        scale = Fraction(1)
        for b in others:
            scale *= a - b
        inputs.append((*_product(others), Fraction(0)))
        weights.append(tuple(a**k / scale for k in range(taps)))
    inputs.append(_product(finite))
    weights.append(tuple(Fraction(int(k == taps - 1)) for k in range(taps)))
    sums = [(*(a**i for a in finite), Fraction(int(i == outputs - 1))) for i in range(outputs)]
    return Scheme(outputs, taps, tuple(inputs), tuple(weights), tuple(sums))


def _product(roots: Sequence[Fraction]) -> Row:
    """Coefficients of the polynomial with these roots, from that of x**0 upwards."""
    poly = [Fraction(1)]
    for root in roots:
        poly = [low - root * same for low, same in zip([Fraction(0), *poly], [*poly, Fraction(0)], strict=True)]
    return tuple(poly)
