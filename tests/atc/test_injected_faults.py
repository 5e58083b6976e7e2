"""Ten models times one fault of each kind: how often the right layer and the right pass are named."""

from __future__ import annotations

import pytest

from tests.atc.injected_faults import KINDS, MODELS, clean, outcomes


@pytest.mark.long
def test_faults_in_real_models() -> None:
    """A few places lack a fault (no weight of f32): 5 of 6 kinds in each model at least."""
    found = [o for name in MODELS for o in outcomes(name)]
    assert len(found) >= len(MODELS) * (len(KINDS) - 1)
    wrong = [o for o in found if not o.right_layer]
    assert len(wrong) <= 0.05 * len(found), wrong
    passes = [o for o in found if o.right_pass is not None]
    assert len(passes) > 2 * len(MODELS)
    assert sum(bool(o.right_pass) for o in passes) >= 0.9 * len(passes), [o for o in passes if not o.right_pass]


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_clean_models_raise_nothing(name: str) -> None:
    found = clean(name, taps=True)
    assert found.verdict == "pass", found.first_bad_row
    assert any("bit for bit" in note for note in found.notes)
