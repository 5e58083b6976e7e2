"""The reader: ONNX files of any opset become the graph IR, one meaning per operator.

Takes a path (external data is memory-mapped) and shapes wished for inputs; gives a `Graph` with the origin of every
source tensor. Knows `graph_opt.ir` and onnx; knows no pass, no kernel, no package and no runtime.
"""

from frontend.read_model import read_model
from frontend.unsupported import UnsupportedNode, unsupported, unsupported_error

__all__ = ["UnsupportedNode", "read_model", "unsupported", "unsupported_error"]
