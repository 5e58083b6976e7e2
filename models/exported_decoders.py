"""Decoders of transformers with their caches as inputs and outputs, exported with seeded weights.

`python -m models.exported_decoders FOLDER [NAME ...]` writes NAME.CACHE.MODE.onnx. CACHE says how the caches are spelt:
`dynamic` (joined, growing), `static` (of fixed capacity, written at `cache_position`) or `merged` (an If between one
branch without past and one with it, as optimum merges them). MODE is the exporter of PyTorch: `trace` or `dynamo`.
Needs torch, onnxscript and transformers, which nothing else here does.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import onnx.compose
from onnx import helper

from models.exported import export_all

CAPACITY = 320
"""Rows of static caches."""

SMALL = {"vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 512,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "tie_word_embeddings": False}  # fmt: skip
EXPERTS = {"num_local_experts": 8, "num_experts": 8, "num_experts_per_tok": 2}

DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "gemma2": ("Gemma2", {"head_dim": 32, "sliding_window": 16, "query_pre_attn_scalar": 32}),
    "gemma3": ("Gemma3", {"head_dim": 32, "sliding_window": 16, "query_pre_attn_scalar": 32,
                          "layer_types": ["sliding_attention", "full_attention"]}),
    "gpt2": ("GPT2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}),
    "phi": ("Phi", {"partial_rotary_factor": 0.5}),
    "phi3": ("Phi3", {"sliding_window": 24}),
    "gpt_oss": ("GptOss", {**EXPERTS, "head_dim": 32, "sliding_window": 16, "intermediate_size": 64,
                           "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {
                               "rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                               "truncate": False, "original_max_position_embeddings": 128, "rope_theta": 150000.0}}),
    "mixtral": ("Mixtral", {**EXPERTS, "intermediate_size": 64}),
    "qwen3_moe": ("Qwen3Moe", {**EXPERTS, "head_dim": 16, "moe_intermediate_size": 64, "norm_topk_prob": True}),
    "deepseek_v3": ("DeepseekV3", {
        "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
        "moe_intermediate_size": 64, "first_k_dense_replace": 1, "kv_lora_rank": 32, "q_lora_rank": 48,
        "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32, "n_shared_experts": 1}),
}  # fmt: skip

MODES = ("trace", "dynamo")
_STATIC = ("llama", "qwen3", "gpt2", "phi", "mixtral", "deepseek_v3")
FORMS = [
    *((name, "dynamic", mode) for name in DECODERS for mode in MODES),
    *((name, "static", mode) for name in _STATIC for mode in MODES),
    *((name, "merged", "trace") for name in ("llama", "gpt2")),
]


def make(name: str) -> Any:
    """The seeded model, its weights drawn so that activations keep their scale through depth."""
    import torch
    import transformers

    torch.manual_seed(0)
    stem, given = DECODERS[name]
    config_name = f"{stem}TextConfig" if hasattr(transformers, f"{stem}TextConfig") else f"{stem}Config"
    kind = next(k for k in (f"{stem}ForCausalLM", f"{stem}LMHeadModel") if hasattr(transformers, k))
    config = getattr(transformers, config_name)(**{**SMALL, **given})
    model = getattr(transformers, kind)(config).eval().float()
    if "num_experts_per_tok" in given:
        model.set_experts_implementation("batched_mm")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                fan_in = parameter.shape[-2] if parameter.ndim == 3 else parameter[0].numel()
                parameter.normal_(0, fan_in**-0.5)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def _pairs(past: Any) -> list[Any]:
    return [t for layer in past.layers for t in (layer.keys, layer.values)]


def _wrapped(model: Any, kind: str) -> Any:
    """The model with its caches as tensors in and out."""
    import torch
    from transformers import Cache, DynamicCache
    from transformers.cache_utils import StaticLayer

    class Dynamic(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, *past: Any) -> Any:
            cache = DynamicCache()
            for layer in range(len(past) // 2):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            out = self.model(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
                             past_key_values=cache, use_cache=True)  # fmt: skip
            return (out.logits, *_pairs(out.past_key_values))

    class Static(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, cache_position: Any, *past: Any) -> Any:
            layers = [StaticLayer(CAPACITY) for _ in range(len(past) // 2)]
            for number, layer in enumerate(layers):
                layer.lazy_initialization(past[2 * number], past[2 * number + 1])
                layer.keys, layer.values = past[2 * number].clone(), past[2 * number + 1].clone()
                layer.cumulative_length = cache_position[:1].clone()
            cache = Cache(layers=layers)
            out = self.model(input_ids=input_ids, position_ids=cache_position[None], past_key_values=cache,
                             use_cache=True)  # fmt: skip
            return (out.logits, *_pairs(cache))

    return (Static if kind == "static" else Dynamic)().eval()


def export(name: str, cache: str, mode: str, folder: Path) -> Path:
    """Writes the model; what torch or the library raises goes on to the caller."""
    path = folder / f"{name}.{cache}.{mode}.onnx"
    if cache != "merged":
        _export(name, cache, mode, path, past=5)
        return path
    parts = []
    for which, past in (("without", 0), ("with", 5)):
        part = folder / f"{name}.{which}.{mode}.onnx"
        _export(name, "dynamic", mode, part, past)
        parts.append(onnx.load(part))
        part.unlink()
    onnx.save(merged(*parts), path)
    return path


def _export(name: str, cache: str, mode: str, path: Path, past: int) -> None:
    """With `past` rows in the caches; 0: there are no caches among the inputs."""
    import torch

    model = make(name)
    batch = 1 if cache == "static" else 2
    tokens = torch.randint(3, SMALL["vocab_size"], (batch, 3))
    inputs: dict[str, Any] = {"input_ids": tokens}
    axes: dict[str, dict[int, str]] = {"input_ids": {1: "sequence"}}
    if cache == "static":
        inputs["cache_position"], axes["cache_position"] = torch.arange(past, past + 3), {0: "sequence"}
    else:
        axes["input_ids"] = {0: "batch", 1: "sequence"}
        total = "total" if past else "sequence"
        inputs["attention_mask"] = torch.ones(batch, past + 3, dtype=torch.int64)
        inputs["position_ids"] = torch.arange(past, past + 3)[None].repeat(batch, 1)
        axes |= {"attention_mask": {0: "batch", 1: total}, "position_ids": {0: "batch", 1: "sequence"}}
    with torch.no_grad():
        probe = model(input_ids=tokens, use_cache=True).past_key_values
    held = [f"{number}.{kind}" for number in range(len(probe.layers)) for kind in ("key", "value")]
    outputs = ["logits", *(f"present.{h}" for h in held)]
    if past:
        for entry, tensor in zip(held, _pairs(probe), strict=True):
            rows = CAPACITY if cache == "static" else past
            inputs[f"past_key_values.{entry}"] = torch.randn(batch, tensor.shape[1], rows, tensor.shape[3])
            axes[f"past_key_values.{entry}"] = {} if cache == "static" else {0: "batch", 2: "past"}
    options: dict[str, Any] = {"input_names": list(inputs), "output_names": outputs}
    module, arguments = _wrapped(model, cache), tuple(inputs.values())
    with torch.no_grad():
        if mode == "trace":
            torch.onnx.export(module, arguments, path, dynamo=False, dynamic_axes=axes, opset_version=17, **options)
        else:
            shapes = [dict.fromkeys(axes[n], torch.export.Dim.DYNAMIC) for n in inputs]
            fixed = len(inputs) - (len(held) if past else 0)
            torch.onnx.export(module, arguments, path, dynamo=True, opset_version=20, external_data=False,
                              dynamic_shapes=(*shapes[:fixed], tuple(shapes[fixed:])), **options)


def merged(without: onnx.ModelProto, past: onnx.ModelProto) -> onnx.ModelProto:
    """One model whose If over `use_cache_branch` runs the one or the other, with the weights of both beside it."""
    weights: dict[str, bytes] = {}
    branches = []
    for model, prefix in ((without, "without/"), (past, "with/")):
        graph = onnx.compose.add_prefix_graph(model.graph, prefix, rename_inputs=False, rename_outputs=True)
        renamed = {}
        for tensor in graph.initializer:
            key = tensor.name
            tensor.name = ""
            content = tensor.SerializeToString()
            same = next((n for n, t in weights.items() if t == content), None)
            if same is None:
                weights[key] = content
            renamed[key] = same or key
        for node in graph.node:
            node.input[:] = [renamed.get(n, n) for n in node.input]
        branches.append(helper.make_graph(graph.node, prefix[:-1], [], graph.output))
    tensors = []
    for name, content in weights.items():
        tensor = onnx.TensorProto.FromString(content)
        tensor.name = name
        tensors.append(tensor)
    choice = helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1])
    node = helper.make_node("If", ["use_cache_branch"], [o.name for o in past.graph.output],
                            then_branch=branches[1], else_branch=branches[0])  # fmt: skip
    graph = helper.make_graph([node], "merged", [*past.graph.input, choice], past.graph.output, tensors)
    return helper.make_model(graph, opset_imports=past.opset_import, ir_version=past.ir_version)


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [form for form in FORMS if not arguments[1:] or form[0] in arguments[1:]]
    export_all((".".join(form), partial(export, *form, folder)) for form in wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
