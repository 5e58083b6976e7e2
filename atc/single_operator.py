"""One operator as a package, as AscendCL's single-operator calls want it: an ONNX model of a node or a few, converted.

Operators go by AscendCL's names where those differ from ONNX's (RealDiv, SoftmaxV2, MatMulV2, ArgMaxV2, Slice ...);
any other name is that of an ONNX operator, whose attributes have ONNX's names then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, defs, helper, numpy_helper

from atc.conversion import convert
from atc.options import Options
from atc.usage import nearest
from tensor_types.dtypes import DTYPES, DType

Tensor = tuple[DType, tuple[int, ...]]
"""Dtype and dims."""
_Builder = Callable[["_Model", Mapping[str, Any]], None]
_OPSET = 18
_RENAMED = {
    "RealDiv": "Div", "Maximum": "Max", "Minimum": "Min", "LogicalAnd": "And", "LogicalOr": "Or", "LogicalNot": "Not",
    "Select": "Where", "SelectV2": "Where",
}  # fmt: skip


class _Model:
    """The nodes of one operator. Inputs are x0, x1, ..., outputs y0, y1, ..."""

    def __init__(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], constants: Mapping[int, np.ndarray]
    ) -> None:
        self.inputs, self.outputs, self.constants = inputs, outputs, constants
        self.nodes: list[NodeProto] = []
        self.initializers = [numpy_helper.from_array(a, f"x{n}") for n, a in constants.items()]

    def node(self, op: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=f"n{len(self.nodes)}", **attributes))
        return output

    def values(self, *numbers: int) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        return name

    @property
    def names(self) -> list[str]:
        return [f"x{n}" for n in range(len(self.inputs))]

    def proto(self) -> onnx.ModelProto:
        def info(name: str, tensor: Tensor) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, tensor[0].onnx, list(tensor[1]))

        graph = helper.make_graph(
            self.nodes,
            "operator",
            [info(f"x{n}", t) for n, t in enumerate(self.inputs) if n not in self.constants],
            [info(f"y{n}", t) for n, t in enumerate(self.outputs)],
            self.initializers,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)


def _cast(model: _Model, attributes: Mapping[str, Any]) -> None:
    model.node("Cast", ["x0"], "y0", to=model.outputs[0][0].onnx)


def _square(model: _Model, attributes: Mapping[str, Any]) -> None:
    model.node("Mul", ["x0", "x0"], "y0")


def _rsqrt(model: _Model, attributes: Mapping[str, Any]) -> None:
    model.node("Reciprocal", [model.node("Sqrt", ["x0"])], "y0")


def _softmax(model: _Model, attributes: Mapping[str, Any]) -> None:
    axes = attributes.get("axes", [-1])
    if len(axes) != 1:
        raise LookupError(f"SoftmaxV2 over {len(axes)} axes")
    model.node("Softmax", ["x0"], "y0", axis=int(axes[0]))


def _matmul(model: _Model, attributes: Mapping[str, Any]) -> None:
    sides = []
    for number in (0, 1):
        name, rank = f"x{number}", len(model.inputs[number][1])
        if attributes.get(f"transpose_x{number + 1}") or attributes.get(f"adj_x{number + 1}"):
            perm = [*range(rank - 2), rank - 1, rank - 2]
            name = model.node("Transpose", [name], perm=perm)
        sides.append(name)
    if len(model.inputs) == 2:
        model.node("MatMul", sides, "y0")
    else:
        model.node("Add", [model.node("MatMul", sides), "x2"], "y0")


def _arg_max(model: _Model, attributes: Mapping[str, Any]) -> None:
    axis = model.constants.get(1)
    found = attributes.get("dimension", None if axis is None else int(axis.reshape(-1)[0]))
    if found is None:
        raise LookupError("ArgMaxV2 whose dimension is no constant: use set_tensor_const")
    index = model.node("ArgMax", ["x0"], axis=int(found), keepdims=0)
    model.node("Cast", [index], "y0", to=model.outputs[0][0].onnx)


def _slice(model: _Model, attributes: Mapping[str, Any]) -> None:
    """Offsets and sizes, tensors of their own; the result has the dims that the output's description says."""
    begin = model.node("Cast", ["x1"], to=DTYPES["i64"].onnx)
    sizes = model.values(*model.outputs[0][1])
    end = model.node("Add", [begin, sizes])
    cut = model.node("Slice", ["x0", begin, end])
    model.node("Reshape", [cut, sizes], "y0")


_BUILDERS: dict[str, _Builder] = {
    "Cast": _cast, "Square": _square, "Rsqrt": _rsqrt, "SoftmaxV2": _softmax, "MatMul": _matmul, "MatMulV2": _matmul,
    "BatchMatMul": _matmul, "BatchMatMulV2": _matmul, "ArgMaxV2": _arg_max, "Slice": _slice,
}  # fmt: skip


def compile_operator(
    path: Path, kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], attributes: Mapping[str, Any],
    constants: Mapping[int, np.ndarray], options: Options | None = None, header: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Writes the package of one operator over tensors of fixed dims, with `header` among the entries of its header.

    `constants` are inputs whose values are known, by number; the package does not have them as inputs. LookupError if
    there is no such operator or not with these attributes; OpenAtcError if it does not take these tensors.
    """
    model = _Model(inputs, outputs, constants)
    if kind in _BUILDERS:
        _BUILDERS[kind](model, attributes)
    else:
        name = _RENAMED.get(kind, kind)
        if not defs.has(name, _OPSET):
            known = {*_BUILDERS, *_RENAMED, *(schema.name for schema in defs.get_all_schemas())}
            guess = nearest(kind, sorted(known))
            raise LookupError(f"there is no operator {kind}{guess and f', did you mean {guess}?'}")
        allowed = defs.get_schema(name, _OPSET).attributes
        unknown = [a for a in attributes if a not in allowed]
        if unknown:
            raise LookupError(f"{kind} has no attribute {unknown[0]}; it has {', '.join(allowed) or 'none'}")
        model.nodes.append(
            helper.make_node(name, model.names, [f"y{n}" for n in range(len(outputs))], name="n", **attributes)
        )
    with tempfile.TemporaryDirectory(prefix="operator") as folder:
        source = Path(folder) / "operator.onnx"
        onnx.save(model.proto(), source)
        convert(source, path, options or Options(), header=header)
