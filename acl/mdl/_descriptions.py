"""What a model is: inputs, outputs, their names, types, dims and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acl._call import plain, status, text, valued, word
from acl._process import handles, models
from acl.mdl._lookup import Description, dims_dict, index_of, item, model_of
from acl_runtime.device import Code, DeviceError, ModelDescription

__all__ = [
    "create_desc",
    "destroy_desc",
    "get_cur_output_dims",
    "get_desc",
    "get_input_data_type",
    "get_input_dims",
    "get_input_dims_range",
    "get_input_dims_v2",
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
    "get_tensor_real_name",
]


@plain()
def create_desc() -> int:
    return handles.of(Description())


@status(word)
def destroy_desc(desc: int) -> None:
    handles.remove(desc, Description)


@status(word, word)
def get_desc(desc: int, model: int) -> None:
    """Fills a description; it stays valid when the model is unloaded."""
    handles.get(desc, Description).model = models.get(model).description


@plain(word)
def get_num_inputs(desc: int) -> int:
    return len(model_of(desc).inputs)


@plain(word)
def get_num_outputs(desc: int) -> int:
    return len(model_of(desc).outputs)


@plain(word, word)
def get_input_size_by_index(desc: int, index: int) -> int:
    """Bytes of the largest shape; 0 if there is none."""
    return item(model_of(desc).inputs, index).nbytes


@plain(word, word)
def get_output_size_by_index(desc: int, index: int) -> int:
    """Bytes of the largest shape; 0 if there is none."""
    return item(model_of(desc).outputs, index).nbytes


@plain(word, word, failure=-1)
def get_input_data_type(desc: int, index: int) -> int:
    return item(model_of(desc).inputs, index).dtype.acl


@plain(word, word, failure=-1)
def get_output_data_type(desc: int, index: int) -> int:
    return item(model_of(desc).outputs, index).dtype.acl


@plain(word, word, failure=-1)
def get_input_format(desc: int, index: int) -> int:
    return item(model_of(desc).inputs, index).format


@plain(word, word, failure=-1)
def get_output_format(desc: int, index: int) -> int:
    return item(model_of(desc).outputs, index).format


@plain(word, word, failure="")
def get_input_name_by_index(desc: int, index: int) -> str:
    return item(model_of(desc).inputs, index).name


@plain(word, word, failure="")
def get_output_name_by_index(desc: int, index: int) -> str:
    return item(model_of(desc).outputs, index).name


@valued(word, text)
def get_input_index_by_name(desc: int, name: str) -> int:
    return index_of(model_of(desc).inputs, name)


@valued(word, text)
def get_output_index_by_name(desc: int, name: str) -> int:
    return index_of(model_of(desc).outputs, name)


@valued(word, word, failure=lambda: ({},))
def get_input_dims(desc: int, index: int) -> dict[str, Any]:
    """The dims of an input, -1 where a gear or the caller decides; of a picture [n, h, w, c]."""
    tensor = item(model_of(desc).inputs, index)
    return _input_dims(desc, index, tensor.image.picture_dims(tensor.dims) if tensor.image else tensor.dims)


@valued(word, word, failure=lambda: ({},))
def get_input_dims_v2(desc: int, index: int) -> dict[str, Any]:
    """The same, but of a picture four dims whose product is its bytes: [n, h * 3 / 2, w, 1] for YUV420SP."""
    tensor = item(model_of(desc).inputs, index)
    return _input_dims(desc, index, tensor.image.byte_dims(tensor.dims) if tensor.image else tensor.dims)


@valued(word, word, failure=lambda: ({},))
def get_input_dims_range(desc: int, index: int) -> dict[str, Any]:
    """Smallest and largest size of each axis, -1 for no limit."""
    ranges = item(model_of(desc).inputs, index).ranges
    return {"rangeCount": len(ranges), "range": [list(r) for r in ranges]}


@valued(word, word, failure=lambda: ({},))
def get_output_dims(desc: int, index: int) -> dict[str, Any]:
    """The dims of an output; with gears under the largest one."""
    return _output_dims(desc, index, item(model_of(desc).outputs, index).dims)


@valued(word, word, failure=lambda: ({},))
def get_cur_output_dims(desc: int, index: int) -> dict[str, Any]:
    """The output's dims under the gear that was chosen last; 200001 where shapes or the run decide."""
    model = model_of(desc)
    tensor = item(model.outputs, index)
    if model.is_dynamic or tensor.is_dynamic:
        raise DeviceError(Code.API_NOT_SUPPORT, "the shape is dynamic: get_dataset_tensor_desc has it after a run")
    return _output_dims(desc, index, model.current_output_dims(index))


@plain(word, text, failure="")
def get_tensor_real_name(desc: int, name: str) -> str:
    """The full name of a tensor that `get_input_dims` or `get_output_dims` gave a short one."""
    model = model_of(desc)
    for way, tensors in (("input", model.inputs), ("output", model.outputs)):
        for index, tensor in enumerate(tensors):
            if name in (tensor.name, _short_name(model, way, index)):
                return tensor.name
    raise DeviceError(Code.INVALID_PARAM, f"no tensor is called {name}")


def _input_dims(desc: int, index: int, dims: Sequence[int]) -> dict[str, Any]:
    model = model_of(desc)
    return dims_dict(model.inputs[index].name, dims, _short_name(model, "input", index))


def _output_dims(desc: int, index: int, dims: Sequence[int]) -> dict[str, Any]:
    model = model_of(desc)
    return dims_dict(model.outputs[index].name, dims, _short_name(model, "output", index))


def _short_name(model: ModelDescription, way: str, index: int) -> str:
    return f"acl_modelId_{model.model_id}_{way}_{index}"
