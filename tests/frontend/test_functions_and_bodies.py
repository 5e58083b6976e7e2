"""Model-local functions, bodies of If, Loop and Scan, sequences and optionals, order and names."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx import TensorProto, helper, numpy_helper

import atc
from acl_runtime import InferSession
from frontend import read_model, unsupported
from graph_opt.ir.text import parse, to_text
from graph_opt.ir.verifier import verify
from tests.frontend.check_shapes import compare, run
from tests.frontend.onnx_export import to_model

N = helper.make_node
F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.random.default_rng(5).standard_normal((2, 3)).astype(np.float32)


def info(name, shape, kind=F):
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def model_of(nodes, inputs, outputs, constants=(), functions=(), opset=17, domains=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    model = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    model.ir_version = 10
    return model


def imported(tmp_path, model, **options):
    onnx.save(model, tmp_path / "m.onnx")
    graph = read_model(tmp_path / "m.onnx", **options)
    verify(graph)
    return graph


# --- functions


def softmax_function(opset):
    body = [N("Softmax", ["a"], ["s"], name="soft", axis=1), N("Relu", ["s"], ["b"], name="last")]
    imports = [helper.make_opsetid("", opset)]
    return helper.make_function("local", "Soft", ["a"], ["b"], body, imports)


def test_function_names_are_those_of_the_inliner(tmp_path):
    nodes = [N("Soft", ["x"], ["h"], name="f1", domain="local"), N("Soft", ["h"], ["y"], name="f2", domain="local")]
    model = model_of(nodes, [info("x", [2, 3])], [info("y", [2, 3])], (), [softmax_function(17)], 17, ["local"])
    graph = imported(tmp_path, model)
    inlined = onnx.inliner.inline_local_functions(model)
    assert [n.name for n in graph.nodes] == [n.name for n in inlined.graph.node]
    assert [n.output.name for n in graph.nodes] == [n.output[0] for n in inlined.graph.node]
    np.testing.assert_allclose(run(to_model(graph), {"x": X})[0], run(model, {"x": X})[0], rtol=1e-6)


def test_function_keeps_the_opset_that_it_was_written_in(tmp_path):
    """Softmax of opset 11 flattens; the same node in the graph, of opset 17, does not."""
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    nodes = [N("Soft", ["x"], ["h"], domain="local"), N("Softmax", ["x"], ["k"], axis=1), N("Add", ["h", "k"], ["y"])]
    model = model_of(nodes, [info("x", x.shape)], [info("y", x.shape)], (), [softmax_function(11)], 17, ["local"])
    graph = imported(tmp_path, model)

    def softmax(values, axis):
        powers = np.exp(values - values.max(axis, keepdims=True))
        return powers / powers.sum(axis, keepdims=True)

    expected = softmax(x.reshape(2, 12), 1).reshape(x.shape) + softmax(x, 1)
    np.testing.assert_allclose(run(to_model(graph), {"x": x})[0], expected, rtol=1e-5)


# --- bodies


def branch(name, nodes, output, shape):
    return helper.make_graph(nodes, name, [], [info(output, shape)])


@pytest.mark.parametrize("choice", [True, False])
def test_branches_use_outer_tensors(tmp_path, choice):
    """A branch that returns an outer tensor as it is, and one whose tensor is named like one of the other branch."""
    nodes = [
        N("Relu", ["x"], ["h"]),
        N("If", ["c"], ["y"], name="choice",
          then_branch=branch("t", [], "h", [2, 3]), else_branch=branch("e", [N("Neg", ["h"], ["o"])], "o", [2, 3])),
    ]  # fmt: skip
    model = model_of(nodes, [info("x", ["n", 3]), info("c", [], BOOL)], [info("y", None)])
    graph = imported(tmp_path, model)
    assert [str(d) for d in graph.outputs[0].shape] == ["n", "3"]
    feeds = {"x": X, "c": np.array(choice)}
    assert parse(to_text(graph)) and to_text(parse(to_text(graph))) == to_text(graph)
    expected = np.maximum(X, 0) if choice else -np.maximum(X, 0)
    np.testing.assert_array_equal(run(to_model(graph), feeds)[0], expected)


def test_a_branch_is_placed_after_what_it_reads(tmp_path):
    """Nodes in reverse: the If comes before the node that makes the tensor its branches use."""
    nodes = [
        N("If", ["c"], ["y"], name="choice", then_branch=branch("t", [N("Abs", ["h"], ["o"])], "o", None),
          else_branch=branch("e", [N("Neg", ["h"], ["o"])], "o", None)),
        N("Relu", ["x"], ["h"], name="before"),
    ]  # fmt: skip
    graph = imported(tmp_path, model_of(nodes, [info("x", [2, 3]), info("c", [], BOOL)], [info("y", None)]))
    assert [n.name for n in graph.nodes] == ["before", "choice"]


def test_fresh_dims_of_a_body_are_its_own(tmp_path):
    """Two data-dependent extents, one outside and one inside, must not share a name."""
    inner = branch("t", [N("NonZero", ["h"], ["inside"])], "inside", None)
    other = branch("e", [N("NonZero", ["x"], ["inside2"])], "inside2", None)
    nodes = [
        N("NonZero", ["x"], ["outside"]), N("Relu", ["x"], ["h"]),
        N("If", ["c"], ["y"], then_branch=inner, else_branch=other),
    ]  # fmt: skip
    model = model_of(nodes, [info("x", [2, 3]), info("c", [], BOOL)], [info("y", None, I64), info("outside", None, I64)])
    graph = imported(tmp_path, model)
    extents = [graph.values["outside"].shape[1]]
    for body in graph.nodes[-1].subgraphs.values():
        extents.append(body.outputs[0].shape[1])
    assert len(set(map(str, extents))) == 3
    assert set(map(str, extents)) <= graph.dims.keys()


def loop_model(declared):
    """Appends x to a state that grows; inputs of the body as `declared`: typed, or only named."""
    names = {"i": ([], I64), "go": ([], BOOL), "state": (["rows", 3], F)}
    inputs = [
        info(name, *type_) if declared else onnx.ValueInfoProto(name=name) for name, type_ in names.items()
    ]  # fmt: skip
    body = helper.make_graph(
        [N("Concat", ["state", "x"], ["longer"], axis=0), N("Identity", ["go"], ["on"]),
         N("Add", ["i", "one"], ["count"])],
        "body", inputs, [info("on", [], BOOL), info("longer", None), info("count", [], I64)],
    )  # fmt: skip
    nodes = [N("Loop", ["trips", "", "x"], ["y", "counts"], name="loop", body=body)]
    return model_of(
        nodes, [info("x", ["n", 3])], [info("y", None), info("counts", None, I64)],
        [constant("trips", np.int64(4)), constant("one", np.int64(1))],
    )  # fmt: skip


@pytest.mark.parametrize("declared", [True, False])
def test_loop(tmp_path, declared):
    model = loop_model(declared)
    graph = imported(tmp_path, model)
    y, counts = graph.outputs
    assert y.rank == 2 and y.shape[1] == 3 and not isinstance(y.shape[0], int) and str(y.shape[0]) != "n"
    assert counts.shape == (4,) and str(counts.dtype) == "i64"
    assert "rows" not in graph.dims  # what the body declares is not trusted
    assert not compare(graph, loop_model(True), {"x": X}).wrong
    np.testing.assert_array_equal(run(to_model(graph), {"x": X})[0], np.concatenate([X] * 5))


def test_scan(tmp_path):
    body = helper.make_graph(
        [N("Add", ["sum", "row"], ["total"]), N("Identity", ["total"], ["out"])], "body",
        [info("sum", [3]), info("row", [3])], [info("total", [3]), info("out", [3])],
    )  # fmt: skip
    node = N("Scan", ["zero", "x"], ["last", "y"], body=body, num_scan_inputs=1, scan_input_axes=[-1])
    model = model_of([node], [info("x", [3, "n"])], [info("y", None)], [constant("zero", np.zeros(3, np.float32))])
    graph = imported(tmp_path, model)
    assert [str(d) for d in graph.outputs[0].shape] == ["n", "3"]
    feeds = {"x": X.T.copy()}
    found = compare(graph, model, feeds)
    assert found.compared == 2 and not found.wrong and not found.open
    np.testing.assert_allclose(run(to_model(graph), feeds)[0], np.cumsum(X, 0), rtol=1e-6)


# --- sequences and optionals


def test_sequences_and_optionals_are_handles(tmp_path):
    tensor = helper.make_tensor_type_proto(F, [2, 3])
    inputs = [
        helper.make_value_info("s", helper.make_sequence_type_proto(tensor)),
        helper.make_value_info("o", helper.make_optional_type_proto(tensor)),
    ]
    nodes = [
        N("SequenceLength", ["s"], ["n"]), N("SequenceAt", ["s", "zero"], ["x"]), N("OptionalHasElement", ["o"], ["h"]),
        N("SequenceConstruct", ["x", "x"], ["both"]), N("ConcatFromSequence", ["both"], ["y"], axis=0),
    ]  # fmt: skip
    outputs = [info("n", [], I64), info("h", [], BOOL), info("y", None)]
    graph = imported(tmp_path, model_of(nodes, inputs, outputs, [constant("zero", np.int64(0))], opset=18))
    assert [v.dtype.name for v in graph.inputs] == ["handle", "handle"]
    assert [(str(v.dtype), v.shape) for v in graph.outputs[:2]] == [("i64", ()), ("bool", ())]
    assert not unsupported(graph)


# --- order, names, origins


def test_any_order_of_nodes(tmp_path):
    nodes = [N("Relu", [f"t{i}"], [f"t{i + 1}"], name=f"n{i}") for i in range(3000)]
    model = model_of(nodes[::-1], [info("t0", [1])], [info("t3000", [1])])
    assert [n.name for n in imported(tmp_path, model).nodes] == [f"n{i}" for i in range(3000)]


def test_nodes_without_names_and_with_equal_ones_are_told_apart(tmp_path):
    nodes = [N("Relu", ["x"], ["a"]), N("Relu", ["a"], ["b"], name="op"), N("Relu", ["b"], ["y"], name="op")]
    names = [n.name for n in imported(tmp_path, model_of(nodes, [info("x", [1])], [info("y", [1])])).nodes]
    assert names == ["Relu_a", "op", "op.1"]


def test_outputs_keep_their_names(tmp_path):
    """Outputs that are a constant, an input, or used further; and a name that a helper value would like to have."""
    nodes = [N("Softmax", ["x"], ["y"], name="s", axis=0), N("Relu", ["y"], ["s.flatten"])]
    weight = constant("w", np.ones(2, np.float32))
    outputs = [info(n, None) for n in ("y", "s.flatten", "w", "x")]
    graph = imported(tmp_path, model_of(nodes, [info("x", [2, 3])], outputs, [weight], opset=11))
    assert [v.name for v in graph.outputs] == ["y", "s.flatten", "w", "x/output"]
    results = run(to_model(graph), {"x": X})
    np.testing.assert_array_equal(results[2], np.ones(2))
    np.testing.assert_array_equal(results[3], X)


def test_every_source_tensor_has_an_origin(tmp_path):
    nodes = [
        N("Constant", [], ["k"], value_float=2.0), N("Gemm", ["x", "w"], ["g"], alpha=0.5), N("Mul", ["g", "k"], ["y"])
    ]  # fmt: skip
    weight = constant("w", np.ones((3, 3), np.float32))
    graph = imported(tmp_path, model_of(nodes, [info("x", [2, 3])], [info("y", [2, 3])], [weight]))
    assert {k: v.relation for k, v in graph.origins.items()} == {"x": "same", "k": "folded", "g": "same", "y": "same"}
    assert graph.values[graph.origins["g"].value].producer.op == "Mul"


def test_dim_names_stay_apart(tmp_path):
    inputs = [info("x", ["a b", "a_b"]), info("z", ["a b", "u0"]), info("q", [None, "min"])]
    nodes = [N("Relu", ["x"], ["x1"]), N("Relu", ["z"], ["z1"]), N("Relu", ["q"], ["q1"])]
    graph = imported(tmp_path, model_of(nodes, inputs, [info(n, None) for n in ("x1", "z1", "q1")]))
    (first, second), (third, fourth), (fifth, sixth) = (v.shape for v in graph.outputs)
    assert first == third and len({str(d) for d in (first, second, fourth, fifth, sixth)}) == 5
    assert str(second) == "a_b" and str(fourth) == "dim_u0"
    assert set(graph.dims) == {str(d) for d in (first, second, fourth, fifth, sixth)}


def test_custom_operators_are_listed_all_at_once(tmp_path):
    nodes = [
        N("Foo", ["x"], ["a"], name="one", domain="com.example"), N("Bar", ["a"], ["y"], name="two"),
    ]  # fmt: skip
    graph = imported(tmp_path, model_of(nodes, [info("x", [1])], [info("y", [1])], domains=["com.example"]))
    rows = [(r.node, r.op, r.domain) for r in unsupported(graph)]
    assert rows == [("one", "Foo", "com.example:1"), ("two", "Bar", "ai.onnx:17")]


def test_a_branch_that_cannot_run_need_not_fit(tmp_path):
    """The rank of x decides; the other branch would be wrong for it."""
    nodes = [
        N("Shape", ["x"], ["s"]), N("Size", ["s"], ["rank"]), N("Equal", ["rank", "two"], ["c"]),
        N("If", ["c"], ["y"], then_branch=branch("t", [N("Transpose", ["x"], ["o"], perm=[1, 0])], "o", None),
          else_branch=branch("e", [N("Transpose", ["x"], ["p"], perm=[0, 2, 1])], "p", None)),
    ]  # fmt: skip
    model = model_of(nodes, [info("x", ["n", 3])], [info("y", None)], [constant("two", np.int64(2))])
    graph = imported(tmp_path, model)
    assert [str(d) for d in graph.outputs[0].shape] == ["3", "n"]


def test_bodies_that_an_operator_applies_keep_their_tensors_apart(tmp_path) -> None:
    """Two attentions with equal bodies, whose If reads a tensor of the graph and one of the body."""
    branches = {
        f"{word}_branch": helper.make_graph(
            [N(op, ["scores", "limit"], [f"{word}_out"])], word, [], [info(f"{word}_out", None)]
        )
        for word, op in (("then", "Min"), ("else", "Max"))
    }
    body = helper.make_graph(
        [N("Add", ["given", "one"], ["scores"]), N("If", ["flag"], ["out"], **branches)], "mod",
        [info("given", None)], [info("out", None)], [constant("one", np.float32(1))],
    )  # fmt: skip
    nodes = [
        N("FlexAttention", ["x", "x", "x"], ["y"], domain="ai.onnx.preview", score_mod=body),
        N("FlexAttention", ["y", "y", "y"], ["z"], domain="ai.onnx.preview", score_mod=body, prob_mod=body),
    ]
    inputs = [info("x", [1, 2, 3, 4]), info("limit", []), info("flag", [], BOOL)]
    onnx.save(model_of(nodes, inputs, [info("z", None)], domains=["ai.onnx.preview"]), tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    session = InferSession(0, tmp_path / "m.om")

    def attention(x: np.ndarray, limit: np.float32, flag: bool, twice: bool) -> np.ndarray:
        def mod(a: np.ndarray) -> np.ndarray:
            return (np.minimum if flag else np.maximum)(a + 1, limit)

        scores = mod(x @ x.swapaxes(-1, -2) / 2)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return (mod(weights) if twice else weights) @ x

    x = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
    for flag in (True, False):
        limit = np.float32(1.1)
        wanted = attention(attention(x, limit, flag, False), limit, flag, True)
        np.testing.assert_allclose(session.infer([x, limit, np.array(flag)])[0], wanted, rtol=1e-5, atol=1e-6)
