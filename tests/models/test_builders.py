"""Built models: valid ONNX, equal forms equal under onnxruntime, natural scale, free dims."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from models import registry
from models.builders import bert, gpt2, llama, mobilenetv2, moe, resnet50

BERT = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 50, "positions": 40}
GPT2 = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 50, "positions": 40}
LLAMA = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "inner": 96, "vocabulary": 50, "positions": 40}


def run(model: onnx.ModelProto, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, arrays)
    return dict(zip([o.name for o in session.get_outputs()], outputs, strict=True))


def relative(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize(
    "build",
    [
        mobilenetv2.build,
        resnet50.build,
        lambda seed: bert.build(seed, **BERT),
        lambda seed: gpt2.build(False, seed, **GPT2),
        lambda seed: gpt2.build(True, seed, **GPT2),
        lambda seed: llama.build(seed, **LLAMA),
        lambda seed: moe.build("sparse", seed, hidden=32, inner=48),
    ],
    ids=["mobilenetv2", "resnet50", "bert", "gpt2_prefill", "gpt2_decode", "llama", "moe_sparse"],
)
def test_valid_and_decided_by_the_seed(build):
    model = build(7)
    onnx.checker.check_model(model, full_check=True)
    first = model.SerializeToString(deterministic=True)
    assert build(7).SerializeToString(deterministic=True) == first
    assert build(8).SerializeToString(deterministic=True) != first


def test_folded_resnet_is_the_one_with_batch_norm():
    arrays = registry.inputs("resnet50")
    folded, apart = resnet50.build(), resnet50.build(folded=False)
    assert sum(node.op_type == "BatchNormalization" for node in apart.graph.node) == 53
    assert not any(node.op_type == "BatchNormalization" for node in folded.graph.node)
    expected = run(apart, arrays)["logits"]
    assert relative(run(folded, arrays)["logits"], expected) < 1e-5
    assert 0.3 < expected.std() < 3


def test_mobilenet_keeps_its_scale():
    assert 0.3 < run(mobilenetv2.build(), registry.inputs("mobilenetv2"))["logits"].std() < 3


@pytest.mark.parametrize("batch,sequence", [(1, 1), (1, 17), (2, 40)])
def test_bert_dims_are_free_and_the_mask_counts(batch, sequence):
    model = bert.build(**BERT)
    rng = np.random.default_rng(sequence)
    ids = rng.integers(0, 50, (batch, sequence))
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    hidden = run(model, arrays)["last_hidden_state"]
    assert hidden.shape == (batch, sequence, 64)
    assert 0.5 < hidden.std() < 2
    if sequence > 1:
        # A masked token must not reach the others.
        masked = arrays | {
            "attention_mask": (np.arange(sequence) < sequence - 1).astype(np.int64)[None].repeat(batch, 0)
        }
        changed = masked | {"input_ids": np.concatenate([ids[:, :-1], (ids[:, -1:] + 1) % 50], 1)}
        np.testing.assert_allclose(
            run(model, changed)["last_hidden_state"][:, :-1], run(model, masked)["last_hidden_state"][:, :-1], atol=1e-6
        )
        assert relative(run(model, masked)["last_hidden_state"][:, :-1], hidden[:, :-1]) > 1e-3


def test_gpt2_decode_continues_prefill():
    ids = np.random.default_rng(0).integers(0, 50, (1, 12))
    prefill, decode = gpt2.build(False, **GPT2), gpt2.build(True, **GPT2)
    expected = run(prefill, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    start = run(prefill, {"input_ids": ids[:, :11], "attention_mask": np.ones((1, 11), np.int64)})
    past = {key.replace("present", "past"): value for key, value in start.items() if key != "logits"}
    step = {
        "input_ids": ids[:, 11:],
        "attention_mask": np.ones((1, 12), np.int64),
        "position_ids": np.array([[11]], np.int64),
    }
    actual = run(decode, step | past)
    assert actual.keys() == expected.keys()
    for key in expected:
        np.testing.assert_allclose(actual[key], expected[key], rtol=1e-4, atol=1e-5)


def test_llama_is_causal():
    model = llama.build(**LLAMA)
    ids = np.random.default_rng(0).integers(0, 50, (1, 9))
    positions = np.arange(9)[None]
    before = run(model, {"input_ids": ids, "position_ids": positions})["logits"]
    ids[0, -1] = (ids[0, -1] + 1) % 50
    after = run(model, {"input_ids": ids, "position_ids": positions})["logits"]
    np.testing.assert_allclose(after[:, :-1], before[:, :-1], atol=1e-6)
    assert relative(after[:, -1], before[:, -1]) > 0.1


@pytest.mark.parametrize("tokens", [1, 3, 64])
def test_all_moe_forms_compute_the_same(tokens):
    x = {"x": np.random.default_rng(tokens).standard_normal((tokens, 32), np.float32)}
    dense, *others = (run(moe.build(form, hidden=32, inner=48), x)["y"] for form in moe.FORMS)
    assert all(relative(other, dense) < 1e-5 for other in others)
    assert 0.2 < dense.std() < 3
