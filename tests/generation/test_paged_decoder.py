"""A decoder of PagedAttention and KvPages: several texts in one batch, tokens as the decoder with caches in one piece
gives them, one text at a time, by onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from acl_runtime import InferSession, KvPages
from atc.conversion import convert
from atc.options import Options
from models.builders.genai_decoder import build
from tensor_types.errors import InvalidModel, ResourceLimit

PAGE, BLOCKS = 8, 24
RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paged")
    onnx.save(build(page=PAGE, sinks=True), folder / "paged.onnx")
    report = convert(folder / "paged.onnx", folder / "paged.om", Options(cache_capacity=PAGE * BLOCKS))
    assert not report.aicpu_nodes
    return folder / "paged.om"


@pytest.fixture(scope="module")
def peer() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(build(sinks=True).SerializeToString(), providers=["CPUExecutionProvider"])


def logits_of(peer: onnxruntime.InferenceSession, text: list[int]) -> np.ndarray:
    """Of the last token, the whole text at once without a past."""
    fed: dict[str, np.ndarray] = {
        i.name: np.zeros((1, 2, 0, 16), np.float32) for i in peer.get_inputs() if i.name.startswith("past")
    }
    ids = np.array([text], np.int64)
    return peer.run(["logits"], {**fed, "input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0, -1]


def test_texts_of_unlike_lengths_in_one_batch(package: Path, peer: onnxruntime.InferenceSession) -> None:
    """Prompts and steps of others share runs; a text forks, one begins as another did, one ends and gives its pages."""
    session = InferSession(0, package)
    assert session.state() is not None
    pages = KvPages(BLOCKS, PAGE, session.state())
    texts: dict[int, list[int]] = {}
    waiting: dict[int, list[int]] = {}

    def begin(text: list[int]) -> int:
        sequence, held = pages.open(text)
        texts[sequence], waiting[sequence] = list(text), text[held:]
        return sequence

    def step() -> None:
        batch = pages.append(waiting)
        names = {node.name for node in session.get_inputs()}
        logits = session.infer({n: a for n, a in batch.inputs.items() if n in names})[0][batch.last_tokens]
        for sequence, row in zip(list(waiting), logits, strict=True):
            want = logits_of(peer, texts[sequence])
            np.testing.assert_allclose(row, want, rtol=1e-3, atol=1e-4)
            assert row.argmax() == want.argmax()
            texts[sequence].append(int(row.argmax()))
            waiting[sequence] = texts[sequence][-1:]

    long, short = RNG.integers(0, 256, 21).tolist(), RNG.integers(0, 256, 3).tolist()
    first = begin(long)
    begin(short)
    for _ in range(3):
        step()
    fork = pages.fork(first)
    texts[fork] = [*texts[first][:-1], 7]
    waiting[fork] = [7]
    alike = begin([*long[:18], 9, 9])
    assert pages.figures.saved == 3 + 2 and len(waiting[alike]) == 4
    for _ in range(4):
        step()
    pages.free(first)
    del waiting[first]
    step()
    assert pages.pages(fork)[:2] == pages.pages(alike)[:2]


def test_a_run_without_room_leaves_all_as_it_was(package: Path) -> None:
    session = InferSession(0, package)
    pages = KvPages(BLOCKS, PAGE, session.state())
    one, _ = pages.open()
    pages.append({one: range(PAGE * BLOCKS - 1)})
    with pytest.raises(ResourceLimit, match="cache_capacity"):
        pages.append({one: [1, 2]})
    assert pages.figures.used == BLOCKS


def test_caches_are_declared_with_blocks_for_the_capacity(tmp_path: Path) -> None:
    model = build(page=PAGE)
    next(i for i in model.graph.input if i.name.startswith("past_key")).type.tensor_type.shape.dim[0].dim_value = 3
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(InvalidModel, match="declared with 3 blocks.*--cache_capacity=24"):
        convert(tmp_path / "m.onnx", tmp_path / "m.om", Options(cache_capacity=99))
