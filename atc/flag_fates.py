"""What becomes of every flag of ATC: it works, it is accepted without effect, or it is refused.

Command lines, help, docs/flags.md and the tests read this table. Flags that work and belong to the conversion itself
are declared as fields of `atc.options.Options`; the two others kinds stand here, one row a flag.
"""

from __future__ import annotations

from dataclasses import dataclass

from atc.option_values import boolean, one_of
from atc.usage import UsageError


@dataclass(frozen=True)
class WithoutEffect:
    """Accepted, and said to change nothing: `why`. `values` are the allowed ones, any where it is empty."""

    why: str
    values: tuple[str, ...] = ()
    code: str = "E10001"


@dataclass(frozen=True)
class Refused:
    """Refused with a code and what helps, except for the values of `passes`, which ask for what is done anyhow."""

    remedy: str
    passes: tuple[str, ...] = ()
    code: str = "E10055"


def _zero_or_one(why: str) -> WithoutEffect:
    return WithoutEffect(why, ("0", "1"), "E10006")


def _true_or_false(why: str) -> WithoutEffect:
    return WithoutEffect(why, ("true", "false"), "E10005")


_ONNX = "belongs to models of other frameworks"
_OPEN = "open dims stay open: one package serves every size"
_KERNELS = "there is one kernel for each case"
_HOST = "code is made for this machine; the chip's programs are estimated, not built"
_DEBUG = "atc inspect shows the programs and the plan of every package"
_MEMORY = "memory is planned in one way; atc inspect --memory shows the plan"
_STREAMS = "kernels run in one order"
_COMPRESS = "weights are kept as the model has them"
_TILES = "tile sizes are computed, not looked up"
_CACHE = "the cache of kernels is always on: OPENATC_CACHE names its folder, atc cache clear empties it"
_LAYOUT = "inputs and outputs have the model's layout in memory"
_QUANTISE = "quantise the model first: quantised ONNX models are read"

WITHOUT_EFFECT: dict[str, WithoutEffect] = {
    "weight": WithoutEffect(_ONNX),
    "op_name_map": WithoutEffect(_ONNX),
    "enable_scope_fusion_passes": WithoutEffect(_ONNX),
    "input_hint_shape": WithoutEffect(_OPEN),
    "shape_generalized_build_mode": WithoutEffect(_OPEN),
    "enable_small_channel": _zero_or_one(_KERNELS),
    "host_env_os": WithoutEffect(_HOST, ("linux", "minios")),
    "host_env_cpu": WithoutEffect(_HOST, ("x86_64", "aarch64", "arm64", "arm")),
    "virtual_type": _zero_or_one(_HOST),
    "core_type": WithoutEffect(_HOST, ("AiCore", "VectorCore")),
    "aicore_num": WithoutEffect("the estimate counts every core of the chip"),
    "device_id": WithoutEffect(_HOST),
    "target": WithoutEffect(_HOST),
    "optypelist_for_implmode": WithoutEffect("--op_select_implmode counts for every operator"),
    "allow_hf32": _true_or_false("products of f32 are computed in f32"),
    "deterministic": _zero_or_one("results are the same in every run"),
    "deterministic_level": WithoutEffect("results are the same in every run", ("0", "1", "2", "3")),
    "is_weight_clip": _zero_or_one("finite weights always stay finite in f16"),
    "disable_reuse_memory": _zero_or_one(_MEMORY),
    "oo_dead_code_elimination": _true_or_false("dead code always goes: nothing would compute it"),
    "atomic_clean_policy": _zero_or_one(_MEMORY),
    "buffer_optimize": WithoutEffect(_MEMORY, ("l2_optimize", "l1_optimize", "off_optimize")),
    "enable_single_stream": _true_or_false(_STREAMS),
    "multi_stream_parallel_mode": WithoutEffect(_STREAMS),
    "topo_sorting_mode": WithoutEffect(_STREAMS, ("0", "1", "2", "3")),
    "ac_parallel_enable": _zero_or_one(_STREAMS),
    "tiling_schedule_optimize": _zero_or_one(_STREAMS),
    "h2d_overlapped_with_compute": WithoutEffect(_STREAMS),
    "static_model_ops_lower_limit": WithoutEffect(_STREAMS),
    "quant_dumpable": _zero_or_one("atc compare sees every tensor"),
    "sparsity": _zero_or_one(_COMPRESS),
    "enable_compress_weight": _true_or_false(_COMPRESS),
    "compress_weight_conf": WithoutEffect(_COMPRESS),
    "enable_attr_compression": _true_or_false(_COMPRESS),
    "mdl_bank_path": WithoutEffect(_TILES),
    "op_bank_path": WithoutEffect(_TILES),
    "jit_compile": WithoutEffect("kernels are compiled at conversion", ("0", "1", "2")),
    "op_compiler_cache_mode": WithoutEffect(_CACHE, ("disable", "enable", "force")),
    "op_compiler_cache_dir": WithoutEffect(_CACHE),
    "op_debug_level": WithoutEffect(_DEBUG, ("0", "1", "2", "3", "4")),
    "op_debug_config": WithoutEffect(_DEBUG),
    "debug_dir": WithoutEffect(_DEBUG),
    "export_compile_stat": WithoutEffect("atc inspect --fusion shows what was fused", ("0", "1", "2")),
    "status_check": _zero_or_one("atc compare names the first tensor that overflows"),
    "external_weight": WithoutEffect("weights lie in the package and are mapped, not read", ("0", "1", "2")),
    "save_original_model": _true_or_false("the ONNX file is the original model, and stays as it is"),
    "dump_mode": _zero_or_one("the JSON of --mode=1 has shapes in any case"),
    "build_config": WithoutEffect("ATC itself no longer reads it"),
}

REFUSED: dict[str, Refused] = {
    "is_input_adjust_hw_layout": Refused(f"{_LAYOUT}: leave it out", ("false",)),
    "is_output_adjust_hw_layout": Refused(f"{_LAYOUT}: leave it out", ("false",)),
    "compression_optimize_conf": Refused(_QUANTISE),
    "cal_conf": Refused(_QUANTISE),
    "cluster_config": Refused("a model runs on one device: leave it out"),
    "hccl_sub_comm_config": Refused("a model runs on one device: leave it out"),
    "auto_tune_mode": Refused("ATC has taken it back as well: leave it out", code="E10001"),
}


def note_of(flag: str, value: str) -> str:
    """What is said of a flag that was accepted, empty for a value that asks for what is done anyhow.

    UsageError for a flag that is refused, and for a value that it cannot have. KeyError for another flag.
    """
    if flag in WITHOUT_EFFECT:
        known = WITHOUT_EFFECT[flag]
        if known.code == "E10005":
            boolean(flag, value)
        elif known.values:
            one_of(flag, value, known.values, known.code)
        return f"--{flag} has no effect: {known.why}"
    refused = REFUSED[flag]
    if value in refused.passes:
        return ""
    raise UsageError(f"--{flag}={value} is not available", code=refused.code, where={"flag": f"--{flag}"},
                     remedy=refused.remedy)  # fmt: skip
