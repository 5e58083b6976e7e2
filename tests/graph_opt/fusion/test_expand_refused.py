"""Operators by meaning on a target that refuses them: text before, operators after, and their numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import atc
from acl_runtime import InferSession
from acl_runtime.aicpu import evaluate
from graph_opt.fusion.expand_refused import ExpandRefused
from graph_opt.fusion.families import Kernels
from graph_opt.ir import Graph, Node
from graph_opt.ir.copy_graph import copy_graph
from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import verify
from tests.graph_opt.families import family, of

ELEMENTWISE = [
    "Add", "Sub", "Mul", "Div", "Exp", "Log", "Sqrt", "Reciprocal", "Erf", "Tanh", "Cast", "Gelu",
]  # fmt: skip
WHOLE = {"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "InstanceNormalization", "Gelu"}


def families(refused: set[str], dtypes: tuple[str, ...] = ("f32", "f16")) -> Kernels:
    """Reductions and regions that refuse these operators."""

    def refuses(node: Node) -> str | None:
        found = {n.op for n in node.subgraphs["body"].nodes} & refused
        return f"no {', '.join(sorted(found))} here" if found else None

    return of(
        family("reduction", [*(WHOLE - {"Gelu"}), "ReduceMax", "ReduceSum", "ReduceMean"], dtypes=dtypes, refuses=refuses),
        family("region", dtypes=dtypes, after=ELEMENTWISE, refuses=refuses),
    )


def graph_of(body: str, inputs: str = "%x: f32[2, 3, 4]", outputs: str = "%y", constants: str = "") -> Graph:
    text = textwrap.indent(textwrap.dedent(f"{constants}\n{body}"), "  ")
    return parse(f"graph g({inputs}) -> ({outputs}) {{{text}\n}}\n")


def operators(graph: Graph) -> str:
    return " ".join(n.op for n in graph.nodes)


def values_of(graph: Graph, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The graph's results by the AI CPU's operators."""
    values = {**given, **{v.name: v.data for v in graph.constants()}}
    for node in graph.nodes:
        operands = [None if v is None else values[v.name] for v in node.inputs]
        results = evaluate(node.op, node.attrs, operands, len(node.outputs))
        values.update(zip((v.name for v in node.outputs), results, strict=True))
    return [values[v.name] for v in graph.outputs]


_PARAMETERS = "const %s: f32[4] = random seed 1 scale 1\nconst %b: f32[4] = random seed 2 scale 1"
_CHANNELS = "const %s: f32[3] = random seed 1 scale 1\nconst %b: f32[3] = random seed 2 scale 1"


@pytest.mark.parametrize(
    ("body", "outputs", "constants", "expanded"),
    [
        ("%y = Softmax(%x) {axis=1}", "%y", "", "ReduceMax Sub Exp ReduceSum Div"),
        ("%y = LogSoftmax(%x) {axis=-1}", "%y", "", "ReduceMax Sub Exp ReduceSum Log Sub"),
        ("%y = LayerNormalization(%x, %s, %b) {axis=-1}", "%y", _PARAMETERS,
         "ReduceMean Sub Mul ReduceMean Add Sqrt Reciprocal Mul Mul Add"),
        ("%y, %m, %i = LayerNormalization(%x, %s) {axis=2, epsilon=0.5}", "%y, %m, %i", _PARAMETERS,
         "ReduceMean Sub Mul ReduceMean Add Sqrt Reciprocal Mul Mul"),
        ("%y = RMSNormalization(%x, %s) {axis=-1}", "%y", _PARAMETERS,
         "Mul ReduceMean Add Sqrt Reciprocal Mul Mul"),
        ("%y = InstanceNormalization(%x, %s, %b)", "%y", _CHANNELS,
         "Unsqueeze Unsqueeze ReduceMean Sub Mul ReduceMean Add Sqrt Reciprocal Mul Mul Add"),
        ("%y = Gelu(%x)", "%y", "", "Mul Erf Mul Add Mul"),
        ('%y = Gelu(%x) {approximate="tanh"}', "%y", "", "Mul Mul Mul Add Mul Tanh Mul Add Mul"),
    ],
)  # fmt: skip
def test_what_a_target_refuses_becomes_its_definition(body: str, outputs: str, constants: str, expanded: str) -> None:
    graph = graph_of(body, outputs=outputs, constants=constants)
    given = {"x": np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)}
    want = values_of(graph, given)
    taken = copy_graph(graph)
    assert not ExpandRefused(families(set())).apply(taken)
    assert ExpandRefused(families(WHOLE)).apply(graph)
    verify(graph)
    assert operators(graph) == expanded
    for found, right in zip(values_of(graph, given), want, strict=True):
        np.testing.assert_allclose(found, right, rtol=2e-6, atol=2e-6)


def test_halves_compute_in_f32() -> None:
    graph = graph_of("%y = Softmax(%x) {axis=-1}", inputs="%x: f16[2, 8]")
    ExpandRefused(families(WHOLE)).apply(graph)
    verify(graph)
    assert operators(graph) == "Cast ReduceMax Sub Exp ReduceSum Div Cast"
    assert graph.outputs[0].dtype.name == "f16" and graph.nodes[3].output.dtype.name == "f32"


@pytest.mark.parametrize(
    "kernels", [families(WHOLE | {"Exp"}), families(set(), dtypes=("f16",))], ids=["a part is refused", "all are"]
)
def test_what_would_be_several_tasks_of_the_ai_cpu_stays_one(kernels: Kernels) -> None:
    graph = graph_of("%y = Softmax(%x) {axis=-1}")
    before = to_text(graph)
    assert not ExpandRefused(kernels).apply(graph)
    assert to_text(graph) == before


def test_the_refusal_of_one_target_costs_no_other_its_kernel() -> None:
    """Two instances of one shared graph: each asks for its own target."""
    shared = graph_of("%y = Softmax(%x) {axis=-1}")
    claims: Callable[[Node, object], str | None] = lambda node, target: (  # noqa: E731
        "too narrow" if target == "chip" and any(n.op == "Softmax" for n in node.subgraphs["body"].nodes) else None
    )
    found = {}
    for name in ("host", "chip"):
        instance = copy_graph(shared)
        every = tuple(type(f)(f.name, f.anchors, claims, f.prologue, f.epilogue) for f in families(set()).families)
        ExpandRefused(Kernels(every, (name,))).apply(instance)
        found[name] = operators(instance)
    assert found == {"host": "Softmax", "chip": "ReduceMax Sub Exp ReduceSum Div"}


def test_a_norm_whose_moments_are_results_runs_natively(tmp_path: Path) -> None:
    """No kernel of the family gives them: the norm went to the AI CPU as a whole."""
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(3, 40)).astype(np.float32), "s": rng.normal(size=40).astype(np.float32)}
    arrays["b"] = arrays["s"][::-1].copy()
    wire = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in arrays.items()]
    node = helper.make_node("LayerNormalization", list(arrays), ["y", "m", "i"], name="norm")
    results = [onnx.ValueInfoProto(name=n) for n in ("y", "m", "i")]
    path = tmp_path / "m.onnx"
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(helper.make_graph([node], "g", wire, results), opset_imports=opset, ir_version=9), path)
    report = atc.convert(path, soc_version=["Ascend910B2", "Ascend310P3"])
    assert not report.aicpu_nodes and not any(chip["aicpu_nodes"] for chip in report.chips.values())
    want = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, arrays)
    with InferSession(0, path.with_suffix(".om")) as session:
        for found, right in zip(session.infer(list(arrays.values())), want, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)
