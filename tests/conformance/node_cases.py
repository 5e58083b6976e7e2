"""The ONNX backend's node tests: loading them, and running one through conversion and runtime."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import pkgutil
import traceback
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case import node as node_package
from onnx.backend.test.case.test_case import TestCase

import atc
from acl_runtime import InferSession
from tensor_types.errors import UnsupportedOperator

ROOT = Path(__file__).resolve().parents[2]
EXPECTED_FAILURES = Path(__file__).with_name("expected_failures.txt")

RANDOM = ("test_bernoulli*", "test_training_dropout*")
"""The expected outputs are one draw of a generator that the standard does not fix: shape and dtype are compared."""

ROOMS = (
    ("acl_runtime/aicpu", "aicpu"), ("acl_runtime", "runtime"), ("codegen/kernels", "kernels"), ("codegen", "codegen"),
    ("graph_opt/ir", "inference"), ("graph_opt/plan", "planner"), ("graph_opt", "passes"), ("frontend", "frontend"),
    ("atc", "driver"),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of a case. `status` is passed, failed or unsupported; `room` is the part of the product at fault."""

    name: str
    status: str
    room: str = ""
    reason: str = ""
    ops: tuple[str, ...] = ()
    native: bool = False
    """Passed, and nothing ran on the AI CPU."""


@cache
def load_cases(modules: tuple[str, ...] | None = None) -> dict[str, TestCase]:
    """Node tests by name, of the given modules of onnx.backend.test.case.node (None: all of them)."""
    if modules is None:
        prefix = f"{node_package.__name__}."
        modules = tuple(m.name.removeprefix(prefix) for m in pkgutil.walk_packages(node_package.__path__, prefix))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for module in modules:
            importlib.import_module(f"{node_package.__name__}.{module}")
    return {case.name: case for case in node_package._NodeTestCases}


def expected_failures() -> dict[str, str]:
    """Name and reason of every case that is known to fail."""
    lines = EXPECTED_FAILURES.read_text().splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#"))
    known = {name: reason for name, reason in pairs}
    if importlib.util.find_spec("PIL") is None:
        images = (name for name in load_cases(("image_decoder",)) if name.startswith("test_image_decoder"))
        known.update(dict.fromkeys(images, "needs Pillow"))
    return known


def run_case(case: TestCase, folder: Path) -> Outcome:
    """Converts the model of a case into `folder`, runs it and compares."""
    ops = tuple(dict.fromkeys(n.op_type for n in case.model.graph.node))
    source, package = folder / "model.onnx", folder / "model.om"
    try:
        source.write_bytes(case.model.SerializeToString())
        result = atc.convert(source, package)
        session = InferSession(0, package)
        for inputs, expected in case.data_sets:
            names = [i.name for i in case.model.graph.input]
            if len(inputs) < len(names):  # weights are listed as inputs
                weights = {i.name for i in case.model.graph.initializer}
                names = [n for n in names if n not in weights]
            given = dict(zip(names, map(_array, inputs), strict=False))
            found = session.infer(given)
            problem = difference(case, expected, found)
            if problem:
                room = "aicpu" if result.aicpu_nodes and not result.kernels else "kernels"
                return Outcome(case.name, "failed", room, problem, ops)
    except UnsupportedOperator as error:
        return Outcome(case.name, "unsupported", _room(error), _line(error), ops)
    except Exception as error:  # whatever a conversion raises is a finding of the report
        return Outcome(case.name, "failed", _room(error), _line(error), ops)
    return Outcome(case.name, "passed", ops=ops, native=not result.aicpu_nodes)


def difference(case: TestCase, expected: Sequence[Any], found: Sequence[Any]) -> str:
    """The first thing that differs beyond the case's tolerances, empty when nothing does."""
    random = any(fnmatch.fnmatch(case.name, pattern) for pattern in RANDOM)
    if len(expected) != len(found):
        return f"{len(found)} outputs, expected {len(expected)}"
    for number, (want, got) in enumerate(zip(expected, found, strict=True)):
        problem = _differs(_array(want), got, case.rtol, case.atol, random)
        if problem:
            return f"output {number}: {problem}"
    return ""


def _differs(want: Any, got: Any, rtol: float, atol: float, random: bool) -> str:
    if want is None or got is None or isinstance(want, list) != isinstance(got, list):
        return "" if want is None and got is None else f"{type(got).__name__}, expected {type(want).__name__}"
    if isinstance(want, list):
        if len(want) != len(got):
            return f"a sequence of {len(got)}, expected {len(want)}"
        pairs = zip(want, got, strict=True)
        return next((p for w, g in pairs if (p := _differs(w, g, rtol, atol, random))), "")
    want, got = np.asarray(want), np.asarray(got)
    if want.dtype.kind in "US":
        want = want.astype(object)
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if random:
        return ""
    if want.dtype.kind in "Ob":
        wrong = want != got
    elif want.dtype.kind in "iuc":
        wrong = ~np.isclose(got, want, rtol=rtol, atol=atol)
    else:
        wide_want, wide_got = want.astype(np.float64), got.astype(np.float64)
        if want.dtype.name == "bfloat16":
            rtol = max(rtol, 2**-6)  # as the backend's own runner: two units in the last place
        wrong = ~np.isclose(wide_got, wide_want, rtol=rtol, atol=atol, equal_nan=True)
    if not np.any(wrong):
        return ""
    first = np.argwhere(wrong)[0]
    at = tuple(int(i) for i in first)
    return f"{int(np.sum(wrong))} of {want.size} differ, at {list(at)} {got[at]} instead of {want[at]}"


def _array(value: Any) -> Any:
    """Test data as the product takes and gives it."""
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    if isinstance(value, list):
        return [_array(v) for v in value]
    if value is None:
        return None
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def _room(error: BaseException) -> str:
    """The room of the innermost frame of the product."""
    while error.__cause__ is not None:
        error = error.__cause__
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(ROOT):
            inside = path.relative_to(ROOT).as_posix()
            for prefix, room in ROOMS:
                if inside.startswith(prefix):
                    return room
    return "elsewhere"


def _line(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"


def chosen(names: Iterable[str], pattern: str | None) -> list[str]:
    """Names that contain `pattern`, or match it when it has wildcards; sorted."""
    if pattern is None:
        return sorted(names)
    glob = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    return sorted(n for n in names if fnmatch.fnmatch(n, glob))
