"""Image stages (AIPP): what a model has, and the parameters of a dynamic one."""

from __future__ import annotations

from typing import Any

from acl._call import Function, integer, plain, real, status, valued, word
from acl._process import handles, models
from acl.mdl._lookup import item
from acl_runtime.device import Code, Dataset, DeviceError, TensorDescription
from acl_runtime.device.aipp import DYNAMIC, STATIC, Preparation

_TYPES = {None: 0, STATIC: 1, DYNAMIC: 2}
_U8, _NCHW = 4, 0
_NONE = (1 << 64) - 1


@valued(word, word, failure=lambda: (0, 0))
def get_aipp_type(model: int, index: int) -> tuple[int, int]:
    """Of an input: 0 none, 1 static, 2 dynamic; and the input that has the parameters, 2**64 - 1 if there is none."""
    tensor = _input(model, index)
    return _TYPES[tensor.image.mode if tensor.image else None], _NONE


@valued(word, word, failure=lambda: (None,))
def get_first_aipp_info(model: int, index: int) -> dict[str, Any]:
    """What the static stage of an input takes. 100038 if it has none."""
    tensor = _input(model, index)
    if tensor.image is None or tensor.image.mode != STATIC:
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


_setters = {
    f"set_aipp_{name}": _setter(name, *kinds)
    for name, kinds in {
        "input_format": (integer,),
        "src_image_size": (integer,) * 2,
        "rbuv_swap_switch": (integer,),
        "ax_swap_switch": (integer,),
        "csc_params": (integer,) * 16,
        "scf_params": (integer,) * 6,
        "crop_params": (integer,) * 6,
        "padding_params": (integer,) * 6,
        "dtc_pixel_mean": (integer,) * 5,
        "dtc_pixel_min": (*(real,) * 4, integer),
        "pixel_var_reci": (*(real,) * 4, integer),
    }.items()
}
globals().update(_setters)


@status(word, word, word, word)
def set_input_aipp(model: int, dataset: int, index: int, aipp: int) -> None:
    """Gives a dynamic stage its parameters. 145015: no package has one, the conversion makes static ones only."""
    _refuse(model, dataset, aipp)


@status(word, word, word, word)
def set_aipp_by_input_index(model: int, dataset: int, index: int, aipp: int) -> None:
    """The same, by the input whose pictures are prepared."""
    _input(model, index)
    _refuse(model, dataset, aipp)


def _refuse(model: int, dataset: int, aipp: int) -> None:
    models.get(model)
    handles.get(dataset, Dataset)
    handles.get(aipp, Preparation)
    raise DeviceError(Code.AIPP_NOT_EXIST, "the model has no dynamic AIPP: packages are made with static AIPP only")


def _input(model: int, index: int) -> TensorDescription:
    return item(models.get(model).description.inputs, index)


__all__ = [
    *_setters, "create_aipp", "destroy_aipp", "get_aipp_type", "get_first_aipp_info", "set_aipp_by_input_index",
    "set_input_aipp",
]  # fmt: skip
