"""ATC's modes and the lines that it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import small_models

from atc.atc_command import FAILURE, START, SUCCESS


@pytest.fixture
def mlp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return small_models.save("mlp", tmp_path)


def words(mlp, *more):
    return [f"--model={mlp}", "--framework=5", "--output=out", "--soc_version=Ascend910B2", "--log=error", *more]


def test_the_first_and_the_last_lines(atc, mlp):
    code, out, err = atc(*words(mlp))
    assert code == 0 and not err
    assert out.splitlines() == [START, "...", SUCCESS]
    code, out, err = atc(*words(mlp, "--input_shape=nothing:1"))
    assert code == 3 and out.splitlines() == [START, "...", FAILURE] and err.startswith("E10016")
    code, out, err = atc(*words(mlp, "--framework=0"))
    assert code == 2 and out.splitlines()[-1] == FAILURE and err.startswith("E10007")
    assert atc("--help")[0] == 0
    code, out, _ = atc("--model=x", "--help")
    assert code == 0 and out.splitlines()[0] == START


def test_what_a_package_holds(atc, mlp):
    assert atc(*words(mlp))[0] == 0
    code, out, _ = atc("--mode=6", "--om=out.om")
    assert code == 0 and "soc_version[Ascend910B2]" in out and "weight_size[" in out
    code, out, _ = atc(*words(mlp, "--display_model_info=1"))
    assert code == 0 and "Display Model Info start" in out


def test_a_package_and_a_model_as_json(atc, mlp, tmp_path):
    assert atc(*words(mlp))[0] == 0
    for source, spelled in (("out.om", ["--json=shown.json"]), (str(mlp), ["--json", "shown.json"])):
        code, out, err = atc("--mode=1", f"--om={source}", *spelled)
        assert code == 0 and SUCCESS in out, err
        (graph,) = json.loads((tmp_path / "shown.json").read_text())["graph"]
        assert graph["op"] and graph["input"] and graph["output"]
        (tmp_path / "shown.json").unlink()


def test_only_a_check(atc, mlp, tmp_path):
    assert atc("--mode=3", f"--model={mlp}", "--framework=5")[0] == 0
    assert json.loads((tmp_path / "check_result.json").read_text())["result"] == "success"
    assert not (tmp_path / "out.om").exists()


@pytest.mark.parametrize(
    ("given", "code", "flag"),
    [
        (["--mode=7"], "E10055", "--mode"),
        (["--mode=30"], "E10055", "--mode"),
        (["--mode=2"], "E10001", "--mode"),
        (["--mode=6"], "E10054", "--om"),
        (["--mode=1", "--om=out.om"], "E10054", "--json"),
        (["--log"], "E10001", "--log"),
        (["--log=loud"], "E10010", "--log"),
        (["--display_model_info=2"], "E10006", "--display_model_info"),
        (["--output=" + "x/" * 2100 + "m"], "E10021", "--output"),
        (["--output=folder/"], "E10022", "--output"),
    ],
)
def test_flags_of_the_modes_that_are_wrong(atc, mlp, given, code, flag):
    full = given if given[0].startswith("--mode=6") or given[0].startswith("--mode=1") else [*words(mlp), *given]
    ended, out, err = atc(*full)
    assert ended == 2 and FAILURE in out and code in err and flag in err, (out, err)


def test_the_python_name_of_the_command(tmp_path, mlp):
    ran = subprocess.run(
        [sys.executable, "-m", "ge.pyatc", *words(mlp)], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )  # fmt: skip
    assert ran.returncode == 0 and ran.stdout.splitlines() == [START, "...", SUCCESS], ran.stderr
    assert (tmp_path / "out.om").exists()
