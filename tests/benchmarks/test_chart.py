"""The picture of the ratios: well-formed, bars in proportion, nothing for what has no figure."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from atc.benchmarking.contenders import REFERENCE
from benchmarks.chart import chart

SVG = "{http://www.w3.org/2000/svg}"


def case(name: str, **ratios: float | None) -> dict[str, Any]:
    found = {k: {"state": "wrong"} if r is None else {"ratio_median": r} for k, r in ratios.items()}
    return {"name": name, "contenders": {REFERENCE: {"ratio_median": 1.0}, **found}}


def test_bars_are_in_proportion_and_long_ones_are_cut() -> None:
    root = ElementTree.fromstring(chart("a < b", [case("x", ours=0.5, other=1.0), case("y", ours=9.0, other=None)]))
    widths = [float(r.get("width", "0")) for r in root.iter(f"{SVG}rect") if r.get("x") == "190" and r.get("y") != "26"]
    short, one, cut = widths
    assert one == 2 * short and one < cut < 2 * one
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert "9.00" in texts and "a < b" in texts and texts.count("y") == 1


def test_a_case_without_figures_has_no_row() -> None:
    root = ElementTree.fromstring(chart("t", [case("lost", ours=None)]))
    assert "lost" not in [t.text for t in root.iter(f"{SVG}text")]
