"""All real models of list A: convert at the shape for figures, compare every kernel, judge the outputs.

Kernels are compared with onnxruntime without optimisation, outputs with onnxruntime as a user runs it.
"""

from __future__ import annotations

import onnxruntime as ort
import pytest

from acl_runtime import InferSession
from atc import convert
from atc.compare_model import compare_arrays
from atc.comparing.rows import difference
from models import registry

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", registry.names())
def test_convert_and_compare(name, tmp_path):
    try:
        model = registry.get(name)
    except registry.ModelUnavailable as error:
        pytest.skip(str(error))
    feeds, package = registry.inputs(name), tmp_path / "m.om"
    made = convert(model, package, input_shape={key: list(array.shape) for key, array in feeds.items()})
    assert not [node for node in made.aicpu_nodes if "please report" in node["why"]]
    found = compare_arrays(model, package, feeds)
    assert found.verdict == "pass", found.first_bad
    assert all(row.found is not None for row in found.outputs)
    wanted = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, feeds)
    for device, expected in zip(InferSession(0, package).infer(feeds), wanted, strict=True):
        seen = difference(device, expected)
        assert not seen.mismatched
        assert seen.cosine is None or seen.cosine >= (0.999 if registry.spec(name).int8 else 0.99999)
        assert registry.spec(name).int8 or seen.rel_l2 <= 1e-4
