"""Rotary embedding: the ONNX operator in all its forms against float64, exporters' forms against onnxruntime, natively."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import atc
from acl_runtime import InferSession

RNG = np.random.default_rng(4)
node = helper.make_node


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def saved(
    folder: Path, nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, np.ndarray], outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None, dims: Mapping[str, Sequence[int | str]] | None = None,
    opset: int = 23,
) -> Path:  # fmt: skip
    """A model file; `dims` are declared shapes of inputs that are not those of the arrays."""
    wire = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), (dims or {}).get(name, a.shape))
        for name, a in inputs.items()
    ]
    initial = [numpy_helper.from_array(a, name) for name, a in (constants or {}).items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", wire, results, initial)
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
    return path


def exact(
    x: np.ndarray, cos: np.ndarray, sin: np.ndarray, positions: np.ndarray | None = None, *, num_heads: int = 0,
    interleaved: int = 0, rotary_embedding_dim: int = 0,
) -> np.ndarray:  # fmt: skip
    """The operator in complex numbers: channel pairs (a, b) as a + ib, times cos + i sin."""
    result = x.astype(np.float64)
    if x.ndim == 3:
        result = np.moveaxis(result.reshape(*x.shape[:2], num_heads, -1), 2, 1)
    result = result.copy()
    width = rotary_embedding_dim or result.shape[-1]
    angle = cos.astype(np.float64) + 1j * sin.astype(np.float64)
    angle = angle if positions is None else angle[positions]
    first, second = (
        (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(width // 2), slice(width // 2, width))
    )
    turned = (result[..., first] + 1j * result[..., second]) * angle[:, None]
    result[..., first], result[..., second] = turned.real, turned.imag
    return np.moveaxis(result, 1, 2).reshape(x.shape) if x.ndim == 3 else result


def angles(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    turn = RNG.uniform(-4, 4, shape)
    return np.cos(turn).astype(np.float32), np.sin(turn).astype(np.float32)


FORMS = [{"interleaved": i, "rotary_embedding_dim": d} for i in (0, 1) for d in (0, 4, 6)]


@pytest.mark.parametrize("flat", [False, True], ids=["4-D", "3-D"])
@pytest.mark.parametrize("size", [8, 7])
def test_every_form_of_the_operator(tmp_path: Path, flat: bool, size: int) -> None:
    """With positions into a cache of 9 rows, and without, where the cache has a row per token."""
    batch, heads, length = 2, 3, 5
    x = normal(batch, length, heads * size) if flat else normal(batch, heads, length, size)
    inputs = {"x": x, "positions": RNG.integers(0, 9, (batch, length))}
    constants, nodes, expected = {}, [], {}
    for number, form in enumerate(FORMS):
        width = form["rotary_embedding_dim"] or size
        if width % 2:
            continue
        attrs = {**form, **({"num_heads": heads} if flat else {})}
        for kind, shape in (("table", (9, width // 2)), ("rows", (batch, length, width // 2))):
            name = f"{kind}{number}"
            cos, sin = angles(*shape)
            constants.update({f"{name}_cos": cos, f"{name}_sin": sin})
            operands = ["x", f"{name}_cos", f"{name}_sin", *(["positions"] if kind == "table" else [])]
            nodes.append(node("RotaryEmbedding", operands, [name], **attrs))
            expected[name] = exact(x, cos, sin, inputs["positions"] if kind == "table" else None, **attrs)
    path = saved(tmp_path, nodes, inputs, list(expected), constants)
    made = atc.convert(path, tmp_path / "m.om")
    assert not made.aicpu_nodes
    got = InferSession(0, tmp_path / "m.om").infer(inputs)
    for (name, want), result in zip(expected.items(), got, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5, err_msg=name)


def test_run_time_shapes_and_rows_gathered_once(tmp_path: Path) -> None:
    """Two layers: two Gathers and a kernel per layer."""
    cos, sin = angles(50, 8)
    dims = {"x": ["batch", "tokens", 48], "p": ["batch", "tokens"]}
    sample = {"x": normal(1, 1, 48), "p": np.array([[3]])}
    nodes = [
        node("RotaryEmbedding", ["x", "cos", "sin", "p"], ["y"], num_heads=3),
        node("RotaryEmbedding", ["y", "cos", "sin", "p"], ["z"], num_heads=3),
    ]
    path = saved(tmp_path, nodes, sample, ["z"], {"cos": cos, "sin": sin}, dims)
    made = atc.convert(path, tmp_path / "m.om")
    assert not made.aicpu_nodes and made.kernels == 4
    session = InferSession(0, tmp_path / "m.om")
    for batch, tokens in ((1, 1), (2, 37), (3, 1)):
        x, p = normal(batch, tokens, 48), RNG.integers(0, 50, (batch, tokens))
        want = exact(exact(x, cos, sin, p, num_heads=3), cos, sin, p, num_heads=3)
        np.testing.assert_allclose(session.infer({"x": x, "p": p})[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats(tmp_path: Path, dtype: type) -> None:
    cos, sin = (a.astype(dtype) for a in angles(2, 5, 8))
    inputs = {"x": normal(2, 3, 5, 16).astype(dtype), "cos": cos, "sin": sin}
    path = saved(tmp_path, [node("RotaryEmbedding", ["x", "cos", "sin"], ["y"])], inputs, ["y"])
    assert not atc.convert(path, tmp_path / "m.om").aicpu_nodes
    (got,) = InferSession(0, tmp_path / "m.om").infer(inputs)
    want = exact(inputs["x"], cos, sin)
    # Two products and a sum, each rounded.
    step = float(ml_dtypes.finfo(dtype).eps)
    assert np.abs(got.astype(np.float64) - want).max() < 3 * step * np.abs(want).max()


END = np.array([np.iinfo(np.int64).max], np.int64)
NUMBERS = {f"n{i}": np.array([i], np.int64) for i in (0, 1, 2, 4, 8)} | {
    "end": END, "last": np.array([-1], np.int64), "one": np.array([1], np.int64), "parts": np.array([8, 8], np.int64),
    "pair": np.array([0, 0, 0, -1], np.int64),
}  # fmt: skip
HALVES = [
    node("Slice", ["x", "n0", "n8", "last", "one"], ["a"]), node("Slice", ["x", "n8", "end", "last", "one"], ["b"]),
]  # fmt: skip
ROTATE = [node("Neg", ["b"], ["m"]), node("Concat", ["m", "a"], ["r"], axis=-1)]
SUM = [node("Mul", ["x", "c"], ["p"]), node("Mul", ["r", "s"], ["q"]), node("Add", ["p", "q"], ["y"])]
HEADS = [node("Transpose", ["x0"], ["x"], perm=[0, 2, 1, 3])]
EXPORTED = {
    "rotate half": [*HEADS, *HALVES, *ROTATE, *SUM],
    "split": [*HEADS, node("Split", ["x", "parts"], ["a", "b"], axis=-1), *ROTATE, *SUM],
    "even and odd": [
        *HEADS, node("Slice", ["x", "n0", "end", "last", "n2"], ["a"]),
        node("Slice", ["x", "n1", "end", "last", "n2"], ["b"]), node("Neg", ["b"], ["m"]),
        node("Unsqueeze", ["m", "last"], ["mu"]), node("Unsqueeze", ["a", "last"], ["au"]),
        node("Concat", ["mu", "au"], ["rr"], axis=-1), node("Reshape", ["rr", "pair"], ["r"]), *SUM,
    ],
    "some channels": [
        *HEADS, node("Slice", ["x", "n0", "n8", "last", "one"], ["t"]),
        node("Slice", ["x", "n8", "end", "last", "one"], ["rest"]),
        node("Slice", ["t", "n0", "n4", "last", "one"], ["a"]), node("Slice", ["t", "n4", "end", "last", "one"], ["b"]),
        *ROTATE, node("Mul", ["t", "c8"], ["p"]), node("Mul", ["r", "s8"], ["q"]), node("Add", ["p", "q"], ["o"]),
        node("Concat", ["o", "rest"], ["y"], axis=-1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTED)
def test_exporters_forms(tmp_path: Path, name: str) -> None:
    inputs = {"x0": normal(2, 5, 3, 16)}
    wide = {n: normal(1, 1, 5, w) for n, w in (("c", 16), ("s", 16), ("c8", 8), ("s8", 8))}
    used = {i for n in EXPORTED[name] for i in n.input}
    inputs.update((n, a) for n, a in wide.items() if n in used)
    constants = {n: a for n, a in NUMBERS.items() if n in used}
    dims = {n: ["batch" if d == 2 else "tokens" if d == 5 else d for d in a.shape] for n, a in inputs.items()}
    path = saved(tmp_path, EXPORTED[name], inputs, ["y"], constants, dims, opset=18)
    made = atc.convert(path, tmp_path / "m.om")
    assert not made.aicpu_nodes and made.kernels == 1
    theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)
    (ours,) = InferSession(0, tmp_path / "m.om").infer(inputs)
    np.testing.assert_allclose(ours, theirs[0], rtol=1e-6, atol=1e-6)
