"""All models of list A for two chips: a chip's instance leaves no more to the AI CPU than the host's; small ones run."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime as ort
import pytest

from acl_runtime import InferSession
from acl_runtime.om import open_package
from acl_runtime.package_layout import chip_instance, section
from atc.conversion import convert
from atc.options import Options
from codegen.targets import target
from codegen.tile.text import parse_program
from codegen.tile.verifier import verify
from models import registry

pytestmark = pytest.mark.long

CHIPS = ("Ascend910B2", "Ascend310P3")
ROUNDING = {"Ascend910B2": 1e-5, "Ascend310P3": 5e-3}
"""Relative L2 error of the outputs: products of the second chip have operands of 11 bits."""
SMALL = ("silero_vad", "silero_vad_if", "ppocr_cls", "moe_dense", "moe_sparse")


def _model(name: str):  # noqa: ANN202
    try:
        return registry.get(name)
    except registry.ModelUnavailable as error:
        pytest.skip(str(error))


def _converted(name: str, path):  # noqa: ANN001, ANN202
    shapes = {key: list(array.shape) for key, array in registry.inputs(name).items()}
    return convert(_model(name), path, Options(input_shape=shapes, soc_version=CHIPS))


@pytest.mark.parametrize("name", registry.names())
def test_every_chip_has_an_instance(name, tmp_path):
    result = _converted(name, tmp_path / "m.om")
    package = open_package(tmp_path / "m.om")
    for chip, verdict in result.chips.items():
        assert len(verdict["aicpu_nodes"]) <= len(result.aicpu_nodes), verdict["aicpu_nodes"]
        assert verdict["estimate_ms"] is None or verdict["estimate_ms"] > 0
        for text in json.loads(bytes(package.section(section(chip_instance(chip), "programs")))):
            verify(parse_program(text), target(chip))


@pytest.mark.parametrize("name", SMALL)
def test_small_models_run_on_every_chip(name, tmp_path):
    _converted(name, tmp_path / "m.om")
    feeds = registry.inputs(name)
    wanted = ort.InferenceSession(str(_model(name)), providers=["CPUExecutionProvider"]).run(None, feeds)
    for chip in CHIPS:
        found = InferSession(0, tmp_path / "m.om", chip=chip).infer(feeds)
        for got, want in zip(found, wanted, strict=True):
            error = np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want.astype(np.float64))
            assert error <= ROUNDING[chip], (chip, error)
