"""A sequence of tokens with its caches: a value. Going on makes another one, so forks and steps back cost nothing."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Sequence as Many
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acl_runtime.generation.held_caches import HeldCaches
from acl_runtime.generation.roles import Cache
from acl_runtime.om.replace_file import replace_file
from tensor_types.errors import InvalidModel

_TOKENS = "tokens"
_NOT_READ = (OSError, KeyError, ValueError, EOFError, TypeError, NotImplementedError, zipfile.BadZipFile, zlib.error)
"""What numpy's reader raises for a file of another kind."""


@dataclass(frozen=True)
class Sequence:
    """tokens: those that the caches hold, in order. caches: one array a cache, never written. held: the buffers of a
    decoder whose caches are states, in place of arrays."""

    tokens: tuple[int, ...]
    caches: tuple[np.ndarray, ...]
    held: HeldCaches | None = None

    def __post_init__(self) -> None:
        if self.held is not None:
            self.held.hold(self)

    def __len__(self) -> int:
        return len(self.tokens)

    def truncated(self, length: int, kinds: Many[Cache]) -> Sequence:
        """The first `length` tokens. ValueError beyond the end; InvalidModel where a state is recurrent, which cannot
        step back."""
        if not 0 <= length <= len(self.tokens):
            raise ValueError(f"a sequence of {len(self.tokens)} tokens has no first {length}")
        if length == len(self.tokens):
            return self
        if self.held is not None:
            return Sequence(self.tokens[:length], (), self.held)
        if state := next((k.past for k in kinds if k.recurrent), None):
            raise InvalidModel(f"a recurrent state of {len(self.tokens)} tokens has no state of the first {length}",
                               where={"tensor": state}, remedy="go on from a sequence that was kept there")  # fmt: skip
        caches = tuple(
            array if kind.axis is None else array[(slice(None),) * kind.axis + (slice(length),)]
            for array, kind in zip(self.caches, kinds, strict=True)
        )
        return Sequence(self.tokens[:length], caches)

    def save(self, path: str | os.PathLike[str], kinds: Many[Cache]) -> None:
        """Writes the sequence, whole or not at all (.npz). PackageError if it cannot be written."""
        caches = self.caches if self.held is None else self.held.rows(len(self.tokens))
        arrays = {kind.past: array for kind, array in zip(kinds, caches, strict=True)}
        buffer = io.BytesIO()
        np.savez(buffer, **{_TOKENS: np.array(self.tokens, np.int64)}, **{n: _plain(a) for n, a in arrays.items()})
        with replace_file(Path(path)) as file:
            file.write(buffer.getvalue())

    @staticmethod
    def load(path: str | os.PathLike[str], kinds: Many[Cache]) -> Sequence:
        """A saved sequence. InvalidModel if the file is none, or one of another model."""
        try:
            with np.load(path, allow_pickle=False) as file:
                tokens = tuple(int(t) for t in file[_TOKENS])
                caches = tuple(_typed(file[kind.past], kind.dtype) for kind in kinds)
        except _NOT_READ as error:
            raise InvalidModel(f"{path} is no saved sequence of this model: {error}",
                               remedy="save one with this model first") from error  # fmt: skip
        for kind, array in zip(kinds, caches, strict=True):
            wanted = tuple(len(tokens) if a == kind.axis else e for a, e in enumerate(kind.extents))
            if array.shape != wanted or array.dtype != kind.dtype:
                raise InvalidModel(
                    f"a saved cache is {array.dtype}{list(array.shape)}, this model wants {kind.dtype}{list(wanted)}",
                    where={"tensor": kind.past}, remedy="restore it with the model that saved it",
                )  # fmt: skip
        return Sequence(tokens, caches)


def _plain(array: np.ndarray) -> np.ndarray:
    """Numbers that the file format lacks, bf16 among them, as their bits."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}")) if array.dtype.kind == "V" else array


def _typed(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return array.view(dtype) if dtype.kind == "V" and array.dtype == np.dtype(f"u{dtype.itemsize}") else array
