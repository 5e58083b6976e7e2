"""Kernel families: functions from a fused graph node, a target and a tiling to tile programs.

`claims` is the one word on what a family takes; `families` declares what is worth asking, as data for the passes.
Knows the graph IR, the tile language and targets; never a pass, a file, a runtime or a chip's number.
"""

from codegen.kernels.families import families, kernels
from codegen.kernels.operands import NotLowerable
from codegen.kernels.registry import claims, lower_node, preferred_tilings, remembered_on_disk, tiling_of
from codegen.kernels.tiling_file import TilingRefused, Tilings, check_nodes, read_tilings, tiling_for, tilings_text

__all__ = [
    "NotLowerable", "TilingRefused", "Tilings", "check_nodes", "claims", "families", "kernels", "lower_node",
    "preferred_tilings", "read_tilings", "remembered_on_disk", "tiling_for", "tiling_of", "tilings_text",
]  # fmt: skip
