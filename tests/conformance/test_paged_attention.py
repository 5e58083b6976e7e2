"""PagedAttention of com.microsoft against numpy: onnxruntime has it for other devices only.

The reference goes token by token and head by head, in float64: it knows neither blocks of keys nor chunks of tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import atc
from acl_runtime import InferSession
from tensor_types.errors import InvalidModel, OpenAtcError

RNG = np.random.default_rng(3)
NAMES = ("query key value key_cache value_cache starts past table cos sin slots sink q_norm k_norm").split()


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """The first elements of a head [size] turned in pairs."""
    half = len(cos)
    x, n = x.copy(), 2 * half
    first, second = (slice(0, n, 2), slice(1, n, 2)) if interleaved else (slice(0, half), slice(half, n))
    a, b = x[first].copy(), x[second].copy()
    x[first], x[second] = a * cos - b * sin, b * cos + a * sin
    return x


def reference(given: dict[str, np.ndarray], attrs: dict[str, Any]) -> list[np.ndarray]:
    heads, kv_heads = attrs["num_heads"], attrs["kv_num_heads"]
    dtype = given["query"].dtype
    wide = {n: a.astype(np.float64) if a.dtype.kind not in "iu" else a for n, a in given.items()}
    size, page = given["key_cache"].shape[3], given["key_cache"].shape[1]
    tokens = len(given["query"])
    if "key" not in given and attrs.get("kv_cache_layout") != "LATENT":
        edges = np.cumsum([heads * size, kv_heads * size])
        wide["query"], wide["key"], wide["value"] = np.split(wide["query"], edges, axis=1)
    caches = [given[n].copy() for n in ("key_cache", "value_cache") if n in given]
    made = np.zeros((tokens, heads, attrs.get("v_head_size") or size))
    q = wide["query"].reshape(tokens, heads, size)
    new = [wide[n].reshape(tokens, kv_heads, size) for n in ("key", "value") if n in wide]
    places = []
    for b, past in enumerate(given["past"]):
        places += [(b, past + i) for i in range(given["starts"][b + 1] - given["starts"][b])]

    def prepared(x: np.ndarray, weight: str, position: int) -> np.ndarray:
        if weight in wide:
            x = x / np.sqrt(np.mean(x * x) + attrs.get("qk_norm_epsilon", 1e-6)) * wide[weight]
            x = x.astype(dtype).astype(np.float64)
        if attrs.get("do_rotary"):
            x = turned(x, wide["cos"][position], wide["sin"][position], bool(attrs.get("rotary_interleaved")))
            x = x.astype(dtype).astype(np.float64)
        return x

    for t, (b, position) in enumerate(places):
        slot = given["table"][b, position // page] * page + position % page
        if "slots" in given:
            slot = given["slots"][t]
        if slot < 0:
            continue
        for h in range(kv_heads):
            caches[0][slot // page, slot % page, h] = prepared(new[0][t, h], "k_norm", position)
            if len(new) > 1:
                caches[1][slot // page, slot % page, h] = new[1][t, h]
    for t, (b, position) in enumerate(places):
        end = given["past"][b] + given["starts"][b + 1] - given["starts"][b]
        last = position + 1 if attrs.get("is_causal", 1) else end
        window = attrs.get("local_window_size", -1)
        seen = range(max(0, position - window + 1) if window > 0 else 0, last)
        for h in range(heads):
            g = h // (heads // kv_heads)
            rows = [(given["table"][b, j // page], j % page, g) for j in seen]
            k = np.array([caches[0][r] for r in rows], np.float64)
            v = np.array([caches[-1][r] for r in rows], np.float64)[:, : made.shape[2]]
            scores = k @ prepared(q[t, h], "q_norm", position) * (attrs.get("scale") or size**-0.5)
            if cap := attrs.get("softcap", 0.0):
                scores = np.tanh(scores / cap) * cap
            extra = wide["sink"][h] if "sink" in wide else -np.inf
            top = max(scores.max(), extra)
            weights = np.exp(scores - top)
            made[t, h] = weights @ v / (weights.sum() + np.exp(extra - top))
    return [made.reshape(tokens, -1).astype(dtype), *caches]


def case(
    new: list[int], past: list[int], heads: int = 4, kv_heads: int = 2, size: int = 16, page: int = 8,
    dtype: Any = np.float32, *, packed: bool = False, rotary: int = 0, slots: bool = False, sink: bool = False,
    norm: bool = False, latent: int = 0, spare: int = 2,
) -> dict[str, np.ndarray]:  # fmt: skip
    def f(*shape: int) -> np.ndarray:
        return RNG.standard_normal(shape).astype(dtype)

    tokens, totals = sum(new), np.add(new, past)
    most = int(-(-max(totals) // page)) + 1
    used = [int(-(-t // page)) for t in totals]
    free = list(RNG.permutation(sum(used) + spare))
    table = np.full((len(new), most), -1, np.int32)
    for b, count in enumerate(used):
        table[b, :count] = [free.pop() for _ in range(count)]
    given = {"query": f(tokens, heads * size)}
    if packed:
        given["query"] = f(tokens, (heads + 2 * kv_heads) * size)
    else:
        given["key"] = f(tokens, kv_heads * size)
        if not latent:
            given["value"] = f(tokens, kv_heads * size)
    for name in ("key_cache", "value_cache")[: 1 if latent else 2]:
        given[name] = f(sum(used) + spare, page, kv_heads, size)
    given["starts"] = np.cumsum([0, *new]).astype(np.int32)
    given["past"], given["table"] = np.array(past, np.int32), table
    if rotary:
        angles = RNG.uniform(0, 6, (most * page, rotary // 2))
        given["cos"], given["sin"] = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
    if slots:
        where = [(b, p + i) for b, (n, p) in enumerate(zip(new, past, strict=True)) for i in range(n)]
        given["slots"] = np.array([table[b, i // page] * page + i % page for b, i in where], np.int32)
    if sink:
        given["sink"] = f(heads)
    if norm:
        given["q_norm"], given["k_norm"] = f(size), f(size)
    return given


_FREE = {"query": ["t"], "key": ["t"], "value": ["t"], "slots": ["t"], "starts": ["c"], "past": ["b"], "table": ["b", "m"]}


def model(given: dict[str, np.ndarray], **attrs: Any) -> onnx.ModelProto:
    """The node over inputs whose numbers of tokens, sequences and pages of a sequence the run decides."""
    names = ["" if n not in given else n for n in NAMES]
    while not names[-1]:
        names.pop()
    kinds = {n: onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in given.items()}
    inputs = [
        onnx.helper.make_tensor_value_info(n, kinds[n], [*_FREE.get(n, []), *a.shape[len(_FREE.get(n, [])) :]])
        for n, a in given.items()
    ]
    outputs = ["y", *(f"{n}_out" for n in ("key_cache", "value_cache") if n in given)]
    node = onnx.helper.make_node("PagedAttention", names, outputs, domain="com.microsoft", **attrs)
    results = [onnx.helper.make_tensor_value_info(n, kinds["query"], None) for n in outputs]
    graph = onnx.helper.make_graph([node], "paged", inputs, results)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def ours(given: dict[str, np.ndarray], attrs: dict[str, Any], folder: Path) -> list[np.ndarray]:
    """The results by a converted package, of whose tasks none is left to the AI CPU."""
    onnx.save(model(given, **attrs), folder / "m.onnx")
    report = atc.convert(folder / "m.onnx", folder / "m.om")
    assert not report.aicpu_nodes
    return InferSession(0, folder / "m.om").infer(given)


TWO = {"num_heads": 4, "kv_num_heads": 2}
MIXED = ([1, 70, 3, 0, 30], [5, 40, 300, 3, 0])
CASES: dict[str, tuple[dict[str, np.ndarray], dict[str, Any]]] = {
    "decode": (case([1, 1, 1], [0, 7, 20]), TWO),
    "mixed": (case(*MIXED, slots=True), TWO),
    "packed_rotary": (case(*MIXED, packed=True, rotary=16), {**TWO, "do_rotary": 1}),
    "interleaved": (case([2, 9], [3, 0], rotary=8), {**TWO, "do_rotary": 1, "rotary_interleaved": 1, "scale": 0.4}),
    "window": (case(*MIXED, sink=True), {**TWO, "local_window_size": 9, "softcap": 2.0}),
    "sink": (case(*MIXED, sink=True, page=16), TWO),
    "norms": (case([2, 9], [3, 0], norm=True), {**TWO, "qk_norm_epsilon": 1e-3}),
    "both_ways": (case([2, 9, 70], [3, 0, 5], page=24), {**TWO, "is_causal": 0}),
    "latent": (case(*MIXED, kv_heads=1, latent=12),
               {**TWO, "kv_num_heads": 1, "kv_cache_layout": "LATENT", "v_head_size": 12, "scale": 0.25}),
    "halves": (case(*MIXED, dtype=np.float16, rotary=16, sink=True), {**TWO, "do_rotary": 1}),
    "bfloat16": (case([1, 20], [30, 0], dtype=ml_dtypes.bfloat16), TWO),
}  # fmt: skip
LONG = {"packed_rotary", "interleaved", "both_ways", "bfloat16", "norms"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] if n in LONG else []) for n in CASES])
def test_against_numpy(name: str, tmp_path: Path) -> None:
    given, attrs = CASES[name]
    step = {4: 1e-5, 2: float(ml_dtypes.finfo(given["query"].dtype).eps)}[given["query"].dtype.itemsize]
    for want, got in zip(reference(given, attrs), ours(given, attrs, tmp_path), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=4 * step, atol=2 * step)


def test_a_slot_of_minus_one_takes_no_row(tmp_path: Path) -> None:
    """The caches stay as they are, and the attention reads what the pages held before."""
    given = case([1, 4], [5, 9], slots=True)
    given["slots"][:3] = -1
    want, found = reference(given, TWO), ours(given, TWO, tmp_path)
    for a, b in zip(want, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=2e-5)


def test_what_leads_out_of_the_pages_ends_the_run(tmp_path: Path) -> None:
    given = case([1, 4], [5, 9], slots=True)
    onnx.save(model(given, **TWO), tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    session = InferSession(0, tmp_path / "m.om")
    wanted = session.infer(given)
    for name, place, number in (("table", 0, 99), ("table", 0, -1), ("past", -1, 400), ("slots", -1, 4000), ("starts", -1, 77)):
        bad = given[name].copy()
        bad.reshape(-1)[place] = number
        with pytest.raises(OpenAtcError, match="out of range"):
            session.infer({**given, name: bad})
    for a, b in zip(wanted, session.infer(given), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("attrs", "words"), [
    ({"k_quant_type": "PER_TENSOR"}, "a quantised cache"), ({"kv_num_heads": 3}, "4 heads"),
    ({"kv_cache_layout": "LATENT"}, "a latent cache"), ({"do_rotary": 1, "rotary_offset": 8}, "a rotation"),
])  # fmt: skip
def test_what_is_not_computed_is_refused(attrs: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=words):
        ours(case([1], [3], rotary=16), {**TWO, **attrs}, tmp_path)
