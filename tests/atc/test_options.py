"""Options: one field gives every spelling; all that is wrong is told at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import small_models

import atc as product
from atc.options import Options, declared
from atc.usage import SeveralErrors, UsageError
from tensor_types.errors import OpenAtcError


def test_texts_and_values_make_the_same_options():
    of_text = Options.of({"input_shape": "a:b:1,-1;s:", "soc_version": "910b2,ASCEND310P3,Ascend910B2", "sign": "k",
                          "precision_mode_v2": "mixed_float16", "custom_op": "m,n.py"})  # fmt: skip
    of_values = Options.of({"input_shape": {"a:b": (1, -1), "s": ()}, "soc_version": ["Ascend910B2", "Ascend310P3"],
                            "sign": Path("k"), "precision_mode": "allow_mix_precision_fp16", "custom_op": ["m", "n.py"]})  # fmt: skip
    assert of_text == of_values
    assert of_text.input_shape == {"a:b": [1, -1], "s": []} and of_text.soc_version == ("Ascend910B2", "Ascend310P3")
    assert Options.of({}) == Options()


def test_the_dataclass_itself_reads_texts():
    """A plain string for the tuple of chips was a KeyError deep in a conversion, one chip a letter."""
    assert Options(soc_version="910b2,310P3") == Options(soc_version=["Ascend910B2", "Ascend310P3"])
    assert Options(soc_version="910b2,310P3").soc_version == ("Ascend910B2", "Ascend310P3")
    made = Options(precision_mode="fp16", input_shape="x:1,3~8", out_nodes="a;b", tune="true", budget="7")
    assert (made.precision_mode, made.input_shape, made.out_nodes) == ("force_fp16", {"x": [1, (3, 8)]}, ("a", "b"))
    assert made.tune is True and made.budget == 7
    with pytest.raises(SeveralErrors) as caught:
        Options(soc_version=("Ascend910B9",), precision_mode="fp17")
    assert [e.where["flag"] for e in caught.value.errors] == ["--soc_version", "--precision_mode"]


@pytest.mark.parametrize("value", [5, 1.5, b"x", object(), [1, None], {"x": [1, "a"]}, [["a"]], "\0", "1" * 5000])
def test_python_values_of_no_type_that_an_option_takes_are_refused_by_name(value):
    for name, about in declared():
        for flag in (name, *about.also):
            try:
                Options.of({flag: value})
            except OpenAtcError as error:
                assert "--" + flag in error.where.get("flag", ""), error  # noqa: PT017


def test_tilings_of_python_are_read_as_lines_are():
    line = "matmul rows=96 columns=32 panels_outside=0 pack=0 widen=0"
    [made] = Options.of({"tiling": {"fc": line}}).tiling["fc"]
    assert str(made) == line and Options(tiling={"fc": made}).tiling == {"fc": (made,)}
    assert Options.of({"tiling": {"fc": [made]}}).tiling == {"fc": (made,)}
    with pytest.raises(UsageError):
        Options.of({"tiling": {"fc": "matmul rows=x"}})


def test_every_problem_is_told_in_one_error():
    with pytest.raises(SeveralErrors) as caught:
        Options.of({"soc_version": "Ascend910B9", "input_shape": "a=1", "precision_mod": "force_fp16",
                    "precision_mode": "fp16", "precision_mode_v2": "fp17"})  # fmt: skip
    assert [e.code for e in caught.value.errors] == ["E10001", "E10002", "E10001", "E10056"]
    assert caught.value.exit_code == 2
    assert all(e.remedy and e.where["flag"] for e in caught.value.errors)
    assert "did you mean precision_mode?" in caught.value.errors[2].remedy
    for flag in ("--soc_version", "--input_shape", "--precision_mod,", "--precision_mode_v2"):
        assert flag in caught.value.where["flag"] + ","


def test_the_command_line_tells_them_all_in_either_spelling(atc, tmp_path):
    mlp = small_models.save("mlp", tmp_path)
    wrong = ["--soc_version=Ascend1", "--input_shape=x"]
    own = [f"--model={mlp}", "--framework=5", f"--output={tmp_path / 'm'}"]
    for words in (["convert", mlp, *wrong], [*own, *wrong]):
        code, out, _ = atc(*words, "--json")
        error = json.loads(out)["error"]
        assert code == 2
        assert {e["where"]["flag"] for e in error["errors"]} == {"--soc_version", "--input_shape"}
    code, _, err = atc(*own, "--log", "colour", "--framework=3", "--frob=1", "--soc_version=Ascend1")
    assert code == 2 and all(f"--{flag}" in err for flag in ("log", "framework", "frob", "soc_version"))


def test_every_option_has_a_flag_in_both_spellings(atc):
    in_command, in_atc = atc("convert", "--help")[1], atc("--model=m.onnx", "--help")[1]
    for name, about in declared():
        for flag in (name, *about.also):
            assert f"--{flag}" in in_command and f"--{flag}" in in_atc, flag


def test_python_takes_the_same_flags(tmp_path):
    model = small_models.save("mlp", tmp_path)
    made = product.convert(model, tmp_path / "m.om", soc_version="310p3", precision_mode_v2="fp16")
    assert made.soc_version == "Ascend310P3" and made.precision_mode == "force_fp16"
    with pytest.raises(UsageError, match="soc_verson"):
        product.convert(model, soc_verson="310p3")


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("a:1,3,-1;s:", {"a": [1, 3, -1], "s": []}),
        ("a:b:1~8,3~-1", {"a:b": [(1, 8), (3, None)]}),
        ("-1,1~2,3;2,3", {0: [-1, (1, 2), 3], 1: [2, 3]}),
        ("x : 1 , 2 ; ", {"x": [1, 2]}),
    ],
)
def test_shapes_and_ranges(text, shapes):
    assert Options.of({"input_shape": text}).input_shape == shapes


def test_the_older_form_of_ranges_wins_and_says_so():
    for order in (1, -1):
        given = dict([("input_shape_range", "a:[1~2,3,-1];b:[2]"), ("input_shape", "a:1,3,5")][::order])
        options = Options.of(given)
        assert options.input_shape == {"a": [(1, 2), 3, -1], "b": [2]} and "--input_shape takes" in options.notes[0]
    assert Options.of({"input_shape_range": "[1,2~3],[4]"}).input_shape == {0: [1, (2, 3)], 1: [4]}


@pytest.mark.parametrize(
    ("flag", "text", "code"),
    [
        ("input_shape", "a=1,2", "E10002"), ("input_shape", "a:1,x", "E10002"), ("input_shape", "a:1.5", "E10002"),
        ("input_shape", "a:1;a:2", "E10002"), ("input_shape", ":1", "E10002"), ("input_shape", "a:1;2", "E10002"),
        ("input_shape", "a:0,1", "E10011"), ("input_shape", "a:-2", "E10011"), ("input_shape", "a:8~1", "E10011"),
        ("input_shape", "a:2147483648", "E10013"), ("input_shape", "a:99999999999999999999999", "E10013"),
        ("input_shape_range", "a:1,2", "E10048"), ("input_shape_range", "a:[1,2", "E10048"),
        ("input_format", "NC1HWC0", "E10001"),
    ],
)  # fmt: skip
def test_shapes_that_cannot_be_read(flag, text, code):
    with pytest.raises(UsageError) as caught:
        Options.of({flag: text})
    assert caught.value.code == code and caught.value.where["flag"] == f"--{flag}" and caught.value.remedy
