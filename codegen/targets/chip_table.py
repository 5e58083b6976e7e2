"""One row for every Ascend chip: a new chip is a row here, and nothing else.

Figures are those of CANN's platform configuration (platform_config/<name>.ini), one file a chip. `ARCHITECTURES` holds
what chips of one NpuArch have in common; `derived` names what no public file says and was concluded instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_COMBINED = frozenset(
    {("GM", "UB"), ("UB", "GM"), ("UB", "UB"), ("GM", "L1"), ("L1", "L0A"), ("L1", "L0B"), ("L1", "UB"), ("UB", "L1"),
     ("L0C", "UB"), ("UB", "L0C")}
)  # fmt: skip
"""Cube and vector are one core without a fixpipe: what the cube makes leaves L0C through UB."""

_SPLIT = frozenset(
    {("GM", "UB"), ("UB", "GM"), ("UB", "UB"), ("GM", "L1"), ("L1", "L0A"), ("L1", "L0B"), ("L0C", "GM"), ("L0C", "L1")}
)
"""Cube and vector are separate cores that meet in global memory only; the fixpipe writes L0C out."""

_F16, _BF16, _F32 = {"f16": 4096, "i8": 8192}, {"bf16": 4096}, {"f32": 1024}
"""Multiply-adds a cycle: 16x16x16 in f16, k doubled for 8 bits; f32 takes two cycles for k = 8 (PTO's cost model)."""


@dataclass(frozen=True)
class Architecture:
    """What chips of one NpuArch share. Sizes are KiB; L0A and L0B have 64 on all of them."""

    ub: int
    l1: int
    l0c: int
    cube: dict[str, int]
    paths: frozenset[tuple[str, str]]
    path_rates: dict[tuple[str, str], int]
    """Bytes a cycle of the on-chip paths whose rate is published."""
    vector_bytes: int = 128
    """What the vector engine takes per cycle."""
    bf16: bool = False
    derived: tuple[str, ...] = ()


ARCHITECTURES = {
    "mini": Architecture(248, 1024, 256, _F16, _COMBINED, {}, derived=("cube", "vector", "paths", "l2_write")),
    "1001": Architecture(256, 1024, 256, _F16, _COMBINED, {}, derived=("cube", "vector", "paths", "l2_write")),
    "2002": Architecture(256, 1024, 256, _F16, _COMBINED, {}, derived=("vector", "l2_write")),
    "2201": Architecture(
        192, 512, 128, {**_F16, **_BF16, **_F32}, _SPLIT, {("L1", "L0A"): 512, ("L1", "L0B"): 256, ("UB", "GM"): 64},
        bf16=True, derived=("vector",),
    ),
    "3002": Architecture(248, 1024, 128, _F16, _SPLIT, {}, derived=("cube", "vector", "paths", "l2_write")),
    "3510": Architecture(
        248, 512, 256, {**_F16, **_BF16, **_F32}, _SPLIT, {}, vector_bytes=256, bf16=True,
        derived=("cube", "vector", "paths", "l2_write"),
    ),
}  # fmt: skip


class Chip(NamedTuple):
    """A row. Vector cores count those within combined cores as well; `memory_gb` 0: no public figure."""

    name: str
    arch: str
    cubes: int
    vectors: int
    mhz: int
    l2_mib: int
    memory_gb: float
    """GiB of device memory."""
    ddr: int
    """Bytes a cycle and core, as the two below."""
    l2_read: int
    l2_write: int


_GB = 10**9 / 2**30

CHIPS = (
    Chip("Ascend310", "mini", 2, 2, 680, 8, 0, 67, 128, 128),
    Chip("Ascend310B1", "3002", 1, 1, 1224, 4, 32, 17, 256, 256),
    Chip("Ascend310B2", "3002", 1, 1, 1224, 4, 32, 17, 256, 256),
    Chip("Ascend310B3", "3002", 1, 1, 1224, 4, 32, 17, 256, 256),
    Chip("Ascend310B4", "3002", 1, 1, 500, 4, 0, 8, 256, 256),
    # Of the 310P some cores combine both engines and some have only a vector engine: 10 + 8, 8 + 7.
    Chip("Ascend310P1", "2002", 10, 18, 1060, 16, 24 * _GB, 17, 114, 114),
    Chip("Ascend310P3", "2002", 8, 15, 1060, 16, 24 * _GB, 17, 114, 114),
    Chip("Ascend310P5", "2002", 8, 15, 800, 16, 24 * _GB, 17, 114, 114),
    Chip("Ascend310P7", "2002", 8, 15, 550, 16, 24 * _GB, 17, 114, 114),
    Chip("Ascend910A", "1001", 32, 32, 1000, 32, 0, 32, 110, 110),
    Chip("Ascend910ProA", "1001", 32, 32, 1100, 32, 0, 32, 110, 110),
    Chip("Ascend910PremiumA", "1001", 32, 32, 1220, 32, 0, 32, 110, 110),
    Chip("Ascend910B", "1001", 30, 30, 900, 32, 0, 32, 110, 110),
    Chip("Ascend910ProB", "1001", 30, 30, 1150, 32, 0, 32, 110, 110),
    Chip("Ascend910B1", "2201", 24, 48, 1850, 192, 64, 32, 110, 86),
    Chip("Ascend910B2", "2201", 24, 48, 1800, 192, 64, 32, 110, 86),
    Chip("Ascend910B2C", "2201", 24, 48, 1800, 192, 0, 32, 110, 86),
    Chip("Ascend910B3", "2201", 20, 40, 1800, 192, 64, 32, 110, 86),
    Chip("Ascend910B4", "2201", 20, 40, 1500, 96, 32, 32, 110, 86),
    Chip("Ascend910B4-1", "2201", 20, 40, 1500, 168, 32, 32, 110, 86),
    Chip("Ascend910_9391", "2201", 24, 48, 1850, 192, 64, 32, 110, 86),
    Chip("Ascend910_9392", "2201", 24, 48, 1850, 192, 64, 32, 110, 86),
    Chip("Ascend910_9381", "2201", 24, 48, 1800, 192, 64, 32, 110, 86),
    Chip("Ascend910_9382", "2201", 24, 48, 1800, 192, 64, 32, 110, 86),
    Chip("Ascend910_9372", "2201", 20, 40, 1800, 192, 64, 32, 110, 86),
    Chip("Ascend910_9362", "2201", 20, 40, 1500, 168, 64, 32, 110, 86),
    Chip("Ascend910_9363", "2201", 20, 40, 1500, 168, 32, 32, 110, 86),
    Chip("Ascend950PR_9599", "3510", 36, 72, 1800, 128, 128, 31, 100, 100),
    Chip("Ascend950PR_9589", "3510", 32, 64, 1650, 128, 128, 31, 100, 100),
    Chip("Ascend950PR_9579", "3510", 28, 56, 1650, 128, 128, 31, 100, 100),
    Chip("Ascend950DT_9591", "3510", 36, 72, 1800, 128, 144, 80, 100, 100),
    Chip("Ascend950DT_9592", "3510", 36, 72, 1800, 128, 96, 80, 100, 100),
    Chip("Ascend950DT_9581", "3510", 32, 64, 1650, 128, 144, 80, 100, 100),
    Chip("Ascend950DT_9571", "3510", 28, 56, 1650, 128, 144, 80, 100, 100),
    Chip("Ascend350_354f", "3510", 14, 28, 1650, 56, 56, 27, 100, 100),
    Chip("Ascend350_355e", "3510", 16, 32, 1650, 64, 64, 31, 100, 100),
)

_OLD, _UNPUBLISHED = "the name of the 310P family before it was called so", "its own figures are not public"

STAND_INS: dict[str, tuple[str, str]] = {
    "Ascend710": ("Ascend310P3", _OLD),
    "Ascend710Pro": ("Ascend310P1", _OLD),
    "Ascend610": ("Ascend310P1", f"{_UNPUBLISHED}, the generation is that of the 310P"),
    "Ascend610Lite": ("Ascend310B1", f"{_UNPUBLISHED}, the generation is that of the 310B"),
    **{f"Ascend950PR_957{x}": ("Ascend950PR_9579", _UNPUBLISHED) for x in ("b", "bx", "c", "d")},
    **{f"Ascend950PR_{x}": ("Ascend950PR_9589", _UNPUBLISHED) for x in ("958b", "950z")},
    **{f"Ascend950DT_957{x}": ("Ascend950DT_9571", _UNPUBLISHED) for x in "2345678"},
    **{f"Ascend950DT_958{x}": ("Ascend950DT_9581", _UNPUBLISHED) for x in ("1x", *"2345678")},
    **{f"Ascend950DT_95{x}": ("Ascend950DT_9591", _UNPUBLISHED) for x in ("95", "96", "A1", "A2", "0x", "0y")},
}
"""Names of chips by the chip whose figures stand for theirs, and why."""

NANO = ("Ascend031", "Ascend035", "Ascend035A", "Ascend035B")
"""Chips without cores of this kind: ATC makes other files for them (--mode=30)."""

OFTEN_MEANT = {
    "Ascend310": "the chip of two cores of that name, not one of the families 310B and 310P",
    "Ascend910B": "the older chip of that name, not one of the family 910B1 to 910B4",
}
"""Chips whose name is taken for that of a family, with what they are."""
