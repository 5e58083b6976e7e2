"""What a model keeps from run to run: a buffer for each state of its plan, written in place by the runs that get it."""

from __future__ import annotations

import difflib
import io
import os
import threading
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from pathlib import Path

import numpy as np

from acl_runtime.executor import aligned_zeros
from acl_runtime.om.replace_file import replace_file
from acl_runtime.plan_format import PlanValue
from codegen.llvm.bounds_checks import sanitised
from tensor_types.dims import evaluate
from tensor_types.errors import InvalidModel, ResourceLimit

_ALIGNMENT = 128


class State:
    """One set of buffers, all zeros at first. A run takes it for itself: runs of several threads wait for each other.

    How many rows of a buffer count is up to the caller, who passes the length to the model as an input. So a run that
    fails half way shows nothing: rows behind the length that the caller knows are never read.
    """

    def __init__(self, values: Sequence[PlanValue]) -> None:
        self.lock = threading.Lock()
        self._values = values
        """The states of the plan that it was last seen to fit."""
        self.arrays = _arrays({v.name: (tuple(evaluate(d, {}) for d in v.shape or ()), v.dtype.numpy) for v in values})
        """By name, in the order of the plan. Only whoever holds the lock may touch them."""
        self.reset()

    @property
    def names(self) -> tuple[str, ...]:
        """The states in the order of the plan."""
        return tuple(self.arrays)

    def fits(self, values: Sequence[PlanValue]) -> bool:
        """Whether these are the states of a plan: names, dtypes and shapes."""
        if values is not self._values:
            wanted = [(v.name, v.dtype.numpy, v.shape) for v in values]
            if [(n, a.dtype, a.shape) for n, a in self.arrays.items()] != wanted:
                return False
            self._values = values
        return True

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

    def copy(self) -> State:
        """A state of its own with the same content: a fork."""
        with self.lock:
            made = State.__new__(State)
            made.lock = threading.Lock()
            made._values = self._values
            made.arrays = _arrays({name: (array.shape, array.dtype) for name, array in self.arrays.items()})
            for name, array in self.arrays.items():
                np.copyto(made.arrays[name], array)
            return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the buffers to an .npz file, whole or not at all. PackageError if it cannot be written."""
        held = io.BytesIO()
        with self.lock:
            np.savez(held, **{name: array.reshape(-1).view(np.uint8) for name, array in self.arrays.items()})
        with replace_file(Path(path)) as file:
            file.write(held.getvalue())

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Takes the content that `save` wrote. InvalidModel, and nothing is changed, if it is of another model."""
        try:
            with np.load(path, allow_pickle=False) as file:
                contents = {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InvalidModel(f"{os.fspath(path)} is no saved state: {error}", remedy="save one first") from error
        mine = {name: array.nbytes for name, array in self.arrays.items()}
        if {n: c.nbytes if c.dtype == np.uint8 else -1 for n, c in contents.items()} != mine:
            raise InvalidModel(
                "the saved state is of another model or capacity", where={"tensor": next(iter(mine), "")},
                remedy="restore it with the package that saved it",
            )  # fmt: skip
        with self.lock:
            for name, content in contents.items():
                self.arrays[name].reshape(-1).view(np.uint8)[:] = content.reshape(-1)

    def _array(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            near = difflib.get_close_matches(name, self.arrays, 3) or list(self.arrays)
            raise InvalidModel(
                "the model has no such state", where={"tensor": name}, remedy=f"states: {', '.join(near) or 'none'}"
            )
        return self.arrays[name]


def _arrays(forms: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> dict[str, np.ndarray]:
    """Zeros of these shapes and dtypes in one block: numpy asks for large pages for blocks of some MB, with which a
    core reads memory up to twice as fast. Between guard pages each has a block of its own. ResourceLimit."""
    sizes = {name: prod(shape) * dtype.itemsize for name, (shape, dtype) in forms.items()}
    try:
        if sanitised():
            parts = {name: aligned_zeros(size) for name, size in sizes.items()}
        else:
            room = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes.values()]
            block = aligned_zeros(sum(room))
            starts = accumulate(room, initial=0)
            parts = {name: block[start : start + sizes[name]] for name, start in zip(sizes, starts, strict=False)}
    except MemoryError:
        raise ResourceLimit(
            f"{sum(sizes.values())} bytes for states cannot be had", where={"tensor": next(iter(forms), "")},
            remedy="use a smaller capacity",
        ) from None  # fmt: skip
    return {name: parts[name].view(dtype).reshape(shape) for name, (shape, dtype) in forms.items()}
