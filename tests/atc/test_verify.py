"""`atc inspect --verify`: a flipped bit of a weight, which loading does not look for, is found."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
from small_models import mlp

from acl_runtime.om import open_package
from atc.conversion import convert


def test_a_flipped_weight_is_found(atc, tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "m.onnx")
    package = tmp_path / "m.om"
    convert(tmp_path / "m.onnx", package)
    assert atc("inspect", package, "--verify")[0] == 0
    weights = bytes(open_package(package).section("weights"))
    content = package.read_bytes()
    assert content.count(weights) == 1
    at = content.index(weights)
    package.write_bytes(content[: at + 5] + bytes([content[at + 5] ^ 1]) + content[at + 6 :])
    assert atc("inspect", package)[0] == 0
    code, out, _ = atc("inspect", package, "--verify", "--json")
    assert code == 3 and "weights" in json.loads(out)["error"]["message"]
