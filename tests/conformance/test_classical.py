"""ai.onnx.ml through the product against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import atc
from acl_runtime import InferSession

rng = np.random.default_rng(3)
X = rng.standard_normal((4, 3)).astype(np.float32)
HOLES = np.where(X > 0.5, np.nan, X).astype(np.float32)
W2, W1 = rng.standard_normal(6).tolist(), rng.standard_normal(3).tolist()
WORDS = np.array([["a"], ["c"], ["zz"]], object)
SUPPORT = rng.standard_normal(12).tolist()
SVC: dict[str, Any] = {"coefficients": rng.standard_normal(8).tolist(), "support_vectors": SUPPORT, "vectors_per_class": [1, 2, 1],
                       "rho": [0.1, -0.2, 0.3], "kernel_type": "RBF", "kernel_params": [0.4, 0.0, 3.0]}  # fmt: skip
PAIR: dict[str, Any] = {**SVC, "coefficients": rng.standard_normal(4).tolist(), "vectors_per_class": [2, 2], "rho": [0.1]}
Case = tuple[str, list[np.ndarray], dict[str, Any], int]
CASES: list[Case] = [
    ("ArrayFeatureExtractor", [X, np.array([2, 0])], {}, 1), ("Binarizer", [X], {"threshold": 0.1}, 1),
    ("Scaler", [X], {"offset": [0.1, 0.2, 0.3], "scale": [1.0, 2.0, 0.5]}, 1),
    ("Scaler", [rng.integers(-5, 5, (4, 3))], {"offset": [1.0], "scale": [2.0]}, 1),
    ("Normalizer", [np.abs(X)], {"norm": "MAX"}, 1), ("Normalizer", [X], {"norm": "L1"}, 1),
    ("Normalizer", [X], {"norm": "L2"}, 1),
    ("Imputer", [HOLES], {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")}, 1),
    ("Imputer", [np.array([[1, -1], [-1, 4]])], {"imputed_value_int64s": [7], "replaced_value_int64": -1}, 1),
    ("LabelEncoder", [WORDS], {"keys_strings": ["a", "b", "c"], "values_int64s": [0, 1, 2], "default_int64": 42}, 1),
    ("LabelEncoder", [np.array([3, 9])], {"keys_int64s": [3, 4], "values_strings": ["x", "y"]}, 1),
    ("LabelEncoder", [np.array([1.5, np.nan, 8], np.float32)],
     {"keys_floats": [1.5, float("nan")], "values_floats": [10.0, 20.0], "default_float": -3.0}, 1),
    ("LabelEncoder", [WORDS], {"classes_strings": ["a", "b", "c"], "default_int64": 9}, 1),
    ("LabelEncoder", [np.array([2, 7])], {"classes_strings": ["a", "b", "c"], "default_string": "none"}, 1),
    ("OneHotEncoder", [np.array([1, 5, 3])], {"cats_int64s": [1, 3, 5], "zeros": 1}, 1),
    ("OneHotEncoder", [WORDS], {"cats_strings": ["a", "b", "c"], "zeros": 1}, 1),
    ("LinearRegressor", [X], {"coefficients": W2, "intercepts": [0.5, -0.5], "targets": 2}, 1),
    ("LinearClassifier", [X], {"coefficients": W2 + W1, "intercepts": [0.1, 0.2, 0.3], "classlabels_ints": [4, 5, 6],
                               "post_transform": "SOFTMAX"}, 2),
    ("LinearClassifier", [X], {"coefficients": [-w for w in W1] + W1, "intercepts": [-0.1, 0.1],
                               "classlabels_strings": ["no", "yes"], "post_transform": "LOGISTIC"}, 2),
    ("FeatureVectorizer", [X, X[:, :2]], {"inputdimensions": [3, 2]}, 1),
    ("CategoryMapper", [WORDS], {"cats_strings": ["a", "b", "c"], "cats_int64s": [1, 2, 3], "default_int64": 7}, 1),
    ("CategoryMapper", [np.array([[1], [9]])], {"cats_strings": ["a", "b"], "cats_int64s": [1, 2]}, 1),
    *(("SVMRegressor", [X], {"coefficients": W1 + W2[:1], "support_vectors": SUPPORT, "n_supports": 4, "rho": [0.3],
                              "kernel_type": kernel, "kernel_params": [0.4, 0.2, 2.0], "one_class": one}, 1)
      for kernel, one in (("RBF", 0), ("POLY", 0), ("SIGMOID", 0), ("LINEAR", 1))),
    ("SVMRegressor", [X], {"coefficients": W1, "rho": [0.3], "kernel_type": "LINEAR", "kernel_params": [0.0] * 3}, 1),
    ("SVMClassifier", [X], {**SVC, "classlabels_ints": [4, 5, 6]}, 2),
    ("SVMClassifier", [X], {**SVC, "classlabels_strings": ["a", "b", "c"], "prob_a": W1, "prob_b": [0.1, 0.2, 0.3]}, 2),
    ("SVMClassifier", [X], {**PAIR, "classlabels_ints": [3, 8]}, 2),
    ("SVMClassifier", [X], {**PAIR, "classlabels_ints": [3, 8], "prob_a": [-1.5], "prob_b": [0.1]}, 2),
    ("SVMClassifier", [X], {"coefficients": W2 + W1, "rho": [0.1], "classlabels_ints": [4, 5, 6],
                        "kernel_type": "LINEAR", "kernel_params": [0.0] * 3, "post_transform": "SOFTMAX"}, 2),
    ("ZipMap", [X], {"classlabels_strings": ["a", "b", "c"]}, 1), ("ZipMap", [X], {"classlabels_int64s": [3, 4, 5]}, 1),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_as_onnxruntime(tmp_path: Path, case: Case) -> None:
    op, inputs, attrs, count = case
    names, outputs = [f"x{k}" for k in range(len(inputs))], [f"y{k}" for k in range(count)]
    kinds = [8 if a.dtype == object else helper.np_dtype_to_tensor_dtype(a.dtype) for a in inputs]
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, domain="ai.onnx.ml", **attrs)], "g",
        [helper.make_tensor_value_info(n, k, a.shape) for n, k, a in zip(names, kinds, inputs, strict=True)],
        [onnx.ValueInfoProto(name=o) for o in outputs],
    )  # fmt: skip
    version = 1 if "classes_strings" in attrs else 3
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    got = InferSession(0, tmp_path / "m.om").infer(inputs)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, dict(zip(names, inputs, strict=True)))
    for g, w in zip(got, want, strict=True):
        if isinstance(w, list):  # maps
            assert g == w
            continue
        assert np.shape(g) == np.shape(w)
        if np.asarray(w).dtype.kind in "OUS":
            assert np.asarray(g).tolist() == np.asarray(w).tolist()
        else:
            assert g.dtype == w.dtype
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
