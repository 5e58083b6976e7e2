"""The page of budgets lists those that exist, with their defaults."""

from __future__ import annotations

import re
from pathlib import Path

from tensor_types.limits import LIMITS


def test_the_page_lists_the_budgets() -> None:
    page = (Path(__file__).parents[2] / "docs" / "environment.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| ([0-9^]+) \|", page, re.M))
    assert {name: eval_power(text) for name, text in rows.items()} == {n: v.default for n, v in LIMITS.items()}


def eval_power(text: str) -> int:
    base, _, power = text.partition("^")
    return int(base) ** int(power or 1)
