"""Caches as states: sequences that share buffers give what a run without any history gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import atc
from acl_runtime import InferSession
from acl_runtime.generation import Decoder
from acl_runtime.generation.sequence import Sequence
from models.builders.genai_decoder import build
from models.builders.graph_writer import GraphWriter
from tensor_types.errors import InvalidModel, ResourceLimit

CAPACITY, VOCABULARY = 24, 32


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder = tmp_path_factory.mktemp("states")
    model = build(layers=1, hidden=16, heads=2, kv_heads=1, inner=16, vocabulary=VOCABULARY, positions=64)
    onnx.save(model, folder / "decoder.onnx")
    atc.convert(folder / "decoder.onnx", folder / "decoder.om", cache_capacity=CAPACITY)
    return Decoder(InferSession(0, folder / "decoder.om"))


def test_any_order_of_append_fork_truncate_save(decoder: Decoder, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    kinds, known = decoder.roles.states, {}
    assert len(kinds) == 2 and not decoder.roles.caches

    def fresh(tokens: tuple[int, ...]) -> np.ndarray:
        """Logits behind the tokens, of a run that has no history but the first of them."""
        if tokens not in known:
            sequence = decoder.empty()
            for token in tokens:
                logits, sequence = decoder.step(sequence, [token])
            known[tokens] = logits[-1]
        return known[tokens]

    living = [decoder.empty()]
    for _ in range(120):
        at = int(rng.integers(len(living)))
        sequence, act = living[at], rng.integers(5)
        if act <= 1 and len(sequence) < CAPACITY:
            logits, longer = decoder.step(sequence, [int(rng.integers(VOCABULARY))])
            np.testing.assert_array_equal(logits[-1], fresh(longer.tokens))
            # The old one lives on as a fork, or not.
            living = [*living, longer] if act else [*living[:at], longer, *living[at + 1 :]]
        elif act == 2:
            living[at] = sequence.truncated(int(rng.integers(len(sequence) + 1)), kinds)
        elif act == 3 and len(sequence):
            sequence.save(tmp_path / "s.npz", kinds)
            living[at] = Sequence.load(tmp_path / "s.npz", kinds)
        elif len(living) > 4:
            del living[at]


def test_beyond_the_capacity_nothing_changes(decoder: Decoder) -> None:
    _, sequence = decoder.step(decoder.empty(), [1] * CAPACITY)
    with pytest.raises(ResourceLimit, match=f"{CAPACITY + 1} tokens do not fit"):
        decoder.step(sequence, [2])
    _, other = decoder.step(decoder.empty(), [1, 2, 3])
    before = other.held.rows(3) if other.held else ()
    with pytest.raises(InvalidModel, match="outside of the vocabulary"):
        decoder.step(other, [VOCABULARY])
    for a, b in zip(before, other.held.rows(3) if other.held else (), strict=True):
        np.testing.assert_array_equal(a, b)


def test_states_of_a_session(decoder: Decoder, tmp_path: Path) -> None:
    session = decoder.session
    state = session.new_state()
    content = {n: np.random.default_rng(1).standard_normal(state.get(n).shape).astype(np.float32) for n in state.names}
    state.put(content)
    fork = state.copy()
    state.save(tmp_path / "state.npz")
    state.reset()
    assert not any(state.get(n).any() for n in state.names)
    state.restore(tmp_path / "state.npz")
    for name in state.names:
        np.testing.assert_array_equal(state.get(name), content[name])
        np.testing.assert_array_equal(fork.get(name), content[name])
    np.savez(tmp_path / "other.npz", a=np.zeros(3, np.uint8))
    with pytest.raises(InvalidModel, match="of another model"):
        state.restore(tmp_path / "other.npz")
    (tmp_path / "none.npz").write_bytes(b"no archive")
    with pytest.raises(InvalidModel, match="is no saved state"):
        state.restore(tmp_path / "none.npz")


def _joined(path: Path, names: tuple[str, str]) -> Path:
    """A cache that grows by Concat."""
    g = GraphWriter("joined", 0)
    past = g.input(names[0], onnx.TensorProto.FLOAT, [1, 1, "past", 4])
    new = g.input("new", onnx.TensorProto.FLOAT, [1, 1, "s", 4])
    g.output(g.op("Concat", past, new, axis=2), names[1], onnx.TensorProto.FLOAT, [1, 1, "total", 4])
    onnx.save(g.model(), path)
    return path


@pytest.mark.parametrize(
    ("names", "reason"),
    [(("past.0.key", "present.0.key"), "cannot be written in place"), (("x", "y"), "no pair of a past and a present")],
)
def test_what_cannot_become_a_state(names: tuple[str, str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=reason) as refused:
        atc.convert(_joined(tmp_path / "m.onnx", names), tmp_path / "m.om", cache_capacity=16)
    assert refused.value.code == "E10064"
