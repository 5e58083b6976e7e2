"""One package with symbolic dims serves every size: right each time, nothing compiled at run time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import atc
from acl_runtime import InferSession
from atc.comparing.rows import difference
from models import registry

pytestmark = pytest.mark.long

SIZES = {
    "bert_base_128": [{"sequence": s} for s in (1, 17, 128, 200, 384)],
    "dddd_ocr": [{"width": w} for w in (64, 160, 333)],
    "ppocrv6_det": [{"height": h, "width": w} for h, w in ((320, 320), (640, 640), (736, 1280))],
    "silero_vad_if": [{}],
    "yolov8n_320": [{"height": 320, "width": 320}, {"height": 256, "width": 448}],
}


@pytest.mark.parametrize("name", SIZES)
def test_every_size_from_one_package(name: str, tmp_path: Path) -> None:
    try:
        model = registry.get(name)
    except registry.ModelUnavailable as error:
        pytest.skip(str(error))
    package = tmp_path / "model.om"
    atc.convert(model, package)
    session = InferSession(0, str(package))
    golden = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for dims in SIZES[name]:
        inputs = registry.inputs(name, **dims)
        for device, expected in zip(session.infer(inputs), golden.run(None, inputs), strict=True):
            found = difference(device, expected)
            assert found.mismatched == 0
            assert found.cosine is None or found.cosine >= 0.99999
            assert found.rel_l2 <= 1e-4, (dims, found)
            assert np.isfinite(found.rel_l2)
    assert session.compiled_at_run == 0
