"""Host classes: x86-64 by micro-architecture level, with VNNI, with AMX, and 64-bit Arm with NEON.

Rates follow from the instruction set at two vector pipes: a pipe does one fused multiply-add (v2: half, multiply and
add are two instructions) per lane and cycle; AMX does 16x16x32 bf16 or 16x16x64 8-bit products in 16 cycles. Bandwidths
and caches are round figures of server cores; they order candidates and promise nothing.
"""

from __future__ import annotations

from codegen.targets.target import Engine, Memory, Target
from tensor_types.dtypes import DTYPES

_SCRATCH = Memory(16 << 20, 1)
_COMPUTED = ("float", "int", "uint", "bool")
_SCOPES = {scope: _SCRATCH for scope in ("UB", "L1", "L0A", "L0B", "L0C")}


def _host(
    name: str, vector_bytes: int, registers: int, fma: bool, masks: bool, cube: dict[str, int], l2_bytes: int
) -> Target:
    return Target(
        name=name,
        kind="host",
        memories=_SCOPES,
        cube=Engine(cube),
        vector=Engine({t.name: 2 * vector_bytes // t.bytes for t in DTYPES.values() if t.kind in _COMPUTED}),
        cube_cores=1,
        vector_cores=1,
        clock_mhz=2500,
        ddr_read=4,
        l2_read=32,
        l2_write=32,
        l2_bytes=l2_bytes,
        explicit_memory=False,
        vector_scopes=("UB", "L1", "L0A", "L0B", "L0C"),
        vector_bytes=vector_bytes,
        registers=registers,
        has_fma=fma,
        mask_registers=masks,
        l1_bytes=32 << 10,
    )  # fmt: skip


HOSTS = (
    _host("x86-64-v2", 16, 16, False, False, {"f32": 4, "f64": 2, "i8": 16, "u8": 16}, 256 << 10),
    _host("x86-64-v3", 32, 16, True, False, {"f32": 16, "f64": 8, "i8": 32, "u8": 32}, 512 << 10),
    _host("x86-64-v4", 64, 32, True, True, {"f32": 32, "f64": 16, "i8": 64, "u8": 64}, 1 << 20),
    _host("x86-64-v4-vnni", 64, 32, True, True, {"f32": 32, "f64": 16, "i8": 128, "u8": 128}, 1 << 20),
    _host("x86-64-amx", 64, 32, True, True, {"f32": 32, "f64": 16, "bf16": 512, "i8": 1024, "u8": 1024}, 2 << 20),
    _host("aarch64", 16, 32, True, False, {"f32": 8, "f64": 4, "i8": 16, "u8": 16}, 512 << 10),
)
