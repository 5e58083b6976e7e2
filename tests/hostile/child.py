"""Cases of one kind in this process, see `children`."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import sys
import time
import traceback
from collections import Counter
from importlib import import_module
from pathlib import Path

from tensor_types.errors import OpenAtcError
from tests.hostile.children import HANG_SECONDS, MEMORY, SLOW_SECONDS

_ADDRESS_SPACE = 24 << 30
_TOLD = 100


def main(kind: str, folder: str, seed: str, first: str, count: str, progress: str = "") -> None:
    if kind != "acl_calls":  # whose device reserves addresses of several times its memory
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    case = import_module(f"tests.hostile.{kind}").Case(Path(folder))
    outcomes: Counter[str] = Counter()
    position = os.open(progress, os.O_WRONLY) if progress else -1
    sys.setrecursionlimit(1000)
    for number in range(int(first), int(first) + int(count)):
        if position >= 0:
            os.pwrite(position, number.to_bytes(8, "little"), 0)
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        name = f"{kind} seed {seed} case {number}"
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        findings = []
        try:
            outcome = case.run(random.Random(f"{seed} {number}"))
        except OpenAtcError as error:
            outcome = error.code
            if error.code == "E19999":
                cause = error.__cause__ or error
                findings.append(f"{name}: {error.message} {_where(cause)}")
        except Exception as error:
            outcome = f"no code: {type(error).__name__}"
            findings.append(f"{name}: {type(error).__name__}: {str(error)[:200]} {_where(error)}")
        faulthandler.cancel_dump_traceback_later()
        if (spent := time.process_time() - started) > SLOW_SECONDS:
            findings.append(f"{name}: {spent:.1f} s ({outcome})")
        if (grown := (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10) > MEMORY:
            findings.append(f"{name}: {grown >> 20} MB more ({outcome})")
        outcomes[outcome] += 1
        if findings:
            print(json.dumps({"findings": findings}), flush=True)
        if number % _TOLD == 0:  # a process that is ended has told most of what it did
            print(json.dumps({"outcomes": outcomes}), flush=True)
            outcomes.clear()
    print(json.dumps({"outcomes": outcomes}), flush=True)
    sys.stdout.flush()
    os._exit(0)


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames[-4:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
