"""Ratios as a picture: one row of bars a case, the reference as a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from atc.benchmarking.contenders import REFERENCE

_COLOURS = ("#2a78b5", "#e08a3c", "#6aa84f", "#8e6bb0")
_LEFT, _WIDTH, _BAR, _GAP, _TOP = 190, 560, 11, 9, 52
_MOST = 1.6
"""The axis ends here; longer bars are cut and keep their number."""


def chart(title: str, cases: Sequence[dict[str, Any]]) -> str:
    """An SVG of the median time of every contender as a share of the reference's."""
    labels = list(dict.fromkeys(name for case in cases for name in case["contenders"] if name != REFERENCE))
    rows: list[str] = []
    y = _TOP
    for case in cases:
        found = [(name, case["contenders"][name]["ratio_median"]) for name in labels
                 if "ratio_median" in case["contenders"].get(name, {})]  # fmt: skip
        if not found:
            continue
        middle = y + len(found) * _BAR / 2 + 4
        rows.append(f'<text x="{_LEFT - 8}" y="{middle:.1f}" text-anchor="end">{escape(case["name"])}</text>')
        for name, ratio in found:
            length = min(ratio, _MOST) / _MOST * _WIDTH
            colour = _COLOURS[labels.index(name) % len(_COLOURS)]
            rows.append(f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_BAR - 1}" fill="{colour}"/>')
            rows.append(f'<text x="{_LEFT + length + 4:.1f}" y="{y + _BAR - 2}" class="n">{ratio:.2f}</text>')
            y += _BAR
        y += _GAP
    line = _LEFT + _WIDTH / _MOST
    legend = "".join(
        f'<rect x="{_LEFT + 130 * i}" y="26" width="10" height="10" fill="{_COLOURS[i % len(_COLOURS)]}"/>'
        f'<text x="{_LEFT + 130 * i + 15}" y="35">{escape(name)}</text>'
        for i, name in enumerate(labels)
    )
    body = "\n".join(rows)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 60} {y + 8}"
 font-family="sans-serif" font-size="12">
<style>.n {{ font-size: 10px; fill: #555 }}</style>
<rect width="100%" height="100%" fill="white"/>
<text x="{_LEFT}" y="16" font-weight="bold">{escape(title)}</text>
{legend}
<line x1="{line:.1f}" y1="{_TOP - 6}" x2="{line:.1f}" y2="{y}" stroke="#333" stroke-dasharray="4 3"/>
<text x="{line:.1f}" y="{_TOP - 9}" text-anchor="middle" class="n">{REFERENCE} = 1</text>
{body}
</svg>
"""
