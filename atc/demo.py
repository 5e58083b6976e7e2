"""`atc demo`: a small network from seeded weights through convert, run and compare, to show the whole way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from acl_runtime.om.replace_file import replace_file
from atc.console import Output, Progress
from atc.writing import make_folder, writing

_CHANNELS = 64
_HEADS = 4


def build_demo_model() -> onnx.ModelProto:
    """A vision model in little: three strided convolutions with batch norm, one attention block, a classifier.

    Input `image` f32 [1, 3, 64, 64], output `probabilities` f32 [1, 10]; weights seeded and scaled to their fan-in.
    """
    net = _Net(np.random.default_rng(7))
    features = "image"
    for index, (fed, made) in enumerate(((3, 32), (32, 64), (64, _CHANNELS))):
        features = net.convolution(f"stem{index}", features, fed, made)
    tokens = net.node("Reshape", [features, net.integers("shape.tokens", [1, _CHANNELS, 64])], "tokens.channels")
    tokens = net.node("Transpose", [tokens], "tokens", perm=[0, 2, 1])
    tokens = net.attention("block", tokens)
    normed = net.node("LayerNormalization", [tokens, *net.affine("head.norm")], "head.norm")
    pooled = net.node("ReduceMean", [normed, net.integers("axes.pool", [1])], "head.pool", keepdims=0)
    logits = net.linear("head.classifier", pooled, _CHANNELS, 10)
    net.nodes.append(helper.make_node("Softmax", [logits], ["probabilities"], "head.softmax", axis=-1))
    graph = helper.make_graph(
        net.nodes, "demo",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 10])],
        net.constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return model


class _Net:
    """Nodes and constants under construction; values go by name."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, op: str, inputs: list[str], name: str, **attrs: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attrs))
        return name

    def constant(self, name: str, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def integers(self, name: str, values: list[int]) -> str:
        return self.constant(name, np.array(values, np.int64))

    def weight(self, name: str, shape: tuple[int, ...], fan_in: int) -> str:
        scale = np.float32(np.sqrt(2.0 / fan_in))
        return self.constant(name, self.rng.standard_normal(shape, np.float32) * scale)

    def affine(self, name: str) -> list[str]:
        scale = 1 + self.rng.standard_normal(_CHANNELS, np.float32) / 8
        bias = self.rng.standard_normal(_CHANNELS, np.float32) / 8
        return [self.constant(f"{name}.scale", scale), self.constant(f"{name}.bias", bias)]

    def convolution(self, name: str, x: str, fed: int, made: int) -> str:
        """3×3, stride 2, then batch normalisation and ReLU."""
        weight = self.weight(f"{name}.weight", (made, fed, 3, 3), 9 * fed)
        x = self.node("Conv", [x, weight], f"{name}.conv", pads=[1, 1, 1, 1], strides=[2, 2])
        statistics = [
            1 + self.rng.random(made, np.float32) / 4,
            self.rng.standard_normal(made, np.float32) / 8,
            self.rng.standard_normal(made, np.float32) / 8,
            0.5 + self.rng.random(made, np.float32),
        ]
        names = [f"{name}.bn.{part}" for part in ("scale", "bias", "mean", "var")]
        fed_names = [self.constant(n, v) for n, v in zip(names, statistics, strict=True)]
        return self.node("Relu", [self.node("BatchNormalization", [x, *fed_names], f"{name}.bn")], f"{name}.relu")

    def linear(self, name: str, x: str, fed: int, made: int) -> str:
        product = self.node("MatMul", [x, self.weight(f"{name}.weight", (fed, made), fed)], f"{name}.matmul")
        bias = self.constant(f"{name}.bias", self.rng.standard_normal(made, np.float32) / 16)
        return self.node("Add", [product, bias], name)

    def attention(self, name: str, x: str) -> str:
        """Pre-norm multi-head self-attention in primitive operators, with its residual connection."""
        normed = self.node("LayerNormalization", [x, *self.affine(f"{name}.norm")], f"{name}.norm")
        split = self.integers(f"{name}.split", [1, 64, _HEADS, _CHANNELS // _HEADS])
        parts = {}
        for part, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            projected = self.linear(f"{name}.{part}", normed, _CHANNELS, _CHANNELS)
            heads = self.node("Reshape", [projected, split], f"{name}.{part}.heads")
            parts[part] = self.node("Transpose", [heads], f"{name}.{part}.t", perm=perm)
        scores = self.node("MatMul", [parts["q"], parts["k"]], f"{name}.scores")
        scale = self.constant(f"{name}.scale", np.float32(1 / np.sqrt(_CHANNELS / _HEADS)))
        scaled = self.node("Mul", [scores, scale], f"{name}.scaled")
        weights = self.node("Softmax", [scaled], f"{name}.weights", axis=-1)
        mixed = self.node("Transpose", [self.node("MatMul", [weights, parts["v"]], f"{name}.mixed")], f"{name}.mixed.t",
                          perm=[0, 2, 1, 3])  # fmt: skip
        joined = self.node("Reshape", [mixed, self.integers(f"{name}.join", [1, 64, _CHANNELS])], f"{name}.joined")
        return self.node("Add", [x, self.linear(f"{name}.out", joined, _CHANNELS, _CHANNELS)], f"{name}.residual")


def run_demo(folder: Path, console: Output | None) -> dict[str, Any]:
    """Builds, converts, runs and compares; gives what `convert`, `run` and `compare` give with --json, by command."""
    from atc.compare_model import compare_model
    from atc.conversion import convert
    from atc.run import run_model

    say: Callable[[str], None] = console.print if console is not None else lambda _: None
    make_folder(folder, "--folder")
    model, package = folder / "demo.onnx", folder / "demo.om"
    say(f"1. build    a small convolution and attention network: {model}")
    with writing("--folder"), replace_file(model) as file:
        file.write(build_demo_model().SerializeToString())
    say(f"2. convert  atc convert {model}")
    converted = convert(model, package, progress=Progress(console))
    for line in converted.lines():
        say(f"  {line}")
    say(f"3. run      atc run {package} --loop 100")
    ran = run_model(package, [], {}, 100, 1, None)
    latency = ran["latency_ms"]
    say(f"  latency    median {latency['median']:.3f} ms, p99 {latency['p99']:.3f} ms, min {latency['min']:.3f} ms")
    say(f"4. compare  atc compare {model} {package}")
    compared = compare_model(model, package, [], {})
    states = {state: sum(r.state == state for r in compared.rows) for state in ("compared", "fused", "folded", "dead")}
    say(f"  {len(compared.rows)} tensors of the model: " + ", ".join(f"{n} {s}" for s, n in states.items()))
    for row in compared.outputs:
        if row.found is not None:
            say(f"  output {row.source}: cosine {row.found.cosine:.7f}, relative L2 {row.found.rel_l2:.1e}")
    say(f"  verdict    {compared.verdict}")
    say(f"The package lies at {package.resolve()}")
    return {"convert": converted.as_dict(), "run": ran, "compare": compared.as_dict()}
