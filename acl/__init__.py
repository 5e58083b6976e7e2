"""pyACL's face over the runtime: `import acl` runs programs that were written for an Ascend device on this CPU.

Takes handles, addresses and numbers, gives numbers and AscendCL's codes; holds no logic of models, memory or streams
(`acl_runtime.device` does). Only single operators know the compiler, which `acl.op._compiler` loads for the first one.
An `acl` earlier on the import path, such as an installed CANN's, is the one that Python takes; put this one first to
use it instead.
"""

from acl import blas, mdl, media, op, rt, util
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
    get_tensor_desc_num_dims,
    get_tensor_desc_size,
    get_tensor_desc_type,
    set_tensor_const,
    update_data_buffer,
)
from acl._life_cycle import app_log, finalize, finalize_reference, get_recent_err_msg, get_soc_name, init

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
    "get_data_buffer_addr",
    "get_data_buffer_size",
    "get_data_buffer_size_v2",
    "get_recent_err_msg",
    "get_soc_name",
    "get_tensor_desc_dim_v2",
    "get_tensor_desc_element_count",
    "get_tensor_desc_format",
    "get_tensor_desc_num_dims",
    "get_tensor_desc_size",
    "get_tensor_desc_type",
    "init",
    "mdl",
    "media",
    "op",
    "rt",
    "set_tensor_const",
    "update_data_buffer",
    "util",
]
