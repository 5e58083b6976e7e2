"""Sequences (Python lists), optionals (None or the element) and strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from acl_runtime.aicpu.regular_expressions import compiled
from acl_runtime.aicpu.shape_ops import integers
from tensor_types.errors import InvalidModel


def _position(index: Any, size: int) -> int:
    at = int(np.asarray(index).reshape(-1)[0])
    if not -size <= at < size:
        raise InvalidModel(f"position {at} is outside a sequence of {size}", remedy="check the model's inputs")
    return at % size


@implementation("SequenceConstruct")
def _construct(inputs: Inputs, attrs: Attrs, _: int) -> Any:
    return list(inputs)


@implementation("SequenceEmpty")
def _empty(inputs: Inputs, attrs: Attrs, _: int) -> Any:
    return []


@implementation("SequenceAt")
def _at(inputs: Inputs, attrs: Attrs, _: int) -> Any:
    return inputs[0][_position(inputs[1], len(inputs[0]))]


@implementation("SequenceLength")
def _length(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.array(len(inputs[0]), np.int64)


@implementation("SequenceInsert")
def _insert(inputs: Inputs, attrs: Attrs, _: int) -> Any:
    result, where = list(inputs[0]), get(inputs, 2)
    at = len(result) if where is None else int(np.asarray(where).reshape(-1)[0])
    if not -len(result) <= at <= len(result):
        raise InvalidModel(f"position {at} is outside a sequence of {len(result)}", remedy="check the model's inputs")
    result.insert(at, inputs[1])
    return result


@implementation("SequenceErase")
def _erase(inputs: Inputs, attrs: Attrs, _: int) -> Any:
    result, where = list(inputs[0]), get(inputs, 1)
    del result[-1 if where is None else _position(where, len(result))]
    return result


@implementation("ConcatFromSequence")
def _concat(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    join = np.stack if attrs.get("new_axis", 0) else np.concatenate
    return np.asarray(join(inputs[0], axis=attrs["axis"]))


@implementation("SplitToSequence")
def _split(inputs: Inputs, attrs: Attrs, _: int) -> Any:
    array, axis, sizes = np.asarray(inputs[0]), attrs.get("axis", 0), get(inputs, 1)
    if sizes is None:
        parts = np.split(array, array.shape[axis], axis)
        return parts if attrs.get("keepdims", 1) else [np.squeeze(p, axis) for p in parts]
    if np.ndim(sizes) == 0:
        return np.split(array, range(int(sizes), array.shape[axis], int(sizes)), axis)
    return np.split(array, np.cumsum(integers(sizes))[:-1], axis)


@implementation("Optional")
def _optional(inputs: Inputs, attrs: Attrs, _: int) -> Any:
    return get(inputs, 0)


@implementation("OptionalHasElement")
def _has_element(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.array(get(inputs, 0) is not None)


@implementation("OptionalGetElement")
def _get_element(inputs: Inputs, attrs: Attrs, _: int) -> Any:
    if inputs[0] is None:
        raise InvalidModel("the optional has no element", remedy="check the model's inputs")
    return inputs[0]


@implementation("StringConcat")
def _string_concat(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.asarray(np.asarray(inputs[0], object) + np.asarray(inputs[1], object), object)


@implementation("StringSplit")
def _string_split(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, Array]:
    array = np.asarray(inputs[0], object)
    limit, mark = attrs.get("maxsplit", -1), attrs.get("delimiter") or None
    rows = [str(word).split(mark, limit) for word in array.reshape(-1).tolist()]
    widest = max((len(r) for r in rows), default=0)
    table = np.array([r + [""] * (widest - len(r)) for r in rows], object).reshape(*array.shape, widest)
    return table, np.array([len(r) for r in rows], np.int64).reshape(array.shape)


@implementation("RegexFullMatch")
def _regex(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, pattern = np.asarray(inputs[0], object), compiled(attrs["pattern"])
    found = [pattern.full_match(str(w)) for w in array.reshape(-1).tolist()]
    return np.array(found, np.bool_).reshape(array.shape)


@implementation("StringNormalizer")
def _string_normalizer(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, stop = np.asarray(inputs[0], object), set(attrs.get("stopwords") or ())
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(attrs.get("case_change_action", "NONE"), str)
    folded = stop if attrs.get("is_case_sensitive", 0) else {w.lower() for w in stop}
    words = [str(w) for w in array.reshape(-1).tolist()]
    kept = [w for w in words if (w if attrs.get("is_case_sensitive", 0) else w.lower()) not in folded]
    result = [change(w) for w in kept] or [""]
    return np.array(result, object).reshape((1, -1) if array.ndim == 2 else (-1,))
