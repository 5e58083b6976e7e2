"""Losses: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from typing import Any

import numpy as np

from acl_runtime.aicpu.reductions import wide
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation


def _likelihood_loss(log_probability: Array, target: Any, weight: Any, attrs: Attrs) -> Array:
    """log_probability [N, C, d...] at the classes of target [N, d...], negated, weighted by class and reduced."""
    target, ignored = np.asarray(target).astype(np.int64), attrs.get("ignore_index")
    used = np.ones(target.shape, np.bool_) if ignored is None else target != ignored
    classes = np.where(used, target, 0)
    picked = np.take_along_axis(log_probability, np.expand_dims(classes, 1), axis=1).squeeze(1)
    factors = np.where(used, 1.0 if weight is None else wide(weight)[classes], 0.0)
    loss = np.where(used, -picked * factors, 0.0)
    reduction = attrs.get("reduction", "mean")
    if reduction == "none":
        return loss
    return np.asarray(loss.sum() if reduction == "sum" else loss.sum() / factors.sum())


@implementation("NegativeLogLikelihoodLoss")
def _nll_loss(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.asarray(inputs[0])
    return _likelihood_loss(wide(array), inputs[1], get(inputs, 2), attrs).astype(array.dtype)


@implementation("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy_loss(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, Array]:
    array = np.asarray(inputs[0])
    x = wide(array)
    x = x - x.max(axis=1, keepdims=True)
    log_probability = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    loss = _likelihood_loss(log_probability, inputs[1], get(inputs, 2), attrs)
    return loss.astype(array.dtype), log_probability.astype(array.dtype)
