"""Nodes of several outputs of which only some are read: each that is left is the one that it was.

Every subset of outputs, the others unnamed or named and unread, against onnxruntime (onnx.reference where it has no
kernel), which always computes all of them.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import atc
from acl_runtime import InferSession

rng = np.random.default_rng(11)


def f(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


Case = tuple[str, str, int, list[Any], dict[str, Any], int]
"""op, domain, opset, inputs (the first is fed, the others are constants), attributes, outputs."""
CASES: list[Case] = [
    ("Split", "", 17, [f(6, 4), np.array([1, 3, 2])], {"axis": 0}, 3),
    ("Split", "", 17, [f(1, 6, 4), np.array([1, 3, 2])], {"axis": 1}, 3),
    ("Split", "", 17, [f(4, 6), np.array([1, 3, 2])], {"axis": 1}, 3),
    ("Split", "", 18, [f(7, 2)], {"axis": 0, "num_outputs": 3}, 3),
    ("Split", "", 11, [f(6, 4)], {"axis": 0}, 3),
    ("MaxPool", "", 12, [f(1, 2, 6, 6)], {"kernel_shape": [2, 2], "strides": [2, 2]}, 2),
    ("TopK", "", 11, [f(3, 8), np.array([3])], {"axis": 1}, 2),
    ("LSTM", "", 14, [f(3, 2, 4), f(1, 20, 4), f(1, 20, 5), f(1, 40)], {"hidden_size": 5}, 3),
    ("GRU", "", 14, [f(3, 2, 4), f(1, 15, 4), f(1, 15, 5), f(1, 30)], {"hidden_size": 5}, 2),
    ("RNN", "", 14, [f(3, 2, 4), f(1, 5, 4), f(1, 5, 5)], {"hidden_size": 5}, 2),
    ("LayerNormalization", "", 17, [f(3, 8), f(8), f(8)], {"axis": -1}, 3),
    ("BatchNormalization", "", 15, [f(4, 3, 5), f(3), f(3), f(3), np.abs(f(3))], {"training_mode": 1}, 3),
    ("DynamicQuantizeLinear", "", 17, [f(4, 5)], {}, 3),
    ("Unique", "", 17, [np.round(f(9))], {"sorted": 1}, 4),
    ("Dropout", "", 13, [f(4, 5)], {}, 2),
    ("Attention", "", 23, [f(1, 2, 3, 8), f(1, 2, 4, 8), f(1, 2, 4, 8)], {}, 1),
    ("SkipLayerNormalization", "com.microsoft", 1, [f(2, 3, 8), f(2, 3, 8), f(8), f(8)], {}, 4),
]
ONLY = {"SkipLayerNormalization": [0, 3]}
"""Outputs that onnxruntime computes at all outside of training."""


def subsets() -> list[tuple[int, tuple[int, ...], bool]]:
    found = []
    for number, case in enumerate(CASES):
        whole = ONLY.get(case[0], list(range(case[5])))
        for size in range(1, len(whole) + 1):
            for read in itertools.combinations(whole, size):
                found += [(number, read, named) for named in ((True, False) if len(read) < case[5] else (True,))]
    return found


def build(case: Case, read: tuple[int, ...], named: bool) -> onnx.ModelProto:
    op, domain, opset, inputs, attrs, count = case
    outputs = [f"y{k}" if named or k in read else "" for k in range(count)]
    while outputs and not outputs[-1] and op != "Split":
        outputs.pop()
    names = [f"x{k}" for k in range(len(inputs))]
    dtype = helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, domain=domain, **attrs)], "g",
        [helper.make_tensor_value_info("x0", dtype, inputs[0].shape)],
        [onnx.ValueInfoProto(name=f"y{k}") for k in read],
        [numpy_helper.from_array(a, n) for a, n in zip(inputs[1:], names[1:], strict=True)],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset if not domain else 17)]
    return helper.make_model(graph, opset_imports=imports + ([helper.make_opsetid(domain, 1)] if domain else []),
                             ir_version=8)  # fmt: skip


def expected(number: int) -> list[np.ndarray]:
    case = CASES[number]
    read = tuple(ONLY.get(case[0], range(case[5])))
    model = build(case, read, True)
    feeds = {"x0": case[3][0]}
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        found = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
    except Exception:  # no kernel, or a model without types of its outputs
        found = ReferenceEvaluator(model).run(None, feeds)
    return dict(zip(read, found, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize(("number", "read", "named"), subsets(),
                         ids=lambda v: str(v) if not isinstance(v, int) or isinstance(v, bool) else f"{v}{CASES[v][0]}")  # fmt: skip
def test_outputs_that_are_read_are_the_right_ones(tmp_path: Path, number: int, read: tuple[int, ...], named: bool) -> None:
    want = expected(number)
    (tmp_path / "m.onnx").write_bytes(build(CASES[number], read, named).SerializeToString())
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    found = InferSession(0, tmp_path / "m.om").infer([CASES[number][3][0]])
    for k, got in zip(read, found, strict=True):
        assert got.shape == want[k].shape and got.dtype == want[k].dtype
        np.testing.assert_allclose(got, want[k], rtol=1e-4, atol=1e-5)
