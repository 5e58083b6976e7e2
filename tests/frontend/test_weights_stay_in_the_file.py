"""Big weights are read-only views of the file, inline or external; numbers and bytes stay the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from frontend import read_model
from frontend.mapped_file import BIG, MalformedFile, stripped

N = helper.make_node
F = TensorProto.FLOAT


def info(name, shape, kind=F):
    return helper.make_tensor_value_info(name, kind, shape)


def model_with(weight: TensorProto, shape: list[int]) -> onnx.ModelProto:
    graph = helper.make_graph([N("Add", ["x", "w"], ["y"])], "g", [info("x", shape)], [info("y", shape)], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def numbers(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal(count).astype(np.float32)


def on_file(array: np.ndarray) -> bool:
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(array, np.memmap)


@pytest.mark.parametrize("count", [10, BIG // 4 - 1, BIG // 4, 100_000])
def test_inline(tmp_path, count):
    data = numbers(count)
    path = tmp_path / "m.onnx"
    onnx.save(model_with(numpy_helper.from_array(data, "w"), [count]), path)
    weight = read_model(path).values["w"].data
    np.testing.assert_array_equal(weight, data)
    assert weight.dtype == np.float32 and not weight.flags.writeable
    assert on_file(weight) == (data.nbytes >= BIG)


def test_inline_through_a_link(tmp_path):
    data = numbers(1 << 16)
    (tmp_path / "store").mkdir()
    onnx.save(model_with(numpy_helper.from_array(data, "w"), [data.size]), tmp_path / "store" / "digest")
    (tmp_path / "m.onnx").symlink_to(tmp_path / "store" / "digest")
    np.testing.assert_array_equal(read_model(tmp_path / "m.onnx").values["w"].data, data)


def test_inside_nodes_and_branches(tmp_path):
    data = numbers(1 << 16)
    branches = {
        key: helper.make_graph(
            [N("Constant", [], [f"c_{key}"], value=numpy_helper.from_array(data * sign)), N("Add", ["x", f"c_{key}"],
             [f"o_{key}"])], key, [], [info(f"o_{key}", [data.size])],
        )
        for key, sign in (("then_branch", 1), ("else_branch", -1))
    }  # fmt: skip
    graph = helper.make_graph(
        [N("If", ["c"], ["y"], name="choice", **branches)], "g",
        [info("c", [], TensorProto.BOOL), info("x", [data.size])], [info("y", [data.size])],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    (node,) = read_model(tmp_path / "m.onnx").nodes
    for key, sign in (("then_branch", 1), ("else_branch", -1)):
        weight = node.subgraphs[key].values[f"c_{key}"].data
        np.testing.assert_array_equal(weight, data * sign)
        assert on_file(weight)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1, TensorProto.BFLOAT16,
                                  TensorProto.FLOAT8E4M3FN, TensorProto.BOOL, TensorProto.INT64])  # fmt: skip
@pytest.mark.parametrize("place", ["typed", "raw", "external"])
def test_every_encoding(tmp_path, kind, place):
    values = [0, 1, 1, 0, 1, 1, 0] if kind in (TensorProto.BOOL, TensorProto.UINT4) else [0, 1, -2, 3, -1, 2, 1]
    tensor = helper.make_tensor("w", kind, [7], values)
    expected = numpy_helper.to_array(tensor)
    if place != "typed":
        tensor = numpy_helper.from_array(expected, "w")
    if place == "external":
        (tmp_path / "w.bin").write_bytes(b"skip" + tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
        tensor.external_data.add(key="offset", value="4")
    graph = helper.make_graph([N("Identity", ["w"], ["y"])], "g", [], [info("y", [7], kind)], [tensor])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)]), tmp_path / "m.onnx")
    value = read_model(tmp_path / "m.onnx").constants()[0]
    assert value.dtype.onnx == kind and value.data.dtype == value.dtype.numpy
    np.testing.assert_array_equal(value.data.astype(np.float64), expected.astype(np.float64))


def test_strings(tmp_path):
    tensor = helper.make_tensor("w", TensorProto.STRING, [2], ["straße", b"raw"])
    graph = helper.make_graph([N("Identity", ["w"], ["y"])], "g", [], [info("y", [2], TensorProto.STRING)], [tensor])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    assert read_model(tmp_path / "m.onnx").constants()[0].data.tolist() == ["straße", "raw"]


_LIMITED = """
import resource, sys
import numpy, onnx, frontend
used = int(next(l for l in open("/proc/self/status") if l.startswith("VmData")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (used + (24 << 20),) * 2)
graph = frontend.read_model(sys.argv[1])
weight = graph.values["w"].data
print(weight.nbytes, weight.reshape(-1)[-1])
"""


def read_in_little_memory(path: Path) -> list[str]:
    """Reads with at most 24 MB of private memory above what the imports took."""
    done = subprocess.run([sys.executable, "-c", _LIMITED, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA counts mappings on Linux only")
def test_three_gigabytes_of_external_data_need_no_memory(tmp_path):
    size = 3 << 30
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(size)  # sparse: takes no disk
        file.seek(size - 4)
        file.write(np.float32(2.5).tobytes())
    weight = TensorProto(name="w", data_type=F, dims=[size // 4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="w.bin")
    onnx.save(model_with(weight, [size // 4]), tmp_path / "m.onnx")
    assert read_in_little_memory(tmp_path / "m.onnx") == [str(size), "2.5"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA counts mappings on Linux only")
def test_big_inline_data_need_no_memory(tmp_path):
    data = np.zeros(12 << 20, np.float32)
    data[-1] = 2.5
    onnx.save(model_with(numpy_helper.from_array(data, "w"), [data.size]), tmp_path / "m.onnx")
    assert read_in_little_memory(tmp_path / "m.onnx") == [str(data.nbytes), "2.5"]


# --- the walker over the wire format


def test_what_is_small_is_copied_byte_for_byte():
    content = model_with(numpy_helper.from_array(numbers(100), "w"), [100]).SerializeToString()
    assert stripped(memoryview(content), "m.onnx") == content


def test_only_the_data_change():
    model = model_with(numpy_helper.from_array(numbers(BIG), "w"), [BIG])
    model.graph.doc_string = "d" * (2 * BIG)  # big, but no tensor
    content = model.SerializeToString()
    found = onnx.ModelProto.FromString(stripped(memoryview(content), "m.onnx"))
    tensor = found.graph.initializer[0]
    entries = {e.key: e.value for e in tensor.external_data}
    start, length = int(entries["offset"]), int(entries["length"])
    assert content[start : start + length] == model.graph.initializer[0].raw_data
    assert entries["location"] == "m.onnx" and not tensor.HasField("raw_data")
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    tensor.raw_data = content[start : start + length]
    assert found == model


_WHOLE = model_with(numpy_helper.from_array(np.zeros(BIG // 4, np.float32), "w"), [BIG // 4]).SerializeToString()


@given(st.integers(0, 300) | st.integers(len(_WHOLE) - 300, len(_WHOLE) - 1), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_a_changed_byte_is_read_or_refused(position, byte):
    damaged = bytearray(_WHOLE)
    damaged[position] = byte
    try:
        onnx.ModelProto.FromString(stripped(memoryview(bytes(damaged)), "m.onnx"))
    except (MalformedFile, DecodeError):
        return
    onnx.ModelProto.FromString(bytes(damaged))  # what is read is sound for protobuf as well


@pytest.mark.parametrize("content", [b"\x80" * 11, b"\x3a\xff\xff\xff\xff\x0f", b"\x0d\x00", b"\x0b", b"\x80"])
def test_malformed(content):
    with pytest.raises(MalformedFile):
        stripped(memoryview(content), "m.onnx")
