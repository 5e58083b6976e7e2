"""What a package says of AI CPU tasks is checked when it is read: every declared operator, and what each rule refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packages import host, write

from acl_runtime import InferSession
from acl_runtime.aicpu import evaluate, implemented_ops
from acl_runtime.aicpu.schema_table import ROWS
from acl_runtime.aicpu.schemas import Operand, check_task
from acl_runtime.om import PackageError
from graph_opt.plan import ValueInfo
from tensor_types.dtypes import F32
from tensor_types.errors import ResourceLimit
from tests.hostile import aicpu
from tests.runtime.test_aicpu import CASES

F, INDEX, IMAGE = Operand("f", 2), Operand("i", 1), Operand("f", 4)
_NEG = {"op": "Neg", "attrs": {}, "inputs": ["a"], "outputs": ["b"]}


def body(**changed: Any) -> dict[str, Any]:
    return {"inputs": ["a"], "outputs": ["b"], "nodes": [_NEG], "constants": {}, "types": []} | changed


def test_every_operator_has_a_schema_or_stands_in_no_package() -> None:
    """What folds constants of older forms alone has none; operators of users are checked by their own declarations."""
    own = {op for op in implemented_ops() if op.rpartition("::")[0] in ("", "com.microsoft", "ai.onnx.ml")}
    assert own - set(ROWS) == {"Scatter", "SimplifiedLayerNormalization"}


def test_tasks_that_are_right_in_onnxruntime_are_taken() -> None:
    compared = {op for op, *_ in CASES}
    for op in compared:
        for attrs, inputs, n_outputs in aicpu.seeds()[op]:
            check_task(op, attrs, [aicpu._known(value) for value in inputs], n_outputs)


@pytest.mark.parametrize("op", ["ReduceLogSum", "ReduceLogSumExp", "Erf"])
def test_dtypes_that_only_older_opsets_have_are_taken(op: str) -> None:
    check_task(op, {}, [Operand("i", 2)], 1)


@pytest.mark.parametrize(
    ("op", "attrs", "inputs", "n_outputs", "reason"),
    [
        ("NoSuch", {}, [F], 1, "no implementation of NoSuch"),
        ("Relu", {}, [], 1, "operand 0 is missing"),
        ("Relu", {}, [F, F], 1, "2 operands, it takes 1"),
        ("Relu", {}, [Operand("s", 1)], 1, "dtype that it does not take"),
        ("Relu", {"alpha": 1.0}, [F], 1, "no attribute alpha"),
        ("Softmax", {"axis": "1"}, [F], 1, "axis is not of type int"),
        ("Softmax", {"axis": True}, [F], 1, "axis is not of type int"),
        ("Softmax", {"axis": 2}, [F], 1, "axis 2 is outside rank 2"),
        ("OneHot", {"axis": 2}, [Operand("i", 1), INDEX, F], 1, "axis 2 is outside rank 1"),
        ("Transpose", {"perm": [0, 0]}, [F], 1, "no order of 2 axes"),
        ("Conv", {"strides": [0, 1]}, [IMAGE, IMAGE], 1, "strides holds 0"),
        ("Conv", {"strides": [1]}, [IMAGE, IMAGE], 1, "strides has 1 numbers, expected are 2"),
        ("Conv", {"pads": [1, 1]}, [IMAGE, IMAGE], 1, "pads has 2 numbers, expected are 4"),
        ("Conv", {}, [IMAGE, F], 1, "operand 1 is of rank 2, expected is 4"),
        ("Conv", {"auto_pad": "SOME"}, [IMAGE, IMAGE], 1, "auto_pad is 'SOME'"),
        ("Cast", {}, [F], 1, "attribute to is missing"),
        ("Cast", {"to": 99}, [F], 1, "which is no dtype"),
        ("Elu", {"alpha": [1.0]}, [F], 1, "alpha is not of type float"),
        ("ConstantOfShape", {"value": {"dtype": "f32", "shape": [2], "values": [1]}}, [INDEX], 1, "without its values"),
        ("ConstantOfShape", {"value": {"dtype": "u8", "shape": [1], "values": [300]}}, [INDEX], 1, "not of u8"),
        ("ConstantOfShape", {"value": {"dtype": "handle", "shape": [], "values": [1]}}, [INDEX], 1, "no dtype"),
        ("Fused", {"body": body()}, [F, F], 1, "takes 1 tensors and gets 2"),
        ("Fused", {"body": body(outputs=["c"])}, [F], 1, "gives c, which is not defined"),
        ("Fused", {"body": body(nodes=[{**_NEG, "inputs": ["z"]}])}, [F], 1, "uses z, which is not defined"),
        ("Fused", {"body": body(nodes=[{**_NEG, "op": "Cast"}])}, [F], 1, "Fused: Cast: attribute to is missing"),
        ("Fused", {"body": body()}, [F], 2, "makes 1 tensors, expected are 2"),
        ("Fused", {"body": body(constants={"k": 3})}, [F], 1, "k is no tensor"),
        ("Fused", {}, [F], 1, "attribute body is missing"),
        ("QuantizeBlocks", {}, [F], 1, "attribute block_size is missing"),
        ("If", {"then_branch": body(), "else_branch": body()}, [Operand("b", 0)], 1, "takes 1 tensors and gets 0"),
        ("Loop", {"body": body(), "captured": ["a", "b"]}, [INDEX], 1, "captured values are not among"),
        ("Scan", {"body": body(), "num_scan_inputs": 3}, [F], 1, "num_scan_inputs is 3, there are 1"),
    ],
)
def test_each_rule_refuses(
    op: str, attrs: dict[str, Any], inputs: list[Operand | None], n_outputs: int, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        check_task(op, attrs, inputs, n_outputs)


def test_bodies_nest_to_a_depth() -> None:
    inner = body()
    for _ in range(40):
        inner = body(nodes=[{"op": "Fused", "attrs": {"body": inner}, "inputs": ["a"], "outputs": ["b"]}])
    with pytest.raises(ValueError, match="nested deeper than 32"):
        check_task("Fused", {"body": inner}, [F], 1)


def test_a_wrong_task_is_refused_before_anything_runs(tmp_path: Path) -> None:
    values = [ValueInfo("x", F32, (2, 2), "input"), ValueInfo("y", F32, (2, 2), "temporary")]
    write(tmp_path / "m.om", values, [host("Softmax", ["x"], ["y"], axis=7)], ["x"], ["y"])
    with pytest.raises(PackageError, match="Softmax: axis 7 is outside rank 2 .node host_Softmax"):
        InferSession(0, tmp_path / "m.om")


def test_changed_tasks_of_every_operator_end_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENATC_LIMITS", "tensor_bytes=1e6,run_seconds=1")
    case, seen = aicpu.Case(Path()), set()
    for number, op in enumerate(case.ops * 6):
        seen.add(case.changed(random.Random(f"each {number}"), op))
    assert {"ran", "refused", "E13014", "E14001"} >= seen >= {"ran", "refused", "E13014"}


def test_a_count_of_n_grams_costs_what_its_words_allow() -> None:
    attrs = {"min_gram_length": 1, "max_gram_length": 1 << 30, "max_skip_count": 1 << 30, "mode": "TF",
             "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2], "pool_int64s": [1, 2, 1, 3]}  # fmt: skip
    assert evaluate("TfIdfVectorizer", attrs, [np.array([1, 3, 2])])[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("op", "attrs", "inputs"),
    [
        ("Add", {}, [np.ones((1 << 17, 1), np.float32), np.ones((1, 1 << 17), np.float32)]),
        ("MatMul", {}, [np.ones((1 << 17, 1), np.float32), np.ones((1, 1 << 17), np.float32)]),
        ("Gather", {}, [np.ones((1, 1 << 17), np.float32), np.zeros(1 << 17, np.int64)]),
        ("RoiAlign", {"output_height": 1 << 30}, [np.ones((1, 1, 2, 2), np.float32), np.ones((1, 4)), np.zeros(1)]),
        ("RoiAlign", {}, [np.ones((1, 1, 2, 2), np.float32), np.array([[0, 0, 1e30, 1]]), np.zeros(1)]),
        ("MoeRoute", {"experts": 1 << 31}, [np.zeros((1, 1), np.int64)]),
        ("AffineGrid", {}, [np.ones((1, 2, 3), np.float32), np.array([1, 1, 1 << 20, 1 << 20])]),
        ("MelWeightMatrix", {}, [np.array(1 << 20), np.array(1 << 20), np.array(1), np.array(0.0), np.array(1.0)]),
    ],
)
def test_small_operands_of_large_results_are_counted(op: str, attrs: dict[str, Any], inputs: list[Any]) -> None:
    with pytest.raises(ResourceLimit, match="bytes of one result"):
        evaluate(op, json.loads(json.dumps(attrs)), inputs)


def test_blocks_larger_than_a_product_take_no_memory() -> None:
    operands = [np.ones((1, 2), np.float32), np.ones((2, 3), np.int8), np.ones((1, 3), np.float32)]
    assert evaluate("BlockMatMul", {"block_size": 1 << 30}, operands)[0].tolist() == [[2, 2, 2]]


def _tree(depth: int) -> list[np.ndarray]:
    """One row over one tree of a leaf: x, records, thresholds, weights, roots, depths, targets."""
    node = np.zeros(1, np.int64)
    return [np.ones((1, 1), np.float32), node, np.full(1, np.inf, np.float32), np.full((1, 1), 3, np.float32),
            np.zeros((1, 1), np.int64), np.array([depth]), node]  # fmt: skip


def test_a_walk_through_a_tree_is_no_longer_than_the_tree() -> None:
    attrs = {"features": 1, "results": 1, "shift": 8, "aggregate": "SUM"}
    assert evaluate("Trees", attrs, _tree(1 << 60))[0].tolist() == [[3]]


def test_results_of_trees_are_asked_for_before_they_are_made() -> None:
    attrs = {"features": 1, "results": (1 << 31) - 1, "shift": 8, "aggregate": "SUM"}
    with pytest.raises(ResourceLimit, match="bytes of one result"):
        evaluate("Trees", attrs, [np.ones((4, 1), np.float32), *_tree(1)[1:]])
