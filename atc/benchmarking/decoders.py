"""A decoder's next token, as programs that generate text run it: with caches of their own, one token after another.

The caches that a case gives are not used but for their length: a prompt of as many tokens fills those of the contender.
What it then says of the next token is held against onnxruntime, when the model is loaded.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atc.benchmarking.loaded import Arrays, Loaded
from atc.benchmarking.verify import EXACT, QUANTISED, difference

_SPAN = 32
"""Tokens behind the prompt before it is begun again, so that all figures are of about the same length."""
_PAST, _PRESENT = "past_key_values", "present"


@dataclass(frozen=True)
class _Form:
    """What a decoder in the form of onnxruntime-genai's builder says of itself."""

    layers: int
    heads: int
    kv_heads: int
    size: int
    vocabulary: int
    quantised: bool

    @staticmethod
    def of(model: Path) -> _Form:
        """ValueError if the model is no such decoder."""
        import onnx

        graph = onnx.load(model, load_external_data=False).graph
        caches = [v for v in graph.input if v.name.startswith(_PAST)]
        nodes = [n for n in graph.node if n.op_type == "GroupQueryAttention"]
        logits = next((v for v in graph.output if v.name == "logits"), None)
        if not caches or not nodes or logits is None:
            raise ValueError("no decoder in the form of onnxruntime-genai's builder")
        dims = [d.dim_value for d in caches[0].type.tensor_type.shape.dim]
        heads = next(a.i for a in nodes[0].attribute if a.name == "num_heads")
        vocabulary = logits.type.tensor_type.shape.dim[-1].dim_value
        narrow = any(n.op_type == "MatMulNBits" for n in graph.node)
        return _Form(len(caches) // 2, heads, dims[1], dims[3], vocabulary, narrow)


class GenAi:
    """onnxruntime-genai, one sequence, buffers shared by past and present."""

    reduced = False
    compares = False

    def load(self, model: Path, inputs: Arrays, threads: int) -> Loaded:
        import onnxruntime_genai

        form, prompt = _Form.of(model), _prompt(model, inputs)
        folder = tempfile.TemporaryDirectory()  # noqa: SIM115
        (Path(folder.name) / "model.onnx").symlink_to(model.resolve())
        config = _genai_config(form, len(prompt) + _SPAN + 1, threads)
        (Path(folder.name) / "genai_config.json").write_text(json.dumps(config))
        loaded = onnxruntime_genai.Model(folder.name)
        search = onnxruntime_genai.GeneratorParams(loaded)
        search.set_search_options(max_length=len(prompt) + _SPAN + 1, do_sample=False)
        generator = onnxruntime_genai.Generator(loaded, search)
        generator.append_tokens(prompt.astype(np.int32))
        _check(model, form, prompt, np.asarray(generator.get_logits()).reshape(-1, form.vocabulary)[-1])

        def begin() -> None:
            generator.rewind_to(len(prompt) - 1)
            generator.append_tokens(prompt[-1:].astype(np.int32))

        def token() -> None:
            generator.append_tokens(prompt[:1].astype(np.int32))
            generator.get_logits()

        options = {"version": onnxruntime_genai.__version__, "past_present_share_buffer": True}
        return _loaded(begin, token, options, folder)


class OursGenerating:
    """openatc: caches as states of the package, a token at a time."""

    reduced = False
    compares = False

    def load(self, model: Path, inputs: Arrays, threads: int) -> Loaded:
        import atc
        from acl_runtime import InferSession
        from acl_runtime.generation import Decoder

        form, prompt = _Form.of(model), _prompt(model, inputs)
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / "model.om"
            atc.convert(model, output=package, cache_capacity=len(prompt) + _SPAN + 1)
            decoder = Decoder(InferSession(0, str(package), threads=threads))
        logits, whole = decoder.step(decoder.empty(), prompt.tolist())
        _check(model, form, prompt, logits[-1])
        now = [whole]

        def begin() -> None:
            now[0] = whole

        def token() -> None:
            now[0] = decoder.step(now[0], prompt[:1].tolist())[1]

        return _loaded(begin, token, {"flags": {"cache_capacity": len(prompt) + _SPAN + 1}})


def _loaded(
    begin: Callable[[], None], token: Callable[[], None], options: dict[str, Any], folder: object = None
) -> Loaded:
    """A run is one token; after some of them the prompt is begun again. `folder` lives as long as the run."""
    turn = itertools.count(1)

    def run(_folder: object = folder) -> Arrays:
        token()
        if next(turn) % _SPAN == 0:
            begin()
        return {}

    return Loaded(run, options)


def _prompt(model: Path, inputs: Arrays) -> np.ndarray:
    """Seeded tokens, as many as the case has rows in its caches."""
    past = inputs["attention_mask"].shape[1] - inputs["input_ids"].shape[1]
    return np.random.default_rng(0).integers(0, _Form.of(model).vocabulary, past)


def _genai_config(form: _Form, length: int, threads: int) -> dict[str, Any]:
    """genai_config.json of onnxruntime-genai."""
    names = {f"{side}_{part}_names": f"{prefix}.%d.{part}" for side, prefix in (("past", _PAST), ("present", _PRESENT))
             for part in ("key", "value")}  # fmt: skip
    return {
        "model": {
            "type": "llama", "bos_token_id": 1, "eos_token_id": form.vocabulary - 1, "pad_token_id": 0,
            "context_length": length, "vocab_size": form.vocabulary,
            "decoder": {
                "filename": "model.onnx", "head_size": form.size, "hidden_size": form.heads * form.size,
                "num_attention_heads": form.heads, "num_hidden_layers": form.layers,
                "num_key_value_heads": form.kv_heads,
                "session_options": {"intra_op_num_threads": threads, "inter_op_num_threads": 1, "provider_options": []},
                "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask",
                           **{k: v for k, v in names.items() if k.startswith("past")}},
                "outputs": {"logits": "logits", **{k: v for k, v in names.items() if k.startswith("present")}},
            },
        },
        "search": {"max_length": length, "past_present_share_buffer": True, "do_sample": False},
    }  # fmt: skip


def _check(model: Path, form: _Form, prompt: np.ndarray, logits: np.ndarray) -> None:
    """ValueError unless the logits behind the prompt are those of onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    feeds = {"input_ids": prompt[None].astype(np.int64), "attention_mask": np.ones((1, len(prompt)), np.int64)}
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    for entry in session.get_inputs():
        if entry.name.startswith(_PAST):
            feeds[entry.name] = np.zeros((1, form.kv_heads, 0, form.size), kinds[entry.type])
    (expected,) = session.run(["logits"], feeds)
    actual = logits.astype(expected.dtype)
    found = difference("logits", expected[0, -1], actual, QUANTISED if form.quantised else EXACT)
    if found.problem:
        raise ValueError(f"behind the prompt: {found.problem}")
