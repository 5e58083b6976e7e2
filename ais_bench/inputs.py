"""What a benchmark feeds: files put together to batches, or made-up bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import aclruntime
from tensor_types.array_files import read_array

PURE = "pure_infer_data"
_SUFFIXES = (".npy", ".bin")


def listed(text: str) -> list[list[Path]]:
    """Files of each input from "a.npy,b.npy" or "folder_a,folder_b"; of a folder all .npy and .bin files by name.

    RuntimeError for what is not there.
    """
    groups = []
    for word in filter(None, text.split(",")):
        path = Path(word)
        if os.path.isdir(path):
            found = sorted(f for f in path.iterdir() if f.suffix.lower() in _SUFFIXES)
            if not found:
                raise RuntimeError(f"there is no .npy or .bin file in {path}")
            groups.append(found)
        elif os.path.isfile(path):
            groups.append([path])
        else:
            raise RuntimeError(f"there is no file or folder {path}")
    return groups


def grouped(groups: list[list[Path]], inputs: int) -> list[list[Path]]:
    """Files by input: as many groups as inputs, or single files that go to the inputs in turn."""
    if len(groups) == inputs:
        return groups
    files = [f for g in groups for f in g]
    if files and all(len(g) == 1 for g in groups) and len(files) % inputs == 0:
        return [files[i::inputs] for i in range(inputs)]
    raise RuntimeError(f"{len(groups)} inputs given, the model has {inputs}")


def read(path: Path) -> np.ndarray:
    """The array of an .npy file, the bytes of another. RuntimeError if it cannot be read."""
    try:
        return read_array(path) if path.suffix.lower() == ".npy" else np.fromfile(path, np.uint8)
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{path} cannot be read: {error}") from error


class Batches:
    """The runs over files: each takes as many files an input as fill it; the last run is filled up with the first."""

    def __init__(self, groups: list[list[Path]], descs: Sequence[aclruntime.tensor_desc]) -> None:
        self.groups, self.descs = groups, descs
        sizes = [read(g[0]).nbytes for g in groups]
        self.file_size = sizes[0]
        is_open = any(d < 0 for desc in descs for d in desc.shape)
        self.per_batch = 1 if is_open or not sizes[0] else max(1, descs[0].realsize // sizes[0])
        for size, desc in zip(sizes, descs, strict=True):
            if not is_open:
                _require_room(desc)
            if not is_open and (not size or desc.realsize % size):
                raise RuntimeError(f"files of {size} bytes do not fill input {desc.name} of {desc.realsize} bytes")
        self.runs = -(-len(groups[0]) // self.per_batch)

    def __iter__(self) -> Iterator[tuple[list[np.ndarray], list[list[Path]]]]:
        """Feeds of each run, and the files that it is made of."""
        for run in range(self.runs):
            feeds, names = [], []
            for group, desc in zip(self.groups, self.descs, strict=True):
                files = group[run * self.per_batch : (run + 1) * self.per_batch]
                padded = [*files, *[group[0]] * (self.per_batch - len(files))]
                feeds.append(_joined([read(f) for f in padded], desc))
                names.append(files)
            yield feeds, names


def made_up(descs: Sequence[aclruntime.tensor_desc], kind: str) -> list[np.ndarray]:
    """Zeros or random bytes for every input; RuntimeError if the size of one is open."""
    random = np.random.default_rng(0)
    feeds = []
    for desc in descs:
        if any(d < 0 for d in desc.shape):
            raise RuntimeError(f"the shape of input {desc.name} is open: give --dymShape or --input")
        element = np.dtype(desc.datatype.value)
        _require_room(desc)
        data = np.zeros(desc.shape, element)
        if kind == "random":
            data = random.random(desc.shape).astype(element) if element.kind == "f" else data
            if element.kind in "iu":
                data = random.integers(0, 2, desc.shape, dtype=element)
        feeds.append(data)
    return feeds


def _require_room(desc: aclruntime.tensor_desc) -> None:
    try:
        np.empty(desc.realsize, np.uint8)
    except (ValueError, MemoryError) as error:
        raise RuntimeError(f"there is no room for input {desc.name} of {desc.realsize} bytes") from error


def _joined(parts: list[np.ndarray], desc: aclruntime.tensor_desc) -> np.ndarray:
    if len(parts) == 1 and any(d < 0 for d in desc.shape):
        if parts[0].dtype == np.uint8 and desc.datatype.value != "uint8":
            raise RuntimeError(f"the shape of input {desc.name} is open: raw bytes do not tell it, give --dymShape")
        return parts[0]
    data = np.concatenate([np.ascontiguousarray(p).reshape(-1).view(np.uint8) for p in parts])
    if len(data) != desc.realsize:
        raise RuntimeError(f"input {desc.name} takes {desc.realsize} bytes, the files have {len(data)}")
    return data.view(desc.datatype.value).reshape(desc.shape)
