"""Random models through the whole pipeline against onnxruntime, whose own rewriting is switched off."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import atc
from acl_runtime import InferSession
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


def check(theme: Theme, seed: int, folder: Path, odd: bool = False, at: Callable[[str], object] = str) -> None:
    """One package, several sizes and numbers of threads; `at` is told whose code runs next."""
    at("theirs")
    b = build(theme, seed, odd=odd)
    model = b.model()
    try:
        golden = oracle(model)
    except Exception:  # its inference of shapes refuses a few models whose nodes it ran one by one
        return
    at("ours")
    onnx.save(model, folder / "m.onnx")
    atc.convert(folder / "m.onnx", folder / "m.om")
    for turn, sizes in enumerate(b.sizes):
        arrays = {t.name: t.values[turn] for t in b.inputs}
        session = InferSession(0, folder / "m.om", threads=1 + turn)
        results = session.infer(arrays)
        at("theirs")
        wanted = dict(zip((o.name for o in golden.get_outputs()), golden.run(None, arrays), strict=True))
        at("ours")
        for wire, ours in zip(model.graph.output, results, strict=True):
            wrong = difference(ours, wanted[wire.name], theme.exact)
            assert wrong is None, f"{wire.name} at {sizes}: {wrong}"


def check_apart(theme: str, seed: int, folder: Path) -> None:
    """An odd model in a process of its own: with empty tensors onnxruntime's operators may end theirs."""
    context = multiprocessing.get_context("fork")
    where, reason = context.Array("c", 16), folder / "reason.txt"

    def run() -> None:
        try:
            check(THEMES[theme], seed, folder, odd=True, at=lambda word: setattr(where, "value", word.encode()))
        except BaseException:
            reason.write_text(traceback.format_exc())
            raise

    child = context.Process(target=run)
    child.start()
    child.join()
    if child.exitcode and not (child.exitcode < 0 and where.value == b"theirs"):
        pytest.fail(f"{theme} {seed}: {reason.read_text() if reason.exists() else f'signal {-child.exitcode}'}")


@pytest.mark.parametrize("theme", THEMES)
def test_an_odd_model(theme: str, tmp_path: Path) -> None:
    check_apart(theme, 1, tmp_path)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("theme", THEMES)
def test_random_models(theme: str, seed: int, tmp_path: Path) -> None:
    check(THEMES[theme], seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("theme", THEMES)
def test_many_odd_models(theme: str, block: int, tmp_path: Path) -> None:
    for seed in range(2000 + 30 * block, 2030 + 30 * block):
        (tmp_path / str(seed)).mkdir()
        check_apart(theme, seed, tmp_path / str(seed))


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("theme", THEMES)
def test_many_random_models(theme: str, block: int, tmp_path: Path) -> None:
    for seed in range(1000 + 30 * block, 1030 + 30 * block):
        try:
            check(THEMES[theme], seed, tmp_path)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
