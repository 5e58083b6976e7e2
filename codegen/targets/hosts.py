"""Host classes: one row says everything that is known of a class of machines.

A row gives LLVM's names (architecture, cpu, features), the features by which a processor is known to belong to it, its
registers and caches, and its engines: instructions that the code generator or a kernel family asks for by name.
Rows of one architecture stand in the order of preference, the best one last.

Rates follow from the instruction set at two vector pipes: a pipe does one fused multiply-add (v2: half, multiply and
add are two instructions) per lane and cycle; a dot product counts each of its multiply-adds. AMX does 16x16x32 bf16 or
16x16x64 8-bit products in 16 cycles. Bandwidths and caches are round figures; they order candidates and promise
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.targets.target import Engine, Engines, Memory, Target
from tensor_types.dtypes import DTYPES

_SCRATCH = Memory(16 << 20, 1)
_COMPUTED = ("float", "int", "uint", "bool")
_SCOPES = ("UB", "L1", "L0A", "L0B", "L0C")

_V2 = frozenset(("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16"))
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_VNNI = _V4 | {"avx512vnni"}
_NEON = frozenset(("neon",))
_DOT = _NEON | {"dotprod"}
_MMLA = _DOT | {"bf16", "i8mm"}


@dataclass(frozen=True, eq=False)
class HostClass(Target):
    """A class of host machines. Code for it uses only its features, so an object runs on every machine of the class."""

    architecture: str = ""
    """The first part of the LLVM triple; the operating system is added when compiling."""
    cpu: str = ""
    features: str = ""
    needs: frozenset[str] = frozenset()
    """What a processor must have to belong to it: LLVM's names of features, and what `detect` adds to them."""


def _row(
    name: str, architecture: str, cpu: str, features: str, needs: frozenset[str], vector_bytes: int, registers: int,
    engines: Engines, l2_bytes: int, l1_bytes: int = 32 << 10, ddr_read: int = 4,
) -> HostClass:  # fmt: skip
    return HostClass(
        name=name,
        kind="host",
        memories={scope: _SCRATCH for scope in _SCOPES},
        cube=Engine(_cube_rates(vector_bytes, engines)),
        vector=Engine({t.name: 2 * vector_bytes // t.bytes for t in DTYPES.values() if t.kind in _COMPUTED}),
        cube_cores=1,
        vector_cores=1,
        clock_mhz=2500,
        ddr_read=ddr_read,
        l2_read=32,
        l2_write=32,
        l2_bytes=l2_bytes,
        explicit_memory=False,
        vector_scopes=_SCOPES,
        vector_bytes=vector_bytes,
        registers=registers,
        engines=engines,
        l1_bytes=l1_bytes,
        architecture=architecture,
        cpu=cpu,
        features=features,
        needs=needs,
    )


def _cube_rates(vector_bytes: int, engines: Engines) -> dict[str, int]:
    f32 = vector_bytes // 2 if engines.fma else vector_bytes // 4
    dot_bytes = engines.dot_u8s8 or engines.dot_same_sign
    rates = {"f32": f32, "f64": f32 // 2, "i8": 2 * vector_bytes if dot_bytes else vector_bytes}
    if engines.dot_bf16:
        rates["bf16"] = 2 * f32
    if engines.tile_registers:
        rates |= {"bf16": 512, "i8": 1024}
    return rates | {"u8": rates["i8"]}


_AVX2 = Engines(fma=True, f16_conversion=True)
_AVX512 = Engines(fma=True, masks=True, f16_conversion=True)
_AVX512_VNNI = Engines(fma=True, masks=True, f16_conversion=True, dot_u8s8=True)
_ARM_DOT = Engines(fma=True, f16_conversion=True, dot_same_sign=True)
_ARM_MMLA = Engines(fma=True, f16_conversion=True, dot_same_sign=True, dot_u8s8=True, dot_bf16=True)

# fmt: off
HOSTS = (
    _row("x86-64-v2", "x86_64", "x86-64-v2", "", _V2, 16, 16, Engines(), 256 << 10),
    _row("x86-64-v3", "x86_64", "x86-64-v3", "", _V3, 32, 16, _AVX2, 512 << 10),
    _row("x86-64-v3-vnni", "x86_64", "x86-64-v3", "+avxvnni", _V3 | {"avxvnni"}, 32, 16,
         Engines(fma=True, f16_conversion=True, dot_u8s8=True), 1 << 20),
    _row("x86-64-v4", "x86_64", "x86-64-v4", "", _V4, 64, 32, _AVX512, 1 << 20),
    _row("x86-64-v4-vnni", "x86_64", "x86-64-v4", "+avx512vnni", _VNNI, 64, 32, _AVX512_VNNI, 1 << 20),
    # VDPBF16PS does twice the work of an FMA on Zen; on Intel it takes four times as long and gains nothing. Zen 4
    # computes vectors of 512 bits as two halves; Zen 5 does not, and takes as long for a half one as for a whole one.
    _row("x86-64-v4-bf16", "x86_64", "x86-64-v4", "+avx512vnni,+avx512bf16", _VNNI | {"avx512bf16", "zen"}, 64, 32,
         Engines(fma=True, masks=True, half_vectors=True, own_prefetch=True, f16_conversion=True, dot_u8s8=True,
                 dot_bf16=True), 1 << 20, ddr_read=8),
    _row("x86-64-amx", "x86_64", "x86-64-v4", "+avx512vnni,+avx512bf16,+amx-tile,+amx-int8,+amx-bf16",
         _VNNI | {"avx512bf16", "amx-tile", "amx-int8", "amx-bf16"}, 64, 32,
         Engines(fma=True, masks=True, f16_conversion=True, dot_u8s8=True, tile_registers=True), 2 << 20),
    _row("aarch64", "aarch64", "generic", "+neon", _NEON, 16, 32, Engines(fma=True, f16_conversion=True), 512 << 10),
    _row("aarch64-dot", "aarch64", "generic", "+neon,+dotprod", _DOT, 16, 32, _ARM_DOT, 512 << 10),
    _row("aarch64-bf16", "aarch64", "generic", "+neon,+dotprod,+bf16,+i8mm", _MMLA, 16, 32, _ARM_MMLA, 1 << 20),
    _row("aarch64-apple", "aarch64", "apple-m1", "", _DOT | {"apple"}, 16, 32, _ARM_DOT, 3 << 20, 128 << 10),
    _row("aarch64-apple-bf16", "aarch64", "apple-m1", "+bf16,+i8mm", _MMLA | {"apple"}, 16, 32, _ARM_MMLA, 4 << 20,
         128 << 10),
)
# fmt: on

HOST_CLASSES: dict[str, HostClass] = {row.name: row for row in HOSTS}


def host_class(target: object) -> HostClass:
    """The host class of a name, or a host class itself; KeyError names the known ones."""
    if isinstance(target, HostClass):
        return target
    name = getattr(target, "name", target)
    if name not in HOST_CLASSES:
        raise KeyError(f"no host class {name!r}; known: {', '.join(HOST_CLASSES)}")
    return HOST_CLASSES[name]
