"""`atc env`: versions, the host class in use and where things are kept."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from atc import __version__


def environment() -> dict[str, Any]:
    """Facts that a bug report needs."""
    from codegen.llvm import cache
    from codegen.llvm.detect import detect_host_class

    versions = {name: _version(name) for name in ("numpy", "onnx", "onnxruntime", "llvmlite", "ml_dtypes", "networkx")}
    return {
        "openatc": __version__,
        "python": platform.python_version(),
        **versions,
        "machine": f"{platform.system()} {platform.machine()}",
        "host class": detect_host_class(),
        "cache": str(cache.cache_folder()),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
