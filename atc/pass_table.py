"""What each graph pass is for, and which of them may be left out: one row a pass.

From this table follow what `--disable_pass` takes, docs/passes.md and the names of the files of `--dump_ir`. The passes
themselves and their order are in atc/pipeline.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atc.usage import UsageError, did_you_mean


@dataclass(frozen=True)
class PassRow:
    """A pass by name and what it does in a sentence. A `required` one cannot be left out."""

    name: str
    does: str
    required: bool = False


_TABLE = (
    PassRow("fuse-dequantisation", "Codes made numbers by Cast, Sub and Mul become DequantizeLinear."),
    PassRow("fold-shapes", "Arithmetic on shapes that inference has already done leaves the graph."),
    PassRow("fold-constants", "Nodes whose inputs are constants are computed at convert time."),
    PassRow("remove-identities", "Nodes whose result is one of their inputs, bit for bit, go."),
    PassRow("compose-reshapes", "Chains of Reshape, Squeeze, Unsqueeze and Flatten become one Reshape."),
    # The reader leaves the branch that does not run unread, so an If with it must not stay.
    PassRow("select-branches", "An If whose condition is known is replaced by the branch that runs.", required=True),
    PassRow(
        "simplify-arithmetic", "Exact rewrites: squares, divisions by powers of two, double negations, double Casts."
    ),
    PassRow("gather-by-position", "GatherND whose indices count along axes becomes the tensor seen along these axes."),
    PassRow("scatter-by-position", "ScatterND whose indices count along axes becomes a Concat around what it writes."),
    PassRow("absorb-expands", "Element-wise operators broadcast by themselves instead of reading an Expand."),
    PassRow("eliminate-common-subexpressions", "Equal nodes and equal small constants are kept once."),
    PassRow("eliminate-dead-code", "Nodes, constants and dims that no output needs go.", required=True),
    PassRow("split-wide-operators", "Sums and extrema of more than 64 tensors become trees of such operators."),
    PassRow("flatten-if", "Branches of an If that agree in rank become guarded nodes of the graph around it."),
    PassRow("hoist-invariants", "What a loop carries unchanged from run to run is read from outside by its body."),
    PassRow("dequantize-late", "DequantizeLinear moves behind what only picks or reorders the codes."),
    PassRow("select-codes", "Operators that pick or reorder elements work on codes; DequantizeLinear follows them."),
    PassRow("fuse-qdq-products", "MatMul and Conv of dequantised operands become products of integers."),
    PassRow("fuse-narrow-products", "MatMul with a constant of codes of 8 bits at most keeps the codes."),
    PassRow("expand-qlinear", "QLinearMatMul and QLinearConv become integer products with their scales around them."),
    PassRow("fold-zero-points", "Zero points of integer products go into weights and sums."),
    PassRow("dequantize-weights", "What is left of DequantizeLinear of constants is computed at convert time."),
    PassRow("expand-quantisation", "Quantising operators become arithmetic, which fuses with what is around it."),
    PassRow("expand-einsum", "Einsum of one or two operands becomes sums, transposes and one product."),
    PassRow("expand-computed-weights", "A convolution whose weight the run makes becomes a product with its patches."),
    PassRow("expand-composites", "Operators without a kernel of their own become those that have one."),
    PassRow("expand-positions", "Trilu, OneHot, EyeLike and GatherND become arithmetic on positions, which fuses."),
    PassRow("expand-samples", "GridSample and RoiAlign become gathers of pixels and their weighted sums."),
    PassRow("expand-spectra", "STFT and DFT become products with the waves that they are made of."),
    PassRow("fuse-conv-bn", "BatchNormalization after Conv goes into its weights."),
    PassRow("fuse-norms", "Layer and RMS norms that exporters wrote out become one operator."),
    PassRow("fuse-group-norm", "Group and instance norms that exporters wrote out become one operator."),
    PassRow("fuse-softmax", "Softmax that exporters wrote out becomes one operator."),
    PassRow("fuse-gelu", "Gelu in its exact and tanh forms becomes one operator."),
    PassRow("expand-rotary", "RotaryEmbedding becomes cuts, products and joins, which fuse."),
    PassRow("fuse-moe", "Routed experts become grouped products over one row for each choice."),
    PassRow("expanded-experts", "Experts written as batched products compute the tokens that chose them alone."),
    PassRow("gathered-experts", "Products with matrices picked by index become grouped products over sorted rows."),
    PassRow("merge-transposes", "Two Transposes in a row become one."),
    PassRow("close-bodies", "Bodies of loops read nothing from outside any more: they are graphs of their own."),
    PassRow("optimise-bodies", "The passes of this table run on the bodies of loops too.", required=True),
    PassRow("expand-quantised-lstm", "DynamicQuantizeLSTM multiplies bytes, or becomes an LSTM of numbers."),
    PassRow(
        "legalise-integer-matmuls",
        "Integer products get signed bytes and sums of zero points where kernels need them.",
    ),
    PassRow(
        "legalise-integer-convolutions",
        "The same of convolutions; those that bytes cannot do become exact float ones.",
    ),
    PassRow(
        "choose-narrow-products",
        "Products with codes quantise their other operand where that is allowed; without a kernel they become numbers.",
        required=True,
    ),
    PassRow("expand-resize", "A Resize without a kernel becomes weighted gathers along its axes."),
    PassRow("fuse-attention", "Products around a Softmax become attention kernels, scores never written to memory."),
    PassRow("merge-sibling-matmuls", "Products of one operand by several weights become one batched product."),
    PassRow("choose-precision", "Each operator gets its dtype by the precision mode.", required=True),
    PassRow("legalise-products", "Products whose dtype the chip's cube lacks get one that it has.", required=True),
    PassRow("expand-refused", "Norms, softmax and Gelu without a kernel become what they are defined by."),
    PassRow("assign-formats", "Images become channels-last where kernels want it.", required=True),
    PassRow("direct-convolutions", "With --high_precision: convolutions stay sums over their windows.", required=True),
    PassRow("fuse-caches", "Caches that grow get room, so that a session may write new rows where the old ones lie."),
    PassRow("fuse-piecewise", "Cuts and joins with arithmetic between them become one kernel."),
    PassRow("fuse-regions", "What is left becomes kernels: an anchor with what follows it, or loops.", required=True),
)


def pass_table() -> tuple[PassRow, ...]:
    """Every pass, in the order in which they first run."""
    return _TABLE


def switchable() -> tuple[str, ...]:
    """Names of the passes that may be left out."""
    return tuple(row.name for row in _TABLE if not row.required)


def check_disabled(flag: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names; UsageError for one that no pass has, and for a pass that is required."""
    for name in names:
        if name in switchable():
            continue
        required = any(row.name == name for row in _TABLE)
        problem = f"pass {name} cannot be left out" if required else f"there is no pass {name!r}"
        raise UsageError(
            problem, where={"flag": f"--{flag}"},
            remedy=f"{did_you_mean(name, switchable())}those that can are {', '.join(switchable())}",
        )  # fmt: skip
    return tuple(names)
