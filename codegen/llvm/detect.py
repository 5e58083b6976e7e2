"""Which host class this machine belongs to: the best row whose needs are a subset of the processor's features."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import lru_cache
from pathlib import Path

import llvmlite

from codegen.cache_files import CacheFiles, name_of
from codegen.cache_folder import cache_folder
from codegen.targets.hosts import HOST_CLASSES, HOSTS
from tensor_types.errors import EnvironmentProblem

_LINUX_ARM = {"asimddp": "dotprod", "bf16": "bf16", "i8mm": "i8mm"}
_APPLE = {"DotProd": "dotprod", "BF16": "bf16", "I8MM": "i8mm"}
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
    fitting = [row for row in HOSTS if row.engines.tile_registers and row.needs <= machine_features()]
    if not fitting:
        return "not in this processor"
    return "available" if request_amx() else "refused by the system"


@lru_cache(maxsize=1)
def machine_features() -> frozenset[str]:
    """Features of this processor as LLVM names them, 'zen' for AMD's Zen cores and 'apple' for Apple's.

    Asked once, as every row of the table of classes is compared with them.
    """
    if machine_architecture() == "aarch64":
        return frozenset({"neon"} | (_apple_features() if sys.platform == "darwin" else _linux_arm_features()))
    return frozenset(_x86_features())


def _x86_features() -> set[str]:
    """What LLVM says, remembered in the cache for this processor: a conversion whose kernels are cached, or a run, need
    not load LLVM to ask."""
    processor = _processor()
    files = CacheFiles(cache_folder() / "processors", 1 << 20)
    name = name_of(llvmlite.__version__, processor)
    known = files.read(name) if processor else None
    if known is not None:
        return set(known.decode().split())
    import llvmlite.binding as llvm

    found = {name for name, present in llvm.get_host_cpu_features().items() if present}
    found |= {"zen"} if llvm.get_host_cpu_name().startswith("znver") else set()
    if processor:
        files.write(name, " ".join(sorted(found)).encode())
    return found


def _processor() -> str:
    """What Linux says of the model and the features of the first core; "" where nobody says it."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return ""
    kept = ("vendor_id", "cpu family", "model", "stepping", "flags")
    return "\n".join(line for line in first.splitlines() if line.startswith(kept))


def machine_architecture() -> str:
    """The first part of this machine's LLVM triple."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def _linux_arm_features() -> set[str]:
    """What the kernel says of the first core; LLVM does not name these on every system."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("Features")), [])
    return {_LINUX_ARM[flag] for flag in flags if flag in _LINUX_ARM}


def _apple_features() -> set[str]:
    libc = ctypes.CDLL(None)

    def present(name: str) -> bool:
        value, size = ctypes.c_int(0), ctypes.c_size_t(4)
        key = f"hw.optional.arm.FEAT_{name}".encode()
        return libc.sysctlbyname(key, ctypes.byref(value), ctypes.byref(size), None, 0) == 0 and value.value == 1

    return {"apple"} | {feature for name, feature in _APPLE.items() if present(name)}


def detect_host_class() -> str:
    """The name of the best host class that this machine can run, or what `OPENATC_HOST` says.

    A process that gets a class with tile registers has the permission to run it, if the system gives it. A forced class
    is not doubted, as code for it may be made on any machine; `require_runnable` comes before it is run.
    EnvironmentProblem if `OPENATC_HOST` names no class, or if the processor is older than the oldest class.
    """
    forced = os.environ.get("OPENATC_HOST")
    if forced:
        if forced not in HOST_CLASSES:
            raise EnvironmentProblem(
                f"OPENATC_HOST is {forced!r}, which is no host class", remedy=f"use one of {', '.join(HOST_CLASSES)}"
            )
        if HOST_CLASSES[forced].engines.tile_registers:
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
    return tuple(
        row.name
        for row in HOSTS
        if row.architecture == machine_architecture()
        and row.needs <= machine_features()
        and (not row.engines.tile_registers or request_amx())
    )


def require_runnable(name: str) -> None:
    """EnvironmentProblem if this machine cannot run the code of a class: its first instruction would kill it."""
    if name not in runnable_classes():
        raise EnvironmentProblem(
            f"this processor cannot run code of host class {name}",
            remedy=f"unset OPENATC_HOST, or set it to one of {', '.join(runnable_classes())}",
        )
