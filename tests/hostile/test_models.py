"""Models that once broke the compiler with a bare exception: refused with a code, or lowered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from atc.pipeline import shared_passes, target_passes
from codegen.kernels import kernels
from codegen.lowering import lower_graph
from codegen.targets import target
from frontend import read_model
from graph_opt.ir.passes import run_passes
from tensor_types.errors import InvalidModel

HOST = target("x86-64-v3")


def lowered(folder: Path, node: onnx.NodeProto, shapes: dict[str, list[int]], **constants: np.ndarray) -> None:
    """Reads, optimises and lowers a model of one node."""
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    outputs = [helper.make_empty_tensor_value_info(node.output[0])]
    values = [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph([node], "g", inputs, outputs, values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), folder / "m.onnx")
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
