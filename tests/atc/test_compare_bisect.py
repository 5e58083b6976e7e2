"""Searches of `atc compare`: the pass to blame, the nodes to keep in the dtype of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import small_models

from atc import conversion
from atc.comparing.bisect import bisect_passes
from tests.atc.faults import wrong_constant

N, info, array = onnx.helper.make_node, small_models.info, small_models.array


@pytest.mark.parametrize("guilty", [{"c"}, {"a"}, {"h"}, {"b", "g"}])
def test_the_smallest_set_of_passes(guilty: set[str]) -> None:
    """It fails as long as one of the guilty passes runs."""
    tries: list[tuple[str, ...]] = []

    def fails(disabled: Any) -> bool:
        tries.append(tuple(disabled))
        return not guilty <= set(disabled)

    assert set(bisect_passes(fails, "abcdefgh")) == guilty
    assert len(tries) <= (8 if len(guilty) == 1 else 12)
    assert bisect_passes(lambda disabled: True, "abc") == ()


class Spoilt:
    """A pass that does its work, and then something wrong as well."""

    def __init__(self, real: Any) -> None:
        self.real, self.name, self.done = real, real.name, False

    def apply(self, graph: Any) -> bool:
        changed = self.real.apply(graph)
        if not self.done and "w" in graph.values:
            self.done = True
            wrong_constant("w")(graph)
        return changed


def model(path: Path, weights: list[float]) -> Path:
    nodes, constants, last = [], [], "x"
    for n, weight in enumerate(weights):
        name = "w" if n == 0 else f"w{n}"
        constants.append(array(name, np.eye(4, dtype=np.float32) * weight))
        nodes += [N("MatMul", [last, name], [f"m{n}"], f"product{n}"), N("Softmax", [f"m{n}"], [f"s{n}"], f"softmax{n}")]
        last = f"s{n}"
    onnx.save(small_models.model_of(nodes, [info("x", 1, [2, 4])], [info(last, 1, [2, 4])], constants), path)
    return path


@pytest.mark.parametrize("name", ["fuse-gelu", "merge-transposes"])
def test_the_pass_is_named(atc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = conversion.shared_passes
    monkeypatch.setattr(conversion, "shared_passes", lambda: [Spoilt(p) if p.name == name else p for p in real()])
    code, out, err = atc("compare", model(tmp_path / "m.onnx", [1.0, 2.0]), "--bisect_pass", "--json")
    assert code == 6, err
    assert json.loads(out)["bisect_pass"] == f"pass {name}: it passes with --disable_pass={name}"


def test_the_three_places_that_overflow(atc: Any, tmp_path: Path) -> None:
    """Products 0, 2 and 4 leave the range of f16; the file that names them mends the conversion."""
    path = model(tmp_path / "m.onnx", [1e6, 1.0, 2e6, 2.0, 4e6])
    keep = tmp_path / "keep.txt"
    flags = ["--precision_mode", "force_fp16"]
    code, out, err = atc("compare", path, *flags, "--bisect_precision", keep, "--json")
    found = json.loads(out)
    assert code == 6 and found["verdict"] == "fail", err
    assert "f16 overflow" in next(r["note"] for r in found["layers"] if r["source"] == found["first_bad"])
    assert found["bisect_precision"] == keep.read_text().split()
    assert {n for n in found["bisect_precision"] if n.startswith("product")} == {"product0", "product2", "product4"}
    assert atc("convert", path, "-o", tmp_path / "m.om", *flags, "--keep_dtype", keep, "-q")[0] == 0
    assert atc("compare", path, tmp_path / "m.om", "--json")[0] == 0


def test_searches_need_a_conversion(atc: Any, tmp_path: Path) -> None:
    path = small_models.save("mlp", tmp_path)
    for flags in (["--bisect_pass"], ["--precision_mode", "force_fp16"]):
        code, out, err = atc("compare", path, tmp_path / "m.om", *flags, "--json")
        assert code == 2 and flags[0] in out + err
