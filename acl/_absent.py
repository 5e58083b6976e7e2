"""What pyACL has and the simulated device has not: one table of names, by module and by the shape of their results.

`R` gives the code alone, `VR` values (how many stands behind the name) and the code, `V` a null value. The code is
207000, the feature is not supported. A name that gets a body leaves the table.
"""

from __future__ import annotations

from typing import Any

from acl._call import Function
from acl_runtime.device import Code

_TABLE: dict[str, dict[str, str]] = {
    "acl": {
        "R": "set_tensor_dynamic_input set_tensor_value_range set_tensor_place_ment set_tensor_storage_format "
        "set_tensor_storage_shape set_tensor_origin_format set_tensor_origin_shape set_tensor_shape_range "
        "set_tensor_format set_tensor_shape",
        "VR": "get_tensor_desc_dim_range:1 trans_tensor_desc_format:1 get_cann_attribute:1 get_cann_attribute_list:1 "
        "get_cann_version:1",
    },
    "acl.rt": {
        "R": "memcpy2d memcpy2d_async stream_abort set_exception_info_callback set_op_wait_timeout "
        "set_stream_attribute set_ts_device "
        "set_stream_overflow_switch notify_wait notify_record destroy_notify notify_reset ipc_mem_close "
        "ipc_mem_set_import_pid release_mem_address unmap_mem map_mem free_physical mem_set_access binary_unload "
        "launch_kernel mdl_ri_execute_async mdl_ri_destroy mdl_ri_capture_begin cmo_async",
        "VR": "query_event_wait_status:1 get_device_info:1 get_stream_attribute:1 get_stream_overflow_switch:1 "
        "create_notify:1 ipc_mem_get_export_key:1 ipc_mem_import_by_key:1 reserve_mem_address:1 malloc_physical:1 "
        "mem_export_to_shareable_handle:1 mem_import_from_shareable_handle:1 binary_load_from_file:1 "
        "binary_get_function:1 get_soc_version:1 mdl_ri_capture_end:1 get_device_utilization_rate:1 "
        "get_mem_uce_info:1",
        "V": "get_task_id_from_exception_info get_stream_id_from_exception_info get_thread_id_from_exception_info "
        "get_device_id_from_exception_info get_error_code_from_exception_info",
    },
    "acl.mdl": {
        "R": "bundle_unload bundle_init_from_file destroy_exec_config_handle "
        "set_exec_config_opt set_external_weight_address",
        "VR": "bundle_load_from_file:1 bundle_load_from_mem:1 bundle_get_model_num:1 bundle_get_model_id:1 "
        "get_desc_from_file:1",
        "V": "create_exec_config_handle get_op_attr",
    },
    "acl.op": {
        "R": "infer_shape update_params register_compile_func unregister_compile_func set_kernel_args "
        "set_kernel_workspace_sizes start_dump_args stop_dump_args create_kernel set_compile_opt",
        "VR": "get_compile_opt_size:1 get_compile_opt:1",
    },
    "acl.prof": {
        "R": "set_config",
        "VR": "get_step_timestamp:1",
        "V": "create_step_info destroy_step_info",
    },
    "acl.blas": {
        "R": "gemv gemv_ex hgemv s8gemv hgemm s8gemm",
        "VR": "create_handle_for_gemv_ex:1 create_handle_for_hgemv:1 create_handle_for_s8gemv:1 "
        "create_handle_for_gemm_ex:1 create_handle_for_hgemm:1 create_handle_for_s8gemm:1",
    },
    "acl.media": {
        "R": "vdec_send_skipped_frame dvpp_vpc_convert_color_async dvpp_vpc_pyr_down_async "
        "dvpp_vpc_equalize_hist_async dvpp_vpc_make_border_async dvpp_vpc_calc_hist_async",
    },
}  # fmt: skip


def absent(module: str) -> dict[str, Function]:
    """The functions of a module that only tell that they are not there, by name."""
    found: dict[str, Function] = {}
    for shape, names in _TABLE.get(module, {}).items():
        for word in names.split():
            name, _, count = word.partition(":")
            found[name] = _function(f"{module}.{name}", shape, int(count or 0))
    return found


def _function(name: str, shape: str, values: int) -> Function:
    code = int(Code.FEATURE_NOT_SUPPORT)
    result: Any = {"R": code, "VR": (*(0,) * values, code), "V": 0}[shape]

    def call(*arguments: object) -> Any:
        return result

    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    call.__doc__ = "Not supported by the simulated device: 207000, or a null value."
    return call
