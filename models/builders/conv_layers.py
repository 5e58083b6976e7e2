"""Convolution with batch normalisation, apart or folded, and the classifier at the end."""

from __future__ import annotations

import numpy as np

from models.builders.graph_writer import GraphWriter

EPSILON = 1e-5


def conv_norm(
    g: GraphWriter,
    x: str,
    channels_in: int,
    channels_out: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    gain: float = 1.0,
    scale: float = 1.0,
    folded: bool = False,
) -> str:
    """x [N, channels_in, H, W] → Conv without bias → BatchNormalization with random statistics.

    `gain` is the standard deviation of the convolution's output for an input of unit mean square, `scale` that of the
    mean of gamma. `folded` gives the same function as one Conv with bias.
    """
    fan_in = channels_in // groups * kernel * kernel
    weight = g.normal(channels_out, channels_in // groups, kernel, kernel, std=gain / fan_in**0.5)
    if groups == 1:
        # ReLU leaves a positive mean; filters that sum to zero keep it from swamping the signal in deep stacks.
        weight -= weight.mean(axis=(1, 2, 3), keepdims=True)
    gamma = scale * g.uniform(0.7, 1.3, channels_out)
    beta = g.normal(channels_out, std=0.2)
    mean = g.normal(channels_out, std=0.2)
    variance = g.uniform(0.6, 1.5, channels_out)
    attributes = {
        "kernel_shape": [kernel, kernel],
        "strides": [stride, stride],
        "pads": [kernel // 2] * 4,
        "dilations": [1, 1],
        "group": groups,
    }
    if folded:
        factor = gamma / np.sqrt(variance + np.float32(EPSILON))
        bias = beta - mean * factor
        return g.op("Conv", x, g.weight(weight * factor[:, None, None, None]), g.weight(bias), **attributes)
    y = g.op("Conv", x, g.weight(weight), **attributes)
    statistics = [g.weight(a) for a in (gamma, beta, mean, variance)]
    return g.op("BatchNormalization", y, *statistics, epsilon=EPSILON)


def classifier(g: GraphWriter, x: str, channels: int, classes: int) -> str:
    """x [N, channels, H, W] → GlobalAveragePool → Flatten → Gemm (weights transposed) → [N, classes]."""
    pooled = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    weight = g.weight(g.normal(classes, channels, std=1.5 / channels**0.5))
    return g.op("Gemm", pooled, weight, g.weight(g.normal(classes, std=0.1)), transB=1)
