"""Caches of fixed capacity that runs write in place, shared by the sequences that begin alike.

A sequence of n tokens reads the first n rows alone, so a longer one may stand in the same buffers. Going on from one
that another, living sequence continues copies the rows first; going on from the longest costs nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import numpy as np

from acl_runtime.session import InferSession
from acl_runtime.state import State

if TYPE_CHECKING:
    from acl_runtime.generation.sequence import Sequence

_ROWS = -2


class HeldCaches:
    """One set of buffers and the sequences whose tokens it holds."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._holders: list[weakref.ref[Sequence]] = []

    @classmethod
    def new(cls, session: InferSession) -> HeldCaches:
        """Empty buffers."""
        return cls(session.new_state())

    def hold(self, sequence: Sequence) -> None:
        """The buffers hold the tokens of this sequence from now on."""
        self._holders = [r for r in self._holders if r() is not None]
        self._holders.append(weakref.ref(sequence))

    def to_continue(self, sequence: Sequence) -> HeldCaches:
        """Buffers in which rows behind the sequence may be written: these, or a copy of its rows."""
        others = (r() for r in self._holders)
        if not any(other is not None and other is not sequence and len(other) > len(sequence) for other in others):
            return self
        return HeldCaches(self.state.copy())

    def rows(self, length: int) -> tuple[np.ndarray, ...]:
        """A copy of the first `length` rows of each cache."""
        return tuple(self.state.get(name)[..., :length, :] for name in self.state.names)

    def fill(self, caches: Many[np.ndarray]) -> None:
        """Takes caches [.., length, size]; the rows behind are zeros."""
        contents = {}
        for name, cache in zip(self.state.names, caches, strict=True):
            whole = np.zeros_like(self.state.get(name))
            whole[..., : cache.shape[_ROWS], :] = cache
            contents[name] = whole
        self.state.put(contents)
