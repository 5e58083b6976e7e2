"""The AI CPU: operators in numpy, for what has no native kernel and for constant folding.

Takes an op name, attributes and arrays, gives arrays; ONNX semantics of the newest opset. Knows no graph and no plan.
"""

from acl_runtime.aicpu import (
    attention,
    bodies,
    elementwise,
    products,
    quantize,
    recurrent,
    reductions,
    resize,
    sequences,
    shape_ops,
    signal,
    vision,
)
from acl_runtime.aicpu.registry import evaluate, has_implementation, implementation, implemented_ops

__all__ = [
    "attention",
    "bodies",
    "elementwise",
    "evaluate",
    "has_implementation",
    "implementation",
    "implemented_ops",
    "products",
    "quantize",
    "recurrent",
    "reductions",
    "resize",
    "sequences",
    "shape_ops",
    "signal",
    "vision",
]
