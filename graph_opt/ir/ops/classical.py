"""Operators of ai.onnx.ml without trees: encoders, scalers, linear models, machines of support vectors."""

from __future__ import annotations

from graph_opt.ir.ops.registry import FLOAT, FLOATS, INT, INTS, STRING, STRINGS, TENSOR, Inference, declare, same
from tensor_types.dims import Dim
from tensor_types.dtypes import F32, HANDLE, I64, STR, DType, from_numpy

DOMAIN = "ai.onnx.ml::"


def _f32(ctx: Inference) -> None:
    ctx.set(0, F32, ctx.shape())


def _features(ctx: Inference) -> None:
    """The columns that Y names, of the last axis."""
    shape, chosen = ctx.shape(), ctx.shape(1)
    if shape is None or chosen is None:
        return ctx.set(0, ctx.dtype(), None)
    count: Dim = 1
    for extent in chosen:
        count = count * extent
    ctx.set(0, ctx.dtype(), (1, count) if len(shape) == 1 else (*shape[:-1], count))


def _label_encoder(ctx: Inference) -> None:
    values = ctx.attr("values_tensor")
    dtype: DType = F32
    if values is not None:
        dtype = from_numpy(values.dtype)
    elif ctx.attr("values_strings") is not None:
        dtype = STR
    elif ctx.attr("values_int64s") is not None:
        dtype = I64
    ctx.set(0, dtype, ctx.shape())


def _one_hot(ctx: Inference) -> None:
    shape = ctx.shape()
    classes = ctx.attr("cats_int64s") or ctx.attr("cats_strings") or ()
    ctx.set(0, F32, None if shape is None else (*shape, len(classes)))


def _linear_regressor(ctx: Inference) -> None:
    shape = ctx.shape()
    rows: Dim = ctx.fresh() if shape is None else shape[0] if len(shape) > 1 else 1
    ctx.set(0, F32, (rows, int(ctx.attr("targets"))))


def _linear_classifier(ctx: Inference) -> None:
    shape = ctx.shape()
    words = ctx.attr("classlabels_strings")
    labels = len(words or ctx.attr("classlabels_ints") or ())
    rows: Dim = ctx.fresh() if shape is None else shape[0] if len(shape) > 1 else 1
    ctx.set(0, STR if words else I64, (rows,))
    ctx.set(1, F32, (rows, max(labels, 1)))


def _svm_regressor(ctx: Inference) -> None:
    shape = ctx.shape()
    rows: Dim = ctx.fresh() if shape is None else shape[0] if len(shape) > 1 else 1
    ctx.set(0, F32, (rows, 1))


def _svm_classifier(ctx: Inference) -> None:
    """Probabilities of the classes, or scores of their pairs, two where there is one pair."""
    shape, words = ctx.shape(), ctx.attr("classlabels_strings")
    classes = len(words or ctx.attr("classlabels_ints") or ())
    rows: Dim = ctx.fresh() if shape is None else shape[0] if len(shape) > 1 else 1
    pairs = bool(ctx.attr("vectors_per_class")) and not ctx.attr("prob_a") and classes > 2
    ctx.set(0, STR if words and classes > 1 else I64, (rows,))
    ctx.set(1, F32, (rows, classes * (classes - 1) // 2 if pairs else max(classes, 1)))


def _vectorizer(ctx: Inference) -> None:
    shape = ctx.shape()
    rows: Dim = ctx.fresh() if shape is None else shape[0] if len(shape) > 1 else 1
    ctx.set(0, F32, (rows, sum(int(n) for n in ctx.attr("inputdimensions") or ())))


def _zip_map(ctx: Inference) -> None:
    """A sequence of maps, one a row: from the labels to the row's numbers."""
    shape, labels = ctx.shape(), ctx.attr("classlabels_strings") or ctx.attr("classlabels_int64s") or ()
    if shape and isinstance(shape[-1], int) and shape[-1] != len(labels):
        raise ctx.error(f"{len(labels)} labels for {shape[-1]} numbers a row")
    ctx.set(0, HANDLE, ())


def _category_mapper(ctx: Inference) -> None:
    ctx.set(0, I64 if ctx.dtype() == STR else STR, ctx.shape())


declare(DOMAIN + "ArrayFeatureExtractor", "X Y", "aicpu", _features)
declare(DOMAIN + "Binarizer", "X", "aicpu", same, {"threshold": 0.0})
declare(DOMAIN + "Scaler", "X", "aicpu", _f32, {"offset": FLOATS, "scale": FLOATS})
declare(DOMAIN + "Normalizer", "X", "aicpu", _f32, {"norm": "MAX"})
declare(
    DOMAIN + "Imputer", "X", "aicpu", same,
    {"imputed_value_floats": FLOATS, "imputed_value_int64s": INTS, "replaced_value_float": 0.0,
     "replaced_value_int64": 0},
)  # fmt: skip
declare(
    DOMAIN + "LabelEncoder", "X", "aicpu", _label_encoder,
    {"default_float": FLOAT, "default_int64": INT, "default_string": STRING, "default_tensor": TENSOR,
     "keys_floats": FLOATS, "keys_int64s": INTS, "keys_strings": STRINGS, "keys_tensor": TENSOR,
     "values_floats": FLOATS, "values_int64s": INTS, "values_strings": STRINGS, "values_tensor": TENSOR},
)  # fmt: skip
declare(
    DOMAIN + "OneHotEncoder", "X", "aicpu", _one_hot, {"cats_int64s": INTS, "cats_strings": STRINGS, "zeros": 1}
)
declare(
    DOMAIN + "LinearRegressor", "X", "aicpu", _linear_regressor,
    {"coefficients": FLOATS, "intercepts": FLOATS, "post_transform": "NONE", "targets": 1},
)  # fmt: skip
declare(
    DOMAIN + "LinearClassifier", "X", "aicpu", _linear_classifier,
    {"classlabels_ints": INTS, "classlabels_strings": STRINGS, "coefficients": FLOATS, "intercepts": FLOATS,
     "multi_class": 0, "post_transform": "NONE"},
)  # fmt: skip
declare(DOMAIN + "FeatureVectorizer", "X*", "aicpu", _vectorizer, {"inputdimensions": INTS})
declare(DOMAIN + "ZipMap", "X", "aicpu", _zip_map, {"classlabels_int64s": INTS, "classlabels_strings": STRINGS})
declare(
    DOMAIN + "CategoryMapper", "X", "aicpu", _category_mapper,
    {"cats_int64s": INTS, "cats_strings": STRINGS, "default_int64": -1, "default_string": "_Unused"},
)  # fmt: skip
declare(
    DOMAIN + "SVMRegressor", "X", "aicpu", _svm_regressor,
    {"coefficients": FLOATS, "kernel_params": FLOATS, "kernel_type": "LINEAR", "n_supports": 0, "one_class": 0,
     "post_transform": "NONE", "rho": FLOATS, "support_vectors": FLOATS},
)  # fmt: skip
declare(
    DOMAIN + "SVMClassifier", "X", "aicpu", _svm_classifier,
    {"classlabels_ints": INTS, "classlabels_strings": STRINGS, "coefficients": FLOATS, "kernel_params": FLOATS,
     "kernel_type": "LINEAR", "post_transform": "NONE", "prob_a": FLOATS, "prob_b": FLOATS, "rho": FLOATS,
     "support_vectors": FLOATS, "vectors_per_class": INTS},
)  # fmt: skip
