"""Writes operators into a graph before a node: the steps that a pass replaces it by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_opt.ir.core import AttrValue, Node, Value
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dtypes import F32, I64, DType


class Arithmetic:
    """Inserts operators before `node`, under its guards. Numbers become constants of the other operand's dtype."""

    def __init__(self, rewriter: Rewriter, node: Node) -> None:
        self.rewriter = rewriter
        self.node = node
        self.count = 0

    def __call__(self, op: str, *operands: Value | float | None, **attrs: AttrValue) -> Value:
        like = next((o.dtype for o in operands if isinstance(o, Value)), F32)
        values = [self.number(o, like) if isinstance(o, int | float) else o for o in operands]
        self.count += 1
        name = f"{self.node.name or self.node.output.name}/{op.lower()}{self.count}"
        return self.rewriter.insert(op, values, attrs, before=self.node, name=name).output

    def number(self, number: float, dtype: DType) -> Value:
        return self.rewriter.constant(number, f"{self.node.output.name}/number", dtype)

    def constant(self, data: np.ndarray, name: str) -> Value:
        return self.rewriter.constant(data, f"{self.node.output.name}/{name}")

    def cast(self, value: Value, dtype: DType) -> Value:
        """The value in another dtype; a constant is converted now."""
        if value.dtype == dtype:
            return value
        if value.recipe is not None:
            wide = value.recipe.array().astype(dtype.numpy)  # a parameter, not a weight
            return self.constant(wide, value.name.rsplit("/", 1)[-1])
        return self("Cast", value, to=dtype.onnx)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        if value.data is not None:
            return value if value.shape == tuple(shape) else self.constant(value.data.reshape(shape), "parameter")
        if value.shape == tuple(shape):
            return value
        return self("Reshape", value, self.constant(np.array(shape, I64.numpy), "shape"))

    def finish(self, result: Value) -> None:
        """`result` takes the place of the node's first output, and the node goes."""
        self.rewriter.replace(self.node.output, result)
        self.rewriter.erase_dead([self.node])
