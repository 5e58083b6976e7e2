"""The plain form of `atc convert` is read by the table of options as by typer, which reads everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atc import cli, run_conversion
from atc.plain_convert import plain_convert

PLAIN = [
    "m.onnx",
    "m.onnx -o p.om",
    "--output=p.om m.onnx --soc_version Ascend910B2,Ascend310P3",
    "m.onnx --soc-version=Ascend310P3 --json",
    "m.onnx -q -v --verify_ir",
    "m.onnx --disable-pass fuse-gelu --disable_pass=fuse-norms --input_shape=x:1,3;y:-1",
    "m.onnx --precision_mode_v2=origin --oo_constant_folding=false",
    "m.onnx --op_debug_level 0 --buffer_optimize=l2_optimize",
]
OTHER = [
    "", "--help", "m.onnx -h", "m.onnx n.onnx", "m.onnx --no_such=1", "m.onnx --sign", "m.onnx -o", "m.onnx -op.om",
    "m.onnx -qv", "m.onnx --json=1", "m.onnx --verify_ir=1", "m.onnx -o a -o b", "-- m.onnx", "m.onnx --sign --json",
]  # fmt: skip


@pytest.mark.parametrize("line", PLAIN)
def test_both_read_the_same(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def noted(model: Path, output: Path | None, options: Any, json: bool, **how: bool) -> int:
        calls.append((model, output, options, options.command_line, options.notes, json, how))
        return 0

    monkeypatch.setattr(run_conversion, "run_conversion", noted)
    monkeypatch.setattr("atc.convert_command.run_conversion", noted)
    words = ["convert", *line.split()]
    plain = plain_convert(words)
    assert plain is not None
    assert plain.run() == cli.run_command(words, plain.json) == 0
    assert calls[0] == calls[1]


@pytest.mark.parametrize("line", OTHER)
def test_what_is_not_plain_is_left_to_typer(line: str) -> None:
    assert plain_convert(["convert", *line.split()]) is None


def test_only_conversions_are_read() -> None:
    assert plain_convert([]) is None
    assert plain_convert(["run", "m.onnx"]) is None
