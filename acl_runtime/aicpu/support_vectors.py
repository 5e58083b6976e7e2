"""ai.onnx.ml: machines of support vectors, and linear ones in their words."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from acl_runtime.aicpu.classical import DOMAIN, transformed
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, implementation
from tensor_types.errors import InvalidModel


@implementation(DOMAIN + "SVMRegressor")
def _regressor(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    rows, weights = _rows(inputs[0]), _numbers(attrs, "coefficients")
    count = int(attrs.get("n_supports", 0))
    if count:
        sums = _kernel(rows, _table(attrs, "support_vectors", count), attrs) @ _sized(weights, count)
    else:
        sums = rows @ _sized(weights, rows.shape[1])
    sums = (sums + _numbers(attrs, "rho")[0])[:, None]
    if attrs.get("one_class", 0):
        return np.where(sums > 0, 1, -1).astype(np.float32)
    return transformed(sums, str(attrs.get("post_transform", "NONE")))


@implementation(DOMAIN + "SVMClassifier")
def _classifier(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, Array]:
    words = attrs.get("classlabels_strings")
    labels = np.array(list(words), object) if words else np.array(list(attrs.get("classlabels_ints") or ()), np.int64)
    rows, sizes = _rows(inputs[0]), [int(n) for n in attrs.get("vectors_per_class") or ()]
    classes, likely = max(len(labels), 1), bool(attrs.get("prob_a")) and sum(sizes) > 0
    if sum(sizes):
        scores, votes = _duels(rows, sizes, attrs)
        scores = _probabilities(scores, len(sizes), attrs) if likely else scores
    else:
        scores = rows @ _table(attrs, "coefficients", classes).T + _numbers(attrs, "rho")[0]
        votes = scores
    chosen = votes.argmax(1)
    if len(labels) == 2 and not likely and len(_numbers(attrs, "rho")) == 1:
        positive = _numbers(attrs, "coefficients").min() >= 0
        chosen = np.where(positive & (votes.max(1) >= 0.5), 1, chosen)
    if len(labels) < 2 and scores.shape[1] == 1:
        return (scores[:, 0] > 0).astype(np.int64), scores
    if scores.shape[1] == 1:
        scores = np.concatenate([-scores, scores], 1)
    return labels[chosen], transformed(scores, str(attrs.get("post_transform", "NONE")))


def _duels(rows: Array, sizes: list[int], attrs: Attrs) -> tuple[Array, Array]:
    """For each pair of classes its score [rows, pairs], above 0 for the first; duels won [rows, classes]."""
    ends = np.cumsum([0, *sizes])
    kernel = _kernel(rows, _table(attrs, "support_vectors", int(ends[-1])), attrs)
    weights, rho = _table(attrs, "coefficients", len(sizes) - 1), _numbers(attrs, "rho")
    scores, votes = [], np.zeros((len(rows), len(sizes)), np.float32)
    for pair, (i, j) in enumerate(combinations(range(len(sizes)), 2)):
        one, two = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        score = kernel[:, one] @ weights[j - 1, one] + kernel[:, two] @ weights[i, two] + rho[pair]
        votes[:, i] += score > 0
        votes[:, j] += score <= 0
        scores.append(score)
    return np.stack(scores, 1), votes


def _probabilities(scores: Array, classes: int, attrs: Attrs) -> Array:
    """Of the classes, from those of the pairs: the second method of Wu, Lin and Weng (2004)."""
    a, b = _numbers(attrs, "prob_a"), _numbers(attrs, "prob_b")
    of_first = np.clip(1 / (1 + np.exp(scores.astype(np.float64) * a + b)), 1e-7, 1 - 1e-7)
    wins = np.zeros((len(scores), classes, classes))
    for pair, (i, j) in enumerate(combinations(range(classes), 2)):
        wins[:, i, j], wins[:, j, i] = of_first[:, pair], 1 - of_first[:, pair]
    losses = wins.transpose(0, 2, 1)
    form = -losses * wins  # minimise p' form p over probabilities p
    form[:, range(classes), range(classes)] = np.square(losses).sum(2)
    found = np.full((len(scores), classes), 1 / classes)
    for p, q in zip(found, form, strict=True):
        for _ in range(max(100, classes)):
            slope = q @ p
            value = p @ slope
            if np.abs(slope - value).max() < 0.005 / classes:
                break
            for t in range(classes):
                step = (value - slope[t]) / q[t, t]
                p[t] += step
                value = (value + step * (step * q[t, t] + 2 * slope[t])) / (1 + step) ** 2
                slope = (slope + step * q[t]) / (1 + step)
                p /= 1 + step
    return found.astype(np.float32)


def _kernel(rows: Array, vectors: Array, attrs: Attrs) -> Array:
    """[rows, vectors]."""
    if vectors.shape[1] != rows.shape[1]:
        raise InvalidModel(f"{rows.shape[1]} features, the support vectors have {vectors.shape[1]}",
                           remedy="give as many features")  # fmt: skip
    kind, given = str(attrs.get("kernel_type", "LINEAR")), attrs.get("kernel_params") or (0.0, 0.0, 0.0)
    gamma, constant, degree = (np.float32(v) for v in given)
    if kind == "RBF":
        return np.exp(-gamma * np.square(rows[:, None] - vectors).sum(2))
    products = rows @ vectors.T
    if kind == "LINEAR":
        return products
    if kind == "POLY":
        return (gamma * products + constant) ** degree
    if kind == "SIGMOID":
        return np.tanh(gamma * products + constant)
    raise InvalidModel(f"the kernel {kind} is not known", remedy="export with LINEAR, POLY, RBF or SIGMOID")


def _rows(data: Any) -> Array:
    return np.atleast_2d(np.asarray(data)).astype(np.float32)


def _numbers(attrs: Attrs, name: str) -> Array:
    found = np.asarray(attrs.get(name) or (), np.float32)
    if not found.size:
        raise InvalidModel(f"the attribute {name} is missing", remedy="export the model again")
    return found


def _sized(numbers: Array, count: int) -> Array:
    if len(numbers) != count:
        raise InvalidModel(f"{len(numbers)} coefficients, {count} are needed", remedy="export the model again")
    return numbers


def _table(attrs: Attrs, name: str, rows: int) -> Array:
    numbers = _numbers(attrs, name)
    if rows < 1 or numbers.size % rows:
        raise InvalidModel(f"{numbers.size} {name} do not make {rows} rows", remedy="export the model again")
    return numbers.reshape(rows, -1)
