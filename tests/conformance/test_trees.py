"""Tree ensembles through the product against onnxruntime, natively: comparisons, missing values, classes, aggregates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import atc
from acl_runtime import InferSession

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEATURES = 5


def forest(kind: str, trees: int, depth: int, targets: Any, modes: tuple[str, ...] = MODES[:1]) -> dict[str, Any]:
    """Attributes of random trees; `targets` gives those of the leaves of a tree. Thresholds are eighths."""
    rng = np.random.default_rng(0)
    nodes: dict[str, list] = {name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids",
                                                    "falsenodeids", "missing_value_tracks_true")}  # fmt: skip
    leaves: dict[str, list] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree: int, left: int, used: list[int]) -> int:
        number, place = len(used), len(nodes["modes"])
        used.append(number)
        is_leaf = left == 0 or (left < depth and rng.random() < 0.2)
        row = (tree, number, int(rng.integers(FEATURES)), "LEAF" if is_leaf else str(rng.choice(modes)),
               float(np.round(rng.standard_normal() * 8) / 8), 0, 0, int(rng.random() < 0.5))  # fmt: skip
        for column, value in zip(nodes.values(), row, strict=True):
            column.append(value)
        for target in targets(tree) if is_leaf else ():
            for column, value in zip(leaves.values(), (tree, number, target, rng.standard_normal()), strict=True):
                column.append(value)
        if not is_leaf:
            nodes["truenodeids"][place] = grow(tree, left - 1, used)
            nodes["falsenodeids"][place] = grow(tree, left - 1, used)
        return number

    for tree in range(trees):
        grow(tree, depth, [])
    return {**{f"nodes_{k}": v for k, v in nodes.items()}, **{f"{kind}_{k}": v for k, v in leaves.items()}}


def rows(count: int) -> np.ndarray:
    """Features in eighths, so that some meet a threshold; every seventh is missing."""
    rng = np.random.default_rng(1)
    x = np.round(rng.standard_normal((count, FEATURES)) * 8) / 8
    return np.where(rng.random(x.shape) < 1 / 7, np.nan, x).astype(np.float32)


def check(op: str, attrs: dict[str, Any], folder: Path, counts: tuple[int, ...] = (1, 37, 0)) -> None:
    """The same labels and scores as onnxruntime, on kernels alone."""
    outputs = ["y"] if op.endswith("Regressor") else ["label", "scores"]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attrs)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", FEATURES])],
        [onnx.ValueInfoProto(name=o) for o in outputs],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    onnx.save(model, folder / "m.onnx")
    assert not atc.convert(folder / "m.onnx", folder / "m.om").aicpu_nodes
    session, reference = InferSession(0, folder / "m.om"), onnxruntime.InferenceSession(folder / "m.onnx")
    for count in counts:
        x = rows(count)
        for ours, theirs in zip(session.infer([x]), reference.run(None, {"x": x}), strict=True):
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


LONG = pytest.mark.long


@pytest.mark.parametrize("modes", [MODES, *(pytest.param(m, marks=LONG) for m in (MODES[:1], MODES[4:5], MODES[5:]))])
def test_comparisons(modes: tuple[str, ...], tmp_path: Path) -> None:
    attrs = forest("target", 13, 4, lambda tree: [tree % 3], modes)
    check("TreeEnsembleRegressor", {**attrs, "n_targets": 3}, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("aggregate", ["AVERAGE", "MIN", "MAX"])
def test_aggregates(aggregate: str, tmp_path: Path) -> None:
    attrs = forest("target", 20, 3, lambda tree: [0])
    more = {"n_targets": 1, "aggregate_function": aggregate, "base_values": [0.5]}
    check("TreeEnsembleRegressor", {**attrs, **more}, tmp_path, (5,))


@pytest.mark.parametrize(
    "transform", ["SOFTMAX", *(pytest.param(t, marks=LONG) for t in ("NONE", "LOGISTIC", "SOFTMAX_ZERO"))]
)
def test_classes(transform: str, tmp_path: Path) -> None:
    attrs = forest("class", 9, 4, lambda tree: [0, 1, 2])
    more = {"classlabels_int64s": [5, 7, 9], "post_transform": transform, "base_values": [0.1, 0.2, 0.3]}
    check("TreeEnsembleClassifier", {**attrs, **more}, tmp_path, (9,))


@pytest.mark.parametrize("positive", [False, pytest.param(True, marks=LONG)])
@pytest.mark.parametrize(("column", "transform"), [
    (0, "LOGISTIC"), pytest.param(0, "NONE", marks=LONG), pytest.param(1, "NONE", marks=LONG),
    pytest.param(1, "SOFTMAX", marks=LONG),
])  # fmt: skip
def test_two_classes_of_one_score(column: int, transform: str, positive: bool, tmp_path: Path) -> None:
    attrs = forest("class", 6, 3, lambda tree: [column])
    if positive:
        attrs["class_weights"] = [abs(w) / 8 for w in attrs["class_weights"]]
    more = {"classlabels_int64s": [0, 1], "post_transform": transform}
    check("TreeEnsembleClassifier", {**attrs, **more, **({} if column else {"base_values": [0.2]})}, tmp_path, (31,))


def test_a_tree_that_leads_back_to_itself_is_refused(tmp_path: Path) -> None:
    attrs = forest("target", 1, 2, lambda tree: [0])
    attrs["nodes_truenodeids"] = [0] * len(attrs["nodes_truenodeids"])
    with pytest.raises(Exception, match="lead back"):
        check("TreeEnsembleRegressor", {**attrs, "n_targets": 1}, tmp_path)
