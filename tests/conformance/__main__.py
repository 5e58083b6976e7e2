"""python -m tests.conformance [--filter x] [--json F]: counts and reasons over the ONNX backend tests."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from tests.conformance.model_cases import load_model_cases
from tests.conformance.node_cases import Outcome, chosen, expected_failures, load_cases, run_case


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--filter", help="part of a name, or a pattern with wildcards")
    parser.add_argument("--json", type=Path, help="file for all outcomes, a line each as they come")
    parser.add_argument("--names", action="store_true", help="print every case that did not pass")
    parser.add_argument("--part", default="1/1", help="i/n: every n-th case, starting with the i-th")
    options = parser.parse_args()
    cases = {name: (lambda case=case: case) for name, case in load_cases().items()} | load_model_cases()
    part, parts = (int(n) for n in options.part.split("/"))
    names = chosen(cases, options.filter)[part - 1 :: parts]
    with tempfile.TemporaryDirectory() as folder:
        outcomes = []
        with ExitStack() as opened:
            lines = opened.enter_context(options.json.open("w")) if options.json else None
            for number, name in enumerate(names, 1):
                outcomes.append(run_case(cases[name](), Path(folder)))
                if lines:  # what is known stays when a run is ended
                    print(json.dumps(asdict(outcomes[-1])), file=lines, flush=True)
                if number % 100 == 0:
                    print(f"{number} of {len(names)}", file=sys.stderr, flush=True)
    print(table(outcomes))
    if options.names:
        for o in outcomes:
            if o.status != "passed":
                print(f"{o.name:50} {o.room:10} {o.reason[:200]}")
    known = expected_failures()
    surprises = [o.name for o in outcomes if (o.status == "passed") == (o.name in known)]
    for name in surprises:
        print(f"{name}: {'passes, but is listed as failing' if name in known else 'fails and is not listed'}")
    return 1 if surprises else 0


def table(outcomes: list[Outcome]) -> str:
    """Counts, then one line per room and reason with an example."""
    counts: dict[str, int] = defaultdict(int)
    reasons: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        counts[outcome.status] += 1
        if outcome.status != "passed":
            # Numbers and names differ from case to case; the reason is what is left.
            reason = re.sub(r"'[^']*'|\[[^\]]*\]|\d+(\.\d+)?(e[+-]?\d+)?", "#", outcome.reason)[:90]
            reasons[outcome.room, reason].append(outcome)
    native = sum(o.status == "passed" and o.native for o in outcomes)
    lines = [", ".join(f"{counts[s]} {s}" for s in ("passed", "failed", "unsupported")) + f"; {native} wholly native"]
    for (room, reason), found in sorted(reasons.items(), key=lambda r: -len(r[1])):
        lines.append(f"{len(found):5} {room:10} {reason}  ({found[0].name})")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
