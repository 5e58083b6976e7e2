"""A small package with every feature, built the same way for all tests of this folder."""

from __future__ import annotations

import numpy as np

from acl_runtime.om import ConstDesc, FusedGraph, NodeDesc, TensorDesc

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
BIAS = np.arange(4, dtype=np.float16)


def graph() -> FusedGraph:
    """MatMul with an absent optional input, then a fused op of two outputs; names meant to collide with nodes."""
    x = TensorDesc("x", "f32", (-1, 3))
    y = TensorDesc("y", "f32", (-1, 4))
    z = TensorDesc("z", "f16", (-1, 4), "NCHW")
    index = TensorDesc("index", "i64", ())
    return FusedGraph(
        "sample",
        (x,),
        (z, index, z),
        (
            NodeDesc(
                "x",  # a node with the name of the input
                "MatMulV2",
                ("x", "w", ""),
                (y,),
                {"transpose_x1": False, "scale": 0.5, "note": "a\nb é", "pads": [0, -1, 2**40], "empty": []},
                ("Gemm_0", "Relu_1"),
            ),
            NodeDesc(
                "region:0", "OpenatcRegion", ("y", "b"), (z, index), {"ratio": [0.5, 2.0], "flags": [True, False]}
            ),
        ),
        (ConstDesc("w", "f32", (3, 4), 0, 48), ConstDesc("b", "f16", (4,), 64, 8)),
    )


def sections() -> dict[str, object]:
    return {
        "weights": iter([WEIGHT, bytes(16), BIAS]),
        "plan": b'{"tasks":[]}',
        "report": [],
        "class/x86_64-v4/programs": b"tile program",
        "class/x86_64-v4/objects": bytearray(b"\x7fELF" * 40),
        "class/x86_64-v4/weights": WEIGHT.T,
    }


HEADER = {"tool": "openatc 0", "flags": ["--soc_version=Ascend310P3"], "inputs": {"model": "0" * 64}}
