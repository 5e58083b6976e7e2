"""Unknown operators are told all at once, never the valid node behind one."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from frontend import read_model
from tensor_types.errors import UnsupportedOperator


def test_a_valid_node_behind_an_unknown_one_is_not_blamed(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Thing", ["x"], ["a"], domain="my.domain", name="thing"),
        helper.make_node("Equal", ["a", "x"], ["e"], name="equal"),  # the type of `a` is not known
        helper.make_node("Softmx", ["x"], ["s"], name="typo"),
        helper.make_node("Gelu", ["s"], ["y"], domain="my.domain", name="elsewhere"),
    ]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.INT64, [3])],
                              [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="e")])  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedOperator) as caught:
        read_model(tmp_path / "m.onnx")
    text = str(caught.value)
    assert "3 nodes" in text and "equal" not in text
    assert "Thing (my.domain:1) of node thing" in text
    assert "Softmx (ai.onnx:17) of node typo: the operator is not known; did you mean Softmax (ai.onnx)?" in text
    assert "Gelu (my.domain:1) of node elsewhere: it is not of this domain" in text
