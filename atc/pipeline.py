"""The list of graph passes, in order: what happens to a model between reading and lowering."""

from __future__ import annotations

from collections.abc import Sequence

from acl_runtime.aicpu import evaluate
from codegen.targets import Target
from graph_opt.fusion.expand_composites import ExpandComposites
from graph_opt.fusion.expand_einsum import ExpandEinsum
from graph_opt.fusion.expand_rotary import ExpandRotary
from graph_opt.fusion.fuse_attention import FuseAttention
from graph_opt.fusion.fuse_conv_bn import FuseConvBatchNorm
from graph_opt.fusion.fuse_gelu import FuseGelu
from graph_opt.fusion.fuse_group_norm import FuseGroupNorm
from graph_opt.fusion.fuse_moe import FuseMoe
from graph_opt.fusion.fuse_norms import FuseNorms
from graph_opt.fusion.fuse_piecewise import FusePiecewise
from graph_opt.fusion.fuse_regions import FuseRegions
from graph_opt.fusion.fuse_softmax import FuseSoftmax
from graph_opt.fusion.merge_matmuls import MergeSiblingMatmuls
from graph_opt.fusion.traits import FamilyTraits
from graph_opt.ir.passes import Pass
from graph_opt.layout.assign_formats import AssignFormats
from graph_opt.precision.choose_precision import ChoosePrecision
from graph_opt.precision.legalise_products import LegaliseProducts
from graph_opt.precision.lists import DEFAULT
from graph_opt.precision.overrides import Overrides
from graph_opt.quantisation import (
    DequantizeLate,
    DequantizeWeights,
    ExpandIntegerConvolutions,
    ExpandQLinear,
    ExpandQuantisation,
    ExpandQuantisedLstm,
    FoldZeroPoints,
    FuseQdqProducts,
)
from graph_opt.simplify import (
    AbsorbExpands,
    ComposeReshapes,
    EliminateCommonSubexpressions,
    EliminateDeadCode,
    FlattenIf,
    FoldConstants,
    FoldShapes,
    MergeTransposes,
    RemoveIdentities,
    SelectBranches,
    SimplifyArithmetic,
)

_NO_OVERRIDES = Overrides()


def simplification() -> list[Pass]:
    """Folding, dead code, duplicates and branches: run before, between and after the fusions by meaning."""
    return [
        FoldShapes(),
        FoldConstants(evaluate),
        RemoveIdentities(),
        ComposeReshapes(),
        SelectBranches(),
        SimplifyArithmetic(),
        AbsorbExpands(),
        EliminateCommonSubexpressions(),
        EliminateDeadCode(),
    ]


def shared_passes() -> list[Pass]:
    """What is done once, whatever the targets: simplify, bring quantisation to products, fuse by meaning."""
    return [
        *simplification(),
        FlattenIf(),
        *simplification(),
        DequantizeLate(),
        FuseQdqProducts(),
        ExpandQLinear(),
        ExpandQuantisedLstm(),
        FoldZeroPoints(),
        ExpandIntegerConvolutions(),
        DequantizeWeights(evaluate),
        ExpandQuantisation(),
        ExpandEinsum(),
        ExpandComposites(),
        FuseConvBatchNorm(),
        FuseNorms(),
        FuseGroupNorm(),
        FuseSoftmax(),
        FuseGelu(),
        ExpandRotary(),
        FuseMoe(),
        MergeTransposes(),
    ]


def target_passes(
    traits: Sequence[FamilyTraits], target: Target, precision_mode: str = DEFAULT, overrides: Overrides = _NO_OVERRIDES
) -> list[Pass]:
    """What each target's own graph goes through: choose dtypes, lay out, fuse what its kernels can do."""
    families = tuple(traits)
    is_chip = target.kind == "chip"
    return [
        FuseAttention(families),
        MergeSiblingMatmuls(),
        *simplification(),
        ChoosePrecision(families, precision_mode, overrides),
        *([LegaliseProducts(target.name, frozenset(target.cube.rates))] if is_chip else []),
        AssignFormats(families),
        EliminateDeadCode(),
        FusePiecewise(families),
        FuseRegions(families),
    ]


def passes(traits: Sequence[FamilyTraits], target: Target, precision_mode: str = DEFAULT) -> list[Pass]:
    """All passes for one target."""
    return [*shared_passes(), *target_passes(traits, target, precision_mode)]
