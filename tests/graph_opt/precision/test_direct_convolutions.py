"""--high_precision: every convolution of the package is the sum over its window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import atc
from atc.inspect_package import inspect_package


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = numpy_helper.from_array(np.ones((32, 32, 3, 3), np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1, 1, 1, 1])]
    wire, out = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 32, 28, 28]) for n in "xy")
    path = tmp_path / "m.onnx"
    save(helper.make_model(helper.make_graph(nodes, "g", [wire], [out], [weight]), ir_version=10), path)
    return path


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ({}, "winograd"),
        ({"high_precision": True}, "conv"),
        ({"op_select_implmode": "high_precision_for_all"}, "conv"),
        ({"op_select_implmode": "high_performance"}, "winograd"),
    ],
    ids=str,
)
def test_the_flag_reaches_the_kernels(model: Path, tmp_path: Path, flags: dict[str, object], kind: str) -> None:
    package = tmp_path / "m.om"
    atc.convert(model, package, **flags)
    tilings = [layer["tiling"].split()[0] for layer in inspect_package(package)["layers"]
               if layer.get("family") == "conv"]  # fmt: skip
    assert tilings == [kind]
