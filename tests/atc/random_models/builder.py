"""Builds random ONNX models node by node: onnxruntime runs each node at once, at every set of sizes of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from atc.exact_products import make_products_exact

MOST_ELEMENTS = 20_000
MOST_INTEGER = 1 << 20
IR_VERSION = 10
SIZES = ((1, 2, 3, 4, 5), (1, 1, 2, 7), (3, 13, 17, 31))
"""What the dims of the three sets of sizes are drawn from."""
ODD_SIZES = ((1, 2, 3, 4, 5), (0, 1, 2, 2, 3, 7), (3, 13, 17, 31))
"""Of odd models."""


class Refused(Exception):
    """Nothing fits a step, or onnxruntime refuses its node, or a result is too large."""


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

    def is_fixed(self, *axes: int) -> bool:
        """Whether the extents of the axes are the same at all sets of sizes, and not 0."""
        return all(len({v.shape[a] for v in self.values}) == 1 and self.shape[a] for a in axes)

    def fixed(self) -> list[int]:
        """The axes that `is_fixed` is true of."""
        return [a for a in range(self.rank) if self.is_fixed(a)]

    def least(self, *axes: int) -> int:
        """The smallest extent of the axes."""
        return min(v.shape[a] for v in self.values for a in axes)


Operand = Tensor | np.ndarray | np.generic | None
Step = Callable[["Builder"], object]


@dataclass(frozen=True)
class Theme:
    """A kind of models: their inputs, the steps they are drawn from, their opsets, and whether all results are exact."""

    start: Step
    steps: Sequence[Step]
    opsets: Sequence[int] = (18,)
    exact: bool = False


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def number(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


@dataclass
class Builder:
    """A model in the making. `sizes` are the sets of sizes, each by the name of a dim."""

    rng: np.random.Generator
    sizes: Sequence[dict[str, int]]
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    pool: list[Tensor] = field(default_factory=list)
    wires: list[onnx.ValueInfoProto] = field(default_factory=list)
    odd: bool = False
    """Extents have several names and may be 0, or 1 where others are not; outputs are left unread, given twice, or are
    inputs or constants."""

    # --- what steps draw

    def pick(self, *items: Any) -> Any:
        if not items:
            raise Refused
        return items[int(self.rng.integers(len(items)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def axis(self, x: Tensor) -> int:
        return self.pick(*range(x.rank))

    def floats(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return np.asarray(self.rng.standard_normal(shape) * scale, np.float32)

    def integers(self, low: int, high: int, *shape: int, dtype: Any = np.int64) -> np.ndarray:
        return np.asarray(self.rng.integers(low, high, shape)).astype(dtype)

    def part(self, x: Tensor) -> tuple[int, ...]:
        """A shape that broadcasts to that of x."""
        shape = [d if x.is_fixed(i) and self.chance(0.6) else 1 for i, d in enumerate(x.shape)]
        return tuple(shape[int(self.rng.integers(x.rank + 1)) :])

    def operand(self, *kinds: str, wanted: Callable[[Tensor], object] = lambda t: True) -> Tensor:
        """A tensor of the pool, later ones more often; `kinds` are names of dtypes or numpy's letters of kinds."""
        fitting = [t for t in self.pool if (not kinds or {t.dtype.kind, t.dtype.name} & {*kinds}) and wanted(t)]
        if not fitting:
            raise Refused
        return fitting[-1 - int(min(self.rng.geometric(0.3) - 1, len(fitting) - 1))]

    def real(self, least: int = 0, *ranks: int, fixed: Sequence[int] = ()) -> Tensor:
        """An f32 tensor of at least so many axes, or of one of the ranks, with the axes `fixed` of fixed extents."""
        return self.operand(
            "float32", wanted=lambda t: t.rank >= least and (not ranks or t.rank in ranks) and t.is_fixed(*fixed)
        )

    # --- what steps add

    def input(self, dtype: Any, *dims: int | str, make: Callable[..., Any]) -> Tensor:
        """A graph input: `make` takes a shape."""
        if self.odd:
            dims = tuple(self._renamed(d) if isinstance(d, str) and self.chance(0.4) else d for d in dims)
        shapes = [tuple(d if isinstance(d, int) else s[d] for d in dims) for s in self.sizes]
        tensor = Tensor(f"x{len(self.inputs)}", [np.asarray(make(*s)).astype(dtype) for s in shapes])
        self.inputs.append(tensor)
        self.pool.append(tensor)
        self.wires.append(helper.make_tensor_value_info(tensor.name, _code(tensor), dims))
        return tensor

    def _renamed(self, dim: str) -> str:
        """A dim of its own that is as long as `dim` or, at some sets of sizes, 1."""
        name = f"{dim}{len(self.inputs)}"
        alone = self.chance(0.5)
        for sizes in self.sizes:
            sizes.setdefault(name, self.pick(1, sizes[dim]) if alone else sizes[dim])
        return name

    def add(self, op: str, *operands: Operand, captured: Sequence[Tensor] = (), **attrs: Any) -> Tensor:
        """A node of one result; `captured` are what its bodies read from outside."""
        return self.several(1, op, *operands, captured=captured, **attrs)[0]

    def several(
        self, results: int, op: str, *operands: Operand, captured: Sequence[Tensor] = (), **attrs: Any
    ) -> list[Tensor]:
        """A node of several results."""
        names: list[str] = []
        constants = []
        for operand in operands:
            if isinstance(operand, np.ndarray | np.generic):
                names.append(f"c{len(self.constants) + len(constants)}")
                constants.append(numpy_helper.from_array(np.array(operand, order="C"), names[-1]))
            else:
                names.append("" if operand is None else operand.name)
        outputs = [f"t{len(self.nodes)}_{i}" for i in range(results)]
        node = helper.make_node(op, names, outputs, name=f"{op}_{len(self.nodes)}", **attrs)
        found = self._run(node, [t for t in (*operands, *captured) if isinstance(t, Tensor)], constants)
        self.nodes.append(node)
        self.constants += constants
        tensors = [Tensor(name, list(values)) for name, *values in zip(outputs, *found, strict=True)]
        self.pool += tensors
        return tensors

    def _run(self, node: onnx.NodeProto, reads: list[Tensor], constants: Sequence[onnx.TensorProto]) -> list[list[Any]]:
        """The node's results at every set of sizes."""
        reads = list({t.name: t for t in reads}.values())
        wires = [helper.make_tensor_value_info(t.name, _code(t), [None] * t.rank) for t in reads]
        try:
            session = oracle(self._model([node], wires, node.output, constants))
            found = [session.run(None, {t.name: t.values[i] for t in reads}) for i in range(len(self.sizes))]
        except Exception as error:  # onnxruntime's errors have no class of their own
            raise Refused from error
        ranks = {tuple(getattr(r, "ndim", None) for r in results) for results in found}
        if len(ranks) > 1 or not all(map(_is_tame, sum(found, []))):
            raise Refused
        if node.op_type == "ReduceMean" and any(not v.size for t in reads for v in t.values):
            raise Refused  # the mean of nothing is NaN in ONNX's text, 0 for onnxruntime
        if any(_is_cancelled(r, [t.values[i] for t in reads]) for i, results in enumerate(found) for r in results):
            raise Refused
        return found

    def _model(self, nodes: Sequence, wires: Sequence, outputs: Sequence[str], constants: Sequence) -> onnx.ModelProto:
        graph = helper.make_graph(nodes, "random", wires, [onnx.ValueInfoProto(name=o) for o in outputs], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)

    def model(self) -> onnx.ModelProto:
        """All leaves are outputs, and a few values that are used inside too; of an odd model, some of the leaves."""
        read = _read_by(self.nodes)
        leaves = [o for node in self.nodes for o in node.output if o not in read]
        inner = [o for node in self.nodes for o in node.output if o in read and self.chance(0.1)]
        if not self.odd:
            return self._model(self.nodes, self.wires, [*leaves, *inner], self.constants)
        kept = [o for o in leaves if self.chance(0.6)] or leaves[:1]
        others = [w.name for w in self.wires if self.chance(0.15)] + [c.name for c in self.constants if self.chance(0.03)]
        again = [o for o in (*kept, *inner, *others) if self.chance(0.1)]
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in self.nodes]
        for node in nodes:
            unread = [o not in kept and o in leaves and self.chance(0.7) for o in node.output]
            if not all(unread) and node.op_type != "Split":  # onnxruntime's Split writes every part
                node.output[:] = ["" if gone else o for o, gone in zip(node.output, unread, strict=True)]
        return self._model(nodes, self.wires, [*kept, *inner, *others, *again], self.constants)


def build(theme: Theme, seed: int, steps: int = 18, odd: bool = False) -> Builder:
    """A model of about so many nodes."""
    rng = np.random.default_rng(seed)
    sizes = [{name: int(rng.choice(extents)) for name in "nwh"} for extents in (ODD_SIZES if odd else SIZES)]
    b = Builder(rng, sizes, int(rng.choice(theme.opsets)), odd=odd)
    theme.start(b)
    for _ in range(10 * steps):
        if len(b.nodes) >= steps:
            break
        try:
            b.pick(*theme.steps)(b)
        except Refused:
            continue
    return b


def _read_by(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Names that nodes and their bodies read."""
    read = {i for node in nodes for i in node.input}
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                read |= _read_by(attribute.g.node) | {o.name for o in attribute.g.output}
    return read


def oracle(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime without its own rewriting, integer products exact; an output that is listed twice is given once."""
    exact = onnx.ModelProto.FromString(model.SerializeToString())
    outputs = {o.name: o for o in exact.graph.output}
    del exact.graph.output[:]
    exact.graph.output.extend(outputs.values())
    make_products_exact(exact)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(exact.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _code(tensor: Tensor) -> int:
    return helper.np_dtype_to_tensor_dtype(tensor.dtype)


def _is_cancelled(result: Any, reads: Sequence[np.ndarray]) -> bool:
    """Whether a result holds nothing but the rounding of what it is made of, as LogSumExp of LogSoftmax does."""
    if getattr(result, "dtype", None) != np.float32:
        return False
    largest, source = (
        max((np.abs(a[np.isfinite(a)]).max(initial=0) for a in arrays if a.dtype.kind == "f"), default=0)
        for arrays in ([result], reads)
    )
    return bool(0 < largest < 1e-5 * source)


def _is_tame(value: Any) -> bool:
    """Small enough, and far from where integers wrap around and floats overflow."""
    if not isinstance(value, np.ndarray) or value.size > MOST_ELEMENTS:
        return False
    if value.dtype.kind in "iuf":
        return bool((np.abs(value.astype(np.float64)) <= MOST_INTEGER).all())
    return value.dtype.kind == "b"
