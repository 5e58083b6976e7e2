"""ResNet-50 (He et al. 2015, stride in the 3x3 as in version 1.5), batch normalisation folded or as nodes."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from models.builders.conv_layers import classifier, conv_norm
from models.builders.graph_writer import GraphWriter

# inner channels, blocks, stride of the first block
STAGES = [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]
HE = 2**0.5


def build(seed: int = 2, classes: int = 1000, folded: bool = True) -> onnx.ModelProto:
    """input f32 [1, 3, 224, 224] → logits f32 [1, classes].

    With one seed the folded model and the one with BatchNormalization nodes are the same function.
    """
    g = GraphWriter("resnet50" if folded else "resnet50_bn", seed)
    x = g.input("input", TensorProto.FLOAT, [1, 3, 224, 224])
    x = g.op("Relu", conv_norm(g, x, 3, 64, 7, stride=2, folded=folded))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for inner, blocks, first_stride in STAGES:
        for i in range(blocks):
            stride = first_stride if i == 0 else 1
            y = g.op("Relu", conv_norm(g, x, channels, inner, 1, gain=HE, folded=folded))
            y = g.op("Relu", conv_norm(g, y, inner, inner, 3, stride=stride, gain=HE, folded=folded))
            y = conv_norm(g, y, inner, inner * 4, 1, gain=HE, scale=0.4, folded=folded)
            if i == 0:
                x = conv_norm(g, x, channels, inner * 4, 1, stride=stride, gain=HE, folded=folded)
            channels = inner * 4
            x = g.op("Relu", g.op("Add", y, x))
    g.output(classifier(g, x, channels, classes), "logits", TensorProto.FLOAT, [1, classes])
    return g.model()
