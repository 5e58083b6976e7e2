"""What `--dynamic_quantisation` costs in accuracy: a package beside that of the same model without it, on one input."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime import InferSession
from atc.options import Options
from atc.run import session_inputs
from tensor_types.errors import OpenAtcError


def quantisation_error(
    model: Path, package: Path, options: Options, header: Mapping[str, Any] | None
) -> dict[str, float] | str:
    """Relative L2 of each output of floats, to three digits; or why it was not measured."""
    from atc.conversion import convert

    plain = replace(options, dynamic_quantisation=False, tune=False, sign=None, check_report=None, dump_ir=None)
    try:
        with tempfile.TemporaryDirectory() as folder:
            exact = convert(model, Path(folder) / "exact.om", plain, header=header).package
            sessions = InferSession(0, package), InferSession(0, exact)
            feeds = session_inputs(sessions[0], package, {}, {})
            ours, wanted = (session.infer(feeds) for session in sessions)
            names = [entry.name for entry in sessions[0].get_outputs()]
    except OpenAtcError as error:
        return error.message
    return {
        name: float(f"{_relative(a, b):.2e}")
        for name, a, b in zip(names, ours, wanted, strict=True)
        if isinstance(b, np.ndarray) and b.dtype.kind in "fV" and a.shape == b.shape and b.size
    }


def _relative(ours: np.ndarray, wanted: np.ndarray) -> float:
    a, b = ours.astype(np.float64), wanted.astype(np.float64)
    same = np.isfinite(a) & np.isfinite(b)
    norm = np.linalg.norm(b[same])
    return float(np.linalg.norm((a - b)[same]) / norm) if norm else float(np.linalg.norm(a[same]))
