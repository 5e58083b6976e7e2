"""Random models through the whole pipeline against onnxruntime, whose own rewriting is switched off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import atc
from acl_runtime import InferSession
from tensor_types.errors import OpenAtcError
from tests.atc.random_models import random_model


def oracle(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def check(seed: int, folder: Path) -> None:
    """One package, one and two threads; a symbolic batch at other sizes too."""
    model, inputs = random_model(seed)
    golden = oracle(model)
    onnx.save(model, folder / "m.onnx")
    atc.convert(folder / "m.onnx", folder / "m.om")
    symbolic = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for threads, batch in ((1, None), (2, None), *(((1, 1), (2, 5)) if symbolic else ())):
        arrays = {k: v if batch is None else np.resize(v, (batch, *v.shape[1:])) for k, v in inputs.items()}
        session = InferSession(0, folder / "m.om", threads=threads)
        try:
            expected = golden.run(None, arrays)
        except Exception:  # a batch that broadcast as 1 fits nothing any more
            with pytest.raises(OpenAtcError):
                session.infer(arrays)
            continue
        for wire, ours, theirs in zip(model.graph.output, session.infer(arrays), expected, strict=True):
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, wire.name
            scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=0) + 1e-6
            # Steps (Floor, Sign, comparisons) may fall the other way for single elements on a rounding of 1 ulp.
            close = np.isclose(ours, theirs, rtol=1e-4, atol=2e-5 * scale, equal_nan=True)
            assert close.mean() > 0.999 or (~close).sum() <= 1, f"{wire.name}: {(~close).sum()} of {close.size} differ"


@pytest.mark.parametrize("seed", range(12))
def test_random_models(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_many_random_models(block: int, tmp_path: Path) -> None:
    for seed in range(1000 + 30 * block, 1030 + 30 * block):
        try:
            check(seed, tmp_path)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
