"""Runs cases in child processes with limits, and says which of them crashed, hung, grew or raised what has no code.

A case is a function of a random generator; its name and number give the generator's seed, so that one can be run alone:
`python -m tests.hostile.child KIND FOLDER SEED FIRST COUNT`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

HANG_SECONDS = 240
"""Wall time of one case, on a machine that does other things as well; `SLOW_SECONDS` is processor time."""
SLOW_SECONDS = 5.0
MEMORY = 1 << 30
"""Bytes that a case may add to what the process held at its most."""
_BATCH = 20_000
"""Cases of one process: long enough that its start does not count and that what leaks is seen."""


@dataclass
class Report:
    """What came of the cases: how many of each outcome, and the findings, each with its seed."""

    kind: str
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return sum(self.outcomes.values())

    def shown(self) -> str:
        rows = [f"{self.kind}: {self.cases} cases, {len(self.findings)} findings"]
        rows += [f"  {count:8} {outcome}" for outcome, count in self.outcomes.most_common(30)]
        alike = Counter(found.partition(": ")[2] for found in self.findings)
        first = {cause: next(f for f in self.findings if f.partition(": ")[2] == cause) for cause in alike}
        rows += [f"  FOUND {count} x {first[cause]}" for cause, count in alike.most_common(40)]
        return "\n".join(rows)


def run(kind: str, count: int, seed: int, folder: Path, batch: int = _BATCH) -> Report:
    """Runs cases 0..count-1 of a kind; a child that dies is a finding, and the next one goes on behind it."""
    report = Report(kind)
    first = 0
    while first < count:
        number = min(batch, count - first)
        with tempfile.NamedTemporaryFile(dir=folder) as progress:
            os.ftruncate(progress.fileno(), 16)
            command = [sys.executable, "-m", "tests.hostile.child", kind, str(folder), str(seed), str(first)]
            child = subprocess.run(
                [*command, str(number), progress.name], capture_output=True, text=True, errors="replace",
                cwd=Path(__file__).parents[2], timeout=min(HANG_SECONDS * number, 1 << 20),
            )  # fmt: skip
            at = int.from_bytes(os.pread(progress.fileno(), 8, 0), "little")
        for line in child.stdout.splitlines():
            if line.startswith("{"):
                found = json.loads(line)
                report.outcomes.update(found.get("outcomes", {}))
                report.findings += found.get("findings", [])
        if child.returncode == 0:
            first += number
            continue
        ended = f"ended with {child.returncode}: {child.stderr[-600:]}"
        report.findings.append(f"{kind} seed {seed} case {at}: {ended}")
        report.outcomes["ended the process"] += 1
        first = at + 1
    return report
