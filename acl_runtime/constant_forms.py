"""The constants of a segment in the forms that its tasks take.

Where a form is how the package stores the constant, it is a view of the file. Large ones that have to be made (a
Winograd convolution's weights are four times as many numbers as the model has) are made by threads once the model is
loaded, so that loading does not wait for them; whoever reads them first does, which is the first execution.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from acl_runtime.om import PackageError
from tensor_types.recipes import Recipe

_LARGE = 1 << 18
"""Bytes from which making a form is worth a thread."""
_MOST_THREADS = 4

Finish = Callable[[np.ndarray], np.ndarray]


class Later:
    """An array that is made once: by the first who asks, be it a thread that was begun for it or a reader."""

    def __init__(self, recipe: Recipe, finish: Finish) -> None:
        self._recipe: Recipe | None = recipe
        self._finish = finish
        self._array: np.ndarray | None = None
        self.lock = threading.Lock()
        _all.add(self)

    def get(self) -> np.ndarray:
        """The array. Raises what making it raises, and tries again for the next one who asks."""
        with self.lock:
            if self._array is None:
                assert self._recipe is not None
                self._array = _made(self._recipe, self._finish)
                self._recipe = None
            return self._array


_all: weakref.WeakSet[Later] = weakref.WeakSet()


def _after_fork() -> None:
    """A child has none of the threads that were making something: it makes what it reads."""
    for later in _all:
        later.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _made(recipe: Recipe, finish: Finish) -> np.ndarray:
    """The array of a recipe. Kernels were bound to the size that it promised, so another one is refused."""
    array = finish(recipe.array())
    if array.nbytes != recipe.nbytes:
        raise PackageError(
            f"a constant of {recipe.nbytes} bytes has {array.nbytes} in the form of its kernel",
            remedy="the file is damaged: convert the model again",
        )
    return array


class Makers:
    """Threads that make large forms: they begin with `start` and end when all is made."""

    def __init__(self) -> None:
        self._waiting: list[Later] = []

    def make(self, recipe: Recipe, finish: Finish) -> np.ndarray | Later:
        """What `finish` makes of the recipe's array: now, or later if it is large."""
        if recipe.nbytes < _LARGE:
            return _made(recipe, finish)
        later = Later(recipe, finish)
        self._waiting.append(later)
        return later

    def start(self) -> None:
        """Lets the threads run; may be called at any time and more than once."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            threads = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1, len(waiting)), "openatc-constants")
            for later in waiting:
                threads.submit(later.get)  # what it raises, a reader meets again
            threads.shutdown(wait=False)


class Constants(Sequence[np.ndarray]):
    """Arrays in the order of the plan; `nbytes` are their sizes, 0 for objects, and known at once."""

    def __init__(self, found: Sequence[np.ndarray | Later], nbytes: Sequence[int]) -> None:
        self._found = list(found)
        self.nbytes = np.array(nbytes, np.int64)

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, number: int) -> np.ndarray:  # type: ignore[override]
        """Waits for it. Raises what making it raised."""
        found = self._found[number]
        if isinstance(found, Later):
            found = self._found[number] = found.get()
        return found

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[number] for number in range(len(self)))
