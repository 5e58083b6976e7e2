"""ai.onnx.ml: the first LabelEncoder."""

from __future__ import annotations

from frontend.normalise.pending import PendingNode, form
from tensor_types.dtypes import STR


@form("ai.onnx.ml::LabelEncoder", before=2)
def _classes(node: PendingNode) -> None:
    """One list of words, numbered in order; the operand's dtype says which way it goes."""
    words = tuple(str(w) for w in node.attrs.pop("classes_strings", None) or ())  # type: ignore[union-attr]
    numbers = tuple(range(len(words)))
    if node.value(0).dtype == STR:
        node.attrs.update(keys_strings=words, values_int64s=numbers)
    else:
        node.attrs.update(keys_int64s=numbers, values_strings=words)
