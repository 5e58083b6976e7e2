"""`python -m benchmarks`: times models or probes with every contender in turns; outputs are checked first."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from acl_runtime.machine_peaks import measure_peaks
from atc.benchmarking.case import Case
from atc.benchmarking.contenders import CONTENDERS, MACHINE, REFERENCE
from atc.benchmarking.machine import machine
from atc.benchmarking.rounds import Settings, measure
from atc.benchmarking.worker import CLOCKS
from benchmarks import probe_models, report
from benchmarks.chart import chart
from models import registry

DEFAULT_MODELS = "mobilenetv2,bert_base_128,dddd_ocr,silero_vad_if,ppocrv6_det"


def _arguments(arguments: list[str]) -> argparse.Namespace:
    choices = [name for name in CONTENDERS if name != MACHINE]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--models", help=f"comma-separated names, or all (default: {DEFAULT_MODELS})")
    parser.add_argument(
        "--probes", nargs="?", const="all", help="single kernels instead of models: all, or name prefixes"
    )
    parser.add_argument("--contenders", default="ours,onnxruntime,openvino", help=f"out of {', '.join(choices)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contender")
    parser.add_argument("--slice", type=float, default=30.0, metavar="MS", help="length of a turn, one run at least")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall", help="cpu: for a busy machine, one thread")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="the ratios as an SVG picture")
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.contenders.split(",") if name not in choices]
    if unknown:
        parser.error(f"unknown contenders {', '.join(unknown)}; known: {', '.join(choices)}")
    if parsed.rounds < 1 or parsed.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    if parsed.clock == "cpu" and parsed.threads > 1:
        parser.error("--clock cpu adds up the threads' times; use it with --threads 1")
    return parsed


def _cases(parsed: argparse.Namespace, folder: Path, console: Console) -> Iterator[Case]:
    if parsed.probes:
        prefixes = tuple(parsed.probes.split(","))
        for name in probe_models.names():
            if parsed.probes == "all" or name.startswith(prefixes):
                yield probe_models.make(name, folder)
        if not parsed.models:
            return
    wanted = parsed.models or DEFAULT_MODELS
    for name in registry.names() if wanted == "all" else wanted.split(","):
        try:
            yield Case(name, registry.get(name), registry.inputs(name), int8=registry.spec(name).int8)
        except registry.ModelUnavailable as error:
            console.print(f"{name}: skipped: {error}", highlight=False, markup=False)


def main(arguments: list[str]) -> int:
    """0, or 1 when a contender's outputs were wrong or it failed."""
    parsed = _arguments(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140)
    settings = Settings(parsed.threads, parsed.rounds, parsed.slice / 1e3, parsed.clock)
    result: dict[str, Any] = {"machine": machine(), "settings": asdict(settings), "cases": []}
    with tempfile.TemporaryDirectory() as scratch:
        for case in _cases(parsed, Path(scratch), console):
            print(case.name, file=sys.stderr, flush=True)
            kind = {"class": "int8" if case.int8 else "fp32"}
            result["cases"].append(kind | measure(case, parsed.contenders.split(","), settings))
            if parsed.json:
                parsed.json.write_text(json.dumps(result, indent=1))  # what there is, should the rest not come
    result["geometric_means"] = report.geometric_means(result["cases"])
    result["classes"] = {name: asdict(found) for name, found in report.standings(result["cases"]).items()}
    peak = None
    if any(case["flops"] for case in result["cases"]):
        peak = result["machine"]["peak_gflops"] = measure_peaks(settings.threads).flops / 1e9
    title = f"{settings.threads} thread(s), {settings.clock} clock"
    report.show(title, result["cases"], console, peak)
    if parsed.chart:
        parsed.chart.write_text(chart(f"time as a share of {REFERENCE}'s, {title}", result["cases"]))
    if parsed.json:
        parsed.json.write_text(json.dumps(result, indent=1))
    states = {record["state"] for case in result["cases"] for record in case["contenders"].values()}
    return 1 if states & {"wrong", "failed"} else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
