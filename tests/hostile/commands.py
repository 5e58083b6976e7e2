"""Command lines of ais_bench, and tokenizers of decoders, that were changed: exit codes with a line, and nothing else."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np

from ais_bench.command import main
from atc.generating import Words
from tests.hostile import files, packages

_MODELS = ("mlp", "integers", "branches", "half_cast")
_NUMBERS = ("0", "1", "2", "3", "-1", "1.5", "", "9" * 5000, "x", "٣", "²", "1e3", "0,0", "1,2", "9" * 30, "255", "256")
_TEXTS = ("", ",", "/", ".", "/nonexistent", "\0", "é\udc80", "x" * 5000, "a/" * 2000, "..", "-", "%s", "世界", " ")
_SHAPES = ("x:4,8", "x:0,8", "x:-1,8", "x:4,9", "y:1", "x:", ":", "x:1,8;x:2,8", "x:1,8;", "flag:", "x:4,4;flag:1",
           "x:" + "9" * 30 + ",8", "x:9999999999999,8", "x:1,2,3", "x:a,b", "x" * 3000)  # fmt: skip
_OPTIONS: dict[str, tuple[str, ...]] = {
    "--output_dirname": _TEXTS, "--outfmt": ("NPY", "TXT", "BIN", "txt", ""), "--loop": ("1", "2", "0", "x", "-1"),
    "--debug": ("1", "0", "maybe"), "-d": _NUMBERS, "-db": _NUMBERS, "-dhw": (*_NUMBERS, *_SHAPES),
    "-dd": (*_SHAPES, *_NUMBERS), "-ds": _SHAPES, "-outsize": (*_NUMBERS, "64,64,64", "100000"),
    "--auto_set_dymshape_mode": ("1", "0"), "--auto_set_dymdims_mode": ("1",), "--batchsize": _NUMBERS,
    "--pure_data_type": ("random", "zero", "one"), "--profiler": ("1",), "--dump": ("1",),
    "--aipp_config": _TEXTS, "--acl_json_path": _TEXTS, "--output_batchsize_axis": _NUMBERS,
    "--run_mode": ("array", "files", "tensor", "full", "x"), "--display_all_summary": ("1",),
    "--warmup_count": ("0", "1", "2", "x"), "--pipeline": ("1",), "--threads": _NUMBERS, "--npu_id": ("0",),
    "--unknown": ("1",),
}  # fmt: skip
_TOKENIZER: dict[str, Any] = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": True}],
    "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
    "decoder": None, "model": {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1, "b": 2}, "unk_token": "<s>"},
}  # fmt: skip


def prepare(folder: Path) -> None:
    """Packages to run, and files and folders of inputs beside them."""
    packages.prepare(folder, _MODELS)
    for number, array in enumerate(_arrays()):
        np.save(folder / f"in{number}.npy", array)
        (folder / f"in{number}.bin").write_bytes(array.tobytes())
    (folder / "many").mkdir()
    for number in range(3):
        np.save(folder / "many" / f"{number}.npy", np.ones((2, 8), np.float32))
    (folder / "empty").mkdir()
    (folder / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'")


def _arrays() -> list[np.ndarray]:
    random_ = np.random.default_rng(0)
    return [
        random_.standard_normal((4, 8)).astype(np.float32), np.zeros((0, 8), np.float32), np.float32(1).reshape(()),
        np.zeros((4, 8)), np.ones((6, 20), np.float32), np.array([True]), np.ones((3, 5, 8), np.float16),
        np.zeros(3, [("a", "<i4"), ("b", "<f8")]), np.zeros((8, 8), np.float32), np.ones((4, 4), np.complex64),
        np.array(["text", "b"]), np.array(5, "datetime64[s]"),
    ]  # fmt: skip


class Case:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / f"out{os.getpid()}"
        self.given = sorted(str(p) for p in folder.iterdir() if p.name.startswith(("in", "many", "empty", "broken")))

    def run(self, draw: random.Random) -> str:
        return self.tokenizer(draw) if draw.random() < 0.2 else self.ais_bench(draw)

    def ais_bench(self, draw: random.Random) -> str:
        model = str(self.folder / f"{draw.choice(_MODELS)}.om")
        words = ["-om", model if draw.random() < 0.9 else draw.choice([*self.given, *_TEXTS])]
        if draw.random() < 0.6:
            inputs = [draw.choice([*self.given, *_TEXTS] if draw.random() < 0.2 else self.given)
                      for _ in range(draw.choice([1, 1, 1, 2, 3]))]  # fmt: skip
            words += ["-i", ",".join(inputs)]
        if draw.random() < 0.5:
            words += ["-o", draw.choice([*[str(self.out)] * 6, *self.given, *_TEXTS])]
        if "mlp" in model and draw.random() < 0.7:
            words += ["-ds", draw.choice(_SHAPES[:2])]
        for name in draw.sample(sorted(_OPTIONS), draw.choice([0, 1, 1, 2, 4])):
            words += [name, draw.choice(_OPTIONS[name])]
        if draw.random() < 0.05:
            del words[draw.randrange(len(words))]
        before = Path.cwd()
        said = io.StringIO()
        try:
            os.chdir(self.folder)  # relative folders lie there
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
                code = main(words)
        except SystemExit as ended:
            return f"ais_bench: usage {ended.code}"
        finally:
            os.chdir(before)
        assert code == 0 or said.getvalue().strip(), "an exit code without a line"
        assert "internal error" not in said.getvalue(), said.getvalue()[-300:]
        return f"ais_bench: {code}"

    def tokenizer(self, draw: random.Random) -> str:
        path = self.folder / f"tokenizer{os.getpid()}.json"
        path.write_bytes(files.changed_json(draw, json.loads(json.dumps(_TOKENIZER))))
        words = Words(path)
        tokens = words.tokens(draw.choice(["a b", "", "x\0y", "é" * 300, "<s> a"]))
        words.text(draw.choice([tokens, [0, 1, 10**6], []]))
        return "tokenizer: taken"
