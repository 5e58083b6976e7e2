"""One fault of the compiler is one red row, at the right layer, with the right one to blame."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import small_models
from faults import spoil_graphs, spoil_kernel, without_node, wrong_constant

from acl_runtime.binding import Binder
from atc.compare_model import compare_arrays
from atc.comparing.rows import Comparison, Isolated, Measured, Row, difference
from atc.judging import judge

N, info, array = onnx.helper.make_node, small_models.info, small_models.array
RNG = np.random.default_rng(4)
X = {"x": RNG.standard_normal((8, 8)).astype(np.float32) * 3}


def layers(count: int = 5) -> onnx.ModelProto:
    """x f32 [8, 8] → y: products with a softmax behind each, so that each is a kernel of its own and shown."""
    nodes, constants, last = [], [], "x"
    for n in range(count):
        constants += [array(f"w{n}", RNG.standard_normal((8, 8)).astype(np.float32)),
                      array(f"b{n}", RNG.standard_normal(8).astype(np.float32))]  # fmt: skip
        nodes += [
            N("MatMul", [last, f"w{n}"], [f"m{n}"], f"product{n}"),
            N("Add", [f"m{n}", f"b{n}"], [f"h{n}"], f"bias{n}"),
            N("Softmax", [f"h{n}"], [f"s{n}"], f"softmax{n}"),
            N("Add", [f"s{n}", f"h{n}"], [f"z{n}"], f"sum{n}"),
        ]
        last = f"z{n}"
    nodes.append(N("Transpose", [last], ["t"], "turn", perm=[1, 0]))
    nodes.append(N("Cast", ["t"], ["whole"], "whole", to=onnx.TensorProto.INT32))
    nodes.append(N("Cast", ["whole"], ["float"], "float", to=onnx.TensorProto.FLOAT))
    nodes.append(N("Softmax", ["float"], ["y"], "last"))
    return small_models.model_of(nodes, [info("x", 1, [8, 8])], [info("y", 1, [8, 8])], constants)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "m.onnx"
    onnx.save(layers(), path)
    return path


def red(found: Comparison) -> list[str]:
    return [r.source for r in found.rows if r.verdict == "fail"]


def test_a_clean_model_raises_nothing(model: Path) -> None:
    found = compare_arrays(model, None, X)
    assert found.verdict == "pass" and not red(found)
    measured = [r for r in found.rows if r.state == "compared"]
    assert len(measured) > 8 and all(r.isolated is not None and r.floor is not None for r in measured)
    assert all(r.isolated.rel_l2 < 1e-5 for r in measured if r.isolated and r.isolated.rel_l2 is not None)


def test_other_layouts_are_run_alone_too(tmp_path: Path) -> None:
    """Convolutions are channels-last inside; what only changes the layout has no counterpart in the model."""
    weight = array("w", RNG.standard_normal((8, 8, 3, 3)).astype(np.float32))
    nodes = [
        N("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]), N("GlobalAveragePool", ["c"], ["g"], "pool"),
        N("Flatten", ["g"], ["f"], "flat"), N("Softmax", ["f"], ["y"], "soft"),
    ]  # fmt: skip
    wire = info("x", 1, [1, 8, 6, 6]), info("y", 1, [1, 8])
    onnx.save(small_models.model_of(nodes, [wire[0]], [wire[1]], [weight]), tmp_path / "m.onnx")
    found = compare_arrays(tmp_path / "m.onnx", None, {})
    measured = [r for r in found.rows if r.state == "compared"]
    assert found.verdict == "pass" and len(measured) > 3
    assert all(r.isolated is not None and r.floor is not None for r in measured)


def check(found: Comparison, layers: set[str], blame: str) -> None:
    """Exactly one red row, one of these, and nothing before it complains."""
    assert found.verdict == "fail" and found.first_bad in layers and red(found) == [found.first_bad]
    row = next(r for r in found.rows if r.source == found.first_bad)
    assert blame in row.note, row.note
    behind = found.rows[found.rows.index(row) + 1 :]
    assert all(r.note == f"inherited from {row.source}" for r in behind if r.verdict == "warn")
    assert row.isolated is not None and (row.isolated.rel_l2 or 0) > 1e-4


@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("stale", [False, True], ids=["wrong kernel", "stale buffer"])
def test_a_kernel(model: Path, monkeypatch: pytest.MonkeyPatch, number: int, stale: bool) -> None:
    spoil_kernel(monkeypatch, f"bias{number}", stale)
    check(compare_arrays(model, None, X), {f"h{number}"}, "at fault: the kernel; numpy computes its graph right")


@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_fold(model: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    spoil_graphs(monkeypatch, wrong_constant(f"b{number}"))
    check(compare_arrays(model, None, X), {f"h{number}"}, "at fault: the graph; a pass or a folded constant")


def test_a_swapped_layout(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_graphs(monkeypatch, without_node("turn"))
    found = compare_arrays(model, None, X)
    assert found.verdict == "fail" and found.first_bad in {"t", "whole", "float", "y"}
    assert len(red(found)) == 1


def test_memory_that_tensors_share_wrongly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of their own are right; where the plan lets two that live at a time share bytes, the outputs are others."""
    weight = array("w", RNG.standard_normal((8, 8)).astype(np.float32))
    nodes = [N("Softmax", ["x"], ["a"]), N("MatMul", ["x", "w"], ["m"]), N("Softmax", ["m"], ["b"]),
             N("MatMul", ["a", "b"], ["y"])]  # fmt: skip
    wire = [info("x", 1, [8, 8])], [info("y", 1, [8, 8])]
    onnx.save(small_models.model_of(nodes, *wire, [weight]), tmp_path / "m.onnx")
    real = Binder.bind

    def bind(self: Binder, dims: Any, threads: int, keep: bool = False) -> Any:
        found = real(self, dims, threads, keep)
        return found if keep else replace(found, storage_offsets=np.zeros_like(found.storage_offsets))

    monkeypatch.setattr(Binder, "bind", bind)
    found = compare_arrays(tmp_path / "m.onnx", None, X)
    assert found.verdict == "fail" and found.first_bad == "y" and not red(found)
    assert found.outputs[0].note.startswith("at fault: the plan; where tensors share memory")


def test_what_only_grows_is_no_fault() -> None:
    """A rounding that falls the other way is right alone: a warning, but for an output of the model."""
    small, large = difference(np.ones(3), np.ones(3) + 1e-7), difference(np.array([1.0, 2, 2]), np.array([1.0, 2, 3]))
    exact = Isolated(difference(np.ones(3), np.ones(3)))
    rows = (Row("a", "compared", "k", "f32", small, holder="a", alone=Isolated(small)),
            Row("b", "compared", "k", "f32", large, holder="b", alone=exact))  # fmt: skip
    parents = {"a": ("x",), "b": ("a",)}
    found = judge([Measured(rows, (Row("b", "compared", "k", "f32", large, holder="b"),), parents)])
    assert [r.verdict for r in found.rows] == ["pass", "warn"] and "grow here" in found.rows[1].note
    assert found.verdict == "fail" and found.outputs[0].verdict == "fail"
    unknown = judge([Measured((rows[0], replace(rows[1], alone=None)), (), parents)])
    assert unknown.first_bad == "b", "what was not run alone keeps its verdict"


def test_json_and_csv_have_the_isolated_error(atc: Any, model: Path, tmp_path: Path) -> None:
    code, out, _ = atc("compare", model, "--json", "--csv", tmp_path / "c.csv")
    rows = [r for r in json.loads(out)["layers"] if r["state"] == "compared"]
    assert code == 0 and rows
    for row in rows:
        assert row["isolated"].keys() == row["floor"].keys() == {"cosine", "rel_l2"}
    assert "isolated" in (tmp_path / "c.csv").read_text().splitlines()[0]
