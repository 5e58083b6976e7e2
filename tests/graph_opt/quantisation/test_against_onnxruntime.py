"""Quantised operators as converted: no code off by more than 1 from onnxruntime, and nothing left to the AI CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from acl_runtime.om import open_package
from atc.package_texts import graph_of
from tests.graph_opt.quantisation.quantised_models import both, steps_apart

node = helper.make_node
RNG = np.random.default_rng(5)


def _floats(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def _codes(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def _f(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def _zero(dtype: str, value: int) -> np.ndarray:
    return np.array(value, dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_quantize_rounds_to_even_and_saturates(tmp_path: Path, dtype: str) -> None:
    info = np.iinfo(dtype)
    special = np.array([0.125, 0.375, -0.125, 0.625, 1e9, -1e9, np.inf, -np.inf, 0.0, -0.0], np.float32)
    x = np.concatenate([special, _floats(241, scale=(info.max - info.min) / 6)])
    constants = {"s": _f(0.25), "z": _zero(dtype, 3)}
    ours, theirs, made = both(
        tmp_path, [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])],
        constants, {"x": x}, ["q", "y"],
    )  # fmt: skip
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_array_equal(ours[1], theirs[1])
    assert not made.aicpu_nodes


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_per_axis_parameters(tmp_path: Path, axis: int) -> None:
    x = _floats(3, 5, 7, scale=4)
    count = x.shape[axis]
    constants = {"s": (np.abs(_floats(count)) + 0.05).astype(np.float32), "z": RNG.integers(-9, 9, count).astype(np.int8)}
    ours, theirs, made = both(
        tmp_path,
        [node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis),
         node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis)],
        constants, {"x": x}, ["q", "y"],
    )  # fmt: skip
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
    assert not made.aicpu_nodes


@pytest.mark.parametrize("x", [_floats(4, 33), np.abs(_floats(2, 3, 5)), -np.abs(_floats(50)), np.zeros((3, 4), np.float32)])
def test_dynamic_quantisation(tmp_path: Path, x: np.ndarray) -> None:
    ours, theirs, made = both(
        tmp_path, [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])], {}, {"x": x}, ["q", "s", "z"]
    )
    assert steps_apart(ours[0], theirs[0]) <= 1
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
    assert steps_apart(ours[2], theirs[2]) == 0
    assert not made.aicpu_nodes


@pytest.mark.parametrize("weights", ["tensor", "column", "unsigned", "wide"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_qdq_matmul_with_bias(tmp_path: Path, dtype: str, weights: str) -> None:
    m, k, n = 9, 64, 21
    unsigned = weights in ("unsigned", "wide")
    w = _codes("uint8" if unsigned else "int8", k, n)
    constants = {
        "xs": _f(0.02), "xz": _zero(dtype, 101), "w": w, "ys": _f(0.15), "yz": _zero(dtype, 90), "b": _floats(n, scale=3),
        "ws": _f(0.01) if weights != "column" else (np.abs(_floats(n)) * 0.01 + 0.001).astype(np.float32),
        "wz": np.zeros(n, w.dtype) if weights == "column" else _zero(str(w.dtype), 119 if weights == "wide" else 0),
    }  # fmt: skip
    ours, theirs, made = both(
        tmp_path,
        [node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]), node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
         node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1), node("MatMul", ["xd", "wd"], ["p"]),
         node("Add", ["p", "b"], ["t"]), node("QuantizeLinear", ["t", "ys", "yz"], ["y"])],
        constants, {"x": _floats(m, k)}, ["y"],
    )  # fmt: skip
    assert steps_apart(ours[0], theirs[0]) <= 1
    assert np.unique(theirs[0]).size > 20, "the case says nothing"
    assert not made.aicpu_nodes


@pytest.mark.parametrize("op", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QAttention"])
def test_products_of_com_microsoft_are_those_of_bytes(tmp_path: Path, op: str) -> None:
    constants = {
        "as": _f(0.02), "az": _zero("uint8", 120), "w": _codes("int8", 64, 48), "bias": _floats(48),
        "ws": (np.abs(_floats(48)) * 0.01 + 0.001).astype(np.float32), "wz": np.zeros(48, np.int8),
    }  # fmt: skip
    operands, attrs = {
        "DynamicQuantizeMatMul": (["x", "w", "ws", "wz", "bias"], {}),
        "MatMulIntegerToFloat": (["q", "w", "as", "ws", "az", "wz", "bias"], {}),
        "QAttention": (["q", "w", "bias", "as", "ws", "", "az", "wz"], {"num_heads": 4}),
    }[op]
    inputs = {"x": _floats(2, 9, 64)} if "x" in operands else {"q": _codes("uint8", 2, 9, 64)}
    ours, theirs, made = both(
        tmp_path, [node(op, operands, ["y"], domain="com.microsoft", **attrs)], constants, inputs, ["y"]
    )
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-4 * np.abs(theirs[0]).max())
    bodies = [n.subgraphs["body"] for n in graph_of(open_package(tmp_path / "m.om")).nodes if n.op == "Fused"]
    assert "MatMulInteger" in {n.op for body in bodies for n in body.nodes} and not made.aicpu_nodes


@pytest.mark.parametrize(("a", "b"), [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize("k", [64, 45])
def test_a_product_of_two_tensors_is_one_of_bytes(tmp_path: Path, a: str, b: str, k: int) -> None:
    """Attention: scores and what they weigh are quantised at run time."""
    zeros = {"uint8": 131, "int8": -9}
    constants = {
        "as": _f(0.02), "az": _zero(a, zeros[a]), "bs": _f(0.03), "bz": _zero(b, zeros[b]), "ys": _f(0.2), "yz": _zero("uint8", 120),
    }  # fmt: skip
    nodes = [
        n for v, side in (("x", "a"), ("u", "b"))
        for n in (node("QuantizeLinear", [v, f"{side}s", f"{side}z"], [f"{side}q"]),
                  node("DequantizeLinear", [f"{side}q", f"{side}s", f"{side}z"], [f"{side}d"]))
    ]  # fmt: skip
    nodes += [node("MatMul", ["ad", "bd"], ["p"]), node("QuantizeLinear", ["p", "ys", "yz"], ["y"])]
    ours, theirs, made = both(tmp_path, nodes, constants, {"x": _floats(2, 3, 40, k), "u": _floats(2, 3, k, 33)}, ["y"])
    assert (ours[0] != theirs[0]).mean() < 1e-3 and steps_apart(ours[0], theirs[0]) <= 1
    assert np.unique(theirs[0]).size > 20, "the case says nothing"
    bodies = [n.subgraphs["body"] for n in graph_of(open_package(tmp_path / "m.om")).nodes if n.op == "Fused"]
    products = {n.op for body in bodies for n in body.nodes if "MatMul" in n.op}
    assert products == {"MatMulInteger"} and not made.aicpu_nodes


def test_gemm_with_transposed_weight(tmp_path: Path) -> None:
    constants = {
        "xs": _f(0.02), "xz": _zero("uint8", 120), "w": _codes("int8", 21, 64), "wz": np.zeros(21, np.int8),
        "ws": (np.abs(_floats(21)) * 0.01 + 0.001).astype(np.float32), "b": _codes("int8", 21).astype(np.int32),
        "bs": (np.abs(_floats(21)) * 0.01).astype(np.float32), "bz": np.zeros(21, np.int32),
    }  # fmt: skip
    ours, theirs, made = both(
        tmp_path,
        [node("DequantizeLinear", ["x", "xs", "xz"], ["xd"]), node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
         node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0), node("Gemm", ["xd", "wd", "bd"], ["y"], transB=1)],
        constants, {"x": _codes("uint8", 7, 64)}, ["y"],
    )  # fmt: skip
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
    assert not made.aicpu_nodes


@pytest.mark.parametrize(("b_dtype", "b_zero"), [("int8", 0), ("uint8", 128), ("uint8", 90), ("int8", -7)])
def test_matmul_integer_is_exact(tmp_path: Path, b_dtype: str, b_zero: int) -> None:
    constants = {"b": _codes(b_dtype, 65, 40), "bz": _zero(b_dtype, b_zero)}
    inputs = {"a": _codes("uint8", 2, 9, 65), "az": _zero("uint8", 77)}
    ours, theirs, made = both(
        tmp_path, [node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])], constants, inputs, ["y"]
    )
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert not made.aicpu_nodes


def test_matmul_integer_with_zero_points_of_columns(tmp_path: Path) -> None:
    constants = {"b": _codes("uint8", 64, 40), "bz": _codes("uint8", 40), "az": _zero("uint8", 3)}
    inputs = {"a": _codes("uint8", 9, 64)}
    ours, theirs, made = both(
        tmp_path, [node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])], constants, inputs, ["y"]
    )
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert not made.aicpu_nodes


@pytest.mark.parametrize("channels", [3, 700])
def test_conv_integer_is_exact(tmp_path: Path, channels: int) -> None:
    """700 channels of 3x3 bytes make sums that f32 does not hold."""
    w = _codes("uint8", 8, channels, 3, 3)
    x = _codes("uint8", 1, channels, 7, 6)
    x[0, :, :3] = 255
    constants = {"w": w, "wz": _zero("uint8", 17), "xz": _zero("uint8", 4)}
    ours, theirs, made = both(
        tmp_path, [node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], pads=[1, 1, 1, 1], strides=[2, 1])],
        constants, {"x": x}, ["y"],
    )  # fmt: skip
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert not made.aicpu_nodes


@pytest.mark.parametrize("known", [True, False], ids=["constant", "run-time"])
@pytest.mark.parametrize(("x_dtype", "x_zero"), [("uint8", 131), ("int8", -128), ("uint8", 0)])
@pytest.mark.parametrize(("w_dtype", "w_zero"), [("int8", 0), ("uint8", 128), ("int8", -1)])
@pytest.mark.parametrize("attrs", [{"pads": [1, 0, 2, 1], "strides": [2, 1]}, {"auto_pad": "SAME_UPPER"}, {}], ids=str)
def test_conv_integer_of_bytes_is_exact(
    tmp_path: Path, known: bool, x_dtype: str, x_zero: int, w_dtype: str, w_zero: int, attrs: dict[str, object]
) -> None:
    """Channels in fours: bytes are multiplied as bytes where the weight holds its zero point."""
    w = _codes(w_dtype, 9, 8, 3, 3)
    if w_dtype == "int8":
        w[w == -128] = 127  # with its zero point the weight stays a byte
    constants = {"w": w, "wz": _zero(w_dtype, w_zero)}
    inputs = {"x": _codes(x_dtype, 2, 8, 7, 6)}
    (constants if known else inputs)["xz"] = _zero(x_dtype, x_zero)
    if w_zero == -1:
        w[w == 127] = 126
    ours, theirs, made = both(
        tmp_path, [node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], **attrs)], constants, inputs, ["y"]
    )
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert not made.aicpu_nodes


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_qdq_convolution_chain(tmp_path: Path, dtype: str) -> None:
    """Two convolutions with ReLU, weights per channel, i32 biases."""
    constants = {"xs": _f(0.03), "z": _zero(dtype, 9), "hs": _f(0.35), "ys": _f(2.0)}
    steps = [node("QuantizeLinear", ["x", "xs", "z"], ["xq"]), node("DequantizeLinear", ["xq", "xs", "z"], ["c0"])]
    for i, (features, channels) in enumerate([(16, 3), (12, 16)]):
        scale = (np.abs(_floats(features)) * 0.02 + 0.002).astype(np.float32)
        constants |= {
            f"w{i}": _codes("int8", features, channels, 3, 3), f"ws{i}": scale, f"wz{i}": np.zeros(features, np.int8),
            f"b{i}": RNG.integers(-900, 900, features).astype(np.int32), f"bs{i}": scale * np.float32(0.03),
        }  # fmt: skip
        out = ["hs", "ys"][i]
        steps += [
            node("DequantizeLinear", [f"w{i}", f"ws{i}", f"wz{i}"], [f"wd{i}"], axis=0),
            node("DequantizeLinear", [f"b{i}", f"bs{i}"], [f"bd{i}"], axis=0),
            node("Conv", [f"c{i}", f"wd{i}", f"bd{i}"], [f"y{i}"], pads=[1] * 4),
            node("Relu", [f"y{i}"], [f"r{i}"]),
            node("QuantizeLinear", [f"r{i}", out, "z"], [f"q{i}"]),
            node("DequantizeLinear", [f"q{i}", out, "z"], [f"c{i + 1}"]),
        ]
    ours, theirs, made = both(tmp_path, steps, constants, {"x": _floats(1, 3, 11, 13)}, ["q0", "q1"])
    assert steps_apart(ours[0], theirs[0]) <= 1 and steps_apart(ours[1], theirs[1]) <= 1
    assert np.unique(theirs[1]).size > 20, "the case says nothing"
    assert not made.aicpu_nodes


@pytest.mark.parametrize("known", [True, False], ids=["constant", "run-time"])
@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize("w_zero", [0, 121, 255])
@pytest.mark.parametrize("pads", [[1, 0, 2, 1], [0, 0, 0, 0]], ids=["pads", "none"])
def test_convolutions_with_zero_points_of_both_operands_stay_in_bytes(
    tmp_path: Path, known: bool, channels: int, w_zero: int, pads: list[int]
) -> None:
    """Weights that use all of their range keep their zero point; what lies outside is the input's, known or not."""
    w = _codes("uint8", 9, channels, 3, 3)
    w[0, 0, 0] = [0, 255, w_zero]
    constants = {"w": w, "wz": _zero("uint8", w_zero)}
    inputs = {"x": _codes("uint8", 2, channels, 7, 6)}
    (constants if known else inputs)["xz"] = _zero("uint8", 93)
    ours, theirs, made = both(
        tmp_path, [node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], pads=pads, strides=[2, 1])], constants, inputs, ["y"]
    )
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert not made.aicpu_nodes


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, -5, 40])
def test_a_sum_of_quantised_tensors(tmp_path: Path, dtype: str, zero: int) -> None:
    """(a - za) sa + (b - zb) sb, quantised: off the operators one by one at exact ties alone, by a step."""
    low = 0 if dtype == "uint8" else -128
    constants = {"sa": _f(0.05), "sb": _f(0.071), "sy": _f(0.11), "za": _zero(dtype, 7), "zb": _zero(dtype, 0),
                 "zy": _zero(dtype, max(low, zero))}  # fmt: skip
    inputs = {"a": _codes(dtype, 41, 57), "b": _codes(dtype, 41, 57)}
    ours, theirs, made = both(
        tmp_path,
        [node("DequantizeLinear", ["a", "sa", "za"], ["x"]), node("DequantizeLinear", ["b", "sb", "zb"], ["w"]),
         node("Add", ["x", "w"], ["t"]), node("Relu", ["t"], ["r"]), node("QuantizeLinear", ["r", "sy", "zy"], ["y"])],
        constants, inputs, ["y"],
    )  # fmt: skip
    ties = (50 * (inputs["a"].astype(np.int64) - 7) + 71 * inputs["b"].astype(np.int64)) % 110 == 55
    assert 0 < np.mean(ties) < 0.05
    assert steps_apart(ours[0], theirs[0]) <= 1
    np.testing.assert_array_equal(ours[0][~ties], theirs[0][~ties])
    assert not made.aicpu_nodes


def test_a_quantised_residual_block(tmp_path: Path) -> None:
    """Two convolutions meet in a sum: each tensor between kernels is one of bytes."""
    constants = {"xs": _f(0.03), "z": _zero("uint8", 128), "hs": _f(0.35), "ys": _f(0.6)}
    steps = [node("DequantizeLinear", ["x", "xs", "z"], ["xd"])]
    for i in range(2):
        scale = (np.abs(_floats(16)) * 0.02 + 0.002).astype(np.float32)
        constants |= {
            f"w{i}": _codes("int8", 16, 8, 3, 3), f"ws{i}": scale, f"wz{i}": np.zeros(16, np.int8),
            f"b{i}": RNG.integers(-900, 900, 16).astype(np.int32), f"bs{i}": scale * np.float32(0.03),
        }  # fmt: skip
        steps += [
            node("DequantizeLinear", [f"w{i}", f"ws{i}", f"wz{i}"], [f"wd{i}"], axis=0),
            node("DequantizeLinear", [f"b{i}", f"bs{i}"], [f"bd{i}"], axis=0),
            node("Conv", ["xd", f"wd{i}", f"bd{i}"], [f"c{i}"], pads=[1] * 4),
            node("QuantizeLinear", [f"c{i}", "hs", "z"], [f"q{i}"]),
            node("DequantizeLinear", [f"q{i}", "hs", "z"], [f"d{i}"]),
        ]
    steps += [node("Add", ["d0", "d1"], ["t"]), node("QuantizeLinear", ["t", "ys", "z"], ["y"])]
    ours, theirs, made = both(tmp_path, steps, constants, {"x": _codes("uint8", 1, 8, 16, 16)}, ["y"])
    assert steps_apart(ours[0], theirs[0]) <= 1
    assert not made.aicpu_nodes
    assert made.arena_bytes is not None and made.arena_bytes < 2 * 16 * 16 * 16 * 4, "a tensor of floats stands between"


@pytest.mark.parametrize("per_channel", [False, True])
def test_qlinear_products(tmp_path: Path, per_channel: bool) -> None:
    scale = (np.abs(_floats(12)) * 0.01 + 0.002).astype(np.float32) if per_channel else _f(0.01)
    zeros = np.zeros(12, np.int8) if per_channel else _zero("int8", 0)
    constants = {
        "xs": _f(0.02), "z": _zero("uint8", 100), "w": _codes("int8", 12, 5, 3, 3), "ws": scale, "wz": zeros,
        "ys": _f(0.5), "b": RNG.integers(-900, 900, 12).astype(np.int32), "m": _codes("int8", 8, 12),
    }  # fmt: skip
    ours, theirs, made = both(
        tmp_path,
        [node("QLinearConv", ["x", "xs", "z", "w", "ws", "wz", "ys", "z", "b"], ["c"]),
         node("QLinearMatMul", ["a", "xs", "z", "m", "ws", "wz", "ys", "z"], ["p"])],
        constants, {"x": _codes("uint8", 2, 5, 9, 8), "a": _codes("uint8", 4, 8)}, ["c", "p"],
    )  # fmt: skip
    assert steps_apart(ours[0], theirs[0]) <= 1 and steps_apart(ours[1], theirs[1]) <= 1
    assert not made.aicpu_nodes


def test_table_is_gathered_before_it_is_dequantised(tmp_path: Path) -> None:
    constants = {"t": _codes("uint8", 50, 16), "s": _f(0.1), "z": _zero("uint8", 128)}
    ours, theirs, made = both(
        tmp_path, [node("DequantizeLinear", ["t", "s", "z"], ["d"]), node("Gather", ["d", "i"], ["y"])],
        constants, {"i": np.array([3, 49, 0, 3], np.int64)}, ["y"],
    )  # fmt: skip
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert not made.aicpu_nodes
    assert made.arena_bytes is not None and made.arena_bytes < 50 * 16 * 4, "the table as floats takes memory of a run"


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("zero", [0, 3])
def test_dynamically_quantised_lstm_of_one_sequence(tmp_path: Path, by_column: bool, zero: int) -> None:
    """onnxruntime quantises input and state as we do: what differs is rounding, now and then by a step of a byte."""
    steps, k, hidden = 9, 24, 32
    columns = 4 * hidden if by_column else 1
    shape = (2, columns) if by_column else (2,)
    constants = {
        "w": np.clip(_codes("int8", 2, k, 4 * hidden), -120, 120), "b": _floats(2, 8 * hidden, scale=0.1),
        "r": np.clip(_codes("int8", 2, hidden, 4 * hidden), -120, 120),
        "ws": (0.003 + 0.002 * RNG.random(shape)).astype(np.float32),
        "rs": (0.004 + 0.002 * RNG.random(shape)).astype(np.float32), "z": np.full(shape, zero, np.int8),
    }  # fmt: skip
    ours, theirs, made = both(
        tmp_path,
        [node("DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", "ws", "z", "rs", "z"], ["y", "h", "c"],
              domain="com.microsoft", hidden_size=hidden, direction="bidirectional")],
        constants, {"x": _floats(steps, 1, k)}, ["y", "h", "c"],
    )  # fmt: skip
    for a, b in zip(ours, theirs, strict=True):
        assert np.linalg.norm(a - b) < 2e-3 * np.linalg.norm(b)
    assert not made.aicpu_nodes


@pytest.mark.parametrize("k", [256, 257])
def test_a_quantised_lstm_keeps_its_bytes(tmp_path: Path, k: int) -> None:
    """On hosts they are multiplied, by quads also where these do not divide k; for chips they are told as what they
    stand for. The package holds them once."""
    hidden = 256
    constants = {
        "w": _codes("int8", 1, k, 4 * hidden), "r": _codes("int8", 1, hidden, 4 * hidden),
        "ws": np.array([0.004], np.float32), "rs": np.array([0.005], np.float32), "z": np.array([0], np.int8),
    }  # fmt: skip
    ours, theirs, _ = both(
        tmp_path,
        [node("DynamicQuantizeLSTM", ["x", "w", "r", "", "", "", "", "", "ws", "z", "rs", "z"], ["y"],
              domain="com.microsoft", hidden_size=hidden)],
        constants, {"x": _floats(3, 1, k)}, ["y"],
    )  # fmt: skip
    assert np.linalg.norm(ours[0] - theirs[0]) < 2e-2 * np.linalg.norm(theirs[0])
    assert (tmp_path / "m.om").stat().st_size < 1.2 * (tmp_path / "m.onnx").stat().st_size


def test_dynamically_quantised_lstm(tmp_path: Path) -> None:
    """Each sequence of a batch is quantised by itself, where onnxruntime takes them together."""
    steps, batch, k, hidden = 6, 2, 16, 8
    constants = {
        "w": _codes("int8", 1, k, 4 * hidden), "r": _codes("int8", 1, hidden, 4 * hidden),
        "b": _floats(1, 8 * hidden, scale=0.1), "ws": np.array([0.004], np.float32), "rs": np.array([0.005], np.float32),
        "z": np.array([0], np.int8),
    }  # fmt: skip
    ours, theirs, made = both(
        tmp_path,
        [node("DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", "ws", "z", "rs", "z"], ["y", "h", "c"],
              domain="com.microsoft", hidden_size=hidden)],
        constants, {"x": _floats(steps, batch, k)}, ["y", "h", "c"],
    )  # fmt: skip
    for a, b in zip(ours, theirs, strict=True):
        assert a.ravel() @ b.ravel() > 0.999 * np.linalg.norm(a) * np.linalg.norm(b)
    assert not made.aicpu_nodes


def test_a_product_longer_than_i32_can_add_stays_in_floats(tmp_path: Path) -> None:
    length = 70_000
    constants = {"s": _f(0.01), "z": _zero("uint8", 0), "b": np.full((length, 2), 127, np.int8)}
    ours, theirs, _ = both(
        tmp_path,
        [node("DequantizeLinear", ["a", "s", "z"], ["x"]), node("DequantizeLinear", ["b", "s"], ["w"]),
         node("MatMul", ["x", "w"], ["y"])],
        constants, {"a": np.full((1, length), 255, np.uint8)}, ["y"],
    )  # fmt: skip
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4)


def test_batched_zero_points_of_columns(tmp_path: Path) -> None:
    constants = {"b": _codes("uint8", 2, 5, 4), "az": _zero("uint8", 3), "bz": _codes("uint8", 2, 1, 4)}
    ours, theirs, _ = both(
        tmp_path, [node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])], constants,
        {"a": _codes("uint8", 2, 3, 5)}, ["y"],
    )  # fmt: skip
    np.testing.assert_array_equal(ours[0], theirs[0])
