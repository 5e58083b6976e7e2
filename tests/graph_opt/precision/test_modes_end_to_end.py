"""A small network in every mode: the package's result against onnxruntime's f32 result, and what was reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import atc
from acl_runtime import InferSession
from atc.options import Options
from atc.usage import UsageError
from graph_opt.precision.lists import POLICIES, VERSION_2
from tests.graph_opt.families import OWN

LIMITS = {None: 1e-6, "f16": 2e-3, "bf16": 1.5e-2}
"""Relative L2 by narrow dtype: a few roundings of 2**-24, 2**-11 and 2**-8."""
WINOGRAD = 2e-6
"""The same of f32 where convolutions are Winograd's: what docs/numerics.md states for 256 channels."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolution, residual, pooling, normalisation and products; an index beside the numbers."""
    rng = np.random.default_rng(5)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        scale = np.sqrt(2 / max(1, int(np.prod(shape[1:]))))
        return numpy_helper.from_array((rng.standard_normal(shape) * scale).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "k1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c1"], ["s1"]),
        helper.make_node("Mul", ["c1", "s1"], ["a1"]),
        helper.make_node("Conv", ["a1", "k2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "a1"], ["r"]),
        helper.make_node("Relu", ["r"], ["a2"]),
        helper.make_node("MaxPool", ["a2"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w1"], ["m"]),
        helper.make_node("LayerNormalization", ["m", "g"], ["n"], axis=-1),
        helper.make_node("MatMul", ["n", "w2"], ["y"]),
        helper.make_node("Softmax", ["y"], ["probabilities"]),
        helper.make_node("MatMul", ["n", "w3"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["index"], axis=1, keepdims=0),
    ]
    constants = [
        weight("k1", 16, 3, 3, 3), weight("b1", 16), weight("k2", 16, 16, 3, 3), weight("b2", 16),
        weight("w1", 16 * 4 * 4, 24), weight("g", 24), weight("w2", 24, 10), weight("w3", 24, 6),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [2, 10]),
         helper.make_tensor_value_info("index", TensorProto.INT64, [2])], constants,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("precision") / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def in_doubles(model: Path, x: np.ndarray) -> np.ndarray:
    """The first output as ONNX's reference computes it in f64."""
    proto = onnx.load(model)
    for constant in proto.graph.initializer:
        constant.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(constant).astype(np.float64), constant.name))
    for value in (*proto.graph.input, *proto.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return ReferenceEvaluator(proto).run(None, {"x": x.astype(np.float64)})[0]


@pytest.mark.parametrize("mode", [*POLICIES, *VERSION_2])
def test_every_mode_is_as_right_as_its_dtype(model: Path, tmp_path: Path, mode: str) -> None:
    x = np.random.default_rng(6).standard_normal((2, 3, 8, 8)).astype(np.float32)
    expected = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    result = atc.convert(model, tmp_path / "small.om", precision_mode=mode)
    found = InferSession(0, tmp_path / "small.om").infer({"x": x})
    narrow = POLICIES[VERSION_2.get(mode, mode)].narrow
    exact = in_doubles(model, x)
    error = np.linalg.norm(found[0] - exact) / np.linalg.norm(exact)
    if narrow is None:
        assert error <= WINOGRAD
        atc.convert(model, tmp_path / "direct.om", precision_mode=mode, high_precision=True)
        direct = InferSession(0, tmp_path / "direct.om").infer({"x": x})[0]
        assert np.linalg.norm(direct - exact) <= LIMITS[None] * np.linalg.norm(exact)
    else:
        assert error <= LIMITS[narrow.name]
    assert found[0].dtype == np.float32
    np.testing.assert_array_equal(found[1], expected[1])
    if narrow is None:
        assert result.dtypes == {"f32": result.dtypes["f32"]}
    else:
        assert error > 1e-6 and result.dtypes[narrow.name] >= 4
    assert result.atc_default["f16"] > 8 and "force_fp16" in "\n".join(result.lines())


def test_narrow_weights_make_a_smaller_package(model: Path, tmp_path: Path) -> None:
    sizes = [sum(v.nbytes for v in _constants(model, tmp_path, mode)) for mode in ("origin", "mixed_bfloat16")]
    assert sizes[1] < 0.6 * sizes[0]


def _constants(model: Path, folder: Path, mode: str) -> list[np.ndarray]:
    from atc.pipeline import passes
    from frontend import read_model
    from graph_opt.ir.passes import run_passes

    graph = read_model(model)
    run_passes(graph, passes(OWN, VERSION_2[mode]), verify=True)
    return [v.data for v in graph.constants() if v.data is not None]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--precision_mode=fp8"], "E10001"),
        (["--precision_mode_v2=force_fp16"], "E10001"),
        (["--precision_mode=force_fp16", "--precision_mode_v2=fp16"], "E10056"),
    ],
)
def test_wrong_modes_are_refused(flags: list[str], code: str) -> None:
    with pytest.raises(UsageError) as caught:
        Options.of(dict(flag.removeprefix("--").split("=") for flag in flags))
    assert caught.value.code == code and "precision_mode" in caught.value.where["flag"] and caught.value.remedy


def test_a_call_with_an_unknown_mode_is_refused(model: Path) -> None:
    with pytest.raises(UsageError) as caught:
        atc.convert(model, precision_mode="half")
    assert "allow_mix_precision_bf16" in caught.value.remedy
