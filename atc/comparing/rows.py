"""Metrics, limits and verdicts of a comparison, and its rows: one a source tensor.

Metrics and limits are those of docs/compare.md: accumulated in float64, equal non-finite elements left out and
counted, relative L2 primary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from atc.comparing.details import Detail

LIMITS = {
    # dtype of compute: (cosine warn, cosine fail, relative L2 warn, relative L2 fail)
    "f64": (0.99999, 0.9999, 1e-4, 1e-3),
    "f32": (0.99999, 0.9999, 1e-4, 1e-3),
    "f16": (0.999, 0.99, 1e-2, 5e-2),
    "bf16": (0.998, 0.98, 3e-2, 1e-1),
    "i8": (0.99, 0.95, 0.1, 0.3),
}
"""Accumulated limits per dtype of compute; integers, booleans and indices must agree exactly."""

STATES = ("compared", "reference", "unknown", "fused", "folded", "dead")
"""What a row can be. 'reference': compared with the numpy function of a custom operator, which onnxruntime lacks;
'unknown': behind a custom operator without one."""


@dataclass(frozen=True)
class Difference:
    """Device against golden. `cosine` is None where it says nothing (one element); all are where no element is finite
    on both sides."""

    cosine: float | None
    rel_l2: float | None
    max_abs: float | None
    nonfinite: int
    """Elements that are non-finite on both sides in the same way."""
    mismatched: int
    """Elements of which one side is NaN or infinite and the other not so, or not the same."""
    note: str = ""
    """What the elements are that the numbers leave out."""
    largest: float = 0.0
    """Largest finite magnitude of golden."""

    def as_dict(self) -> dict[str, float | int | None]:
        return {"cosine": self.cosine, "rel_l2": self.rel_l2, "max_abs": self.max_abs}


def difference(device: Any, golden: Any) -> Difference:
    """Metrics of two tensors, or of two sequences of tensors, of one shape. ValueError if the shapes differ."""
    if isinstance(golden, list):
        if not isinstance(device, list) or len(device) != len(golden):
            raise ValueError(f"{len(device) if isinstance(device, list) else 'no'} elements against {len(golden)}")
        for one, other in zip(device, golden, strict=True):
            _same_shape(np.asarray(one), np.asarray(other))
        device, golden = (np.concatenate([np.ravel(v) for v in side] or [np.empty(0)]) for side in (device, golden))
    device, golden = np.asarray(device), np.asarray(golden)
    _same_shape(device, golden)
    if golden.dtype == object or golden.dtype.kind in "US":
        unequal = int(np.sum(device.astype(str) != golden.astype(str)))
        return Difference(None, float(unequal > 0), float(unequal), 0, unequal)
    if golden.dtype.kind == "c":
        device, golden = (np.ascontiguousarray(v, np.complex128).view(np.float64) for v in (device, golden))
    x = device.astype(np.float64).ravel()
    y = golden.astype(np.float64).ravel()
    finite = np.isfinite(x) & np.isfinite(y)
    same = ~finite & ((x == y) | (np.isnan(x) & np.isnan(y)))
    x, y = x[finite], y[finite]
    error = x - y
    note = _nonfinite_note(device, golden, int(same.sum())) if x.size < golden.size else ""
    if golden.size and not x.size:
        return Difference(None, None, None, int(same.sum()), int((~finite & ~same).sum()), note, _largest(golden))
    norm_x, norm_y, norm_e = (float(np.sqrt(np.dot(v, v))) for v in (x, y, error))
    if norm_x == 0.0 or norm_y == 0.0:
        cosine = 1.0 if norm_x == norm_y else 0.0
    else:
        cosine = float(np.dot(x / norm_x, y / norm_y))
    rel_l2 = norm_e / norm_y if norm_y else norm_e
    max_abs = float(np.max(np.abs(error))) if error.size else 0.0
    return Difference(
        None if golden.size <= 1 else cosine, rel_l2, max_abs, int(same.sum()), int((~finite & ~same).sum()), note,
        _largest(golden),
    )  # fmt: skip


def _largest(golden: np.ndarray) -> float:
    finite = np.abs(golden[np.isfinite(golden)]) if golden.dtype.kind in "fcV" else np.empty(0)
    return float(finite.max()) if finite.size else 0.0


def _nonfinite_note(device: np.ndarray, golden: np.ndarray, same: int) -> str:
    """'ours has 3 Inf of 12 elements, onnxruntime none', and how large the finite values of onnxruntime are."""

    def counts(array: np.ndarray) -> str:
        found = (("NaN", np.isnan(array)), ("Inf", np.isinf(array)))
        return " and ".join(f"{int(mask.sum())} {name}" for name, mask in found if mask.any()) or "none"

    finite = np.abs(golden[np.isfinite(golden)])
    largest = f"; onnxruntime's finite values reach {float(finite.max()):.3g}" if finite.size else ""
    agreeing = f" ({same} agree)" if same else ""
    return f"of {golden.size} elements ours has {counts(device)}, onnxruntime {counts(golden)}{agreeing}{largest}"


def _same_shape(device: np.ndarray, golden: np.ndarray) -> None:
    if device.shape != golden.shape:
        raise ValueError(f"shape {list(device.shape)}, onnxruntime has {list(golden.shape)}")


def verdict_of(found: Difference, dtype: str, quantised: bool = False) -> str:
    """'pass', 'warn' or 'fail' for a tensor computed in `dtype`; `quantised` if an activation was rounded before it."""
    if found.mismatched:
        return "fail"
    if found.rel_l2 is None or found.max_abs is None:
        return "pass"  # nothing is finite, in the same way on both sides
    limits = LIMITS["i8"] if quantised else LIMITS.get(dtype)
    if limits is None:
        return "pass" if found.max_abs == 0 else "fail"
    if quantised and dtype in ("i8", "u8") and found.max_abs <= 1:
        return "pass"  # one step of quantisation, whatever the size of the value
    cos_warn, cos_fail, l2_warn, l2_fail = limits
    if found.cosine is not None and found.cosine < cos_fail or found.rel_l2 > l2_fail:
        return "fail"
    if found.cosine is not None and found.cosine < cos_warn or found.rel_l2 > l2_warn:
        return "warn"
    return "pass"


@dataclass(frozen=True)
class Row:
    """One source tensor."""

    source: str
    state: str
    """One of STATES."""
    kernel: str
    dtype: str
    found: Difference | None
    verdict: str
    """'pass', 'warn', 'fail' or 'unknown'."""
    note: str = ""
    """Why the verdict is not one of numbers, who is to blame, or which elements the numbers leave out."""
    holder: str = ""
    """The value of the package's graph that was read."""
    isolated: Difference | None = None
    """On the oracle's inputs, so without what came before; None where the tensor was not computed alone."""
    floor: Difference | None = None
    """What numpy makes of the same body, on the oracle's inputs and in the same dtypes."""
    detail: Detail | None = None
    """Where the errors are; only if asked for."""

    def as_dict(self) -> dict[str, Any]:
        numbers = self.found.as_dict() if self.found else {"cosine": None, "rel_l2": None, "max_abs": None}
        return {"source": self.source, "kernel": self.kernel, "dtype": self.dtype, "state": self.state, **numbers,
                "isolated": _pair(self.isolated), "floor": _pair(self.floor), "verdict": self.verdict,
                "note": self.note}  # fmt: skip


def _pair(found: Difference | None) -> dict[str, float | None] | None:
    return None if found is None else {"cosine": found.cosine, "rel_l2": found.rel_l2}


@dataclass(frozen=True)
class Comparison:
    """Rows of all source tensors, the model's outputs among them in `outputs`, and the verdict."""

    rows: list[Row]
    outputs: list[Row]

    @property
    def verdict(self) -> str:
        """'fail' if a row or an output fails, else 'unknown' if one could not be judged, else 'pass'."""
        verdicts = {r.verdict for r in (*self.rows, *self.outputs)}
        return next((v for v in ("fail", "unknown") if v in verdicts), "pass")

    @property
    def first_bad(self) -> str | None:
        return next((r.source for r in (*self.rows, *self.outputs) if r.verdict == "fail"), None)

    def shown(self, passing: bool = False) -> list[Row]:
        """Each tensor once: rows that do not pass, or all of them if `passing`, then the model's outputs."""
        outputs = {r.source for r in self.outputs}
        rows = [r for r in self.rows if (passing or r.verdict != "pass") and r.source not in outputs]
        return [*rows, *self.outputs]

    def as_dict(self) -> dict[str, Any]:
        keys = ("cosine", "rel_l2", "max_abs", "verdict", "note")
        outputs = [{"name": r.source, **{k: r.as_dict()[k] for k in keys}} for r in self.outputs]
        return {"verdict": self.verdict, "outputs": outputs, "layers": [r.as_dict() for r in self.rows],
                "first_bad": self.first_bad}  # fmt: skip
