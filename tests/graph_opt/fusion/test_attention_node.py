"""The ONNX Attention node as converted: native forms against the standard's reference, reasons for the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import atc
from acl_runtime import InferSession
from graph_opt.fusion.fuse_attention import FuseAttention
from graph_opt.ir.text import parse
from tests.graph_opt.families import OWN

RNG = np.random.default_rng(6)
OPERANDS = ["q", "k", "v", "m", "pk", "pv", "lengths"]


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def saved(
    folder: Path, inputs: Mapping[str, np.ndarray], dims: Mapping[str, Sequence[int | str]], outputs: Sequence[str],
    opset: int = 24, **attrs: Any,
) -> Path:  # fmt: skip
    """A model of one Attention node; absent operands have no name."""
    operands = [n if n in inputs else "" for n in OPERANDS]
    while not operands[-1]:
        operands.pop()
    wire = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), dims.get(n, a.shape))
        for n, a in inputs.items()
    ]
    results = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph([helper.make_node("Attention", operands, list(outputs), **attrs)], "g", wire, results)
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
    return path


def agrees(path: Path, feeds: Sequence[Mapping[str, np.ndarray]], kernels: int) -> None:
    made = atc.convert(path, path.with_suffix(".om"))
    assert not made.aicpu_nodes and made.kernels == kernels
    session, reference = InferSession(0, path.with_suffix(".om")), ReferenceEvaluator(str(path))
    for feed in feeds:
        for got, want in zip(session.infer(dict(feed)), reference.run(None, dict(feed)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_decoding_with_a_cache_of_any_length(tmp_path: Path) -> None:
    """Four copies write the present once, one kernel reads it."""
    dims = {n: ["b", "s", w] for n, w in (("q", 64), ("k", 16), ("v", 16))}
    dims.update({n: ["b", 2, "past", 8] for n in ("pk", "pv")})

    def feed(b: int, s: int, past: int) -> dict[str, np.ndarray]:
        return {"q": normal(b, s, 64), "k": normal(b, s, 16), "v": normal(b, s, 16), "pk": normal(b, 2, past, 8),
                "pv": normal(b, 2, past, 8)}  # fmt: skip

    path = saved(tmp_path, feed(1, 1, 1), dims, ["y", "nk", "nv"], q_num_heads=8, kv_num_heads=2, is_causal=1)
    agrees(path, [feed(1, 1, 1), feed(2, 1, 70), feed(1, 6, 13), feed(2, 3, 0)], 5)


@pytest.mark.parametrize("boolean", [False, True])
def test_a_mask_shorter_than_the_keys_hides_the_rest(tmp_path: Path, boolean: bool) -> None:
    inputs = {"q": normal(1, 2, 3, 8), "k": normal(1, 2, 9, 8), "v": normal(1, 2, 9, 8), "m": normal(3, 5)}
    if boolean:
        inputs["m"] = inputs["m"] > -0.5
        inputs["m"][:, 0] = True
    agrees(saved(tmp_path, inputs, {}, ["y"]), [inputs], 2)


def test_a_mask_whose_length_only_the_run_knows(tmp_path: Path) -> None:
    dims = {"q": [1, 2, "s", 8], "k": [1, 2, "s", 8], "v": [1, 2, "s", 8], "m": ["s", "total"],
            "pk": [1, 2, "past", 8], "pv": [1, 2, "past", 8]}  # fmt: skip

    def feed(s: int, past: int, total: int) -> dict[str, np.ndarray]:
        shapes = {n: [{"s": s, "past": past, "total": total}.get(d, d) for d in shape] for n, shape in dims.items()}
        return {n: normal(*shape) for n, shape in shapes.items()}

    path = saved(tmp_path, feed(1, 1, 2), dims, ["y", "nk", "nv"])
    agrees(path, [feed(1, 4, 5), feed(3, 7, 10), feed(2, 7, 6), feed(2, 7, 1)], 6)


def cache_of_fixed_size(rows: int, lengths: list[int], masked: str = "") -> dict[str, np.ndarray]:
    """Queries, a cache of 9 keys of which `lengths` are valid, and a mask of some dtype."""
    b = len(lengths)
    feed = {"q": normal(b, 4, rows, 8), "k": normal(b, 2, 9, 8), "v": normal(b, 2, 9, 8)}
    if masked:
        mask = normal(rows, 9)
        feed["m"] = mask > -0.5 if masked == "bool" else mask
    return {**feed, "lengths": np.array(lengths)}


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", ["", "bool", "float"])
def test_lengths_by_batch(tmp_path: Path, masked: str, causal: int) -> None:
    """A batch without valid keys gives 0."""
    inputs = cache_of_fixed_size(3, [9, 3, 5, 0], masked)
    path = saved(tmp_path, inputs, {}, ["y"], is_causal=causal)
    made = atc.convert(path, path.with_suffix(".om"))
    assert not made.aicpu_nodes
    (got,) = InferSession(0, path.with_suffix(".om")).infer(inputs)
    (want,) = ReferenceEvaluator(str(path)).run(None, inputs)
    assert not want[3].any()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


WINDOWED = {"left": {"left_window_size": 2}, "both": {"left_window_size": 0, "right_window_size": 1},
            "causal": {"left_window_size": 3, "is_causal": 1}}  # fmt: skip


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 25, reason="this onnx does not know windows")
@pytest.mark.parametrize("attrs", WINDOWED.values(), ids=WINDOWED)
def test_windows(tmp_path: Path, attrs: dict[str, int]) -> None:
    opset = onnx.defs.onnx_opset_version()
    inputs = {"q": normal(2, 2, 4, 8), "k": normal(2, 2, 4, 8), "v": normal(2, 2, 4, 8), "pk": normal(2, 2, 6, 8),
              "pv": normal(2, 2, 6, 8)}  # fmt: skip
    agrees(saved(tmp_path, inputs, {}, ["y", "nk", "nv"], opset=opset, **attrs), [inputs], 5)


def test_lengths_and_a_window_of_run_time_sizes(tmp_path: Path) -> None:
    """What counts positions is for the AI CPU; the attention is not."""
    dims = {"q": ["b", 4, "s", 8], "k": ["b", 2, "t", 8], "v": ["b", 2, "t", 8], "lengths": ["b"]}
    first = cache_of_fixed_size(1, [4])
    path = saved(tmp_path, first, dims, ["y"], is_causal=1)
    made = atc.convert(path, path.with_suffix(".om"))
    assert {n["op"] for n in made.aicpu_nodes} <= {"Shape", "Range"}
    session, reference = InferSession(0, path.with_suffix(".om")), ReferenceEvaluator(str(path))
    for feed in (first, cache_of_fixed_size(3, [9, 3]), cache_of_fixed_size(9, [9])):
        np.testing.assert_allclose(session.infer(feed)[0], reference.run(None, feed)[0], rtol=1e-4, atol=1e-5)


def test_a_primitive_mask_broadcasts(tmp_path: Path) -> None:
    """The mask of primitive operators is no Attention's: one column stands for all keys, and -inf alone gives NaN."""
    text = (
        "graph g(%q: f32[b, 2, s, 8], %k: f32[b, 2, t, 8], %v: f32[b, 2, t, 8], %m: f32[s, total]) -> (%y) {\n"
        "  %kt = Transpose(%k) {perm=[0, 1, 3, 2]}\n  %a = MatMul(%q, %kt)\n  %c = Add(%a, %m)\n"
        "  %p = Softmax(%c) {axis=-1}\n  %y = MatMul(%p, %v) @node\n}\n"
    )
    graph = parse(text)
    assert FuseAttention(OWN).apply(graph)
    assert [n.op for n in graph.nodes] == ["Fused"] and graph.nodes[0].attrs["softmax_of_nothing"] == "nan"


REFUSED = {
    "scores": ("%q, %k, %v", "{}", "%y, %pk, %pv, %s", "its scores are a result"),
    "past alone": ("%q, %k, %v, _, %k, %v", "{}", "%y", "nothing uses the present"),
    "run-time heads": ("%u, %k, %v", "{}", "%y", "of Q is not static"),
}


@pytest.mark.parametrize("operands,attrs,results,reason", REFUSED.values(), ids=REFUSED)
def test_reasons_for_the_ai_cpu(operands: str, attrs: str, results: str, reason: str) -> None:
    graph = parse(
        f"graph g(%q: f32[1, 2, 3, 8], %k: f32[1, 2, 5, 8], %v: f32[1, 2, 5, 8], %u: f32[1, h, 3, 8])"
        f" -> ({results}) {{\n  {results} = Attention({operands}) {attrs} @node\n}}\n"
    )
    fusion = FuseAttention(OWN)
    assert not fusion.apply(graph)
    assert reason in fusion.declined["node"]
