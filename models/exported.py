"""Architectures of transformers and diffusers, exported with seeded weights by both exporters of PyTorch.

`python -m models.exported FOLDER [NAME ...]` writes NAME.MODE.onnx, MODE being `trace` (the exporter of TorchScript) or
`dynamo`, and beside each NAME.MODE.npz with inputs at the size of the export. Needs torch, onnxscript, transformers and
diffusers, which nothing else here does; what a release of these cannot build or export is reported and left out.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Axes = Mapping[str, Mapping[int, str]]
MODES = ("trace", "dynamo")


@dataclass(frozen=True)
class Architecture:
    """`make` gives a module and its inputs by name; `axes` are the open dims of inputs."""

    make: Callable[[Any], tuple[Any, dict[str, Any]]]
    axes: Axes = field(default_factory=dict)


def _ids(torch: Any, batch: int, length: int, vocabulary: int = 1000) -> Any:
    return torch.randint(3, vocabulary, (batch, length), generator=torch.Generator().manual_seed(1))


def _image(torch: Any, *shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


TEXT = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256,
        "vocab_size": 1000}  # fmt: skip
SENTENCE = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "sequence"}}
PICTURE = {"pixel_values": {0: "batch"}}


def _encoder(kind: str, mask: bool = True, **config: Any) -> Architecture:
    def make(torch: Any) -> tuple[Any, dict[str, Any]]:
        inputs = {"input_ids": _ids(torch, 2, 24)}
        if mask:
            inputs["attention_mask"] = torch.ones(2, 24, dtype=torch.int64)
            inputs["attention_mask"][1, 17:] = 0
        return _transformer(kind, **{**TEXT, **config}), inputs

    return Architecture(make, {k: v for k, v in SENTENCE.items() if mask or k == "input_ids"})


def _decoder(kind: str, **config: Any) -> Architecture:
    def make(torch: Any) -> tuple[Any, dict[str, Any]]:
        return _transformer(kind, **{**TEXT, "use_cache": False, **config}), {"input_ids": _ids(torch, 2, 24)}

    return Architecture(make, {"input_ids": {0: "batch", 1: "sequence"}})


def _vision(kind: str, size: int = 64, **config: Any) -> Architecture:
    def make(torch: Any) -> tuple[Any, dict[str, Any]]:
        return _transformer(kind, **config), {"pixel_values": _image(torch, 2, 3, size, size)}

    return Architecture(make, PICTURE)


def _transformer(kind: str, **config: Any) -> Any:
    import transformers

    stem = kind.partition("For")[0].removesuffix("Model").removesuffix("LMHead")
    made = getattr(transformers, f"{stem}Config")(**config)
    return getattr(transformers, kind)(made)


def _encoder_decoder(kind: str, **config: Any) -> Architecture:
    def make(torch: Any) -> tuple[Any, dict[str, Any]]:
        inputs = {"input_ids": _ids(torch, 2, 24), "decoder_input_ids": _ids(torch, 2, 9)}
        return _transformer(kind, **{"vocab_size": 1000, "use_cache": False, **config}), inputs

    return Architecture(make, {"input_ids": {0: "batch", 1: "source"}, "decoder_input_ids": {0: "batch", 1: "target"}})


def _audio(kind: str, samples: int = 8000, **config: Any) -> Architecture:
    def make(torch: Any) -> tuple[Any, dict[str, Any]]:
        return _transformer(kind, **config), {"input_values": _image(torch, 2, samples)}

    return Architecture(make, {"input_values": {0: "batch", 1: "samples"}})


def _whisper(torch: Any) -> tuple[Any, dict[str, Any]]:
    model = _transformer(
        "WhisperForConditionalGeneration", vocab_size=1000, d_model=128, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256,
        max_source_positions=100, max_target_positions=64, use_cache=False, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, begin_suppress_tokens=None,
    )  # fmt: skip
    return model, {"input_features": _image(torch, 2, 80, 200), "decoder_input_ids": _ids(torch, 2, 9)}


def _clip(torch: Any) -> tuple[Any, dict[str, Any]]:
    part = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = _transformer(
        "CLIPModel", text_config={**part, "vocab_size": 1000, "eos_token_id": 999, "bos_token_id": 0},
        vision_config={**part, "image_size": 64, "patch_size": 16}, projection_dim=32,
    )  # fmt: skip
    return model, {"input_ids": _ids(torch, 2, 12), "pixel_values": _image(torch, 2, 3, 64, 64)}


def _detector(torch: Any) -> tuple[Any, dict[str, Any]]:
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 32, 64], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage4"],
    )  # fmt: skip
    model = _transformer(
        "DetrForObjectDetection", backbone_config=backbone, use_timm_backbone=False, backbone=None, num_queries=10,
        d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, num_labels=5, use_pretrained_backbone=False,
    )  # fmt: skip
    return model, {"pixel_values": _image(torch, 2, 3, 96, 96), "pixel_mask": torch.ones(2, 96, 96, dtype=torch.int64)}


def _unet(torch: Any) -> tuple[Any, dict[str, Any]]:
    import diffusers

    model = diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32, attention_head_dim=8, norm_num_groups=8,
    )  # fmt: skip
    inputs = {"sample": _image(torch, 2, 4, 16, 16), "timestep": torch.tensor([7, 7])}
    return model, {**inputs, "encoder_hidden_states": _image(torch, 2, 12, 32)}


def _autoencoder(torch: Any) -> tuple[Any, dict[str, Any]]:
    import diffusers

    model = diffusers.AutoencoderKL(
        block_out_channels=(16, 32), norm_num_groups=8, latent_channels=4, layers_per_block=1,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, latent: Any) -> Any:
            return self.inner.decode(latent, return_dict=False)[0]

    return Decoder(), {"latent": _image(torch, 2, 4, 16, 16)}


def _dit(torch: Any) -> tuple[Any, dict[str, Any]]:
    import diffusers

    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=4, num_layers=2, sample_size=16,
        patch_size=2, num_embeds_ada_norm=10, norm_num_groups=8,
    )  # fmt: skip
    inputs = {"hidden_states": _image(torch, 2, 4, 16, 16), "timestep": torch.tensor([3, 5])}
    return model, {**inputs, "class_labels": torch.tensor([1, 2])}


def _vits(torch: Any) -> tuple[Any, dict[str, Any]]:
    model = _transformer(
        "VitsModel", vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, ffn_dim=64,
        flow_size=32, spectrogram_bins=33, upsample_initial_channel=64, upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8], resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]],
        duration_predictor_num_flows=2,
        prior_encoder_num_flows=2, noise_scale=0.0, noise_scale_duration=0.0, wavenet_dilation_rate=1,
        depth_separable_num_layers=2, posterior_encoder_num_wavenet_layers=2, prior_encoder_num_wavenet_layers=2,
        use_stochastic_duration_prediction=False,
    )  # fmt: skip
    return model, {"input_ids": _ids(torch, 1, 16, 40)}


class _Spectrum:
    """A front end of audio: windowed frames, power spectrum, logarithm."""

    @staticmethod
    def make(torch: Any) -> tuple[Any, dict[str, Any]]:
        class Front(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("window", torch.hann_window(256))
                self.register_buffer("filters", torch.rand(129, 40, generator=torch.Generator().manual_seed(2)))

            def forward(self, wave: Any) -> Any:
                found = torch.stft(wave, 256, 128, 256, self.window, return_complex=False, onesided=True, center=True)
                return torch.log((found.pow(2).sum(-1).transpose(1, 2) @ self.filters).clamp_min(1e-6))

        return Front(), {"wave": _image(torch, 2, 4000)}


ARCHITECTURES: dict[str, Architecture] = {
    "bert": _encoder("BertModel"),
    "roberta": _encoder("RobertaModel", pad_token_id=1, max_position_embeddings=64),
    "distilbert": _encoder("DistilBertModel", dim=128, n_layers=2, n_heads=4, hidden_dim=256),
    "albert": _encoder("AlbertModel", embedding_size=64),
    "electra": _encoder("ElectraModel", embedding_size=64),
    "deberta_v2": _encoder("DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16),
    "mpnet": _encoder("MPNetModel"),
    "modernbert": _encoder("ModernBertModel", pad_token_id=0, global_attn_every_n_layers=2, local_attention=16),
    "fnet": _encoder("FNetModel", mask=False),
    "gpt2": _decoder("GPT2LMHeadModel", n_embd=128, n_layer=2, n_head=4),
    "gpt_neox": _decoder("GPTNeoXForCausalLM"),
    "opt": _decoder("OPTForCausalLM", ffn_dim=256, word_embed_proj_dim=128),
    "bloom": _decoder("BloomForCausalLM", n_layer=2, n_head=4),
    "llama": _decoder("LlamaForCausalLM", num_key_value_heads=2),
    "mistral": _decoder("MistralForCausalLM", num_key_value_heads=2, sliding_window=16),
    "qwen2": _decoder("Qwen2ForCausalLM", num_key_value_heads=2),
    "qwen3": _decoder("Qwen3ForCausalLM", num_key_value_heads=2, head_dim=32),
    "gemma2": _decoder("Gemma2ForCausalLM", num_key_value_heads=2, head_dim=32, sliding_window=16),
    "phi": _decoder("PhiForCausalLM"),
    "mixtral": _decoder("MixtralForCausalLM", num_key_value_heads=2, num_local_experts=4),
    "qwen3_moe": _decoder("Qwen3MoeForCausalLM", num_key_value_heads=2, num_experts=4, num_experts_per_tok=2,
                          moe_intermediate_size=128, head_dim=32),
    "mamba": _decoder("MambaForCausalLM", state_size=8),
    "t5": _encoder_decoder("T5ForConditionalGeneration", d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4),
    "bart": _encoder_decoder("BartModel", d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                             decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256),
    "whisper": Architecture(_whisper, {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "target"}}),
    "clip": Architecture(_clip),
    "vit": _vision("ViTModel", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                   image_size=64),
    "dinov2": _vision("Dinov2Model", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=56,
                      patch_size=8),
    "beit": _vision("BeitModel", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                    image_size=64, use_relative_position_bias=True),
    "swin": _vision("SwinModel", image_size=64, patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4],
                    window_size=4),
    "swinv2": _vision("Swinv2Model", image_size=64, patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4],
                      window_size=4),
    "resnet18": _vision("ResNetForImageClassification", embedding_size=64, hidden_sizes=[64, 128, 256, 512],
                        depths=[2, 2, 2, 2], layer_type="basic"),
    "convnext": _vision("ConvNextModel", hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 2, 1]),
    "convnextv2": _vision("ConvNextV2Model", hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 2, 1]),
    "efficientnet_b0": _vision("EfficientNetModel", width_coefficient=1.0, depth_coefficient=1.0),
    "mobilenet_v1": _vision("MobileNetV1Model"),
    "mobilenet_v2_deeplab": _vision("MobileNetV2ForSemanticSegmentation"),
    "mobilevit": _vision("MobileViTModel", hidden_sizes=[48, 64, 80], neck_hidden_sizes=[16, 16, 24, 32, 40, 48, 160]),
    "regnet": _vision("RegNetModel", embedding_size=16, hidden_sizes=[16, 32, 64, 96], depths=[1, 1, 2, 1],
                      groups_width=8),
    "poolformer": _vision("PoolFormerModel", hidden_sizes=[16, 32, 64, 96], depths=[1, 1, 2, 1]),
    "pvt": _vision("PvtModel", image_size=64, hidden_sizes=[16, 32, 64, 96]),
    "segformer": _vision("SegformerForSemanticSegmentation", hidden_sizes=[16, 32, 64, 96], depths=[1, 1, 1, 1],
                         decoder_hidden_size=64),
    "detr": Architecture(_detector),
    "yolos": _vision("YolosForObjectDetection", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                     intermediate_size=128, image_size=[64, 64], num_detection_tokens=8),
    "wav2vec2": _audio("Wav2Vec2Model", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                       intermediate_size=128, conv_dim=[32] * 7, num_conv_pos_embeddings=16,
                       num_conv_pos_embedding_groups=4),
    "hubert": _audio("HubertModel", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                     conv_dim=[32] * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4),
    "vits": Architecture(_vits, {"input_ids": {1: "sequence"}}),
    "diffusion_unet": Architecture(_unet, {"sample": {0: "batch"}, "timestep": {0: "batch"},
                                           "encoder_hidden_states": {0: "batch", 1: "words"}}),
    "autoencoder": Architecture(_autoencoder, {"latent": {0: "batch", 2: "height", 3: "width"}}),
    "dit": Architecture(_dit),
    "spectrum": Architecture(_Spectrum.make, {"wave": {0: "batch", 1: "samples"}}),
}  # fmt: skip


def export(name: str, mode: str, folder: Path) -> Path:
    """Writes the model and its inputs; what torch or the library raises goes on to the caller."""
    import torch

    torch.manual_seed(0)
    architecture = ARCHITECTURES[name]
    model, inputs = architecture.make(torch)
    model = model.eval().float()
    with torch.no_grad():  # activations keep their scale through depth: libraries draw far smaller weights
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, parameter[0].numel() ** -0.5)
    names, arguments = list(inputs), tuple(inputs.values())

    class Plain(torch.nn.Module):
        """Takes the inputs in order and gives the tensors of the output in order."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any) -> Any:
            out = self.model(**dict(zip(names, given, strict=True)))
            values = out.values() if isinstance(out, dict) else out if isinstance(out, (tuple, list)) else (out,)
            return tuple(v for v in values if isinstance(v, torch.Tensor))

    if len(names) == 1 and not hasattr(model, "config"):
        plain = model
    else:
        plain = Plain().eval()
    path = folder / f"{name}.{mode}.onnx"
    options: dict[str, Any] = {"input_names": names, "opset_version": 17 if mode == "trace" else 20}
    with torch.no_grad():
        if mode == "trace":
            torch.onnx.export(plain, arguments, path, dynamo=False, dynamic_axes=architecture.axes, **options)
        else:
            shapes = tuple(dict.fromkeys(architecture.axes.get(n, {}), torch.export.Dim.DYNAMIC) for n in names)
            options |= {"dynamic_shapes": (shapes,) if isinstance(plain, Plain) else shapes, "external_data": False}
            torch.onnx.export(plain, arguments, path, dynamo=True, **options)
    np.savez(path.with_suffix(".npz"), **{n: np.asarray(v) for n, v in inputs.items()})
    return path


def export_all(exports: Iterable[tuple[str, Callable[[], Path]]]) -> None:
    """Prints the path of each export by its name, or why there is none: what torch cannot export is no end."""
    for name, make in exports:
        try:
            print(make(), flush=True)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"{name}: {type(error).__name__}: {str(error)[:300]!r} ({where.name})", flush=True)


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    names = arguments[1:] or ARCHITECTURES
    export_all((f"{name}.{mode}", partial(export, name, mode, folder)) for name in names for mode in MODES)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
