"""A benchmark on several devices: a process for each, and their throughput together."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

_THROUGHPUT = re.compile(r"throughput .*: ([0-9.eE+-]+)$", re.MULTILINE)


def run_on_devices(words: Sequence[str], devices: Sequence[int], folder: str | None) -> int:
    """Runs the command line with each device for itself, at the same time, and prints what they said one behind the
    other. With `--output_dirname` each gets a folder of its own. The exit code of the first that failed, else 0."""
    started = []
    for device in devices:
        line = [*words, "--device", str(device)]  # the last one counts
        if folder:
            line += ["--output_dirname", f"{folder}_{device}"]
        command = [sys.executable, "-m", "ais_bench", *line]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    code, total = 0, 0.0
    rows = []
    for device, process in zip(devices, started, strict=True):
        said, errors = process.communicate()
        print(said, end="", flush=True)
        print(errors, end="", file=sys.stderr, flush=True)
        code = code or process.returncode
        if found := _THROUGHPUT.search(said):
            rows.append(f"[INFO] device_{device} throughput:{found[1]}")
            total += float(found[1])
    print("\n".join([*rows, f"[INFO] summary throughput:{total}"]), flush=True)
    return code
