"""Gears: data of one symbolic package, results of a static conversion, and ATC's codes for what cannot be."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

import atc as product
from acl_runtime import InferSession
from acl_runtime.om import open_package
from atc.options import Options
from atc.usage import UsageError
from tensor_types.errors import InvalidModel


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    """A convolution over x [n, 3, h, w], and a product of tokens [n, t, 16] that shares the batch."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    weights = [
        nh.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in (("k", (64, 3, 3, 3)), ("w", (16, 640)))
    ]
    nodes = [
        h.make_node("Conv", ["x", "k"], ["y"], name="conv", pads=[1, 1, 1, 1]),
        h.make_node("MatMul", ["tokens", "w"], ["z"], name="fc"),
    ]
    ins = [h.make_tensor_value_info(n, T.FLOAT, s) for n, s in (("x", ["n", 3, "h", "w"]), ("tokens", ["n", "t", 16]))]
    outs = [h.make_tensor_value_info(n, T.FLOAT, None) for n in "yz"]
    graph = h.make_graph(nodes, "g", ins, outs, weights)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 13)], ir_version=8), "m.onnx")


FIXED = "tokens:1,4,16"


@pytest.mark.parametrize(
    ("flags", "gears", "dims"),
    [
        (
            {"dynamic_batch_size": "1,2,8", "input_shape": "x:-1,3,8,8;tokens:-1,4,16"},
            {"kind": "batch", "combinations": [[1], [2], [8]], "axes": [("x", 0, 0), ("tokens", 0, 0)]},
            {"n": (1, 8)},
        ),
        (
            {"dynamic_image_size": "8,8;16,12", "input_shape": f"x:1,3,-1,-1;{FIXED}"},
            {"kind": "image", "combinations": [[8, 8], [16, 12]], "axes": [("x", 2, 0), ("x", 3, 1)]},
            {"h": (8, 16), "w": (8, 12)},
        ),
        (
            {"dynamic_dims": "1,8,8,1,4;2,4,16,2,9", "input_shape": "x:-1,3,-1,-1;tokens:-1,-1,16"},
            {
                "kind": "dims",
                "combinations": [[1, 8, 8, 1, 4], [2, 4, 16, 2, 9]],
                "axes": [("x", 0, 0), ("x", 2, 1), ("x", 3, 2), ("tokens", 0, 0), ("tokens", 1, 4)],
            },
            {"n": (1, 2), "h": (4, 8), "w": (8, 16), "t": (4, 9)},
        ),
        (
            {"dynamic_dims": "5;7", "input_shape": "tokens:2,-1,16;x:2,3,4,4"},
            {"kind": "dims", "combinations": [[5], [7]], "axes": [("tokens", 1, 0)]},
            {"t": (5, 7)},
        ),
    ],
)
def test_gears_are_data_of_one_package(flags, gears, dims):
    product.convert("m.onnx", "m.om", **flags)
    header = open_package("m.om").header["gears"]
    axes = [{"input": name, "axis": axis, "value": value} for name, axis, value in gears.pop("axes")]
    assert header == {**gears, "input": "ascend_mbatch_shape_data", "axes": axes}
    session = InferSession(0, "m.om")
    assert session.dims == dims
    given = Options.of(flags).input_shape
    rng = np.random.default_rng(1)
    for combination in header["combinations"]:
        shapes = {i.name: list(given[i.name]) for i in session.get_inputs()}
        for row in axes:
            shapes[row["input"]][row["axis"]] = combination[row["value"]]
        product.convert("m.onnx", "static.om", input_shape=shapes)
        feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for got, wanted in zip(session.infer(feeds), InferSession(0, "static.om").infer(feeds), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_a_package_with_gears_is_as_large_as_one_without(tmp_path):
    shape = "x:-1,3,16,16;tokens:-1,4,16"
    product.convert("m.onnx", "plain.om", input_shape=shape)
    product.convert("m.onnx", "gears.om", input_shape=shape, dynamic_batch_size="1,2,4,8")
    assert (tmp_path / "gears.om").stat().st_size <= 1.02 * (tmp_path / "plain.om").stat().st_size


def test_images_and_gears_together(tmp_path):
    (tmp_path / "aipp.cfg").write_text("aipp_op { aipp_mode: static input_format: RGB888_U8 var_reci_chn_0: 0.5 }")
    flags = {"input_shape": f"x:1,3,-1,-1;{FIXED}", "insert_op_conf": "aipp.cfg"}
    product.convert("m.onnx", "m.om", dynamic_image_size="8,8;16,12", **flags)
    header = open_package("m.om").header
    assert [(row["axis"], row["value"]) for row in header["gears"]["axes"]] == [(1, 0), (2, 1)]
    assert header["aipp"][0]["source"] == [0, 0] and header["aipp"][0]["bytes"] is None
    image = np.random.default_rng(2).integers(0, 256, (1, 16, 12, 3), np.uint8)
    x = image.transpose(0, 3, 1, 2).astype(np.float32) * np.array([0.5, 1, 1], np.float32).reshape(3, 1, 1)
    tokens = np.zeros((1, 4, 16), np.float32)
    product.convert("m.onnx", "plain.om")
    wanted = InferSession(0, "plain.om").infer([x, tokens])[0]
    np.testing.assert_allclose(InferSession(0, "m.om").infer([image, tokens])[0], wanted, rtol=1e-5, atol=1e-3)


BATCH = "x:-1,3,8,8;tokens:-1,4,16"


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ({"dynamic_batch_size": "1,b"}, "E10003", "no size"),
        ({"dynamic_batch_size": "4"}, "E10035", "at least 2"),
        ({"dynamic_batch_size": ",".join(map(str, range(1, 102)))}, "E10036", "at most 100"),
        ({"dynamic_dims": "1,2;3"}, "E10037", "different numbers"),
        ({"dynamic_batch_size": "0,2"}, "E10038", "not positive"),
        ({"dynamic_batch_size": "2,4,2"}, "E10039", "twice"),
        ({"dynamic_image_size": "8,8,8;4,4,4"}, "E10020", "height and width"),
        ({"dynamic_image_size": "8x8;4x4"}, "E10020", "no size"),
        ({"dynamic_batch_size": "1,2", "dynamic_dims": "1;2"}, "E10009", "--dynamic_batch_size and --dynamic_dims exclude each other"),
        ({"dynamic_batch_size": "1,2", "input_shape": "x:-1,3,-1,8;tokens:-1,4,16"}, "E10018", "input x, axis 2"),
        ({"dynamic_batch_size": "1,2", "input_shape": f"x:1,3,8,8;{FIXED}"}, "E10031", "no dim is open"),
        ({"dynamic_image_size": "8,8;4,4", "input_shape": BATCH}, "E10019", "input x, axis 0"),
        ({"dynamic_dims": "8;9", "input_shape": f"x:1,3,8,8;{FIXED}"}, "E10040", "no dim is open"),
        ({"dynamic_dims": "8;9", "input_shape": f"x:1,3,4~8,8;{FIXED}"}, "E10040", "a range"),
        ({"dynamic_dims": "8;9", "input_shape": BATCH}, "E10045", "x axis 0, tokens axis 0"),
        ({"dynamic_dims": "1,2;2,2", "input_shape": BATCH}, "E10050", "n is 1 in another place, not 2"),
        ({"dynamic_dims": "1,2,3;2,2,4", "input_shape": "x:1,-1,-1,-1;" + FIXED}, "E10050", "the model has 3 there"),
    ],
)
def test_gears_that_cannot_be(flags, code, said):
    with pytest.raises(UsageError) as caught:
        product.convert("m.onnx", "m.om", **flags)
    error = caught.value
    assert error.code == code and said in f"{error.message} {error.remedy}", error
    assert "dynamic" in error.where["flag"]


def test_a_run_without_shapes_takes_the_last_gear(atc):
    product.convert("m.onnx", "m.om", dynamic_image_size="8,8;16,12", input_shape=f"x:1,3,-1,-1;{FIXED}")
    code, out, err = atc("run", "m.om", "--json")
    assert code == 0 and json.loads(out)["outputs"]["y"]["shape"] == [1, 64, 16, 12], out + err
    assert atc("compare", "m.onnx", "m.om")[0] == 0
    with open("yuv.cfg", "w") as file:
        file.write("aipp_op { aipp_mode: static input_format: YUV420SP_U8 }")
    flags = {"input_shape": f"x:1,3,-1,-1;{FIXED}", "insert_op_conf": "yuv.cfg"}
    product.convert("m.onnx", "m.om", dynamic_image_size="8,8;16,12", **flags)
    code, out, err = atc("run", "m.om", "--json")
    assert code == 0 and json.loads(out)["outputs"]["y"]["shape"] == [1, 64, 16, 12], out + err


def test_a_session_takes_the_sizes_of_gears_alone():
    product.convert("m.onnx", "m.om", dynamic_batch_size="1,2,8", input_shape="x:-1,3,8,8;tokens:-1,4,16")
    session = InferSession(0, "m.om")

    def run(n):
        return session.infer([np.zeros((n, 3, 8, 8), np.float32), np.zeros((n, 4, 16), np.float32)])

    assert run(8)[0].shape[0] == 8
    with pytest.raises(InvalidModel, match="n=3 is no gear of the package, which was made for n of 1; 2; 8") as caught:
        run(3)
    assert caught.value.code == "E10050" and "convert without gears" in caught.value.remedy
    assert run(2)[1].shape == (2, 4, 640)
