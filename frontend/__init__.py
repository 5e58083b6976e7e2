"""The ONNX reader: files of any opset become the graph IR, one meaning per operator.

Takes a path and dims wished for inputs (weights stay memory-mapped); gives a `Graph` with types inferred and the
origin of every source tensor, or one error with its place. Knows ONNX and `graph_opt.ir`; no kernel, no runtime.
"""

from frontend.read_model import read_model
from frontend.unsupported import UnsupportedNode, unsupported, unsupported_error

__all__ = ["UnsupportedNode", "read_model", "unsupported", "unsupported_error"]
