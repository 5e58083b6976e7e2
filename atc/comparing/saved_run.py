"""A comparison's measurements as a file, to be judged again with other limits: `--save`, `--recheck`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from acl_runtime.om.replace_file import replace_file
from atc.comparing.details import Detail
from atc.comparing.rows import Difference, Isolated, Measured, Row
from atc.usage import UsageError
from atc.writing import writing
from tensor_types.json_text import parse_json

_KIND = "openatc comparison"


def save_run(path: Path, measured: Sequence[Measured], about: dict[str, str], flag: str = "--save") -> None:
    """The file, whole or not at all. `about` tells of model, package, command and inputs."""
    record = {"kind": _KIND, **about, "samples": [asdict(m) for m in measured]}
    with writing(flag), replace_file(path) as file:
        file.write(json.dumps(record, separators=(",", ":")).encode())


def load_run(path: Path, flag: str = "--recheck") -> tuple[list[Measured], dict[str, str]]:
    """The measurements of a file and what it says about itself. UsageError if it is none."""
    try:
        record = parse_json(path.read_bytes())
        if not isinstance(record, dict) or record.get("kind") != _KIND:
            raise ValueError("it is no saved comparison")
        found = [_measured(sample) for sample in record["samples"]]
        if not found:
            raise ValueError("it holds no sample")
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}", where={"flag": flag},
                         remedy="give a file that --save of this version wrote") from error  # fmt: skip
    return found, {k: str(v) for k, v in record.items() if k not in ("kind", "samples")}


def _measured(record: dict[str, Any]) -> Measured:
    return Measured(
        tuple(_row(r) for r in record["rows"]), tuple(_row(r) for r in record["outputs"]),
        {str(name): tuple(before) for name, before in record["parents"].items()},
        dict(record["top1"]), str(record["sample"]), tuple(record["notes"]),
    )  # fmt: skip


def _row(record: dict[str, Any]) -> Row:
    fields = dict(record)
    alone, detail = fields.pop("alone"), fields.pop("detail")
    if alone is not None:
        alone = Isolated(**{k: _difference(v) if k in ("isolated", "floor", "wide") else v for k, v in alone.items()})
    if detail is not None:
        lists = {k: tuple(detail[k]) for k in ("shape", "worst", "spread")}
        detail = Detail(**{**detail, **lists})
    return Row(**{**fields, "found": _difference(fields["found"]), "alone": alone, "detail": detail})


def _difference(record: dict[str, Any] | None) -> Any:
    return None if record is None else Difference(**record)
