"""Whole programs, against numpy."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from acl_programs import (
    D2D,
    D2H,
    H2D,
    Program,
    dynamic_model,
    from_device,
    negative_model,
    nonzero_model,
    ok,
    static_model,
    to_device,
)

import acl

ROOT = Path(__file__).resolve().parent.parent.parent
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)


def test_the_canonical_program(tmp_path: Path) -> None:
    path = static_model(tmp_path / "m.om")
    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0
    context, code = acl.rt.create_context(0)
    assert code == 0
    stream, code = acl.rt.create_stream()
    assert code == 0
    assert acl.rt.get_run_mode() == (1, 0)
    model, code = acl.mdl.load_from_file(str(path))
    assert code == 0 and model >= 1
    desc = acl.mdl.create_desc()
    assert acl.mdl.get_desc(desc, model) == 0
    assert (acl.mdl.get_num_inputs(desc), acl.mdl.get_num_outputs(desc)) == (2, 2)

    inputs, outputs = acl.mdl.create_dataset(), acl.mdl.create_dataset()
    for number, array in enumerate((X, W)):
        size = acl.mdl.get_input_size_by_index(desc, number)
        assert size == array.nbytes
        address, code = acl.rt.malloc(size, 2)
        assert code == 0
        data = array.tobytes()
        assert acl.rt.memcpy(address, size, acl.util.bytes_to_ptr(data), size, H2D) == 0
        assert acl.mdl.add_dataset_buffer(inputs, acl.create_data_buffer(address, size)) == (inputs, 0)
    for number in range(2):
        size = acl.mdl.get_output_size_by_index(desc, number)
        address, code = acl.rt.malloc(size, 2)
        assert code == 0
        assert acl.mdl.add_dataset_buffer(outputs, acl.create_data_buffer(address, size)) == (outputs, 0)

    assert acl.mdl.execute(model, inputs, outputs) == 0

    for number, expected in enumerate((np.tanh(np.exp(X.astype(np.float64))), X + W)):
        buffer = acl.mdl.get_dataset_buffer(outputs, number)
        address, size = acl.get_data_buffer_addr(buffer), acl.get_data_buffer_size(buffer)
        dims, code = acl.mdl.get_output_dims(desc, number)
        assert code == 0
        assert dims == {"name": "yz"[number], "dimCount": 2, "dims": [4, 3]}
        assert acl.mdl.get_cur_output_dims(desc, number) == (dims, 0)
        assert acl.mdl.get_output_data_type(desc, number) == 0
        result = bytes(size)
        assert acl.rt.memcpy(acl.util.bytes_to_ptr(result), size, address, size, D2H) == 0
        np.testing.assert_allclose(np.frombuffer(result, np.float32).reshape(dims["dims"]), expected, rtol=1e-5)

    for dataset in (inputs, outputs):
        for number in range(acl.mdl.get_dataset_num_buffers(dataset)):
            buffer = acl.mdl.get_dataset_buffer(dataset, number)
            assert acl.rt.free(acl.get_data_buffer_addr(buffer)) == 0
            assert acl.destroy_data_buffer(buffer) == 0
        assert acl.mdl.destroy_dataset(dataset) == 0
    assert acl.mdl.unload(model) == 0
    assert acl.mdl.destroy_desc(desc) == 0
    assert acl.rt.destroy_stream(stream) == 0
    assert acl.rt.destroy_context(context) == 0
    assert acl.rt.reset_device(0) == 0
    assert acl.finalize() == 0


def test_a_converted_onnx_model(program: Program, tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    import atc

    rng = np.random.default_rng(2)
    weight = rng.normal(size=(8, 3, 3, 3)).astype(np.float32)
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Conv", ["image", "weight"], ["c"], pads=[1, 1, 1, 1]),
            onnx.helper.make_node("Relu", ["c"], ["r"]),
            onnx.helper.make_node("GlobalAveragePool", ["r"], ["pooled"]),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("image", 1, [1, 3, 16, 16])],
        [onnx.helper.make_tensor_value_info("pooled", 1, [1, 8, 1, 1])],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    source = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), source)
    atc.convert(source, tmp_path / "m.om")

    model = ok(acl.mdl.load_from_file(str(tmp_path / "m.om")))
    inputs, (image,), outputs, (pooled,) = program.datasets(model)
    x = rng.normal(size=(1, 3, 16, 16)).astype(np.float32)
    to_device(x, image)
    ok(acl.mdl.execute(model, inputs, outputs))
    (expected,) = onnxruntime.InferenceSession(source).run(None, {"image": x})
    np.testing.assert_allclose(from_device(pooled, (1, 8, 1, 1)), expected, rtol=1e-4, atol=1e-6)


def test_load_from_memory_and_several_models(program: Program, tmp_path: Path) -> None:
    first = ok(acl.mdl.load_from_file(str(static_model(tmp_path / "a.om"))))
    data = negative_model(tmp_path / "b.om", 12).read_bytes()
    second = ok(acl.mdl.load_from_mem(acl.util.bytes_to_ptr(data), len(data)))
    on_device = program.malloc(len(data))
    ok(acl.rt.memcpy(on_device, len(data), acl.util.bytes_to_ptr(data), len(data), H2D))
    third = ok(acl.mdl.load_from_mem(on_device, len(data)))
    del data
    ok(acl.rt.memset(on_device, 16, 0, 16))
    assert len({first, second, third}) == 3
    inputs, (x, w), outputs, (y, z) = program.datasets(first)
    to_device(X, x)
    to_device(W, w)
    ok(acl.mdl.execute(first, inputs, outputs))
    # The output of one model is the input of the next, in place.
    for model in (second, third):
        more, (result,) = program.dataset([48])
        between = acl.mdl.create_dataset()
        ok(acl.mdl.add_dataset_buffer(between, acl.create_data_buffer(z, 48)))
        ok(acl.mdl.execute(model, between, more))
        np.testing.assert_array_equal(from_device(result, (4, 3)), -(X + W))
    ok(acl.mdl.unload(second))
    assert acl.mdl.execute(second, inputs, outputs) == 145003
    ok(acl.mdl.execute(third, between, more))


def test_batches_by_pointer_arithmetic(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(negative_model(tmp_path / "m.om"))))
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    source, target = program.malloc(x.nbytes), program.malloc(x.nbytes)
    for row in range(4):
        to_device(x[row], source + 24 * row)
    for row in range(4):
        inputs, outputs = acl.mdl.create_dataset(), acl.mdl.create_dataset()
        ok(acl.mdl.add_dataset_buffer(inputs, acl.create_data_buffer(source + 24 * row, 24)))
        ok(acl.mdl.add_dataset_buffer(outputs, acl.create_data_buffer(target + 24 * row, 24)))
        ok(acl.mdl.execute(model, inputs, outputs))
    np.testing.assert_array_equal(from_device(target, (4, 6)), -x)


def test_an_output_over_its_input(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(negative_model(tmp_path / "m.om"))))
    dataset, (memory,) = program.dataset([24])
    to_device(np.arange(6, dtype=np.float32), memory)
    ok(acl.mdl.execute(model, dataset, dataset))
    np.testing.assert_array_equal(from_device(memory, (6,)), -np.arange(6, dtype=np.float32))


def test_an_output_without_memory_gets_some(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(negative_model(tmp_path / "m.om"))))
    inputs, (x,) = program.dataset([24])
    to_device(np.arange(6, dtype=np.float32), x)
    outputs, buffer = acl.mdl.create_dataset(), acl.create_data_buffer(0, 0)
    ok(acl.mdl.add_dataset_buffer(outputs, buffer))
    assert acl.mdl.execute_async(model, inputs, outputs, program.stream) == 145000
    ok(acl.mdl.execute(model, inputs, outputs))
    assert acl.get_data_buffer_size(buffer) == 24
    np.testing.assert_array_equal(from_device(acl.get_data_buffer_addr(buffer), (6,)), -np.arange(6, dtype=np.float32))
    ok(acl.rt.free(acl.get_data_buffer_addr(buffer)))


def test_dynamic_shapes(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(dynamic_model(tmp_path / "m.om"))))
    desc = acl.mdl.create_desc()
    ok(acl.mdl.get_desc(desc, model))
    assert acl.mdl.get_input_dims(desc, 0) == ({"name": "x", "dimCount": 2, "dims": [-1, 3]}, 0)
    assert acl.mdl.get_input_dims_range(desc, 0) == ({"rangeCount": 2, "range": [[2, 50], [3, 3]]}, 0)
    assert acl.mdl.get_input_size_by_index(desc, 0) == acl.mdl.get_output_size_by_index(desc, 0) == 600
    assert acl.mdl.get_cur_output_dims(desc, 0) == ({}, 200001)
    inputs, (x,), outputs, (y,) = program.datasets(model)
    assert acl.mdl.execute(model, inputs, outputs) == 145021
    for rows in (2, 50, 7):
        array = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
        to_device(array, x)
        assert acl.mdl.set_dataset_tensor_desc(inputs, acl.create_tensor_desc(0, [rows, 3], 2), 0) == (inputs, 0)
        ok(acl.mdl.execute(model, inputs, outputs))
        result = acl.mdl.get_dataset_tensor_desc(outputs, 0)
        dims = [ok(acl.get_tensor_desc_dim_v2(result, i)) for i in range(acl.get_tensor_desc_num_dims(result))]
        assert dims == [rows, 3]
        assert acl.get_tensor_desc_size(result) == array.nbytes
        np.testing.assert_array_equal(from_device(y, dims), -array)
    for wrong in ([1, 3], [51, 3], [4, 4], [12], [-1, 3]):
        ok(acl.mdl.set_dataset_tensor_desc(inputs, acl.create_tensor_desc(0, wrong, 2), 0))
        assert acl.mdl.execute(model, inputs, outputs) == 145021, wrong


def test_a_shape_that_only_the_run_knows(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(nonzero_model(tmp_path / "m.om"))))
    desc = acl.mdl.create_desc()
    ok(acl.mdl.get_desc(desc, model))
    assert acl.mdl.get_output_size_by_index(desc, 0) == 0
    inputs, (x,) = program.dataset([32])
    array = np.array([0, 1, 2, 0, 0, 3, 0, 4], np.float32)
    to_device(array, x)
    outputs, (y,) = program.dataset([64])
    ok(acl.mdl.execute(model, inputs, outputs))
    result = acl.mdl.get_dataset_tensor_desc(outputs, 0)
    assert acl.get_tensor_desc_size(result) == 32
    np.testing.assert_array_equal(from_device(y, (1, 4), np.int64), np.stack(np.nonzero(array)))
    small, _ = program.dataset([24])
    assert acl.mdl.execute(model, inputs, small) == 145000
    empty, buffer = acl.mdl.create_dataset(), acl.create_data_buffer(0, 0)
    ok(acl.mdl.add_dataset_buffer(empty, buffer))
    ok(acl.mdl.execute(model, inputs, empty))
    assert acl.get_data_buffer_size_v2(buffer) == 32
    ok(acl.rt.free(acl.get_data_buffer_addr(buffer)))


def test_a_static_model_has_no_gears(program: Program, tmp_path: Path) -> None:
    model = ok(acl.mdl.load_from_file(str(negative_model(tmp_path / "m.om"))))
    desc = acl.mdl.create_desc()
    ok(acl.mdl.get_desc(desc, model))
    assert acl.mdl.get_dynamic_batch(desc) == ({"batchCount": 0, "batch": []}, 0)
    assert acl.mdl.get_dynamic_hw(desc, 0) == ({"hwCount": 0, "hw": []}, 0)
    assert acl.mdl.get_input_dynamic_gear_count(desc, -1) == (0, 0)
    assert acl.mdl.get_input_dynamic_gear_count(desc, 0) == (0, 100000)
    assert acl.mdl.get_input_dynamic_dims(desc, -1, 0) == ([], 0)
    assert acl.mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data")[1] == 100000
    assert acl.mdl.get_input_index_by_name(desc, "x") == (0, 0)
    assert acl.mdl.get_input_name_by_index(desc, 0) == "x"
    dataset, _ = program.dataset([24])
    assert acl.mdl.set_dynamic_batch_size(model, dataset, 0, 0) == 100000
    assert acl.mdl.set_dynamic_batch_size(model, dataset, 0, 2) == 145013


def test_utilities(program: Program) -> None:
    data = bytes(8)
    device = program.malloc(64)
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    with pytest.warns(DeprecationWarning):
        address = acl.util.numpy_to_ptr(array)
    ok(acl.rt.memcpy(device, 48, address, 48, H2D))
    ok(acl.rt.memcpy(acl.util.bytes_to_ptr(data), 8, device + 4, 8, D2H))
    assert data == array.tobytes()[4:12]  # written through the address, seen in the object
    alias, copy = acl.util.ptr_to_numpy(device, (3, 4), 11), acl.util.ptr_to_bytes(device, 48)
    np.testing.assert_array_equal(alias, array)
    ok(acl.rt.memset(device, 64, 0, 48))
    assert not alias.any()
    assert copy == array.tobytes()
    alias[0, 1] = 7
    assert from_device(device + 4, (1,))[0] == 7
    assert np.shares_memory(acl.util.ptr_to_numpy(array.ctypes.data, (12,), 11), array)
    pointer, contiguous = acl.util.numpy_contiguous_to_ptr(array.T)
    assert pointer == contiguous.ctypes.data
    np.testing.assert_array_equal(contiguous, array.T)
    assert acl.util.ptr_to_bytes(0, 4) is None
    assert acl.util.ptr_to_numpy(8, (1,), 11) is None
    with pytest.raises(ValueError):
        acl.util.bytes_to_ptr("text")
    with pytest.raises(ValueError):
        acl.util.numpy_to_ptr([1])


def test_bytes_that_python_shares_are_not_written(program: Program) -> None:
    device = program.malloc(64)
    ok(acl.rt.memset(device, 64, 0x41, 1))
    ok(acl.rt.memcpy(acl.util.bytes_to_ptr(b"z"), 1, device, 1, D2H))
    assert bytes([0x7A]) == b"z" != b"A"
    ok(acl.rt.memcpy(device, 1, acl.util.bytes_to_ptr(b"z"), 1, H2D))
    assert acl.util.ptr_to_bytes(device, 1) == bytes([0x7A])


def test_copies_inside_one_block(program: Program) -> None:
    block = program.malloc(64)
    to_device(np.arange(8, dtype=np.float32), block)
    ok(acl.rt.memcpy(block + 32, 32, block, 32, D2D))
    np.testing.assert_array_equal(from_device(block + 32, (8,)), np.arange(8, dtype=np.float32))


def test_teardown_at_exit_after_finalize_is_silent(tmp_path: Path) -> None:
    path = negative_model(tmp_path / "m.om", 1 << 16)
    script = f"""
        import acl
        class Resource:
            def __init__(self):
                acl.init(); acl.rt.set_device(0)
                self.context = acl.rt.create_context(0)[0]
                self.stream = acl.rt.create_stream()[0]
                self.model = acl.mdl.load_from_file({str(path)!r})[0]
                self.data = []
                for _ in range(2):
                    memory = acl.rt.malloc(1 << 18, 0)[0]
                    dataset = acl.mdl.create_dataset()
                    buffer = acl.create_data_buffer(memory, 1 << 18)
                    acl.mdl.add_dataset_buffer(dataset, buffer)
                    self.data.append((memory, dataset, buffer))
            def __del__(self):
                codes = [acl.rt.free(m) for m, _, _ in self.data] + [acl.destroy_data_buffer(b) for _, _, b in self.data]
                codes += [acl.mdl.destroy_dataset(d) for _, d, _ in self.data]
                codes += [acl.mdl.unload(self.model), acl.rt.destroy_stream(self.stream),
                          acl.rt.destroy_context(self.context), acl.rt.reset_device(0), acl.finalize()]
                print(codes)
        resource = Resource()
        for _ in range(200):
            acl.mdl.execute_async(resource.model, resource.data[0][1], resource.data[1][1], resource.stream)
        acl.finalize()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    codes = eval(done.stdout)
    assert codes == [0] * 6 + [145001, 0, 0, 0, 100037]
