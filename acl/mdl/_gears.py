"""Gears: the sizes that a package was made for, and the choice among them."""

from __future__ import annotations

from typing import Any

from acl._call import mapping, status, valued, word
from acl._process import handles, memory, models
from acl.mdl._lookup import dims_dict, model_of
from acl_runtime.device import Code, Dataset, DeviceError
from acl_runtime.device.gears import BATCH, DIMS, IMAGE, Gears

__all__ = [
    "get_dynamic_batch",
    "get_dynamic_hw",
    "get_input_dynamic_dims",
    "get_input_dynamic_gear_count",
    "set_dynamic_batch_size",
    "set_dynamic_hw_size",
    "set_input_dynamic_dims",
]

_ALL_INPUTS = (1 << 64) - 1


@valued(word, failure=lambda: ({},))
def get_dynamic_batch(desc: int) -> dict[str, Any]:
    """The batches to choose from; none without batch gears."""
    found = [sizes[0] for sizes in _combinations(desc, BATCH)]
    return {"batchCount": len(found), "batch": found}


@valued(word, word, failure=lambda: ({},))
def get_dynamic_hw(desc: int, index: int) -> dict[str, Any]:
    """The heights and widths to choose from, of the one input that has them; none without image gears."""
    found = [list(sizes) for sizes in _combinations(desc, IMAGE)]
    return {"hwCount": len(found), "hw": found}


@valued(word, word)
def get_input_dynamic_gear_count(desc: int, index: int) -> int:
    """How many gears of dims there are. `index` is -1: all inputs."""
    count = len(_combinations(desc, DIMS))
    _require_all_inputs(index)
    return count


@valued(word, word, word, failure=lambda: ([],))
def get_input_dynamic_dims(desc: int, index: int, count: int) -> list[dict[str, Any]]:
    """The dims of all inputs, one behind the other, of each gear. `index` is -1: all inputs; `count` is the room."""
    found = _combinations(desc, DIMS)
    _require_all_inputs(index)
    if count < len(found):
        raise DeviceError(Code.INVALID_PARAM, f"there are {len(found)} gears, room for {count}")
    gears = model_of(desc).gears
    if gears is None:
        return []
    return [dims_dict("", [n for shape in gears.input_shapes(k) for n in shape]) for k in range(len(found))]


@status(word, word, word, word)
def set_dynamic_batch_size(model: int, dataset: int, index: int, batch: int) -> None:
    """Chooses a batch; `index` is that of `ascend_mbatch_shape_data`."""
    _choose(model, dataset, index, BATCH, [batch])


@status(word, word, word, word, word)
def set_dynamic_hw_size(model: int, dataset: int, index: int, height: int, width: int) -> None:
    """Chooses a height and width; `index` is that of `ascend_mbatch_shape_data`."""
    _choose(model, dataset, index, IMAGE, [height, width])


@status(word, word, word, mapping)
def set_input_dynamic_dims(model: int, dataset: int, index: int, dims: dict[str, Any]) -> None:
    """Chooses a gear of dims, which `get_input_dynamic_dims` gave."""
    gears, inputs = _gears(model), handles.get(dataset, Dataset)
    if gears.kind != DIMS:
        raise DeviceError(Code.DYNAMIC_BATCH_SIZE_INVALID, f"the model has {gears.kind} gears")
    flat = dims.get("dims")
    if not isinstance(flat, list) or dims.get("dimCount") != len(flat):
        raise DeviceError(Code.INVALID_PARAM, "the dims have no list `dims` of `dimCount` numbers")
    gears.choose(inputs, index, gears.number_of_shapes([int(n) for n in flat]), memory())


def _choose(model: int, dataset: int, index: int, kind: str, sizes: list[int]) -> None:
    if not all(sizes):
        raise DeviceError(Code.INVALID_PARAM, "a size is 0")
    gears, inputs = _gears(model), handles.get(dataset, Dataset)
    gears.choose(inputs, index, gears.number(kind, sizes), memory())


def _gears(model: int) -> Gears:
    gears = models.get(model).description.gears
    if gears is None:
        raise DeviceError(Code.DYNAMIC_BATCH_SIZE_INVALID, "the model has no gears; use set_dataset_tensor_desc")
    return gears


def _combinations(desc: int, kind: str) -> tuple[tuple[int, ...], ...]:
    gears = model_of(desc).gears
    return gears.combinations if gears is not None and gears.kind == kind else ()


def _require_all_inputs(index: int) -> None:
    if index != _ALL_INPUTS:
        raise DeviceError(Code.INVALID_PARAM, "the index of all inputs, -1, is the only one")
