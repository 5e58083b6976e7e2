"""Operators of Ascend's IR as nodes of ONNX, where name, inputs or attributes differ from ONNX's.

A few names are those of operators of both (Transpose, Pad, ReduceSum ...). Ascend's is meant where a tensor or an
attribute is one that ONNX's has not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, defs, helper, numpy_helper

from tensor_types.dtypes import DTYPES, DType

Tensor = tuple[DType, tuple[int, ...]]
"""Dtype and dims."""
Attributes = Mapping[str, Any]
OPSET = 20
RENAMED = {
    "RealDiv": "Div", "Maximum": "Max", "Minimum": "Min", "LogicalAnd": "And", "LogicalOr": "Or", "LogicalNot": "Not",
    "Select": "Where", "SelectV2": "Where", "BiasAdd": "Add", "ClipByValue": "Clip",
}  # fmt: skip
"""Operators that differ in nothing but the name."""
_I64 = DTYPES["i64"].onnx


class OperatorModel:
    """The nodes of one operator. Inputs are x0, x1, ..., outputs y0, y1, ..."""

    def __init__(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], constants: Mapping[int, np.ndarray]
    ) -> None:
        self.inputs, self.outputs, self.constants = inputs, outputs, constants
        self.nodes: list[NodeProto] = []
        self.initializers = [numpy_helper.from_array(a, f"x{n}") for n, a in constants.items()]

    def node(self, op: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """Adds a node; gives its result."""
        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=f"n{len(self.nodes)}", **attributes))
        return output

    def values(self, *numbers: int) -> str:
        """A constant row of i64."""
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        return name

    def numbers(self, index: int, what: str) -> list[int]:
        """The numbers of an input that must be a constant."""
        if index not in self.constants:
            raise LookupError(f"{what} is no constant: use set_tensor_const, or is_const in a file")
        return [int(v) for v in self.constants[index].reshape(-1)]

    def end(self, result: str, output: int = 0) -> None:
        """Gives a result as an output, in the dims and the dtype of its description."""
        dtype, dims = self.outputs[output]
        cast = self.node("Cast", [result], to=dtype.onnx)
        self.node("Reshape", [cast, self.values(*dims)], f"y{output}")

    def rank(self, index: int = 0) -> int:
        return len(self.inputs[index][1])

    @property
    def names(self) -> list[str]:
        return [f"x{n}" for n in range(len(self.inputs))]

    def proto(self) -> onnx.ModelProto:
        """The operator as a model."""

        def info(name: str, tensor: Tensor) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, tensor[0].onnx, list(tensor[1]))

        graph = helper.make_graph(
            self.nodes,
            "operator",
            [info(f"x{n}", t) for n, t in enumerate(self.inputs) if n not in self.constants],
            [info(f"y{n}", t) for n, t in enumerate(self.outputs)],
            self.initializers,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def build(model: OperatorModel, kind: str, attributes: Attributes) -> bool:
    """Writes an operator of Ascend's IR into the model; False where ONNX's operator of this name is meant.

    LookupError for attributes or inputs that it cannot have.
    """
    builder = _BUILDERS.get(kind)
    if builder is None or kind in _ALSO_ONNX and not _is_ascends(model, kind, attributes):
        return False
    builder(model, attributes)
    return True


def known_names() -> list[str]:
    """Every name of an operator, of Ascend's IR and of ONNX."""
    return sorted({*_BUILDERS, *RENAMED, *(schema.name for schema in defs.get_all_schemas())})


def _is_ascends(model: OperatorModel, kind: str, attributes: Attributes) -> bool:
    schema = defs.get_schema(kind, OPSET)
    foreign = any(dtype != DTYPES["i64"] or len(dims) > 1 for dtype, dims in model.inputs[1:2])
    return foreign or len(model.inputs) > schema.max_input or any(name not in schema.attributes for name in attributes)


def _cast(model: OperatorModel, attributes: Attributes) -> None:
    model.node("Cast", ["x0"], "y0", to=model.outputs[0][0].onnx)


def _square(model: OperatorModel, attributes: Attributes) -> None:
    model.node("Mul", ["x0", "x0"], "y0")


def _rsqrt(model: OperatorModel, attributes: Attributes) -> None:
    model.node("Reciprocal", [model.node("Sqrt", ["x0"])], "y0")


def _softmax(model: OperatorModel, attributes: Attributes) -> None:
    axes = attributes.get("axes", [-1])
    if len(axes) != 1:
        raise LookupError(f"SoftmaxV2 over {len(axes)} axes")
    model.node("Softmax", ["x0"], "y0", axis=int(axes[0]))


def _matmul(model: OperatorModel, attributes: Attributes) -> None:
    sides = []
    for number in (0, 1):
        name, rank = f"x{number}", model.rank(number)
        if attributes.get(f"transpose_x{number + 1}") or attributes.get(f"adj_x{number + 1}"):
            name = model.node("Transpose", [name], perm=[*range(rank - 2), rank - 1, rank - 2])
        sides.append(name)
    if len(model.inputs) == 2:
        model.node("MatMul", sides, "y0")
    else:
        model.node("Add", [model.node("MatMul", sides), "x2"], "y0")


def _gemm(model: OperatorModel, attributes: Attributes) -> None:
    """alpha * A * B + beta * C, where alpha and beta are tensors behind C."""
    sides = [
        model.node("Transpose", [f"x{n}"], perm=[1, 0]) if attributes.get(f"transpose_{'ab'[n]}") else f"x{n}"
        for n in (0, 1)
    ]
    product = model.node("Mul", [model.node("MatMul", sides), "x3"])
    model.node("Add", [product, model.node("Mul", ["x2", "x4"])], "y0")


def _arg_max(model: OperatorModel, attributes: Attributes) -> None:
    axis = attributes["dimension"] if "dimension" in attributes else model.numbers(1, "the dimension of ArgMaxV2")[0]
    model.end(model.node("ArgMax", ["x0"], axis=int(axis), keepdims=0))


def _slice(model: OperatorModel, attributes: Attributes) -> None:
    """Offsets and sizes, tensors of their own; the result has the dims that the output's description says."""
    begin = model.node("Cast", ["x1"], to=_I64)
    sizes = model.values(*model.outputs[0][1])
    cut = model.node("Slice", ["x0", begin, model.node("Add", [begin, sizes])])
    model.node("Reshape", [cut, sizes], "y0")


def _strided_slice(model: OperatorModel, attributes: Attributes) -> None:
    masks = [name for name, value in attributes.items() if name.endswith("_mask") and value]
    if masks:
        raise LookupError(f"StridedSlice with {masks[0]}: give whole ranges")
    rows = [attributes[n] if n in attributes else model.numbers(i, n)
            for i, n in enumerate(("begin", "end", "strides"), 1)]  # fmt: skip
    axes = model.values(*range(len(rows[0])))
    ranges = [model.values(*map(int, row)) for row in rows]
    model.end(model.node("Slice", ["x0", *ranges[:2], axes, ranges[2]]))


def _transpose(model: OperatorModel, attributes: Attributes) -> None:
    perm = attributes["perm"] if "perm" in attributes else model.numbers(1, "perm")
    model.node("Transpose", ["x0"], "y0", perm=[int(n) for n in perm])


def _reduce(op: str, model: OperatorModel, attributes: Attributes) -> None:
    axes = attributes["axes"] if "axes" in attributes else model.numbers(1, "axes")
    axes = [axes] if isinstance(axes, int) else axes
    keeps = int(bool(attributes.get("keep_dims", len(model.outputs[0][1]) == model.rank())))
    model.end(model.node(op, ["x0", model.values(*map(int, axes))], keepdims=keeps))


def _concat(model: OperatorModel, attributes: Attributes) -> None:
    """ConcatD has its axis as an attribute; of ConcatV2 it is the last input."""
    names, axis = model.names, attributes.get("concat_dim")
    if axis is None:
        axis = model.numbers(len(names) - 1, "concat_dim")[0]
        names = names[:-1]
    model.node("Concat", names, "y0", axis=int(axis))


def _top_k(model: OperatorModel, attributes: Attributes) -> None:
    k = int(attributes["k"]) if "k" in attributes else model.numbers(1, "k")[0]
    axis, largest = int(attributes.get("dim", -1)), int(bool(attributes.get("largest", True)))
    node = helper.make_node("TopK", ["x0", model.values(k)], ["best", "places"], axis=axis, largest=largest,
                            sorted=int(bool(attributes.get("sorted", True))), name="top")  # fmt: skip
    model.nodes.append(node)
    model.end("best")
    if len(model.outputs) > 1:
        model.end("places", 1)


def _gather(model: OperatorModel, attributes: Attributes) -> None:
    axis = attributes["axis"] if "axis" in attributes else model.numbers(2, "axis")[0] if len(model.inputs) > 2 else 0
    model.node("Gather", ["x0", "x1"], "y0", axis=int(axis))


def _layer_norm(kind: str, model: OperatorModel, attributes: Attributes) -> None:
    """Its further results are mean and variance; of LayerNormV3 mean and the reciprocal of the deviation."""
    axis = int(attributes.get("begin_norm_axis", -1))
    node = helper.make_node("LayerNormalization", model.names, ["norm", "mean", "factor"], axis=axis,
                            epsilon=float(attributes.get("epsilon", 1e-7)), name="norm")  # fmt: skip
    model.nodes.append(node)
    model.end("norm")
    if len(model.outputs) > 1:
        model.end("mean", 1)
    if len(model.outputs) > 2 and kind == "LayerNormV3":
        model.end("factor", 2)
    elif len(model.outputs) > 2:
        distance = model.node("Sub", ["x0", "mean"])
        axes = model.values(*range(axis % model.rank(), model.rank()))
        model.end(model.node("ReduceMean", [model.node("Mul", [distance, distance]), axes]), 2)


def _add_n(model: OperatorModel, attributes: Attributes) -> None:
    model.node("Sum", model.names, "y0")


def _pad(model: OperatorModel, attributes: Attributes) -> None:
    """Paddings are a pair for each axis, before and behind."""
    given = attributes["paddings"] if "paddings" in attributes else model.numbers(1, "paddings")
    flat = [int(n) for n in np.array(given).reshape(-1)]
    model.node("Pad", ["x0", model.values(*flat[::2], *flat[1::2]), *model.names[2:3]], "y0")


def _tile(model: OperatorModel, attributes: Attributes) -> None:
    counts = attributes["multiples"] if "multiples" in attributes else model.numbers(1, "multiples")
    model.node("Tile", ["x0", model.values(*map(int, counts))], "y0")


def _expand_dims(model: OperatorModel, attributes: Attributes) -> None:
    model.end("x0")


def _conv2d(model: OperatorModel, attributes: Attributes) -> None:
    """NCHW, with attributes of four numbers for strides and dilations, top, bottom, left and right for pads."""
    if attributes.get("data_format", "NCHW") != "NCHW":
        raise LookupError(f"Conv2D in {attributes['data_format']}: give NCHW")
    top, bottom, left, right = (int(n) for n in attributes.get("pads", (0, 0, 0, 0)))
    strides, dilations = ([int(n) for n in attributes.get(name, (1,) * 4)][2:] for name in ("strides", "dilations"))
    model.node("Conv", model.names[:3], "y0", pads=[top, left, bottom, right], strides=strides, dilations=dilations,
               group=int(attributes.get("groups", 1)))  # fmt: skip


def _fast_gelu(model: OperatorModel, attributes: Attributes) -> None:
    """x * sigmoid(1.702 * x)."""
    factor = np.array(1.702, model.inputs[0][0].numpy)
    model.initializers.append(numpy_helper.from_array(factor, "factor"))
    model.node("Mul", ["x0", model.node("Sigmoid", [model.node("Mul", ["x0", "factor"])])], "y0")


def _relu6(model: OperatorModel, attributes: Attributes) -> None:
    dtype = model.inputs[0][0].numpy
    for name, number in (("low", 0), ("high", 6)):
        model.initializers.append(numpy_helper.from_array(np.array(number, dtype), name))
    model.node("Clip", ["x0", "low", "high"], "y0")


def _swish(model: OperatorModel, attributes: Attributes) -> None:
    model.node("Mul", ["x0", model.node("Sigmoid", ["x0"])], "y0")


_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
_BUILDERS: dict[str, Callable[[OperatorModel, Attributes], None]] = {
    "Cast": _cast, "Square": _square, "Rsqrt": _rsqrt, "SoftmaxV2": _softmax, "MatMul": _matmul, "MatMulV2": _matmul,
    "BatchMatMul": _matmul, "BatchMatMulV2": _matmul, "GEMM": _gemm, "ArgMaxV2": _arg_max, "ArgMaxD": _arg_max,
    "Slice": _slice, "StridedSlice": _strided_slice, "StridedSliceD": _strided_slice, "Transpose": _transpose,
    "TransposeD": _transpose, "ConcatD": _concat, "ConcatV2D": _concat, "ConcatV2": _concat, "TopKV2": _top_k,
    "TopKD": _top_k, "GatherV2": _gather, "GatherV2D": _gather, "LayerNorm": partial(_layer_norm, "LayerNorm"),
    "LayerNormV3": partial(_layer_norm, "LayerNormV3"), "AddN": _add_n, "Pad": _pad, "PadD": _pad, "PadV2": _pad,
    "Tile": _tile, "TileD": _tile, "ExpandDims": _expand_dims, "Conv2D": _conv2d, "FastGelu": _fast_gelu,
    "Relu6": _relu6, "Swish": _swish,
    **{name + suffix: partial(_reduce, name) for name in _REDUCTIONS for suffix in ("", "D")},
}  # fmt: skip
_ALSO_ONNX = {"Transpose", "Pad", "Tile", *_REDUCTIONS}
