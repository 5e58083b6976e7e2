"""Several texts in one batch, and guesses of a draft: the tokens of one text alone, by onnxruntime."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from counting_model import V, build, continued  # noqa: E402

import acl_runtime  # noqa: E402
import atc  # noqa: E402
from acl_runtime.generation import Decoder, Generator, Sampling  # noqa: E402
from acl_runtime.generation.batch import can_batch  # noqa: E402
from atc.command_line import main  # noqa: E402
from models.builders import genai_decoder, gpt2, state_decoders  # noqa: E402
from tensor_types.errors import EnvironmentProblem, InvalidModel, ResourceLimit  # noqa: E402
from tests.generation.greedy_peer import greedy  # noqa: E402

PROMPTS = [[3, 17, 5, 9, 30], [8], [40, 2, 2]]
SMALL = {"layers": 2, "hidden": 64, "vocabulary": 61}
FORMS: dict[str, Callable[[], onnx.ModelProto]] = {
    "padded in front": partial(gpt2.build, True, heads=2, positions=64, **SMALL),
    "padded behind": partial(genai_decoder.build, inner=48, **SMALL),
    "shared buffers": partial(genai_decoder.build, inner=48, capacity=24, **SMALL),
    "recurrent": partial(state_decoders.recurrent, domain="com.microsoft", inner=48, **SMALL),
}


def opened(model: onnx.ModelProto, folder: Path) -> Decoder:
    onnx.save(model, folder / "m.onnx")
    atc.convert(folder / "m.onnx", folder / "m.om")
    return Decoder.open(folder / "m.om")


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_gives_each_text_its_own_tokens(form: str, tmp_path: Path) -> None:
    decoder = opened(FORMS[form](), tmp_path)
    assert can_batch(decoder, [len(p) for p in PROMPTS])
    want = [decoder_alone(decoder, p, 14) for p in PROMPTS]
    assert want == [greedy(tmp_path / "m.onnx", p, 14)[0] for p in PROMPTS]
    made = Generator(decoder, chunk=2).generate_batch(PROMPTS, 14)
    assert [m.tokens for m in made] == want and all(m.batched for m in made)
    stop = want[1][4]
    ended = Generator(decoder).generate_batch(PROMPTS, 14, stop=[stop])
    for m, tokens in zip(ended, want, strict=True):
        assert m.tokens == (tokens[: tokens.index(stop) + 1] if stop in tokens else tokens)
        assert m.reason == ("stop" if stop in tokens else "length")
    warm = Sampling(temperature=0.9, top_k=20)
    drawn = Generator(decoder).generate_batch(PROMPTS, 10, warm, seed=5)
    alone = [Generator(decoder).generate(p, 10, warm, seed=5 + n)[0].tokens for n, p in enumerate(PROMPTS)]
    assert [m.tokens for m in drawn] == alone


def test_texts_that_no_batch_takes_come_one_after_another_and_say_so(tmp_path: Path) -> None:
    decoder = opened(FORMS["shared buffers"](), tmp_path)
    [made] = Generator(decoder).generate_batch([PROMPTS[0]], 6)
    assert made.tokens == greedy(tmp_path / "m.onnx", PROMPTS[0], 6)[0] and not made.batched


def decoder_alone(decoder: Decoder, prompt: list[int], count: int) -> list[int]:
    return Generator(decoder).generate(prompt, count)[0].tokens


def test_the_capacity_ends_a_batch_and_a_bad_token_leaves_it(tmp_path: Path) -> None:
    decoder = opened(FORMS["shared buffers"](), tmp_path)
    made = Generator(decoder).generate_batch([[3, 17, 5, 9, 30], [8]], 40)
    assert [(len(m.tokens), m.reason) for m in made] == [(20, "capacity"), (24, "capacity")]
    with pytest.raises(InvalidModel, match="outside of the vocabulary"):
        Generator(decoder).generate_batch([[3], [61]], 4)
    with pytest.raises(ResourceLimit, match="do not fit"):
        Generator(decoder).generate_batch([[3], [4] * 25], 4)
    with pytest.raises(EnvironmentProblem, match="one text at a time"):
        Generator(decoder, guess=2).generate_batch([[3], [4]], 4)


def test_guesses_of_a_draft_are_exact(tmp_path: Path) -> None:
    decoder = opened(FORMS["padded behind"](), tmp_path)
    want = decoder_alone(decoder, PROMPTS[0], 30)
    (tmp_path / "other").mkdir()
    drafts = [decoder, opened(partial(FORMS["padded behind"], seed=9)(), tmp_path / "other")]
    drafts.append(opened(FORMS["recurrent"](), tmp_path / "other"))
    for draft, least in zip(drafts, (15, 0, 0), strict=True):
        made, sequence = Generator(decoder, guess=3, draft=draft).generate(PROMPTS[0], 30)
        assert made.tokens == want and made.accepted >= least
        assert list(sequence.tokens) == [*PROMPTS[0], *want[:-1]]
    with pytest.raises(InvalidModel, match="vocabulary of 256"):
        Generator(decoder, guess=3, draft=opened(genai_decoder.build(layers=1), tmp_path / "other"))


def test_the_command_takes_several_prompts_and_a_draft(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, texts = build(tmp_path / "m.onnx"), [[3, 17, 5], [7, 7, 7]]
    for number, tokens in enumerate(texts):
        np.save(tmp_path / f"{number}.npy", np.array(tokens))
    given = [word for n in range(2) for word in ("--prompt-tokens", str(tmp_path / f"{n}.npy"))]
    with pytest.raises(SystemExit, match="0"):
        main(["generate", str(model), *given, "--max", "9", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == [continued(t, 9) for t in texts] and found["reason"] == ["length"] * 2
    with pytest.raises(SystemExit, match="0"):
        main(["generate", str(model), *given[:2], "--max", "9", "--json", "--draft", str(model)])
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == continued(texts[0], 9) and found["accepted"] > 0


def test_the_runtime_opens_models_and_folders_by_path(tmp_path: Path) -> None:
    build(tmp_path / "m.onnx", names=("ids", "k_in_0", "k_out_0"))
    names = {"filename": "m.onnx", "inputs": {"input_ids": "ids", "past_key_names": "k_in_%d"},
             "outputs": {"present_key_names": "k_out_%d"}}  # fmt: skip
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"decoder": names}}))
    assert acl_runtime.Generator(tmp_path).generate([3, V - 1], 6)[0].tokens == continued([3, V - 1], 6)
