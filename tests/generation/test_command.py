"""`atc generate`: folders, tokens, text, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from counting_model import V, build, continued  # noqa: E402

from atc.command_line import main  # noqa: E402
from atc.generating import Words  # noqa: E402
from tensor_types.errors import InvalidModel  # noqa: E402

PROMPT = [3, 17, 5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in onnxruntime-genai's form, with a tokenizer that knows the words w0, w1, ..."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    folder = tmp_path_factory.mktemp("genai")
    build(folder / "decoder.onnx", names=("ids", "k_in.0", "k_out.0"))
    decoder = {
        "filename": "decoder.onnx", "inputs": {"input_ids": "ids", "past_key_names": "k_in.%d"},
        "outputs": {"logits": "logits", "present_key_names": "k_out.%d"},
    }  # fmt: skip
    config = {"model": {"eos_token_id": [22], "context_length": 64, "decoder": decoder}}
    (folder / "genai_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(WordLevel({f"w{k}": k for k in range(V)}, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    np.save(folder / "p.npy", np.array([PROMPT]))
    return folder


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["generate", *map(str, arguments)])
    return int(ended.value.code or 0)


def test_tokens_of_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--prompt-tokens", folder / "p.npy", "--max", 12, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    expected = continued(PROMPT, 12)
    cut = expected.index(22) + 1 if 22 in expected else 12
    assert found["tokens"] == expected[:cut]
    assert found["prefill_ms"] > 0 and found["ms_per_token"] > 0


def test_text_is_streamed_and_ends_at_a_stop_string(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"w{t}" for t in continued(PROMPT, 6)]
    prompt = " ".join(f"w{t}" for t in PROMPT)
    assert run(folder, "--prompt", prompt, "--max", 6) == 0
    assert capsys.readouterr().out.splitlines()[0] == " ".join(words)
    assert run(folder, "--prompt", prompt, "--max", 6, "--stop", f" {words[3]}", "--json") == 0
    assert json.loads(capsys.readouterr().out)["text"] == " ".join(words[:3])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((), "--prompt-tokens"), (("--prompt-tokens", "absent.npy"), "cannot be read"),
     (("--prompt-tokens", "f.npy"), "one row of integers"), (("--prompt-tokens", "p.npy", "--top-p", "2"), "top_p"),
     (("--prompt-tokens", "big.npy"), "outside of the vocabulary"), (("--prompt-tokens", "p.npy", "--stop", "x"), "--stop"),
     (("--prompt-tokens", "p.npy", "--guess", "2", "--temperature", "1"), "greedy")],
)  # fmt: skip
def test_refusals(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...],
    words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    np.save("f.npy", np.zeros((2, 2)))
    np.save("big.npy", np.array([V]))
    assert run(folder, "--max", 3, *arguments) != 0
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [({"model": 3}, "model is not an object"), ({"model": {"decoder": {"filename": "../x.onnx"}}}, "no file of the folder"),
     ({"model": {"decoder": {"filename": 3}}}, "filename is not a text"),
     ({"model": {"eos_token_id": "a", "decoder": {"filename": "decoder.onnx"}}}, "no token"),
     ({"model": {"decoder": {"filename": "decoder.onnx", "inputs": {"past_key_names": "a.%d"}}}}, "kinds of past")],
)  # fmt: skip
def test_a_wrong_configuration_names_its_field(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: object, words: str
) -> None:
    (tmp_path / "decoder.onnx").write_bytes((folder / "decoder.onnx").read_bytes())
    (tmp_path / "genai_config.json").write_text(json.dumps(change))
    assert run(tmp_path, "--prompt-tokens", folder / "p.npy") != 0
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "value", "refused"),
    [
        # What training left in a file neither cuts a prompt nor fills it up: this one took 4 GB for three words.
        ("padding", {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "w0"}, False),
        ("truncation", {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}, False),
        # A panic of the package is no Exception; an unknown word without a token for it is one without a type.
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, True),
        ("model", {"type": "WordLevel", "vocab": {"w3": 3}, "unk_token": "none"}, True),
    ],
)  # fmt: skip
def test_tokenizers_of_strangers(folder: Path, tmp_path: Path, field: str, value: object, refused: bool) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**tokenizer, field: value}))
    if refused:
        with pytest.raises(InvalidModel, match="no tokenizer"):
            Words(tmp_path / "tokenizer.json").tokens("w3 x")
    else:
        assert Words(tmp_path / "tokenizer.json").tokens("w3 w17 w5") == PROMPT
