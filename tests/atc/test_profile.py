"""`atc profile`: figures that add up, work counted right, files that viewers read, names that cannot break a page."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from late_models import detector
from onnx import TensorProto, helper, numpy_helper

import atc
from acl_runtime import InferSession
from atc.command_line import main
from atc.profiling.exports import trace, write_op_summary
from atc.profiling.page import page
from atc.profiling.report import ProfileReport, profile_package

F32 = TensorProto.FLOAT
EVIL = "</script><img src=x onerror=alert(1)>"


def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, F32, shape)


def model(path: Path, name: str = "product") -> Path:
    """x [16, 64] @ w [64, 48], softmax, and Det on the AI CPU."""
    weight = np.random.default_rng(0).normal(size=(64, 48)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name=name),
        helper.make_node("Softmax", ["p"], ["y"], name="softmax", axis=1),
        helper.make_node("Det", ["s"], ["d"], name="det"),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", 16, 64), value("s", 3, 3)], [value("y", 16, 48), value("d")],
                              [numpy_helper.from_array(weight, "w")])  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ProfileReport:
    folder = tmp_path_factory.mktemp("profile")
    atc.convert(model(folder / "m.onnx", EVIL), folder / "m.om")
    return profile_package(folder / "m.om", runs=3)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_rows_tell_work_and_source(report: ProfileReport) -> None:
    [product] = [k for k in report.kernels if k.family == "matmul"]
    assert product.flops == 2 * 16 * 64 * 48
    assert product.bytes == 4 * (16 * 64 + 64 * 48 + 16 * 48)
    assert product.source_nodes == [EVIL]
    assert product.bound in ("compute", "memory", "latency")
    assert product.gflops_s == pytest.approx(product.flops / product.ms / 1e6)
    [det] = [k for k in report.kernels if k.device == "AI CPU"]
    assert (det.bound, det.flops, det.utilisation) == ("AI CPU", None, None)


def test_figures_add_up(report: ProfileReport) -> None:
    assert report.total_ms == pytest.approx(sum(k.ms for k in report.kernels))
    assert sum(k.share for k in report.kernels) == pytest.approx(1)
    assert sum(report.lanes) <= report.span_ms * 1.001
    assert report.memory.peak <= report.memory.arena or not report.memory.blocks
    assert report.peaks.flops > 1e8 and report.peaks.memory_bytes > 1e8


def test_the_trace_is_well_formed_and_sums_to_the_rows(report: ProfileReport) -> None:
    events = trace(report)["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    for task, kernel in enumerate(report.kernels):
        own = [e for e in slices if e["args"]["task"] == task]
        assert sum(e["dur"] for e in own) == pytest.approx(kernel.ms * 1e3, rel=0.01, abs=0.5)
    by_lane: dict[int, list[tuple[float, float]]] = {}
    for e in slices:
        by_lane.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"]))
    for spans in by_lane.values():
        spans.sort()
        assert all(a[1] <= b[0] + 1e-6 for a, b in zip(spans, spans[1:], strict=False)), "slices overlap"
    arrows = [e for e in events if e["ph"] in "sf"]
    assert arrows and len(arrows) % 2 == 0
    for e in arrows:  # a viewer drops an arrow whose end lies in no slice
        assert any(begin - 1e-6 <= e["ts"] <= end + 1e-6 for begin, end in by_lane[e["tid"]])
    assert {"M", "X", "s", "f"} <= {e["ph"] for e in events}


def test_memory_of_sizes_that_the_run_decides(tmp_path: Path) -> None:
    """Segments behind the first one use the arena too, in the sizes that the run found."""
    onnx.save(detector(), tmp_path / "d.onnx")
    atc.convert(tmp_path / "d.onnx", tmp_path / "d.om")
    found = profile_package(tmp_path / "d.om", runs=1)
    tasks = len(InferSession(0, tmp_path / "d.om").plan.segments[0].tasks)
    assert len(found.memory.live) == len(found.kernels) > tasks
    assert any(b.first >= tasks for b in found.memory.blocks) and found.memory.peak <= found.memory.arena


def test_two_threads_sum_up_too(report: ProfileReport, tmp_path: Path) -> None:
    """Bars of all cores against aicore_time; a task takes no longer than its bars together and no less than one."""
    two = profile_package(Path(report.package), threads=2, runs=2)
    write_op_summary(tmp_path / "o.csv", two)
    with open(tmp_path / "o.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    slices = [e for e in trace(two)["traceEvents"] if e["ph"] == "X"]
    for row in rows:
        bars = [e["dur"] for e in slices if e["args"]["task"] == int(row["Task ID"])]
        assert sum(bars) == pytest.approx(float(row["aicore_time(us)"]), abs=0.01)
        assert max(bars) - 0.01 <= float(row["Task Duration(us)"])
        assert row["Task Type"] == ("AI_CPU" if row["OP Type"] == "Det" else "AI_CORE")


def test_a_name_cannot_leave_the_data_of_the_page(report: ProfileReport) -> None:
    text = page(report)
    assert EVIL not in text and "<img" not in text
    assert text.count("</script>") == 2
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert data is not None
    assert json.loads(data.group(1))["kernels"][0]["source_nodes"] == [EVIL]
    assert not re.search(r"(src|href)=\S*(https?:)?//", text), "nothing loads from a network"


def test_the_command_writes_all_three_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = model(tmp_path / "m.onnx")
    assert run("convert", str(source), "-q") == 0
    capsys.readouterr()
    files = [tmp_path / "t.json.gz", tmp_path / "p.html", tmp_path / "o.csv"]
    flags = ["-o", str(files[0]), "--html", str(files[1]), "--csv", str(files[2])]
    assert run("profile", str(source.with_suffix(".om")), "--json", "--runs", "2", *flags) == 0
    found = json.loads(capsys.readouterr().out)
    keys = {"name", "family", "source_nodes", "ms", "flops", "bytes", "bound", "share"}
    assert all(keys <= k.keys() for k in found["kernels"]) and found["total_ms"] > 0
    with open(files[2], newline="") as file:
        rows = list(csv.DictReader(file))
    total = sum(float(r["Task Duration(us)"]) for r in rows)
    assert total == pytest.approx(found["total_ms"] * 1e3, rel=0.01)
    slices = [e for e in json.loads(gzip.decompress(files[0].read_bytes()))["traceEvents"] if e["ph"] == "X"]
    assert sum(e["dur"] for e in slices) == pytest.approx(total, rel=0.01, abs=1)
    assert files[1].read_text().startswith("<!doctype html>")


def test_an_onnx_file_is_converted_on_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("profile", str(model(tmp_path / "m.onnx")), "--runs", "1", "--threads", "2") == 0
    shown = capsys.readouterr().out
    assert "slowest" in shown and "GFLOP/s in f32" in shown


def test_a_file_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = model(tmp_path / "m.onnx")
    assert run("profile", str(source), "--html", str(tmp_path / "absent" / "p.html")) != 0
    assert "--html" in capsys.readouterr().err
