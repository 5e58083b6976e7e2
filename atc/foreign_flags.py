"""Flags of ATC that openatc does not have: what to do instead, or why there is nothing to do."""

from __future__ import annotations

_OPEN = "open dims stay open, one package serves every size: leave it out"
_ONNX = "only ONNX models are read: leave it out"
_AIPP = "put the preprocessing into the model, or do it before the run"
_DTYPES = "dtypes follow the model and --precision_mode; --input and the outputs keep the model's"
_KERNELS = "there is one kernel for each case: leave it out"
_FUSION = "fusion cannot be switched: leave it out; atc inspect --fusion says what it did"
_HOST = "kernels are made for this machine, the chip is only estimated: leave it out"
_DEBUG = "atc inspect shows programs and plan of a package"
_MEMORY = "memory is planned without choices: leave it out; atc inspect --memory shows the plan"
_STREAMS = "kernels run in one order: leave it out"
_COMPRESS = "weights are kept as the model has them: quantise the model first"
_CACHE = "the cache of kernels is always on: OPENATC_CACHE names its folder, atc cache clear empties it"
_MIXED = "choose another --precision_mode: its lists of operators are fixed"

FOREIGN_FLAGS = {
    "mode": "conversion is the only mode; atc inspect and atc check do what other modes are for",
    "om": "use atc inspect",
    "singleop": "make an ONNX model of one node",
    "weight": _ONNX,
    "op_name_map": _ONNX,
    "enable_scope_fusion_passes": _ONNX,
    "input_shape_range": "use --input_shape with -1 for what stays open",
    "input_hint_shape": _OPEN,
    "dynamic_batch_size": _OPEN,
    "dynamic_image_size": _OPEN,
    "dynamic_dims": _OPEN,
    "shape_generalized_build_mode": _OPEN,
    "insert_op_conf": _AIPP,
    "enable_small_channel": _KERNELS,
    "input_fp16_nodes": _DTYPES,
    "output_type": _DTYPES,
    "is_input_adjust_hw_layout": "inputs and outputs have the model's layout: leave it out",
    "is_output_adjust_hw_layout": "inputs and outputs have the model's layout: leave it out",
    "out_nodes": "the outputs are the model's: cut the model with onnx.utils.extract_model",
    "check_report": "use atc check --json",
    "external_weight": "weights lie in the package and are mapped, not read: leave it out",
    "save_original_model": "leave it out; the ONNX file stays as it is",
    "host_env_os": _HOST,
    "host_env_cpu": _HOST,
    "virtual_type": _HOST,
    "core_type": _HOST,
    "aicore_num": _HOST,
    "device_id": _HOST,
    "target": _HOST,
    "modify_mixlist": _MIXED,
    "keep_dtype": _MIXED,
    "customize_dtypes": _MIXED,
    "op_precision_mode": _KERNELS,
    "op_select_implmode": _KERNELS,
    "optypelist_for_implmode": _KERNELS,
    "allow_hf32": "products of f32 are computed in f32: leave it out",
    "deterministic": "results are the same in every run: leave it out",
    "deterministic_level": "results are the same in every run: leave it out",
    "is_weight_clip": _MIXED,
    "fusion_switch_file": _FUSION,
    "optimization_switch": _FUSION,
    "oo_level": _FUSION,
    "oo_constant_folding": _FUSION,
    "oo_dead_code_elimination": _FUSION,
    "export_compile_stat": "use atc inspect --fusion --json",
    "disable_reuse_memory": _MEMORY,
    "atomic_clean_policy": _MEMORY,
    "buffer_optimize": _MEMORY,
    "enable_single_stream": _STREAMS,
    "multi_stream_parallel_mode": _STREAMS,
    "topo_sorting_mode": _STREAMS,
    "ac_parallel_enable": _STREAMS,
    "tiling_schedule_optimize": _STREAMS,
    "h2d_overlapped_with_compute": _STREAMS,
    "static_model_ops_lower_limit": _STREAMS,
    "cluster_config": "a model runs on one device: leave it out",
    "hccl_sub_comm_config": "a model runs on one device: leave it out",
    "quant_dumpable": "use atc compare, which sees every tensor",
    "dump_mode": "use atc inspect --json",
    "status_check": "use atc compare, which names the first bad tensor",
    "display_model_info": "use atc inspect",
    "sparsity": _COMPRESS,
    "enable_compress_weight": _COMPRESS,
    "compress_weight_conf": _COMPRESS,
    "enable_attr_compression": _COMPRESS,
    "compression_optimize_conf": _COMPRESS,
    "cal_conf": _COMPRESS,
    "mdl_bank_path": "tile sizes are computed, not looked up: leave it out",
    "op_bank_path": "tile sizes are computed, not looked up: leave it out",
    "auto_tune_mode": "tile sizes are computed, not looked up: leave it out",
    "jit_compile": "kernels are compiled at conversion: leave it out",
    "op_compiler_cache_mode": _CACHE,
    "op_compiler_cache_dir": _CACHE,
    "op_debug_level": _DEBUG,
    "op_debug_config": _DEBUG,
    "debug_dir": _DEBUG,
    "build_config": "leave it out",
    "raw_ge_options": "give the flags themselves",
    "raw_ge_options_ignore_unsupported": "give the flags themselves",
}
"""The remedy by the flag's name, in ATC's spelling without dashes."""
