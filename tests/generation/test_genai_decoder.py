"""Decoders as onnxruntime-genai's builder writes them: the same tokens as onnxruntime's, next to nothing on the AI CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import atc
from acl_runtime import InferSession
from acl_runtime.generation import Decoder, Generator, Sampling
from models.builders.genai_decoder import build

PROMPT, COUNT = [3, 17, 99, 4], 32


def theirs(path: Path, capacity: int) -> tuple[list[int], np.ndarray]:
    """Greedy tokens by onnxruntime, and the logits of the last one."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    caches = [i for i in session.get_inputs() if i.name.startswith("past")]
    past = {i.name: np.zeros((1, i.shape[1], capacity, i.shape[3]), np.float32) for i in caches}
    tokens, fresh = list(PROMPT), PROMPT
    while True:
        fed = {"input_ids": np.array([fresh]), "attention_mask": np.ones((1, len(tokens)), np.int64), **past}
        made = dict(zip(names, session.run(None, fed), strict=True))
        past = {name: made[name.replace("past_key_values", "present")] for name in past}
        logits = made["logits"][0, -1]
        if len(tokens) == len(PROMPT) + COUNT:
            return tokens[len(PROMPT) :], logits
        fresh = [int(logits.argmax())]
        tokens += fresh


@pytest.mark.parametrize(
    ("bits", "capacity", "states"),
    [(4, 0, 0), (0, 0, 64), *(pytest.param(*case, marks=pytest.mark.long) for case in ((0, 0, 0), (8, 48, 0), (4, 48, 48)))],
)
def test_tokens_are_those_of_onnxruntime(bits: int, capacity: int, states: int, tmp_path: Path) -> None:
    path = tmp_path / "decoder.onnx"
    onnx.save(build(bits=bits, capacity=capacity), path)
    want, want_logits = theirs(path, capacity)
    report = atc.convert(path, tmp_path / "decoder.om", cache_capacity=states)
    assert len([n for n in report.aicpu_nodes if n["op"] not in ("Shape", "Range")]) == 0, report.aicpu_nodes
    assert len(report.aicpu_nodes) <= 3, report.aicpu_nodes  # lengths, once for all layers
    decoder = Decoder(InferSession(0, tmp_path / "decoder.om"))
    made, sequence = Generator(decoder).generate(PROMPT, COUNT, Sampling())
    assert list(made.tokens) == want
    logits, _ = decoder.step(sequence.truncated(len(PROMPT) + COUNT - 1, decoder.roles.caches), want[-1:])
    np.testing.assert_allclose(logits[-1], want_logits, rtol=1e-3, atol=1e-3)
