"""MobileNetV2 (Sandler et al. 2018): inverted residuals with depthwise convolutions and ReLU6 as Clip."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from models.builders.conv_layers import classifier, conv_norm
from models.builders.graph_writer import GraphWriter

# expansion, output channels, repeats, stride of the first
BLOCKS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
HE = 2**0.5


def _relu6(g: GraphWriter, x: str) -> str:
    return g.op("Clip", x, g.constant(0.0, np.float32), g.constant(6.0, np.float32))


def build(seed: int = 1, classes: int = 1000) -> onnx.ModelProto:
    """input f32 [1, 3, 224, 224] → logits f32 [1, classes]; Conv without bias and BatchNormalization nodes."""
    g = GraphWriter("mobilenetv2", seed)
    x = g.input("input", TensorProto.FLOAT, [1, 3, 224, 224])
    x = _relu6(g, conv_norm(g, x, 3, 32, 3, stride=2))
    channels = 32
    for expansion, width, repeats, first_stride in BLOCKS:
        for i in range(repeats):
            stride = first_stride if i == 0 else 1
            inner = channels * expansion
            y = x
            if expansion != 1:
                y = _relu6(g, conv_norm(g, y, channels, inner, 1))
            y = _relu6(g, conv_norm(g, y, inner, inner, 3, stride=stride, groups=inner, gain=HE))
            residual = stride == 1 and channels == width
            y = conv_norm(g, y, inner, width, 1, gain=HE, scale=0.4 if residual else 1.0)
            x = g.op("Add", x, y) if residual else y
            channels = width
    x = _relu6(g, conv_norm(g, x, channels, 1280, 1))
    g.output(classifier(g, x, 1280, classes), "logits", TensorProto.FLOAT, [1, classes])
    return g.model()
