"""Ascend chips: targets made of the rows of the chip table."""

from __future__ import annotations

from codegen.targets.chip_table import ARCHITECTURES, CHIPS, Chip
from codegen.targets.target import Engine, Memory, Target

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30

# Compares and predicates live in bytes; integers of 8 bits pass through f16 on the chips, hence its rate.
_VECTOR_TYPES = {"f16": 2, "f32": 4, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i8": 2, "u8": 2, "bool": 2}


def chip_target(chip: Chip) -> Target:
    """The target of a row. Addresses and rows in on-chip memories are multiples of a 32 B block (PTO)."""
    arch = ARCHITECTURES[chip.arch]
    sizes = {"UB": arch.ub, "L1": arch.l1, "L0A": 64, "L0B": 64, "L0C": arch.l0c}
    bytes_of = {**_VECTOR_TYPES, **({"bf16": 2} if arch.bf16 else {})}
    return Target(
        name=chip.name,
        kind="chip",
        memories={scope: Memory(size * _KIB, 32) for scope, size in sizes.items()},
        cube=Engine(arch.cube, (16, 16, 16)),
        vector=Engine({name: arch.vector_bytes // size for name, size in bytes_of.items()}),
        cube_cores=chip.cubes,
        vector_cores=chip.vectors,
        clock_mhz=chip.mhz,
        ddr_read=chip.ddr,
        l2_read=chip.l2_read,
        l2_write=chip.l2_write,
        l2_bytes=chip.l2_mib * _MIB,
        explicit_memory=True,
        paths=arch.paths,
        path_rates=arch.path_rates,
        vector_bytes=arch.vector_bytes,
        memory_bytes=round(chip.memory_gb * _GIB),
        derived=frozenset(arch.derived),
    )


TARGETS = tuple(chip_target(chip) for chip in CHIPS)
