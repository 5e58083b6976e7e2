"""Rules of a target: capacity of its memories, and on chips alignment, legal memory paths and dtypes of engines."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from codegen.targets.target import Memory, Target
from codegen.tile.instructions import INSTRUCTIONS
from codegen.tile.ir import Instr, Param, Tile, View


def check_tiles(tiles: tuple[Tile, ...], target: Target) -> tuple[str, str] | None:
    """(declaration, reason) of the first tile or scope that the target cannot hold, or None."""
    used: dict[str, int] = {}
    for tile in tiles:
        memory = target.memories.get(tile.scope)
        if memory is None:
            return tile.name, f"{target.name} has no {tile.scope}"
        row = (tile.shape[-1] if tile.shape else 1) * tile.dtype.bytes
        if target.explicit_memory and row % memory.align:
            return tile.name, f"rows of {row} B are not a multiple of {memory.align} B"
        used[tile.scope] = used.get(tile.scope, 0) + _tile_bytes(tile, memory)
        if used[tile.scope] > memory.bytes:
            return tile.name, f"{used[tile.scope]} B in {tile.scope}, {target.name} has {memory.bytes} B"
    return None


def scope_bytes(tiles: tuple[Tile, ...], target: Target) -> dict[str, int]:
    """Bytes of each memory of the target that the tiles take, those of unused memories left out."""
    used: dict[str, int] = {}
    for tile in tiles:
        used[tile.scope] = used.get(tile.scope, 0) + _tile_bytes(tile, target.memories[tile.scope])
    return used


def _tile_bytes(tile: Tile, memory: Memory) -> int:
    return -(-prod(tile.shape) * tile.dtype.bytes // memory.align) * memory.align * tile.depth


def check_instruction(instr: Instr, bases: Mapping[str, Param | Tile], target: Target) -> str | None:
    """Why a chip cannot execute the instruction, or None. Host classes can execute every one."""
    if not target.explicit_memory:
        return None

    def scope(view: View) -> str:
        base = bases[view.base]
        return base.scope if isinstance(base, Tile) else "GM"

    kind = INSTRUCTIONS[instr.op].kind
    views = [s for s in instr.srcs if isinstance(s, View)]
    if kind == "sync":
        return None
    if kind == "hint":
        return None if scope(instr.dst) == "GM" else "what is read soon is fetched from global memory"
    if kind == "move" and views:
        path = scope(views[0]), scope(instr.dst)
        if path not in target.paths:
            return f"{target.name} has no path {path[0]} -> {path[1]}"
        converts = bases[views[0].base].dtype != bases[instr.dst.base].dtype
        if converts and path[0] != "L0C":
            return "only moves out of L0C convert dtype"
        ends = {"TLOAD": path[0] == "GM", "TSTORE": path[1] == "GM", "TMOV": "GM" not in path,
                "TEXTRACT": path in (("L1", "L0A"), ("L1", "L0B")), "TTRANS": "GM" not in path}  # fmt: skip
        return None if ends[instr.op] else f"{instr.op} does not move {path[0]} -> {path[1]}"
    if kind == "matmul":
        places = tuple(scope(v) for v in (*views, instr.dst))
        if places != ("L0A", "L0B", "L0C"):
            return f"operands lie in {', '.join(places)} instead of L0A, L0B, L0C"
        dtype, right = (bases[v.base].dtype for v in views)
        if instr.attr("bits", 0) or dtype.kind != right.kind and dtype.is_float:
            return f"the cube multiplies {dtype} by {dtype}, not by codes of {right}"
        return None if target.cube.rate(dtype) else f"the cube of {target.name} has no {dtype}"
    for view in (instr.dst, *views):
        # Row-indirect loads and stores reach global memory directly.
        indirect = kind == "indexed" and scope(view) == "GM" and view is (
            views[0] if instr.op == "TGATHER" else instr.dst
        )  # fmt: skip
        if not indirect and scope(view) not in target.vector_scopes:
            return f"the vector engine does not reach {view.base} in {scope(view)}"
        if not target.supports(bases[view.base].dtype):
            return f"the vector engine of {target.name} has no {bases[view.base].dtype}"
    return None
