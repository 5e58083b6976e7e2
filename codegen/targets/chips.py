"""Ascend chips, as CANN's platform configuration files (platform_config/<name>.ini) and PTO's headers describe them."""

from __future__ import annotations

from codegen.targets.target import Engine, Memory, Target

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


def _memories(ub: int, l1: int, l0c: int) -> dict[str, Memory]:
    """Sizes in KiB. L0A and L0B have 64 KiB on both; addresses and rows are multiples of a 32 B block (PTO)."""
    sizes = {"UB": ub, "L1": l1, "L0A": 64, "L0B": 64, "L0C": l0c}
    return {scope: Memory(size * _KIB, 32) for scope, size in sizes.items()}


def _vector(block: int, *dtypes: tuple[str, int]) -> Engine:
    return Engine({name: block // size for name, size in dtypes})


# Compares and predicates live in bytes; integers of 8 bits pass through f16 on the chips, hence its rate.
_VECTOR_TYPES = (("f16", 2), ("f32", 4), ("i16", 2), ("u16", 2), ("i32", 4), ("u32", 4), ("i8", 2), ("u8", 2),
                 ("bool", 2))  # fmt: skip

ASCEND910B2 = Target(
    name="Ascend910B2",
    kind="chip",
    memories=_memories(ub=192, l1=512, l0c=128),  # Ascend910B2.ini
    # 16x16x16 f16 products per cycle, k doubled for 8 bits (ini); f32 takes two cycles for k = 8 (PTO cost model).
    cube=Engine({"f16": 4096, "bf16": 4096, "i8": 8192, "f32": 1024}, (16, 16, 16)),
    vector=_vector(128, *_VECTOR_TYPES, ("bf16", 2)),
    cube_cores=24,
    vector_cores=48,
    clock_mhz=1800,
    ddr_read=32,
    l2_read=110,
    l2_write=86,
    l2_bytes=192 * _MIB,
    explicit_memory=True,
    # NpuArch 2201: cube and vector are separate cores that meet in global memory only; the fixpipe writes L0C out.
    paths=frozenset(
        {("GM", "UB"), ("UB", "GM"), ("UB", "UB"), ("GM", "L1"), ("L1", "L0A"), ("L1", "L0B"), ("L0C", "GM"),
         ("L0C", "L1")}
    ),
    path_rates={("L1", "L0A"): 512, ("L1", "L0B"): 256, ("UB", "GM"): 64},
    vector_bytes=128,
    memory_bytes=64 * _GIB,
)  # fmt: skip

ASCEND310P3 = Target(
    name="Ascend310P3",
    kind="chip",
    memories=_memories(ub=256, l1=1024, l0c=256),  # Ascend310P3.ini
    # 4096 multiply-adds in f16 and 8192 in 8 bits per cycle (operator library's tiling header); no f32, no bf16.
    cube=Engine({"f16": 4096, "i8": 8192}, (16, 16, 16)),
    vector=_vector(128, *_VECTOR_TYPES),
    cube_cores=8,
    # Seven more cores have only a vector engine; the eight others combine both.
    vector_cores=15,
    clock_mhz=1060,
    ddr_read=17,
    l2_read=114,
    l2_write=114,
    l2_bytes=16 * _MIB,
    explicit_memory=True,
    # NpuArch 2002 combines cube and vector in one core and has no fixpipe (its key is absent from the file), so what
    # the cube makes leaves L0C through UB.
    paths=frozenset(
        {("GM", "UB"), ("UB", "GM"), ("UB", "UB"), ("GM", "L1"), ("L1", "L0A"), ("L1", "L0B"), ("L1", "UB"),
         ("UB", "L1"), ("L0C", "UB"), ("UB", "L0C")}
    ),
    vector_bytes=128,
    memory_bytes=24 * 10**9,
)  # fmt: skip

CHIPS = (ASCEND910B2, ASCEND310P3)
