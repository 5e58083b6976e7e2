"""The constants of a segment in the forms that its tasks take.

Where a form is how the package stores the constant, it is a view of the file. Large ones that have to be made (a
Winograd convolution's weights are four times as many numbers as the model has) are made by threads once the model is
loaded, so that loading does not wait for them; whoever reads them first does, which is the first execution.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from tensor_types.recipes import Recipe

_LARGE = 1 << 18
"""Bytes from which making a form is worth a thread."""
_MOST_THREADS = 4

Finish = Callable[[np.ndarray], np.ndarray]


class Makers:
    """Threads that make large forms: they begin with `start` and end when all is made."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Future[np.ndarray], Recipe, Finish]] = []

    def make(self, recipe: Recipe, finish: Finish) -> np.ndarray | Future[np.ndarray]:
        """What `finish` makes of the recipe's array: now, or later if it is large."""
        if recipe.nbytes < _LARGE:
            return finish(recipe.array())
        result: Future[np.ndarray] = Future()
        self._waiting.append((result, recipe, finish))
        return result

    def start(self) -> None:
        """Lets the threads run; may be called at any time and more than once."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            threads = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1, len(waiting)), "openatc-constants")
            for row in waiting:
                threads.submit(_fulfil, *row)
            threads.shutdown(wait=False)


def _fulfil(result: Future[np.ndarray], recipe: Recipe, finish: Finish) -> None:
    try:
        result.set_result(finish(recipe.array()))
    except BaseException as error:
        result.set_exception(error)


class Constants(Sequence[np.ndarray]):
    """Arrays in the order of the plan; `nbytes` are their sizes, 0 for objects, and known at once."""

    def __init__(self, found: Sequence[np.ndarray | Future[np.ndarray]], nbytes: Sequence[int], makers: Makers) -> None:
        self._found = list(found)
        self._makers = makers
        self.nbytes = np.array(nbytes, np.int64)

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, number: int) -> np.ndarray:  # type: ignore[override]
        """Waits for it. Raises what making it raised."""
        found = self._found[number]
        if isinstance(found, Future):
            self._makers.start()
            found = self._found[number] = found.result()
        return found

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[number] for number in range(len(self)))
