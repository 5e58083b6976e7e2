"""What commands show of a package besides running it: graph, report and header are checked before they are used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acl_runtime import InferSession
from acl_runtime.om import PackageError, open_package, write_package
from atc.benchmarking.by_node import time_by_node
from atc.package_texts import classes_of, graph_of, report_of
from tests.hostile import packages
from tests.runtime.packages import VIEWER


def _package(folder: Path, header: dict[str, Any], **texts: bytes) -> Any:
    write_package(folder / "m.om", VIEWER, {"graph": b"", "report": b"{}", **texts}, header)
    return open_package(folder / "m.om")


@pytest.mark.parametrize("graph", [b"\xff", b"graph g(", b"graph g() -> (%x) { }", b"graph g(%x: f32[n*]) -> (%x) { }"])
def test_a_damaged_graph(tmp_path: Path, graph: bytes) -> None:
    with pytest.raises(PackageError, match="section graph holds no graph"):
        graph_of(_package(tmp_path, {}, graph=graph))


@pytest.mark.parametrize(
    "report", ["[]", "[", "{" * 5, '{"arena_bytes": "x"}', '{"index_bounds": {"a": 1.5}}', '{"fusion_notes": 3}']
)
def test_a_damaged_report(tmp_path: Path, report: str) -> None:
    with pytest.raises(PackageError, match="report"):
        report_of(_package(tmp_path, {}, report=report.encode()))


@pytest.mark.parametrize("classes", [5, [1], {"a": 1}])
def test_classes_that_are_no_names(tmp_path: Path, classes: object) -> None:
    with pytest.raises(PackageError, match="no names"):
        classes_of(_package(tmp_path, {"classes": classes}))


def test_what_is_sound_is_told(tmp_path: Path) -> None:
    package = _package(tmp_path, {"classes": ["a"]}, report=json.dumps({"arena_bytes": 3, "index_bounds": {}}).encode())
    assert classes_of(package) == ("a",) and report_of(package)["arena_bytes"] == 3


def test_times_by_node_of_a_package_whose_graph_is_damaged(tmp_path: Path) -> None:
    packages.prepare(tmp_path, ("mlp",))
    opened = open_package(tmp_path / "mlp.om")
    sections = {s.name: bytes(opened.section(s.name)) for s in opened.sections() if s.name not in ("header", "model_def")}
    write_package(tmp_path / "m.om", VIEWER, {**sections, "graph": b"graph g(\xff"}, opened.header)
    x = {i.name: np.zeros([n if isinstance(n, int) else 2 for n in i.shape], i.dtype)
         for i in InferSession(0, tmp_path / "m.om").get_inputs()}  # fmt: skip
    with pytest.raises(PackageError, match="section graph holds no graph"):
        time_by_node(tmp_path / "mlp.onnx", tmp_path / "m.om", x, 1, 1)
