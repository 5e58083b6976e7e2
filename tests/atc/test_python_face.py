"""The public functions: models as files, bytes and messages; sessions from each; what is given back at the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import small_models

import atc
from acl_runtime import InferSession
from tensor_types.errors import InvalidModel, OpenAtcError


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    nodes = [small_models.N("Sub", ["a", "b"], ["y"], "n")]
    inputs = [small_models.info(name, small_models.F32, ["rows", 2]) for name in "ab"]
    return small_models.model_of(nodes, inputs, [small_models.info("y", small_models.F32, ["rows", 2])])


A, B = np.arange(6, dtype=np.float32).reshape(3, 2), np.full((3, 2), 0.5, np.float32)


def test_models_in_every_form_convert_and_open(model, tmp_path):
    file = tmp_path / "m.onnx"
    onnx.save(model, str(file))
    results = [
        atc.convert(form, tmp_path / f"{n}.om") for n, form in enumerate((str(file), model.SerializeToString(), model))
    ]
    assert all(r.kernels == 1 and r.package.exists() for r in results)
    forms = (file, file.read_bytes(), results[2].package, bytearray(results[2].package.read_bytes()))
    for form in forms:
        with InferSession(0, form) as session:
            np.testing.assert_array_equal(session.infer({"a": A, "b": B})[0], A - B)
            assert repr(session) == "<InferSession a: f32[rows, 2], b: f32[rows, 2] -> y: f32[rows, 2]>"
        assert "closed" in repr(session)
        session.close()
        with pytest.raises(InvalidModel, match="closed"):
            session.infer({"a": A, "b": B})


def test_what_is_no_model_is_refused(model, tmp_path):
    for wrong in (b"", b"IMOD", b"\x00" * 300, tmp_path / "absent.onnx"):
        with pytest.raises(OpenAtcError):
            InferSession(0, wrong)
    with pytest.raises(OpenAtcError, match="place"):
        atc.convert(model)


def test_comparison_and_contents(model, tmp_path):
    package = atc.convert(model, tmp_path / "m.om").package
    for given in (package, None):
        found = atc.compare(model, given, {"a": A, "b": B})
        assert found.verdict == "pass" and [r.source for r in found.outputs] == ["y"]
    assert [t["name"] for t in atc.inspect(package, verify=True)["inputs"]] == ["a", "b"]


def test_every_installed_room_of_users_says_that_it_is_typed():
    for room in ("acl", "acl_runtime", "aclruntime", "ais_bench", "atc"):
        assert (Path(__file__).parents[2] / room / "py.typed").exists()


def test_the_version_alone_loads_no_numbers():
    subprocess.run([sys.executable, "-c", "import sys, atc; assert 'numpy' not in sys.modules"], check=True)
