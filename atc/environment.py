"""`atc env`: versions, the host class in use with what it stands on, and where things are kept."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, Any

from atc import __version__

if TYPE_CHECKING:
    from codegen.cache_files import CacheFiles


def environment() -> dict[str, Any]:
    """Facts that a bug report needs."""
    from acl_runtime.om.trust import trusted_keys
    from codegen.llvm.cache import ObjectCache
    from codegen.llvm.detect import amx_state, detect_host_class
    from codegen.targets.hosts import host_class

    names = ("numpy", "onnx", "onnxruntime", "llvmlite", "ml_dtypes", "networkx", "cryptography")
    versions = {name: _version(name) for name in names}
    cache = ObjectCache()
    host = host_class(detect_host_class())
    return {
        "openatc": __version__,
        "python": platform.python_version(),
        **versions,
        "machine": f"{platform.system()} {platform.machine()}",
        "host_class": host.name,
        "cpu": f"{host.cpu} {host.features}".strip(),
        "vector_bytes": host.vector_bytes,
        "engines": ", ".join(name for name, present in asdict(host.engines).items() if present),
        "amx": amx_state(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cache": str(cache.folder),
        "cache_bytes": cache.size(),
        "cache_state": _cache_state(cache),
        "trusted_keys": [str(path) for path in trusted_keys()],
    }


def _cache_state(cache: CacheFiles) -> str:
    if problem := cache.problem():
        return f"not used: {problem}"
    return "in use" if cache.is_writable() else "only read: it cannot be written"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
