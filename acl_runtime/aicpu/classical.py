"""ai.onnx.ml without trees and support vectors: encoders, scalers, linear models."""

from __future__ import annotations

from typing import Any

import numpy as np

from acl_runtime.aicpu.registry import Array, Attrs, Inputs, implementation
from tensor_types.errors import InvalidModel

DOMAIN = "ai.onnx.ml::"


@implementation(DOMAIN + "ArrayFeatureExtractor")
def _features(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    data, chosen = np.asarray(inputs[0]), np.asarray(inputs[1]).reshape(-1)
    if data.ndim == 1:
        return data[chosen].reshape(1, -1)
    return np.take(data, chosen, -1)


@implementation(DOMAIN + "Binarizer")
def _binarizer(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    data = np.asarray(inputs[0])
    return (data > attrs.get("threshold", 0.0)).astype(data.dtype)


@implementation(DOMAIN + "Scaler")
def _scaler(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    data = np.asarray(inputs[0]).astype(np.float32)
    offset, scale = (np.asarray(attrs[name], np.float32) for name in ("offset", "scale"))
    return (data - offset) * scale


@implementation(DOMAIN + "Normalizer")
def _normalizer(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    data = np.asarray(inputs[0]).astype(np.float32)
    norm = attrs.get("norm", "MAX")
    if norm == "MAX":
        size = data.max(-1, keepdims=True)  # as onnxruntime has it, not of the absolute values
    elif norm == "L1":
        size = np.abs(data).sum(-1, keepdims=True)
    else:
        size = np.sqrt(np.square(data).sum(-1, keepdims=True))
    return np.where(size == 0, data, data / np.where(size == 0, 1, size)).astype(np.float32)


@implementation(DOMAIN + "Imputer")
def _imputer(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    data = np.asarray(inputs[0])
    is_float = data.dtype.kind == "f"
    values = np.asarray(attrs.get("imputed_value_floats" if is_float else "imputed_value_int64s") or (0,), data.dtype)
    missing = attrs.get("replaced_value_float" if is_float else "replaced_value_int64", 0)
    holes = np.isnan(data) if is_float and np.isnan(missing) else data == data.dtype.type(missing)
    return np.where(holes, values, data)


@implementation(DOMAIN + "LabelEncoder")
def _label_encoder(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    data = np.asarray(inputs[0])
    keys = _listed(attrs, "keys")
    values = _listed(attrs, "values")
    kind = values.dtype
    default = attrs.get("default_tensor")
    if default is not None:
        missing: Any = np.asarray(default).reshape(-1)[0]
    elif kind.kind in "OUS":
        missing = attrs.get("default_string") or "_Unused"
    elif kind.kind == "f":
        given = attrs.get("default_float")
        missing = -0.0 if given is None else given
    else:
        given = attrs.get("default_int64")
        missing = -1 if given is None else given
    return _mapped(data, dict(zip(keys.tolist(), values.tolist(), strict=True)), missing,
                   object if kind.kind in "OUS" else kind)  # fmt: skip


def _listed(attrs: Attrs, what: str) -> Array:
    tensor = attrs.get(f"{what}_tensor")
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    for suffix, kind in (("strings", object), ("int64s", np.int64), ("floats", np.float32)):
        given = attrs.get(f"{what}_{suffix}")
        if given:
            return np.array(given, kind)
    raise InvalidModel(f"a LabelEncoder without {what}", remedy="export the model again")


def _mapped(data: Array, table: dict[Any, Any], missing: Any, kind: Any) -> Array:
    found = np.empty(data.size, kind)
    found[:] = [table.get(v, missing) for v in data.reshape(-1).tolist()]
    return found.reshape(data.shape)


@implementation(DOMAIN + "OneHotEncoder")
def _one_hot(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    data = np.asarray(inputs[0])
    words = attrs.get("cats_strings")
    classes = list(words) if words else list(attrs["cats_int64s"])
    flat = data.reshape(-1).tolist() if words else data.reshape(-1).astype(np.int64).tolist()
    places = {value: column for column, value in enumerate(classes)}
    result = np.zeros((len(flat), len(classes)), np.float32)
    for row, value in enumerate(flat):
        if value in places:
            result[row, places[value]] = 1
        elif not attrs.get("zeros", 1):
            raise InvalidModel(f"{value!r} is no category of the encoder", remedy="give known categories, or zeros=1")
    return result.reshape(*data.shape, len(classes))


@implementation(DOMAIN + "LinearRegressor")
def _linear_regressor(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    scores = _products(inputs[0], attrs, int(attrs.get("targets", 1)))
    return transformed(scores, str(attrs.get("post_transform", "NONE")))


@implementation(DOMAIN + "LinearClassifier")
def _linear_classifier(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, Array]:
    words, numbers = attrs.get("classlabels_strings"), attrs.get("classlabels_ints")
    labels = np.array(list(words), object) if words else np.array(list(numbers or ()), np.int64)
    rows = np.atleast_2d(np.asarray(inputs[0])).shape[1]
    scores = _products(inputs[0], attrs, len(attrs["coefficients"]) // max(rows, 1))
    transform = str(attrs.get("post_transform", "NONE"))
    if scores.shape[1] == 1 and len(labels) == 2:
        chosen = (scores[:, 0] > 0).astype(np.int64)
        both = np.concatenate([-scores, scores], 1)
        return labels[chosen], transformed(both, transform)
    chosen = scores.argmax(1)
    return labels[chosen], transformed(scores, transform)


def _products(data: Any, attrs: Attrs, count: int) -> Array:
    """Scores f32 [rows, count]."""
    rows = np.atleast_2d(np.asarray(data)).astype(np.float32)
    weights = np.asarray(attrs["coefficients"], np.float32).reshape(count, -1)
    if weights.shape[1] != rows.shape[1]:
        raise InvalidModel(f"{rows.shape[1]} features, the model has {weights.shape[1]} coefficients for each result",
                           remedy="give as many features")  # fmt: skip
    intercepts = attrs.get("intercepts")
    return rows @ weights.T + (np.asarray(intercepts, np.float32) if intercepts else np.float32(0))


def transformed(scores: Array, name: str) -> Array:
    """Scores [rows, classes] behind the post transform of that name."""
    if name == "LOGISTIC":
        return (1 / (1 + np.exp(-scores))).astype(np.float32)
    if name in ("SOFTMAX", "SOFTMAX_ZERO"):
        odds = np.exp(scores - scores.max(1, keepdims=True))
        if name == "SOFTMAX_ZERO":
            odds = np.where(scores == 0, 0, odds)
        return (odds / odds.sum(1, keepdims=True)).astype(np.float32)
    if name != "NONE":
        raise InvalidModel(f"the post transform {name} is not known", remedy="export with another one")
    return scores


@implementation(DOMAIN + "FeatureVectorizer")
def _vectorizer(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    parts = []
    for data, size in zip(inputs, attrs["inputdimensions"], strict=True):
        rows = np.asarray(data).astype(np.float32)
        rows = rows.reshape(1, -1) if rows.ndim == 1 else rows.reshape(len(rows), -1)
        parts.append(np.pad(rows[:, :size], ((0, 0), (0, max(0, size - rows.shape[1])))))
    return np.concatenate(parts, 1)


@implementation(DOMAIN + "ZipMap")
def _zip_map(inputs: Inputs, attrs: Attrs, _: int) -> list[dict[Any, float]]:
    labels = list(attrs.get("classlabels_strings") or attrs.get("classlabels_int64s") or ())
    return [dict(zip(labels, row, strict=True)) for row in np.atleast_2d(np.asarray(inputs[0])).tolist()]


@implementation(DOMAIN + "CategoryMapper")
def _category_mapper(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    data, words, numbers = np.asarray(inputs[0]), attrs["cats_strings"], attrs["cats_int64s"]
    if data.dtype.kind in "OUS":
        return _mapped(data, dict(zip(words, numbers, strict=True)), attrs.get("default_int64", -1), np.int64)
    return _mapped(data, dict(zip(numbers, words, strict=True)), attrs.get("default_string", "_Unused"), object)
