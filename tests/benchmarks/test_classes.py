"""Classes of the benchmark: who is compared with whom, paired by rounds."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.classes import standings


def case(name: str, kind: str, **slices: list[float]) -> dict[str, Any]:
    contenders: dict[str, Any] = {
        label.replace("_", "-"): {"state": "ok", "median_ms": sorted(times)[len(times) // 2], "slices_ms": times}
        for label, times in slices.items()
    }
    return {"name": name, "class": kind, "contenders": contenders}


def test_ours_stands_beside_the_fastest_peer() -> None:
    cases = [
        case("a", "fp32", ours=[1, 2, 9], onnxruntime=[2, 4, 6], openvino=[5, 5, 5], ours_bf16=[3, 3, 3]),
        case("b", "fp32", ours=[8, 8, 8], onnxruntime=[9, 9, 9], openvino=[4, 4, 4]),
        case("c", "int8", ours=[3, 3, 3], onnxruntime=[2, 2, 2], ours_quantising=[1, 1, 1]),
        case("d", "int8", onnxruntime=[2, 2, 2]),
    ]
    cases[1]["contenders"]["ours-bf16"] = {"state": "wrong"}
    found = standings(cases)
    assert set(found) == {"fp32", "int8", "int8-quantising"}
    assert (found["fp32"].cases, found["fp32"].worst_case) == (2, "b")
    assert found["fp32"].ratio == pytest.approx((0.5 * 2) ** 0.5)
    assert found["fp32"].worst == 2.0
    assert (found["int8"].cases, found["int8"].ratio, found["int8"].worst_case) == (1, 1.5, "c")
    assert (found["int8-quantising"].cases, found["int8-quantising"].ratio) == (1, 0.5)
