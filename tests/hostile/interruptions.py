"""A conversion ended at a random moment, by SIGKILL or SIGINT, or by limits of the system: no half file, and the next run
is right. A case is one conversion; its cache is its own, so that compiling and caching are under way as well."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx

from acl_runtime.om import open_package
from tests.hostile.sources import model

ROOT = Path(__file__).parents[2]


def prepare(folder: Path) -> None:
    """The model that is converted."""
    onnx.save(model("branches"), folder / "m.onnx")


def _few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


_LIMITS = {"few files": _few_files, "small files": _small_files}


class Case:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds = 0.0

    def run(self, draw: random.Random) -> str:
        place = self.folder / f"case{os.getpid()}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        kind = draw.choice(["SIGKILL", "SIGKILL", "SIGKILL", "SIGINT", "SIGINT", "SIGTERM", *_LIMITS])
        child = self.start(place, _LIMITS.get(kind))
        if kind not in _LIMITS:
            time.sleep(draw.random() * (self.seconds or 6.0))
            child.send_signal(getattr(signal, kind))
        code = child.wait(timeout=120)
        left = sorted(p.name for p in place.iterdir() if p.name != "cache")
        if "m.om" in left:
            open_package(place / "m.om", verify=True)
        elif code == 0:
            raise AssertionError(f"{kind}: exit code 0 and no package")
        if kind != "SIGKILL" and set(left) - {"m.om"}:
            raise AssertionError(f"{kind}: {left} left behind")
        if kind == "SIGINT" and code not in (0, 130, -signal.SIGINT):  # the last: Python has not begun to listen
            raise AssertionError(f"{kind}: exit code {code}")
        if kind in _LIMITS and code not in (0, 5, 7):
            raise AssertionError(f"{kind}: exit code {code}")
        started = time.monotonic()
        again = self.start(place, None)
        if again.wait(timeout=120):
            raise AssertionError(f"after {kind}: the next conversion ends with {again.returncode}")
        self.seconds = max(time.monotonic() - started, 1.0)
        open_package(place / "m.om", verify=True)
        return f"{kind}, exit code {code}, {'package' if 'm.om' in left else 'no package'}"

    def start(self, place: Path, limits: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "atc", "convert", str(self.folder / "m.onnx"), "-o", str(place / "m.om")],
            cwd=ROOT, env={**os.environ, "OPENATC_CACHE": str(place / "cache")}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=limits, start_new_session=True,
        )  # type: ignore[call-overload]  # fmt: skip
