"""SparseAttention of com.microsoft against onnxruntime, whose past and present share a buffer.

onnxruntime 1.32 is fed one sequence at a time: of several of unlike lengths its second result is not the operator's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import atc
from acl_runtime import InferSession
from tensor_types.errors import InvalidModel

RNG = np.random.default_rng(4)
BLOCK, CAPACITY = 16, 96
NAMES = "query key value past_key past_value rows columns total lengths cos sin".split()


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def compressed(layouts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of truth values [layouts, blocks, blocks], filled up with -1."""
    counts = layouts.sum(axis=2).cumsum(axis=1)
    rows = np.concatenate([np.zeros((len(layouts), 1)), counts], axis=1).astype(np.int32)
    columns = np.full((len(layouts), counts[:, -1].max()), -1, np.int32)
    for line, layout in zip(columns, layouts, strict=True):
        found = np.nonzero(layout)[1]
        line[: len(found)] = found
    return rows, columns


def layouts_of(count: int) -> np.ndarray:
    """Own block and, of those before, some."""
    blocks = CAPACITY // BLOCK
    some = RNG.random((count, blocks, blocks)) < 0.5
    return np.tril(some) | np.eye(blocks, dtype=bool)


def case(lengths: list[int], new: int, layouts: int, packed: bool = False, rotary: bool = False) -> dict[str, np.ndarray]:
    batch, size = len(lengths), 32
    given = {"query": f(batch, new, (8 if packed else 4) * size)}
    if not packed:
        given |= {"key": f(batch, new, 2 * size), "value": f(batch, new, 2 * size)}
    given |= {"past_key": f(batch, 2, CAPACITY, size), "past_value": f(batch, 2, CAPACITY, size)}
    given["rows"], given["columns"] = compressed(layouts_of(layouts))
    given["total"], given["lengths"] = np.array([max(lengths)], np.int32), np.array(lengths, np.int32)
    if rotary:
        angles = RNG.uniform(0, 6, (CAPACITY, size // 2))
        given |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    return given


def model(given: dict[str, np.ndarray], constant: bool, **attrs: Any) -> onnx.ModelProto:
    names = ["" if n not in given else n for n in NAMES]
    while not names[-1]:
        names.pop()
    attrs = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": BLOCK, **attrs}
    outputs = ["y", "present_key", "present_value"]
    node = onnx.helper.make_node("SparseAttention", names, outputs, domain="com.microsoft", **attrs)
    fixed = ("rows", "columns") if constant else ()
    kinds = {n: onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in given.items()}
    shapes = {n: list(a.shape) for n, a in given.items()}
    for name in ("query", "key", "value"):
        if name in shapes:
            shapes[name][:2] = ["b", "s"]
    for name in ("past_key", "past_value", "lengths"):
        shapes[name][0] = "b"
    inputs = [onnx.helper.make_tensor_value_info(n, kinds[n], shapes[n]) for n in given if n not in fixed]
    results = [onnx.helper.make_tensor_value_info(n, kinds["query"], None) for n in outputs]
    constants = [onnx.numpy_helper.from_array(given[n], n) for n in fixed]
    graph = onnx.helper.make_graph([node], "sparse", inputs, results, constants)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def theirs(proto: onnx.ModelProto, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    alone = []
    for b, length in enumerate(given["lengths"]):
        batched = ("query", "key", "value", "past_key", "past_value", "lengths")
        own = {n: a[b : b + 1] if n in batched else a for n, a in given.items()}
        alone.append(of_one(proto, {**own, "total": np.array([length], np.int32)}))
    return [np.concatenate(parts) for parts in zip(*alone, strict=True)]


def of_one(proto: onnx.ModelProto, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    bound = session.io_binding()
    held = {i.name: given[i.name].copy() for i in session.get_inputs()}  # whose memory the values may share
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(a) for name, a in held.items()}
    for name, value in values.items():
        bound.bind_ortvalue_input(name, value)
    bound.bind_output("y")
    for which in ("key", "value"):
        bound.bind_ortvalue_output(f"present_{which}", values[f"past_{which}"])
    session.run_with_iobinding(bound)
    return [a.numpy().copy() for a in bound.get_outputs()]


@pytest.mark.parametrize(("lengths", "new", "layouts", "packed", "rotary", "constant"), [
    ([40, 40], 40, 2, False, True, True), ([90, 33], 1, 2, False, True, True), ([60, 41], 5, 4, True, False, False),
    ([50], 50, 1, True, True, False), ([90, 17], 1, 1, False, False, True),
])  # fmt: skip
def test_against_onnxruntime(
    lengths: list[int], new: int, layouts: int, packed: bool, rotary: bool, constant: bool, tmp_path: Path
) -> None:  # fmt: skip
    given = case(lengths, new, layouts, packed, rotary)
    proto = model(given, constant, do_rotary=int(rotary), scale=0.3)
    onnx.save(proto, tmp_path / "m.onnx")
    report = atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    assert not report.aicpu_nodes
    found = InferSession(0, tmp_path / "m.om").infer({i.name: given[i.name] for i in proto.graph.input})
    for want, got in zip(theirs(proto, given), found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)


def test_layouts_that_are_not_shared_evenly_are_refused(tmp_path: Path) -> None:
    onnx.save(model(case([20], 1, 3), False), tmp_path / "m.onnx")
    with pytest.raises(InvalidModel, match="4 heads of 3 layouts"):
        atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
