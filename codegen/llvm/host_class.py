"""Host classes as the code generator sees them: what their `Target` says, and LLVM's names for them.

Code for a class uses only the features of that class, so an object runs on every machine of the class.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.targets.hosts import HOSTS


@dataclass(frozen=True)
class HostClass:
    """What instruction selection and vector code need to know of a class of machines."""

    name: str
    triple: str
    """The architecture, first part of the LLVM triple; the operating system is added when compiling."""
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    has_fma: bool
    mask_registers: bool
    """Masked vector loads and stores cost what plain ones cost."""
    has_f16: bool
    """Native conversion between f16 and f32 vectors."""


_LLVM = {
    "x86-64-v2": ("x86_64", "x86-64-v2", "", False),
    "x86-64-v3": ("x86_64", "x86-64-v3", "", True),
    "x86-64-v4": ("x86_64", "x86-64-v4", "", True),
    "x86-64-v4-vnni": ("x86_64", "x86-64-v4", "+avx512vnni", True),
    "x86-64-amx": ("x86_64", "x86-64-v4", "+avx512vnni,+avx512bf16,+amx-tile,+amx-int8,+amx-bf16", True),
    "aarch64": ("aarch64", "generic", "+neon", True),
}
"""Architecture, cpu and features as LLVM names them, and native f16 conversion."""


def _class(name: str) -> HostClass:
    architecture, cpu, features, f16 = _LLVM[name]
    host = next(h for h in HOSTS if h.name == name)
    return HostClass(
        name, architecture, cpu, features, host.vector_bytes, host.registers, host.has_fma, host.mask_registers, f16
    )


HOST_CLASSES: dict[str, HostClass] = {name: _class(name) for name in _LLVM}


def host_class(target: object) -> HostClass:
    """The host class of a `Target` (by its name) or of a name; KeyError names the known ones."""
    if isinstance(target, HostClass):
        return target
    name = target if isinstance(target, str) else getattr(target, "name", None)
    if name not in HOST_CLASSES:
        raise KeyError(f"no host class {name!r}; known: {', '.join(HOST_CLASSES)}")
    return HOST_CLASSES[name]
