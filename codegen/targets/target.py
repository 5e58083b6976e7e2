"""The shape of a target description: what tiling, the verifier and the roofline estimate need to know of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tensor_types.dtypes import DType


@dataclass(frozen=True)
class Memory:
    """An on-chip memory of one core: its size, and the alignment in bytes of buffers and of their rows."""

    bytes: int
    align: int = 32


@dataclass(frozen=True)
class Engine:
    """A compute engine of one core.

    `rates` maps dtype names to operations per cycle: multiply-adds for a cube, elements for a vector engine.
    `shape` is the smallest product (m, k, n) in f16 of a cube, empty for a vector engine.
    """

    rates: Mapping[str, int]
    shape: tuple[int, ...] = ()

    def rate(self, dtype: DType) -> int:
        """Operations per cycle; 0 where the engine has no such dtype."""
        return self.rates.get(dtype.name, 0)


@dataclass(frozen=True)
class Engines:
    """Instructions of a host class beyond plain vector arithmetic, each asked for by name where code or a packing
    depends on it. A chip has none of these: its cube and vector engine are the target's own."""

    fma: bool = False
    """Multiply and add in one instruction with one rounding."""
    masks: bool = False
    """Masked vector loads and stores cost what plain ones cost."""
    half_vectors: bool = False
    """Vectors of half the width take half the time (512 bits on units of 256)."""
    own_prefetch: bool = False
    """The core fetches a stream from memory ahead by itself, as fast as memory gives: instructions that do so take the
    places of its own requests (Zen 4, three rows of f32 from large pages: 20 in place of 29 GB/s)."""
    f16_conversion: bool = False
    """Conversion between f16 and f32 vectors."""
    dot_u8s8: bool = False
    """Four products of unsigned with signed bytes, added to a 32-bit lane (vpdpbusd, usdot)."""
    dot_same_sign: bool = False
    """Four products of bytes of one signedness, added to a 32-bit lane (sdot, udot)."""
    dot_bf16: bool = False
    """Two products of bf16 numbers, added to an f32 lane, at more than the rate of an FMA (vdpbf16ps, bfdot)."""
    tile_registers: bool = False
    """Products of tiles of bf16 numbers or bytes (AMX)."""


@dataclass(frozen=True, eq=False)
class Target:
    """A class of host machines or a chip. Bandwidths are bytes per cycle and core unless their name says otherwise.

    With `explicit_memory` data must be moved into tiles along `paths` (pairs of scopes, GM is global memory) and every
    tile must fit its memory; without it instructions may use global memory directly and the sizes in `memories` only
    bound scratch. A chip's `vector` engine works on `vector_scopes`.
    """

    name: str
    kind: str
    """'host' or 'chip'."""
    memories: Mapping[str, Memory]
    cube: Engine
    vector: Engine
    cube_cores: int
    vector_cores: int
    clock_mhz: int
    ddr_read: int
    """From memory, one core of all working: what an access that misses the last shared cache gets."""
    l2_read: int
    l2_write: int
    l2_bytes: int
    """The last cache before memory, shared by all cores of a chip; a host core's own."""
    explicit_memory: bool
    paths: frozenset[tuple[str, str]] = frozenset()
    path_rates: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Bytes per cycle of the on-chip paths whose rate is published."""
    vector_scopes: tuple[str, ...] = ("UB",)
    vector_bytes: int = 0
    """Width of one vector register, of a chip the bytes that the vector engine takes per cycle."""
    registers: int = 0
    engines: Engines = Engines()
    l1_bytes: int = 0
    """First-level data cache of a host core."""
    memory_bytes: int = 0
    """Device memory; 0 where it is not a fixed figure."""
    derived: frozenset[str] = frozenset()
    """Fields that no public file says, concluded from others."""

    def supports(self, dtype: DType) -> bool:
        """True if the vector engine computes in that dtype."""
        return self.vector.rate(dtype) > 0
