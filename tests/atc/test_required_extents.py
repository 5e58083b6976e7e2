"""Extents that only a run can compare: what does not fit is refused, where it runs; what must be equal has one kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from small_models import F32, N, array, info, model_of

from acl_runtime import InferSession
from atc.conversion import convert
from tensor_types.errors import InvalidModel

RNG = np.random.default_rng(3)


def _pair(model: onnx.ModelProto, folder: Path) -> tuple[InferSession, onnxruntime.InferenceSession, list[str]]:
    onnx.save(model, folder / "m.onnx")
    result = convert(folder / "m.onnx", folder / "m.om")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return InferSession(0, folder / "m.om"), theirs, [n["op"] for n in result.aicpu_nodes]


@pytest.mark.parametrize(
    ("node", "operand", "fits", "not_fits"),
    [
        (N("Reshape", ["x", "k"], ["y"]), [4], (1, 4), (2, 4)),
        (N("Reshape", ["x", "k"], ["y"]), [-1, 3], (3, 4), (2, 4)),
        (N("Squeeze", ["x", "k"], ["y"]), [0], (1, 4), (2, 4)),
    ],
)
def test_elements_that_do_not_fit(
    node: onnx.NodeProto, operand: list[int], fits: tuple[int, ...], not_fits: tuple[int, ...], tmp_path: Path
) -> None:
    nodes = [N("Relu", ["a"], ["x"]), node, N("Neg", ["y"], ["z"])]
    made = model_of(nodes, [info("a", F32, ["n", 4])], [info("z", F32, None)], [array("k", np.array(operand, np.int64))])
    ours, theirs, _ = _pair(made, tmp_path)
    a = RNG.standard_normal(fits).astype(np.float32)
    np.testing.assert_array_equal(ours.infer([a])[0], theirs.run(None, {"a": a})[0])
    wrong = RNG.standard_normal(not_fits).astype(np.float32)
    with pytest.raises(Exception, match=node.op_type):
        theirs.run(None, {"a": wrong})
    with pytest.raises(InvalidModel, match="E13014"):
        ours.infer([wrong])


def _squeezing(name: str, stride: int) -> onnx.GraphProto:
    """Pools, squeezes the last axis where it is 1, as torch exports `squeeze(-1)`, and needs a matrix from then on."""
    whole = helper.make_graph([N("Squeeze", ["p", "minus"], ["s"])], "squeezed", [], [info("s", F32, None)])
    same = helper.make_graph([N("Identity", ["p"], ["i"])], "same", [], [info("i", F32, None)])
    nodes = [
        N("MaxPool", ["x"], ["p"], kernel_shape=[stride], strides=[stride]),
        N("Shape", ["p"], ["shape"]), N("Gather", ["shape", "minus"], ["length"]), N("Equal", ["length", "one"], ["is_1"]),
        N("If", ["is_1"], ["v"], then_branch=whole, else_branch=same), N("Concat", ["v", "w"], [name], axis=0),
    ]  # fmt: skip
    return helper.make_graph(nodes, name, [], [info(name, F32, None)])


def test_a_branch_in_a_branch_that_can_never_work(tmp_path: Path) -> None:
    node = N("If", ["wide"], ["y"], then_branch=_squeezing("t", 8), else_branch=_squeezing("e", 4))
    constants = [array("minus", np.array([-1])), array("one", np.array([1])),
                 array("w", RNG.standard_normal((2, 3)).astype(np.float32))]  # fmt: skip
    inputs = [info("x", F32, ["n", 3, "s"]), info("wide", TensorProto.BOOL, [])]
    ours, theirs, aicpu = _pair(model_of([node], inputs, [info("y", F32, None)], constants), tmp_path)
    assert aicpu == []
    for wide, size in ((True, 8), (True, 13), (False, 4), (False, 7)):
        feeds = {"x": RNG.standard_normal((2, 3, size)).astype(np.float32), "wide": np.array(wide)}
        np.testing.assert_allclose(ours.infer(feeds)[0], theirs.run(None, feeds)[0], rtol=1e-5, atol=1e-6)
    for wide, size in ((True, 16), (False, 8)):
        feeds = {"x": np.ones((2, 3, size), np.float32), "wide": np.array(wide)}
        with pytest.raises(Exception, match="rank|dim"):
            theirs.run(None, feeds)
        with pytest.raises(InvalidModel, match="E13014"):
            ours.infer(feeds)


def test_a_recurrent_layer_whose_state_names_its_batch_otherwise(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {name: RNG.standard_normal(shape).astype(np.float32) * 0.3 for name, shape in
                              (("w", (1, 32, 6)), ("r", (1, 32, 8)))}  # fmt: skip
    nodes = [N("LSTM", ["x", "w", "r", "", "lengths", "h", "c"], ["", "last", "cell"], hidden_size=8)]
    inputs = [info("x", F32, [5, "a", 6]), info("lengths", TensorProto.INT32, ["b"]), info("h", F32, [1, "c", 8]),
              info("c", F32, [1, "d", 8])]  # fmt: skip
    outputs = [info("last", F32, None), info("cell", F32, None)]
    ours, theirs, aicpu = _pair(model_of(nodes, inputs, outputs, [array(n, v) for n, v in arrays.items()]), tmp_path)
    assert aicpu == []
    for batch in (1, 3):
        feeds = {"x": RNG.standard_normal((5, batch, 6)).astype(np.float32),
                 "lengths": RNG.integers(1, 6, batch).astype(np.int32),
                 "h": RNG.standard_normal((1, batch, 8)).astype(np.float32),
                 "c": RNG.standard_normal((1, batch, 8)).astype(np.float32)}  # fmt: skip
        for mine, other in zip(ours.infer(feeds), theirs.run(None, feeds), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    feeds["c"] = np.zeros((1, 2, 8), np.float32)
    with pytest.raises(InvalidModel, match="E13014"):
        ours.infer(feeds)
