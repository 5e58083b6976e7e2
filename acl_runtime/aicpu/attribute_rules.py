"""What attributes of AI CPU operators may hold: types, ranges, words, and what ranks of operands demand of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from acl_runtime.aicpu.regular_expressions import compiled
from tensor_types.dtypes import DTYPES, from_onnx

MAX_RANK = 64
LONGEST = 1 << 22
"""Elements of a list or tensor in attributes."""
_MOST = 1 << 31


def is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 64


def _is_float(value: object) -> bool:
    return isinstance(value, float) or is_int(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_ONE: dict[str, Callable[[object], bool]] = {
    "int": is_int, "float": _is_float, "string": _is_text, "ints": is_int, "floats": _is_float, "strings": _is_text,
}  # fmt: skip


def check_type(name: str, kind: str, value: object) -> None:
    """ValueError unless a JSON value is of a declared type."""
    if kind == "tensor":
        return check_tensor(name, value)
    if kind == "type":
        if isinstance(value, dict):
            raise ValueError(f"attribute {name} is no type")
        return None
    holds = _ONE[kind]
    if kind.endswith("s"):
        sound = isinstance(value, list) and len(value) <= LONGEST and all(map(holds, value))
    else:
        sound = holds(value)
    if not sound:
        raise ValueError(f"attribute {name} is not of type {kind}")


def check_tensor(name: str, value: object) -> None:
    """ValueError unless this is the JSON form of a tensor, its values of its dtype."""
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "values"}:
        raise ValueError(f"{name} is no tensor")
    dtype, shape, values = value["dtype"], value["shape"], value["values"]
    known = DTYPES.get(dtype) if isinstance(dtype, str) else None
    if known is None or known.name == "handle":
        raise ValueError(f"{name} is a tensor of no dtype")
    if not isinstance(shape, list) or len(shape) > MAX_RANK or not all(is_int(n) and 0 <= n < _MOST for n in shape):
        raise ValueError(f"{name} is a tensor of no shape")
    if not isinstance(values, list) or len(values) != prod(shape):
        raise ValueError(f"{name} is a tensor without its values")
    if known.name == "str":
        sound = all(map(_is_text, values))
    elif known.kind in ("int", "uint", "bool"):
        bits = 1 if known.kind == "bool" else known.bits
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if known.kind == "int" else (0, (1 << bits) - 1)
        sound = all(isinstance(v, int) and low <= v <= high for v in values)
    else:
        sound = all(map(_is_float, values))
    if not sound:
        raise ValueError(f"{name} is a tensor whose values are not of {known}")


_ACTIVATIONS = frozenset(
    "relu tanh sigmoid leakyrelu thresholdedrelu hardsigmoid elu softsign softplus affine scaledtanh".split()
)


def check_value(op: str, name: str, value: Any, ranks: Sequence[int | None]) -> None:
    """ValueError if a value of the right type makes no sense for operands of these ranks, None if unknown."""
    rule = _RULES.get(name)
    if rule is not None:
        low, high = rule
        for number in value if isinstance(value, list) else [value]:
            if not low <= number <= high:
                raise ValueError(f"attribute {name} holds {number}, allowed are {low} to {high}")
    words = _WORDS.get(name)
    if words is not None and not {*(value if isinstance(value, list) else [value])} <= words:
        raise ValueError(f"attribute {name} is {str(value)[:40]!r}, known are {', '.join(sorted(words))}")
    if name == "activations" and not {word.lower() for word in value} <= _ACTIVATIONS:
        raise ValueError(f"attribute activations is {str(value)[:80]}, known are {', '.join(sorted(_ACTIVATIONS))}")
    if name in _DTYPE_NUMBERS and (value or name in ("to", "output_datatype")):
        try:
            from_onnx(value)
        except KeyError:
            raise ValueError(f"attribute {name} is {value}, which is no dtype") from None
    if name == "pattern":
        compiled(value)
    if name == "result_dtype" and value and value not in DTYPES:
        raise ValueError(f"attribute {name} is {value[:40]!r}, which is no dtype")
    at = _AXIS_OPERAND.get(op, 0)
    rank = ranks[at] if at < len(ranks) else None
    if rank is None or rank > MAX_RANK:
        return
    if name == "perm" and sorted(value) != list(range(rank)):
        raise ValueError(f"perm {value[:MAX_RANK]} is no order of {rank} axes")
    if name in ("axis", "batch_axis", "time_axis") and op not in _ANY_AXIS:
        more = _AXES_MORE.get(op, 0)
        if not -rank - (more and op != "Flatten") <= value < max(rank + more, 1):
            raise ValueError(f"axis {value} is outside rank {rank}")
    if name in _SPATIAL and op in _WINDOWED and value:
        expected = (rank - 2) * (2 if name == "pads" else 1)
        if len(value) != expected and not (name == "output_shape" and len(value) == rank):
            raise ValueError(f"attribute {name} has {len(value)} numbers, expected are {expected}")


_COUNT, _SIZE, _FLAG = (1, _MOST), (0, _MOST), (0, 1)
_AXIS = (-MAX_RANK, MAX_RANK)
_RANGES: tuple[tuple[tuple[int, int], str], ...] = (
    (_COUNT, "kernel_shape strides dilations group pooled_shape blocksize num_groups offset_group hidden_size experts"),
    (_COUNT, "num_outputs size p output_height output_width sample_size max_gram_length min_gram_length targets"),
    (_SIZE, "output_padding output_shape q_num_heads kv_num_heads num_heads block_size sampling_ratio chunk_size"),
    (_SIZE, "max_skip_count ngram_counts ngram_indexes inputdimensions rotary_embedding_dim"),
    (_FLAG, "scan_input_directions scan_output_directions layout"),
    (_AXIS, "axis axes batch_axis time_axis scan_input_axes scan_output_axes start"),
    ((-_MOST, _MOST), "pads k"),
    ((-(1 << 63), (1 << 63) - 1), "end"),
    ((0, MAX_RANK), "batch_dims"),
    ((0, 1 << 40), "shape"),
    ((0, 3), "qk_matmul_output_mode"),
    ((1, 1 << 20), "num_scan_inputs"),
    ((1, 1000), "opset"),
)
_RULES = {name: allowed for allowed, names in _RANGES for name in names.split()}
"""Least and largest number of an attribute, whichever operator has it; without a row any number of 64 bits goes."""

_WORDS: dict[str, frozenset[str]] = {
    "auto_pad": frozenset({"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""}),
    "direction": frozenset({"LEFT", "RIGHT", "forward", "reverse", "bidirectional"}),
    "reduction": frozenset({"none", "add", "mul", "max", "min", "mean", "sum"}),
    "padding_mode": frozenset({"zeros", "border", "reflection"}),
    "update_rule": frozenset({"linear", "gated", "delta", "gated_delta"}),
    "pixel_format": frozenset({"RGB", "BGR", "Grayscale"}),
    "approximate": frozenset({"none", "tanh"}),
    "norm": frozenset({"MAX", "L1", "L2"}),
}

_DTYPE_NUMBERS = frozenset({"to", "dtype", "output_dtype", "output_datatype"})
_SPATIAL = frozenset({"kernel_shape", "strides", "dilations", "pads", "output_padding", "output_shape"})
_WINDOWED = frozenset(
    "Conv ConvInteger ConvTranspose QLinearConv DeformConv MaxPool AveragePool LpPool MaxUnpool "
    "com.microsoft::FusedConv com.microsoft::QLinearAveragePool".split()
)
_AXIS_OPERAND = {"com.microsoft::QLinearConcat": 2}
_AXES_MORE = {"OneHot": 1, "Flatten": 1}
_ANY_AXIS = frozenset({"QuantizeLinear", "DequantizeLinear", "ConcatFromSequence"})
"""Where axis counts in what the task finds at run time, or is not looked at for a single scale."""
