"""Every chip of the table, once for each of its rows: the programs of the probes fit it and are sound for it.

By default the first chip of each architecture, of which it alone depends what is in a program; the rest is long.
"""

from __future__ import annotations

import numpy as np
import pytest

from codegen.kernels import NotLowerable, lower_node
from codegen.targets import target
from codegen.targets.chip_table import CHIPS
from tests.probes.test_refusals import SAMPLES

_FIRST = {chip.arch: chip.name for chip in reversed(CHIPS)}


@pytest.mark.parametrize(
    "name",
    [pytest.param(c.name, marks=() if c.name in _FIRST.values() else pytest.mark.long) for c in CHIPS],
)
@pytest.mark.parametrize("sample", SAMPLES)
def test_programs_are_lowered_and_verified(sample: str, name: str) -> None:
    given = SAMPLES[sample](np.float16)
    try:
        records = lower_node(given.case.node(given.results), target(name))
    except NotLowerable as refusal:
        assert f"{name} has no" in str(refusal)  # an engine without the dtype, no fault of a kernel
        return
    assert records
