"""A folder of onnxruntime-genai's form: `genai_config.json` says which file is the decoder and how its tensors are
called; `tokenizer.json` beside it is the tokenizer. Every field is checked before it is used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acl_runtime.generation.roles import Names
from tensor_types.errors import InvalidModel
from tensor_types.json_text import parse_json

CONFIG, TOKENIZER = "genai_config.json", "tokenizer.json"


@dataclass(frozen=True)
class ModelFolder:
    """decoder: the model's file. names: of its tensors. stop: tokens that end a text. context: most tokens, 0 if it is
    not said. tokenizer: its file, if it is there."""

    decoder: Path
    names: Names
    stop: tuple[int, ...] = ()
    context: int = 0
    tokenizer: Path | None = None


def read_folder(folder: Path) -> ModelFolder:
    """InvalidModel names the field of the configuration that is missing or of another kind."""
    path = folder / CONFIG
    try:
        config = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidModel(f"{path} cannot be read: {error}", remedy="give a folder with genai_config.json") from error
    read = _Reader(path)
    model = read.mapping(config, "model")
    decoder = read.mapping(model, "decoder", "model")
    name = read.text(decoder, "filename", "model.decoder") or "model.onnx"
    file = folder / name
    if Path(name).name != name or not os.path.isfile(file):
        raise InvalidModel(f"{path}: model.decoder.filename is {name!r}, which is no file of the folder",
                           remedy="put the decoder beside the configuration")  # fmt: skip
    inputs = read.mapping(decoder, "inputs", "model.decoder")
    outputs = read.mapping(decoder, "outputs", "model.decoder")
    past = read.texts(inputs, ("past_key_names", "past_value_names", "past_names"), "inputs")
    present = read.texts(outputs, ("present_key_names", "present_value_names", "present_names"), "outputs")
    if len(past) != len(present):
        raise InvalidModel(f"{path} names {len(past)} kinds of past and {len(present)} of present",
                           remedy="name both of each pair")  # fmt: skip
    names = Names(
        read.text(inputs, "input_ids", "inputs"), read.text(inputs, "attention_mask", "inputs"),
        read.text(inputs, "position_ids", "inputs"), read.text(outputs, "logits", "outputs"), past, present,
    )  # fmt: skip
    stop = model.get("eos_token_id", [])
    stop = stop if isinstance(stop, list) else [stop]
    context = model.get("context_length", 0)
    for value in (*stop, context):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidModel(f"{path}: {value!r} is no token and no length",
                               remedy="see eos_token_id and context_length")  # fmt: skip
    tokenizer = folder / TOKENIZER
    return ModelFolder(file, names, tuple(stop), context, tokenizer if tokenizer.is_file() else None)


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path

    def mapping(self, source: Any, name: str, place: str = "") -> dict[str, Any]:
        found = source.get(name, {}) if isinstance(source, dict) else None
        if not isinstance(found, dict):
            raise self._wrong(name, place, "an object")
        return found

    def text(self, source: dict[str, Any], name: str, place: str) -> str | None:
        found = source.get(name)
        if found is not None and not isinstance(found, str):
            raise self._wrong(name, place, "a text")
        return found

    def texts(self, source: dict[str, Any], names: Sequence[str], place: str) -> tuple[str, ...]:
        """Those of the names that are there."""
        return tuple(found for name in names if (found := self.text(source, name, place)))

    def _wrong(self, name: str, place: str, wanted: str) -> InvalidModel:
        full = f"{place}.{name}" if place else name
        return InvalidModel(f"{self.path}: {full} is not {wanted}", remedy="see onnxruntime-genai's documentation")
