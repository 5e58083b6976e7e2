"""Operators of the user: attributes and a shape rule in plain Python, without `Inference`.

def infer(x, k, *, axis):                      # one TensorType an input, attributes by name
    return [(x.dtype, x.shape), ("i64", (x.shape[0], None))]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, NamedTuple

import numpy as np

from graph_opt.ir.core import Value
from graph_opt.ir.ops.registry import Inference
from tensor_types.dims import Dim, Expr
from tensor_types.dtypes import DTYPES, DType, from_numpy
from tensor_types.errors import InvalidModel, OpenAtcError, UnsupportedOperator

RESERVED = frozenset({"opset"})
"""Names of node attributes that are the compiler's own."""


class TensorType(NamedTuple):
    """What is known of a tensor: dtype, shape (ints and dim expressions; None while the rank is unknown), and the
    value of a constant."""

    dtype: DType
    shape: tuple[Dim, ...] | None
    value: np.ndarray | None = None


def type_of(value: Value) -> TensorType:
    """The type of a value of a graph."""
    return TensorType(value.dtype, value.shape, value.data)


@dataclass(frozen=True)
class Signature:
    """Attributes and shape rule of 'Domain::Name' from an opset of its domain on.

    attributes: name -> default, or a Python type where the model has to give one; None: any attribute.
    infer: gives (dtype, shape) of the only output or a list of them; a dtype is a `DType`, its name or one of numpy; an
    extent None is one that only the data decides.
    """

    op: str
    version: int
    attributes: Mapping[str, Any] | None
    infer: Callable[..., Any]

    def arguments(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of a call: a node's attributes over the defaults, lists as tuples. InvalidModel."""
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items() if k not in RESERVED}
        if self.attributes is None:
            return given
        unknown = sorted(given.keys() - self.attributes.keys())
        missing = [k for k, v in self.attributes.items() if isinstance(v, type) and k not in given]
        if unknown or missing:
            names = ", ".join(unknown or missing)
            raise InvalidModel(
                f"it {'has attributes that are not registered' if unknown else 'lacks attributes'}: {names}",
                where={"op": self.op}, remedy=f"registered are: {', '.join(self.attributes) or 'none'}",
            )  # fmt: skip
        return {**{k: v for k, v in self.attributes.items() if not isinstance(v, type)}, **given}

    def result_types(
        self, inputs: Sequence[TensorType | None], attrs: Mapping[str, Any], count: int
    ) -> list[tuple[DType, tuple[Dim | None, ...] | None]]:
        """What `infer` says of `count` outputs. InvalidModel if it fails or says too little."""
        arguments = self.arguments(attrs)
        try:
            found = self.infer(*inputs, **arguments)
            one = isinstance(found, tuple) and isinstance(found[0], DType | str | type | np.dtype)
            rows = [found] if one else found
            types = [(_dtype(dtype), None if shape is None else tuple(map(_extent, shape))) for dtype, shape in rows]
            if len(types) < count:
                raise ValueError(f"it gives {len(types)} outputs, the model takes {count}")
        except OpenAtcError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise InvalidModel(
                f"the shape rule failed: {type(error).__name__}: {error}", where={"op": self.op},
                remedy="mend the function infer that the operator was registered with",
            ) from error  # fmt: skip
        return types[:count]

    def rule(self, ctx: Inference) -> None:
        """The rule of the declaration."""
        opset = ctx.node.attrs.get("opset", self.version)
        if isinstance(opset, int) and opset < self.version:
            raise UnsupportedOperator(
                f"it is registered from opset {self.version} of its domain on, the model uses {opset}",
                where={"node": ctx.node.name, "op": self.op},
                remedy="register it for the older opset, or export the model again",
            )
        if ctx.node.subgraphs:
            raise UnsupportedOperator(
                "a registered operator cannot have graphs as attributes", where={"node": ctx.node.name, "op": self.op},
                remedy="express it with Loop, Scan or If",
            )  # fmt: skip
        inputs = [None if v is None else type_of(v) for v in ctx.node.inputs]
        try:
            types = self.result_types(inputs, ctx.node.attrs, len(ctx.node.outputs))
        except OpenAtcError as error:
            error.where = {"node": ctx.node.name, **error.where}
            raise
        for number, (dtype, shape) in enumerate(types):
            known = None
            if shape is not None:
                known = [ctx.fresh(index=number, axis=k) if d is None else d for k, d in enumerate(shape)]
            ctx.set(number, dtype, known)


def _extent(given: Any) -> Dim | None:
    if given is None or isinstance(given, Expr):
        return given
    size = index(given)  # numpy's integers as well
    if size < 0:
        raise ValueError(f"an extent is {size}")
    return size


def _dtype(given: Any) -> DType:
    if isinstance(given, DType):
        return given
    return DTYPES[given] if isinstance(given, str) and given in DTYPES else from_numpy(given)
