"""Models that once broke the compiler with a bare exception: refused with a code, or lowered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from acl_runtime.aicpu import evaluate
from atc.conversion import convert
from atc.pipeline import shared_passes, target_passes
from codegen.kernels import kernels
from codegen.lowering import lower_graph
from codegen.targets import target
from frontend import read_model
from graph_opt.ir.passes import run_passes
from tensor_types.errors import InvalidModel

HOST = target("x86-64-v3")


def lowered(
    folder: Path, node: onnx.NodeProto, shapes: dict[str, list[int]], opset: int = 23, **constants: np.ndarray
) -> None:
    """Reads, optimises and lowers a model of one node."""
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    outputs = [helper.make_empty_tensor_value_info(node.output[0])]
    values = [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph([node], "g", inputs, outputs, values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), folder / "m.onnx")
    made = read_model(folder / "m.onnx")
    run_passes(made, shared_passes())
    run_passes(made, target_passes(kernels([HOST])))
    lower_graph(made, HOST)


def test_a_gather_from_an_axis_without_elements(tmp_path: Path) -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=1)
    lowered(tmp_path, node, {"x": [3, 0]}, i=np.array(1))


@pytest.mark.parametrize(
    ("ranks", "attrs", "reason"),
    [
        ((4, 3, 3), {"q_num_heads": 2, "kv_num_heads": 2}, "ranks 4, 3 and 3"),
        ((3, 4, 4), {"q_num_heads": 2, "kv_num_heads": 2}, "ranks 3, 4 and 4"),
        ((2, 2, 2), {}, "ranks 2, 2 and 2"),
        ((3, 3, 3), {"q_num_heads": 0, "kv_num_heads": 2}, "of 1 at least"),
        ((3, 3, 3), {"q_num_heads": 2, "kv_num_heads": 0}, "of 1 at least"),
    ],
)
def test_attention_of_other_ranks(
    tmp_path: Path, ranks: tuple[int, ...], attrs: dict[str, int], reason: str
) -> None:
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], **attrs)
    shapes = {name: [2, 2, 4, 4][-rank:] for name, rank in zip("qkv", ranks, strict=True)}
    with pytest.raises(InvalidModel, match=reason):
        lowered(tmp_path, node, shapes)


def test_attention_with_caches_of_another_rank(tmp_path: Path) -> None:
    node = helper.make_node("Attention", ["q", "k", "v", "", "a", "b"], ["y", "c", "d"])
    shapes = {**dict.fromkeys("qkv", [2, 2, 4, 4]), "a": [2, 2, 4], "b": [2, 2, 4]}
    with pytest.raises(InvalidModel, match="a cache of rank 3"):
        lowered(tmp_path, node, shapes)


def test_a_slice_of_fewer_axes_than_starts(tmp_path: Path) -> None:
    node = helper.make_node("Slice", ["x", "s", "e", "a"], ["y"])
    with pytest.raises(InvalidModel, match="2 starts for 1 axes"):
        lowered(tmp_path, node, {"x": [4, 4]}, s=np.array([0, 1]), e=np.array([2, 2]), a=np.array([0]))


def test_a_product_with_a_weight_of_unknown_rank(tmp_path: Path) -> None:
    """The weight comes through a Reshape whose target only the run knows."""
    nodes = [helper.make_node("Reshape", ["w", "s"], ["r"]), helper.make_node("MatMul", ["x", "r"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4]),
              helper.make_tensor_value_info("w", TensorProto.FLOAT, [16]),
              helper.make_tensor_value_info("s", TensorProto.INT64, ["n"])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    made = read_model(tmp_path / "m.onnx")
    run_passes(made, shared_passes())


def test_a_node_without_outputs_in_a_body(tmp_path: Path) -> None:
    bare = helper.make_node("Neg", ["x"], [])
    copy = helper.make_node("Identity", ["x"], ["t"])
    branch = helper.make_graph([bare, copy], "b", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, [4])])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
              helper.make_tensor_value_info("c", TensorProto.BOOL, [])]  # fmt: skip
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    with pytest.raises(InvalidModel, match="makes no tensor"):
        read_model(tmp_path / "m.onnx")


def test_attributes_that_no_run_could_use_are_refused_by_the_conversion(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    y = helper.make_tensor_value_info("y", TensorProto.BOOL, [2])
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], "match", pattern=r"(a)\1")
    opset = helper.make_opsetid("", 20)
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=[opset], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(InvalidModel, match="refers to a group") as raised:
        convert(tmp_path / "m.onnx", tmp_path / "m.om")
    assert raised.value.where["node"] == "match" and not (tmp_path / "m.om").exists()


@pytest.mark.parametrize(
    ("shapes", "attrs", "reason"),
    [
        ([[2, 5, 8]] * 3, {"q_num_heads": 3, "kv_num_heads": 2}, "no multiple"),
        ([[2, 5, 8]] * 3, {"q_num_heads": 2, "kv_num_heads": 0}, "no multiple"),
        ([[2, 5, 9], [2, 5, 8], [2, 5, 8]], {}, "9 elements are no 2 heads"),
        ([[2, 5, 8], [2, 4, 8], [2, 4, 8]], {}, "5 and 4 do not agree"),
        ([[2, 5, 8, 1]] * 3, {}, "rank 4, expected is 3"),
        ([[2, 5, 8]] * 3 + [[2, 2, 4]], {}, "rank 3, expected is 4"),
        ([[2, 5, 8]] * 3 + [[1, 2, 4, 4]], {}, "2 and 1 do not agree"),
        ([[2, 5, 8]] * 3 + [[2, 2, 4, 4], [2, 5, 3]], {"update_rule": "gated"}, "3 factors of a token"),
    ],
)
def test_linear_attention_whose_operands_do_not_fit(
    tmp_path: Path, shapes: list[list[int]], attrs: dict[str, int | str], reason: str
) -> None:
    names = ["q", "k", "v", "past", "decay"][: len(shapes)]
    given = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear", **attrs}
    with pytest.raises(InvalidModel, match=reason):
        lowered(tmp_path, helper.make_node("LinearAttention", names, ["y", "s"], **given),
                dict(zip(names, shapes, strict=True)), 27)  # fmt: skip


@pytest.mark.parametrize("shape", [[0, 5, 8], [2, 0, 8], [2, 5, 0]])
def test_linear_attention_over_nothing(tmp_path: Path, shape: list[int]) -> None:
    attrs = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    lowered(tmp_path, helper.make_node("LinearAttention", ["q", "k", "v"], ["y", "s"], **attrs),
            dict.fromkeys("qkv", shape), 27)  # fmt: skip
    y, state = evaluate("LinearAttention", attrs, [np.ones(shape, np.float32)] * 3, 2)
    assert y.shape == tuple(shape) and state.shape == (shape[0], 2, shape[2] // 2, shape[2] // 2) and not state[:, :, 1:].any()


@pytest.mark.parametrize(
    ("shape", "attrs", "reason"),
    [
        ([2, 5, 32], {"num_heads": 3}, "32 elements are no 3 heads"),
        ([2, 5, 32], {}, "with num_heads"),
        ([2, 32], {"num_heads": 2}, "rank 2"),
        ([2, 4, 5, 7], {}, "turn in pairs"),
        ([2, 4, 5, 8], {"rotary_embedding_dim": 10}, "turn in pairs"),
    ],
)
def test_rotations_that_do_not_fit(tmp_path: Path, shape: list[int], attrs: dict[str, int], reason: str) -> None:
    node = helper.make_node("RotaryEmbedding", ["x", "c", "s"], ["y"], **attrs)
    with pytest.raises(InvalidModel, match=reason):
        lowered(tmp_path, node, {"x": shape, "c": [2, 5, 4], "s": [2, 5, 4]})


def test_a_cast_to_a_dtype_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="no dtype"):
        lowered(tmp_path, helper.make_node("Cast", ["x"], ["y"], to="FLOATS"), {"x": [2]}, 5)
