"""Host classes as the code generator sees them: LLVM cpu and triple, vector width, registers, masks, FMA.

Code for a class uses only the features of that class, so an object runs on every machine of the class.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HostClass:
    """What instruction selection and vector code need to know of a class of machines."""

    name: str
    triple: str
    """Architecture part of the LLVM triple; the operating system is added by `llvm_triple`."""
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    has_fma: bool
    mask_registers: bool
    """Masked vector loads and stores cost what plain ones cost."""
    has_f16: bool
    """Native conversion between f16 and f32 vectors."""


HOST_CLASSES: dict[str, HostClass] = {
    h.name: h
    for h in (
        HostClass("x86-64-v2", "x86_64", "x86-64-v2", "", 16, 16, False, False, False),
        HostClass("x86-64-v3", "x86_64", "x86-64-v3", "", 32, 16, True, False, True),
        HostClass("x86-64-v4", "x86_64", "x86-64-v4", "", 64, 32, True, True, True),
        HostClass(
            "x86-64-amx", "x86_64", "x86-64-v4", "+avx512vnni,+avx512bf16,+amx-tile,+amx-int8,+amx-bf16",
            64, 32, True, True, True,
        ),
        HostClass("aarch64", "aarch64", "generic", "+neon", 16, 32, True, False, True),
    )
}  # fmt: skip


def host_class(target: object) -> HostClass:
    """The host class of a `Target` (by its name) or of a name; KeyError names the known ones."""
    name = target if isinstance(target, str) else getattr(target, "name", None)
    if isinstance(target, HostClass):
        return target
    if name not in HOST_CLASSES:
        raise KeyError(f"no host class {name!r}; known: {', '.join(HOST_CLASSES)}")
    return HOST_CLASSES[name]
