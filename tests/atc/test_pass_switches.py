"""Passes by name: the table, leaving one out, looking at the graph between them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import atc
from acl_runtime import InferSession
from atc.inputs import seeded
from atc.pass_table import pass_table, switchable
from atc.pass_watch import PassWatch
from atc.pipeline import passes
from atc.usage import UsageError
from codegen.kernels import kernels
from codegen.targets import target
from graph_opt.ir import Graph
from graph_opt.ir.core import Origin
from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import InvalidGraph
from tensor_types.dtypes import F32
from tests.atc.random_models.builder import build
from tests.atc.test_random_graphs import THEMES, difference, oracle


def model(folder: Path) -> Path:
    """x f32[n, 8], flag bool[] -> y: a product with arithmetic, and an If whose branches agree in shape."""
    weight = np.random.default_rng(0).standard_normal((8, 200)).astype(np.float32)
    node, info = helper.make_node, helper.make_tensor_value_info
    branches = {
        f"{side}_branch": helper.make_graph(
            [node(op, ["h"], [side], name=f"{side}/{op}")], side, [], [info(side, TensorProto.FLOAT, None)]
        )
        for side, op in (("then", "Exp"), ("else", "Neg"))
    }
    nodes = [
        node("MatMul", ["x", "w"], ["p"], name="product"),
        node("Tanh", ["p"], ["h"], name="tanh"),
        node("If", ["flag"], ["y"], name="choose", **branches),
    ]
    inputs = [info("x", TensorProto.FLOAT, ["n", 8]), info("flag", TensorProto.BOOL, [])]
    graph = helper.make_graph(
        nodes, "small", inputs, [info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(weight, "w")]
    )
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_the_table_lists_every_pass_once_in_order() -> None:
    hosts = (target("x86-64-v3"), target("Ascend310P3"))
    steps = [s.name for host in hosts for s in passes(kernels([host]), high_precision=True)]
    names = [row.name for row in pass_table()]
    assert len(set(names)) == len(names) and set(names) == set(steps)
    first = {name: steps.index(name) for name in names if name != "legalise-products"}  # for chips
    assert list(first) == sorted(first, key=lambda name: first[name])
    assert all(row.does.endswith(".") for row in pass_table())


def test_dumps_are_the_graph_after_each_pass(tmp_path: Path) -> None:
    source = model(tmp_path)
    atc.convert(source, tmp_path / "m.om", dump_ir=tmp_path / "ir", verify_ir=True)
    files = sorted(p.name for p in (tmp_path / "ir").iterdir())
    texts = [f for f in files if f.endswith(".txt")]
    assert [f.replace(".txt", ".onnx") for f in texts] == [f for f in files if f.endswith(".onnx")]
    assert texts[0] == "000-read.txt" and texts[1] == "001-fuse-dequantisation.txt"
    assert {f[4:-4] for f in texts} >= {"flatten-if", "fuse-regions", "fuse-regions-Ascend910B2"}
    for name in texts:
        text = (tmp_path / "ir" / name).read_text()
        graph = parse(text)
        assert to_text(graph) == text
        shown = onnx.load(tmp_path / "ir" / name.replace(".txt", ".onnx"), load_external_data=False)
        assert [n.name for n in shown.graph.node] == [n.name for n in graph.nodes]
        assert [list(n.output) for n in shown.graph.node] == [[v.name for v in n.outputs] for n in graph.nodes]
    last = next(f for f in texts if f.endswith("-fuse-regions.txt")).replace(".txt", ".onnx")
    shown = onnx.load(tmp_path / "ir" / last, load_external_data=False)
    kernel = next(n for n in shown.graph.node if n.op_type == "matmul")
    assert kernel.domain == "openatc"
    assert [n.op_type for n in next(a.g for a in kernel.attribute if a.name == "body").node] == ["MatMul", "Tanh"]
    guards = {
        n.name: [g.decode() for g in a.strings] for n in shown.graph.node for a in n.attribute if a.name == "guards"
    }
    assert guards == {"then/Exp": ["flag"], "else/Neg": ["!flag"]}


@pytest.mark.parametrize("name", ["flatten-if", "fuse-conv-bn"])
def test_a_model_is_right_without_a_pass(name: str, tmp_path: Path) -> None:
    source = model(tmp_path)
    result = atc.convert(source, tmp_path / "m.om", disable_pass=[name])
    assert result.options["disable_pass"]
    session = InferSession(0, tmp_path / "m.om")
    golden = onnxruntime.InferenceSession(source)
    for flag in (True, False):
        feeds = {"x": seeded("x", F32, (3, 8), None), "flag": np.array(flag)}
        np.testing.assert_allclose(session.infer(feeds)[0], golden.run(None, feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "words"), [("fuse-regions", "cannot be left out"), ("fuse-bn", "there is no pass")])
def test_passes_that_are_required_or_unknown_are_refused(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        atc.convert(model(tmp_path), tmp_path / "m.om", disable_pass=[name])


@dataclass(frozen=True)
class Damage:
    name: ClassVar[str] = "damage"

    def apply(self, graph: Graph) -> bool:
        graph.origins["lost"] = Origin("same", "nowhere")
        return True


def test_the_watch_names_the_pass_that_broke_the_graph() -> None:
    graph = parse("graph g(%x: f32[n]) -> (%y) {\n  %y = Exp(%x)\n}")
    PassWatch().run(graph, [Damage()])
    with pytest.raises(InvalidGraph, match="after pass damage: source tensor lost"):
        PassWatch(verify=True).run(graph, [Damage()])


@pytest.mark.long
@pytest.mark.parametrize("name", switchable())
def test_random_models_are_right_without_any_pass(name: str, tmp_path: Path) -> None:
    for theme in THEMES:
        for seed in (1, 4):
            b = build(THEMES[theme], seed)
            made = b.model()
            try:
                golden = oracle(made)
            except Exception:  # models whose shapes onnxruntime refuses
                continue
            onnx.save(made, tmp_path / "m.onnx")
            atc.convert(tmp_path / "m.onnx", tmp_path / "m.om", disable_pass=[name], verify_ir=True)
            arrays = {t.name: t.values[0] for t in b.inputs}
            results = InferSession(0, tmp_path / "m.om").infer(arrays)
            for ours, theirs in zip(results, golden.run(None, arrays), strict=True):
                assert difference(ours, theirs, THEMES[theme].exact) is None, (theme, seed)
