"""Appends nodes and seeded weights to an ONNX graph and names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Dim = int | str


class GraphWriter:
    """One ONNX graph under construction.

    Values are referred to by name. Node and value names derive from operator and position, so a model depends on
    the order of calls and on `seed` alone.
    """

    def __init__(self, name: str, seed: int, opset: int = 17) -> None:
        self.name = name
        self.opset = opset
        self.rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._final_names: dict[str, str] = {}

    def input(self, name: str, dtype: int, shape: Sequence[Dim]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, value: str, name: str, dtype: int, shape: Sequence[Dim]) -> None:
        """Makes `value` a graph output called `name`."""
        self._final_names[value] = name
        self._outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Appends a node with one output and returns the output's name."""
        return self.ops(op_type, 1, *inputs, **attributes)[0]

    def ops(self, op_type: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Appends a node with `outputs` outputs and returns their names."""
        stem = f"{op_type}_{len(self._nodes)}"
        names = [f"{stem}_out{i}" if outputs > 1 else f"{stem}_out" for i in range(outputs)]
        self._nodes.append(helper.make_node(op_type, list(inputs), names, name=stem, **attributes))
        return names

    def weight(self, array: np.ndarray, name: str | None = None) -> str:
        """Adds `array` as an initializer of its own."""
        name = name or f"weight_{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def constant(self, value: Any, dtype: type = np.int64) -> str:
        """Adds a small constant; equal ones are shared."""
        array: np.ndarray = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.weight(array, f"const_{len(self._constants)}")
        return self._constants[key]

    def normal(self, *shape: int, std: float = 1.0, mean: float = 0.0) -> np.ndarray:
        """Normal float32 values."""
        values = self.rng.standard_normal(shape, dtype=np.float32)
        values *= np.float32(std)
        return values if mean == 0.0 else values + np.float32(mean)

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        return self.rng.uniform(low, high, shape).astype(np.float32)

    def linear(self, x: str, fan_in: int, fan_out: int, gain: float = 1.0, bias: bool = True) -> str:
        """x [..., fan_in] → MatMul (+ Add) → [..., fan_out] with variance gain² × mean square of x."""
        y = self.op("MatMul", x, self.weight(self.normal(fan_in, fan_out, std=gain / fan_in**0.5)))
        return self.op("Add", y, self.weight(self.normal(fan_out, std=0.05))) if bias else y

    def layer_norm(self, x: str, width: int, epsilon: float) -> str:
        """LayerNormalization over the last axis with a random scale near one and a random shift near zero."""
        scale = self.weight(self.normal(width, std=0.1, mean=1.0))
        shift = self.weight(self.normal(width, std=0.05))
        return self.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)

    def dim(self, x: str, axis: int) -> str:
        """The size of one axis as an int64 tensor of shape [1]: Shape → Gather → Unsqueeze, as exporters write it."""
        size = self.op("Gather", self.op("Shape", x), self.constant(axis), axis=0)
        return self.op("Unsqueeze", size, self.constant([0]))

    def reshape(self, x: str, *pieces: str | int) -> str:
        """Reshape whose target shape is a Concat of run-time sizes (names, shape [1]) and constants."""
        parts = [self.constant([piece]) if isinstance(piece, int) else piece for piece in pieces]
        return self.op("Reshape", x, self.op("Concat", *parts, axis=0))

    def model(self) -> onnx.ModelProto:
        """The finished model; the writer is used up."""
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [self._final_names.get(name, name) for name in names]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._initializers)
        domains = sorted({node.domain for node in self._nodes} - {""})
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        model = helper.make_model(graph, opset_imports=opsets)
        newest = helper.find_min_ir_version_for(list(model.opset_import), ignore_unknown=True)
        model.ir_version = 8 if self.opset <= 18 else newest
        return model
