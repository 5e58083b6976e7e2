"""The AI CPU: operators in numpy, for what has no native kernel and for constant folding.

Takes an op name, attributes and arrays, gives arrays; ONNX semantics of the newest opset. Knows no graph and no plan.
"""

from acl_runtime.aicpu import (
    attention,
    bodies,
    classical,
    contrib,
    elementwise,
    experts,
    images,
    linear_attention,
    losses,
    narrow,
    prepare_image,
    products,
    quantize,
    recurrent,
    reductions,
    resize,
    sampling,
    sequences,
    shape_ops,
    signal,
    text,
    vision,
)
from acl_runtime.aicpu.registry import evaluate, has_implementation, implementation, implemented_ops

__all__ = [
    "attention",
    "bodies",
    "classical",
    "contrib",
    "elementwise",
    "evaluate",
    "experts",
    "has_implementation",
    "images",
    "implementation",
    "implemented_ops",
    "linear_attention",
    "losses",
    "narrow",
    "prepare_image",
    "products",
    "quantize",
    "recurrent",
    "reductions",
    "resize",
    "sampling",
    "sequences",
    "shape_ops",
    "signal",
    "text",
    "vision",
]
