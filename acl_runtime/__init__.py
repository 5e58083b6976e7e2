"""The runtime: opens a package, binds it to input shapes and runs it on worker threads.

Takes an `.om` file and numpy arrays, gives numpy arrays. Imports numpy, the tile language and the host code generator;
knows no ONNX, no graph pass and no kernel family.
"""

from acl_runtime.session import InferSession

__all__ = ["InferSession"]
