"""Extents that meet and are equal or 1, as the run decides: natively as ONNX broadcasts, others are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import F32, N, array, info, model_of, random

from acl_runtime import InferSession
from atc.conversion import convert
from tensor_types.errors import InvalidModel

PAIRS = [(3, 3), (3, 1), (1, 3), (1, 1), (0, 1), (1, 0), (0, 0)]


def session_of(folder: Path, nodes: list, shapes: dict, constants=()) -> InferSession:  # noqa: ANN001
    """A session for nodes over f32 inputs that give `y`; nothing of it runs on the AI CPU."""
    inputs = [info(name, F32, shape) for name, shape in shapes.items()]
    onnx.save(model_of(nodes, inputs, [info("y", F32, None)], constants), folder / "m.onnx")
    assert not convert(folder / "m.onnx", folder / "m.om").aicpu_nodes
    return InferSession(0, folder / "m.om")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> InferSession:
    """y = relu((x + z) * x - z), in one kernel a case."""
    nodes = [N("Add", ["x", "z"], ["s"], "sum"), N("Mul", ["s", "x"], ["t"]), N("Sub", ["t", "z"], ["u"]),
             N("Relu", ["u"], ["y"])]  # fmt: skip
    return session_of(tmp_path_factory.mktemp("chain"), nodes, {"x": ["a", 4], "z": ["b", 4]})


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_two_extents(chain: InferSession, a: int, b: int) -> None:
    x, z = random(a, 4), random(b, 4, seed=1)
    (found,) = chain.infer([x, z])
    wanted = np.maximum((x + z) * x - z, 0)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_others_are_refused(chain: InferSession) -> None:
    with pytest.raises(InvalidModel, match="a = 3 and b = 2") as caught:
        chain.infer([random(3, 4), random(2, 4)])
    assert caught.value.where["node"] == "sum" and "equal" in (caught.value.remedy or "")


def test_three_extents_of_a_product(tmp_path) -> None:
    """Batches of both operands and of what is added to the product."""
    nodes = [N("MatMul", ["x", "z"], ["p"], "product"), N("Add", ["p", "w"], ["y"], "sum")]
    session = session_of(tmp_path, nodes, {"x": ["a", 3, 4], "z": ["b", 4, 5], "w": ["c", 1, 5]})
    for a, b in PAIRS:
        for c in (1, 3):
            if 0 in (a, b) and c == 3:
                continue
            x, z, w = random(a, 3, 4), random(b, 4, 5, seed=1), random(c, 1, 5, seed=2)
            (found,) = session.infer([x, z, w])
            wanted = x @ z + w
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    with pytest.raises(InvalidModel):
        session.infer([random(1, 3, 4), random(3, 4, 5), random(2, 1, 5)])


def test_an_extent_that_meets_a_number(tmp_path) -> None:
    session = session_of(tmp_path, [N("Add", ["x", "w"], ["y"])], {"x": ["a"]}, [array("w", random(6))])
    for a in (1, 6):
        np.testing.assert_array_equal(session.infer([random(a, seed=1)])[0], random(a, seed=1) + random(6))
    with pytest.raises(InvalidModel):
        session.infer([random(3)])


def test_expand_keeps_what_is_longer_than_its_target(tmp_path) -> None:
    nodes = [N("Shape", ["z"], ["s"]), N("Expand", ["x", "s"], ["y"])]
    session = session_of(tmp_path, nodes, {"x": ["a", 2], "z": ["b", 2]})
    for a, b in PAIRS:
        (found,) = session.infer([random(a, 2), random(b, 2)])
        np.testing.assert_array_equal(found, random(a, 2) * np.ones((b, 1), np.float32))
