"""A process that has device memory can fork: the space is reserved, not taken."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, acl
assert acl.init() == 0 and acl.rt.set_device(0) == 0
pointer, code = acl.rt.malloc(1 << 20, 0)
assert code == 0
child = os.fork()
if child == 0:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_after_malloc() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
