"""Tilings by node name: the text, what is wrong in it, and a conversion that obeys or refuses them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from codegen.kernels import TilingRefused, read_tilings, tiling_for
from codegen.targets import target

TEXT = """
# products
fc:0: matmul rows=24 columns=16   # hosts
fc:0: matmul_cube rows=32 columns=64 vector=512
act: region elements=128
"""


def test_lines_are_read_by_node_and_target() -> None:
    given = read_tilings(TEXT)
    assert str(tiling_for(given, "fc:0", target("x86-64-v3"))).startswith("matmul rows=24 columns=16 ")
    assert str(tiling_for(given, "fc:0", target("Ascend910B2"))) == "matmul_cube rows=32 columns=64 vector=512"
    assert str(tiling_for(given, "act", target("Ascend310P3"))) == "region elements=128"
    assert tiling_for(given, "other", target("x86-64-v3")) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fc matmul rows=1", "line 1: .* is not `node: tiling`"),
        ("\nfc: matmul rows=1", "line 2: .*needs columns"),
        ("fc: matmull rows=1", "line 1: .*known: "),
        ("a: region elements=5\na: region elements=6", "line 2: a second tiling of a"),
        ("a: matmul rows=5 columns=5\na: region elements=6", "line 2: a second tiling of a"),
    ],
)
def test_a_wrong_line_is_named(text: str, reason: str) -> None:
    with pytest.raises(TilingRefused, match=reason):
        read_tilings(text)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = numpy_helper.from_array(np.ones((20, 30), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")]
    wire = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [50, 20])]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [50, 30])]
    path = tmp_path / "m.onnx"
    save(helper.make_model(helper.make_graph(nodes, "g", wire, out, [weight]), ir_version=10), path)
    return path


def test_a_conversion_obeys(model: Path, tmp_path: Path) -> None:
    import atc
    from atc.inspect_package import inspect_package

    text = "matmul rows=13 columns=16 panels_outside=0 pack=0 widen=0"
    (tmp_path / "t.txt").write_text(f"fc: {text}\n")
    atc.convert(model, tmp_path / "m.om", tiling=tmp_path / "t.txt")
    assert text in json.dumps(inspect_package(tmp_path / "m.om"), default=str)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fcc: matmul rows=13 columns=16", "did you mean fc?"),
        ("fc: region elements=13", "kind matmul, not region"),
        ("fc: matmul rows=13 columns=16 widen=1", "takes halves"),
    ],
)
def test_a_conversion_refuses(model: Path, tmp_path: Path, line: str, message: str) -> None:
    import atc

    (tmp_path / "t.txt").write_text(line)
    with pytest.raises(TilingRefused) as caught:
        atc.convert(model, tmp_path / "m.om", tiling=tmp_path / "t.txt")
    assert message in str(caught.value)
    assert not (tmp_path / "m.om").exists()
