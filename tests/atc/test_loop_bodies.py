"""Bodies of Loop and Scan are compiled like models: their kernels run again and again, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from small_models import BOOL, F32, I64, N, array, info, model_of, random

import atc
from acl_runtime import InferSession
from tensor_types.errors import InvalidModel

H = 5


def loop_body(nodes: list, states: list, outputs: list, constants: list | None = None) -> onnx.GraphProto:
    """A body of (i, go, *states) -> outputs."""
    ends = [info(name, dtype, None) for name, dtype in outputs]
    return helper.make_graph(nodes, "body", [info("i", I64, []), info("go", BOOL, []),
                                             *(info(n, t, None) for n, t in states)], ends, constants or [])  # fmt: skip


def layer() -> onnx.ModelProto:
    """xs f32 [t, b, 5], many i64 [] → h f32 [b, 5], all f32 [k, b, 5]: a recurrent layer as an exporter writes it, its
    weights carried through the loop, which ends when a count says so."""
    body = loop_body(
        [
            N("Gather", ["xs", "i"], ["x"], "cut", axis=0),
            N("MatMul", ["x", "w"], ["xw"], "fc"),
            N("MatMul", ["h", "u"], ["hu"], "recurrent"),
            N("Add", ["xw", "hu"], ["both"]), N("Add", ["both", "b"], ["sum"]), N("Tanh", ["sum"], ["next"], "act"),
            N("Add", ["i", "one"], ["done"]), N("Less", ["done", "limit"], ["more"]),
        ],
        [("h", F32), ("w", F32), ("u", F32), ("limit", I64)],
        [("more", BOOL), ("next", F32), ("w", F32), ("u", F32), ("limit", I64), ("next", F32)],
        [array("one", np.array(1))],
    )  # fmt: skip
    nodes = [
        N("Less", ["zero", "many"], ["begins"]),
        N("Loop", ["", "begins", "h0", "w0", "u0", "many"], ["h", "w1", "u1", "many1", "all"], "loop", body=body),
    ]
    constants = [array("w0", random(H, H)), array("u0", random(H, H, seed=1)), array("b", random(H, seed=2)),
                 array("zero", np.array(0))]  # fmt: skip
    inputs = [info("xs", F32, ["t", "b", H]), info("h0", F32, ["b", H]), info("many", I64, [])]
    return model_of(nodes, inputs, [info("h", F32, ["b", H]), info("all", F32, ["k", "b", H])], constants)


def sliding() -> onnx.ModelProto:
    """Scan over axis 1 backwards and axis 0 forwards, stacked along the last axis and backwards along the first."""
    body = helper.make_graph(
        [N("Add", ["s", "p"], ["sp"]), N("Mul", ["sp", "scale"], ["t"]), N("Sub", ["t", "q"], ["row"]),
         N("ReduceSum", ["row"], ["total"], keepdims=0)],
        "body", [info("s", F32, ["m"]), info("p", F32, ["m"]), info("q", F32, ["m"])],
        [info("t", F32, ["m"]), info("row", F32, ["m"]), info("total", F32, [])],
    )  # fmt: skip
    nodes = [N("Scan", ["s0", "ps", "qs"], ["last", "rows", "totals"], "scan", body=body, num_scan_inputs=2,
               scan_input_axes=[1, 0], scan_input_directions=[1, 0], scan_output_axes=[-1, 0],
               scan_output_directions=[0, 1])]  # fmt: skip
    inputs = [info("s0", F32, ["m"]), info("ps", F32, ["m", "n"]), info("qs", F32, ["n", "m"])]
    outputs = [info("last", F32, ["m"]), info("rows", F32, ["m", "n"]), info("totals", F32, ["n"])]
    return model_of(nodes, inputs, outputs, [array("scale", np.array(0.5, np.float32))])


def numbers() -> onnx.ModelProto:
    """x f32 [n] → y f32 [], z f32 [n, 2]: Scans over single numbers backwards, one with a size that data decides."""
    counts = helper.make_graph(
        [N("Unsqueeze", ["p", "axis"], ["row"]), N("Relu", ["row"], ["q"]), N("NonZero", ["q"], ["places"]), N("Shape", ["places"], ["sizes"]),
         N("Cast", ["sizes"], ["many"], to=F32), N("ReduceSum", ["many"], ["count"], keepdims=0),
         N("Mul", ["s", "half"], ["halved"]), N("Add", ["halved", "count"], ["t"])], "counts",
        [info("s", F32, []), info("p", F32, [])], [info("t", F32, [])], [array("axis", np.array([0]))],
    )  # fmt: skip
    adds = helper.make_graph(
        [N("Add", ["s", "p"], ["t"]), N("Unsqueeze", ["t", "axis"], ["u"]), N("Concat", ["u", "u"], ["row"], axis=0)],
        "adds", [info("s", F32, []), info("p", F32, [])], [info("t", F32, []), info("row", F32, [2])],
        [array("axis", np.array([0]))],
    )  # fmt: skip
    nodes = [N("Scan", ["half", "x"], ["y"], body=counts, num_scan_inputs=1, scan_input_directions=[1]),
             N("Scan", ["zero", "x"], ["sum", "z"], body=adds, num_scan_inputs=1, scan_input_directions=[1])]  # fmt: skip
    return model_of(nodes, [info("x", F32, ["n"])], [info("y", F32, []), info("z", F32, ["n", 2])],
                    [array("half", np.float32(0.5)), array("zero", np.float32(0))])  # fmt: skip


def growing() -> onnx.ModelProto:
    """x f32 [n, 3], many i64 [] → y f32 [n + many, 3]: a state that grows, and the positive rows of each step."""
    body = loop_body(
        [
            N("Identity", ["go"], ["on"]), N("Gather", ["x", "first"], ["row"], axis=0),
            N("Concat", ["y", "row"], ["longer"], axis=0), N("ReduceSum", ["longer", "one_axis"], ["sums"], keepdims=0),
            N("Greater", ["sums", "zero"], ["keep"]), N("NonZero", ["keep"], ["places"]),
            N("Squeeze", ["places", "first"], ["rows"]), N("Gather", ["longer", "rows"], ["kept"], axis=0),
            N("Exp", ["kept"], ["e"]), N("ReduceSum", ["e"], ["total"], keepdims=0),
        ],
        [("y", F32)], [("on", BOOL), ("longer", F32), ("total", F32)],
    )  # fmt: skip
    constants = [array("first", np.array([0])), array("one_axis", np.array([1])), array("zero", np.float32(0))]
    outputs = [info("y", F32, ["k", 3]), info("totals", F32, ["many"])]
    return model_of([N("Loop", ["many", "", "x"], ["y", "totals"], "loop", body=body)],
                    [info("x", F32, ["n", 3]), info("many", I64, [])], outputs, constants)  # fmt: skip


def nested() -> onnx.ModelProto:
    """x f32 [n], many i64 [] → y f32 [n], rows f32 [many, n]: a loop in a loop that swaps two states, with a branch."""
    then = helper.make_graph([N("Mul", ["a", "x"], ["scaled"])], "then", [], [info("scaled", F32, None)])
    other = helper.make_graph([N("Sub", ["a", "x"], ["moved"])], "else", [], [info("moved", F32, None)])
    inner = helper.make_graph(
        [N("Identity", ["go2"], ["on2"]), N("Mul", ["b", "half"], ["b2"]), N("Add", ["a", "b2"], ["t"]),
         N("Cast", ["i"], ["step"], to=F32), N("Add", ["t", "step"], ["a2"])],
        "inner", [info("j", I64, []), info("go2", BOOL, []), info("a", F32, None), info("b", F32, None)],
        [info("on2", BOOL, []), info("b", F32, None), info("a2", F32, None)],
    )  # fmt: skip
    body = loop_body(
        [
            N("Mod", ["i", "two"], ["odd"]), N("Cast", ["odd"], ["is_odd"], to=BOOL),
            N("Loop", ["i", "", "a", "b"], ["c", "d"], "inner", body=inner),
            N("If", ["is_odd"], ["e"], "choice", then_branch=then, else_branch=other),
            N("Add", ["c", "e"], ["f"]), N("ReduceMax", ["f"], ["top"], keepdims=0),
            N("Less", ["top", "bound"], ["on"]),
        ],
        [("a", F32), ("b", F32)], [("on", BOOL), ("d", F32), ("f", F32), ("f", F32)],
    )  # fmt: skip
    constants = [array("half", np.float32(0.5)), array("two", np.array(2)), array("bound", np.float32(50))]
    return model_of([N("Loop", ["many", "", "x", "x"], ["last", "y", "rows"], "outer", body=body)],
                    [info("x", F32, ["n"]), info("many", I64, [])],
                    [info("y", F32, ["n"]), info("rows", F32, ["k", "n"])], constants)  # fmt: skip


def selected() -> onnx.ModelProto:
    """x f32 [n, 4] → y: a loop over the rows that the data selects, whose count a body reads through a shape."""
    body = loop_body(
        [N("Identity", ["go"], ["on"]), N("Gather", ["some", "i"], ["row"], axis=0),
         N("Expand", ["row", "wide"], ["many"]), N("MatMul", ["many", "w"], ["p"]), N("Add", ["s", "p"], ["t"])],
        [("s", F32)], [("on", BOOL), ("t", F32)], [array("w", random(4, 4))],
    )  # fmt: skip
    nodes = [
        N("ReduceSum", ["x", "one"], ["sums"], keepdims=0), N("Greater", ["sums", "zero"], ["keep"]),
        N("Compress", ["x", "keep"], ["some"], axis=0), N("Shape", ["some"], ["wide"]),
        N("Gather", ["wide", "first"], ["count"], axis=0),
        N("Mul", ["some", "zero"], ["s0"]), N("Loop", ["count", "", "s0"], ["y"], "loop", body=body),
    ]  # fmt: skip
    constants = [array("one", np.array([1])), array("zero", np.float32(0)), array("first", np.array(0))]
    return model_of(nodes, [info("x", F32, ["n", 4])], [info("y", F32, ["k", 4])], constants)


def layers() -> onnx.ModelProto:
    """xs f32 [t, b, 5], many i64 [] → two layers one after the other, whose lengths data decides: the second reads the
    sum of what two loops of the first made."""
    first = layer()
    loop = next(n for n in first.graph.node if n.op_type == "Loop")

    def copy(number: int, source: str) -> onnx.NodeProto:
        made = onnx.NodeProto()
        made.CopyFrom(loop)
        made.name = f"loop{number}"
        made.output[:] = [f"{name}{number}" for name in ("h", "w", "u", "m", "all")]
        body = made.attribute[0].g
        for node in body.node:
            node.input[:] = [source if name == "xs" else name for name in node.input]
        return made

    nodes = [first.graph.node[0], copy(1, "xs"), copy(2, "xs"), N("Add", ["all1", "all2"], ["made"]), copy(3, "made")]
    return model_of(nodes, list(first.graph.input), [info("all3", F32, ["k", "b", H])], list(first.graph.initializer))


def gathered() -> onnx.ModelProto:
    """x f32 [n] → sequence of tensors built in a loop, joined behind it."""
    body = loop_body(
        [N("Identity", ["go"], ["on"]), N("Add", ["i", "one"], ["end"]), N("Unsqueeze", ["end", "axis"], ["ends"]),
         N("Slice", ["x", "axis", "ends"], ["part"]), N("Mul", ["part", "part"], ["square"]),
         N("SequenceInsert", ["parts", "square"], ["longer"])],
        [("parts", F32)], [("on", BOOL), ("longer", F32)], [array("one", np.array(1)), array("axis", np.array([0]))],
    )  # fmt: skip
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(F32, None))
    body.input[2].CopyFrom(helper.make_value_info("parts", kind))
    body.output[1].CopyFrom(helper.make_value_info("longer", kind))
    nodes = [N("SequenceEmpty", [], ["none"]), N("Loop", ["many", "", "none"], ["all"], "loop", body=body),
             N("ConcatFromSequence", ["all"], ["y"], axis=0)]  # fmt: skip
    return model_of(nodes, [info("x", F32, ["n"]), info("many", I64, [])], [info("y", F32, ["k"])])


def unread() -> onnx.ModelProto:
    """x f32 [n] → y, z f32 [n]: the last outputs of Loop, Scan and If are not read, one of them a state."""
    loop = loop_body([N("Identity", ["go"], ["on"]), N("Add", ["a", "b"], ["c"]), N("Neg", ["a"], ["d"])],
                     [("a", F32), ("b", F32)], [("on", BOOL), ("c", F32), ("d", F32), ("c", F32)])  # fmt: skip
    scan = helper.make_graph(
        [N("Add", ["s", "e"], ["s2"]), N("Mul", ["t", "e"], ["t2"]), N("Abs", ["e"], ["row"])], "scan",
        [info("s", F32, []), info("t", F32, []), info("e", F32, [])],
        [info("s2", F32, []), info("t2", F32, []), info("row", F32, [])],
    )  # fmt: skip
    branches = [helper.make_graph([N(op, ["y"], [f"{op}0"]), N("Exp", ["y"], [f"{op}1"])], op, [],
                                  [info(f"{op}{i}", F32, None) for i in (0, 1)]) for op in ("Abs", "Neg")]  # fmt: skip
    nodes = [
        N("Loop", ["many", "", "x", "x"], ["y", "", ""], "loop", body=loop),
        N("Scan", ["zero", "zero", "x"], ["sum", "", ""], "scan", body=scan, num_scan_inputs=1),
        N("Greater", ["sum", "zero"], ["up"]),
        N("If", ["up"], ["z", ""], "choice", then_branch=branches[0], else_branch=branches[1]),
    ]
    return model_of(nodes, [info("x", F32, ["n"]), info("many", I64, [])], [info("y", F32, ["n"]), info("z", F32, ["n"])],
                    [array("zero", np.float32(0))])  # fmt: skip


def many(n: int) -> np.ndarray:
    return np.array(n)


CASES = {
    "layer 0": (layer, {"xs": random(4, 2, H), "h0": random(2, H), "many": many(0)}),
    "layer 1": (layer, {"xs": random(4, 1, H), "h0": random(1, H), "many": many(1)}),
    "layer 40": (layer, {"xs": random(41, 3, H), "h0": random(3, H), "many": many(40)}),
    "layers": (layers, {"xs": random(5, 2, H), "h0": random(2, H), "many": many(5)}),
    "sliding 1": (sliding, {"s0": random(3), "ps": random(3, 1), "qs": random(1, 3)}),
    "sliding 19": (sliding, {"s0": random(7), "ps": random(7, 19), "qs": random(19, 7)}),
    "numbers 5": (numbers, {"x": random(5)}),
    "growing 0": (growing, {"x": random(2, 3), "many": many(0)}),
    "growing 5": (growing, {"x": random(2, 3), "many": many(5)}),
    "nested 1": (nested, {"x": random(1), "many": many(1)}),
    "nested 6": (nested, {"x": random(9), "many": many(6)}),
    "selected": (selected, {"x": random(7, 4)}),
    "none selected": (selected, {"x": -np.abs(random(7, 4))}),
    "gathered 4": (gathered, {"x": random(6), "many": many(4)}),
    "unread up": (unread, {"x": np.abs(random(4)), "many": many(3)}),
    "unread down": (unread, {"x": -np.abs(random(4)), "many": many(3)}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_loop_gives_what_onnxruntime_gives(name: str, tmp_path: Path) -> None:
    build, feeds = CASES[name]
    model = build()
    onnx.save(model, tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om", verify_ir=True)
    for node in model.graph.node:  # onnxruntime wants names for what nobody reads
        node.output[:] = [name or f"{node.name}/{index}" for index, name in enumerate(node.output)]
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    for threads in (1, 2):
        with InferSession(0, tmp_path / "m.om", threads=threads) as session:
            for _ in range(2):
                for a, b in zip(session.infer(feeds), theirs, strict=True):
                    assert (a.dtype, a.size) == (b.dtype, b.size)
                    if not b.size:  # of no rows onnxruntime does not know the shape
                        continue
                    assert a.shape == b.shape
                    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_rows_of_no_step_have_the_extents_of_the_inputs(tmp_path: Path) -> None:
    onnx.save(layer(), tmp_path / "m.onnx")
    h, rows = InferSession(0, tmp_path / "m.onnx").infer(CASES["layer 0"][1])
    assert h.shape == (2, H) and rows.shape == (0, 2, H)


def test_a_loop_with_weights_is_native(tmp_path: Path) -> None:
    """The weights that it carries become constants in the form of the kernels."""
    onnx.save(layer(), tmp_path / "m.onnx")
    report = atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    assert not report.aicpu_nodes
    (body,) = InferSession(0, tmp_path / "m.om").plan.bodies
    assert [v.dtype.name for v in body.outputs] == ["bool", "f32", "f32"]
    assert all(t.program is not None for s in body.segments for t in s.tasks)
    assert sum(len(v.shape or ()) == 2 for c in body.segments[0].constants for v in [body.segments[0].values[c.value]]) == 2


def test_sizes_that_another_loop_decides_are_known(tmp_path: Path) -> None:
    onnx.save(layers(), tmp_path / "m.onnx")
    assert not atc.convert(tmp_path / "m.onnx", tmp_path / "m.om").aicpu_nodes


@pytest.mark.parametrize("chip", ["Ascend910B2", "Ascend310P3"])
def test_a_chip_runs_the_body(chip: str, tmp_path: Path) -> None:
    model = layer()
    onnx.save(model, tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om", soc_version=chip)
    feeds = {"xs": random(4, 2, H), "h0": random(2, H), "many": many(3)}
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    for a, b in zip(InferSession(0, tmp_path / "m.om", chip=chip).infer(feeds), theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-3, atol=5e-3)


def test_two_loops_whose_constants_share_a_name(tmp_path: Path) -> None:
    def body(value: float) -> onnx.GraphProto:
        return loop_body([N("Identity", ["go"], ["on"]), N("MatMul", ["s", "w"], ["t"])], [("s", F32)],
                         [("on", BOOL), ("t", F32)], [array("w", np.full((3, 3), value, np.float32))])  # fmt: skip

    nodes = [N("Loop", ["two", "", "x"], ["a"], body=body(0.5)), N("Loop", ["two", "", "x"], ["b"], body=body(-1.0))]
    model = model_of(nodes, [info("x", F32, [2, 3])], [info("a", F32, [2, 3]), info("b", F32, [2, 3])],
                     [array("two", np.array(2))])  # fmt: skip
    onnx.save(model, tmp_path / "m.onnx")
    x = random(2, 3)
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for a, b in zip(InferSession(0, tmp_path / "m.onnx").infer([x]), theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_an_index_beyond_the_end_names_the_node_of_the_body(tmp_path: Path) -> None:
    onnx.save(layer(), tmp_path / "m.onnx")
    with pytest.raises(InvalidModel, match="cut.*index is out of range|index is out of range.*cut"):
        InferSession(0, tmp_path / "m.onnx").infer({"xs": random(4, 2, H), "h0": random(2, H), "many": many(9)})


def test_a_pass_that_is_left_out_is_left_out_of_bodies(tmp_path: Path) -> None:
    onnx.save(layer(), tmp_path / "m.onnx")
    for passes, count in (([], 0), (["hoist-invariants"], 2), (["close-bodies"], None)):
        atc.convert(tmp_path / "m.onnx", tmp_path / "m.om", disable_pass=passes)
        plan = InferSession(0, tmp_path / "m.om").plan
        assert len(plan.bodies) == (count is not None)
        feeds = {"xs": random(4, 2, H), "h0": random(2, H), "many": many(3)}
        theirs = onnxruntime.InferenceSession(layer().SerializeToString()).run(None, feeds)
        for a, b in zip(InferSession(0, tmp_path / "m.om").infer(feeds), theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
