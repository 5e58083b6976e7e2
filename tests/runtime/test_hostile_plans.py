"""Packages whose programs are verified and whose plans are made up: refused when sizes are bound, before anything runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from packages import write

from acl_runtime import InferSession
from graph_opt.plan import KernelRecord, Scheduled, TaskOperand, ValueInfo
from tensor_types.dims import Dim, dim
from tensor_types.dtypes import F32
from tensor_types.errors import ResourceLimit


def _model(path: Path, body: str, size: Dim) -> InferSession:
    """y = x + what the body writes, in one kernel whose dim n the plan says freely."""
    text = f"program p (n in [1, inf]) {{\n  param in x: f32[16]\n  param out y: f32[16]\n  body {{\n{body}\n  }}\n}}\n"
    values = [ValueInfo("x", F32, (16,), "input"), ValueInfo("y", F32, (16,), "temporary")]
    operands = (TaskOperand("x", "in"), TaskOperand("y", "out"))
    record = KernelRecord(text, operands, (size,), 1, "node", "region", work=1)
    write(path, values, [Scheduled(record, ())], ["x"], ["y"])
    return InferSession(0, path)


@pytest.mark.parametrize("size", [1 << 32, (1 << 61) + 1, 1 << 31])
def test_a_product_of_dims_that_wraps_does_not_run(tmp_path: Path, size: int) -> None:
    body = "    TEXPANDS y[min(5, n*n)]{}, 1.0"
    with pytest.raises(ResourceLimit, match="beyond the integers|too large"):
        _model(tmp_path / "m.om", body, size).infer([np.zeros(16, np.float32)])


def test_small_dims_run(tmp_path: Path) -> None:
    [y] = _model(tmp_path / "m.om", "    TEXPANDS y[min(5, n*n)]{}, 1.0", 2).infer([np.zeros(16, np.float32)])
    assert y[4] == 1 and np.count_nonzero(y) == 1  # and what no task writes is zero


def test_a_launch_has_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "    for i < n {\n      TNEG y[_0]{16}, x[_0]{16}\n    }"
    with pytest.raises(ResourceLimit, match=r"about 2\^50 operations"):
        _model(tmp_path / "m.om", body, 1 << 46).infer([np.zeros(16, np.float32)])
    monkeypatch.setenv("OPENATC_LIMITS", "launch_work=100")
    with pytest.raises(ResourceLimit, match="100 are allowed"):
        _model(tmp_path / "m.om", body, dim("n") * 0 + 50).infer([np.zeros(16, np.float32)])


def test_a_tile_beyond_its_source_is_no_alias_of_it(tmp_path: Path) -> None:
    """The store reads a tile of 64, of which 4 were loaded: the source has no more than 4."""
    text = (
        "program p () {\n  param in x: f32[4]\n  param out y: f32[64]\n  tile t: f32[64] UB\n  body {\n"
        "    TLOAD t[_0]{4}, x[_0]{4}\n    TSTORE y[_0]{64}, t[_0]{64}\n  }\n}\n"
    )
    values = [ValueInfo("x", F32, (4,), "input"), ValueInfo("y", F32, (64,), "temporary")]
    record = KernelRecord(text, (TaskOperand("x", "in"), TaskOperand("y", "out")), (), 1, "node", "region", work=1)
    write(tmp_path / "m.om", values, [Scheduled(record, ())], ["x"], ["y"])
    secret = np.full(64, 7, np.float32)
    [y] = InferSession(0, tmp_path / "m.om").infer([secret[:4]])
    assert (y[:4] == 7).all() and not (y[4:] == 7).any()
