"""Every model by name: where its file comes from, the shape for figures, its free dims, its seeded inputs."""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx

from acl_runtime.om.replace_file import replace_file
from models import inputs as draw
from models import quantised, trained
from models.builders import bert, conv_layers, genai_decoder, gpt2, graph_writer, llama, mobilenetv2, moe, resnet50
from models.trained import ModelUnavailable

Arrays = dict[str, np.ndarray]
MakeInputs = Callable[..., Arrays]


@dataclass(frozen=True)
class Model:
    """`dims`: the free dims of the model and their sizes for figures; each is a keyword of `make_inputs`.

    `build` writes a built model to a path; a trained model has none. `sources` are the modules that decide its bytes.
    `int8`: quantised, so compared under the int8 limits.
    """

    name: str
    summary: str
    make_inputs: MakeInputs
    dims: dict[str, int] = field(default_factory=dict)
    build: Callable[[Path], None] | None = None
    sources: tuple[ModuleType, ...] = ()
    int8: bool = False


def _silero(rng: np.random.Generator, batch: int = 1, rate: int | None = None) -> Arrays:
    arrays = {"input": draw.tone(rng, 576, 16000, batch), "state": rng.standard_normal((2, batch, 128), np.float32) / 4}
    return arrays if rate is None else arrays | {"sr": np.array(rate, np.int64)}


def _gpt2(rng: np.random.Generator, batch: int, sequence: int, past: int | None = None) -> Arrays:
    total = sequence + (past or 0)
    arrays = {
        "input_ids": draw.token_ids(rng, 50257, batch, sequence),
        "attention_mask": np.ones((batch, total), np.int64),
    }
    if past is not None:
        arrays["position_ids"] = np.tile(np.arange(past, total, dtype=np.int64), (batch, 1))
        for i in range(12):
            for part in ("key", "value"):
                arrays[f"past.{i}.{part}"] = rng.standard_normal((batch, 12, past, 64), np.float32)
    return arrays


def _llama(rng: np.random.Generator, batch: int, sequence: int) -> Arrays:
    positions = np.tile(np.arange(sequence, dtype=np.int64), (batch, 1))
    return {"input_ids": draw.token_ids(rng, 8192, batch, sequence), "position_ids": positions}


def _decoder(rng: np.random.Generator, sequence: int, past: int, halves: bool = False) -> Arrays:
    arrays = {
        "input_ids": draw.token_ids(rng, 49152, 1, sequence),
        "attention_mask": np.ones((1, sequence + past), np.int64),
    }
    kind = np.float16 if halves else np.float32
    for i in range(30):
        for part in ("key", "value"):
            arrays[f"past_key_values.{i}.{part}"] = rng.standard_normal((1, 3, past, 64), np.float32).astype(kind)
    return arrays


def _image(rng: np.random.Generator) -> Arrays:
    return {"input": draw.normalised_scene(rng, 224, 224)}


def _bert(rng: np.random.Generator, batch: int, sequence: int) -> Arrays:
    return draw.sentence_pair(rng, 30522, batch, sequence)


def _save(make: Callable[[], onnx.ModelProto]) -> Callable[[Path], None]:
    return lambda path: onnx.save(make(), path)


def _calibration() -> list[Arrays]:
    return [_image(np.random.default_rng(100 + i)) for i in range(8)]


CONV = (graph_writer, conv_layers)
MODELS: dict[str, Model] = {
    model.name: model
    for model in [
        Model(
            "ppocrv6_det",
            "text detector",
            lambda rng, batch, height, width: {"x": draw.normalised_scene(rng, height, width, batch)},
            {"batch": 1, "height": 640, "width": 640},
        ),
        Model(
            "ppocrv6_rec",
            "text recogniser, convolution and attention",
            lambda rng, batch, width: {"x": draw.text_line(rng, 3, 48, width, batch) * 2 - 1},
            {"batch": 1, "width": 320},
        ),
        Model(
            "ppocr_cls",
            "text angle classifier, MobileNetV3",
            lambda rng, batch, height, width: {"x": draw.text_line(rng, 3, height, width, batch) * 2 - 1},
            {"batch": 1, "height": 48, "width": 192},
        ),
        Model("dddd_det", "detector, YOLOX-s", lambda rng: {"images": draw.scene(rng, 416, 416) * 255}),
        Model(
            "dddd_ocr",
            "CNN and LSTM reader",
            lambda rng, width: {"input1": draw.text_line(rng, 1, 64, width) * 2 - 1},
            {"width": 160},
        ),
        Model(
            "dddd_ocr_dynint8",
            "CNN and LSTM reader, dynamically quantised",
            lambda rng, width: {"input1": draw.text_line(rng, 1, 64, width) * 2 - 1},
            {"width": 160},
            int8=True,
        ),
        Model(
            "yolov8n_320",
            "detector, YOLOv8n",
            lambda rng, batch, height, width: {"images": draw.scene(rng, height, width, batch)},
            {"batch": 1, "height": 320, "width": 320},
        ),
        Model("silero_vad", "streaming voice activity", _silero),
        Model("silero_vad_if", "streaming voice activity with If", partial(_silero, rate=16000), {"batch": 1}),
        Model(
            "magika",
            "file-type classifier",
            lambda rng, batch: {"bytes": draw.source_text(rng, 2048, batch)},
            {"batch": 1},
        ),
        Model(
            "basic_pitch",
            "audio to notes",
            lambda rng, batch: {"serving_default_input_2:0": draw.tone(rng, 43844, 22050, batch)[..., None]},
            {"batch": 1},
        ),
        Model(
            "spindle_unet",
            "1-D U-Net on EEG",
            lambda rng, batch: {
                "raw_signal": draw.brain_signal(rng, 7500, 250, batch),
                "spectrogram": draw.spectrogram(rng, 15, 7500, batch),
            },
            {"batch": 1},
        ),
        Model(
            "smart_turn_qdq",
            "Whisper-tiny encoder, static int8",
            # Without an end the net cannot decide, and its answer moves by a fifth with onnxruntime's own roundings.
            lambda rng, batch: {
                "input_features": draw.ending(draw.spectrogram(rng, 80, 800, batch).clip(-1.5, 1.5), -1.0)
            },
            {"batch": 1},
            int8=True,
        ),
        Model("minilm_int8w", "sentence transformer, int8 weights", _bert, {"batch": 1, "sequence": 128}, int8=True),
        Model(
            "resnet50",
            "ResNet-50, batch norm folded",
            _image,
            build=_save(resnet50.build),
            sources=(*CONV, resnet50),
        ),
        Model(
            "resnet50_bn",
            "ResNet-50 with BatchNormalization nodes",
            _image,
            build=_save(partial(resnet50.build, folded=False)),
            sources=(*CONV, resnet50),
        ),
        Model(
            "resnet50_qdq",
            "ResNet-50, static int8, per-channel weights",
            _image,
            build=lambda path: quantised.quantise_static(get("resnet50"), path, _calibration()),
            sources=(*CONV, resnet50, quantised, draw),
            int8=True,
        ),
        Model(
            "mobilenetv2",
            "MobileNetV2 with BatchNormalization and Clip",
            _image,
            build=_save(mobilenetv2.build),
            sources=(*CONV, mobilenetv2),
        ),
        Model(
            "bert_base_128",
            "BERT-base in primitive operators",
            _bert,
            {"batch": 1, "sequence": 128},
            build=_save(bert.build),
            sources=(graph_writer, bert),
        ),
        Model(
            "bert_base_128_dynint8",
            "BERT-base, dynamically quantised",
            _bert,
            {"batch": 1, "sequence": 128},
            build=lambda path: quantised.quantise_dynamic(get("bert_base_128"), path),
            sources=(graph_writer, bert, quantised),
            int8=True,
        ),
        Model(
            "gpt2_prefill256",
            "GPT-2 small, prefill",
            _gpt2,
            {"batch": 1, "sequence": 256},
            build=_save(partial(gpt2.build, with_past=False)),
            sources=(graph_writer, gpt2),
        ),
        Model(
            "gpt2_decode",
            "GPT-2 small, decode with a KV cache",
            _gpt2,
            {"batch": 1, "sequence": 1, "past": 255},
            build=_save(partial(gpt2.build, with_past=True)),
            sources=(graph_writer, gpt2),
        ),
        Model(
            "llama_opset24",
            "4 Llama layers in opset-24 operators",
            _llama,
            {"batch": 1, "sequence": 128},
            build=_save(llama.build),
            sources=(graph_writer, llama),
        ),
        *(
            Model(
                f"decoder_{kind}",
                f"one token of 30 layers behind 128, in the form of onnxruntime-genai's builder, {weights}",
                partial(_decoder, halves=kind == "f16"),
                {"sequence": 1, "past": 128},
                build=_save(partial(genai_decoder.build, layers=30, hidden=576, heads=9, kv_heads=3, inner=1536,
                                    vocabulary=49152, positions=4096, **given)),
                sources=(graph_writer, genai_decoder),
                int8=kind in ("int4", "int8"),
            )
            for kind, weights, given in (
                ("f32", "weights of f32", {}),
                ("f16", "everything f16", {"halves": True}),
                ("int8", "codes of 8 bits, products of bytes", {"bits": 8, "accuracy": 4}),
                ("int4", "codes of 4 bits, products of bytes", {"bits": 4, "accuracy": 4}),
            )
        ),
        *(
            Model(
                f"moe_{form}",
                f"8 experts, top-2, {summary}",
                lambda rng, tokens: {"x": rng.standard_normal((tokens, 512), np.float32)},
                {"tokens": 64},
                build=_save(partial(moe.build, form)),
                sources=(graph_writer, moe),
            )
            for form, summary in (
                ("dense", "every expert on every token"),
                ("sparse", "tokens routed with NonZero and ScatterND"),
                ("gathered", "the matrices of each token picked by index"),
                ("expanded", "tokens repeated for each expert, batched products"),
            )
        ),
    ]
}


def cache_folder() -> Path:
    """Where model files lie: OPENATC_MODELS, or ~/.cache/openatc/models."""
    return Path(os.environ.get("OPENATC_MODELS") or Path.home() / ".cache" / "openatc" / "models")


def names() -> list[str]:
    return list(MODELS)


def spec(name: str) -> Model:
    """The model's entry; KeyError lists the names that exist."""
    if name not in MODELS:
        raise KeyError(f"no model {name!r}; known: {', '.join(MODELS)}")
    return MODELS[name]


def get(name: str) -> Path:
    """Path of the model's file, built or fetched into the cache when it is not there.

    A built file is made anew when one of its builder's modules changed. Raises ModelUnavailable when a trained model
    cannot be fetched.
    """
    model = spec(name)
    folder = cache_folder()
    if model.build is None:
        return trained.fetch(name, folder)
    path, key_path = folder / f"{name}.onnx", folder / f"{name}.key"
    key = hashlib.sha256("".join(map(inspect.getsource, model.sources)).encode()).hexdigest()
    if path.exists() and key_path.exists() and key_path.read_text() == key:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{name}.{os.getpid()}.part"
    try:
        model.build(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    key_path.write_text(key)
    return path


def listing() -> list[dict[str, object]]:
    """Every model for people and machines: name, origin ('built' or 'trained'), dims, summary."""
    return [
        {"name": name, "origin": "built" if m.build else "trained", "dims": m.dims, "summary": m.summary}
        for name, m in MODELS.items()
    ]


def shown_dims(row: dict[str, object]) -> str:
    """The open dims of a row of `listing`, with their sizes for figures."""
    dims = row["dims"]
    assert isinstance(dims, dict)
    return " ".join(f"{key}={size}" for key, size in dims.items()) or "static"


def copy(name: str, target: Path) -> None:
    """Writes a copy of the model's file, whole or not at all. PackageError if it cannot be written; as `get`."""
    with get(name).open("rb") as model, replace_file(target) as file:
        shutil.copyfileobj(model, file)


def inputs(name: str, seed: int = 0, **dims: int) -> Arrays:
    """Seeded inputs at the shape for figures; `dims` override free dims (`spec(name).dims`), for example width=333."""
    model = spec(name)
    unknown = dims.keys() - model.dims.keys()
    if unknown:
        raise ValueError(f"{name} has no free dim {', '.join(sorted(unknown))}; it has {model.dims}")
    return model.make_inputs(np.random.default_rng(seed), **(model.dims | dims))


def shapes(name: str, **dims: int) -> dict[str, tuple[int, ...]]:
    """Input shapes that `inputs` would give."""
    return {key: array.shape for key, array in inputs(name, **dims).items()}


__all__ = ["MODELS", "Model", "ModelUnavailable", "cache_folder", "get", "inputs", "names", "shapes", "spec"]
