"""Packages whose programs are verified and whose plans are made up: refused when sizes are bound, before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packages import host, write

from acl_runtime import InferSession
from acl_runtime.om import PackageError, open_package, write_package
from graph_opt.plan import KernelRecord, Scheduled, TaskOperand, ValueInfo
from tensor_types.dims import Dim, dim
from tensor_types.dtypes import F32
from tensor_types.errors import OpenAtcError, ResourceLimit


def _model(path: Path, body: str, size: Dim) -> InferSession:
    """y = x + what the body writes, in one kernel whose dim n the plan says freely."""
    text = f"program p (n in [1, inf]) {{\n  param in x: f32[16]\n  param out y: f32[16]\n  body {{\n{body}\n  }}\n}}\n"
    values = [ValueInfo("x", F32, (16,), "input"), ValueInfo("y", F32, (16,), "temporary")]
    operands = (TaskOperand("x", "in"), TaskOperand("y", "out"))
    record = KernelRecord(text, operands, (size,), 1, "node", "region", work=1)
    write(path, values, [Scheduled(record, ())], ["x"], ["y"])
    return InferSession(0, path)


@pytest.mark.parametrize("size", [1 << 32, (1 << 61) + 1, 1 << 31])
def test_a_product_of_dims_that_wraps_does_not_run(tmp_path: Path, size: int) -> None:
    body = "    TEXPANDS y[min(5, n*n)]{}, 1.0"
    with pytest.raises(ResourceLimit, match="beyond the integers|too large"):
        _model(tmp_path / "m.om", body, size).infer([np.zeros(16, np.float32)])


def test_small_dims_run(tmp_path: Path) -> None:
    [y] = _model(tmp_path / "m.om", "    TEXPANDS y[min(5, n*n)]{}, 1.0", 2).infer([np.zeros(16, np.float32)])
    assert y[4] == 1 and np.count_nonzero(y) == 1  # and what no task writes is zero


def test_a_launch_has_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "    for i < n {\n      TNEG y[_0]{16}, x[_0]{16}\n    }"
    with pytest.raises(ResourceLimit, match=r"about 2\^50 operations"):
        _model(tmp_path / "m.om", body, 1 << 46).infer([np.zeros(16, np.float32)])
    monkeypatch.setenv("OPENATC_LIMITS", "launch_work=100")
    with pytest.raises(ResourceLimit, match="100 are allowed"):
        _model(tmp_path / "m.om", body, dim("n") * 0 + 50).infer([np.zeros(16, np.float32)])


def test_a_tile_beyond_its_source_is_no_alias_of_it(tmp_path: Path) -> None:
    """The store reads a tile of 64, of which 4 were loaded: the source has no more than 4."""
    text = (
        "program p () {\n  param in x: f32[4]\n  param out y: f32[64]\n  tile t: f32[64] UB\n  body {\n"
        "    TLOAD t[_0]{4}, x[_0]{4}\n    TSTORE y[_0]{64}, t[_0]{64}\n  }\n}\n"
    )
    values = [ValueInfo("x", F32, (4,), "input"), ValueInfo("y", F32, (64,), "temporary")]
    record = KernelRecord(text, (TaskOperand("x", "in"), TaskOperand("y", "out")), (), 1, "node", "region", work=1)
    write(tmp_path / "m.om", values, [Scheduled(record, ())], ["x"], ["y"])
    secret = np.full(64, 7, np.float32)
    [y] = InferSession(0, tmp_path / "m.om").infer([secret[:4]])
    assert (y[:4] == 7).all() and not (y[4:] == 7).any()


def _changed(path: Path, change: Callable[[dict[str, Any]], None]) -> InferSession:
    """A model of y = copy of x over n elements whose plan was changed under right digests."""
    values = [ValueInfo("x", F32, (dim("n"),), "input"), ValueInfo("y", F32, (dim("n"),), "temporary")]
    write(path, values, [host("Relu", ["x"], ["y"])], ["x"], ["y"], dims={"n": (0, None)})
    return _rewritten(path, lambda plan: change(plan["segments"][0]))


def _rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> InferSession:
    """The package at `path` with its plan changed, under right digests."""
    package = open_package(path)
    names = {s.name for s in package.sections()} - {"header", "model_def"}
    sections = {name: bytes(package.section(name)) for name in names}
    [name] = [n for n in sections if n.endswith("/plan")]
    plan = json.loads(sections[name])
    change(plan)
    sections[name] = json.dumps(plan).encode()
    graph, header = package.graph(), package.header
    path.unlink()  # a mapped file is never written into
    write_package(path, graph, sections, header)
    return InferSession(0, path)


def test_an_output_that_copies_another_shape_is_refused(tmp_path: Path) -> None:
    def change(segment: dict[str, Any]) -> None:
        segment["output_copies"] = [[0, 0]]
        segment["values"][segment["outputs"][0]]["shape"] = ["n + 1"]
        segment["tasks"] = []

    with pytest.raises(PackageError, match=r"an output of \[5\] is a copy of \[4\]"):
        _changed(tmp_path / "m.om", change).infer([np.ones(4, np.float32)])


def test_an_output_that_copies_another_dtype_is_refused(tmp_path: Path) -> None:
    def change(segment: dict[str, Any]) -> None:
        segment["output_copies"] = [[0, 0]]
        segment["values"][segment["outputs"][0]]["dtype"] = "i32"
        segment["tasks"] = []

    with pytest.raises(PackageError, match="is a copy of"):
        _changed(tmp_path / "m.om", change).infer([np.ones(4, np.float32)])


@pytest.mark.parametrize(
    ("extent", "reason"), [(-1, "negative extent"), ("n - 9", "negative for these input shapes")]
)
def test_negative_sizes_are_refused(tmp_path: Path, extent: Dim | str, reason: str) -> None:
    def change(segment: dict[str, Any]) -> None:
        segment["values"][segment["outputs"][0]]["shape"] = [extent]

    with pytest.raises(OpenAtcError, match=reason) as raised:
        _changed(tmp_path / "m.om", change).infer([np.ones(4, np.float32)])
    assert raised.value.code != "E19999"


def test_a_tensor_in_a_format_without_way_back_is_refused(tmp_path: Path) -> None:
    def change(segment: dict[str, Any]) -> None:
        value = segment["values"][segment["outputs"][0]]
        value["shape"], value["format"] = [3], "points(0,2)"

    with pytest.raises(PackageError, match="cannot be read"):
        _changed(tmp_path / "m.om", change)


def test_a_tensor_that_is_never_made_gives_no_address(tmp_path: Path) -> None:
    """What nobody makes lies at address 0: with a size of its own choice, a plan could read any byte from there."""
    _model(tmp_path / "m.om", "    TNEG y[_0]{16}, x[_0]{16}", 1)
    secret = np.full(16, 7, np.float32)
    late = {"name": "late", "dtype": "f32", "shape": [1 << 46], "format": "plain", "place": None}

    def change(plan: dict[str, Any]) -> None:
        [reader] = plan["segments"]
        given, y = reader["values"]
        maker = {**reader, "values": [given, late], "inputs": [0], "outputs": [1], "tasks": [], "output_copies": []}
        reader.update(values=[late, y], sources=[[1, 0]])
        reader["tasks"][0]["operands"][0] = ["input", 0, secret.ctypes.data]
        plan.update(segments=[maker, reader], outputs=[[2, 0]])

    with pytest.raises(PackageError, match="in no memory|not lie in its buffer"):
        _rewritten(tmp_path / "m.om", change).infer([np.zeros(16, np.float32)])


@pytest.mark.parametrize("place", [None, ["guard", 0, 0], ["arena", 0, 0], ["input", 0, 4]])
@pytest.mark.parametrize("name", ["x", "y"])
def test_inputs_and_outputs_lie_somewhere(tmp_path: Path, name: str, place: list[Any] | None) -> None:
    def change(segment: dict[str, Any]) -> None:
        segment.update(guards=1, storages=[[0, 0]])
        [value] = [v for v in segment["values"] if v["name"] == name]
        value["place"] = place

    with pytest.raises(PackageError):
        _changed(tmp_path / "m.om", change).infer([np.ones(4, np.float32)])


def test_more_axes_than_arrays_have_are_refused(tmp_path: Path) -> None:
    def change(segment: dict[str, Any]) -> None:
        segment["values"][0]["shape"] = ["n"] + [1] * 64

    with pytest.raises(PackageError, match="65 axes"):
        _changed(tmp_path / "m.om", change)


def test_an_output_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    _changed(tmp_path / "m.om", lambda segment: None)
    with pytest.raises(PackageError, match="two outputs"):
        _rewritten(tmp_path / "m.om", lambda plan: plan.update(outputs=plan["outputs"] * 2))
