"""Layer-by-layer comparison of a package with onnxruntime: one row a source tensor, placed by `origin`.

onnxruntime runs the source model with graph optimisation off and every tensor as an output; the package runs with all
kernel outputs kept. Metrics and limits are those of docs/accuracy.md: accumulated in float64, equal non-finite elements
left out and counted, relative L2 primary.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

LIMITS = {
    # dtype of compute: (cosine warn, cosine fail, relative L2 warn, relative L2 fail)
    "f64": (0.99999, 0.9999, 1e-4, 1e-3),
    "f32": (0.99999, 0.9999, 1e-4, 1e-3),
    "f16": (0.999, 0.99, 1e-2, 5e-2),
    "bf16": (0.998, 0.98, 3e-2, 1e-1),
    "i8": (0.99, 0.95, 0.1, 0.3),
}
"""Accumulated limits per dtype of compute; integers, booleans and indices must agree exactly."""


@dataclass(frozen=True)
class Difference:
    """Device against golden. `cosine` is None where it says nothing (one element)."""

    cosine: float | None
    rel_l2: float
    max_abs: float
    nonfinite: int
    """Elements that are non-finite on both sides in the same way."""
    mismatched: int
    """Elements of which one side is NaN or infinite and the other not so, or not the same."""

    def as_dict(self) -> dict[str, float | int | None]:
        return {"cosine": self.cosine, "rel_l2": self.rel_l2, "max_abs": self.max_abs}


def difference(device: np.ndarray, golden: np.ndarray) -> Difference:
    """Metrics of two tensors of one shape, in float64. ValueError if the shapes differ."""
    if device.shape != golden.shape:
        raise ValueError(f"shape {device.shape} against {golden.shape}")
    if golden.dtype == object or golden.dtype.kind in "US":
        unequal = int(np.sum(device.astype(str) != golden.astype(str)))
        return Difference(None, float(unequal > 0), float(unequal), 0, unequal)
    x = device.astype(np.float64).ravel()
    y = golden.astype(np.float64).ravel()
    finite = np.isfinite(x) & np.isfinite(y)
    same = ~finite & ((x == y) | (np.isnan(x) & np.isnan(y)))
    x, y = x[finite], y[finite]
    error = x - y
    norm_x, norm_y, norm_e = (float(np.sqrt(np.dot(v, v))) for v in (x, y, error))
    if norm_x == 0.0 or norm_y == 0.0:
        cosine = 1.0 if norm_x == norm_y else 0.0
    else:
        cosine = float(np.dot(x / norm_x, y / norm_y))
    rel_l2 = norm_e / norm_y if norm_y else norm_e
    max_abs = float(np.max(np.abs(error))) if error.size else 0.0
    return Difference(
        None if golden.size <= 1 else cosine, rel_l2, max_abs, int(same.sum()), int((~finite & ~same).sum())
    )


def verdict_of(found: Difference, dtype: str) -> str:
    """'pass', 'warn' or 'fail' for a tensor computed in `dtype`."""
    if found.mismatched:
        return "fail"
    limits = LIMITS.get(dtype)
    if limits is None:
        return "pass" if found.max_abs == 0 else "fail"
    cos_warn, cos_fail, l2_warn, l2_fail = limits
    if found.cosine is not None and found.cosine < cos_fail or found.rel_l2 > l2_fail:
        return "fail"
    if found.cosine is not None and found.cosine < cos_warn or found.rel_l2 > l2_warn:
        return "warn"
    return "pass"


def golden_outputs(model: Path, inputs: Mapping[str, np.ndarray], tensors: list[str]) -> dict[str, np.ndarray]:
    """Values of the named tensors from onnxruntime, optimisation off, one thread; unknown names are left out.

    The extended model is written beside nothing: a temporary folder holds it, external data are referred to in place.
    """
    import onnx
    import onnxruntime as ort

    proto = onnx.load(str(model), load_external_data=True)
    known = {v.name for v in proto.graph.output}
    made = {name for node in proto.graph.node for name in node.output if name}
    for name in tensors:
        if name in made and name not in known:
            proto.graph.output.add().name = name
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = _session(proto, options)
    wanted = [o.name for o in session.get_outputs()]
    fed = {i.name: inputs[i.name] for i in session.get_inputs()}
    return {name: value for name, value in zip(wanted, session.run(wanted, fed), strict=True) if value is not None}


def _session(proto: Any, options: Any) -> Any:
    import onnx
    import onnxruntime as ort

    if proto.ByteSize() < (1 << 31) - (1 << 20):
        return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden.onnx"
        onnx.save(proto, str(path), save_as_external_data=True, location="golden.data")
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class Row:
    """One source tensor."""

    source: str
    state: str
    """'compared', 'fused', 'folded' or 'dead'."""
    kernel: str
    dtype: str
    found: Difference | None
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        numbers = self.found.as_dict() if self.found else {"cosine": None, "rel_l2": None, "max_abs": None}
        return {"source": self.source, "kernel": self.kernel, "dtype": self.dtype, "state": self.state, **numbers,
                "verdict": self.verdict}  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """Rows of all source tensors, the model's outputs among them in `outputs`, and the verdict."""

    rows: list[Row]
    outputs: list[Row]

    @property
    def verdict(self) -> str:
        return "fail" if any(r.verdict == "fail" for r in (*self.rows, *self.outputs)) else "pass"

    @property
    def first_bad(self) -> str | None:
        return next((r.source for r in (*self.rows, *self.outputs) if r.verdict == "fail"), None)

    def as_dict(self) -> dict[str, Any]:
        outputs = [
            {"name": r.source, **(r.found.as_dict() if r.found else {}), "verdict": r.verdict} for r in self.outputs
        ]
        return {"verdict": self.verdict, "outputs": outputs, "layers": [r.as_dict() for r in self.rows],
                "first_bad": self.first_bad}  # fmt: skip
