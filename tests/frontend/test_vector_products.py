"""Products with vectors are products of matrices with one row or column: native, with numpy.matmul's shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import atc
from acl_runtime import InferSession
from frontend import read_model

RNG = np.random.default_rng(1)


def saved(
    path: Path, op: str, a: np.ndarray, b: np.ndarray, extra: tuple[np.ndarray, ...] = (), constant: bool = False,
    dims: tuple[list | None, list | None] = (None, None),
) -> Path:  # fmt: skip
    """A model of one product; `constant` puts the right operand into the file."""
    arrays = {"a": a, "b": b, **{f"z{i}": z for i, z in enumerate(extra)}}
    held = {n for n in arrays if n.startswith("z") or (constant and n == "b")}
    shapes = {"a": dims[0] or a.shape, "b": dims[1] or b.shape}
    wire = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(arrays[n].dtype), shapes[n])
        for n in "ab" if n not in held
    ]  # fmt: skip
    result = helper.make_tensor_value_info("y", TensorProto.INT32 if extra else TensorProto.FLOAT, None)
    initial = [numpy_helper.from_array(arrays[n], n) for n in arrays if n in held]
    graph = helper.make_graph([helper.make_node(op, list(arrays), ["y"])], "g", wire, [result], initial)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("left,right", [((7,), (7,)), ((7,), (7, 5)), ((3, 7), (7,)), ((2, 1, 7), (7,)),
                                        ((7,), (2, 3, 7, 1)), ((1,), (1,))], ids=str)  # fmt: skip
def test_floats(tmp_path: Path, left: tuple[int, ...], right: tuple[int, ...], constant: bool) -> None:
    a, b = (RNG.normal(size=s).astype(np.float32) for s in (left, right))
    made = atc.convert(saved(tmp_path / "m.onnx", "MatMul", a, b, constant=constant), tmp_path / "m.om")
    assert not made.aicpu_nodes
    (got,) = InferSession(0, tmp_path / "m.om").infer({"a": a} if constant else {"a": a, "b": b})
    want = np.matmul(a.astype(np.float64), b.astype(np.float64))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_codes(tmp_path: Path) -> None:
    a, b = RNG.integers(0, 256, 9).astype(np.uint8), RNG.integers(-128, 128, (9, 4)).astype(np.int8)
    zeros = (np.array(3, np.uint8), np.array(-5, np.int8))
    made = atc.convert(saved(tmp_path / "m.onnx", "MatMulInteger", a, b, zeros), tmp_path / "m.om")
    assert not made.aicpu_nodes
    (got,) = InferSession(0, tmp_path / "m.om").infer({"a": a, "b": b})
    np.testing.assert_array_equal(got, (a.astype(np.int32) - 3) @ (b.astype(np.int32) + 5))


def test_run_time_lengths(tmp_path: Path) -> None:
    sample = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    path = saved(tmp_path / "m.onnx", "MatMul", sample, sample[0, 0], dims=(["b", 3, "k"], ["k"]))
    assert not atc.convert(path, tmp_path / "m.om").aicpu_nodes
    session = InferSession(0, tmp_path / "m.om")
    for b, k in ((1, 1), (5, 130)):
        a, v = RNG.normal(size=(b, 3, k)).astype(np.float32), RNG.normal(size=k).astype(np.float32)
        np.testing.assert_allclose(session.infer({"a": a, "b": v})[0], a @ v, rtol=1e-4, atol=1e-5)


def test_operands_without_a_rank_stay(tmp_path: Path) -> None:
    a = np.ones((2, 3), np.float32)
    path = saved(tmp_path / "m.onnx", "MatMul", a, a.T)
    proto = onnx.load(path)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(proto, path)
    assert [n.op for n in read_model(path).nodes] == ["MatMul"]
