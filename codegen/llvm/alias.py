"""Loads that need no copy: a tile whose source already holds what is wanted becomes a name for its source.

A move into a tile is dropped, and later reads of the tile are redirected to its source, if
1. it copies without converting and without padding, and its axes are axes of the tile;
2. it is the only instruction that writes the tile, and every read stands behind it in the same block or deeper;
3. nothing writes the source between the move and the last read (a loop around a read counts as a whole);
4. every read is proven to lie in the part of the tile that the move fills: beyond it the source may have no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from codegen.llvm.vector_ops import MOVES
from codegen.llvm.windows import compose
from codegen.tile.instructions import INSTRUCTIONS
from codegen.tile.ir import For, If, Instr, Program, ReadDim, Stmt, View, linear_index
from codegen.tile.scopes import Ranges, ranges_at, with_axes
from tensor_types.proofs import prove_le

Path = tuple[tuple[int, int], ...]
"""Where a statement stands: (block number, index in it), outermost first; paths compare in program order."""


@dataclass(frozen=True)
class _Use:
    path: Path
    stmt: Instr | ReadDim
    ranges: Ranges


def accumulates(instr: Instr) -> bool:
    """True if the destination's old content goes into the result."""
    return instr.op in ("TMATMUL_ACC", "TSCATTER") or bool(instr.attr("acc"))


def reads_of(stmt: Instr | ReadDim) -> list[View]:
    """Every view that a statement reads, a destination that it accumulates into included."""
    if isinstance(stmt, ReadDim):
        return [stmt.source]
    views = [s for s in stmt.srcs if isinstance(s, View)]
    return [*views, stmt.dst] if accumulates(stmt) else views


def _uses(
    body: tuple[Stmt, ...], ranges: Mapping[int, Ranges], prefix: Path = (), branch: int = 0
) -> Iterator[_Use]:
    for number, stmt in enumerate(body):
        path = (*prefix, (branch, number))
        if isinstance(stmt, For):
            yield from _uses(stmt.body, ranges, path)
        elif isinstance(stmt, If):
            yield from _uses(stmt.then, ranges, path, 0)
            yield from _uses(stmt.orelse, ranges, path, 1)
        else:
            yield _Use(path, stmt, ranges[id(stmt)])


def _inside(path: Path, block: Path) -> bool:
    """True if a statement stands behind the statement at `block` in its block, or inside such a statement."""
    depth = len(block) - 1
    return (
        len(path) > depth
        and path[:depth] == block[:depth]
        and path[depth][0] == block[depth][0]
        and path[depth][1] > block[depth][1]
    )


def _aliases(program: Program) -> dict[int, Instr]:
    """The moves that can be dropped, by the identity of the statement."""
    uses = list(_uses(program.body, {id(stmt): ranges for stmt, ranges in ranges_at(program)}))
    roles = {p.name: p.role for p in program.params}
    dtypes = {p.name: p.dtype for p in program.params} | {t.name: t.dtype for t in program.tiles}
    tiles = {t.name for t in program.tiles}
    reads: dict[str, list[Path]] = {}
    writes: dict[str, list[Path]] = {}
    views: dict[str, list[tuple[View, Ranges]]] = {}
    for use in uses:
        for view in reads_of(use.stmt):
            reads.setdefault(view.base, []).append(use.path)
            views.setdefault(view.base, []).append((view, use.ranges))
        if isinstance(use.stmt, Instr) and INSTRUCTIONS[use.stmt.op].kind not in ("sync", "hint"):
            writes.setdefault(use.stmt.dst.base, []).append(use.path)
    found = {}
    for use in uses:
        instr = use.stmt
        if not isinstance(instr, Instr) or instr.op not in MOVES or instr.dst.base not in tiles:
            continue
        source, tile = instr.srcs[0], instr.dst.base
        if not isinstance(source, View) or instr.attr("pad") is not None or dtypes[source.base] != dtypes[tile]:
            continue
        mine = reads.get(tile, [])
        if source.base == tile or len(writes[tile]) != 1 or not all(_inside(p, use.path) for p in mine):
            continue
        if roles.get(source.base) != "in" and mine:
            depth = len(use.path) - 1
            last = max(p[depth][1] for p in mine)
            between = [p for p in writes.get(source.base, []) if _inside(p, use.path) and p[depth][1] <= last]
            # A write in the statement of the last read itself is behind it only if both are that plain statement.
            if any(p[depth][1] < last or len(p) > depth + 1 for p in between) or _written_in_place(between, mine):
                continue
        windows = views.get(tile, [])
        if all(compose(v, instr.dst, source) is not None and _filled(v, instr.dst, r) for v, r in windows):
            found[id(instr)] = instr
    return found


def _filled(view: View, through: View, ranges: Ranges) -> bool:
    """True if every element of `view` is proven to lie in the window `through`, which moves each axis by itself."""
    inside = with_axes(ranges, view)
    for index, wanted in zip(through.index, view.index, strict=True):
        start, steps = linear_index(index, len(through.shape))
        moving = [k for k, step in enumerate(steps) if step != 0]
        extent = through.shape[moving[0]] if moving else 1
        if not (prove_le(start, wanted, inside) and prove_le(wanted, start + extent - 1, inside)):
            return False
    return True


def _written_in_place(writes: list[Path], reads: list[Path]) -> bool:
    """True if one instruction reads the tile and writes its source: only equal windows would be safe."""
    return any(w in reads for w in writes)


def resolve_aliases(program: Program) -> Program:
    """The program without moves that copy nothing new."""
    while True:
        dropped = _aliases(program)
        if not dropped:
            return program
        # One at a time for each source chain: a move whose source is itself dropped waits for the next round.
        names = {i.dst.base for i in dropped.values()}
        dropped = {k: i for k, i in dropped.items() if isinstance(i.srcs[0], View) and i.srcs[0].base not in names}
        by_tile = {i.dst.base: i for i in dropped.values()}
        program = replace(program, body=_rewrite(program.body, dropped, by_tile))


def _rewrite(body: tuple[Stmt, ...], dropped: dict[int, Instr], by_tile: dict[str, Instr]) -> tuple[Stmt, ...]:
    def view(v: View) -> View:
        move = by_tile.get(v.base)
        if move is None:
            return v
        source = move.srcs[0]
        assert isinstance(source, View)
        redirected = compose(v, move.dst, source)
        assert redirected is not None
        return redirected

    result: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For):
            result.append(replace(stmt, body=_rewrite(stmt.body, dropped, by_tile)))
        elif isinstance(stmt, If):
            then, orelse = (_rewrite(b, dropped, by_tile) for b in (stmt.then, stmt.orelse))
            result.append(replace(stmt, then=then, orelse=orelse))
        elif isinstance(stmt, ReadDim):
            result.append(replace(stmt, source=view(stmt.source)))
        elif id(stmt) not in dropped:
            result.append(replace(stmt, srcs=tuple(view(s) if isinstance(s, View) else s for s in stmt.srcs)))
    return tuple(result)
