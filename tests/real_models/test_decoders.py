"""Decoders as people have them, in every spelling of their caches and experts: converted unchanged, nothing on the AI CPU
but where the run decides a size, and 256 greedy tokens those of onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

import atc
from acl_runtime import InferSession
from acl_runtime.generation import Decoder, Generator, Sampling
from models import exported_decoders
from models.builders import genai_decoder, state_decoders
from tests.generation.greedy_peer import greedy

pytestmark = pytest.mark.long
PROMPT, COUNT = [3, 17, 99, 4, 8], 256
BUILT: dict[str, Callable[[], onnx.ModelProto]] = {
    "builder_f32": genai_decoder.build,
    "builder_f32_shared_buffer": partial(genai_decoder.build, capacity=320),
    "builder_f16": partial(genai_decoder.build, halves=True),
    "builder_int4": partial(genai_decoder.build, bits=4),
    "builder_int4_bytes": partial(genai_decoder.build, bits=4, accuracy=4),
    "builder_int8": partial(genai_decoder.build, bits=8),
    "builder_sinks_windows_experts": partial(genai_decoder.build, window=16, sinks=True, experts=8),
    "tensor_scatter": state_decoders.scattered,
    "linear_attention": partial(state_decoders.recurrent, domain="com.microsoft"),
}


def check(path: Path, noise: float) -> None:
    """`noise`: the least gap of two logits, as a part of the largest one, that decides between two tokens."""
    report = atc.convert(path, path.with_suffix(".om"))
    assert {n["op"] for n in report.aicpu_nodes} <= {"IfMerge"}, report.aicpu_nodes
    decoder = Decoder(InferSession(0, path.with_suffix(".om")))
    made, _ = Generator(decoder).generate(PROMPT, COUNT, Sampling())
    want, logits = greedy(path, PROMPT, COUNT)
    assert len(made.tokens) == COUNT
    differ = [at for at, (a, b) in enumerate(zip(made.tokens, want, strict=True)) if a != b]
    if differ:
        first = logits[differ[0]]
        gap = first[want[differ[0]]] - first[made.tokens[differ[0]]]
        assert gap <= noise * np.abs(first).max(), f"token {differ[0]}: {gap} between the two"


@pytest.mark.parametrize("name", BUILT)
def test_built(name: str, tmp_path: Path) -> None:
    onnx.save(BUILT[name](), tmp_path / "m.onnx")
    check(tmp_path / "m.onnx", 4e-3 if name == "builder_f16" or name == "builder_int4_bytes" else 1e-5)


@pytest.mark.parametrize(("name", "cache", "mode"), exported_decoders.FORMS)
def test_exported(name: str, cache: str, mode: str, tmp_path: Path) -> None:
    for module in ("torch", "transformers", "onnxscript"):
        pytest.importorskip(module)
    try:
        path = exported_decoders.export(name, cache, mode, tmp_path)
    except Exception as error:
        pytest.skip(f"no {mode} export of {name} here: {type(error).__name__}")
    check(path, 1e-5)
