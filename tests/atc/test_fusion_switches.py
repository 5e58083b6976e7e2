"""Switches of fusions: both of ATC's formats, by its names of passes and by ours."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h

import atc as product
from acl_runtime import InferSession
from atc.fusion_switches import ALIASES, FUSIONS
from atc.options import Options
from atc.pass_table import switchable
from atc.usage import UsageError


@pytest.mark.parametrize(
    ("text", "off"),
    [
        ("SoftmaxFusionPass:off\nGeluFusionPass : on\n# comment\n", ["fuse-softmax"]),
        ("fuse-gelu:off", ["fuse-gelu"]),
        ('{"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}}}', list(FUSIONS)),
        ('{"Switch": {"GraphFusion": {"SoftmaxFusionPass": "on", "ALL": "off"}}}', [f for f in FUSIONS if f != "fuse-softmax"]),
        ('{"Switch": {"UBFusion": {"TbePool2dQuantFusionPass": "off"}}}', []),
        ("ALL:off\nLayerNormFusionPass:on", [f for f in FUSIONS if f != "fuse-norms"]),
    ],
)  # fmt: skip
def test_both_formats(tmp_path, text, off):
    (tmp_path / "f").write_text(text)
    options = Options.of({"fusion_switch_file": str(tmp_path / "f")})
    assert list(options.fusion_switch_file) == off and options.passes_left_out == set(off)
    assert any("nothing here is called TbePool2dQuantFusionPass" in n for n in options.notes) == ("Tbe" in text)


def test_what_is_said_inline_goes_before_the_file(tmp_path):
    (tmp_path / "f").write_text("ALL:off")
    given = {
        "optimization_switch": "SoftmaxFusionPass:off;GeluFusionPass:on",
        "fusion_switch_file": str(tmp_path / "f"),
    }
    assert Options.of(given).fusion_switch_file == ("fuse-softmax",)
    assert Options.of({"oo_level": "O1"}).fusion_switch_file == FUSIONS and not Options.of({"oo_level": "O3"}).notes
    assert Options.of({"oo_constant_folding": "false"}).passes_left_out == {"fold-constants"}


def test_every_name_is_a_pass_that_can_be_left_out():
    assert set(FUSIONS) <= set(switchable()) and set(ALIASES) <= set(FUSIONS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Softmax", "line 1 is not understood"),
        ("SoftmaxFusionPass:of", "SoftmaxFusionPass is of"),
        ("{", "is not understood"),
        ('{"Switches": {}}', "is not understood"),
        ('{"Switch": {"GraphFusio": {}}}', "did you mean GraphFusion?"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, text, said):
    (tmp_path / "f").write_text(text)
    with pytest.raises(UsageError) as caught:
        Options.of({"fusion_switch_file": str(tmp_path / "f")})
    assert said in f"{caught.value.message} {caught.value.remedy}"


def test_a_fusion_that_is_off_does_not_happen(tmp_path, monkeypatch):
    """A Gelu that the model writes out: one operator of the graph, or its parts, with equal results."""
    monkeypatch.chdir(tmp_path)
    nodes = [
        h.make_node("Div", ["x", "r"], ["d"]), h.make_node("Erf", ["d"], ["e"]), h.make_node("Add", ["e", "one"], ["a"]),
        h.make_node("Mul", ["x", "a"], ["m"]), h.make_node("Mul", ["m", "half"], ["y"]),
    ]  # fmt: skip
    numbers = {"r": 2**0.5, "one": 1.0, "half": 0.5}
    weights = [h.make_tensor(n, T.FLOAT, [], [v]) for n, v in numbers.items()]
    ins, outs = ([h.make_tensor_value_info(n, T.FLOAT, [4, 16])] for n in "xy")
    graph = h.make_graph(nodes, "g", ins, outs, weights)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 13)], ir_version=8), "m.onnx")
    x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    found = {}
    for state in ("on", "off"):
        product.convert("m.onnx", f"{state}.om", optimization_switch=f"GeluFusionPass:{state}")
        from atc.inspect_package import package_text

        found[state] = package_text(tmp_path / f"{state}.om", "optimised")
    assert "Gelu(" in found["on"] and "Gelu(" not in found["off"] and "Erf(" in found["off"]
    on, off = (InferSession(0, f"{state}.om").infer([x])[0] for state in ("on", "off"))
    np.testing.assert_allclose(on, off, atol=1e-6)
