"""The list of graph passes, in order: what happens to a model between reading and lowering."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from acl_runtime.aicpu import evaluate
from graph_opt.fusion.expand_composites import ExpandComposites
from graph_opt.fusion.expand_computed_weights import ExpandComputedWeights
from graph_opt.fusion.expand_einsum import ExpandEinsum
from graph_opt.fusion.expand_positions import ExpandPositions
from graph_opt.fusion.expand_refused import ExpandRefused
from graph_opt.fusion.expand_resize import ExpandResize
from graph_opt.fusion.expand_rotary import ExpandRotary
from graph_opt.fusion.expand_samples import ExpandSamples
from graph_opt.fusion.expand_spectra import ExpandSpectra
from graph_opt.fusion.expanded_experts import ExpandedExperts
from graph_opt.fusion.families import Kernels
from graph_opt.fusion.fuse_attention import FuseAttention
from graph_opt.fusion.fuse_caches import FuseCaches
from graph_opt.fusion.fuse_conv_bn import FuseConvBatchNorm
from graph_opt.fusion.fuse_gelu import FuseGelu
from graph_opt.fusion.fuse_group_norm import FuseGroupNorm
from graph_opt.fusion.fuse_moe import FuseMoe
from graph_opt.fusion.fuse_norms import FuseNorms
from graph_opt.fusion.fuse_piecewise import FusePiecewise
from graph_opt.fusion.fuse_regions import FuseRegions
from graph_opt.fusion.fuse_softmax import FuseSoftmax
from graph_opt.fusion.gathered_experts import GatheredExperts
from graph_opt.fusion.merge_matmuls import MergeSiblingMatmuls
from graph_opt.ir.passes import Pass
from graph_opt.layout.assign_formats import AssignFormats
from graph_opt.precision.choose_precision import ChoosePrecision
from graph_opt.precision.direct_convolutions import DirectConvolutions
from graph_opt.precision.legalise_products import LegaliseProducts
from graph_opt.precision.lists import DEFAULT
from graph_opt.precision.overrides import Overrides
from graph_opt.quantisation import (
    ChooseNarrowProducts,
    DequantizeLate,
    DequantizeWeights,
    ExpandQLinear,
    ExpandQuantisation,
    ExpandQuantisedLstm,
    FoldZeroPoints,
    FuseDequantisation,
    FuseNarrowProducts,
    FuseQdqProducts,
    LegaliseIntegerConvolutions,
    LegaliseIntegerMatmuls,
    SelectCodes,
)
from graph_opt.simplify import (
    AbsorbExpands,
    CloseBodies,
    ComposeReshapes,
    EliminateCommonSubexpressions,
    EliminateDeadCode,
    FlattenIf,
    FoldConstants,
    FoldShapes,
    GatherByPosition,
    HoistInvariants,
    MergeTransposes,
    OptimiseBodies,
    RemoveIdentities,
    ScatterByPosition,
    SelectBranches,
    SimplifyArithmetic,
    SplitWideOperators,
)
from tensor_types.dtypes import F32

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
        GatherByPosition(),
        ScatterByPosition(),
        AbsorbExpands(),
        EliminateCommonSubexpressions(),
        EliminateDeadCode(),
    ]


def shared_passes() -> list[Pass]:
    """What is done once, whatever the targets: simplify, bring quantisation to products, fuse by meaning."""
    steps: list[Pass] = [
        FuseDequantisation(),
        *simplification(),
        SplitWideOperators(),
        FlattenIf(),
        HoistInvariants(),
        *simplification(),
        DequantizeLate(),
        SelectCodes(),
        FuseQdqProducts(),
        FuseNarrowProducts(),
        ExpandQLinear(),
        FoldZeroPoints(),
        DequantizeWeights(evaluate),
        ExpandQuantisation(),
        ExpandEinsum(),
        ExpandComputedWeights(),
        ExpandComposites(),
        ExpandPositions(),
        ExpandSamples(),
        ExpandSpectra(),
        FuseConvBatchNorm(),
        FuseNorms(),
        FuseGroupNorm(),
        FuseSoftmax(),
        FuseGelu(),
        ExpandRotary(),
        FuseMoe(),
        ExpandedExperts(),
        GatheredExperts(),
        MergeTransposes(),
        CloseBodies(),
    ]
    return [*steps, OptimiseBodies(tuple(steps))]


def target_passes(
    kernels: Kernels, precision_mode: str = DEFAULT, overrides: Overrides = _NO_OVERRIDES,
    high_precision: bool = False, dynamic_quantisation: bool = False,
) -> list[Pass]:  # fmt: skip
    """What the graph for the kernels' targets goes through: choose dtypes, lay out, fuse what the kernels can do.

    With `high_precision` kernels add in the order that the operators' definitions have; with `dynamic_quantisation`
    products with weights of codes multiply bytes.
    """
    halves = any(t.kind == "chip" and not t.cube.rate(F32) for t in kernels.targets)
    steps: list[Pass] = [
        ExpandQuantisedLstm(kernels),
        ExpandQuantisation(),
        FoldZeroPoints(),
        LegaliseIntegerMatmuls(kernels),
        LegaliseIntegerConvolutions(kernels),
        ChooseNarrowProducts(kernels, dynamic_quantisation),
        ExpandResize(kernels, evaluate),
        FuseAttention(kernels),
        MergeSiblingMatmuls(kernels),
        *simplification(),
        ChoosePrecision(kernels, precision_mode, overrides),
        *([LegaliseProducts(kernels)] if halves else []),  # others have nothing that is worth asking
        ExpandRefused(kernels),
        AssignFormats(kernels),
        EliminateDeadCode(),
        *([DirectConvolutions()] if high_precision else []),
        *([] if any(t.explicit_memory for t in kernels.targets) else [FuseCaches(kernels)]),
        FusePiecewise(kernels),
        FuseRegions(kernels),
    ]
    return [*steps, OptimiseBodies(tuple(steps))]


def passes(kernels: Kernels, precision_mode: str = DEFAULT, high_precision: bool = False) -> list[Pass]:
    """All passes, for the targets that the kernels are asked for."""
    return [*shared_passes(), *target_passes(kernels, precision_mode, high_precision=high_precision)]


def without(steps: Sequence[Pass], disabled: Set[str]) -> list[Pass]:
    """The steps that are not disabled, neither here nor in the bodies of loops."""
    kept = [step for step in steps if step.name not in disabled]
    return [
        replace(step, steps=tuple(without(step.steps, disabled))) if isinstance(step, OptimiseBodies) else step
        for step in kept
    ]
