"""Every tensor of every model of list A: inferred dtype and shape against onnxruntime, at two settings of the dims."""

from __future__ import annotations

import pytest

from models import registry
from tests.frontend.check_shapes import check_listed

DECIDED_BY_DATA = {"silero_vad_if", "moe_sparse"}
"""The sampling rate chooses between networks of different shapes; each expert gets as many tokens as it gets."""


@pytest.mark.long
@pytest.mark.parametrize("name", registry.names())
def test_shapes(name):
    try:
        found = check_listed(name)
    except registry.ModelUnavailable as error:
        pytest.skip(str(error))
    assert found.compared and not found.wrong
    if name not in DECIDED_BY_DATA:
        assert not found.open
