"""Generation against plain arithmetic, and steps of a real decoder against onnxruntime."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from counting_model import V, build, continued, follow  # noqa: E402

import atc  # noqa: E402
from acl_runtime import InferSession  # noqa: E402
from acl_runtime.generation import Decoder, Generator, Names, Sampling, Sequence  # noqa: E402
from models.builders import gpt2, state_decoders  # noqa: E402
from tensor_types.errors import EnvironmentProblem, InvalidModel  # noqa: E402
from tests.generation.greedy_peer import greedy  # noqa: E402

PROMPT = [3, 17, 5]


def opened(folder: Path, **options: object) -> Decoder:
    source = build(folder / "m.onnx", **options)  # type: ignore[arg-type]
    atc.convert(source, folder / "m.om")
    return Decoder(InferSession(0, folder / "m.om"))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return opened(tmp_path_factory.mktemp("counting"))


@pytest.mark.parametrize("chunk", [0, 1, 2])
@pytest.mark.parametrize("guess", [0, 1, 4])
def test_greedy_tokens_are_exact_however_they_are_made(decoder: Decoder, chunk: int, guess: int) -> None:
    made, sequence = Generator(decoder, chunk=chunk, guess=guess).generate(PROMPT, 40)
    assert made.tokens == continued(PROMPT, 40)
    assert made.reason == "length"
    assert list(sequence.tokens) == [*PROMPT, *made.tokens[:-1]]
    assert sequence.caches[0].reshape(-1).tolist() == list(sequence.tokens)
    assert made.prefill_ms > 0 and made.ms_per_token > 0


def test_guesses_are_taken_where_the_text_repeats(decoder: Decoder) -> None:
    """The sum mod 23 comes back to where it was after some tokens, and so does the text."""
    made, _ = Generator(decoder, guess=6).generate(PROMPT, 120)
    assert made.tokens == continued(PROMPT, 120)
    assert made.accepted > 0


def test_a_stop_token_a_callback_and_the_length_end_it(decoder: Decoder) -> None:
    expected = continued(PROMPT, 30)
    made, _ = Generator(decoder).generate(PROMPT, 30, stop=[expected[4]])
    assert made.tokens == expected[: expected.index(expected[4]) + 1] and made.reason == "stop"
    made, _ = Generator(decoder, guess=3).generate(PROMPT, 30, on_token=lambda t: t == expected[9])
    assert made.tokens == expected[: expected.index(expected[9]) + 1]
    made, _ = Generator(decoder).generate(PROMPT, 1)
    assert (made.tokens, made.ms_per_token) == (expected[:1], 0)


def test_sequences_go_on_fork_step_back_and_come_back_from_a_file(decoder: Decoder, tmp_path: Path) -> None:
    generator = Generator(decoder)
    first, sequence = generator.generate(PROMPT, 10)
    more, _ = generator.generate(first.tokens[-1:], 5, sequence=sequence)
    assert more.tokens == continued([*PROMPT, *first.tokens], 5)
    again, _ = generator.generate(first.tokens[-1:], 5, sequence=sequence)
    assert again.tokens == more.tokens, "a fork is not written"
    back = sequence.truncated(5, decoder.roles.caches)
    other, _ = generator.generate([11], 6, sequence=back)
    assert other.tokens == continued([*sequence.tokens[:5], 11], 6)
    sequence.save(tmp_path / "s.npz", decoder.roles.caches)
    loaded = Sequence.load(tmp_path / "s.npz", decoder.roles.caches)
    assert generator.generate(first.tokens[-1:], 5, sequence=loaded)[0].tokens == more.tokens
    with pytest.raises(ValueError, match="no first 99"):
        sequence.truncated(99, decoder.roles.caches)


def test_the_same_seed_gives_the_same_tokens(decoder: Decoder) -> None:
    sampling = Sampling(temperature=1.5, top_k=8, top_p=0.9)
    first, _ = Generator(decoder).generate(PROMPT, 30, sampling, seed=3)
    assert Generator(decoder, chunk=1).generate(PROMPT, 30, sampling, seed=3)[0].tokens == first.tokens
    assert Generator(decoder).generate(PROMPT, 30, sampling, seed=4)[0].tokens != first.tokens


def test_a_decoder_that_gives_the_last_logits_alone(tmp_path: Path) -> None:
    decoder = opened(tmp_path, last_only=True)
    assert Generator(decoder, chunk=2).generate(PROMPT, 12)[0].tokens == continued(PROMPT, 12)
    with pytest.raises(EnvironmentProblem, match="logits of every token"):
        Generator(decoder, guess=2)


def test_mistakes_name_their_cause_and_leave_the_sequence(decoder: Decoder, tmp_path: Path) -> None:
    generator = Generator(decoder)
    _, sequence = generator.generate(PROMPT, 4)
    kept = sequence.caches[0].copy()
    for tokens, words in (([V], "outside of the vocabulary"), ([-1], "outside"), ([], "empty")):
        with pytest.raises(InvalidModel, match=words):
            generator.generate(tokens, 4, sequence=sequence)
    np.testing.assert_array_equal(sequence.caches[0], kept)
    with pytest.raises(InvalidModel, match="another model"):
        decoder.step(Sequence((1,), ()), [2])
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(InvalidModel, match="no saved sequence"):
        Sequence.load(tmp_path / "bad.npz", decoder.roles.caches)
    np.savez(tmp_path / "other.npz", tokens=np.arange(3), **{"past.0.key": np.zeros((1, 1, 2, 1), np.float32)})
    with pytest.raises(InvalidModel, match="a saved cache is"):
        Sequence.load(tmp_path / "other.npz", decoder.roles.caches)
    with pytest.raises(EnvironmentProblem, match="greedy choice only"):
        Generator(decoder, guess=2).generate(PROMPT, 4, Sampling(temperature=1.0))


def test_a_configuration_names_tensors(tmp_path: Path) -> None:
    source = build(tmp_path / "m.onnx", names=("words", "k_in_0", "k_out_0"))
    atc.convert(source, tmp_path / "m.om")
    session = InferSession(0, tmp_path / "m.om")
    with pytest.raises(InvalidModel, match="no known role"):
        Decoder(session)
    decoder = Decoder(session, Names(tokens="words", past=("k_in_%d",), present=("k_out_%d",)))
    assert Generator(decoder).generate(PROMPT, 8)[0].tokens == continued(PROMPT, 8)
    with pytest.raises(InvalidModel, match="does not have") as caught:
        Decoder(session, Names(tokens="words", past=("k_in_%d",), present=("absent_%d",)))
    assert caught.value.where["tensor"] == "absent_0"


def test_steps_of_gpt2_equal_onnxruntime(tmp_path: Path) -> None:
    """Mask, positions and four caches, in chunks of several tokens and of one."""
    source = tmp_path / "gpt2.onnx"
    onnx.save(gpt2.build(True, layers=2, hidden=32, heads=2, vocabulary=61, positions=64), source)
    atc.convert(source, tmp_path / "gpt2.om")
    decoder = Decoder(InferSession(0, tmp_path / "gpt2.om"))
    oracle = onnxruntime.InferenceSession(source)
    names = [o.name for o in oracle.get_outputs()]
    past = {i.name: np.zeros((1, 2, 0, 16), np.float32) for i in oracle.get_inputs() if i.name.startswith("past")}
    sequence, known = decoder.empty(), 0
    for tokens in ([7, 60, 3, 3], [12], [59, 1]):
        logits, sequence = decoder.step(sequence, tokens)
        known += len(tokens)
        feeds = {"input_ids": [tokens], "attention_mask": np.ones((1, known)), "position_ids": [range(known)[-len(tokens) :]]}
        feeds = {k: np.array(v, np.int64) for k, v in feeds.items()}
        found = dict(zip(names, oracle.run(None, {**feeds, **past}), strict=True))
        past = {name: found[name.replace("past", "present")] for name in past}
        np.testing.assert_allclose(logits[-1], found["logits"][0, -1], rtol=1e-4, atol=1e-5)
        for cache, array in zip(decoder.roles.caches, sequence.caches, strict=True):
            np.testing.assert_allclose(array, past[cache.past], rtol=1e-4, atol=1e-5)
    assert follow([1, 2]) == 13


def test_recurrent_states_have_no_capacity_and_do_not_step_back(tmp_path: Path) -> None:
    source = tmp_path / "recurrent.onnx"
    onnx.save(state_decoders.recurrent(domain="com.microsoft", layers=2, vocabulary=61), source)
    report = atc.convert(source, tmp_path / "recurrent.om")
    assert not report.aicpu_nodes
    decoder = Decoder(InferSession(0, tmp_path / "recurrent.om"))
    assert decoder.roles.capacity is None and all(c.recurrent for c in decoder.roles.caches)
    want, _ = greedy(source, PROMPT, 40)
    made, sequence = Generator(decoder, chunk=2).generate(PROMPT, 40)
    assert made.tokens == want
    guessed, again = Generator(decoder, guess=3).generate(PROMPT, 40)
    assert guessed.tokens == want and again.tokens == sequence.tokens and guessed.accepted
    for mine, other in zip(sequence.caches, again.caches, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)
    with pytest.raises(InvalidModel, match="recurrent state"):
        sequence.truncated(5, decoder.roles.caches)
    sequence.save(tmp_path / "s.npz", decoder.roles.caches)
    loaded = Sequence.load(tmp_path / "s.npz", decoder.roles.caches)
    assert Generator(decoder).generate(want[-1:], 5, sequence=loaded)[0].tokens == greedy(source, [*PROMPT, *want], 5)[0]
