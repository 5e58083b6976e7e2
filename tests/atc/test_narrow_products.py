"""Weights of 2, 4 and 8 bits: multiplied from their own bytes, as onnxruntime does, in a package of their size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import atc
from acl_runtime import InferSession
from acl_runtime.om import WEIGHTS, open_package
from acl_runtime.strip_package import strip_package

_CONTRIB = {"domain": "com.microsoft"}


def save(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray | onnx.TensorProto], k: int, n: int,
         dtype: int = TensorProto.FLOAT) -> Path:  # fmt: skip
    """A model of x [m, k] to y [m, n]."""
    tensors = [w if isinstance(w, onnx.TensorProto) else numpy_helper.from_array(w, name) for name, w in weights.items()]
    x, y = (helper.make_tensor_value_info(name, dtype, ["m", size]) for name, size in (("x", k), ("y", n)))
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def n_bits(path: Path, k: int, n: int, block: int, bits: int, level: int = 0, zeros: str = "", bias: bool = False,
           dtype: int = TensorProto.FLOAT) -> Path:  # fmt: skip
    """A MatMulNBits; `zeros` are absent, 'codes' or 'numbers'."""
    rng, blocks, kind = np.random.default_rng(bits), -(-k // block), helper.tensor_dtype_to_np_dtype(dtype)
    weights = {
        "codes": rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "scales": (rng.random(n * blocks) * 0.01).astype(kind),
    }
    if zeros == "codes":
        weights["zeros"] = rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    elif zeros:
        weights["zeros"] = (rng.random((n, blocks)) * (1 << bits)).astype(kind)
    if bias:
        weights["bias"] = rng.random(n).astype(kind)
    names = ["x", "codes", "scales", "zeros" if zeros else "", "", "bias" if bias else ""]
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
    return save(path, [helper.make_node("MatMulNBits", names, ["y"], **attrs, **_CONTRIB)], weights, k, n, dtype)


def compare(model: Path, k: int, rows: tuple[int, ...] = (1, 3, 20), error: float = 2e-6) -> Path:
    """The package, after its results were compared with onnxruntime's by their largest number."""
    package = model.with_suffix(".om")
    report = atc.convert(model, package)
    assert not report.aicpu_nodes
    mine = InferSession(0, package)
    options = onnxruntime.SessionOptions()
    # Otherwise it quantises the other operand of products with DequantizeLinear as well.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    kind = np.float32 if theirs.get_inputs()[0].type == "tensor(float)" else np.float16
    for m in rows:
        x = np.random.default_rng(m).standard_normal((m, k)).astype(kind)
        (want,) = theirs.run(None, {"x": x})
        (got,) = mine.infer([x])
        want, got = want.astype(np.float64), got.astype(np.float64)
        assert np.abs(got - want).max() <= error * np.abs(want).max(), f"{m} rows"
    return package


def test_many_codes_without_zero_points_stay_codes(tmp_path: Path) -> None:
    """Their middle is not written out, whatever the number of blocks."""
    model = n_bits(tmp_path / "wide.onnx", 16, 1_100_000, 16, 4)
    assert not atc.convert(model, model.with_suffix(".om")).aicpu_nodes



CASES = {
    "4 bits": {"k": 128, "n": 72, "block": 32, "bits": 4, "level": 1},
    "4 bits, bytes": {"k": 128, "n": 72, "block": 32, "bits": 4, "level": 4, "error": 1e-4},
    "4 bits, zeros": {"k": 96, "n": 40, "block": 64, "bits": 4, "zeros": "codes", "bias": True},
    "4 bits, zeros as numbers": {"k": 64, "n": 16, "block": 16, "bits": 4, "zeros": "numbers"},
    "2 bits": {"k": 128, "n": 40, "block": 64, "bits": 2, "zeros": "codes"},
    "8 bits": {"k": 96, "n": 40, "block": 32, "bits": 8, "zeros": "codes"},
    "8 bits, bytes": {"k": 96, "n": 40, "block": 32, "bits": 8, "level": 4, "error": 1e-4},
    "4 bits, halves": {"k": 64, "n": 24, "block": 32, "bits": 4, "dtype": TensorProto.FLOAT16, "error": 1e-3},
    "no whole words": {"k": 36, "n": 24, "block": 16, "bits": 4},
}


@pytest.mark.parametrize("case", [c if c in ("4 bits, bytes", "4 bits, halves") else pytest.param(c, marks=pytest.mark.long) for c in CASES])
def test_matmul_n_bits(case: str, tmp_path: Path) -> None:
    given = dict(CASES[case])
    error = given.pop("error", 2e-6)
    compare(n_bits(tmp_path / "model.onnx", **given), int(given["k"]), error=float(error))


@pytest.mark.parametrize("form", [
    "int4 blocks", *(pytest.param(f, marks=pytest.mark.long) for f in
                     ("int8 by column", "int8 by tensor, transposed", "uint8 zeros"))])  # fmt: skip
def test_a_dequantised_weight_keeps_its_codes(form: str, tmp_path: Path) -> None:
    rng, k, n = np.random.default_rng(5), 64, 48
    attrs: dict[str, int] = {"axis": 1}
    codes: np.ndarray | onnx.TensorProto = rng.integers(-128, 128, (k, n)).astype(np.int8)
    weights = {"scales": (rng.random(n) * 0.01).astype(np.float32)}
    inputs, nodes = ["codes", "scales"], []
    if form == "int8 by tensor, transposed":
        codes, weights["scales"] = codes.T.copy(), np.float32(0.01).reshape(())
    elif form == "uint8 zeros":
        codes = rng.integers(0, 256, (k, n)).astype(np.uint8)
        weights["zeros"] = rng.integers(0, 256, n).astype(np.uint8)
        inputs.append("zeros")
    elif form == "int4 blocks":
        numbers = rng.integers(-8, 8, (k, n))
        codes = helper.make_tensor("codes", TensorProto.INT4, (k, n), numbers.reshape(-1))
        weights["scales"] = (rng.random((k // 32, n)) * 0.01).astype(np.float32)
        attrs = {"axis": 0, "block_size": 32}
    weight = "w"
    nodes.append(helper.make_node("DequantizeLinear", inputs, ["w"], **attrs))
    if form == "int8 by tensor, transposed":
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
        weight = "t"
    nodes.append(helper.make_node("MatMul", ["x", weight], ["y"]))
    package = compare(save(tmp_path / "model.onnx", nodes, {**weights, "codes": codes}, k, n), k)
    assert weight_bytes(package) < 1.5 * (k * n // (2 if "int4" in form else 1)) + 1024


def weight_bytes(package: Path) -> int:
    """Bytes of the constants of a package."""
    return next(s.size for s in open_package(package).sections() if s.name == WEIGHTS)


def test_a_package_is_as_large_as_the_model(tmp_path: Path) -> None:
    k, n = 512, 512
    package = compare(n_bits(tmp_path / "model.onnx", k, n, 32, 4, zeros="codes"), k)
    codes, parameters = k * n // 2, n * (k // 32) * 5
    assert weight_bytes(package) <= codes + parameters + 4096
    strip_package(package, tmp_path / "stripped.om")
    assert weight_bytes(tmp_path / "stripped.om") <= codes + parameters + 4096
    x = np.random.default_rng(0).standard_normal((3, k)).astype(np.float32)
    (want,), (got,) = (InferSession(0, p).infer([x]) for p in (package, tmp_path / "stripped.om"))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
