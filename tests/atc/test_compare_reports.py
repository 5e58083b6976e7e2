"""Files of `atc compare`: the page, JUnit, msit's columns."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
import small_models
from faults import spoil_kernel

from atc.comparing.details import EDGES, detail_of

EVIL = "</script><script>alert(1)</script>&\x01\"'"


def test_where_errors_are() -> None:
    golden = np.ones((2, 3), np.float32)
    ours = golden.copy()
    ours[1, 2], ours[0, 1] = 1.02, 1 + 1e-5
    found = detail_of(ours, golden, "f32")
    assert found is not None and found.worst == (1, 2) and found.ours == pytest.approx(1.02) and found.theirs == 1.0
    bins = {n: c for n, c in enumerate(found.spread) if c}
    assert bins == {0: 4, int(np.searchsorted(EDGES, -4.9)): 1, int(np.searchsorted(EDGES, -1.7)): 1}
    assert detail_of(np.array(["a"]), np.array(["a"]), "string") is None
    assert detail_of(np.empty((0, 2)), np.empty((0, 2)), "f32") is None
    nan = detail_of(np.array([1.0, np.nan]), np.array([1.0, 2.0]), "f32")
    assert nan is not None and nan.worst == (1,) and nan.overflow == "NaN"
    huge = detail_of(np.array([65504], np.float16), np.array([7e4], np.float32), "f16")
    assert huge is not None and huge.overflow == "YES"


def test_metrics_of_msit_by_hand() -> None:
    found = detail_of(np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 0.0]), "f32")
    assert found is not None
    expected = {
        "CosineSimilarity": 9 / math.sqrt(30 * 17), "MaxAbsoluteError": 5.0, "AccumulatedRelativeError": 0.5,
        "RelativeEuclideanDistance": math.sqrt(29 / 17), "MeanAbsoluteError": 7 / 3,
        "RootMeanSquareError": math.sqrt(29 / 3), "MaxRelativeError": 0.5, "MeanRelativeError": 0.5 / 3,
    }  # fmt: skip
    for name, value in expected.items():
        assert found.msit[name] == pytest.approx(value, rel=1e-6), name
    # Shares 0, 1/5, 4/5 of ours against 1/5, 4/5, 0 of onnxruntime's, zeros being 2.2e-16 before the division.
    tiny = 2.220446049250313e-16
    p, q = np.array([tiny, 0.25, 1]) / 1.25, np.array([0.25, 1, tiny]) / 1.25
    assert found.msit["KullbackLeiblerDivergence"] == pytest.approx(float(np.sum(p * np.log(p / q))), rel=1e-5)


def test_files_of_a_failing_comparison(atc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    N, info = onnx.helper.make_node, small_models.info
    nodes = [N("Softmax", ["x"], [EVIL], "evil"), N("Softmax", [EVIL], ["y"], "mild")]
    path = tmp_path / "m.onnx"
    onnx.save(small_models.model_of(nodes, [info("x", 1, [3, 4])], [info("y", 1, [3, 4])], []), path)
    spoil_kernel(monkeypatch, "evil")
    files = {flag: tmp_path / f"c.{flag.strip('-')}" for flag in ("--html", "--junit", "--msit_csv")}
    arguments = [str(a) for pair in files.items() for a in pair]
    code, out, err = atc("compare", path, "--json", *arguments)
    assert code == 6, (out, err)
    assert json.loads(out)["first_bad"] == EVIL

    html = files["--html"].read_text()
    assert html.startswith("<!doctype html>") and "alert(1)</script>" not in html
    assert not re.search(r"(src|href)\s*=|https?://|@import|url\(", html), "the page loads something"
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S).group(1))
    rows = {r["source"]: r for r in data["rows"]}
    assert rows[EVIL]["verdict"] == "fail" and "the kernel" in rows[EVIL]["note"]
    assert rows[EVIL]["worst"]["at"] == [0, 0] and sum(rows[EVIL]["spread"]) == 12
    assert rows["y"]["note"] == f"inherited from {EVIL}" and rows["y"]["output"]

    suite = ElementTree.parse(files["--junit"]).getroot()
    cases = suite.findall("testcase")
    failed = [c.get("name") for c in cases if c.find("failure") is not None]
    told = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert told.keys() == {"tool", "model", "package", "against", "command", "inputs"} and len(told["inputs"]) == 64
    assert suite.get("tests") == str(len(cases)) and suite.get("failures") == str(len(failed))
    assert failed[0] == EVIL.replace("\x01", "?")

    with files["--msit_csv"].open(newline="") as file:
        table = list(csv.reader(file))
    assert table[0][:4] == ["Index", "OpType", "NPUDump", "DataType"] and len(table) == 4
    assert {len(line) for line in table} == {len(table[0])}
    line = next(t for t in table if t[5] == EVIL)
    assert line[-1] == "YES" and float(line[table[0].index("MaxAbsoluteError")]) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("flag", ["--html", "--junit", "--msit_csv"])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(atc: Any, tmp_path: Path, flag: str) -> None:
    code, out, err = atc("compare", small_models.save("mlp", tmp_path), flag, tmp_path / "absent" / "file", "--json")
    assert code != 0 and flag in out + err
