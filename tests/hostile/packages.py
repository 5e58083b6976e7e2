"""Packages that were changed: bytes of the file, or values of its plan, tables and programs under right digests."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from acl_runtime import InferSession
from acl_runtime.device import DeviceError, DeviceModel
from acl_runtime.device.watch import Watch
from acl_runtime.om import FusedGraph, open_package, write_package
from atc.conversion import convert
from tests.hostile.sources import LATE, LOOPS, model

MODELS = ("mlp", "branches", "integers", "sequence", "quantised", "llama")
_NUMBERS = (0, 1, -1, 2, 3, 7, 63, 64, 65, 255, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, 1 << 61, 1 << 62,
            (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63), 10**30)  # fmt: skip
_TEXTS = ("", "n", "n*n", "n//0", "n//(n - n)", "2*n - 1", "min(n, 3)", "plain", "perm(1,0)", "split(0,0)", "pad(0,1,1)",
          "f32", "i64", "str", "handle", "arena", "constant", "input", "Loop", "Expand", "If", "\u0000", "x" * 5000, "é")
_UNREAD = ("model_def", "graph", "report")
_EMPTY = FusedGraph("changed", (), (), (), ())
_OTHERS = (None, True, False, 1.5, float("nan"), [], {}, [[]], [None], {"dtype": "f32", "shape": [1 << 40], "values": []})


def prepare(folder: Path, names: Sequence[str] = (*MODELS, *LATE, *LOOPS)) -> None:
    """Converts the models whose packages are changed."""
    for name in names:
        onnx.save(model(name), folder / f"{name}.onnx")
        convert(folder / f"{name}.onnx", folder / f"{name}.om")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of every value inside a JSON value."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += leaves(inner, (*path, key))
    return found


def change(draw: random.Random, value: Any, known: Sequence[tuple[Any, ...]] | None = None) -> None:
    """Changes one value somewhere inside a JSON value, whose paths may be known."""
    paths = leaves(value) if known is None else known
    if not paths:
        return
    path = draw.choice(paths)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    key, old = path[-1], holder[path[-1]]
    kind = draw.random()
    if kind < 0.3:
        holder[key] = draw.choice(_NUMBERS)
    elif kind < 0.45 and isinstance(old, int):
        holder[key] = old + draw.choice([-1, 1, 2, 64, -64])
    elif kind < 0.55:
        holder[key] = draw.choice(_TEXTS)
    elif kind < 0.65:
        holder[key] = deepcopy(draw.choice(_OTHERS))  # a case must not change what the next one draws
    elif kind < 0.8:  # what stands elsewhere
        other = value
        for step in draw.choice(paths):
            other = other[step]
        holder[key] = json.loads(json.dumps(other))
    elif kind < 0.9:
        del holder[key]
    elif isinstance(holder, list):
        holder.insert(key, json.loads(json.dumps(old)))
    else:
        holder[f"{key}x"] = old


def change_program(draw: random.Random, text: str) -> str:
    """Another number, name or order of words in a program, its layout kept."""
    words = list(re.finditer(r"\d+|[A-Za-z_][A-Za-z0-9_]*|//|<=|==|[-+*%<]", text))
    if not words:
        return text
    word = draw.choice(words)
    if word[0].isdigit():
        new = str(draw.choice([int(word[0]) + 1, max(int(word[0]) - 1, 0), draw.choice(_NUMBERS[:20])]))
    else:
        new = draw.choice(words)[0]
    return text[: word.start()] + new + text[word.end() :]


class Case:
    """Everything that cases share is read once: most of a case's time is to be the product's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {p.stem: p.read_bytes() for p in sorted(folder.glob("*.om")) if not p.stem.startswith("case")}
        self.graphs: dict[str, FusedGraph] = {}
        self.first_inputs: dict[str, str] = {}
        self.headers: dict[str, bytes] = {}
        self.sections: dict[str, dict[str, bytes]] = {}
        """Those that a run reads."""
        self.paths: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        for name in self.files:
            package = open_package(folder / f"{name}.om")
            sections = {s.name: bytes(package.section(s.name)) for s in package.sections()}
            self.headers[name] = sections.pop("header")
            self.graphs[name] = package.graph()
            self.sections[name] = {s: text for s, text in sections.items() if s.rpartition("/")[2] not in _UNREAD}
            self.first_inputs[name] = str(InferSession(0, folder / f"{name}.om").get_inputs()[0].name)

    def run(self, draw: random.Random) -> str:
        name = draw.choice(sorted(self.files))
        path = self.folder / f"case{os.getpid()}.om"
        path.unlink(missing_ok=True)  # a mapped file is never written into
        if draw.random() < 0.2:
            path.write_bytes(self.bytes_of(draw, name))
        else:
            self.write(draw, name, path)
        kind = draw.random()
        if kind < 0.15:
            try:
                description = DeviceModel(1, str(path), 1, Watch()).description
                return f"described: {len(description.inputs)} inputs"
            except DeviceError as error:
                return f"device code {int(error.code)}"
        session = InferSession(0, path, chip="Ascend910B2" if kind < 0.2 else None)
        draw_inputs = np.random.default_rng(draw.randrange(1 << 30))
        arrays = []
        for spec in session.get_inputs():
            shape = [n if isinstance(n, int) else 3 for n in spec.shape or ()]
            if np.prod(shape, dtype=object) > 1 << 24:
                return "too large to feed"
            arrays.append(_values(draw_inputs, shape, spec.dtype))
        for _ in range(2):
            session.infer(arrays)
        return "ran"

    def bytes_of(self, draw: random.Random, name: str) -> bytes:
        data = bytearray(self.files[name])
        for _ in range(draw.choice([1, 1, 4, 30])):
            at = draw.randrange(min(len(data), draw.choice([256, 4096, len(data)])))
            data[at] = draw.choice([0, 255, 1, data[at] ^ 1, draw.randrange(256)])
        return bytes(data[: draw.randrange(len(data))] if draw.random() < 0.1 else data)

    def write(self, draw: random.Random, name: str, path: Path) -> None:
        sections = dict(self.sections[name])
        header = json.loads(self.headers[name])
        if draw.random() < 0.3:
            first = self.first_inputs[name]
            header["gears"] = {"kind": draw.choice(["batch", "image", "dims"]), "input": "g", "combinations": [[1], [4]],
                               "axes": [{"input": first, "axis": 0, "value": 0}]}  # fmt: skip
            header["aipp"] = [{"input": first, "source": [4, 4], "format": "YUV420SP_U8", "mode": "static"}]
            change(draw, header)
        chosen = [s for s in sections if s.endswith(("/plan", "/programs")) or s == "constants"]
        weights = [3 if s.endswith("plan") else 1 for s in chosen]
        changed: dict[str, Any] = {}
        for _ in range(draw.choice([1, 1, 1, 2, 5])):
            if draw.random() < 0.05:
                change(draw, header)
                continue
            section = draw.choices(chosen, weights)[0]
            is_first = section not in changed
            content = changed[section] = json.loads(sections[section]) if is_first else changed[section]
            if section.endswith("programs") and content and draw.random() < 0.9:
                at = draw.randrange(len(content))
                content[at] = change_program(draw, str(content[at]))
                continue
            if (name, section) not in self.paths:
                self.paths[name, section] = leaves(content)
            change(draw, content, self.paths[name, section] if is_first else None)
        for section, content in changed.items():
            sections[section] = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if not isinstance(header, dict):
            header = {}
        # The graph for viewers takes as long to write as all the rest, and a run never reads it.
        graph = self.graphs[name] if draw.random() < 0.05 else _EMPTY
        write_package(path, graph, sections, {k: v for k, v in header.items() if isinstance(k, str)})


def _values(rng: np.random.Generator, shape: list[int], dtype: np.dtype) -> np.ndarray:
    if dtype.hasobject:
        return np.full(shape, "a", object)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if shape else 4, shape).astype(dtype)  # of loops the trips
