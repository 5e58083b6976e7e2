"""Metrics, limits and verdicts of a comparison, and its rows: one a source tensor.

Metrics and limits are those of docs/compare.md: accumulated in float64, equal non-finite elements left out and
counted, relative L2 primary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from atc.comparing.details import Detail
from atc.comparing.limits import Limit, Limits

STATES = ("compared", "reference", "unknown", "fused", "folded", "dead")
"""What a row can be. 'reference': compared with the numpy function of a custom operator, which onnxruntime lacks;
'unknown': behind a custom operator without one."""


_TABLE = Limits()


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


def difference(device: Any, golden: Any, oracle: str = "onnxruntime") -> Difference:
    """Metrics of two tensors, or of two sequences of tensors, of one shape. ValueError if the shapes differ.

    `oracle` is what notes and errors call the one who gave `golden`.
    """
    if isinstance(golden, list):
        if not isinstance(device, list) or len(device) != len(golden):
            raise ValueError(f"{len(device) if isinstance(device, list) else 'no'} elements against {len(golden)}")
        for one, other in zip(device, golden, strict=True):
            _same_shape(np.asarray(one), np.asarray(other), oracle)
        device, golden = (np.concatenate([np.ravel(v) for v in side] or [np.empty(0)]) for side in (device, golden))
    device, golden = np.asarray(device), np.asarray(golden)
    _same_shape(device, golden, oracle)
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
    note = _nonfinite_note(device, golden, int(same.sum()), oracle) if x.size < golden.size else ""
    if golden.size and not x.size:
        return Difference(None, None, None, int(same.sum()), int((~finite & ~same).sum()), note, _largest(golden))
    # einsum works in this thread: a BLAS would wake all of them for each of many small tensors.
    norm_x, norm_y, norm_e = (float(np.sqrt(np.einsum("i,i->", v, v))) for v in (x, y, error))
    if norm_x == 0.0 or norm_y == 0.0:
        cosine = 1.0 if norm_x == norm_y else 0.0
    else:
        cosine = float(np.einsum("i,i->", x / norm_x, y / norm_y))
    rel_l2 = norm_e / norm_y if norm_y else norm_e
    max_abs = float(np.max(np.abs(error))) if error.size else 0.0
    return Difference(
        None if golden.size <= 1 else cosine, rel_l2, max_abs, int(same.sum()), int((~finite & ~same).sum()), note,
        _largest(golden),
    )  # fmt: skip


def _largest(golden: np.ndarray) -> float:
    finite = np.abs(golden[np.isfinite(golden)]) if golden.dtype.kind in "fcV" else np.empty(0)
    return float(finite.max()) if finite.size else 0.0


def _nonfinite_note(device: np.ndarray, golden: np.ndarray, same: int, oracle: str) -> str:
    """'ours has 3 Inf of 12 elements, onnxruntime none', and how large the finite values of the oracle are."""

    def counts(array: np.ndarray) -> str:
        found = (("NaN", np.isnan(array)), ("Inf", np.isinf(array)))
        return " and ".join(f"{int(mask.sum())} {name}" for name, mask in found if mask.any()) or "none"

    finite = np.abs(golden[np.isfinite(golden)])
    largest = f"; {oracle}'s finite values reach {float(finite.max()):.3g}" if finite.size else ""
    agreeing = f" ({same} agree)" if same else ""
    return f"of {golden.size} elements ours has {counts(device)}, {oracle} {counts(golden)}{agreeing}{largest}"


def _same_shape(device: np.ndarray, golden: np.ndarray, oracle: str) -> None:
    if device.shape != golden.shape:
        raise ValueError(f"shape {list(device.shape)}, {oracle} has {list(golden.shape)}")


def verdict_of(found: Difference, dtype: str, quantised: bool = False, limit: Limit | None = None) -> str:
    """'pass', 'warn' or 'fail' for a tensor computed in `dtype`; `quantised` if an activation was rounded before it.

    `limit` is that of the table by default.
    """
    limit = limit or _TABLE.of("quantised" if quantised else dtype)
    if found.mismatched:
        return "fail"
    if found.rel_l2 is None or found.max_abs is None:
        return "pass"  # nothing is finite, in the same way on both sides
    if limit is None:
        return "pass" if found.max_abs == 0 else "fail"
    if quantised and dtype in ("i8", "u8") and found.max_abs <= 1:
        return "pass"  # one step of quantisation, whatever the size of the value

    def beyond(cosine: float | None, rel_l2: float) -> bool:
        too_far = cosine is not None and found.cosine is not None and found.cosine < cosine
        return too_far or bool((found.rel_l2 or 0.0) > rel_l2)

    if beyond(limit.cos_fail, limit.l2_fail):
        return "fail"
    return "warn" if beyond(limit.cos_warn, limit.l2_warn) else "pass"


@dataclass(frozen=True)
class Isolated:
    """A tensor on the oracle's inputs, against the oracle. rounding: numpy's own distance from float64."""

    isolated: Difference
    floor: Difference | None = None
    """What numpy makes of the same body, in the same dtypes."""
    wide: Difference | None = None
    """The same in float64."""
    rounding: float | None = None
    ranges: str = ""
    """What its inputs hold, in words."""


@dataclass(frozen=True)
class Row:
    """One source tensor."""

    source: str
    state: str
    """One of STATES."""
    kernel: str
    dtype: str
    found: Difference | None
    verdict: str = ""
    """'pass', 'warn', 'fail' or 'unknown'; '' where numbers decide and nobody has judged them yet."""
    note: str = ""
    """Why the verdict is not one of numbers, who is to blame, or which elements the numbers leave out."""
    holder: str = ""
    """The value of the package's graph that was read."""
    alone: Isolated | None = None
    """Without what came before it; None where the tensor was not computed alone."""
    detail: Detail | None = None
    """Where the errors are; only if asked for."""
    narrow: str = ""
    """The 16-bit float that lies on the way to it, if any."""
    quantised: bool = False
    """True if an activation was rounded to integers before it."""
    sample: str = ""
    """Of several inputs the one that this row is about, the worst."""
    mean: float | None = None
    """Relative L2 over all inputs, where there are several."""

    @property
    def isolated(self) -> Difference | None:
        """On the oracle's inputs, against the oracle."""
        return None if self.alone is None else self.alone.isolated

    @property
    def floor(self) -> Difference | None:
        """What numpy makes of the same body, on the oracle's inputs and in the same dtypes."""
        return None if self.alone is None else self.alone.floor

    @property
    def compute_dtype(self) -> str:
        """The dtype whose limits hold: 'quantised' behind quantised activations, else the narrowest float before."""
        if "f" not in self.dtype:
            return self.dtype
        return "quantised" if self.quantised else self.narrow or self.dtype

    def as_dict(self) -> dict[str, Any]:
        numbers = self.found.as_dict() if self.found else {"cosine": None, "rel_l2": None, "max_abs": None}
        several = {} if self.mean is None else {"worst_sample": self.sample, "mean_rel_l2": self.mean}
        return {"source": self.source, "kernel": self.kernel, "dtype": self.dtype, "state": self.state, **numbers,
                "isolated": _pair(self.isolated), "floor": _pair(self.floor), "verdict": self.verdict,
                "note": self.note, **several}  # fmt: skip


def digest_of(samples: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 of the names, dtypes, shapes and bytes of all inputs."""
    found = hashlib.sha256()
    for feeds in samples:
        for name in sorted(feeds):
            array = np.asarray(feeds[name])
            data = repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
            found.update(f"{name} {array.dtype} {array.shape}".encode() + data)
    return found.hexdigest()


def _pair(found: Difference | None) -> dict[str, float | None] | None:
    return None if found is None else {"cosine": found.cosine, "rel_l2": found.rel_l2}


@dataclass(frozen=True)
class Measured:
    """A comparison on one input before it is judged.

    rows: all source tensors; outputs: those of the model, again. parents: the tensors that a source tensor is computed
    from directly, in topological order. top1: by output the share of its rows along the last axis whose largest
    element is at the same place on both sides. sample: name of the input, '' if it is the only one. notes: what is to
    be said of the whole.
    """

    rows: tuple[Row, ...]
    outputs: tuple[Row, ...]
    parents: Mapping[str, tuple[str, ...]]
    top1: Mapping[str, float] = field(default_factory=dict)
    sample: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Rows of all source tensors, the model's outputs among them in `outputs`, and the verdict.

    With several `samples` a row is that of the worst.
    """

    rows: list[Row]
    outputs: list[Row]
    top1: Mapping[str, float] = field(default_factory=dict)
    """By output, over all samples."""
    samples: tuple[str, ...] = ()
    passing: float | None = None
    """The least --threshold with which what fails would pass; None if nothing fails, or no threshold helps."""
    notes: tuple[str, ...] = ()
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The tensors that each is computed from directly."""

    @property
    def verdict(self) -> str:
        """'fail' if a row or an output fails, else 'unknown' if one could not be judged, else 'pass'."""
        verdicts = {r.verdict for r in (*self.rows, *self.outputs)}
        return next((v for v in ("fail", "unknown") if v in verdicts), "pass")

    @property
    def first_bad(self) -> str | None:
        return next((r.source for r in (*self.rows, *self.outputs) if r.verdict == "fail"), None)

    @property
    def first_bad_row(self) -> Row | None:
        """The row, or output, that `first_bad` names."""
        return next((r for r in (*self.rows, *self.outputs) if r.verdict == "fail"), None)

    def shown(self, passing: bool = False) -> list[Row]:
        """Each tensor once: rows that do not pass, or all of them if `passing`, then the model's outputs."""
        outputs = {r.source for r in self.outputs}
        rows = [r for r in self.rows if (passing or r.verdict != "pass") and r.source not in outputs]
        return [*rows, *self.outputs]

    def as_dict(self) -> dict[str, Any]:
        keys = ("cosine", "rel_l2", "max_abs", "verdict", "note", "worst_sample", "mean_rel_l2")
        outputs = []
        for row in self.outputs:
            record = row.as_dict()
            top1 = {"top1": self.top1[row.source]} if row.source in self.top1 else {}
            outputs.append({"name": row.source, **{k: record[k] for k in keys if k in record}, **top1})
        return {"verdict": self.verdict, "outputs": outputs, "layers": [r.as_dict() for r in self.rows],
                "first_bad": self.first_bad, "passing_threshold": self.passing, "samples": list(self.samples),
                "notes": list(self.notes)}  # fmt: skip
