"""Which tiles need memory, and which of those only a row of it.

A value that is written and read at the same loop indices, inside one phase or over outer indices of one nest, passes in
registers. A tile whose every read is of that kind has no memory at all. A tile that lives inside one loop nest keeps
memory for one block of the outer loops only.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from codegen.llvm.loop_nests import LoopNest, Unit
from codegen.llvm.windows import Window
from codegen.tile.ir import Instr, View


def forget_overwritten(known: Iterable[Window], written: Window) -> list[Window]:
    """Those of the known windows that writing another window of their base may have changed."""
    return [k for k in known if k.base == written.base and k != written and not _apart(k, written)]


def _apart(first: Window, second: Window) -> bool:
    """True if two windows over the same loop classes differ in a constant index."""
    for (a, steps_a), (b, steps_b) in zip(first.axes, second.axes, strict=True):
        if not steps_a and not steps_b and isinstance(a, int) and isinstance(b, int) and a != b:
            return True
    return False


def memory_reads(nest: LoopNest) -> list[Window]:
    """Windows that the loop nest reads from memory rather than from its own registers."""
    outer = frozenset(nest.outer)
    known: set[Window] = set()
    found: list[Window] = []
    if nest.head is not None:
        if nest.head.step.reads_dst:
            found.append(nest.head.dst)
        known.add(nest.head.dst)
    for phase in nest.phases:
        inside: set[Window] = set()
        for member in phase.members:
            for key in member.reads():
                if key not in known and key not in inside:
                    found.append(key)
            if member.step.kind != "reduce":
                inside.add(member.dst)
        for member in phase.members:
            known.difference_update(forget_overwritten(known, member.dst))
            if member.dst.loops() <= outer:
                known.add(member.dst)
    return found


@dataclass(frozen=True)
class Layout:
    """Memory of a tile inside one loop nest: per base axis the outer class it follows (None: kept whole)."""

    follows: tuple[int | None, ...]


def tiles_in_memory(units: Iterable[Unit], other_reads: Iterable[View]) -> set[str]:
    """Bases that are read from memory somewhere."""
    bases = {v.base for v in other_reads}
    for unit in units:
        if isinstance(unit, Instr):
            bases.update(s.base for s in unit.srcs if isinstance(s, View))
            bases.add(unit.dst.base)
            continue
        bases.update(w.base for w in memory_reads(unit))
        if unit.head is not None:
            bases.update(s.base for s in unit.head.step.instr.srcs if isinstance(s, View))
    return bases


def row_layouts(units: list[Unit], other_reads: Iterable[View], repeated: Container[int]) -> dict[str, Layout]:
    """Tiles that are accessed by one loop nest only, written there before they are read, and follow its outer loops.

    `repeated` are the numbers of units inside loops: there an element that the loop nest reads and did not write before
    comes from an earlier iteration, so only windows that it wrote may be read.
    """
    users: dict[str, set[int]] = {v.base: {-1, -2} for v in other_reads}
    for number, unit in enumerate(units):
        if isinstance(unit, Instr):
            views = [unit.dst, *(s for s in unit.srcs if isinstance(s, View))]
            for view in views:
                users.setdefault(view.base, set()).update((number, -1))
            continue
        for member in unit.members():
            for key in [*member.reads(), member.dst]:
                users.setdefault(key.base, set()).add(number)
        if unit.head is not None:
            instr = unit.head.step.instr
            for base in [instr.dst.base, *(s.base for s in instr.srcs if isinstance(s, View))]:
                users.setdefault(base, set()).update((number, -1))
    result = {}
    for base, numbers in users.items():
        if len(numbers) != 1:
            continue
        (number,) = numbers
        nest = units[number]
        assert isinstance(nest, LoopNest)
        layout = _row_layout(nest, base, number in repeated)
        if layout is not None:
            result[base] = layout
    return result


def _row_layout(nest: LoopNest, base: str, repeated: bool) -> Layout | None:
    outer = set(nest.outer)
    follows: tuple[int | None, ...] | None = None
    written: set[Window] = set()
    for member in nest.members():
        for key in [*(w for w in member.reads()), member.dst]:
            if key.base != base:
                continue
            if not written and (key is not member.dst or member.step.reads_dst):
                return None
            if repeated and key is not member.dst and key not in written:
                return None
            mine: list[int | None] = []
            for _, steps in key.axes:
                loops = [k for k, _ in steps if k in outer]
                if loops and (len(steps) != 1 or steps[0][1] != 1):
                    return None
                mine.append(loops[0] if loops else None)
            if follows is not None and tuple(mine) != follows:
                return None
            follows = tuple(mine)
        if member.dst.base == base:
            written.add(member.dst)
    return Layout(follows) if follows is not None and any(f is not None for f in follows) else None
