"""An execution that is repeated is not prepared again, unless something that it depends on is another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import acl
from atc.conversion import convert


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = 2 * x + 1 of f32 [n, 4]."""
    folder = tmp_path_factory.mktemp("repeated")
    constants = [helper.make_tensor(n, TensorProto.FLOAT, [], [v]) for n, v in (("two", 2.0), ("one", 1.0))]
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4])] for n in "xy"]
    nodes = [helper.make_node("Mul", ["x", "two"], ["t"]), helper.make_node("Add", ["t", "one"], ["y"])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", *ends, constants), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, folder / "m.onnx")
    convert(folder / "m.onnx", folder / "m.om")
    return folder / "m.om"


class Call:
    """A model with its datasets, as a program holds them."""

    def __init__(self, package: Path, rows: int) -> None:
        self.model, code = acl.mdl.load_from_file(str(package))
        assert code == 0
        self.inputs, self.outputs = acl.mdl.create_dataset(), acl.mdl.create_dataset()
        self.x, self.y = (self.buffer(dataset, rows) for dataset in (self.inputs, self.outputs))
        self.shape(rows)

    def buffer(self, dataset: int, rows: int) -> tuple[int, int]:
        """A buffer and its memory."""
        memory, code = acl.rt.malloc(max(rows, 1) * 16, 0)
        assert code == 0
        buffer = acl.create_data_buffer(memory, rows * 16)
        acl.mdl.add_dataset_buffer(dataset, buffer)
        return buffer, memory

    def shape(self, rows: int) -> None:
        desc = acl.create_tensor_desc(0, [rows, 4], 2)
        assert acl.mdl.set_dataset_tensor_desc(self.inputs, desc, 0)[1] == 0

    def run(self, x: np.ndarray) -> np.ndarray:
        """The result for x, read from the memory that the output buffer names."""
        source = np.ascontiguousarray(x, np.float32)
        address = acl.get_data_buffer_addr(self.x[0])
        assert acl.rt.memcpy(address, x.size * 4, source.ctypes.data, x.size * 4, 1) == 0
        assert acl.mdl.execute(self.model, self.inputs, self.outputs) == 0
        found = np.zeros_like(source)
        target = acl.get_data_buffer_addr(self.y[0])
        assert acl.rt.memcpy(found.ctypes.data, x.size * 4, target, x.size * 4, 2) == 0
        return found


@pytest.fixture
def call(package: Path) -> Call:
    acl.init()
    acl.rt.set_device(0)
    yield Call(package, 6)
    acl.rt.reset_device(0)
    acl.finalize()


def test_what_memory_holds_is_read_each_time(call: Call) -> None:
    for n in range(3):
        x = np.full((6, 4), n, np.float32)
        np.testing.assert_array_equal(call.run(x), 2 * x + 1)


def test_another_shape_is_another_execution(call: Call) -> None:
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    call.run(x)
    call.shape(2)
    np.testing.assert_array_equal(call.run(x[:2]), 2 * x[:2] + 1)


def test_another_buffer_is_another_execution(call: Call) -> None:
    x = np.ones((6, 4), np.float32)
    call.run(x)
    memory, _ = acl.rt.malloc(6 * 16, 0)
    assert acl.update_data_buffer(call.y[0], memory, 6 * 16) == 0
    np.testing.assert_array_equal(call.run(5 * x), 10 * x + 1)
    assert acl.get_data_buffer_addr(call.y[0]) == memory


def test_memory_that_was_freed_is_refused_though_it_was_checked_before(call: Call) -> None:
    call.run(np.ones((6, 4), np.float32))
    assert acl.rt.free(call.y[1]) == 0
    assert acl.mdl.execute(call.model, call.inputs, call.outputs) == 145000
    assert "output y: 0x" in acl.get_recent_err_msg()
