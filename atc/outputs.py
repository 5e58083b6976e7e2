"""The outputs of a run: described for machines, and saved as `.npy` files that do not overwrite one another."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime.om.replace_file import replace_file
from atc.writing import writing

_LONGEST = 200
"""Characters of a file's name before its number and extension; file systems take 255 bytes."""


def describe(names: Sequence[str], values: Sequence[Any], folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """Shape and dtype of each output by name, and, where they are saved into a folder that exists, the file of each.

    A sequence also lists its elements, each with its own file, numbered behind the name; an empty optional has neither
    shape nor file. PackageError if a file cannot be written.
    """
    files = None if folder is None else _Files(folder)
    return {name: _described(name, value, files) for name, value in zip(names, values, strict=True)}


def _described(name: str, value: Any, files: _Files | None) -> dict[str, Any]:
    if value is None:
        return {"shape": None, "dtype": "empty"}
    if isinstance(value, list):
        elements = [_described(f"{name}_{number}", v, files) for number, v in enumerate(value)]
        return {"shape": [len(value)], "dtype": "sequence", "elements": elements}
    array = np.asarray(value)
    found: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    return found if files is None else {**found, "file": str(files.save(name, array))}


class _Files:
    """Files of one folder, named for outputs: a letter or digit stands for itself, anything else for `_`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._taken: set[str] = set()

    def save(self, name: str, array: np.ndarray) -> Path:
        """Writes the array; strings as numpy's fixed-width ones."""
        path = self._folder / f"{self._unused(name)}.npy"
        content = io.BytesIO()  # numpy writes to a file itself with less exact errors
        np.save(content, array.astype(str) if array.dtype.hasobject else array, allow_pickle=False)
        with writing("--output-dir"), replace_file(path) as file:
            file.write(content.getbuffer())
        return path

    def _unused(self, name: str) -> str:
        stem = plain = re.sub(r"[^A-Za-z0-9]", "_", name)[:_LONGEST]
        number = 1
        while stem.lower() in self._taken:  # some file systems take upper and lower case for the same
            stem, number = f"{plain}_{number}", number + 1
        self._taken.add(stem.lower())
        return stem
