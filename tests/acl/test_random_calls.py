"""A short run of `random_calls`; a million calls are a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_random_calls_of_four_threads_give_published_codes() -> None:
    program = Path(__file__).parent / "random_calls.py"
    done = subprocess.run(
        [sys.executable, program, "--calls=6000", "--seconds=50"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
