"""Streams are independent: an execution in one waits for nothing in another, of one model or of two."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest
from acl_programs import Program, from_device, ok, to_device
from onnx import TensorProto, helper

import acl
import atc

_MEETING = threading.Barrier(2)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    """y = -x, computed only while two executions are at it."""

    @atc.register_op("test.overlap", "Meet", infer=lambda x: (x.dtype, x.shape))
    def meet(x: np.ndarray) -> np.ndarray:
        _MEETING.wait(20)
        return -x

    folder = tmp_path_factory.mktemp("overlap")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    node = helper.make_node("Meet", ["x"], ["y"], domain="test.overlap")
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("test.overlap", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), folder / "m.onnx")
    atc.convert(str(folder / "m.onnx"), str(folder / "m.om"))
    return str(folder / "m.om")


@pytest.mark.parametrize("models", [1, 2])
def test_executions_of_two_streams_are_under_way_together(models: int, program: Program, package: str) -> None:
    loaded = [ok(acl.mdl.load_from_file(package)) for _ in range(models)]
    streams = [program.stream, ok(acl.rt.create_stream())]
    runs = []
    for number, stream in enumerate(streams):
        inputs, (x,), outputs, (y,) = program.datasets(loaded[number % models])
        to_device(np.full(4, number + 1, np.float32), x)
        runs.append((loaded[number % models], inputs, outputs, stream, y))
    for _ in range(3):
        for model, inputs, outputs, stream, _y in runs:
            ok(acl.mdl.execute_async(model, inputs, outputs, stream))
    for stream in streams:
        ok(acl.rt.synchronize_stream(stream))
    for number, run in enumerate(runs):
        assert (from_device(run[-1], (4,)) == -(number + 1)).all()
