"""Image stages (AIPP): what a model has, and the parameters of a dynamic one."""

from __future__ import annotations

from typing import Any

from acl._call import Function, integer, plain, real, status, valued, word
from acl._process import handles, memory, models
from acl.mdl._lookup import item
from acl_runtime.device import Code, Dataset, DeviceError, TensorDescription
from acl_runtime.device.aipp import ImageStage
from acl_runtime.device.preparation import Preparation
from tensor_types.dtypes import F32
from tensor_types.images import COUNT

_NO_STAGE, _STATIC, _DYNAMIC, _PARAMETERS = range(4)
_U8, _NCHW = 4, 0
_NONE = (1 << 64) - 1


@valued(word, word, failure=lambda: (0, 0))
def get_aipp_type(model: int, index: int) -> tuple[int, int]:
    """Of an input: 0 none, 1 static, 2 dynamic, 3 parameters of a dynamic one; and for 2 the input that takes these,
    else 2**64 - 1."""
    tensor = _input(model, index)
    for stage in models.get(model).description.stages:
        if index == stage.image:
            return _DYNAMIC, stage.parameters
        if index == stage.parameters:
            return _PARAMETERS, _NONE
    return (_STATIC if tensor.image else _NO_STAGE), _NONE


@valued(word, word, failure=lambda: (None,))
def get_first_aipp_info(model: int, index: int) -> dict[str, Any]:
    """What the static stage of an input takes. 100038 if it has none."""
    tensor = _input(model, index)
    if tensor.image is None:
        raise DeviceError(Code.NOT_STATIC_AIPP, f"input {tensor.name} has no static AIPP")
    height, width = tensor.image.source
    dims = tensor.image.byte_dims(tensor.dims)
    return {
        "inputFormat": tensor.image.acl_format, "srcImageSizeW": width, "srcImageSizeH": height, "srcFormat": _NCHW,
        "srcDatatype": _U8, "srcDimNum": len(dims), "shapeCount": 1,
        "outDims": [{"srcDims": list(dims), "srcSize": tensor.nbytes}],
    }  # fmt: skip


@plain(word)
def create_aipp(batch: int) -> int:
    """Parameters for a batch of 1 to 127 pictures; 0 for another number."""
    return handles.of(Preparation(batch))


@status(word)
def destroy_aipp(aipp: int) -> None:
    handles.remove(aipp, Preparation)


def _setter(name: str, *kinds: Any) -> Function:
    """`set_aipp_<name>`, for a field of `Preparation`; those of a picture have its number last."""

    def set_field(aipp: int, *values: Any) -> None:
        handles.get(aipp, Preparation).set(name, values)

    set_field.__name__ = set_field.__qualname__ = f"set_aipp_{name}"
    set_field.__module__ = __name__
    set_field.__doc__ = f"Sets {name.replace('_', ' ')}."
    return status(word, *kinds)(set_field)


def _kinds(name: str) -> tuple[Any, ...]:
    kind = real if name in ("dtc_pixel_min", "pixel_var_reci") else integer
    return (kind,) * Preparation.COUNTS[name] + ((integer,) if name in Preparation.OF_PICTURE else ())


_setters = {f"set_aipp_{name}": _setter(name, *_kinds(name)) for name in Preparation.COUNTS}
globals().update(_setters)


@status(word, word, word, word)
def set_input_aipp(model: int, dataset: int, index: int, aipp: int) -> None:
    """Gives a dynamic stage its parameters; `index` is that of `ascend_dynamic_aipp_data`. 145015 for another input."""
    _input(model, index)
    stages = [s for s in models.get(model).description.stages if s.parameters == index]
    _give(stages, model, dataset, index, aipp)


@status(word, word, word, word)
def set_aipp_by_input_index(model: int, dataset: int, index: int, aipp: int) -> None:
    """The same, by the input whose images are prepared."""
    _input(model, index)
    stages = [s for s in models.get(model).description.stages if s.image == index]
    _give(stages, model, dataset, index, aipp)


def _give(stages: list[ImageStage], model: int, dataset: int, index: int, aipp: int) -> None:
    inputs, preparation = handles.get(dataset, Dataset), handles.get(aipp, Preparation)
    if not stages:
        remedy = "convert the model with aipp_mode: dynamic" if not models.get(model).description.stages else (
            "get_input_index_by_name finds ascend_dynamic_aipp_data")  # fmt: skip
        raise DeviceError(Code.AIPP_NOT_EXIST, f"input {index} has no dynamic AIPP: {remedy}")
    preparation.write(stages[0], inputs, memory())


@plain(word)
def get_aipp_data_size(batch: int) -> int:
    """Bytes of the parameters of so many pictures; 0 for a number that there cannot be."""
    return Preparation(batch).batch * COUNT * F32.bytes


def _input(model: int, index: int) -> TensorDescription:
    return item(models.get(model).description.inputs, index)


__all__ = [
    *_setters, "create_aipp", "destroy_aipp", "get_aipp_data_size", "get_aipp_type", "get_first_aipp_info",
    "set_aipp_by_input_index", "set_input_aipp",
]  # fmt: skip
