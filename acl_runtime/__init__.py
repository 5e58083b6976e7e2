"""The runtime: opens a package, binds it to input shapes and runs it on worker threads.

Takes an `.om` file and numpy arrays, gives numpy arrays. Imports numpy, the tile language and the host code generator;
knows no ONNX, no graph pass and no kernel family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acl_runtime.generation import Generator
    from acl_runtime.kv_pages import KvPages
    from acl_runtime.session import InferSession

__all__ = ["Generator", "InferSession", "KvPages"]


def __getattr__(name: str) -> Any:
    """The public classes at their first use: who only needs a package's format or an error does not load
    what runs models."""
    if name == "InferSession":
        from acl_runtime.session import InferSession

        return InferSession
    if name == "Generator":
        from acl_runtime.generation import Generator

        return Generator
    if name == "KvPages":
        from acl_runtime.kv_pages import KvPages

        return KvPages
    raise AttributeError(f"module 'acl_runtime' has no attribute {name!r}")
