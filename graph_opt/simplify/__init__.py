"""Passes that make a graph smaller without changing what it computes: folding, dead code, duplicates, branches.

Take a typed `Graph` and change it in place through the rewriter; each is a small frozen dataclass in its own file.
Know the IR only; the numpy evaluation of operators is handed in by the driver.
"""

from graph_opt.simplify.absorb_expands import AbsorbExpands
from graph_opt.simplify.close_bodies import CloseBodies, OptimiseBodies
from graph_opt.simplify.compose_reshapes import ComposeReshapes
from graph_opt.simplify.eliminate_common_subexpressions import EliminateCommonSubexpressions
from graph_opt.simplify.eliminate_dead_code import EliminateDeadCode
from graph_opt.simplify.flatten_if import FlattenIf
from graph_opt.simplify.fold_constants import FoldConstants
from graph_opt.simplify.fold_shapes import FoldShapes
from graph_opt.simplify.gather_by_position import GatherByPosition
from graph_opt.simplify.hoist_invariants import HoistInvariants
from graph_opt.simplify.merge_transposes import MergeTransposes
from graph_opt.simplify.remove_identities import RemoveIdentities
from graph_opt.simplify.scatter_by_position import ScatterByPosition
from graph_opt.simplify.select_branches import SelectBranches
from graph_opt.simplify.simplify_arithmetic import SimplifyArithmetic
from graph_opt.simplify.split_wide_operators import SplitWideOperators

__all__ = [
    "AbsorbExpands",
    "CloseBodies",
    "ComposeReshapes",
    "EliminateCommonSubexpressions",
    "EliminateDeadCode",
    "FlattenIf",
    "FoldConstants",
    "FoldShapes",
    "GatherByPosition",
    "HoistInvariants",
    "MergeTransposes",
    "OptimiseBodies",
    "RemoveIdentities",
    "ScatterByPosition",
    "SelectBranches",
    "SimplifyArithmetic",
    "SplitWideOperators",
]
