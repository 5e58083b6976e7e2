"""ATC's own spelling: where it is recognised, flags that only ATC has, names of chips, help."""

from __future__ import annotations

import json
import re

import pytest
import small_models

from atc.flag_fates import REFUSED, WITHOUT_EFFECT
from atc.options import Options
from atc.spelling import FLAGS
from atc.usage import UsageError
from codegen.targets import chip_names


@pytest.fixture
def mlp(tmp_path):
    return small_models.save("mlp", tmp_path)


def words(mlp, *more):
    return [f"--model={mlp}", "--framework=5", f"--output={mlp.with_suffix('')}", "--soc_version=Ascend910B2",
            "--log=error", *more]  # fmt: skip


def refused(atc, *given):
    code, out, _ = atc(*given, "--json")
    assert code == 2, out
    return json.loads(out)["error"]


def first_value(flag):
    known = WITHOUT_EFFECT.get(flag)
    return known.values[0] if known and known.values else "1"


@pytest.mark.parametrize("flag", REFUSED)
def test_refused_flags(flag):
    with pytest.raises(UsageError) as caught:
        Options.of({flag: "???"})
    error = caught.value
    assert (error.code, error.where) == (REFUSED[flag].code, {"flag": f"--{flag}"})
    assert error.remedy and "???" in error.message and error.exit_code == 2
    for value in REFUSED[flag].passes:
        assert Options.of({flag: value}) == Options()


@pytest.mark.parametrize("flag", WITHOUT_EFFECT)
def test_flags_without_effect(flag):
    accepted = Options.of({flag: first_value(flag)})
    (note,) = accepted.notes
    assert note.startswith(f"--{flag} has no effect: ")
    if WITHOUT_EFFECT[flag].values:
        with pytest.raises(UsageError) as caught:
            Options.of({flag: "???"})
        assert caught.value.code == WITHOUT_EFFECT[flag].code and WITHOUT_EFFECT[flag].values[0] in caught.value.remedy


def test_flags_without_effect_in_every_spelling(atc, mlp):
    one = ["--buffer_optimize=off_optimize", "-jit-compile", "0", "--output_type=FP32"]
    for given in (words(mlp, *one), [*one, *words(mlp)], ["convert", mlp, "--buffer-optimize=off_optimize", "--jit_compile=0"]):
        code, out, err = atc(*given, "--json")
        assert code == 0, out + err
        notes = json.loads(out)["notes"]
        assert [n.split()[0] for n in notes] == ["--buffer_optimize", "--jit_compile"]
    code, out, _ = atc("convert", mlp, "--jit_compile=0")
    assert code == 0 and "note       --jit_compile has no effect: kernels are compiled at conversion" in out
    code, out, _ = atc("convert", mlp, "--is_input_adjust_hw_layout=true", "--jit_compile=7", "--json")
    assert [e["where"]["flag"] for e in json.loads(out)["error"]["errors"]] == ["--jit_compile", "--is_input_adjust_hw_layout"]


def test_every_flag_of_atc_has_one_fate():
    kinds = [set(FLAGS), set(WITHOUT_EFFECT), set(REFUSED)]
    assert len(set().union(*kinds)) == sum(map(len, kinds))
    assert ATC_FLAGS <= set().union(*kinds)


ATC_FLAGS = set(
    """mode om json framework model weight raw_ge_options raw_ge_options_ignore_unsupported build_config target cal_conf
    device_id auto_tune_mode input_format input_shape input_shape_range input_hint_shape dynamic_batch_size
    dynamic_image_size dynamic_dims singleop insert_op_conf input_fp16_nodes is_input_adjust_hw_layout
    enable_small_channel output output_type out_nodes is_output_adjust_hw_layout check_report external_weight
    host_env_os host_env_cpu op_name_map save_original_model soc_version virtual_type core_type aicore_num
    precision_mode precision_mode_v2 modify_mixlist keep_dtype customize_dtypes op_precision_mode op_select_implmode
    optypelist_for_implmode allow_hf32 deterministic deterministic_level is_weight_clip fusion_switch_file
    optimization_switch oo_level oo_constant_folding oo_dead_code_elimination enable_scope_fusion_passes
    disable_reuse_memory buffer_optimize enable_single_stream multi_stream_parallel_mode topo_sorting_mode
    ac_parallel_enable tiling_schedule_optimize h2d_overlapped_with_compute static_model_ops_lower_limit quant_dumpable
    sparsity enable_compress_weight compress_weight_conf enable_attr_compression compression_optimize_conf mdl_bank_path
    op_bank_path jit_compile shape_generalized_build_mode cluster_config hccl_sub_comm_config op_compiler_cache_mode
    op_compiler_cache_dir op_debug_level op_debug_config debug_dir log dump_mode status_check display_model_info
    atomic_clean_policy export_compile_stat""".split()
)
"""The flags that ATC's pages list."""


def test_the_spelling_is_recognised_wherever_the_flag_stands(atc, mlp):
    code, out, err = atc("--json", *words(mlp))
    assert code == 0, out + err
    assert json.loads(out)["package"] == str(mlp.with_suffix(".om"))
    assert "E10054" not in refused(atc, "--frob=1", *words(mlp))["message"]
    code, out, _ = atc("--version")
    assert code == 0 and out.startswith("openatc ")


@pytest.mark.parametrize("order", [0, 1])
def test_help_in_atcs_spelling(atc, order):
    given = ["--model=m.onnx", "--help"]
    code, out, _ = atc(*(given[::-1] if order else given))
    assert code == 0 and "--precision_mode_v2" in out and "--output" in out


def test_help_shows_every_spelling_of_a_flag(atc):
    code, out, _ = atc("convert", "--help")
    assert code == 0
    for flag in ("--precision_mode", "--precision-mode", "--precision_mode_v2", "--precision-mode-v2", "--soc-version"):
        assert re.search(rf"{flag}[ ,\n]", out), flag


@pytest.mark.parametrize("name", ["Ascend910B2", "ascend910b2", "ASCEND910B2", "910B2"])
def test_chips_in_any_case(atc, mlp, name):
    code, out, err = atc("convert", mlp, "--soc_version", name, "--json")
    assert code == 0, out + err
    assert json.loads(out)["soc_version"] == "Ascend910B2"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("ascend310p", ["Ascend310P1", "Ascend310P3", "Ascend310P5", "Ascend310P7"]),
        ("Ascend910_936", ["Ascend910_9362", "Ascend910_9363"]),
        ("Ascend910B9", [n for n in chip_names() if n.startswith("Ascend910B")]),
        ("x86-64-v3", None),
        ("", None),
    ],
)
def test_other_names_list_the_chips_and_only_chips(atc, mlp, name, known):
    error = refused(atc, "convert", mlp, f"--soc_version={name}")
    assert error["where"]["flag"] == "--soc_version"
    listed = re.findall(r"Ascend[\w-]+|x86\S+", error["remedy"].partition("use one of")[2])
    assert listed == (known or list(chip_names()))
    assert ("did you mean Ascend910B" in error["remedy"]) == (name == "Ascend910B9")


def test_names_that_stand_for_others_say_so():
    for given, chip, said in [
        ("Ascend310", "Ascend310", "Ascend310 is the chip of two cores"),
        ("910b", "Ascend910B", "Ascend910B is the older chip"),
        ("ascend710", "Ascend310P3", "Ascend710 is taken as Ascend310P3: the name of the 310P family"),
        ("Ascend950DT_95a1", "Ascend950DT_9591", "Ascend950DT_95A1 is taken as Ascend950DT_9591"),
    ]:  # fmt: skip
        options = Options.of({"soc_version": given})
        assert options.soc_version == (chip,) and options.notes[0].startswith(said)
    assert not Options.of({"soc_version": "Ascend310P3"}).notes
    with pytest.raises(UsageError) as caught:
        Options.of({"soc_version": "Ascend035A"})
    assert caught.value.code == "E10055"


@pytest.mark.parametrize("value", ["abc", "0", "-1", "1.5"])
def test_a_number_of_threads_that_is_none(monkeypatch, value):
    from acl._process import threads
    from tensor_types.errors import EnvironmentProblem

    monkeypatch.setenv("OPENATC_THREADS", value)
    with pytest.raises(EnvironmentProblem, match="OPENATC_THREADS"):
        threads()
    monkeypatch.setenv("OPENATC_THREADS", "500")
    assert threads() == 64


def raw_file(tmp_path, whole, **flags):
    path = tmp_path / "raw.json"
    path.write_text(whole if isinstance(whole, str) else json.dumps(whole))
    return Options.of({"raw_ge_options": str(path), **flags})


def test_options_by_the_names_of_the_graph_engine(tmp_path):
    whole = {
        "compile options": {
            "global": {"ge.exec.precision_mode": "force_fp32", "ge.bufferOptimize": "off_optimize"},
            "session": {"ge.exec.precision_mode": "force_fp16", "ge.outputDatatype": "FP16"},
            "graph": {"ge.oo.level": "O1", "ge.socVersion": "Ascend310P3"},
        },
        "execute options": {"whatever": 1},
    }
    options = raw_file(tmp_path, whole, soc_version="Ascend910B2")
    assert (options.precision_mode, options.output_type) == ("force_fp16", (("", "f16"),))
    assert options.soc_version == ("Ascend910B2",) and options.fusion_switch_file
    assert options.notes[0].startswith("--raw_ge_options gives --precision_mode=force_fp16, --buffer_optimize")
    assert "--buffer_optimize has no effect" in options.notes[1]
    given = raw_file(tmp_path, whole, soc_version="310P3", precision_mode="origin")
    assert given.precision_mode == "must_keep_origin_dtype"


@pytest.mark.parametrize(
    ("whole", "code", "said"),
    [
        ("{", "E10032", "is not JSON"),
        ("[]", "E10032", "has not the form"),
        ({"compile_options": {}}, "E10032", "did you mean compile options?"),
        ({"compile options": {"grph": {}}}, "E10032", "did you mean graph?"),
        ({"compile options": {"graph": {"ge.jit_compile": 1}}}, "E10032", "'ge.jit_compile' is 1, no text"),
        ({"compile options": {"graph": {"ge.jit_compile": "3"}}}, "E10001", "--jit_compile=3 is not available"),
        ({"compile options": {"graph": {"ge.jitCompil": "1"}}}, "E10055", "did you mean jit_compile?"),
        ({"compile options": {"graph": {"ge.socVersion": "310"}}}, "E10055", "cannot stand for --soc_version"),
    ],
)
def test_a_wrong_file_of_options(tmp_path, whole, code, said):
    with pytest.raises(UsageError) as caught:
        raw_file(tmp_path, whole)
    assert caught.value.code == code and said in f"{caught.value.message} {caught.value.remedy}"


def test_options_of_no_flag_are_left_out_on_wish(tmp_path):
    whole = {"compile options": {"graph": {"ge.performance_mode": "high", "ge.jit_compile": "0"}}}
    options = raw_file(tmp_path, whole, raw_ge_options_ignore_unsupported="true")
    assert "ge.performance_mode stand for no flag" in options.notes[1]
    with pytest.raises(UsageError, match="ge.performance_mode is the option of no flag"):
        raw_file(tmp_path, whole)
    with pytest.raises(UsageError, match="cannot be read"):
        Options.of({"raw_ge_options": str(tmp_path / "none.json")})


def test_every_wrong_dim_of_a_text_is_told(atc, mlp):
    error = refused(atc, *words(mlp, "--input_shape= x :1,0;y:-2,3"))
    assert [e["code"] for e in error["errors"]] == ["E10011", "E10011"]
    assert "'x :1,0' holds 0" in error["errors"][0]["message"] and "'y:-2,3'" in error["errors"][1]["message"]


def test_a_name_of_no_pass_is_told_with_the_nearest():
    (note,) = Options.of({"optimization_switch": "SoftmaxFusionPas:off"}).notes
    assert "SoftmaxFusionPas (did you mean SoftmaxFusionPass?)" in note
