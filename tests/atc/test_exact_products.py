"""Integer products of the reference: onnxruntime saturates u8 x s8 on some CPUs, the rewritten model never does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from atc.exact_products import make_products_exact

rng = np.random.default_rng(0)
MS = "com.microsoft"
ONE = np.float32(1)


def model(op: str, operands: list[np.ndarray | None], constants: set[int], out: type = np.float32) -> onnx.ModelProto:
    names = ["" if a is None else f"x{i}" for i, a in enumerate(operands)]
    standard = op in ("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv")
    node = helper.make_node(op, names, ["y"], domain="" if standard else MS)
    inputs, stored = [], []
    for number, array in enumerate(operands):
        if array is not None and number in constants:
            stored.append(numpy_helper.from_array(np.asarray(array), names[number]))
        elif array is not None:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(names[number], kind, array.shape))
    result = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(out)), None)
    graph = helper.make_graph([node], "g", inputs, [result], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(MS, 1)], ir_version=9)


def run(proto: onnx.ModelProto, operands: list[np.ndarray | None]) -> np.ndarray:
    make_products_exact(proto)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: operands[int(i.name[1:])] for i in session.get_inputs()})[0]


def codes(dtype: Any, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def product(a: np.ndarray, b: np.ndarray, za: Any, zb: Any) -> np.ndarray:
    """In i64; zero points that broadcast."""
    return (a.astype(np.int64) - np.asarray(za, np.int64)) @ (b.astype(np.int64) - np.asarray(zb, np.int64))


@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize("constants", [{1}, {1, 3}, set()], ids=["weight", "weight and zero point", "nothing"])
@pytest.mark.parametrize("zero", [None, "one", "each column"])
def test_matmul_integer(left: type, constants: set[int], zero: str | None) -> None:
    a, b = codes(left, 9, 44), codes(np.int8, 44, 72)
    zb = None if zero is None else np.int8(-7) if zero == "one" else codes(np.int8, 72)
    operands = [a, b, np.asarray(left(11)), None if zb is None else np.asarray(zb)]
    proto = model("MatMulInteger", operands[: 4 if zero else 3], constants | {2}, np.int32)
    np.testing.assert_array_equal(run(proto, operands), product(a, b, 11, 0 if zb is None else zb))


def test_qlinear_matmul() -> None:
    a, b = codes(np.uint8, 9, 44), codes(np.int8, 44, 72)
    scale, out_zero = np.float32(2000), np.uint8(128)
    operands = [a, ONE, np.uint8(120), b, ONE, np.int8(-3), scale, out_zero]
    operands = [np.asarray(o) for o in operands]
    found = run(model("QLinearMatMul", operands, set(range(1, 8)), np.uint8), operands)
    exact = np.clip(np.rint(product(a, b, 120, -3) / 2000) + 128, 0, 255)
    assert np.abs(found.astype(int) - exact).max() <= 1


def test_qlinear_conv() -> None:
    x, w = codes(np.uint8, 1, 40, 9, 9), codes(np.int8, 16, 40, 1, 1)
    operands = [x, ONE, np.uint8(120), w, ONE, np.int8(0), np.float32(2000), np.uint8(128)]
    operands = [np.asarray(o) for o in operands]
    found = run(model("QLinearConv", operands, set(range(1, 8)), np.uint8), operands)
    total = np.einsum("nchw,mc->nmhw", x.astype(np.int64) - 120, w[:, :, 0, 0].astype(np.int64))
    assert np.abs(found.astype(int) - np.clip(np.rint(total / 2000) + 128, 0, 255)).max() <= 1


@pytest.mark.parametrize("kinds", [(np.int8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)], ids=str)
def test_conv_integer(kinds: tuple[type, type]) -> None:
    x, w = codes(kinds[0], 1, 8, 9, 9), codes(kinds[1], 16, 8, 1, 1)
    operands = [x, w, np.asarray(kinds[0](-5 if kinds[0] == np.int8 else 5)), np.asarray(kinds[1](3))]
    found = run(model("ConvInteger", operands, {1, 2, 3}, np.int32), operands)
    wide = [a.astype(np.int64) - zero for a, zero in zip(operands[:2], operands[2:], strict=True)]
    np.testing.assert_array_equal(found, np.einsum("nchw,mc->nmhw", wide[0], wide[1][:, :, 0, 0]))


def test_matmul_integer_to_float() -> None:
    a, b = codes(np.uint8, 9, 44), codes(np.int8, 44, 72)
    operands = [a, b, np.asarray(ONE), np.asarray(np.float32(0.5)), np.asarray(np.uint8(120))]
    found = run(model("MatMulIntegerToFloat", operands, {1, 2, 3, 4}), operands)
    np.testing.assert_array_equal(found, product(a, b, 120, 0) * np.float32(0.5))


def test_qgemm() -> None:
    a, b = codes(np.uint8, 9, 44), codes(np.int8, 44, 72)
    operands = [np.asarray(o) for o in (a, ONE, np.uint8(120), b, np.float32(0.5), np.int8(5))]
    found = run(model("QGemm", operands, {1, 2, 3, 4, 5}), operands)
    np.testing.assert_array_equal(found, product(a, b, 120, 5) * np.float32(0.5))


def test_dynamic_quantize_matmul() -> None:
    codes_of_x, b = codes(np.uint8, 9, 44), codes(np.int8, 44, 72)
    codes_of_x[0, :2] = 0, 255
    x = codes_of_x.astype(np.float32)  # of scale 1 and zero point 0
    operands = [x, b, np.asarray(np.float32(0.5)), np.asarray(np.int8(5))]
    found = run(model("DynamicQuantizeMatMul", operands, {1, 2, 3}), operands)
    np.testing.assert_allclose(found, product(codes_of_x, b, 0, 5) * 0.5, rtol=1e-6)


def test_weights_of_an_outer_graph_and_other_readers() -> None:
    """The weight is read inside a branch as well, and by a node that wants it as it is."""
    a, b = codes(np.uint8, 3, 44), codes(np.int8, 44, 8)
    info, make = helper.make_tensor_value_info, helper.make_node
    branch = [
        helper.make_graph([make("MatMulInteger", ["a", "b"], [f"p{n}"])], "body", [], [info(f"p{n}", 6, None)])
        for n in range(2)
    ]
    nodes = [make("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1]), make("Abs", ["b"], ["z"])]
    inputs, outputs = [info("a", 2, a.shape), info("c", 9, [])], [info("y", 6, None), info("z", 3, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(b, "b")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    make_products_exact(proto)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    y, z = session.run(None, {"a": a, "c": np.array(True)})
    np.testing.assert_array_equal(y, product(a, b, 0, 0))
    np.testing.assert_array_equal(z, np.abs(b))


def test_a_model_without_products_is_left_alone() -> None:
    proto = model("MatMulInteger", [codes(np.uint8, 3, 4), codes(np.uint8, 4, 5)], {1}, np.int32)
    before = proto.SerializeToString(deterministic=True)
    make_products_exact(proto)
    assert proto.SerializeToString(deterministic=True) == before
