"""Code of host classes that this machine does not have, made to run on it: what only they have is emulated."""

from __future__ import annotations

from codegen.llvm.detect import runnable_classes
from tests.llvm import amx_emulation, dot_emulation

RUNNABLE = runnable_classes()


def runs_on(name: str) -> str:
    """The class whose machine code runs here for code of the class `name`: itself, or this machine's best."""
    return name if name in RUNNABLE else RUNNABLE[-1]


def emulate(text: str, name: str) -> str:
    """The module text of class `name` for `runs_on(name)`."""
    return text if name in RUNNABLE else dot_emulation.emulate(amx_emulation.emulate(text))


EMULATED = tuple(
    name for name in ("x86-64-v3-vnni", "x86-64-v4-bf16", "aarch64-dot", "aarch64-bf16") if name not in RUNNABLE
)
"""Classes with dot products, one for each instruction, that are run here by emulation. AMX takes long without AVX-512
and has tests of its own."""
