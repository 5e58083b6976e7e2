"""What a model declares of its outputs against what they are. Nothing is computed from a declaration."""

from __future__ import annotations

import onnx

from frontend.input_dims import value_type
from graph_opt.ir import Value
from tensor_types.dtypes import HANDLE
from tensor_types.errors import InvalidModel


def odd_output(proto: onnx.ValueInfoProto, value: Value) -> list[str]:
    """A sentence if the declared shape contradicts the inferred one. InvalidModel if the dtypes do."""
    if proto.type.WhichOneof("value") != "tensor_type" or not proto.type.tensor_type.elem_type:
        return []
    dtype, tensor = value_type(proto), proto.type.tensor_type
    if value.dtype not in (dtype, HANDLE):
        raise InvalidModel(
            f"the output is declared as {dtype}, but the graph makes {value.dtype}", where={"tensor": proto.name},
            remedy="declare the dtype that the graph makes, or add a Cast before the output",
        )  # fmt: skip
    if not tensor.HasField("shape") or value.shape is None:
        return []
    extents = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor.shape.dim]
    pairs = zip(extents, value.shape, strict=False)
    if len(extents) == len(value.shape) and all(d is None or not isinstance(s, int) or d == s for d, s in pairs):
        return []
    shown = ", ".join(str(d) if d is not None else n.dim_param or "?"
                      for d, n in zip(extents, tensor.shape.dim, strict=True))  # fmt: skip
    made = ", ".join(map(str, value.shape))
    return [f"the output {proto.name} is declared as [{shown}], but the graph makes [{made}]"]
