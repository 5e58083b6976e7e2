"""Small graphs that measure one kernel each: GEMM, GEMV, the convolutions of ResNet-50, attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from atc.benchmarking.case import Case
from models.builders.graph_writer import GraphWriter

LENGTH = 4
# channels, size of the input, stride
CONV_3X3 = [(64, 56, 1), (128, 56, 2), (128, 28, 1), (256, 28, 2), (256, 14, 1), (512, 14, 2), (512, 7, 1)]
# channels in, channels out, size of the input, stride
CONV_1X1 = [
    (64, 64, 56, 1),
    (64, 256, 56, 1),
    (256, 128, 56, 1),
    (128, 512, 28, 1),
    (512, 256, 28, 1),
    (256, 1024, 14, 1),
    (1024, 512, 14, 1),
    (512, 2048, 7, 1),
    (256, 512, 56, 2),
    (512, 1024, 28, 2),
    (1024, 2048, 14, 2),
]
HEADS, TOKENS, HEAD_SIZE = 12, 512, 64


def _matmul(m: int, k: int, n: int) -> tuple[onnx.ModelProto, float]:
    g = GraphWriter("matmul", seed=m)
    a = g.input("a", TensorProto.FLOAT, [m, k])
    g.output(g.op("MatMul", a, g.weight(g.normal(k, n, std=k**-0.5))), "y", TensorProto.FLOAT, [m, n])
    return g.model(), 2.0 * m * k * n


def _conv(kernel: int, channels_in: int, channels_out: int, size: int, stride: int) -> tuple[onnx.ModelProto, float]:
    """Several convolutions with bias and ReLU, so that a reorder of input and output does not dominate.

    Where shapes allow it they follow each other, a reducing one after each widening one. Strided ones read the same
    input side by side, each followed by a global average.
    """
    g = GraphWriter("conv", seed=channels_in)
    x = g.input("x", TensorProto.FLOAT, [1, channels_in, size, size])
    out = size // stride
    attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}

    def layer(y: str, c_in: int, c_out: int) -> str:
        weight = g.normal(c_out, c_in, kernel, kernel, std=(2 / (c_in * kernel**2)) ** 0.5)
        return g.op("Relu", g.op("Conv", y, g.weight(weight), g.weight(g.normal(c_out, std=0.1)), **attributes))

    if stride == 1:
        y = x
        for i in range(LENGTH):
            y = layer(y, channels_in, channels_out) if i % 2 == 0 else layer(y, channels_out, channels_in)
        g.output(y, "y", TensorProto.FLOAT, [1, channels_in, out, out])
    else:
        means = [g.op("GlobalAveragePool", layer(x, channels_in, channels_out)) for _ in range(LENGTH)]
        g.output(g.op("Concat", *means, axis=1), "y", TensorProto.FLOAT, [1, LENGTH * channels_out, 1, 1])
    return g.model(), 2.0 * LENGTH * kernel**2 * channels_in * channels_out * out**2


def _attention() -> tuple[onnx.ModelProto, float]:
    g = GraphWriter("attention", seed=0)
    shape = [1, HEADS, TOKENS, HEAD_SIZE]
    q, k, v = (g.input(name, TensorProto.FLOAT, shape) for name in "qkv")
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    weights = g.op("Softmax", g.op("Mul", scores, g.constant(HEAD_SIZE**-0.5, np.float32)), axis=-1)
    g.output(g.op("MatMul", weights, v), "y", TensorProto.FLOAT, shape)
    return g.model(), 4.0 * HEADS * TOKENS**2 * HEAD_SIZE


def _multi_head_attention() -> onnx.ModelProto:
    """The same in onnxruntime's own operator. Heads stand as batch with one head each, so nothing is transposed."""
    shape, flat = [1, HEADS, TOKENS, HEAD_SIZE], [HEADS, TOKENS, HEAD_SIZE]
    nodes = [helper.make_node("Reshape", [name, "flat"], [f"{name}_flat"]) for name in "qkv"]
    flat_inputs = [f"{name}_flat" for name in "qkv"]
    nodes.append(helper.make_node("MultiHeadAttention", flat_inputs, ["o"], domain="com.microsoft", num_heads=1))
    nodes.append(helper.make_node("Reshape", ["o", "full"], ["y"]))
    constants = [numpy_helper.from_array(np.array(dims), name) for name, dims in (("flat", flat), ("full", shape))]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkv"]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "multi_head_attention", inputs, [output], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _builders() -> dict[str, Callable[[], tuple[onnx.ModelProto, float]]]:
    builders: dict[str, Callable[[], tuple[onnx.ModelProto, float]]] = {
        "gemm_512": partial(_matmul, 512, 512, 512),
        "gemm_1024": partial(_matmul, 1024, 1024, 1024),
        "gemv_4096": partial(_matmul, 1, 4096, 4096),
    }
    for channels, size, stride in CONV_3X3:
        name = f"conv3x3_{channels}_{size}" + "s2" * (stride == 2)
        builders[name] = partial(_conv, 3, channels, channels, size, stride)
    for channels_in, channels_out, size, stride in CONV_1X1:
        name = f"conv1x1_{channels_in}_{channels_out}_{size}" + "s2" * (stride == 2)
        builders[name] = partial(_conv, 1, channels_in, channels_out, size, stride)
    return builders | {"attention_12x512x64": _attention}


def names() -> list[str]:
    return list(_builders())


def make(name: str, folder: Path) -> Case:
    """Writes the probe's model into `folder`."""
    model, flops = _builders()[name]()
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    rng = np.random.default_rng(0)
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input}
    inputs = {key: rng.standard_normal(shape, np.float32) for key, shape in shapes.items()}
    reference_path = None
    if name.startswith("attention"):
        reference_path = folder / f"{name}_reference.onnx"
        onnx.save(_multi_head_attention(), reference_path)
    return Case(name, path, inputs, flops=flops, reference_path=reference_path)
