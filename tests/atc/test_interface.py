"""Outputs by name, and dtypes of inputs and outputs."""

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
from frontend import read_model
from tensor_types.errors import OpenAtcError


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nodes = [
        h.make_node("MatMul", ["a", "w"], ["m"], name="fc:1"),
        h.make_node("Split", ["m"], ["s0", "s1:0"], name="split", axis=1),
        h.make_node("Relu", ["s0"], ["r"], name="relu"),
        h.make_node("Nowhere", ["s1:0"], ["odd"], name="odd", domain="nobody"),
        h.make_node("ArgMax", ["m"], ["i"], name="arg", axis=1),
        h.make_node("Neg", ["b"], ["unused"], name="neg"),
    ]
    ins = [h.make_tensor_value_info(n, T.FLOAT, [2, 4]) for n in "ab"]
    outs = [h.make_tensor_value_info("r", T.FLOAT, None), h.make_tensor_value_info("i", T.INT64, None)]
    outs.append(h.make_tensor_value_info("odd", T.FLOAT, [2, 4]))
    graph = h.make_graph(nodes, "g", ins, outs, [nh.from_array(np.arange(32, dtype=np.float32).reshape(4, 8), "w")])
    opsets = [h.make_opsetid("", 13), h.make_opsetid("nobody", 1)]
    onnx.save(h.make_model(graph, opset_imports=opsets, ir_version=8), "m.onnx")


A = np.arange(8, dtype=np.float32).reshape(2, 4)
M = A @ np.arange(32, dtype=np.float32).reshape(4, 8)


def outputs(**flags):
    product.convert("m.onnx", "m.om", **flags)
    session = InferSession(0, "m.om")
    dtypes = {i.name: i.dtype for i in session.get_inputs()}
    found = session.infer({"a": A.astype(dtypes["a"]), "b": A.astype(dtypes["b"])})
    return dict(zip([o.name for o in session.get_outputs()], found, strict=True)), dtypes


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("relu:0;arg:0", ["r", "i"]),
        ("s0", ["s0"]),
        ("split:1;fc:1:0", ["s1:0", "m"]),
        ("s1:0;m;s1:0", ["s1:0", "m"]),
        ("b;relu:0", ["b", "r"]),
    ],
)
def test_other_outputs_drop_what_is_behind_them(wanted, names):
    found, _ = outputs(out_nodes=wanted)
    values = {"r": np.maximum(M[:, :4], 0), "i": M.argmax(1)[:, None], "s0": M[:, :4], "s1:0": M[:, 4:], "m": M, "b": A}
    assert [n.removesuffix("/output") for n in found] == names
    for name, got in found.items():
        np.testing.assert_array_equal(got, values[name.removesuffix("/output")])
    graph = read_model("m.onnx", outputs=wanted.split(";"))
    assert not {"odd", "neg"} & {n.name for n in graph.nodes}


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("rela:0", "did you mean relu:0?"),
        ("split:2", "split is a node with 2 outputs"),
        ("relu", "write which, as in relu:0"),
        ("zz", "node:index"),
    ],
)
def test_outputs_that_are_not_there(wanted, said):
    with pytest.raises(OpenAtcError) as caught:
        outputs(out_nodes=wanted)
    assert caught.value.code == "E10016" and said in f"{caught.value.message} {caught.value.remedy}"


KEPT = "relu:0;arg:0"


@pytest.mark.parametrize(
    ("flags", "types"),
    [
        ({"output_type": "FP32"}, ["float32", "int64"]),
        ({"output_type": "FP16"}, ["float16", "int64"]),
        ({"output_type": "relu:0:FP16;i:INT32"}, ["float16", "int32"]),
        ({"output_type": "arg:0:uint8"}, ["float32", "uint8"]),
        ({"input_fp16_nodes": "a", "output_type": "relu:0:DOUBLE"}, ["float64", "int64"]),
        ({"input_fp16_nodes": "a;b", "precision_mode": "force_fp16", "output_type": "FP16"}, ["float16", "int64"]),
    ],
)
def test_dtypes_of_inputs_and_outputs(flags, types):
    found, dtypes = outputs(out_nodes=KEPT, **flags)
    assert list(found) == ["r", "i"] and [v.dtype.name for v in found.values()] == types
    assert [n for n, d in dtypes.items() if d == np.float16] == flags.get("input_fp16_nodes", "").split(";") * bool(
        "input_fp16_nodes" in flags
    )
    np.testing.assert_allclose(found["r"].astype(float), M[:, :4], rtol=1e-3)
    np.testing.assert_array_equal(found["i"][:, 0], M.argmax(1))


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ({"output_type": "FP8"}, "E10001", "use one of FP32, FP16"),
        ({"output_type": "FP16;FP32"}, "E10001", "names no output"),
        ({"output_type": "fc:1:0:FP16"}, "E10016", "the outputs are r, i"),
        ({"input_fp16_nodes": "c"}, "E10016", "the inputs are a, b"),
        ({"input_fp16_nodes": "relu"}, "E10017", "a node, not an input"),
    ],
)
def test_dtypes_that_cannot_be(flags, code, said):
    with pytest.raises(OpenAtcError) as caught:
        outputs(out_nodes=KEPT, **flags)
    assert caught.value.code == code and said in f"{caught.value.message} {caught.value.remedy}"


def test_a_report_of_the_check(atc, tmp_path):
    assert atc("convert", "m.onnx", "--check_report=report.json", "-q")[0] == 4
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["result"], found["total"], found["pass"], found["fail"]) == ("failed", 6, 5, 1)
    (failed,) = [row for row in found["op"] if row["result"] == "failed"]
    assert failed["name"] == "odd" and failed["cause"][0]["code"] == "E16002" and failed["cause"][0]["message"]
    assert atc("convert", "m.onnx", "--check_report=report.json", "--out_nodes=relu:0", "-q")[0] == 0
    assert json.loads((tmp_path / "report.json").read_text())["result"] == "success"


def test_a_comparison_gives_the_model_what_it_takes(atc, tmp_path):
    """f16 inputs as f32, images as the package prepared them."""
    nodes = [h.make_node("GlobalAveragePool", ["x"], ["p"], name="pool"), h.make_node("Neg", ["x"], ["y"], name="neg")]
    ins = [h.make_tensor_value_info("x", T.FLOAT, [1, 3, 8, 8])]
    outs = [h.make_tensor_value_info(n, T.FLOAT, None) for n in "py"]
    onnx.save(
        h.make_model(h.make_graph(nodes, "g", ins, outs), opset_imports=[h.make_opsetid("", 13)], ir_version=8),
        "i.onnx",
    )
    assert atc("convert", "i.onnx", "-q", "--input_fp16_nodes=x", "--output_type=FP16", "--out_nodes=neg:0")[0] == 0
    code, out, err = atc("compare", "i.onnx", "i.om")
    assert code == 0, out + err
    assert atc("convert", "i.onnx", "-q", "--aipp=imagenet-bgr")[0] == 0
    code, out, err = atc("compare", "i.onnx", "i.om")
    assert code == 0, out + err
