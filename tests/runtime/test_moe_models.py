"""Small mixtures of experts as packages against onnxruntime: any number of tokens, experts without tokens, threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from acl_runtime import InferSession
from atc.compare_model import compare_arrays
from atc.conversion import convert
from models.builders import moe

HIDDEN = 32


def tokens_of(count: int, distinct: int) -> np.ndarray:
    """`count` tokens of which `distinct` differ: with few of them, most experts get none."""
    x = np.random.default_rng(count).normal(size=(distinct, HIDDEN)).astype(np.float32)
    return x[np.arange(count) % distinct]


@pytest.mark.parametrize(("form", "experts", "chosen"), [("dense", 5, 2), ("sparse", 8, 3), ("sparse", 4, 1), ("gathered", 8, 2), ("expanded", 8, 2)])
def test_tokens_go_to_their_experts(tmp_path: Path, form: str, experts: int, chosen: int) -> None:
    model, package = tmp_path / "moe.onnx", tmp_path / "moe.om"
    onnx.save(moe.build(form, experts=experts, chosen=chosen, hidden=HIDDEN, inner=48), model)
    convert(model, package)
    session, threaded = InferSession(0, package, threads=1), InferSession(0, package, threads=3)
    wanted = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for count, distinct in ((1, 1), (7, 7), (64, 1), (64, 2), (200, 200)):
        x = tokens_of(count, distinct)
        (got,), (want,) = session.infer([x]), wanted.run(None, {"x": x})
        np.testing.assert_allclose(got, want, 1e-4, 1e-5 * np.abs(want).max())
        assert np.array_equal(threaded.infer([x])[0], got), "bits depend on the number of threads"
    assert session.profile([x]).ai_cpu_share == 0
    compared = compare_arrays(model, package, {"x": tokens_of(9, 9)})
    assert compared.verdict == "pass", compared.first_bad
