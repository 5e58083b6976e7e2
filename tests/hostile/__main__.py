"""python -m tests.hostile --packages N --models N --programs N --kernels N --acl N --seed S: counts, outcomes, findings.

Exit code 1 if anything was found: a crash, a hang, a case of more than 5 s of processor time or 1 GB, an error without a
code, a difference from the interpreter.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from tests.hostile import children

KINDS = {"packages": "packages", "models": "models", "programs": "programs", "acl": "acl_calls", "aicpu": "aicpu", "files": "files",
         "kernels": "kernels", "commands": "commands", "interruptions": "interruptions"}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    for name in KINDS:
        parser.add_argument(f"--{name}", type=int, default=0, metavar="N", help="cases (of 100 calls for acl)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="printed, so that a run can be repeated")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    found = 0
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    for name, module in KINDS.items():
        if count := getattr(given, name):
            with tempfile.TemporaryDirectory(dir=shared) as folder:
                import_module(f"tests.hostile.{module}").prepare(Path(folder))
                started = time.monotonic()
                report = children.run(module, count, given.seed, Path(folder))
                print(f"{report.shown()}\n  {time.monotonic() - started:.0f} s", flush=True)
                found += len(report.findings)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
