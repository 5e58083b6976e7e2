"""Greedy tokens of a decoder by onnxruntime, fed as its inputs' names say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

_KINDS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def greedy(path: Path, prompt: Sequence[int], count: int) -> tuple[list[int], list[np.ndarray]]:
    """The tokens behind the prompt, and the logits f64 [vocabulary] that each was chosen by. Caches start empty, those
    of fixed extents with zeros."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = {i.name: i for i in session.get_inputs()}
    outputs = [o.name for o in session.get_outputs()]
    past = {}
    for name, given in inputs.items():
        if name.startswith("past"):
            shape = [d if isinstance(d, int) else int(axis == 0) for axis, d in enumerate(given.shape)]
            past[name] = np.zeros(shape, _KINDS[given.type])
    tokens, fresh = list(prompt), list(prompt)
    found: list[np.ndarray] = []
    while True:
        start, end = len(tokens) - len(fresh), len(tokens)
        fed = {
            "input_ids": np.array([fresh]), "attention_mask": np.ones((1, end), np.int64),
            "position_ids": np.arange(start, end)[None], "cache_position": np.arange(start, end),
            "use_cache_branch": np.array([start > 0]),
        }  # fmt: skip
        made = dict(zip(outputs, session.run(None, {n: a for n, a in fed.items() if n in inputs} | past), strict=True))
        past = {n: made[re.sub("^past(_key_values)?", "present", n)] for n in past}
        found.append(made["logits"][0, -1].astype(np.float64))
        fresh = [int(found[-1].argmax())]
        tokens += fresh
        if len(found) == count:
            return tokens[len(prompt) :], found
