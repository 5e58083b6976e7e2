"""Which host class this machine belongs to."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import lru_cache

import llvmlite.binding as llvm

from codegen.llvm.host_class import HOST_CLASSES
from tensor_types.errors import EnvironmentProblem

_AMX = "x86-64-amx"
_LEVELS = {
    "x86-64-v2": ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v4-vnni": ("avx512vnni",),
    _AMX: ("avx512bf16", "amx-tile", "amx-int8", "amx-bf16"),
}
_ARCH_REQ_XCOMP_PERM, _XTILEDATA, _ARCH_PRCTL = 0x1023, 18, 158


@lru_cache(maxsize=1)
def request_amx() -> bool:
    """Asks Linux for the AMX tile state, once per process and for all its threads; False if it is refused."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    try:
        return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA) == 0)
    except (OSError, AttributeError):
        return False


def amx_state() -> str:
    """'available', or why the matrix unit cannot be used."""
    features = llvm.get_host_cpu_features()
    if not all(features.get(f, False) for f in _LEVELS[_AMX]):
        return "not in this processor"
    return "available" if request_amx() else "refused by the system"


def detect_host_class() -> str:
    """The name of the best host class that this machine can run, or what `OPENATC_HOST` says.

    A process that gets x86-64-amx has the permission to run it, if the system gives it; a forced class is not doubted,
    as code for it may be made on any machine; `require_runnable` comes before it is run.
    EnvironmentProblem if `OPENATC_HOST` names no class, or if the processor is older than the oldest class.
    """
    forced = os.environ.get("OPENATC_HOST")
    if forced:
        if forced not in HOST_CLASSES:
            raise EnvironmentProblem(
                f"OPENATC_HOST is {forced!r}, which is no host class", remedy=f"use one of {', '.join(HOST_CLASSES)}"
            )
        if forced == _AMX:
            request_amx()
        return forced
    runnable = runnable_classes()
    if not runnable:
        raise EnvironmentProblem(
            f"no host class fits this processor ({platform.machine()})",
            remedy="a processor with SSE4.2 or NEON is needed",
        )
    return runnable[-1]


def runnable_classes() -> tuple[str, ...]:
    """The classes whose code this machine can run, the best one last."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return ("aarch64",)
    features = llvm.get_host_cpu_features()
    found = []
    for name, needed in _LEVELS.items():
        if not all(features.get(f, False) for f in needed) or (name == _AMX and not request_amx()):
            break
        found.append(name)
    return tuple(found)


def require_runnable(name: str) -> None:
    """EnvironmentProblem if this machine cannot run the code of a class: its first instruction would kill it."""
    if name not in runnable_classes():
        raise EnvironmentProblem(
            f"this processor cannot run code of host class {name}",
            remedy=f"unset OPENATC_HOST, or set it to one of {', '.join(runnable_classes())}",
        )
