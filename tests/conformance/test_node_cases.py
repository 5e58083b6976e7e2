"""The ONNX node tests through conversion and runtime: one of each kind by default, all of them in the long run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.model_cases import load_model_cases
from tests.conformance.node_cases import difference, expected_failures, load_cases, run_case

SAMPLE = {
    "adam": "adam_multiple", "add": "add_uint16", "affinegrid": "affine_grid_3d", "attention": "attention_4d_causal_padded_kv_bf16",
    "averagepool": "averagepool_2d_precomputed_strides", "batch_normalization": "batchnorm_example_training_mode",
    "bernoulli": "bernoulli_double", "bitcast": "bitcast_scalar_float32_to_int32", "cast": "cast_INT4_to_FLOAT16",
    "castlike": "castlike_FLOAT_to_FLOAT16", "causal_conv_with_state": "causal_conv_with_state_silu",
    "center_crop_pad": "center_crop_pad_crop_and_pad", "col2im": "col2im_dilations",
    "conv": "conv_with_strides_and_asymmetric_padding", "convtranspose": "convtranspose_output_shape",
    "cumsum": "cumsum_1d_reverse_exclusive", "deformconv": "deform_conv_with_mask_bias",
    "dequantizelinear": "dequantizelinear_int2", "dft": "dft_irfft",
    "dynamicquantizelinear": "dynamicquantizelinear_max_adjusted", "einsum": "einsum_batch_matmul",
    "flexattention": "flexattention_relative_positional",
    "gatherelements": "gather_elements_1", "gemm": "gemm_default_scalar_bias", "gridsample": "gridsample_bicubic",
    "groupnormalization": "group_normalization_example", "gru": "gru_reverse", "hannwindow": "hannwindow_symmetric",
    "identity": "identity_sequence", "if_": "if_seq", "layernormalization": "layer_normalization_3d_axis1_epsilon",
    "linear_attention": "linear_attention_gated_delta_gqa", "loop": "loop16_seq_none", "lstm": "lstm_reverse",
    "matmul": "matmul_3d", "maxpool": "maxpool_2d_same_lower", "melweightmatrix": "melweightmatrix",
    "negativeloglikelihoodloss": "nllloss_NCd1d2_reduction_sum",
    "nonmaxsuppression": "nonmaxsuppression_single_box", "nonzero": "nonzero_example",
    "optionalgetelement": "optional_get_element_sequence",
    "optionalhaselement": "optional_has_element_empty_optional_input", "pad": "edge_pad",
    "qlinearconv": "qlinearconv", "qlinearmatmul": "qlinearmatmul_3D_int8_float16",
    "quantizelinear": "quantizelinear_float4e2m1", "rangeop": "range_float_type_positive_delta",
    "regex_full_match": "regex_full_match_email_domain", "resize": "resize_upsample_scales_cubic",
    "rnn": "simple_rnn_defaults", "roialign": "roialign_aligned_true", "scan": "scan9_sum",
    "scatterelements": "scatter_elements_with_reduction_max", "scatternd": "scatternd_max",
    "sequence_map": "sequence_map_add_2_sequences", "sequenceinsert": "sequence_insert_at_front",
    "slice": "slice_neg", "softmax": "softmax_default_axis",
    "softmax_cross_entropy_loss": "sce_none_weights_log_prob", "spacetodepth": "spacetodepth_crd_mode_example",
    "splittosequence": "split_to_sequence_2", "stft": "stft_with_window", "string_concat": "string_concat",
    "stringnormalizer": "strnormalizer_export_monday_empty_output", "swiglu": "swiglu_alpha",
    "tfidfvectorizer": "tfidfvectorizer_tf_only_bigrams_skip0", "topk": "top_k_same_values_2d",
    "unique": "unique_sorted_with_axis", "where": "where_long_example",
}  # fmt: skip
"""Module of onnx.backend.test.case.node and the case taken from it."""

CHUNKS = 16


@pytest.mark.parametrize("module", SAMPLE)
def test_one_case_of_each_kind(module: str, tmp_path: Path) -> None:
    case = load_cases((module,))[f"test_{SAMPLE[module]}"]
    outcome = run_case(case, tmp_path)
    assert outcome.status == "passed", outcome.reason


def test_losses_are_kernels(tmp_path: Path) -> None:
    name = "test_sce_mean_weight_ii_log_prob"
    outcome = run_case(load_cases(("softmax_cross_entropy_loss",))[name], tmp_path)
    assert outcome.status == "passed" and outcome.native, outcome.reason


def test_a_wrong_result_is_seen() -> None:
    case = load_cases(("matmul",))["test_matmul_3d"]
    (expected,) = case.data_sets[0][1]
    assert difference(case, [expected], [expected]) == ""
    assert difference(case, [expected], [expected + 0.01]) != ""
    assert difference(case, [expected], [expected[None]]) != ""
    assert difference(case, [expected], [expected.astype("f8")]) != ""
    assert difference(case, [expected], []) != ""


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_all_cases(chunk: int, tmp_path: Path) -> None:
    cases, known = load_cases(), expected_failures()
    if chunk == 0:
        assert known.keys() <= cases.keys() | load_model_cases().keys(), "names without a case are listed"
    wrong = []
    for name in sorted(cases)[chunk::CHUNKS]:
        outcome = run_case(cases[name], tmp_path)
        if outcome.status == "passed" and name in known:
            wrong.append(f"{name} passes, but is listed as failing")
        if outcome.status != "passed" and name not in known:
            wrong.append(f"{name}: {outcome.reason}")
    assert not wrong, "\n".join(wrong)


def test_a_case_that_stands_in_files(tmp_path: Path) -> None:
    outcome = run_case(load_model_cases()["simple/test_sequence_model3"](), tmp_path)
    assert outcome.status == "passed", outcome.reason


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CHUNKS // 4))
def test_all_cases_that_stand_in_files(chunk: int, tmp_path: Path) -> None:
    cases, known = load_model_cases(), expected_failures()
    outcomes = [run_case(cases[name](), tmp_path) for name in sorted(cases)[chunk :: CHUNKS // 4]]
    wrong = [f"{o.name}: {o.status} {o.reason}" for o in outcomes if (o.status == "passed") == (o.name in known)]
    assert not wrong, "\n".join(wrong)
