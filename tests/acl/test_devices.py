"""Several simulated devices: contexts, memory and streams of each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from acl_programs import negative_model

from acl_runtime.device import Code, Contexts, DeviceError
from acl_runtime.device.memory import AddressSpace

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import acl
acl.init()
assert acl.rt.get_device_count() == (2, 0)
assert acl.rt.set_device(2) == 107001 and acl.rt.create_context(2)[1] == 107001
assert acl.rt.set_device(1) == 0 and acl.rt.get_device() == (1, 0)
far, _ = acl.rt.malloc(1 << 20, 0)
used = [acl.rt.get_mem_info(0)]
stream, _ = acl.rt.create_stream()
assert acl.rt.set_device(0) == 0 and acl.rt.get_device() == (0, 0)
used.append(acl.rt.get_mem_info(0))
assert used[0][0] < used[0][1] and used[1][0] == used[1][1]
assert acl.rt.memset_async(far, 16, 1, 16, stream) == 107003  # a stream of the other device's context
near, _ = acl.rt.malloc(1 << 20, 0)
assert acl.rt.device_can_access_peer(0, 1) == (1, 0) and acl.rt.device_enable_peer_access(1, 0) == 0
assert acl.rt.memset(far, 1 << 20, 7, 1 << 20) == 0
assert acl.rt.memcpy(near, 1 << 20, far, 1 << 20, 3) == 0
assert set(acl.util.ptr_to_bytes(near, 1 << 20)) == {7}
assert acl.rt.synchronize_stream(stream) == 0 and acl.rt.get_device() == (1, 0)
assert acl.rt.free(far) == acl.rt.free(near) == 0
assert acl.rt.reset_device(1) == 0 and acl.rt.reset_device(1) == 107001
assert acl.rt.get_primary_ctx_state(0) == (1, 0, 0) and acl.rt.get_primary_ctx_state(1) == (0, 0, 0)
assert acl.rt.reset_device(0) == 0 and acl.finalize() == 0
"""


def test_a_program_over_two_devices() -> None:
    environment = {**os.environ, "OPENATC_DEVICES": "2", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


MODELS = """
import sys
import numpy as np
import acl
sys.path[:0] = sys.argv[2:]
from acl_programs import Program, from_device, ok, to_device
program = Program()
models, sets = [], []
for device in (0, 1):
    ok(acl.rt.set_device(device))
    models.append(ok(acl.mdl.load_from_file(sys.argv[1])))
    sets.append(program.datasets(models[-1]))
for device in (1, 0):
    ok(acl.rt.set_device(device))
    inputs, (x,), outputs, (y,) = sets[device]
    to_device(np.full(6, device + 1, np.float32), x)
    ok(acl.mdl.execute(models[device], inputs, outputs))
    assert (from_device(y, (6,)) == -(device + 1)).all()
    assert acl.mdl.execute(models[1 - device], inputs, outputs) == 107004
    assert f"was loaded on device {1 - device}" in acl.get_recent_err_msg()
"""


def test_a_model_runs_on_the_device_where_it_was_loaded(tmp_path: Path) -> None:
    package = negative_model(tmp_path / "m.om")
    environment = {**os.environ, "OPENATC_DEVICES": "2", "PYTHONPATH": str(ROOT)}
    folders = [str(ROOT / "tests" / name) for name in ("acl", "runtime")]
    done = subprocess.run(
        [sys.executable, "-c", MODELS, str(package), *folders], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_device_has_a_limit_of_its_own() -> None:
    contexts = Contexts(lambda: 2)
    space = AddressSpace("test", 1 << 16, devices=2)
    first, second = contexts.create(0), contexts.create(1)
    space.allocate(50_000, "a", first)
    with pytest.raises(DeviceError) as caught:
        space.allocate(50_000, "b", first)
    assert caught.value.code == Code.MEMORY_ALLOCATION
    block = space.allocate(50_000, "c", second)
    assert space.used_of(0) == space.used_of(1) == space.used // 2
    space.free(block.address)
    assert space.used_of(1) == 0
