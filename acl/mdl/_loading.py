"""Loading and unloading."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from acl._call import anything, integer, plain, status, text, valued, word
from acl._process import contexts, handles, memory, models, threads
from acl_runtime.device import Code, DeviceError
from acl_runtime.device.model import sizes_of_file

__all__ = [
    "create_config_handle",
    "destroy_config_handle",
    "load_from_file",
    "load_from_file_with_mem",
    "load_from_mem",
    "load_from_mem_with_mem",
    "load_with_config",
    "query_size",
    "query_size_from_mem",
    "set_config_opt",
    "unload",
]

_LOAD_TYPE, _PATH, _ADDRESS, _SIZE = 1, 2, 3, 4
_N_OPTIONS = 16
_FROM_FILE, _FROM_MEMORY = (1, 2), (3, 4)


@dataclass(eq=False)
class _Config:
    """Options of `load_with_config`, by aclmdlConfigAttr."""

    options: dict[int, Any] = field(default_factory=dict)


@valued(text)
def load_from_file(path: str) -> int:
    """The id of the model in a package, 1 or more."""
    return models.load(path, threads(), contexts.current())


@valued(text, word, word, word, word)
def load_from_file_with_mem(path: str, work: int, work_size: int, weights: int, weights_size: int) -> int:
    """The same; memory that is given must be device memory, and is not needed."""
    context = contexts.current()
    _check_given(work, work_size, weights, weights_size)
    return models.load(path, threads(), context)


@valued(word, word)
def load_from_mem(address: int, size: int) -> int:
    """The id of the model in a package that lies in memory, which is not needed afterwards."""
    return _load_from_mem(address, size)


@valued(word, word, word, word, word, word)
def load_from_mem_with_mem(address: int, size: int, work: int, work_size: int, weights: int, weights_size: int) -> int:
    """The same; memory that is given must be device memory, and is not needed."""
    _check_given(work, work_size, weights, weights_size)
    return _load_from_mem(address, size)


@plain()
def create_config_handle() -> int:
    return handles.of(_Config())


@status(word)
def destroy_config_handle(config: int) -> None:
    handles.remove(config, _Config)


@status(word, integer, anything)
def set_config_opt(config: int, option: int, value: Any) -> None:
    """Sets an option: 1 the way of loading (1, 2 from a file, 3, 4 from memory), 2 the path, 3 and 4 address and size.
    Others are kept and make no difference."""
    item = handles.get(config, _Config)
    if not 0 <= option < _N_OPTIONS:
        raise DeviceError(Code.INVALID_PARAM, f"there is no option {option}")
    if not isinstance(value, str if option == _PATH else int):
        raise DeviceError(Code.INVALID_PARAM, f"option {option} is of another type than {type(value).__name__}")
    item.options[option] = value


@valued(word)
def load_with_config(config: int) -> int:
    """Loads what the options say. 100000 if one that is needed is not set."""
    options = handles.get(config, _Config).options
    context = contexts.current()
    kind = options.get(_LOAD_TYPE)
    if kind in _FROM_FILE and _PATH in options:
        return models.load(options[_PATH], threads(), context)
    if kind in _FROM_MEMORY and _ADDRESS in options and _SIZE in options:
        return _load_from_mem(options[_ADDRESS], options[_SIZE])
    raise DeviceError(Code.INVALID_PARAM, f"the options {sorted(options)} do not say what to load")


@valued(text, failure=lambda: (0, 0))
def query_size(path: str) -> tuple[int, int]:
    """Bytes of intermediate tensors, and of weights, that a model takes."""
    return sizes_of_file(path)


@valued(word, word, failure=lambda: (0, 0))
def query_size_from_mem(address: int, size: int) -> tuple[int, int]:
    """The same, of a package in memory."""
    if not address or not size:
        raise DeviceError(Code.INVALID_PARAM, "no address or no size")
    return models.with_file(memory().bytes(address, size), sizes_of_file)


@status(word)
def unload(model: int) -> None:
    models.unload(model)


def _load_from_mem(address: int, size: int) -> int:
    if not address or not size:
        raise DeviceError(Code.INVALID_PARAM, "no address or no size")
    context, count = contexts.current(), threads()
    return models.with_file(memory().bytes(address, size), lambda path: models.load(path, count, context, ""))


def _check_given(work: int, work_size: int, weights: int, weights_size: int) -> None:
    for what, address, size in (("work memory", work, work_size), ("weight memory", weights, weights_size)):
        if address:
            memory().check(address, size, what)
