"""Operators, each declared once: inputs, typed attributes, kind, and the rule for dtype, shape and content.

`get(name)` gives the `Op`; `declared()` all of them, from which coverage tables derive. The rules see one node and its
values only; they know no kernel and no ONNX file.
"""

from graph_opt.ir.ops import (  # noqa: F401 (importing a family declares its operators)
    classical,
    contrib,
    control,
    cube,
    detection,
    elementwise,
    experts,
    image,
    internal,
    movement,
    narrow,
    normalization,
    pages,
    pooling,
    prepare_image,
    quantization,
    recurrent,
    reduction,
    sequence,
    shape,
    signal,
    text,
    trees,
)
from graph_opt.ir.ops.registry import Attr, Inference, Op, declared, get

__all__ = ["Attr", "Inference", "Op", "declared", "get"]
