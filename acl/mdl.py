"""acl.mdl: models, their descriptions, datasets, execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from acl._call import mapping, plain, status, text, valued, word
from acl._process import contexts, handles, memory, models, stream_in_context, threads
from acl_runtime.device import (
    Code,
    DataBuffer,
    Dataset,
    DeviceError,
    ModelDescription,
    TensorDesc,
    TensorDescription,
    run_now,
    submit,
)

_T = TypeVar("_T")
_MAX_NAME = 127
_ALL_INPUTS = (1 << 64) - 1

__all__ = [
    "add_dataset_buffer",
    "create_dataset",
    "create_desc",
    "destroy_dataset",
    "destroy_desc",
    "execute",
    "execute_async",
    "get_cur_output_dims",
    "get_dataset_buffer",
    "get_dataset_num_buffers",
    "get_dataset_tensor_desc",
    "get_desc",
    "get_dynamic_batch",
    "get_dynamic_hw",
    "get_input_data_type",
    "get_input_dims",
    "get_input_dims_range",
    "get_input_dims_v2",
    "get_input_dynamic_dims",
    "get_input_dynamic_gear_count",
    "get_input_format",
    "get_input_index_by_name",
    "get_input_name_by_index",
    "get_input_size_by_index",
    "get_num_inputs",
    "get_num_outputs",
    "get_output_data_type",
    "get_output_dims",
    "get_output_format",
    "get_output_index_by_name",
    "get_output_name_by_index",
    "get_output_size_by_index",
    "load_from_file",
    "load_from_mem",
    "set_dataset_tensor_desc",
    "set_dynamic_batch_size",
    "set_dynamic_hw_size",
    "set_input_dynamic_dims",
    "unload",
]


class _Desc:
    """A model description that `get_desc` fills."""

    def __init__(self) -> None:
        self.model: ModelDescription | None = None


# Loading


@valued(text)
def load_from_file(path: str) -> int:
    """The id of the model in a package, 1 or more."""
    contexts.current()
    return models.load(path, threads())


@valued(word, word)
def load_from_mem(address: int, size: int) -> int:
    """The id of the model in a package that lies in memory, which is not needed afterwards."""
    if not address or not size:
        raise DeviceError(Code.INVALID_PARAM, "no address or no size")
    contexts.current()
    return models.load_bytes(memory().bytes(address, size), threads())


@status(word)
def unload(model: int) -> None:
    models.unload(model)


# Descriptions


@plain()
def create_desc() -> int:
    return handles.of(_Desc())


@status(word)
def destroy_desc(desc: int) -> None:
    handles.remove(desc, _Desc)


@status(word, word)
def get_desc(desc: int, model: int) -> None:
    """Fills a description; it stays valid when the model is unloaded."""
    handles.get(desc, _Desc).model = models.get(model).description


@plain(word)
def get_num_inputs(desc: int) -> int:
    return len(_model(desc).inputs)


@plain(word)
def get_num_outputs(desc: int) -> int:
    return len(_model(desc).outputs)


@plain(word, word)
def get_input_size_by_index(desc: int, index: int) -> int:
    """Bytes of the largest shape; 0 if there is none."""
    return _at(_model(desc).inputs, index).nbytes


@plain(word, word)
def get_output_size_by_index(desc: int, index: int) -> int:
    """Bytes of the largest shape; 0 if there is none."""
    return _at(_model(desc).outputs, index).nbytes


@plain(word, word, failure=-1)
def get_input_data_type(desc: int, index: int) -> int:
    return _at(_model(desc).inputs, index).dtype.acl


@plain(word, word, failure=-1)
def get_output_data_type(desc: int, index: int) -> int:
    return _at(_model(desc).outputs, index).dtype.acl


@plain(word, word, failure=-1)
def get_input_format(desc: int, index: int) -> int:
    return _at(_model(desc).inputs, index).format


@plain(word, word, failure=-1)
def get_output_format(desc: int, index: int) -> int:
    return _at(_model(desc).outputs, index).format


@plain(word, word, failure="")
def get_input_name_by_index(desc: int, index: int) -> str:
    return _at(_model(desc).inputs, index).name


@plain(word, word, failure="")
def get_output_name_by_index(desc: int, index: int) -> str:
    return _at(_model(desc).outputs, index).name


@valued(word, text)
def get_input_index_by_name(desc: int, name: str) -> int:
    return _index(_model(desc).inputs, name)


@valued(word, text)
def get_output_index_by_name(desc: int, name: str) -> int:
    return _index(_model(desc).outputs, name)


@valued(word, word, failure=lambda: ({},))
def get_input_dims(desc: int, index: int) -> dict[str, Any]:
    model = _model(desc)
    return _dims(_at(model.inputs, index), f"acl_modelId_{model.model_id}_input_{index}")


@valued(word, word, failure=lambda: ({},))
def get_input_dims_v2(desc: int, index: int) -> dict[str, Any]:
    """The same as `get_input_dims`: no model has an image stage in front."""
    model = _model(desc)
    return _dims(_at(model.inputs, index), f"acl_modelId_{model.model_id}_input_{index}")


@valued(word, word, failure=lambda: ({},))
def get_input_dims_range(desc: int, index: int) -> dict[str, Any]:
    """Smallest and largest size of each axis, -1 for no limit."""
    ranges = _at(_model(desc).inputs, index).ranges
    return {"rangeCount": len(ranges), "range": [list(r) for r in ranges]}


@valued(word, word, failure=lambda: ({},))
def get_output_dims(desc: int, index: int) -> dict[str, Any]:
    model = _model(desc)
    return _dims(_at(model.outputs, index), f"acl_modelId_{model.model_id}_output_{index}")


@valued(word, word, failure=lambda: ({},))
def get_cur_output_dims(desc: int, index: int) -> dict[str, Any]:
    """The output's dims; 200001 where the shape of the inputs or the run decides."""
    model = _model(desc)
    tensor = _at(model.outputs, index)
    if model.is_dynamic or tensor.is_dynamic:
        raise DeviceError(Code.API_NOT_SUPPORT, "the shape is dynamic: get_dataset_tensor_desc has it after a run")
    return _dims(tensor, f"acl_modelId_{model.model_id}_output_{index}")


# Gears: a package has ranges of dims and no gears, so there are none to list or to set.


@valued(word, failure=lambda: ({},))
def get_dynamic_batch(desc: int) -> dict[str, Any]:
    _model(desc)
    return {"batchCount": 0, "batch": []}


@valued(word, word, failure=lambda: ({},))
def get_dynamic_hw(desc: int, index: int) -> dict[str, Any]:
    _model(desc)
    return {"hwCount": 0, "hw": []}


@valued(word, word)
def get_input_dynamic_gear_count(desc: int, index: int) -> int:
    """`index` is -1: all inputs."""
    _model(desc)
    _require_all_inputs(index)
    return 0


@valued(word, word, word, failure=lambda: ([],))
def get_input_dynamic_dims(desc: int, index: int, count: int) -> list[dict[str, Any]]:
    """`index` is -1: all inputs."""
    _model(desc)
    _require_all_inputs(index)
    return []


@status(word, word, word, word)
def set_dynamic_batch_size(model: int, dataset: int, index: int, batch: int) -> None:
    if not batch:
        raise DeviceError(Code.INVALID_PARAM, "the batch is 0")
    _no_gear(model, dataset)


@status(word, word, word, word, word)
def set_dynamic_hw_size(model: int, dataset: int, index: int, height: int, width: int) -> None:
    if not height or not width:
        raise DeviceError(Code.INVALID_PARAM, "a size is 0")
    _no_gear(model, dataset)


@status(word, word, word, mapping)
def set_input_dynamic_dims(model: int, dataset: int, index: int, dims: dict[str, Any]) -> None:
    _no_gear(model, dataset)


# Datasets


@plain()
def create_dataset() -> int:
    return handles.of(Dataset())


@status(word)
def destroy_dataset(dataset: int) -> None:
    """Ends the list and the tensor descriptions in it, neither buffers nor memory."""
    for desc in handles.remove(dataset, Dataset).descs.values():
        handles.remove(handles.of(desc), TensorDesc)


@valued(word, word)
def add_dataset_buffer(dataset: int, buffer: int) -> int:
    """Appends; gives the dataset."""
    handles.get(dataset, Dataset).buffers.append(handles.get(buffer, DataBuffer))
    return dataset


@plain(word)
def get_dataset_num_buffers(dataset: int) -> int:
    return len(handles.get(dataset, Dataset).buffers)


@plain(word, word)
def get_dataset_buffer(dataset: int, index: int) -> int:
    """0 if there is none."""
    return handles.of(_at(handles.get(dataset, Dataset).buffers, index))


@valued(word, word, word)
def set_dataset_tensor_desc(dataset: int, desc: int, index: int) -> int:
    """Says the shape of a dynamic input; the dataset owns the description from now on. Gives the dataset."""
    item = handles.get(dataset, Dataset)
    _at(item.buffers, index)
    item.descs[index] = handles.get(desc, TensorDesc)
    return dataset


@plain(word, word)
def get_dataset_tensor_desc(dataset: int, index: int) -> int:
    """The description of an input as set, of an output as the last execution left it; 0 if there is none."""
    item = handles.get(dataset, Dataset)
    _at(item.buffers, index)
    return handles.of(item.descs[index]) if index in item.descs else 0


# Execution


@status(word, word, word)
def execute(model: int, inputs: int, outputs: int) -> None:
    """Runs to the end. An output buffer without memory gets some, which the caller frees with rt.free."""
    item = models.get(model)
    sources, targets = handles.get(inputs, Dataset), handles.get(outputs, Dataset)
    context = contexts.current()
    work = item.prepare(sources, targets, memory(), context, allocates=True)
    run_now(memory(), work.uses, work.run)


@status(word, word, word, word)
def execute_async(model: int, inputs: int, outputs: int, stream: int) -> None:
    """Runs at the stream's turn; memory that is freed before stays until then. Outputs must have memory."""
    item = models.get(model)
    sources, targets = handles.get(inputs, Dataset), handles.get(outputs, Dataset)
    queue = stream_in_context(stream)
    work = item.prepare(sources, targets, memory(), queue.context, allocates=False)
    submit(memory(), queue, work.uses, work.run)


def _model(desc: int) -> ModelDescription:
    model = handles.get(desc, _Desc).model
    if model is None:
        raise DeviceError(Code.INVALID_PARAM, "get_desc has not filled the description")
    return model


def _at(items: Sequence[_T], index: int) -> _T:
    if index >= len(items):
        raise DeviceError(Code.INVALID_PARAM, f"there is no number {index} among {len(items)}")
    return items[index]


def _index(tensors: Sequence[TensorDescription], name: str) -> int:
    for number, tensor in enumerate(tensors):
        if tensor.name == name:
            return number
    raise DeviceError(Code.INVALID_PARAM, f"no tensor is called {name}; there are {[t.name for t in tensors]}")


def _dims(tensor: TensorDescription, short_name: str) -> dict[str, Any]:
    name = tensor.name if len(tensor.name) <= _MAX_NAME else short_name
    return {"name": name, "dimCount": len(tensor.dims), "dims": list(tensor.dims)}


def _require_all_inputs(index: int) -> None:
    if index != _ALL_INPUTS:
        raise DeviceError(Code.INVALID_PARAM, "the index of all inputs, -1, is the only one")


def _no_gear(model: int, dataset: int) -> None:
    models.get(model)
    handles.get(dataset, Dataset)
    raise DeviceError(Code.DYNAMIC_BATCH_SIZE_INVALID, "the model has no gears; use set_dataset_tensor_desc")
