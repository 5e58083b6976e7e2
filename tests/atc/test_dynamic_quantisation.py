"""--dynamic_quantisation: products with weights of codes multiply bytes, within the bound of docs/numerics.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import atc
from acl_runtime import InferSession
from tests.atc.test_narrow_products import n_bits, save

PART = 32


def by_column(path: Path, k: int, n: int, kind: type = np.int8, zeros: bool = False, written_out: bool = False) -> Path:
    """A product with a weight of bytes that has a scale for each column."""
    rng, node = np.random.default_rng(k), helper.make_node
    limits = np.iinfo(kind)
    weights: dict[str, Any] = {
        "codes": rng.integers(limits.min, limits.max, (k, n), endpoint=True).astype(kind),
        "scales": (rng.random(n) * 0.01 + 0.001).astype(np.float32),
    }
    if written_out:
        nodes = [node("Cast", ["codes"], ["c"], to=TensorProto.FLOAT), node("Mul", ["c", "scales"], ["w"])]
    else:
        weights |= {"zeros": rng.integers(limits.min, limits.max, n).astype(kind)} if zeros else {}
        nodes = [node("DequantizeLinear", list(weights), ["w"], axis=1)]
    return save(path, [*nodes, node("MatMul", ["x", "w"], ["y"], name="product")], weights, k, n)


CASES = {
    "by column": lambda p: by_column(p, 96, 40),
    "written out": lambda p: by_column(p, 64, 24, written_out=True),
    "unsigned with zeros": lambda p: by_column(p, 64, 40, np.uint8, zeros=True),
    "signed with zeros": lambda p: by_column(p, 40, 24, zeros=True),
    "4 bits": lambda p: n_bits(p, 128, 72, 64, 4, zeros="codes"),
    "4 bits, no zeros": lambda p: n_bits(p, 96, 40, 32, 4),
    "4 bits, zeros as numbers": lambda p: n_bits(p, 128, 24, 128, 4, zeros="numbers"),
    "2 bits": lambda p: n_bits(p, 128, 40, 64, 2, zeros="codes"),
    "8 bits": lambda p: n_bits(p, 96, 40, 32, 8, zeros="codes"),
    "halves": lambda p: n_bits(p, 64, 24, 32, 8, dtype=TensorProto.FLOAT16),
}
QUICK = {"by column", "unsigned with zeros", "4 bits", "halves"}


def exact(model: Path, x: np.ndarray) -> np.ndarray:
    """onnxruntime's product, without its own quantisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (y,) = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    return np.asarray(y).astype(np.float64)


def weight_of(model: Path, k: int, dtype: Any) -> np.ndarray:
    """The numbers that a model's codes stand for: its product with the unit matrix."""
    return exact(model, np.eye(k, dtype=dtype))


def quantised(x: np.ndarray, part: int) -> np.ndarray:
    """Each part of a row on 256 equal steps from its least to its largest number."""
    parts = x.astype(np.float64).reshape(*x.shape[:-1], -1, part)
    low, high = parts.min(-1, keepdims=True), parts.max(-1, keepdims=True)
    step = np.maximum(high - low, 1e-30) / 255
    return (np.rint((parts - low) / step) * step + low).reshape(x.shape)


@pytest.mark.parametrize("case", [c if c in QUICK else pytest.param(c, marks=pytest.mark.long) for c in CASES])
def test_products_multiply_bytes_within_the_bound(case: str, tmp_path: Path) -> None:
    model = CASES[case](tmp_path / "m.onnx")
    shape = onnx.load(model).graph.input[0].type.tensor_type
    k = shape.shape.dim[1].dim_value
    kind = np.float16 if shape.elem_type == TensorProto.FLOAT16 else np.float32
    report = atc.convert(model, tmp_path / "m.om", dynamic_quantisation=True)
    assert len(report.quantised) == 1 and not report.aicpu_nodes
    weight, session = weight_of(model, k, kind), InferSession(0, tmp_path / "m.om")
    part = PART if k % PART == 0 else k
    for rows in (1, 3, 20):
        x = (np.random.default_rng(rows).standard_normal((rows, k)) * 3 + 1).astype(kind)
        x[0, : k // 2] = 0  # parts without any range
        (got,) = session.infer([x])
        parts = x.astype(np.float64).reshape(rows, -1, part)
        ranges = parts.max(-1) - parts.min(-1)
        bound = ranges / 510 @ np.abs(weight).reshape(-1, part, weight.shape[1]).sum(1)
        want = x.astype(np.float64) @ weight
        roundings = (2e-3 if kind == np.float16 else 4e-6) * np.abs(want).max()
        assert (np.abs(got - want) <= bound + roundings).all()
        # What is left of the difference against products of the same steps: numbers that lie between two of them.
        np.testing.assert_allclose(got, quantised(x, part) @ weight, atol=0.02 * bound.max() + roundings, rtol=0)
        assert np.linalg.norm(got - want) < 0.01 * np.linalg.norm(want)


def test_the_report_names_products_and_the_measured_error(tmp_path: Path) -> None:
    model = by_column(tmp_path / "m.onnx", 96, 40)
    plain = atc.convert(model, tmp_path / "plain.om")
    assert plain.quantised == [] and plain.quantisation_error == {}
    report = atc.convert(model, tmp_path / "m.om", dynamic_quantisation=True)
    assert report.quantised == ["product"] and report.options == {"dynamic_quantisation": "True"}
    assert isinstance(report.quantisation_error, dict) and 1e-4 < report.quantisation_error["y"] < 1e-2
    line = next(line for line in report.lines() if line.startswith("quantised"))
    assert "1 products" in line and "y 0." in line
    again = atc.convert(model, tmp_path / "again.om", dynamic_quantisation=True)
    assert again.package.read_bytes() == report.package.read_bytes()


def test_high_precision_goes_before_it(tmp_path: Path) -> None:
    model = by_column(tmp_path / "m.onnx", 96, 40)
    report = atc.convert(model, tmp_path / "m.om", dynamic_quantisation=True, high_precision=True)
    assert report.quantised == [] and any("--high_precision goes before" in note for note in report.notes)
    x = np.random.default_rng(0).standard_normal((3, 96)).astype(np.float32)
    np.testing.assert_allclose(InferSession(0, tmp_path / "m.om").infer([x])[0], exact(model, x), rtol=1e-5, atol=1e-5)


def test_rows_with_nan_and_infinity_do_not_look_right(tmp_path: Path) -> None:
    model = by_column(tmp_path / "m.onnx", 64, 24)
    atc.convert(model, tmp_path / "m.om", dynamic_quantisation=True)
    x = np.ones((3, 64), np.float32)
    x[0, 3], x[1, 40] = np.nan, np.inf
    (got,) = InferSession(0, tmp_path / "m.om").infer([x])
    assert not np.isfinite(got[:2]).any() and np.isfinite(got[2]).all()


def test_what_no_part_divides_stays_a_product_of_numbers(tmp_path: Path) -> None:
    model = by_column(tmp_path / "m.onnx", 37, 24)
    report = atc.convert(model, tmp_path / "m.om", dynamic_quantisation=True)
    assert report.quantised == []


def test_products_with_tables_stay_apart(tmp_path: Path) -> None:
    """A table of codes with a scale for each row is gathered as codes, whatever the option."""
    rng, node = np.random.default_rng(0), helper.make_node
    table, scales = rng.integers(-128, 128, (1000, 64)).astype(np.int8), rng.random((1000, 1)).astype(np.float32)
    nodes = [node("Cast", ["t"], ["c"], to=1), node("Mul", ["c", "s"], ["w"]), node("Gather", ["w", "i"], ["y"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("i", TensorProto.INT64, ["n"])], [info("y", TensorProto.FLOAT, ["n", 64])],
        [numpy_helper.from_array(table, "t"), numpy_helper.from_array(scales, "s")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    report = atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    assert report.package_bytes < table.nbytes + scales.nbytes + 60_000
    i = np.array([3, 999, 0])
    np.testing.assert_array_equal(InferSession(0, tmp_path / "m.om").infer([i])[0], (table * scales)[i])
