"""Two symbolic extents that meet: equal ones run, others are refused with what the kernels were made for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import F32, N, info, model_of

from acl_runtime import InferSession
from atc.conversion import convert
from tensor_types.errors import InvalidModel


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> InferSession:
    folder: Path = tmp_path_factory.mktemp("extents")
    nodes = [N("Add", ["x", "y"], ["t"], name="sum"), N("Relu", ["t"], ["z"])]
    onnx.save(model_of(nodes, [info("x", F32, ["a", 4]), info("y", F32, ["b", 4])], [info("z", F32, None)]), folder / "m.onnx")
    convert(folder / "m.onnx", folder / "m.om")
    return InferSession(0, folder / "m.om")


def test_equal_extents_run(session: InferSession) -> None:
    x, y = np.arange(-6, 6, dtype=np.float32).reshape(3, 4), np.full((3, 4), 2, np.float32)
    np.testing.assert_array_equal(session.infer([x, y])[0], np.maximum(x + 2, 0))


@pytest.mark.parametrize(("a", "b", "says", "remedy"), [
    (3, 1, "a is 3, b 1", "--input_shape"),
    (1, 3, "a is 1, b 3", "--input_shape"),
    (3, 2, "a is 3 and b is 2", "equal"),
])  # fmt: skip
def test_others_are_refused(session: InferSession, a: int, b: int, says: str, remedy: str) -> None:
    with pytest.raises(InvalidModel, match=says) as caught:
        session.infer([np.ones((a, 4), np.float32), np.ones((b, 4), np.float32)])
    assert caught.value.where["node"] == "sum" and remedy in (caught.value.remedy or "")
