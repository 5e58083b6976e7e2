"""ATC's own spelling: where it is recognised, flags that only ATC has, names of chips, help."""

from __future__ import annotations

import json
import re

import pytest
import small_models


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


@pytest.mark.parametrize("flag", ["insert_op_conf", "dynamic_batch_size", "dynamic_dims", "dynamic_image_size",
    "out_nodes", "output_type", "input_fp16_nodes", "weight", "mode", "op_select_implmode", "check_report",
    "fusion_switch_file", "singleop", "keep-dtype"])  # fmt: skip
def test_flags_that_only_atc_has(atc, mlp, flag):
    for given in ([f"--{flag}=1", *words(mlp)], words(mlp, f"-{flag}", "1"), ["convert", mlp, f"--{flag}", "1"]):
        error = refused(atc, *given)
        assert "is a flag of ATC that openatc does not have" in error["message"] and error["remedy"]
        assert flag in error["where"]["flag"]
    if flag.startswith("dynamic"):
        assert "open dims stay open" in error["remedy"]


def test_no_flag_is_both_known_and_foreign():
    from atc.foreign_flags import FOREIGN_FLAGS
    from atc.spelling import FLAGS

    assert not FLAGS.keys() & FOREIGN_FLAGS.keys()
    assert all(re.fullmatch("[a-z0-9_]+", name) and remedy for name, remedy in FOREIGN_FLAGS.items())


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
        ("Ascend910B", ["Ascend910B2"]),
        ("ascend310p", ["Ascend310P3"]),
        ("Ascend910B9", ["Ascend910B2", "Ascend310P3"]),
        ("x86-64-v3", ["Ascend910B2", "Ascend310P3"]),
        ("", ["Ascend910B2", "Ascend310P3"]),
    ],
)
def test_other_names_list_the_chips_and_only_chips(atc, mlp, name, known):
    error = refused(atc, "convert", mlp, f"--soc_version={name}")
    assert error["where"]["flag"] == "--soc_version"
    assert re.findall(r"Ascend\w+|x86\S+", error["remedy"]) == known


@pytest.mark.parametrize("value", ["abc", "0", "-1", "1.5"])
def test_a_number_of_threads_that_is_none(monkeypatch, value):
    from acl._process import threads
    from tensor_types.errors import EnvironmentProblem

    monkeypatch.setenv("OPENATC_THREADS", value)
    with pytest.raises(EnvironmentProblem, match="OPENATC_THREADS"):
        threads()
    monkeypatch.setenv("OPENATC_THREADS", "500")
    assert threads() == 64
