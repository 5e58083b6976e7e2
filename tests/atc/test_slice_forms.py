"""All pairs of starts, ends and steps on an axis whose extent the run decides, native and on the AI CPU."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

import atc
from acl_runtime import InferSession
from tests.atc.small_models import F32, N, array, info, model_of

FAR = 1 << 40
FORMS = list(itertools.product((0, 1, 5, -1, -3, -9, FAR, -FAR), (0, 2, 7, -1, -4, FAR, -FAR), (1, 2, 3, -1, -2, -3)))


def taken(start: int, end: int, step: int, size: int) -> list[int]:
    """Positions by ONNX's text: both bounds are brought into the axis, the end beyond it when walking backwards."""
    start, end = (at + size if at < 0 else at for at in (start, end))
    if step > 0:
        return list(range(min(max(start, 0), size), min(max(end, 0), size), step))
    return list(range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step))


def model(known: bool):
    """x f32 [n, 3] → one slice of every form; with `known` false the bounds are an input of the model."""
    nodes, constants = [], [array("axis", np.array([0], np.int64))]
    for i, form in enumerate(FORMS):
        numbers = [array(f"{k}{i}", np.array([v], np.int64)) for k, v in zip("sep", form, strict=True)]
        constants += numbers
        start = f"s{i}"
        if not known:
            nodes.append(N("Add", [start, "nought"], [f"l{i}"]))
            start = f"l{i}"
        nodes.append(N("Slice", ["x", start, f"e{i}", "axis", f"p{i}"], [f"y{i}"]))
    inputs = [info("x", F32, ["n", 3])] + ([] if known else [info("nought", 7, [1])])
    return model_of(nodes, inputs, [info(f"y{i}", F32, None) for i in range(len(FORMS))], constants)


@pytest.mark.parametrize("known", [True, False])
def test_every_form(known: bool, tmp_path) -> None:
    onnx.save(model(known), tmp_path / "m.onnx")
    result = atc.convert(tmp_path / "m.onnx", tmp_path / "m.om")
    if known:
        assert not result.aicpu_nodes
    session = InferSession(0, tmp_path / "m.om")
    for n in (1, 2, 3, 7, 8, 50):
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        given = {"x": x} if known else {"x": x, "nought": np.zeros(1, np.int64)}
        for form, found in zip(FORMS, session.infer(given), strict=True):
            np.testing.assert_array_equal(found, x[taken(*form, n)], err_msg=f"{form} of {n}")
