"""What a package says of AI CPU tasks, checked when it is read: operators, operands, attributes, bodies.

`check_task` raises ValueError with the reason. The rules, where the plan tells ranks and dtypes:

1. The operator is one of `schema_table.ROWS`, or the user registered it; one of a user takes any attributes.
2. Operands are as many as declared, of an allowed kind of dtype, and of the ranks of `_RANKS`.
3. Attributes are declared ones and of the declared type; numbers fit 64 bits. Those that count, order or name
   something are in range for the rank of the operand that they speak of (`attribute_rules`).
4. The bodies of control flow and of fused nodes obey the same rules, use what is defined before, and have as many
   inputs and outputs as the operator gives and takes.

What depends on extents and values is checked when the task runs (`registry.evaluate`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from acl_runtime.aicpu.attribute_rules import LONGEST, MAX_RANK, check_tensor, check_type, check_value, is_int
from acl_runtime.aicpu.registry import has_implementation
from acl_runtime.aicpu.schema_table import ROWS
from tensor_types.dtypes import DTYPES, DType

_DEEPEST = 32


class Operand(NamedTuple):
    """What is known of an input: the letter of its dtype ('' if unknown) and its rank."""

    kind: str = ""
    rank: int | None = None


class _Schema(NamedTuple):
    kinds: tuple[str, ...]
    required: tuple[int, ...]
    variadic: bool
    attrs: Mapping[str, str]


def kind_of(dtype: DType) -> str:
    """The letter that the table has for a dtype."""
    return "s" if dtype.name == "str" else dtype.kind[0]


@lru_cache(maxsize=512)
def _schema(op: str) -> _Schema:
    operands, attrs = ROWS[op]
    names, kinds = [], []
    for word in operands.split():
        name, _, letters = word.partition(":")
        names.append(name)
        kinds.append(letters)
    required = tuple(i for i, name in enumerate(names) if not name.endswith(("?", "*")))
    variadic = bool(names) and names[-1].endswith("*")
    return _Schema(tuple(kinds), required, variadic, dict(word.split("=") for word in attrs.split()))


def check_task(
    op: str, attrs: Mapping[str, Any], inputs: Sequence[Operand | None], n_outputs: int, depth: int = 0
) -> None:
    """ValueError unless this is a task that the AI CPU can take; None is an operand that is left out."""
    if op not in ROWS:
        if not has_implementation(op):
            raise ValueError(f"the AI CPU has no implementation of {op[:80]}")
        return
    try:
        schema = _schema(op)
        own = inputs[: len(inputs) - _captured(attrs, len(inputs))]
        _check_operands(op, schema, own)
        ranks = [None if operand is None else operand.rank for operand in own]
        for name, value in attrs.items():
            if name == "captured" and "graph" in schema.attrs.values():
                continue
            kind = schema.attrs.get(name)
            if kind is None:
                raise ValueError(f"it has no attribute {name[:80]}")
            if value is not None and kind != "graph":
                check_type(name, kind, value)
                check_value(op, name, value, ranks)
        for name in _REQUIRED.get(op, ()):
            if attrs.get(name) is None:
                raise ValueError(f"attribute {name} is missing")
        if op == "Split" and attrs.get("num_outputs") not in (None, n_outputs):
            raise ValueError(f"attribute num_outputs is {attrs['num_outputs']}, the task has {n_outputs} outputs")
        if "graph" in schema.attrs.values():
            _check_bodies(op, attrs, own, inputs[len(own) :], n_outputs, depth)
    except ValueError as error:
        raise ValueError(f"{op}: {error}") from None


def _captured(attrs: Mapping[str, Any], n_inputs: int) -> int:
    names = attrs.get("captured", [])
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names) or len(names) > n_inputs:
        raise ValueError("the captured values are not among its operands")
    return len(names)


def _check_operands(op: str, schema: _Schema, inputs: Sequence[Operand | None]) -> None:
    if len(inputs) > len(schema.kinds) and not schema.variadic:
        raise ValueError(f"{len(inputs)} operands, it takes {len(schema.kinds)}")
    for number in schema.required:
        if number >= len(inputs) or (inputs[number] is None and op not in _MAY_LACK):
            raise ValueError(f"operand {number} is missing")
    ranks = _RANKS.get(op, "").split()
    for number, operand in enumerate(inputs):
        if operand is None:
            continue
        kinds = schema.kinds[min(number, len(schema.kinds) - 1)]
        if operand.kind and operand.kind not in kinds:
            raise ValueError(f"operand {number} is of a dtype that it does not take")
        if operand.rank is not None and number < len(ranks):
            _check_rank(number, operand.rank, ranks[number], inputs)


def _check_rank(number: int, rank: int, rule: str, inputs: Sequence[Operand | None]) -> None:
    """`2` exactly, `2+` at least, `2..4` between, `=0` that of operand 0, `.` any."""
    if rule == ".":
        return
    if rule[0] == "=":
        other = inputs[int(rule[1:])]
        low = high = rank if other is None or other.rank is None else other.rank
    elif rule.endswith("+"):
        low, high = int(rule[:-1]), MAX_RANK
    else:
        first, _, last = rule.partition("..")
        low, high = int(first), int(last or first)
    if not low <= rank <= high:
        expected = low if low == high else f"{low} to {high}"
        raise ValueError(f"operand {number} is of rank {rank}, expected is {expected}")


def _check_bodies(
    op: str, attrs: Mapping[str, Any], own: Sequence[Operand | None], captured: Sequence[Operand | None],
    n_outputs: int, depth: int,
) -> None:  # fmt: skip
    outer = dict(zip(attrs.get("captured", ()), captured, strict=True))
    given = list(own)
    states = 0
    if op == "If":
        given = []
    elif op == "Loop":
        states = max(len(own) - 2, 0)
        given = [Operand("i", 0), Operand("b", 0), *[Operand()] * states]
    elif op == "Scan":
        count = attrs["num_scan_inputs"]
        states = len(own) - count
        if not 1 <= count <= len(own):
            raise ValueError(f"attribute num_scan_inputs is {count}, there are {len(own)} operands")
        given = [Operand()] * len(own)
        made = n_outputs - states
        for name, size in (("scan_input_axes", count), ("scan_input_directions", count),
                           ("scan_output_axes", made), ("scan_output_directions", made)):  # fmt: skip
            if attrs.get(name) and len(attrs[name]) != size:
                raise ValueError(f"attribute {name} has {len(attrs[name])} numbers, expected are {size}")
    elif op == "SequenceMap":
        given = [Operand()] * len(own)
    for name in _REQUIRED[op]:
        if name in ("body", "then_branch", "else_branch"):
            made = check_body(attrs[name], given, outer, depth + 1)
            wanted = n_outputs + (op == "Loop")
            if made != wanted or made < states:
                raise ValueError(f"its {name} makes {made} tensors, expected are {wanted}")


def check_body(body: object, inputs: Sequence[Operand | None], outer: Mapping[str, Operand | None], depth: int) -> int:
    """The number of outputs of a body; ValueError if it is none that can run on these operands."""
    if depth > _DEEPEST:
        raise ValueError(f"bodies are nested deeper than {_DEEPEST}")
    fields = _mapping(body, "body")
    known: dict[str, Operand | None] = dict(outer)
    for name, tensor in _mapping(fields.get("constants", {}), "constants").items():
        check_tensor(name[:80], tensor)
        known[name] = Operand(kind_of(DTYPES[tensor["dtype"]]), len(tensor["shape"]))
    names = _names(fields.get("inputs"))
    if len(names) != len(inputs):
        raise ValueError(f"a body takes {len(names)} tensors and gets {len(inputs)}")
    known.update(zip(names, inputs, strict=True))
    for row in _list(fields.get("nodes")):
        node = _mapping(row, "node")
        attrs = _mapping(node.get("attrs", {}), "attrs")
        reads = _list(node.get("inputs"))
        op, makes = node.get("op"), _names(node.get("outputs"))
        if not isinstance(op, str):
            raise ValueError("a node of a body has no operator")
        # Nested bodies take outer values by name, behind the operands of the node.
        behind = attrs.get("captured", [])
        reads = [*reads, *(behind if isinstance(behind, list) else [])]
        for name in reads:
            if name is not None and (not isinstance(name, str) or name not in known):
                raise ValueError(f"{op[:80]} of a body uses {str(name)[:80]}, which is not defined")
        check_task(op, attrs, [None if n is None else known[n] for n in reads], len(makes), depth)
        known.update(dict.fromkeys(makes, Operand()))
    results = _names(fields.get("outputs"))
    if missing := [n for n in results if n not in known]:
        raise ValueError(f"a body gives {missing[0][:80]}, which is not defined")
    _check_types(fields.get("types", []), len(results))
    return len(results)


def _check_types(rows: object, count: int) -> None:
    found = _list(rows)
    if found and len(found) != count:
        raise ValueError("a body has not one type per output")
    for row in found:
        pair = _list(row)
        if len(pair) != 2 or not isinstance(pair[0], str) or pair[0] not in DTYPES:
            raise ValueError("an output of a body is of no dtype")
        shape = _list(pair[1])
        if len(shape) > MAX_RANK or not all(n is None or (is_int(n) and 0 <= n < 1 << 31) for n in shape):
            raise ValueError("an output of a body is of no shape")


def _names(value: object) -> list[str]:
    found = _list(value)
    if not all(isinstance(n, str) for n in found):
        raise ValueError("a body has values without names")
    return found


def _list(value: object) -> list[Any]:
    if not isinstance(value, list) or len(value) > LONGEST:
        raise ValueError("a list of a body is missing or too long")
    return value


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")
    return value


_REQUIRED: dict[str, tuple[str, ...]] = {
    "If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body", "num_scan_inputs"),
    "SequenceMap": ("body",), "Fused": ("body",), "BitShift": ("direction",), "Cast": ("to",), "BitCast": ("to",),
    "Concat": ("axis",), "ConcatFromSequence": ("axis",), "DepthToSpace": ("blocksize",),
    "SpaceToDepth": ("blocksize",),
    "RegexFullMatch": ("pattern",), "com.microsoft::QLinearSoftmax": ("opset",),
    "Einsum": ("equation",), "GroupNormalization": ("num_groups",), "LRN": ("size",), "MoeRoute": ("experts",),
    "PrepareImage": ("channels", "order", "to"), "QuantizeBlocks": ("block_size",),
    "LpPool": ("kernel_shape",), "MaxPool": ("kernel_shape",), "AveragePool": ("kernel_shape",),
    "MaxUnpool": ("kernel_shape",), "MaxRoiPool": ("pooled_shape",), "RandomNormal": ("shape",),
    "RandomUniform": ("shape",), "com.microsoft::QLinearConcat": ("axis",),
    "TfIdfVectorizer":
        ("max_gram_length", "max_skip_count", "min_gram_length", "mode", "ngram_counts", "ngram_indexes"),
    "ai.onnx.ml::Scaler": ("offset", "scale"),
    "LinearAttention": ("q_num_heads", "kv_num_heads"),
    "ai.onnx.ml::LinearClassifier": ("coefficients",), "ai.onnx.ml::FeatureVectorizer": ("inputdimensions",),
}  # fmt: skip
"""Attributes that an operator has no default for."""

_MAY_LACK = frozenset({"IfMerge"})
"""Operators one of whose operands was not made."""

_RANKS: dict[str, str] = {
    "Conv": "3+ =0 1", "ConvInteger": "3+ =0", "ConvTranspose": "3+ =0 1", "QLinearConv": "3+ . . =0",
    "com.microsoft::FusedConv": "3+ =0 1", "DeformConv": "4+ =0 =0 1", "MaxPool": "3+", "AveragePool": "3+",
    "LpPool": "3+", "MaxUnpool": "3+ =0 1", "GlobalAveragePool": "2+", "GlobalMaxPool": "2+", "GlobalLpPool": "2+",
    "Gemm": "2 2 0..2", "MatMul": "1+ 1+", "MatMulInteger": "1+ 1+", "LSTM": "3 3 3 2 1 3 3 2",
    "GRU": "3 3 3 2 1 3", "RNN": "3 3 3 2 1 3", "BatchNormalization": "1+ 1 1 1 1", "InstanceNormalization": "2+ 1 1",
    "GroupNormalization": "2+ 1 1", "LRN": "2+", "DepthToSpace": "4", "SpaceToDepth": "4", "RoiAlign": "4 2 1",
    "MaxRoiPool": "4 2", "NonMaxSuppression": "3 3", "GridSample": "3+ =0", "AffineGrid": "3 1", "Col2Im": "2..3 1 1",
    "Det": "2+", "Trilu": "2+", "EyeLike": "2", "ReverseSequence": "2+ 1", "Reshape": ". 1", "Expand": ". 1",
    "Tile": ". 1", "Slice": "1+ 1 1 1 1", "Pad": ". 1", "Unsqueeze": ". 0..1", "Squeeze": ". 0..1",
    "ConstantOfShape": "1", "GatherND": "1+ 1+", "ScatterND": "1+ 1+", "GatherElements": "1+ =0",
    "ScatterElements": "1+ =0 =0", "Attention": "3..4 3..4 3..4", "RotaryEmbedding": "3..4 2..3 =1",
    "TensorScatter": "2+ =0 1", "TfIdfVectorizer": "1..2", "ImageDecoder": "1", "GroupedMatMul": "2 3 1",
    "ScatterPages": "3+ 2+ 1", "PagedAttention": "3 4 4 2 1 1 1",
    "PrepareImage": ". 2", "LinearAttention": "3 3 3 4", "CausalConvWithState": "3 3 1 3", "CenterCropPad": ". 1",
    "com.microsoft::CropAndResize": "4 2 1 1", "com.microsoft::Inverse": "2+", "ai.onnx.ml::SVMRegressor": "1..2",
    "ai.onnx.ml::SVMClassifier": "1..2",
}  # fmt: skip
"""Ranks of the operands, see `_check_rank`."""
