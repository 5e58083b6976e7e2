"""Kernel families: functions from a fused graph node, a target and a tiling to tile programs.

Each family also declares as data what it can absorb (prologue and epilogue classes, formats, dtypes, cost).
Knows the graph IR, the tile language and targets; never a pass, a file, a runtime or a chip's number.
"""

from codegen.kernels.custom import families
from codegen.kernels.operands import NotLowerable
from codegen.kernels.registry import lower_node, tiling_of
from codegen.kernels.tiling_file import TilingRefused, Tilings, check_nodes, read_tilings, tiling_for
from codegen.kernels.traits import TRAITS

__all__ = [
    "TRAITS", "NotLowerable", "TilingRefused", "Tilings", "check_nodes", "families", "lower_node", "read_tilings",
    "tiling_for", "tiling_of",
]  # fmt: skip
