"""What a model keeps from run to run: a buffer for each state of its plan, written in place by the runs that get it."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Mapping, Sequence

import numpy as np

from acl_runtime.plan_format import PlanValue
from acl_runtime.run_state import new_array
from tensor_types.dims import evaluate
from tensor_types.errors import InvalidModel, ResourceLimit


class State:
    """One set of buffers, all zeros at first. A run takes it for itself: runs of several threads wait for each other.

    How many rows of a buffer count is up to the caller, who passes the length to the model as an input. So a run that
    fails half way shows nothing: rows behind the length that the caller knows are never read.
    """

    def __init__(self, values: Sequence[PlanValue]) -> None:
        self.lock = threading.Lock()
        self.arrays: dict[str, np.ndarray] = {}
        """By name, in the order of the plan. Only whoever holds the lock may touch them."""
        for value in values:
            shape = tuple(evaluate(d, {}) for d in value.shape or ())
            try:
                self.arrays[value.name] = new_array(shape, value.dtype.numpy)
            except MemoryError:
                raise ResourceLimit(
                    f"{value.dtype}{list(shape)} for a state cannot be had", where={"tensor": value.name},
                    remedy="use a smaller capacity",
                ) from None  # fmt: skip
        self.reset()

    @property
    def names(self) -> tuple[str, ...]:
        """The states in the order of the plan."""
        return tuple(self.arrays)

    def fits(self, values: Sequence[PlanValue]) -> bool:
        """Whether these are the states of a plan: names, dtypes and shapes."""
        wanted = [(v.name, v.dtype.numpy, v.shape) for v in values]
        return [(n, a.dtype, a.shape) for n, a in self.arrays.items()] == wanted

    def reset(self) -> None:
        """Zeros in all buffers."""
        with self.lock:
            for array in self.arrays.values():
                array.fill(0)

    def get(self, name: str) -> np.ndarray:
        """A copy of a buffer. InvalidModel if there is none of that name."""
        with self.lock:
            return self._array(name).copy()

    def put(self, contents: Mapping[str, np.ndarray]) -> None:
        """Copies arrays into buffers by name. InvalidModel, and nothing is changed, if one does not fit."""
        with self.lock:
            for name, content in contents.items():
                held, given = self._array(name), np.asarray(content)
                if (given.dtype, given.shape) != (held.dtype, held.shape):
                    raise InvalidModel(
                        f"the content of a state is {given.dtype}{list(given.shape)}, "
                        f"expected {held.dtype}{list(held.shape)}",
                        where={"tensor": name},
                        remedy="give an array of the whole capacity",
                    )
            for name, content in contents.items():
                np.copyto(self.arrays[name], content)

    def _array(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            near = difflib.get_close_matches(name, self.arrays, 3) or list(self.arrays)
            raise InvalidModel(
                "the model has no such state", where={"tensor": name}, remedy=f"states: {', '.join(near) or 'none'}"
            )
        return self.arrays[name]
