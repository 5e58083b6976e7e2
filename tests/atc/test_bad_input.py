"""Bad input ends with the documented exit code, a code, a place and a remedy, no traceback and no half-written file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import small_models
from onnx import TensorProto, helper

from acl_runtime.om import open_package
from acl_runtime.om.container import deflate

ROOT = Path(__file__).parents[2]


@pytest.fixture
def refused(atc):
    """Calls the command line with and without --json and gives the error after checking that it is complete."""

    def call(expected: int, *words: object) -> dict:
        code, out, err = atc(*words)
        assert code == expected, (out, err)
        assert "Traceback" not in out + err and "remedy:" in err
        code, out, err = atc(*words, "--json")
        assert code == expected and not err
        error = json.loads(out)["error"]
        assert error.keys() == {"code", "message", "where", "remedy"}
        assert error["where"].keys() == {"node", "op", "tensor", "flag"}
        assert len(error["remedy"]) > 5 and error["message"] and error["code"][0] == "E"
        return error

    return call


@pytest.fixture
def mlp(tmp_path):
    return small_models.save("mlp", tmp_path)


@pytest.fixture
def package(atc, mlp):
    assert atc("convert", mlp, "-q")[0] == 0
    return mlp.with_suffix(".om")


def only(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


# Usage


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["convert"], "model"),
        (["convert", "m.onnx", "--colour"], "--colour"),
        (["run", "m.om", "--loop", "many"], "--loop"),
        (["run", "m.om", "--threads", "0"], "--threads"),
        (["convert", "m.onnx", "--input_shape", "x=1,2"], "--input_shape"),
        (["run", "m.onnx", "--input", "x"], "--input"),
        (["--framework=5", "--model=m.onnx", "--output=m"], "--soc_version"),
        (["--model=m.onnx", "--framework=3", "--output=m", "--soc_version=Ascend910B2"], "--framework"),
        (["--model=m.onnx", "--framework=5", "--output=m", "--soc_version=Ascend910B2", "--frob=1"], "--frob"),
        (["--model=m.onnx", "--framework=5", "--output=m", "--soc_version=Ascend910B2", "--precision_mode=x"],
         "--precision_mode"),
    ],
)  # fmt: skip
def test_wrong_command_line(refused, tmp_path, monkeypatch, words, flag):
    monkeypatch.chdir(tmp_path)
    small_models.save("mlp", tmp_path).rename("m.onnx")
    assert flag in refused(2, *words)["where"]["flag"]
    assert only(tmp_path) == {"m.onnx"}


def test_unknown_command_and_no_command(atc, refused):
    assert "frobnicate" in refused(2, "frobnicate")["message"]
    code, out, _ = atc()
    assert code == 2 and "convert" in out


def test_unknown_chip(refused, mlp):
    assert refused(2, "convert", mlp, "--soc_version", "Ascend1")["where"]["flag"] == "--soc_version"


# Models


def test_no_such_file(refused, tmp_path):
    assert "nowhere.onnx" in refused(3, "convert", tmp_path / "nowhere.onnx")["message"]
    assert "nowhere.om" in refused(3, "run", tmp_path / "nowhere.om")["message"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip archive", b"\xff" * 200])
def test_not_an_onnx_file(refused, tmp_path, content):
    (tmp_path / "m.onnx").write_bytes(content)
    assert refused(3, "convert", tmp_path / "m.onnx")["where"]["flag"] == "--model"
    assert only(tmp_path) == {"m.onnx"}


def test_truncated_model(refused, tmp_path):
    whole = small_models.build_demo_model().SerializeToString()
    for part in (0.1, 0.5, 0.99):
        (tmp_path / "m.onnx").write_bytes(whole[: int(len(whole) * part)])
        error = refused(3, "convert", tmp_path / "m.onnx")
        assert any(error["where"].values())
    assert only(tmp_path) == {"m.onnx"}


def test_unsupported_operators_are_told_all_at_once(atc, refused, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(small_models.unknown_operators(), str(path))
    error = refused(4, "convert", path)
    assert "odd one" in error["message"] + str(error["where"]) and "odd two" in error["message"] + str(error["where"])
    code, out, _ = atc("check", path, "--json")
    rows = json.loads(out)["unsupported"]
    assert code == 4 and [r["node"] for r in rows] == ["odd one", "odd two"]
    assert all(r["remedy"] and r["why"] for r in rows)
    code, out, _ = atc("check", path)
    assert code == 4 and "odd one" in out and "odd two" in out and "nowhere" in out
    assert only(tmp_path) == {"m.onnx"}


def test_check_of_a_good_model(atc, mlp):
    assert atc("check", mlp)[0] == 0
    assert json.loads(atc("check", mlp, "--json")[1]) == {"unsupported": []}
    assert "no node on the AI CPU of Ascend910B2" in atc("check", mlp, "--soc_version", "ascend910b2")[1]


def test_check_tells_what_the_ai_cpu_of_a_chip_would_run(atc, tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "native"),
        helper.make_node("Det", ["r"], ["d"], "determinant"),
        helper.make_node("Neg", ["d"], ["y"], "behind"),
    ]
    wire = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3, 3])]
    graph = helper.make_graph(nodes, "g", wire, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "m.onnx")
    chips = "Ascend910B2,Ascend310P3"
    code, out, _ = atc("check", tmp_path / "m.onnx", "--soc_version", chips, "--json")
    rows = json.loads(out)["aicpu_nodes"]
    assert code == 0 and list(rows) == chips.split(",")
    assert all([(n["name"], n["op"]) for n in found] == [("determinant", "Det")] for found in rows.values())
    assert all(n["why"] == "no kernel for it" for found in rows.values() for n in found)
    assert "determinant" in atc("check", tmp_path / "m.onnx", "--soc_version", chips)[1]
    assert only(tmp_path) == {"m.onnx"}


def test_missing_external_data(refused, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(small_models.build_demo_model(), str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    error = refused(3, "convert", path)
    assert error["where"]["tensor"] and "w.bin" in error["message"]
    assert only(tmp_path) == {"m.onnx"}


def test_external_data_outside_the_folder(refused, tmp_path):
    (tmp_path / "inner").mkdir()
    path = tmp_path / "inner" / "m.onnx"
    proto = small_models.mlp()
    onnx.save(proto, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "inner" / "w.bin").rename(tmp_path / "w.bin")
    proto = onnx.load(str(path), load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../w.bin"
    path.write_bytes(proto.SerializeToString())
    assert refused(3, "convert", path)["where"]["tensor"]


@pytest.mark.parametrize("shape", ["x:3,9", "x:3", "z:3,8", "x:3,8,1"])
def test_wrong_input_shape(refused, mlp, shape):
    error = refused(3, "convert", mlp, "--input_shape", shape)
    assert error["where"]["tensor"] or error["where"]["flag"]
    assert not mlp.with_suffix(".om").exists()


# Runs


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("z", np.ones((2, 8), np.float32)),
        ("x", np.ones((2, 9), np.float32)),
        ("x", np.ones((8,), np.float32)),
        ("x", np.ones((2, 8), np.float64)),
        ("x", np.ones((2, 8), np.int64)),
    ],
)
def test_wrong_input_at_run(refused, package, tmp_path, name, array):
    np.save(tmp_path / "a.npy", array)
    error = refused(3, "run", package, "--input", f"{name}={tmp_path / 'a.npy'}")
    assert error["where"]["tensor"] == name


def test_an_input_file_that_is_no_array(refused, package, tmp_path):
    (tmp_path / "a.npy").write_bytes(b"nonsense")
    assert refused(2, "run", package, "--input", f"x={tmp_path / 'a.npy'}")["where"]["flag"] == "--input"


def test_corrupt_packages(refused, package, tmp_path):
    whole = package.read_bytes()
    for number, content in enumerate(
        [b"", b"not a package at all" * 40, whole[: len(whole) // 2], whole[:-100], whole[:64] + bytes(len(whole) - 64)]
    ):
        path = tmp_path / f"bad{number}.om"
        path.write_bytes(content)
        for command in ("run", "inspect", "strip"):
            assert path.name in refused(3, command, path)["message"]
    middle = bytearray(whole)
    opened = open_package(package)
    plan = next(s for s in opened.sections() if s.name.endswith("/plan"))
    at = whole.index(deflate(opened.section(plan.name)))
    middle[at + plan.size // 2] ^= 1
    (tmp_path / "flipped.om").write_bytes(bytes(middle))
    assert "digest" in refused(3, "run", tmp_path / "flipped.om")["message"]


def test_a_model_is_not_a_package(refused, mlp, tmp_path):
    other = tmp_path / "m.om"
    other.write_bytes(mlp.read_bytes())
    assert refused(3, "inspect", other)["remedy"]


# Files


def test_output_that_cannot_be_written_leaves_nothing(refused, mlp, tmp_path):
    error = refused(7, "convert", mlp, "-o", tmp_path / "absent" / "m.om")
    assert "m.om" in error["message"] and error["where"]["flag"] == "--output"
    assert only(tmp_path) == {"mlp.onnx"}


def test_full_disk_keeps_the_old_package(refused, package, mlp, monkeypatch):
    before = package.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    error = refused(5, "convert", mlp, "-o", package)
    assert "space" in error["message"]
    assert package.read_bytes() == before
    assert only(package.parent) == {"mlp.onnx", "mlp.om"}


def test_an_internal_error_goes_to_a_log(atc, mlp, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("atc.reading.read_model", lambda *_: 1 // 0)
    code, out, _ = atc("convert", mlp, "--json")
    error = json.loads(out)["error"]
    assert code == 1 and error["code"] == "E19999"
    [log] = tmp_path.glob("openatc-*.log")
    assert str(log) in error["remedy"] and "ZeroDivisionError" in log.read_text()


def test_interrupt_ends_with_130_and_leaves_nothing(tmp_path):
    model = small_models.save("demo", tmp_path)
    # Compiling waits, so that the interrupt always finds the conversion at work.
    start = (
        "import sys, time, atc.conversion as c, atc.command_line\n"
        "def wait(*_): print('compiling', flush=True); time.sleep(60)\n"
        "c.ProgramCompilation = wait\n"
        "atc.command_line.main(sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", start, "convert", str(model)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    while "compiling" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err and "interrupted" in err
    assert only(tmp_path) == {"demo.onnx"}
