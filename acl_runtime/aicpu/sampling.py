"""Random numbers: RandomNormal, RandomUniform, Bernoulli, Multinomial, Dropout. A seed decides them, in every run."""

from __future__ import annotations

import numpy as np

from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from tensor_types.dtypes import from_onnx


def _generator(attrs: Attrs) -> np.random.Generator:
    seed = attrs.get("seed")
    return np.random.default_rng(None if seed is None else int(np.float32(seed).view(np.uint32)))


def _dtype(attrs: Attrs, default: np.dtype) -> np.dtype:
    number = attrs.get("dtype")
    return from_onnx(int(number)).numpy if number else default


@implementation("RandomNormal", "RandomNormalLike")
def _normal(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    shape = np.shape(inputs[0]) if inputs else tuple(attrs["shape"])
    kind = _dtype(attrs, np.asarray(inputs[0]).dtype if inputs else np.dtype(np.float32))
    values = _generator(attrs).normal(attrs.get("mean", 0.0), attrs.get("scale", 1.0), shape)
    return np.asarray(values).astype(kind)


@implementation("RandomUniform", "RandomUniformLike")
def _uniform(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    shape = np.shape(inputs[0]) if inputs else tuple(attrs["shape"])
    kind = _dtype(attrs, np.asarray(inputs[0]).dtype if inputs else np.dtype(np.float32))
    values = _generator(attrs).uniform(attrs.get("low", 0.0), attrs.get("high", 1.0), shape)
    return np.asarray(values).astype(kind)


@implementation("Bernoulli")
def _bernoulli(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    chance = np.asarray(inputs[0])
    drawn = _generator(attrs).random(chance.shape) < chance.astype(np.float64)
    return np.asarray(drawn).astype(_dtype(attrs, chance.dtype))


@implementation("Multinomial")
def _multinomial(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    logits = np.asarray(inputs[0]).astype(np.float64)
    count = int(attrs.get("sample_size", 1))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    bounds = np.cumsum(weights, axis=1)
    draws = _generator(attrs).random((len(logits), count)) * bounds[:, -1:]
    chosen = [np.searchsorted(row, draw, side="right") for row, draw in zip(bounds, draws, strict=True)]
    return np.array(chosen, _dtype(attrs, np.dtype(np.int32))).reshape(len(logits), count)


@implementation("Dropout")
def _dropout(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, Array]:
    """In training mode what is kept is scaled; the mask is the one that ONNX's reference draws for the seed."""
    data, ratio, training = np.asarray(inputs[0]), get(inputs, 1), get(inputs, 2)
    part = 0.5 if ratio is None else float(np.asarray(ratio))
    if training is None or not np.asarray(training).any() or part == 0:
        return data, np.ones(data.shape, np.bool_)
    seed = attrs.get("seed")
    mask = np.random.RandomState(None if seed is None else int(seed) % (1 << 32)).uniform(0, 1, data.shape) >= part
    scale = 1 / (1 - part)
    return (mask * data.astype(np.float64) * scale).astype(data.dtype), mask
