"""Single operators by the names, inputs and attributes of Ascend's IR, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from acl_runtime import InferSession
from atc.single_operator import compile_operator
from tensor_types.dtypes import from_numpy

RANDOM = np.random.default_rng(1)
A, B = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((4, 6), (6, 4)))
C = RANDOM.standard_normal((1, 4, 6, 5)).astype(np.float32)
W = RANDOM.standard_normal((3, 4, 3, 2)).astype(np.float32)
I32 = np.int32


def ints(*values):
    return np.array(values, I32)


def conv(x, w):
    """Padding 1 above, 0 below, 2 on the left, 1 on the right, strides 2 and 1."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::2]
    return np.einsum("ncyxij,ocij->noyx", windows, w)


def layer_norm(x):
    mean, variance = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5), mean, variance


TOP = np.argsort(-A, 1)[:, :3]
CASES = {
    "GEMM": ([A, A, np.eye(4, dtype="f"), np.float32(2), np.float32(3)], {}, {"transpose_b": True},
             [2 * A @ A.T + 3 * np.eye(4)]),
    "TransposeD": ([A], {}, {"perm": [1, 0]}, [A.T]),
    "Transpose": ([A, ints(1, 0)], {1}, {}, [A.T]),
    "ReduceSum": ([A, ints(1)], {1}, {"keep_dims": False}, [A.sum(1)]),
    "ReduceMaxD": ([A], {}, {"axes": [0], "keep_dims": True}, [A.max(0, keepdims=True)]),
    "ConcatD": ([A, A], {}, {"concat_dim": 1, "N": 2}, [np.concatenate([A, A], 1)]),
    "ConcatV2": ([A, A, ints(0)], {2}, {}, [np.concatenate([A, A], 0)]),
    "TopKV2": ([A, ints(3)], {1}, {"sorted": True}, [np.take_along_axis(A, TOP, 1), TOP.astype(I32)]),
    "GatherV2": ([A, ints(2, 0), ints(1)], {2}, {}, [A[:, [2, 0]]]),
    "LayerNorm": ([A, np.ones(6, "f"), np.zeros(6, "f")], {}, {"begin_norm_axis": 1, "epsilon": 1e-5},
                  list(layer_norm(A))),
    "Pad": ([A, ints(1, 0, 2, 3).reshape(2, 2)], {1}, {}, [np.pad(A, ((1, 0), (2, 3)))]),
    "StridedSliceD": ([A], {}, {"begin": [0, 1], "end": [4, 6], "strides": [1, 2]}, [A[:, 1:6:2]]),
    "Conv2D": ([C, W], {}, {"strides": [1, 1, 2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 1, 1, 1]}, [conv(C, W)]),
    "FastGelu": ([A], {}, {}, [A / (1 + np.exp(-1.702 * A))]),
    "Relu6": ([8 * A], {}, {}, [np.clip(8 * A, 0, 6)]),
    "AddN": ([A, A, A], {}, {"N": 3}, [3 * A]),
    "ExpandDims": ([A, ints(1)], {1}, {}, [A[:, None]]),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_an_operator(tmp_path, kind):
    given, constant, attributes, wanted = CASES[kind]
    given, wanted = [np.asarray(x) for x in given], [np.asarray(y) for y in wanted]
    wanted = [y.astype(np.float32) if y.dtype.kind == "f" else y for y in wanted]
    inputs, outputs = ([(from_numpy(x.dtype), x.shape) for x in xs] for xs in (given, wanted))
    compile_operator(tmp_path / "o.om", kind, inputs, outputs, attributes, {n: given[n] for n in constant})
    session = InferSession(0, tmp_path / "o.om")
    results = session.infer([x for n, x in enumerate(given) if n not in constant])
    for got, want in zip(results, wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "attributes", "said"),
    [
        ("Addd", {}, "there is no operator Addd, did you mean Add?"),
        ("GatherV2", {}, "axis is no constant"),
        ("Conv2D", {"data_format": "NHWC"}, "Conv2D in NHWC: give NCHW"),
        ("StridedSliceD", {"begin": [0], "end": [1], "strides": [1], "end_mask": 1}, "StridedSlice with end_mask"),
    ],
)
def test_what_an_operator_cannot_be(tmp_path, kind, attributes, said):
    tensor = (from_numpy(np.dtype("f")), (4, 6))
    with pytest.raises(LookupError, match=said.replace("?", r"\?")):
        compile_operator(tmp_path / "o.om", kind, [tensor] * 3, [tensor], attributes, {})
