"""Every name of pyACL is there: it works, or it tells by its code that it does not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from acl_programs import Program, from_device, negative_model, ok, to_device

import acl
from acl._absent import _TABLE, absent


def test_absent_functions_tell_so_and_hide_nothing() -> None:
    present = {
        ".".join([*[p for p in f.__module__.split(".") if not p.startswith("_")], f.__name__])
        for name, module in list(sys.modules.items())
        if name.split(".")[0] == "acl"
        for f in vars(module).values()
        if hasattr(f, "__wrapped__") and hasattr(f, "__name__")
    }
    for module in _TABLE:
        for name in absent(module):
            assert f"{module}.{name}" not in present
            result = getattr(sys.modules[module], name)(1, "x", [])
            assert result in (0, 207000) or result[-1] == 207000
    assert acl.himpi.sys_init() == 207000


def test_names_that_samples_use_are_all_there() -> None:
    text = (Path(__file__).parent / "names_of_samples.txt").read_text()
    missing = [name for name in text.split() if not hasattr(sys.modules[name.rpartition(".")[0]], name.split(".")[-1])]
    assert not missing and len(text.split()) > 150


def test_halves_and_versions() -> None:
    numbers = np.array([0, -0.0, 1.5, 65504, 1e-7, 70000, -3.14159])
    with np.errstate(over="ignore"):
        bits = numbers.astype(np.float16).view(np.uint16)
    assert [acl.float_to_float16(float(n)) for n in numbers] == bits.tolist()
    assert acl.float16_to_float(int(bits[2])) == 1.5
    *version, code = acl.get_version()
    assert code == 0 and len(version) == 3


def test_ways_of_loading(program: Program, tmp_path: Path) -> None:
    path = str(negative_model(tmp_path / "m.om"))
    data = Path(path).read_bytes()
    address = acl.util.bytes_to_ptr(data)
    work, weights = ok(acl.mdl.query_size(path))
    assert (work, weights) == ok(acl.mdl.query_size_from_mem(address, len(data))) and min(work, weights) >= 0
    block = program.malloc(4096)
    models = [
        ok(acl.mdl.load_from_file_with_mem(path, block, 4096, 0, 0)),
        ok(acl.mdl.load_from_mem_with_mem(address, len(data), block, 64, block, 64)),
    ]
    for options in ({1: 1, 2: path}, {1: 3, 3: address, 4: len(data)}):
        config = acl.mdl.create_config_handle()
        assert acl.mdl.load_with_config(config) == (0, 100000)
        for option, value in options.items():
            ok(acl.mdl.set_config_opt(config, option, value))
        models.append(ok(acl.mdl.load_with_config(config)))
        assert acl.mdl.set_config_opt(config, 99, 1) == acl.mdl.set_config_opt(config, 2, 1) == 100000
        ok(acl.mdl.destroy_config_handle(config))
    for model in models:
        given, (x,), made, (y,) = program.datasets(model)
        to_device(np.arange(6, dtype=np.float32), x)
        ok(acl.mdl.execute_v2(model, given, made, program.stream, 0))
        np.testing.assert_array_equal(from_device(y, (6,)), -np.arange(6, dtype=np.float32))
    assert acl.mdl.load_from_file_with_mem(path, block, 1 << 30, 0, 0) == (0, 107000)
    assert acl.mdl.query_size(path + "x") == (0, 0, 145002)
    assert acl.mdl.query_size_from_mem(address, 100) == (0, 0, 145006)


def test_streams_and_the_device(program: Program) -> None:
    first = ok(acl.rt.stream_get_id(program.stream))
    assert ok(acl.rt.stream_get_id(0)) != first
    assert ok(acl.rt.ctx_get_current_default_stream()) != 0
    assert acl.rt.get_primary_ctx_state(0) == (1, 0, 0)
    assert acl.rt.device_can_access_peer(0, 0) == (0, 0) and acl.rt.device_can_access_peer(0, 5) == (0, 107001)
    for malloc in (acl.rt.malloc_align32, acl.rt.malloc_cached):
        block = ok(malloc(100, 0))
        ok(acl.rt.mem_flush(block, 100))
        assert acl.rt.mem_invalidate(block, 1000) == 107000
        ok(acl.rt.free(block))
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.destroy_stream_force(stream))
    assert acl.rt.synchronize_stream(stream) == 100000
    ok(acl.rt.reset_device_force(0))
    assert acl.rt.get_primary_ctx_state(0) == (0, 0, 0)


@pytest.mark.parametrize("handle", [0, 7, 1 << 40])
def test_wrong_handles_of_the_new_functions(program: Program, handle: int) -> None:
    assert acl.mdl.destroy_config_handle(handle) == 100000
    assert acl.op.destroy_handle(handle) is None
    assert acl.mdl.execute_v2(handle, 0, 0, 0, 0) in (100000, 145003)
    assert acl.get_tensor_desc_name(handle) == ""
    assert acl.mdl.set_aipp_input_format(handle, 1) == 100000
