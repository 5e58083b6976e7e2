"""The ONNX frontend: reads `.onnx` files, opset 1 to the newest, into the graph IR with one meaning per operator.

Takes a path and gives a `Graph` with types inferred and the origin of every source tensor, or one error with its place.
Knows ONNX and the graph IR; never a kernel, a target or the runtime.
"""

from frontend.reader import read_model
from frontend.support import unsupported

__all__ = ["read_model", "unsupported"]
