"""Random models through the whole pipeline against onnxruntime, whose own rewriting is switched off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import atc
from acl_runtime import InferSession
from tensor_types.errors import InvalidModel
from tests.atc.random_models.builder import Theme, build, oracle
from tests.atc.random_models.control import CONTROL
from tests.atc.random_models.floats import FLOATS
from tests.atc.random_models.integers import INTEGERS
from tests.atc.random_models.old_forms import OLD_FORMS
from tests.atc.random_models.quantised import QUANTISED
from tests.atc.random_models.sequences import SEQUENCES

THEMES = {
    "floats": FLOATS, "integers": INTEGERS, "sequences": SEQUENCES, "quantised": QUANTISED, "control": CONTROL,
    "old_forms": OLD_FORMS,
}  # fmt: skip


def difference(ours: np.ndarray, theirs: np.ndarray, exact: bool) -> str | None:
    """What is wrong with a result."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype}{ours.shape} instead of {theirs.dtype}{theirs.shape}"
    scale = np.abs(theirs[np.isfinite(theirs)].astype(float)).max(initial=0) + 1e-6
    step = 0 if theirs.dtype.kind != "f" or exact else 1e-2 if theirs.dtype == np.float16 else 1e-4
    close = np.isclose(ours.astype(float), theirs.astype(float), rtol=step, atol=0.2 * step * scale, equal_nan=True)
    # Steps (Floor, Sign, comparisons) may fall the other way for single elements on a rounding of 1 ulp.
    apart = int((~close).sum())
    return None if apart <= (0 if exact else max(1, close.size // 1000)) else f"{apart} of {close.size} differ"


def check(theme: Theme, seed: int, folder: Path) -> None:
    """One package, several sizes and numbers of threads."""
    b = build(theme, seed)
    model = b.model()
    try:
        golden = oracle(model)
    except Exception:  # its inference of shapes refuses a few models whose nodes it ran one by one
        return
    onnx.save(model, folder / "m.onnx")
    atc.convert(folder / "m.onnx", folder / "m.om")
    for turn, sizes in enumerate(b.sizes):
        arrays = {t.name: t.values[turn] for t in b.inputs}
        session = InferSession(0, folder / "m.om", threads=1 + turn)
        try:
            results = session.infer(arrays)
        except InvalidModel as error:
            if "made for equal extents" in str(error):  # one of two symbolic extents is 1: refused, and documented
                continue
            raise
        for wire, ours, theirs in zip(model.graph.output, results, golden.run(None, arrays), strict=True):
            wrong = difference(ours, theirs, theme.exact)
            assert wrong is None, f"{wire.name} at {sizes}: {wrong}"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("theme", THEMES)
def test_random_models(theme: str, seed: int, tmp_path: Path) -> None:
    check(THEMES[theme], seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("theme", THEMES)
def test_many_random_models(theme: str, block: int, tmp_path: Path) -> None:
    for seed in range(1000 + 30 * block, 1030 + 30 * block):
        try:
            check(THEMES[theme], seed, tmp_path)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
