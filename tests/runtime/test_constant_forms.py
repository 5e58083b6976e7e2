"""Large constants that no file holds as kernels take them are made by threads; the first execution waits for them."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import atc
from acl_runtime import InferSession
from acl_runtime.constant_forms import Constants, Makers
from acl_runtime.om import PackageError
from tensor_types import recipe_steps
from tensor_types.recipes import Source

rng = np.random.default_rng(0)


@pytest.fixture
def convolution(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A package of a 3x3 convolution by Winograd, an input, and onnxruntime's result."""
    weight = numpy_helper.from_array(rng.standard_normal((64, 64, 3, 3), np.float32) / 24, "w")
    wire = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 64, 28, 28]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], "g", wire[:1], wire[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    atc.convert(tmp_path / "m.onnx", output=tmp_path / "m.om")
    x = rng.standard_normal((1, 64, 28, 28), np.float32)
    (y,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    return tmp_path / "m.om", x, y


def test_loading_does_not_wait(
    convolution: tuple[Path, np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, x, expected = convolution
    may, original = threading.Event(), recipe_steps.to_points

    def held(*args: Any) -> np.ndarray:
        assert may.wait(60)
        return original(*args)

    monkeypatch.setattr(recipe_steps, "to_points", held)
    with InferSession(0, path) as session:
        may.set()
        (y,) = session.infer([x])
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_failure_is_told_to_who_reads() -> None:
    def fail(array: np.ndarray) -> np.ndarray:
        raise MemoryError("too large")

    makers, large = Makers(), Source(np.ones(1 << 18, np.float32))
    made = Constants([np.zeros(2), makers.make(large, fail), makers.make(large, np.negative)], [16, 0, 1 << 20])
    assert made[2][0] == -1
    with pytest.raises(MemoryError, match="too large"):
        list(made)


def test_a_form_of_another_size_than_it_promises_is_refused() -> None:
    makers = Makers()
    for count in (4, 1 << 18):  # at once, and later
        with pytest.raises(PackageError, match="in the form of its kernel"):
            list(Constants([makers.make(Source(np.ones(count, np.float32)), lambda a: a[1:])], [4 * count]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_makes_what_threads_of_its_parent_were_making() -> None:
    parent, may, begun = os.getpid(), threading.Event(), threading.Event()

    def slow(array: np.ndarray) -> np.ndarray:
        begun.set()
        assert os.getpid() != parent or may.wait(60)
        return -array

    makers = Makers()
    made = Constants([makers.make(Source(np.ones(1 << 18, np.float32)), slow)], [1 << 20])
    makers.start()
    assert begun.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(30)
        os._exit(0 if made[0][0] == -1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    may.set()
    assert made[0][0] == -1
