"""Lowering: the optimised graph and a target in, records with verified tile programs out; hosts and chips alike.

Knows families, tile programs, targets and what planning takes; no pass, no file, no runtime, no native code.
"""

from codegen.lowering.aliases import RESHAPES
from codegen.lowering.lower_graph import lower_graph
from codegen.lowering.lowered import Lowered, guards_of

__all__ = ["RESHAPES", "Lowered", "guards_of", "lower_graph"]
