"""Builds random ONNX models node by node: onnxruntime runs each node at once, at every set of sizes of the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

MOST_ELEMENTS = 20_000
MOST_INTEGER = 1 << 20
IR_VERSION = 10


@dataclass
class Tensor:
    """A value of the model: its name and its contents at every set of sizes."""

    name: str
    values: list[np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        """At the first set of sizes."""
        return self.values[0].shape

    @property
    def rank(self) -> int:
        return self.values[0].ndim

    @property
    def dtype(self) -> np.dtype:
        return self.values[0].dtype

    def fixed(self) -> list[int]:
        """Axes whose extents are the same at all sets of sizes, and not 0."""
        return [i for i in range(self.rank) if len({v.shape[i] for v in self.values}) == 1 and self.shape[i]]

    def least(self, axis: int) -> int:
        """The smallest extent of an axis."""
        return min(v.shape[axis] for v in self.values)


Operand = Tensor | np.ndarray | None


@dataclass
class Builder:
    """A model in the making. `sizes` are the sets of sizes, each by the name of a dim."""

    rng: np.random.Generator
    sizes: Sequence[dict[str, int]]
    opset: int = 18
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    pool: list[Tensor] = field(default_factory=list)
    wires: list[onnx.ValueInfoProto] = field(default_factory=list)

    def pick(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def floats(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def integers(self, low: int, high: int, *shape: int, dtype: Any = np.int64) -> np.ndarray:
        return self.rng.integers(low, high, shape).astype(dtype)

    def operand(self, *kinds: str, wanted: Callable[[Tensor], bool] = lambda t: True) -> Tensor | None:
        """A tensor of the pool, later ones more often; `kinds` are names of dtypes or numpy's letters of kinds."""
        fitting = [t for t in self.pool if (not kinds or t.dtype.kind in kinds or t.dtype.name in kinds) and wanted(t)]
        return fitting[-1 - int(min(self.rng.geometric(0.3) - 1, len(fitting) - 1))] if fitting else None

    def input(self, dtype: Any, *dims: int | str, make: Callable[..., np.ndarray]) -> Tensor:
        """A graph input: `make` takes a shape."""
        shapes = [tuple(d if isinstance(d, int) else s[d] for d in dims) for s in self.sizes]
        tensor = Tensor(f"x{len(self.inputs)}", [np.asarray(make(*s)).astype(dtype) for s in shapes])
        self.inputs.append(tensor)
        self.pool.append(tensor)
        self.wires.append(helper.make_tensor_value_info(tensor.name, _code(tensor), dims))
        return tensor

    def add(self, op: str, *operands: Operand, results: int = 1, captured: Sequence[Tensor] = (), **attrs: Any) -> list[Tensor]:
        """Adds a node, unless onnxruntime refuses it at some sizes or a result is too large: then it returns []."""
        constants = {}
        names = []
        for i, operand in enumerate(operands):
            if isinstance(operand, np.ndarray):
                constants[f"c{len(self.constants) + len(constants)}"] = operand
            names.append("" if operand is None else operand.name if isinstance(operand, Tensor) else [*constants][-1])
        protos = [numpy_helper.from_array(np.ascontiguousarray(a).reshape(a.shape), n) for n, a in constants.items()]
        outputs = [f"t{len(self.nodes)}_{i}" for i in range(results)]
        node = helper.make_node(op, names, outputs, name=f"{op}_{len(self.nodes)}", **attrs)
        found = self._run(node, [t for t in (*operands, *captured) if isinstance(t, Tensor)], protos)
        if found is None:
            return []
        self.nodes.append(node)
        self.constants += protos
        tensors = [Tensor(name, list(values)) for name, *values in zip(outputs, *found, strict=True)]
        self.pool += tensors
        return tensors

    def _run(self, node: onnx.NodeProto, reads: list[Tensor], constants: list[onnx.TensorProto]) -> list[list[np.ndarray]] | None:
        reads = list({t.name: t for t in reads}.values())
        wires = [helper.make_tensor_value_info(t.name, _code(t), [None] * t.rank) for t in reads]
        model = self._model([node], wires, node.output, constants)
        try:
            session = oracle(model)
            found = [session.run(None, {t.name: t.values[i] for t in reads}) for i in range(len(self.sizes))]
        except Exception:  # onnxruntime's own classes of errors have no common base
            return None
        return found if all(map(_is_tame, sum(found, []))) else None

    def _model(self, nodes: Sequence, wires: Sequence, outputs: Sequence[str], constants: Sequence) -> onnx.ModelProto:
        graph = helper.make_graph(nodes, "random", wires, [onnx.ValueInfoProto(name=o) for o in outputs], constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    def model(self) -> onnx.ModelProto:
        """All leaves are outputs, and a few values that are used inside too."""
        read = {i for node in self.nodes for i in node.input}
        made = [o for node in self.nodes for o in node.output]
        outputs = [o for o in made if o not in read or self.chance(0.1)]
        return onnx.shape_inference.infer_shapes(self._model(self.nodes, self.wires, outputs, self.constants))


def oracle(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime without its own rewriting."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _code(tensor: Tensor) -> int:
    return helper.np_dtype_to_tensor_dtype(tensor.dtype)


def _is_tame(value: Any) -> bool:
    """Small enough, and far from where integers wrap around and floats overflow."""
    if not isinstance(value, np.ndarray) or value.size > MOST_ELEMENTS:
        return False
    if value.dtype.kind in "iuf":
        return bool(np.isfinite(value).all() and (np.abs(value.astype(np.float64)) <= MOST_INTEGER).all())
    return value.dtype.kind == "b"
