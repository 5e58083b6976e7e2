"""Old opsets: each rule gives the newest form, the right types, and the old operator's numbers.

What an imported graph computes is told by onnxruntime, from the graph written back as opset 21. The expected numbers
come from onnxruntime on the old model, or from numpy where it does not run such an old one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from frontend import read_model
from graph_opt.ir import Graph
from graph_opt.ir.verifier import verify
from tests.frontend.check_shapes import compare, run
from tests.frontend.onnx_export import to_model

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((2, 3, 4, 5)).astype(np.float32)


def model_of(
    opset: int, nodes: list[onnx.NodeProto], feeds: dict[str, np.ndarray], outputs: list[str],
    constants: dict[str, np.ndarray] | None = None, dims: dict[str, list] | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """A model of an old opset; `dims` gives declared shapes of inputs that are not those of the feeds."""
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), (dims or {}).get(name, array.shape)
        )
        for name, array in feeds.items()
    ]
    initial = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    for info in declared:
        info.type.Clear()
    graph = helper.make_graph(nodes, "g", inputs, declared, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def imported(tmp_path: Path, model: onnx.ModelProto) -> Graph:
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    graph = read_model(path)
    verify(graph)
    return graph


N = helper.make_node
FROM_ORT = {
    # name: opset, nodes, constants, operators of the imported graph
    "squeeze": (11, [N("Unsqueeze", ["x"], ["u"], axes=[0, 5]), N("Squeeze", ["u"], ["y"], axes=[0])], {},
                ["Unsqueeze", "Squeeze"]),
    "squeeze_all": (11, [N("Unsqueeze", ["x"], ["u"], axes=[0]), N("Squeeze", ["u"], ["y"])], {},
                    ["Unsqueeze", "Squeeze"]),
    "reduce_sum": (11, [N("ReduceSum", ["x"], ["y"], axes=[1, -1], keepdims=0)], {}, ["ReduceSum"]),
    "reduce_mean": (13, [N("ReduceMean", ["x"], ["y"], axes=[2])], {}, ["ReduceMean"]),
    "reduce_all": (13, [N("ReduceMax", ["x"], ["y"])], {}, ["ReduceMax"]),
    "reduce_l2": (17, [N("ReduceL2", ["x"], ["y"], axes=[0, 3], keepdims=0)], {}, ["ReduceL2"]),
    "slice": (9, [N("Slice", ["x"], ["y"], starts=[1, -3], ends=[9, -1], axes=[1, 3])], {}, ["Slice"]),
    "slice_no_axes": (9, [N("Slice", ["x"], ["y"], starts=[0, 1], ends=[1, 3])], {}, ["Slice"]),
    "clip": (6, [N("Clip", ["x"], ["y"], min=-0.5, max=0.25)], {}, ["Clip"]),
    "clip_above": (6, [N("Clip", ["x"], ["y"], max=0.25)], {}, ["Clip"]),
    "pad": (10, [N("Pad", ["x"], ["y"], pads=[0, 0, 1, 2, 0, 0, 0, 1], value=2.5)], {}, ["Pad"]),
    "pad_reflect": (10, [N("Pad", ["x"], ["y"], pads=[0, 0, 1, 2, 0, 0, 0, 1], mode="reflect")], {}, ["Pad"]),
    "split": (11, [N("Split", ["x"], ["a", "b"], axis=3, split=[2, 3]), N("ReduceSum", ["b"], ["y"])], {},
              ["Split", "ReduceSum"]),
    "split_evenly": (11, [N("Split", ["x"], ["a", "y"], axis=2)], {}, ["Split"]),
    "split_evenly_13": (13, [N("Split", ["x"], ["a", "y"], axis=2)], {}, ["Split"]),
    "resize_11_tf_nn_up": (11, [N("Resize", ["x", "r", "s"], ["y"], nearest_mode="floor",
                                  coordinate_transformation_mode="tf_half_pixel_for_nn")],
                           {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 3, 2], np.float32)}, ["Resize"]),
    "top_k": (9, [N("TopK", ["x"], ["y", "i"], axis=2, k=2)], {}, ["TopK"]),
    "dropout": (9, [N("Dropout", ["x"], ["y"], ratio=0.9)], {}, ["Identity"]),
    "dropout_12": (13, [N("Dropout", ["x", "r", "t"], ["y", "m"])],
                   {"r": np.array(0.5, np.float32), "t": np.array(False)}, ["Shape", "ConstantOfShape", "Identity"]),
    "batch_norm": (9, [N("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], epsilon=0.1)],
                   {k: np.array(v, np.float32) for k, v in
                    {"s": [1, 2, 3], "b": [0, 1, -1], "m": [0.5, 0, 0], "v": [1, 2, 0.5]}.items()},
                   ["BatchNormalization"]),
    "softmax_flat": (11, [N("Softmax", ["x"], ["y"], axis=1)], {}, ["Flatten", "Shape", "Softmax", "Reshape"]),
    "softmax_default": (11, [N("LogSoftmax", ["x"], ["y"])], {}, ["Flatten", "Shape", "LogSoftmax", "Reshape"]),
    "softmax_of_nothing": (9, [N("Slice", ["x"], ["e"], starts=[2], ends=[2], axes=[3]),
                               N("Softmax", ["e"], ["y"], axis=1)], {},
                           ["Slice", "Flatten", "Shape", "Softmax", "Reshape"]),
    "softmax_last": (11, [N("Softmax", ["x"], ["y"], axis=3)], {}, ["Softmax"]),
    "softmax_negative": (11, [N("Softmax", ["x"], ["y"], axis=-1)], {}, ["Softmax"]),
    "hardmax": (11, [N("Hardmax", ["x"], ["y"], axis=2)], {}, ["Flatten", "Shape", "Hardmax", "Reshape"]),
    "upsample_7": (7, [N("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0])], {}, ["Resize"]),
    "upsample_linear": (9, [N("Upsample", ["x", "s"], ["y"], mode="linear")],
                        {"s": np.array([1, 1, 2, 1.5], np.float32)}, ["Resize"]),
    "resize_10_up": (10, [N("Resize", ["x", "s"], ["y"])], {"s": np.array([1, 1, 1.5, 2], np.float32)}, ["Resize"]),
    "resize_10_down": (10, [N("Resize", ["x", "s"], ["y"])], {"s": np.array([1, 1, 0.5, 0.6], np.float32)},
                       ["Resize"]),
    "resize_11_sizes": (11, [N("Resize", ["x", "r", "r", "z"], ["y"], mode="linear")],
                        {"r": np.zeros(0, np.float32), "z": np.array([2, 3, 8, 7], np.int64)}, ["Resize"]),
    "resize_11_tf_nn": (11, [N("Resize", ["x", "r", "s"], ["y"], nearest_mode="floor",
                               coordinate_transformation_mode="tf_half_pixel_for_nn")],
                        {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 0.5, 1.7], np.float32)}, ["Resize"]),
    "scatter": (9, [N("Scatter", ["x", "i", "x1"], ["y"], axis=1)],
                {"i": np.zeros((1, 1, 4, 5), np.int64), "x1": np.ones((1, 1, 4, 5), np.float32)}, ["ScatterElements"]),
    "grid_sample": (16, [N("GridSample", ["x", "g"], ["y"], mode="bicubic")],
                    {"g": RANDOM.uniform(-1, 1, (2, 3, 3, 2)).astype(np.float32)}, ["GridSample"]),
    "roi_align": (10, [N("RoiAlign", ["x", "r", "i"], ["y"], output_height=2, output_width=2, sampling_ratio=2)],
                  {"r": np.array([[0, 0, 3, 3]], np.float32), "i": np.zeros(1, np.int64)}, ["RoiAlign"]),
    "dft": (17, [N("Unsqueeze", ["x", "a"], ["u"]), N("DFT", ["u"], ["y"], axis=2)], {"a": np.array([4], np.int64)},
            ["Unsqueeze", "DFT"]),
    "argmax": (11, [N("ArgMax", ["x"], ["y"], axis=-1, keepdims=0)], {}, ["ArgMax"]),
    "lp_pool": (2, [N("LpPool", ["x"], ["y"], kernel_shape=[2, 2], p=3)], {}, ["LpPool"]),
    "constants": (12, [N("Constant", [], ["c"], value_floats=[1.0, 2, 3, 4, 5]), N("Add", ["x", "c"], ["y"])], {},
                  ["Add"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FROM_ORT)
@pytest.mark.parametrize("batch", [2, "n"], ids=["static", "symbolic"])
def test_form_types_and_numbers(tmp_path, case, batch):
    opset, nodes, constants, expected_ops = FROM_ORT[case]
    feeds = {"x": X}
    dims = {"x": [batch, *X.shape[1:]]}
    model = model_of(opset, nodes, feeds, ["y"], constants, dims)
    graph = imported(tmp_path, model)
    assert [node.op for node in graph.nodes] == expected_ops
    found = compare(graph, model, feeds)
    assert found.compared and not found.wrong
    if not (case == "squeeze_all" and batch == "n"):  # n may be 1, and then the axis goes
        assert not found.open
    np.testing.assert_allclose(run(to_model(graph), feeds)[0], run(model, feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("alpha,beta,bias", [(1.0, 1.0, "c"), (0.5, 2.0, "c"), (1.0, 0.0, "c"), (2.0, 1.0, None)])
@pytest.mark.parametrize("turned", [0, 1])
def test_gemm_is_matmul(tmp_path, opset, alpha, beta, bias, turned):
    a, b = RANDOM.standard_normal((3, 4)).astype(np.float32), RANDOM.standard_normal((4, 5)).astype(np.float32)
    constants = {"b": b.T.copy() if turned else b, "c": np.arange(5, dtype=np.float32)}
    feeds = {"a": a.T.copy() if turned else a}
    inputs = ["a", "b"] + ([bias] if bias or opset < 11 else [])
    if inputs[-1] is None:
        inputs[-1] = "c"
    node = N("Gemm", inputs, ["y"], alpha=alpha, beta=beta, transA=turned, transB=turned)
    model = model_of(opset, [node], feeds, ["y"], constants)
    graph = imported(tmp_path, model)
    assert "Gemm" not in {n.op for n in graph.nodes}
    assert sum(n.op == "MatMul" for n in graph.nodes) == 1
    assert sum(n.op == "Transpose" for n in graph.nodes) == turned  # the constant operand is a view
    np.testing.assert_allclose(run(to_model(graph), feeds)[0], run(model, feeds)[0], rtol=1e-5, atol=1e-6)


def test_integer_gemm_is_exact(tmp_path):
    feeds = {"a": np.array([[1, 2], [3, 4]], np.int32)}
    node = N("Gemm", ["a", "b", "c"], ["y"])
    constants = {"b": np.array([[1 << 24, 1], [1, 1]], np.int32), "c": np.array([1, 1], np.int32)}
    graph = imported(tmp_path, model_of(13, [node], feeds, ["y"], constants))
    actual = run(to_model(graph), feeds)[0]
    np.testing.assert_array_equal(actual, feeds["a"] @ constants["b"] + constants["c"])


def from_numpy(tmp_path, opset, nodes, feeds, constants, expected):
    """For opsets that onnxruntime does not run: the imported graph against numpy."""
    graph = imported(tmp_path, model_of(opset, nodes, feeds, ["y"], constants))
    actual = run(to_model(graph), feeds)[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    assert graph.outputs[0].shape == expected.shape
    assert graph.outputs[0].dtype.numpy == expected.dtype
    return graph


@pytest.mark.parametrize("axis", [1, -3])
def test_broadcast_at_an_axis(tmp_path, axis):
    b = np.array([1, 2, 3], np.float32)
    node = N("Mul", ["x", "b"], ["y"], broadcast=1, axis=axis)
    from_numpy(tmp_path, 6, [node], {"x": X}, {"b": b}, X * b[:, None, None])


def test_broadcast_at_the_end(tmp_path):
    b = np.arange(20, dtype=np.float32).reshape(4, 5)
    from_numpy(tmp_path, 6, [N("Add", ["x", "b"], ["y"], broadcast=1)], {"x": X}, {"b": b}, X + b)


def test_broadcast_of_a_scalar_at_an_axis(tmp_path):
    b = np.array([2], np.float32)
    from_numpy(tmp_path, 6, [N("Sub", ["x", "b"], ["y"], broadcast=1, axis=0)], {"x": X}, {"b": b}, X - b)


def test_slope_per_channel(tmp_path):
    slope = np.array([0.1, 0.2, 0.3], np.float32)
    expected = np.where(X < 0, X * slope[:, None, None], X)
    from_numpy(tmp_path, 6, [N("PRelu", ["x", "s"], ["y"])], {"x": X}, {"s": slope}, expected)


def test_reshape_by_attribute(tmp_path):
    node = N("Reshape", ["x"], ["y"], shape=[0, -1], consumed_inputs=[0])
    graph = from_numpy(tmp_path, 1, [node], {"x": X}, {}, X.reshape(2, -1))
    assert graph.nodes[0].attrs == {}


def test_cast_by_name(tmp_path):
    from_numpy(tmp_path, 1, [N("Cast", ["x"], ["y"], to="INT32")], {"x": X}, {}, X.astype(np.int32))


def test_tile_along_one_axis(tmp_path):
    counts = {"t": np.array(3, np.float32), "a": np.array(2, np.float32)}
    from_numpy(tmp_path, 1, [N("Tile", ["x", "t", "a"], ["y"])], {"x": X}, counts, np.tile(X, (1, 1, 3, 1)))


def test_upsample_by_height_and_width(tmp_path):
    node = N("Upsample", ["x"], ["y"], height_scale=2.0, width_scale=1.0)
    from_numpy(tmp_path, 1, [node], {"x": X}, {}, X.repeat(2, axis=2))


def test_concat_without_axis(tmp_path):
    node = N("Concat", ["x", "x"], ["y"])
    from_numpy(tmp_path, 1, [node], {"x": X}, {}, np.concatenate([X, X], axis=1))


def test_pad_by_paddings(tmp_path):
    node = N("Pad", ["x"], ["y"], paddings=[0, 0, 0, 1, 0, 0, 2, 0])
    from_numpy(tmp_path, 1, [node], {"x": X}, {}, np.pad(X, ((0, 0), (0, 0), (0, 2), (1, 0))))


def test_selu_had_rounded_constants(tmp_path):
    expected = (1.0507 * np.where(X > 0, X, 1.6732 * np.exp(X) - 1.6732)).astype(np.float32)
    graph = from_numpy(tmp_path, 1, [N("Selu", ["x"], ["y"])], {"x": X}, {}, expected)
    assert graph.nodes[0].attrs == {"alpha": 1.6732, "gamma": 1.0507}


@pytest.mark.parametrize("constant", [True, False])
def test_group_normalization_per_group(tmp_path, constant):
    x = RANDOM.standard_normal((2, 4, 5)).astype(np.float32)
    scale, bias = np.array([1, 2], np.float32), np.array([0, 3], np.float32)
    grouped = x.reshape(2, 2, 10).astype(np.float64)
    deviation = np.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    normal = (grouped - grouped.mean(-1, keepdims=True)) / deviation
    expected = (normal * scale[:, None] + bias[:, None]).reshape(x.shape).astype(np.float32)
    factors = {"s": scale, "b": bias}
    feeds = {"x": x} | ({} if constant else factors)
    node = N("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2, epsilon=1e-5)
    from_numpy(tmp_path, 18, [node], feeds, factors if constant else {}, expected)


def test_statistics_per_activation(tmp_path):
    shape = X.shape[1:]
    s, b, m, v = (RANDOM.uniform(0.5, 2, shape).astype(np.float32) for _ in range(4))
    node = N("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], spatial=0, epsilon=1e-5)
    expected = ((X - m) / np.sqrt(v + 1e-5) * s + b).astype(np.float32)
    from_numpy(tmp_path, 7, [node], {"x": X}, {"s": s, "b": b, "m": m, "v": v}, expected)


def test_training_is_never_inference(tmp_path):
    node = N("BatchNormalization", ["x", "s", "s", "s", "s"], ["y", "rm", "rv"], training_mode=1)
    graph = imported(tmp_path, model_of(15, [node], {"x": X}, ["y", "rm"], {"s": np.ones(3, np.float32)}))
    assert graph.nodes[0].attrs["training_mode"] == 1 and len(graph.nodes[0].outputs) == 3
    training = N("Dropout", ["x", "r", "t"], ["y"])
    constants = {"r": np.array(0.5, np.float32), "t": np.array(True)}
    graph = imported(tmp_path, model_of(13, [training], {"x": X}, ["y"], constants))
    assert [n.op for n in graph.nodes] == ["Dropout"]


def test_unused_part_of_a_split_takes_its_share(tmp_path):
    graph = imported(tmp_path, model_of(13, [N("Split", ["x"], ["y", ""], axis=2)], {"x": X}, ["y"]))
    assert graph.outputs[0].shape == (2, 3, 2, 5)  # onnxruntime does not survive an output without a name
    assert graph.nodes[0].attrs["num_outputs"] == len(graph.nodes[0].outputs) == 2


def test_mask_of_dropout_has_the_type_of_its_opset(tmp_path):
    for opset, dtype in ((9, "f32"), (10, "bool")):
        graph = imported(tmp_path, model_of(opset, [N("Dropout", ["x"], ["h", "y"])], {"x": X}, ["y"]))
        assert graph.outputs[0].name == "y" and str(graph.outputs[0].dtype) == dtype
        assert graph.outputs[0].shape == X.shape


def test_first_scan_is_listed_as_unsupported(tmp_path):
    from frontend import unsupported

    body = helper.make_graph(
        [N("Add", ["s", "e"], ["o"]), N("Identity", ["o"], ["z"])], "b",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "se"],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "oz"],
    )  # fmt: skip
    node = N("Scan", ["", "s0", "x"], ["y", "z2"], name="first_scan", body=body, num_scan_inputs=1)
    feeds = {"s0": np.zeros((1, 3), np.float32), "x": np.zeros((1, 4, 3), np.float32)}
    (row,) = unsupported(imported(tmp_path, model_of(8, [node], feeds, ["y"])))
    assert row.node == "first_scan" and "Scan" in row.op and row.remedy
