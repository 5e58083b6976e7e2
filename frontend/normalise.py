"""Brings nodes of older opsets to the form of the newest one; everything else passes through unchanged.

Each rule is a function `(context, inputs, attrs, outputs)` in `RULES` under the operator's name; it may look at
`context.opset`. Rules make helper nodes through the context; the last value gets the source tensor's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from graph_opt.ir import Graph, Node, Value, ops
from graph_opt.ir.infer import infer_node
from tensor_types.dtypes import DType, from_numpy
from tensor_types.errors import InvalidModel

Inputs: TypeAlias = "list[Value | None]"
Attrs: TypeAlias = "dict[str, Any]"


class Import:
    """Makes the nodes of one source node in `graph`; `scope` maps source names to values."""

    def __init__(self, graph: Graph, scope: dict[str, Value], opset: int, name: str, op: str = "") -> None:
        self.graph = graph
        self.scope = scope
        self.opset = opset
        self.name = name
        self.op = op
        self._helpers = 0

    def constant(self, data: Any, dtype: DType | None = None) -> Value:
        """A constant of this node."""
        array = np.asarray(data) if dtype is None else np.asarray(data, dtype.numpy)
        return self.graph.add_constant(f"{self.name}/const", array, dtype or from_numpy(array.dtype))

    def ints(self, values: Sequence[int]) -> Value:
        """An i64 vector."""
        return self.constant(np.asarray(list(values), np.int64))

    def helper(self, op: str, inputs: Inputs, attrs: Attrs | None = None) -> Value:
        """A node with one unnamed result."""
        self._helpers += 1
        result = self.graph.add_value(f"{self.name}/{op.lower()}{self._helpers}", _like(inputs), None)
        self.wire(op, inputs, [result], attrs or {}, f"{self.name}/{op}{self._helpers}")
        return result

    def node(
        self, op: str, inputs: Inputs, attrs: Attrs, outputs: Sequence[str], bodies: Mapping[str, Graph] | None = None
    ) -> Node:
        """The node that makes the source tensors `outputs` ('' for unused ones)."""
        values = []
        for index, name in enumerate(outputs):
            values.append(self.graph.add_value(name or f"{self.name}/unused{index}", _like(inputs), None))
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        node = self.wire(op, inputs, values, attrs, self.name, bodies)
        for name, value in zip(outputs, values, strict=True):
            if name:
                self.scope[name] = value
        return node

    def wire(
        self, op: str, inputs: Inputs, outputs: list[Value], attrs: Attrs, name: str,
        bodies: Mapping[str, Graph] | None = None,
    ) -> Node:  # fmt: skip
        """Adds a node and infers its types."""
        kept = {k: v for k, v in attrs.items() if v is not None}
        node = self.graph.add_node(op, inputs, outputs, kept, name=name, subgraphs=bodies)
        infer_node(self.graph, node)
        return node

    def bind(self, name: str, value: Value) -> None:
        """The source tensor `name` is an existing value."""
        if name:
            self.scope[name] = value

    def error(self, op: str, message: str) -> InvalidModel:
        return InvalidModel(
            message, code="E16001", where={"node": self.name, "op": op}, remedy="export the model with a newer opset"
        )


def _like(inputs: Inputs) -> DType:
    return next((v.dtype for v in inputs if v is not None), from_numpy(np.dtype(np.float32)))


Rule: TypeAlias = Callable[[Import, Inputs, Attrs, list[str]], None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def import_node(
    context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str], bodies: Mapping[str, Graph]
) -> None:
    """Adds the source node to the graph in the newest form."""
    entry = RULES.get(context.op)
    if entry is not None:
        entry(context, inputs, attrs, outputs)
    else:
        context.node(context.op, inputs, attrs, outputs, bodies)


def _input(inputs: Inputs, index: int) -> Value | None:
    return inputs[index] if index < len(inputs) else None


def _to_inputs(names: Sequence[str], until: int) -> Rule:
    """Attributes that became trailing inputs at opset `until`, in order."""

    def apply(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
        if context.opset < until:
            moved: Inputs = []
            for name in names:
                value = attrs.pop(name, None)
                moved.append(None if value is None else context.ints([value] if isinstance(value, int) else value))
            inputs = [*inputs, *moved]
        context.node(context.op, inputs, attrs, outputs)

    return apply


for _name in ("Squeeze", "Unsqueeze", "ReduceSum"):
    RULES[_name] = _to_inputs(["axes"], 13)
for _name in ("Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"):
    RULES[f"Reduce{_name}"] = _to_inputs(["axes"], 18)
RULES["Slice"] = _to_inputs(["starts", "ends", "axes"], 10)
RULES["Reshape"] = _to_inputs(["shape"], 5)


@rule("Constant")
def _constant(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    key, value = next(iter(attrs.items()))
    if key in ("value", "sparse_value"):
        data = np.asarray(value)
    elif key in ("value_string", "value_strings"):
        data = np.asarray(value, object)
    else:
        data = np.asarray(value, np.float32 if key.startswith("value_float") else np.int64)
    name = outputs[0]
    context.bind(name, context.graph.add_constant(name, data, from_numpy(data.dtype)))


@rule("Clip")
def _clip(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    if context.opset < 11:
        assert inputs[0] is not None
        bounds = [attrs.pop(key, None) for key in ("min", "max")]
        inputs = [inputs[0], *(None if b is None else context.constant(b, inputs[0].dtype) for b in bounds)]
    context.node("Clip", inputs, {}, outputs)


@rule("Pad")
def _pad(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    if context.opset < 11:
        assert inputs[0] is not None
        pads = attrs.pop("pads", None) or attrs.pop("paddings", ())
        inputs = [inputs[0], context.ints(pads), context.constant(attrs.pop("value", 0.0), inputs[0].dtype)]
    context.node("Pad", inputs, attrs, outputs)


@rule("Split")
def _split(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    sizes = attrs.pop("split", None)
    if sizes is not None:
        inputs = [inputs[0], context.ints(sizes)]
    if _input(inputs, 1) is None:
        attrs.setdefault("num_outputs", len(outputs))
    context.node("Split", inputs, attrs, outputs)


@rule("TopK")
def _topk(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    if context.opset < 10:
        inputs = [inputs[0], context.ints([attrs.pop("k")])]
    context.node("TopK", inputs, attrs, outputs)


@rule("Cast")
def _cast(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    if isinstance(attrs.get("to"), str):
        import onnx

        attrs["to"] = onnx.TensorProto.DataType.Value(attrs["to"])
    context.node("Cast", inputs, attrs, outputs)


@rule("Dropout")
def _dropout(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    training = _input(inputs, 2)
    if training is not None and (training.data is None or bool(training.data)):
        context.node("Dropout", inputs, attrs, outputs)
        return
    context.node("Identity", [inputs[0]], {}, outputs[:1])
    if len(outputs) > 1 and outputs[1]:
        shape = context.helper("Shape", [inputs[0]])
        context.node("ConstantOfShape", [shape], {"value": np.ones(1, np.bool_)}, [outputs[1]])


@rule("BatchNormalization")
def _batch_norm(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    trained = bool(attrs.get("training_mode"))
    kept = {k: attrs[k] for k in ("epsilon", "momentum", "training_mode") if k in attrs}
    context.node("BatchNormalization", inputs, kept, outputs if trained else outputs[:1])


@rule("Gemm")
def _gemm(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    """alpha * A' @ B' + beta * C as MatMul, Mul and Add; constant operands are transposed as views."""
    a, b, c = inputs[0], inputs[1], _input(inputs, 2)
    assert a is not None and b is not None
    alpha, beta = float(attrs.get("alpha", 1.0)), float(attrs.get("beta", 1.0))
    left = _transposed(context, a) if attrs.get("transA") else a
    right = _transposed(context, b) if attrs.get("transB") else b
    steps: list[tuple[str, Value | None]] = []
    if alpha != 1.0:
        steps.append(("Mul", context.constant(alpha, a.dtype)))
    if c is not None and beta != 0.0:
        if beta != 1.0:
            factor = context.constant(beta, c.dtype)
            scaled = c.data is not None and c.dtype.is_float
            c = context.constant((c.data * c.dtype.numpy.type(beta)), c.dtype) if scaled else context.helper("Mul", [c, factor])  # type: ignore[operator]
        steps.append(("Add", c))
    if not steps:
        context.node("MatMul", [left, right], {}, outputs)
        return
    value = context.helper("MatMul", [left, right])
    for op, operand in steps[:-1]:
        value = context.helper(op, [value, operand])
    context.node(steps[-1][0], [value, steps[-1][1]], {}, outputs)


def _transposed(context: Import, value: Value) -> Value:
    if value.data is not None:
        return context.graph.add_constant(f"{value.name}/transposed", value.data.T, value.dtype)
    return context.helper("Transpose", [value], {"perm": (1, 0)})


@rule("Softmax", "LogSoftmax", "Hardmax")
def _softmax(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    """Before opset 13 the operator worked on the input flattened to a matrix at `axis`."""
    op, value = context.op, inputs[0]
    assert value is not None
    if context.opset >= 13:
        context.node(op, inputs, attrs, outputs)
        return
    axis = attrs.get("axis", 1)
    rank = len(value.shape) if value.shape is not None else None
    if rank is not None and axis % max(rank, 1) == rank - 1:
        context.node(op, inputs, {"axis": -1}, outputs)
        return
    flat = context.helper("Flatten", [value], {"axis": axis})
    result = context.helper(op, [flat], {"axis": -1})
    shape = context.helper("Shape", [value])
    context.node("Reshape", [result, shape], {"allowzero": 1}, outputs)


@rule("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater", "PRelu")
def _old_broadcast(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    """Before opset 7 the second operand was placed at `axis`; a PRelu slope stood for channels."""
    op, a, b = context.op, inputs[0], inputs[1]
    if context.opset < 7 and a is not None and b is not None and a.shape is not None and b.shape is not None:
        axis = attrs.get("axis")
        if op == "PRelu" and len(b.shape) == 1 and b.shape[0] != 1:
            axis = 1
        if axis is not None:
            trailing = len(a.shape) - (int(axis) % len(a.shape)) - len(b.shape)
            if trailing > 0:
                axes = context.ints(range(len(b.shape), len(b.shape) + trailing))
                b = context.helper("Unsqueeze", [b, axes])
    context.node(op, [a, b], {k: v for k, v in attrs.items() if k not in ("axis", "broadcast", "consumed_inputs")}, outputs)


@rule("Upsample")
def _upsample(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    scales = _input(inputs, 1)
    if scales is None:
        scales = context.constant(np.asarray(attrs["scales"], np.float32))
    mode = {"bilinear": "linear"}.get(attrs.get("mode", "nearest"), attrs.get("mode", "nearest"))
    context.node("Resize", [inputs[0], None, scales], _legacy_resize(mode), outputs)


@rule("Resize")
def _resize(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    if context.opset < 11:
        context.node("Resize", [inputs[0], None, inputs[1]], _legacy_resize(attrs.get("mode", "nearest")), outputs)
        return
    cleaned = [v if v is not None and not _is_empty(v) else None for v in inputs]
    context.node("Resize", cleaned, attrs, outputs)


def _legacy_resize(mode: str) -> Attrs:
    return {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _is_empty(value: Value) -> bool:
    return value.shape is not None and 0 in value.shape


@rule("Scatter")
def _scatter(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    context.node("ScatterElements", inputs, attrs, outputs)


@rule("Concat")
def _concat(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    attrs.setdefault("axis", 1)
    context.node("Concat", inputs, attrs, outputs)


@rule("GlobalLpPool", "LpPool")
def _lp_pool(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    if "p" in attrs:
        attrs["p"] = int(attrs["p"])
    context.node(context.op, inputs, attrs, outputs)


@rule("GroupNormalization")
def _group_norm(context: Import, inputs: Inputs, attrs: Attrs, outputs: list[str]) -> None:
    """Before opset 21 scale and bias stood for groups; now for channels."""
    x, groups = inputs[0], int(attrs["num_groups"])
    if context.opset < 21 and x is not None and x.shape is not None and isinstance(x.shape[1], int):
        per_group = x.shape[1] // groups
        spread = []
        for value in inputs[1:3]:
            column = context.helper("Unsqueeze", [value, context.ints([1])])
            wide = context.helper("Expand", [column, context.ints([groups, per_group])])
            spread.append(context.helper("Reshape", [wide, context.ints([x.shape[1]])]))
        inputs = [x, *spread]
    context.node("GroupNormalization", inputs, attrs, outputs)


assert all(ops.get(name) or name in ("Upsample", "Scatter") for name in RULES)
