"""pyACL's face over the runtime: `import acl` runs programs that were written for an Ascend device on this CPU.

Takes handles, addresses and numbers, gives numbers and AscendCL's codes; holds no logic of models, memory or streams
(`acl_runtime.device` does). Only single operators know the compiler, which `acl.op._compiler` loads for the first one.
An `acl` earlier on the import path, such as an installed CANN's, is the one that Python takes; put this one first to
use it instead.
"""

from acl import blas, himpi, mdl, media, op, prof, rt, util
from acl._absent import absent as _absent
from acl._data_types import (
    create_data_buffer,
    create_tensor_desc,
    data_type_size,
    destroy_data_buffer,
    destroy_tensor_desc,
    get_data_buffer_addr,
    get_data_buffer_size,
    get_data_buffer_size_v2,
    get_tensor_desc_dim_v2,
    get_tensor_desc_element_count,
    get_tensor_desc_format,
    get_tensor_desc_name,
    get_tensor_desc_num_dims,
    get_tensor_desc_size,
    get_tensor_desc_type,
    set_tensor_const,
    set_tensor_desc_name,
    update_data_buffer,
)
from acl._half import float16_to_float, float_to_float16
from acl._life_cycle import app_log, finalize, finalize_reference, get_recent_err_msg, get_soc_name, get_version, init

__all__ = [
    "app_log",
    "blas",
    "create_data_buffer",
    "create_tensor_desc",
    "data_type_size",
    "destroy_data_buffer",
    "destroy_tensor_desc",
    "finalize",
    "finalize_reference",
    "float16_to_float",
    "float_to_float16",
    "get_data_buffer_addr",
    "get_data_buffer_size",
    "get_data_buffer_size_v2",
    "get_recent_err_msg",
    "get_soc_name",
    "get_tensor_desc_dim_v2",
    "get_tensor_desc_element_count",
    "get_tensor_desc_format",
    "get_tensor_desc_name",
    "get_tensor_desc_num_dims",
    "get_tensor_desc_size",
    "get_tensor_desc_type",
    "get_version",
    "himpi",
    "init",
    "mdl",
    "media",
    "op",
    "prof",
    "rt",
    "set_tensor_const",
    "set_tensor_desc_name",
    "update_data_buffer",
    "util",
]

globals().update(_absent(__name__))
