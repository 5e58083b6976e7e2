"""What a run says of extents that do not belong together: names and numbers, no formula that nobody wrote."""

from __future__ import annotations

import pytest

from tensor_types.dims import Dim, dim, dmin
from tensor_types.relations import Relation, broken, holds

H, W = dim("h"), dim("w")


@pytest.mark.parametrize(
    ("relation", "good", "bad"),
    [
        ("equal", [(3, 3)], [(1, 3), (3, 2)]),
        ("broadcast", [(3, 3), (1, 3), (3, 1)], [(2, 3)]),
        ("window", [(3, 3), (4, 3), (0, 0)], [(2, 3)]),
    ],
)
def test_relations(relation: Relation, good: list[tuple[int, int]], bad: list[tuple[int, int]]) -> None:
    assert all(holds(relation, a, b) for a, b in good)
    assert not any(holds(relation, a, b) for a, b in bad)


@pytest.mark.parametrize(
    ("relation", "left", "right", "text", "remedy"),
    [
        ("window", H + 2, 5 * dmin(H, 1), "a window of 5 does not fit an extent of 4 (h + 2, with h = 2)", "a larger h"),
        ("window", W, 9 * dmin(W, 1), "a window of 9 does not fit an extent of 7 (w = 7)", "a larger w"),
        ("equal", H, W, "h = 2 and w = 7", "both extents are equal (h, w)"),
        ("broadcast", 2 * H + 1, 3, "2*h + 1 = 5 (h = 2) and 3", "equal or one of them is 1 (h)"),
    ],
)
def test_words(relation: Relation, left: Dim, right: Dim, text: str, remedy: str) -> None:
    found = broken(relation, left, right, {"h": 2, "w": 7})
    assert text in found[0] and remedy in found[1]
