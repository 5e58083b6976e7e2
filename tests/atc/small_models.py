"""Small models for the tests of the command line, one a feature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from atc.demo import build_demo_model
from models.builders import bert, llama, moe

N = helper.make_node
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, dtype: int, shape: list[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def array(name: str, value: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(value, name)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def model_of(nodes, inputs, outputs, constants=(), opset=18, functions=(), domains=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "small", inputs, outputs, list(constants))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=9)


def mlp() -> onnx.ModelProto:
    """x f32 [batch, 8] → y f32 [batch, 4]."""
    nodes = [
        N("MatMul", ["x", "w"], ["product"], "fc"),
        N("Add", ["product", "b"], ["sum"], "bias"),
        N("Relu", ["sum"], ["y"], "act"),
    ]
    constants = [array("w", random(8, 4)), array("b", random(4, seed=1))]
    return model_of(nodes, [info("x", F32, ["batch", 8])], [info("y", F32, ["batch", 4])], constants)


def branches() -> onnx.ModelProto:
    """x f32 [4, 4], flag bool [] → y f32 [4, 4]: two different chains in the branches of an If."""
    then = helper.make_graph(
        [N("Exp", ["x"], ["then_exp"], "te"), N("MatMul", ["then_exp", "w"], ["then_out"], "tm")], "then", [],
        [info("then_out", F32, [4, 4])],
    )  # fmt: skip
    other = helper.make_graph(
        [N("Softmax", ["x"], ["else_soft"], "es"), N("MatMul", ["w", "else_soft"], ["else_out"], "em")], "else", [],
        [info("else_out", F32, [4, 4])],
    )  # fmt: skip
    nodes = [
        N("If", ["flag"], ["merged"], "choice", then_branch=then, else_branch=other),
        N("Tanh", ["merged"], ["y"], "end"),
    ]
    inputs = [info("x", F32, [4, 4]), info("flag", BOOL, [])]
    return model_of(nodes, inputs, [info("y", F32, [4, 4])], [array("w", random(4, 4))])


def with_function() -> onnx.ModelProto:
    """x f32 [4, 8] → y f32 [4, 8]: its operators lie in a model-local function, called twice."""
    function = helper.make_function(
        "own", "Block", ["a", "k"], ["out"],
        [N("MatMul", ["a", "k"], ["inner"], "mm"), N("Softmax", ["inner"], ["out"], "sm")],
        [helper.make_opsetid("", 18)],
    )  # fmt: skip
    nodes = [N("Block", ["x", "w"], ["middle"], "b1", domain="own"), N("Block", ["middle", "w"], ["y"], "b2", domain="own")]
    shape = [4, 8]
    return model_of(
        nodes, [info("x", F32, shape)], [info("y", F32, shape)], [array("w", random(8, 8))], functions=[function],
        domains=["own"],
    )  # fmt: skip


def integers() -> onnx.ModelProto:
    """x f32 [6, 20] → chosen i64 [6], large bool [6, 20], places i64 [2, n]: exact outputs, one of a late size."""
    nodes = [
        N("ArgMax", ["x"], ["chosen"], "a", axis=1, keepdims=0),
        N("Greater", ["x", "limit"], ["large"], "g"),
        N("NonZero", ["large"], ["places"], "n"),
    ]
    outputs = [info("chosen", I64, [6]), info("large", BOOL, [6, 20]), info("places", I64, [2, "n"])]
    return model_of(nodes, [info("x", F32, [6, 20])], outputs, [array("limit", np.float32(1.0))])


def half_cast() -> onnx.ModelProto:
    """x f32 [8, 8] → y f32 [8, 8] through float16."""
    nodes = [
        N("Cast", ["x"], ["x16"], "down", to=TensorProto.FLOAT16),
        N("Mul", ["x16", "x16"], ["squared"], "square"),
        N("Cast", ["squared"], ["y"], "up", to=F32),
    ]
    return model_of(nodes, [info("x", F32, [8, 8])], [info("y", F32, [8, 8])])


def sequence() -> onnx.ModelProto:
    """x f32 [6, 4] → y f32 [2, 4]: split into a sequence, one element taken."""
    nodes = [
        N("SplitToSequence", ["x", "two"], ["parts"], "split", axis=0),
        N("SequenceAt", ["parts", "one"], ["part"], "at"),
        N("Neg", ["part"], ["y"], "neg"),
    ]
    constants = [array("two", np.int64(2)), array("one", np.int64(1))]
    return model_of(nodes, [info("x", F32, [6, 4])], [info("y", F32, [2, 4])], constants)


def quantised() -> onnx.ModelProto:
    """x f32 [16, 32] → y f32 [16, 8]: a dynamically quantised product."""
    nodes = [
        N("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"], "quantise"),
        N("MatMulInteger", ["xq", "wq", "xz"], ["product"], "mm"),
        N("Cast", ["product"], ["product_f"], "cast", to=F32),
        N("Mul", ["xs", "ws"], ["scale"], "scale"),
        N("Mul", ["product_f", "scale"], ["y"], "dequantise"),
    ]
    weight = np.random.default_rng(1).integers(-127, 128, (32, 8)).astype(np.int8)
    constants = [array("wq", weight), array("ws", np.float32(0.01))]
    return model_of(nodes, [info("x", F32, [16, 32])], [info("y", F32, [16, 8])], constants)


def unknown_operators() -> onnx.ModelProto:
    nodes = [
        N("Strange", ["x"], ["t"], "odd one", domain="nowhere"),
        N("Relu", ["t"], ["u"], "fine"),
        N("Stranger", ["u"], ["y"], "odd two", domain="nowhere"),
    ]
    return model_of(nodes, [info("x", F32, [4])], [info("y", F32, [4])], domains=["nowhere"])


BUILDERS = {
    "mlp": mlp,
    "demo": build_demo_model,
    "branches": branches,
    "with_function": with_function,
    "integers": integers,
    "half_cast": half_cast,
    "sequence": sequence,
    "quantised": quantised,
    "bert": lambda: bert.build(layers=1, hidden=64, heads=2, vocabulary=97, positions=64),
    "llama": lambda: llama.build(layers=1, hidden=64, heads=4, kv_heads=2, inner=96, vocabulary=89, positions=64),
    "moe_dense": lambda: moe.build("dense", experts=4, hidden=32, inner=48),
    "moe_sparse": lambda: moe.build("sparse", experts=4, hidden=32, inner=48),
}


def save(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(BUILDERS[name](), str(path))
    return path
