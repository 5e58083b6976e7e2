"""Single operators through acl.op and acl.blas, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from acl_programs import Program, from_device, ok, to_device

import acl

ND = 2
TYPES = {"float32": 0, "float16": 1, "int32": 3, "int64": 9}
RANDOM = np.random.default_rng(0)


def desc(array: np.ndarray) -> int:
    return acl.create_tensor_desc(TYPES[str(array.dtype)], list(array.shape), ND)


def buffer(program: Program, array: np.ndarray) -> tuple[int, int]:
    address = program.malloc(array.nbytes)
    to_device(array, address)
    return acl.create_data_buffer(address, array.nbytes), address


def run(program: Program, kind: str, inputs: list[np.ndarray], wanted: np.ndarray, **attributes: object) -> np.ndarray:
    attr = acl.op.create_attr()
    for name, value in attributes.items():
        kind_of = {bool: "bool", int: "int", float: "float", list: "list_int"}[type(value)]
        ok(getattr(acl.op, f"set_attr_{kind_of}")(attr, name, value))
    buffers = [buffer(program, a) for a in inputs]
    target = program.malloc(wanted.nbytes)
    out = acl.create_data_buffer(target, wanted.nbytes)
    ok(acl.op.execute_v2(
        kind, [desc(a) for a in inputs], [b for b, _ in buffers], [desc(wanted)], [out], attr, program.stream
    ))  # fmt: skip
    ok(acl.rt.synchronize_stream(program.stream))
    assert acl.op.destroy_attr(attr) is None
    return from_device(target, wanted.shape, wanted.dtype)


def test_operators_of_both_vocabularies(program: Program) -> None:
    a, b = RANDOM.integers(-9, 9, (8, 16), np.int32), RANDOM.integers(-9, 9, (8, 16), np.int32)
    np.testing.assert_array_equal(run(program, "Add", [a, b], a), a + b)
    x, y = RANDOM.random((4, 6), np.float32) + 1, RANDOM.random((5, 6), np.float32)
    np.testing.assert_allclose(run(program, "RealDiv", [x, x * 2], x), np.full((4, 6), 0.5), rtol=1e-6)
    made = run(program, "MatMulV2", [x, y], np.empty((4, 5), np.float32), transpose_x1=False, transpose_x2=True)
    np.testing.assert_allclose(made, x @ y.T, rtol=1e-5)
    made = run(program, "SoftmaxV2", [x], x, axes=[0])
    np.testing.assert_allclose(made, np.exp(x) / np.exp(x).sum(0), rtol=1e-5)
    np.testing.assert_allclose(run(program, "LeakyRelu", [-x], x, alpha=0.5), -x / 2, rtol=1e-6)


def test_a_handle_with_host_pointers(program: Program) -> None:
    """Slice as a sample runs it: offsets and sizes are host bytes, and so is the result."""
    x = RANDOM.random((6, 10)).astype(np.float16)
    offsets, sizes = np.array([1, 2], np.int32), np.array([3, 4], np.int32)
    wanted = x[1:4, 2:6]
    handle = ok(acl.op.create_handle("Slice", [desc(a) for a in (x, offsets, sizes)], [desc(wanted)], 0))
    data = [a.tobytes() for a in (x, offsets, sizes)]
    buffers = [acl.create_data_buffer(acl.util.bytes_to_ptr(d), len(d)) for d in data]
    result = bytes(wanted.nbytes)
    target = acl.create_data_buffer(acl.util.bytes_to_ptr(result), len(result))
    ok(acl.op.execute_with_handle(handle, buffers, [target], program.stream))
    del data
    ok(acl.rt.synchronize_stream(program.stream))
    np.testing.assert_array_equal(np.frombuffer(result, np.float16).reshape(3, 4), wanted)
    assert acl.op.destroy_handle(handle) is None
    assert acl.op.execute_with_handle(handle, buffers, [target], program.stream) == 100000


def test_cast_and_constants(program: Program) -> None:
    x = np.array([1.5, -2.7, 3.0, 0.2], np.float32)
    source, _ = buffer(program, x)
    address = program.malloc(16)
    ok(acl.op.cast(desc(x), source, acl.create_tensor_desc(3, [4], ND), acl.create_data_buffer(address, 16), 0, 0))
    ok(acl.rt.synchronize_stream(0))
    np.testing.assert_array_equal(from_device(address, (4,), np.int32), [1, -2, 3, 0])
    axis = np.array([0], np.int32)
    constant = desc(axis)
    data = axis.tobytes()
    ok(acl.set_tensor_const(constant, acl.util.bytes_to_ptr(data), len(data)))
    index = acl.create_tensor_desc(3, [], ND)
    ok(acl.op.execute_v2(
        "ArgMaxV2", [desc(x), constant], [source, acl.create_data_buffer(0, 4)], [index],
        [acl.create_data_buffer(address, 4)], 0, program.stream,
    ))  # fmt: skip
    ok(acl.rt.synchronize_stream(program.stream))
    assert from_device(address, (1,), np.int32) == [2]


def test_a_product_of_matrices(program: Program) -> None:
    a, b, c = (RANDOM.random(s, np.float32) for s in ((4, 3), (5, 4), (3, 5)))
    pointers = [buffer(program, m)[1] for m in (a, b, c)]
    factors = [np.array([f], np.float32).tobytes() for f in (2.0, -1.0)]
    alpha, beta = map(acl.util.bytes_to_ptr, factors)
    ok(acl.blas.gemm_ex(
        1, 1, 0, 3, 5, 4, alpha, pointers[0], -1, 0, pointers[1], 4, 0, beta, pointers[2], -1, 0, 0, program.stream
    ))  # fmt: skip
    ok(acl.rt.synchronize_stream(program.stream))
    np.testing.assert_allclose(from_device(pointers[2], (3, 5)), 2 * (a.T @ b.T) - c, rtol=1e-5)
    refused = acl.blas.gemm_ex(
        1, 1, 1, 3, 5, 4, alpha, pointers[0], -1, 0, pointers[1], 4, 0, beta, pointers[2], -1, 0, 0, program.stream
    )
    assert refused == 207000


def test_what_does_not_match(program: Program, tmp_path: Path) -> None:
    x = np.ones(4, np.float32)
    (source, address), out = buffer(program, x), acl.create_data_buffer(program.malloc(16), 16)
    d, s = desc(x), program.stream

    def execute(kind: str, inputs: list[int], buffers: list[int], outputs: list[int], attr: int = 0) -> int:
        return acl.op.execute_v2(kind, inputs, buffers, outputs, [out], attr, s)

    attr = acl.op.create_attr()
    ok(acl.op.set_attr_int(attr, "nonsense", 1))
    assert execute("NoSuch", [d], [source], [d]) == 100024
    assert execute("Relu", [d], [source], [d], attr) == 100024
    assert execute("Relu", [d], [source, source], [d]) == 100021
    assert execute("Relu", [d], [acl.create_data_buffer(address, 8)], [d]) == 100021
    assert execute("Relu", [d], [source], [desc(np.ones(9, np.float32))]) == 100022
    assert execute("Relu", [d], [source], [acl.create_tensor_desc(3, [4], ND)]) == 100024
    assert execute("Relu", [acl.create_tensor_desc(0, [-1], ND)], [source], [d]) == 207000
    assert execute("Relu", [acl.create_tensor_desc(13, [4], ND)], [source], [d]) == 100026
    assert execute("Relu", [d + 1], [source], [d]) == 100000
    assert execute("Relu", [d], [acl.create_data_buffer(8, 16)], [d]) == 107000
    with pytest.raises(TypeError):
        acl.op.set_attr_float(attr, "alpha", "1")
    assert acl.op.set_model_dir(str(tmp_path / "none")) == 100014
    first = acl.op.set_model_dir(str(tmp_path))
    assert first in (0, 100002) and acl.op.set_model_dir(str(tmp_path)) == 100002


def test_an_operator_in_flight_keeps_its_memory(program: Program) -> None:
    x = np.full(50_000, -3, np.float32)
    (source, address), target = buffer(program, x), bytes(x.nbytes)
    out = acl.create_data_buffer(acl.util.bytes_to_ptr(target), len(target))
    for _ in range(3):
        ok(acl.op.execute_v2("Abs", [desc(x)], [source], [desc(x)], [out], 0, program.stream))
    ok(acl.rt.free(address))
    ok(acl.rt.synchronize_stream(program.stream))
    assert set(np.frombuffer(target, np.float32)) == {3.0}
