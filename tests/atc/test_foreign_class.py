"""Code of a class that this processor does not have: made anywhere, run nowhere but there."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from small_models import mlp

from acl_runtime import InferSession
from atc.conversion import convert
from codegen.llvm.detect import runnable_classes
from codegen.targets.hosts import HOST_CLASSES
from tensor_types.errors import EnvironmentProblem

FOREIGN = sorted(set(HOST_CLASSES) - set(runnable_classes()))


@pytest.mark.parametrize("host", FOREIGN)
def test_a_package_for_another_processor_is_made_and_not_run(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(mlp(), tmp_path / "m.onnx")
    monkeypatch.setenv("OPENATC_HOST", host)
    convert(tmp_path / "m.onnx", tmp_path / "m.om")
    with pytest.raises(EnvironmentProblem, match=host):
        InferSession(0, tmp_path / "m.om")
    monkeypatch.delenv("OPENATC_HOST")
    assert len(InferSession(0, tmp_path / "m.om").get_outputs()) == 1
