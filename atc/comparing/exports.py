"""Files of a comparison for machines: our rows as CSV, msit's columns, JUnit for CI."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from acl_runtime.om.replace_file import replace_file
from atc.comparing.rows import Comparison, Difference
from atc.writing import writing

_COLUMNS = ("source", "kernel", "dtype", "state", "cosine", "rel_l2", "max_abs", "isolated", "floor", "verdict", "note")
_METRICS = ("CosineSimilarity", "MaxAbsoluteError", "AccumulatedRelativeError", "RelativeEuclideanDistance",
            "KullbackLeiblerDivergence", "StandardDeviation", "MeanAbsoluteError", "RootMeanSquareError",
            "MaxRelativeError", "MeanRelativeError")  # fmt: skip
_MSIT = ("Index", "OpType", "NPUDump", "DataType", "Address", "GroundTruth", "DataType", "TensorIndex", "Shape",
         "OverFlow", *_METRICS, "CompareFailReason", "IsNpuOps", "IsOutputNode", "IsPrecisionError")  # fmt: skip
_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_csv(path: Path, found: Comparison, flag: str = "--csv") -> None:
    """One line a source tensor; PackageError if the file cannot be written."""

    def lines() -> Iterable[Sequence[Any]]:
        for row in found.rows:
            record: Mapping[str, Any] = {
                **row.as_dict(), "isolated": _rel_l2(row.isolated), "floor": _rel_l2(row.floor)
            }  # fmt: skip
            yield [record[name] for name in _COLUMNS]

    _write(path, flag, _COLUMNS, lines())


def write_msit_csv(path: Path, found: Comparison, flag: str = "--msit_csv") -> None:
    """The compared rows under msit's column names, by its formulas. Needs rows with details."""
    outputs = {r.source for r in found.outputs}

    def lines() -> Iterable[Sequence[Any]]:
        for number, row in enumerate(r for r in found.rows if r.found is not None):
            detail = row.detail
            shape = "*" if detail is None else list(detail.shape)
            metrics = [math.nan] * len(_METRICS) if detail is None else [detail.msit[m] for m in _METRICS]
            wrong = row.verdict == "fail"
            yield [number, row.kernel or "Data", row.holder, row.dtype, "NaN", row.source, row.dtype,
                   f"{row.source}:output:0", shape, "NaN" if detail is None else detail.overflow,
                   *("NaN" if isinstance(m, float) and math.isnan(m) else m for m in metrics),
                   row.note if wrong else "", "NO", "YES" if row.source in outputs else "NO",
                   "YES" if wrong else "NO"]  # fmt: skip

    _write(path, flag, _MSIT, lines())


def write_junit(
    path: Path, found: Comparison, name: str, about: Mapping[str, str], flag: str = "--junit"
) -> None:  # fmt: skip
    """A test case a compared tensor: failed where its verdict is fail, an error where nothing could judge it.

    `about` becomes properties of the suite.
    """
    cases = [r for r in (*found.rows, *found.outputs) if r.found is not None or r.verdict != "pass"]
    suite = ElementTree.Element("testsuite", name=_text(name), tests=str(len(cases)), skipped="0")
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in about.items():
        ElementTree.SubElement(properties, "property", name=key, value=_text(value))
    counts = {"failures": 0, "errors": 0}
    outputs = set(map(id, found.outputs))
    for row in cases:
        kind = "output" if id(row) in outputs else "layer"
        case = ElementTree.SubElement(suite, "testcase", classname=f"{_text(name)}.{kind}", name=_text(row.source))
        if row.verdict not in ("fail", "unknown"):
            continue
        failed = row.verdict == "fail"
        counts["failures" if failed else "errors"] += 1
        message = row.note or f"relative L2 {_rel_l2(row.found)}"
        tag = ElementTree.SubElement(case, "failure" if failed else "error", message=_text(message))
        tag.text = _text(str(row.as_dict()))
    for key, count in counts.items():
        suite.set(key, str(count))
    with writing(flag), replace_file(path) as file:
        file.write(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _write(path: Path, flag: str, columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    with writing(flag), replace_file(path) as binary:
        file = io.TextIOWrapper(binary, encoding="utf-8", newline="")
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(lines)
        file.detach()  # flushed, and still the file's owner's to close


def _text(words: str) -> str:
    """Without the characters that XML cannot hold."""
    return _NOT_IN_XML.sub("?", words)


def _rel_l2(found: Difference | None) -> float | None:
    return None if found is None else found.rel_l2
