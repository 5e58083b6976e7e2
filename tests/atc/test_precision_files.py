"""Files that say in which dtype single operators run: from their text to what the package computes in."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

import atc as product
from atc.options import Options
from atc.usage import UsageError


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weights = [nh.from_array(np.eye(16, dtype=np.float32), f"w{i}") for i in range(2)]
    nodes = [
        h.make_node("MatMul", ["x", "w0"], ["m"], name="fc/one"),
        h.make_node("Softmax", ["m"], ["s"], name="soft"),
        h.make_node("MatMul", ["s", "w1"], ["y"], name="fc:two"),
    ]
    ins, outs = ([h.make_tensor_value_info(n, T.FLOAT, [4, 16])] for n in "xy")
    onnx.save(h.make_model(h.make_graph(nodes, "g", ins, outs, weights), opset_imports=[h.make_opsetid("", 13)], ir_version=8), "m.onnx")
    return "m.onnx"


def made(model, **flags):
    for flag, text in list(flags.items()):
        if flag != "precision_mode":
            with open(flag, "w") as file:
                file.write(text)
            flags[flag] = flag
    return product.convert(model, "m.om", **flags)


@pytest.mark.parametrize(
    ("flags", "halves", "note"),
    [
        ({}, 0, None),
        ({"precision_mode": "allow_mix_precision"}, 2, None),
        ({"precision_mode": "allow_mix_precision", "keep_dtype": "# comment\n\nfc/one\n"}, 1, "--keep_dtype holds for 1 of 3 nodes"),
        ({"precision_mode": "force_fp16", "keep_dtype": "OpType::BatchMatMulV2\n"}, 1, "--keep_dtype holds for 2 of 3 nodes"),
        ({"precision_mode": "allow_mix_precision", "modify_mixlist": '{"black-list": {"to-add": ["MatMulV2"]}}'}, 0, "--modify_mixlist holds for 2"),
        ({"precision_mode": "allow_mix_precision", "modify_mixlist": '{"black-list": {"to-remove": ["SoftmaxV2"]}}'}, 3, "--modify_mixlist holds for 1"),
        ({"precision_mode": "allow_mix_precision", "modify_mixlist": '{"white-list": {"to-add": ["Softmac"]}}'}, 2, "type Softmac (did you mean Softmax?)"),
        ({"customize_dtypes": "fc:two::InputDtype:float16,float16,OutputDtype:float32\n"}, 1, "--customize_dtypes holds for 1"),
        ({"precision_mode": "force_fp16", "customize_dtypes": "OpType::MatMul:InputDtype:float32,float32,OutputDtype:float32"}, 1, None),
        ({"precision_mode": "force_fp16", "op_precision_mode": "[ByOpType]\nSoftmaxV2=enable_float_32_execution\n[ByNodeName]\nfc:two=high_precision\n"}, 2, "no effect for fc:two=high_precision"),
    ],
)
def test_operators_run_in_the_dtype_that_a_file_says(model, flags, halves, note):
    result = made(model, **flags)
    assert result.dtypes.get("f16", 0) == halves
    assert note is None or any(note in n for n in result.notes), result.notes


@pytest.mark.parametrize(
    ("flag", "text", "said"),
    [
        ("modify_mixlist", "{", "is not JSON"),
        ("modify_mixlist", "[]", "no JSON object"),
        ("modify_mixlist", '{"blacklist": {}}', "did you mean black-list?"),
        ("modify_mixlist", '{"black-list": {"add": []}}', "to-add and to-remove"),
        ("modify_mixlist", '{"black-list": {"to-add": "Relu"}}', "no list of types"),
        ("modify_mixlist", '{"black-list": {"to-add": ["Relu"]}, "white-list": {"to-add": ["Relu"]}}', "two lists"),
        ("customize_dtypes", "fc float16", "line 1 is not understood"),
        ("customize_dtypes", "\na::InputDtype:f99,OutputDtype:float16", "line 2 has the dtype f99"),
        ("customize_dtypes", "a::InputDtype:float16,OutputDtype:bfloat16", "two 16-bit floats"),
        ("op_precision_mode", "[ByType]\nRelu=high_precision", "section [ByType]"),
        ("op_precision_mode", "[ByOpType]\nRelu=high_precison", "did you mean high_precision?"),
        ("op_precision_mode", "Relu=high_precision", "is not understood"),
    ],
)
def test_files_that_cannot_be_read_say_what_is_wrong(tmp_path, flag, text, said):
    (tmp_path / "f").write_text(text)
    with pytest.raises(UsageError) as caught:
        Options.of({flag: str(tmp_path / "f"), "precision_mode": "allow_mix_precision"})
    assert said in f"{caught.value.message} {caught.value.remedy}" and caught.value.where["flag"] == f"--{flag}"


def test_a_missing_file_and_a_mode_without_lists(model, tmp_path):
    with pytest.raises(UsageError) as caught:
        Options.of({"keep_dtype": "nowhere.cfg"})
    assert caught.value.code == "E10410"
    with pytest.raises(UsageError, match="needs a mixed mode"):
        made(model, modify_mixlist='{"black-list": {"to-add": ["Relu"]}}')


def test_names_that_are_no_nodes_are_told_all_at_once(atc, model, tmp_path):
    (tmp_path / "keep.cfg").write_text("fc/one\nfc/tow\nzzz\n")
    code, out, _ = atc("convert", model, "--keep_dtype=keep.cfg", "--json")
    error = json.loads(out)["error"]
    assert code == 2 and [e["code"] for e in error["errors"]] == ["E10016", "E10016"]
    assert "did you mean fc:two?" in error["errors"][0]["remedy"] or "did you mean fc/one?" in error["errors"][0]["remedy"]
    assert error["errors"][1]["where"]["node"] == "zzz"
