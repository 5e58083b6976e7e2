"""Programs written for ais_bench's interface and for aclruntime, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from acl_programs import dynamic_model, static_model

import aclruntime
from acl._process import memory
from ais_bench.infer.interface import InferSession, MemorySummary, MultiDeviceSession

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)


def expected(x: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
    return [np.tanh(np.exp(x.astype(np.float64))), x + w]


def assert_close(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


def test_infer_and_descriptions(tmp_path: Path) -> None:
    with InferSession(0, static_model(tmp_path / "m.om")) as session:
        first = session.get_inputs()[0]
        assert (first.name, first.shape, first.size, first.realsize) == ("x", [4, 3], 48, 48)
        assert first.datatype is aclruntime.dtype.float32
        assert [t.name for t in session.get_outputs()] == ["y", "z"]
        assert_close(session.infer([X, W]), expected(X, W))
        assert_close(session.infer([X.T.copy().T, W]), expected(X, W))  # not contiguous
        session.set_loop_count(3)
        session.reset_summaryinfo()
        session.infer([X, W])
        times = session.summary().exec_time_list
        assert len(times) == 3 and all(end > begin for begin, end in times)


def test_tensors_stay_on_the_device_until_asked_for(tmp_path: Path) -> None:
    with InferSession(0, static_model(tmp_path / "m.om")) as session:
        y, z = session.infer([X, W], out_array=False)
        with pytest.raises(RuntimeError, match="to_host"):
            np.array(z)
        assert z.type is aclruntime.memory_device
        z.to_host()
        np.testing.assert_allclose(np.array(z), X + W, rtol=1e-6)


def test_memory_goes_with_its_tensors(tmp_path: Path) -> None:
    with InferSession(0, static_model(tmp_path / "m.om")) as session:
        before = memory().device.used
        for _ in range(5):
            session.infer([X, W])
        assert memory().device.used == before


def test_pipeline_and_iteration(tmp_path: Path) -> None:
    with InferSession(0, static_model(tmp_path / "m.om")) as session:
        feeds = [[X * k, W] for k in range(4)]
        for got, (x, w) in zip(session.infer_pipeline(feeds), feeds, strict=True):
            assert_close(got, expected(x, w))
        # x becomes z = x + w again and again, w stays
        y, z = session.infer_iteration([X, W], [1, -1], iteration_times=3)
        np.testing.assert_allclose(z, X + W + W + W, rtol=1e-5)
        with pytest.raises(RuntimeError, match="in_out_list"):
            session.infer_iteration([X, W], [2, -1], 2)
        with pytest.raises(RuntimeError, match="feeds given"):
            session.infer_pipeline([[X]])


def test_dynamic_shapes(tmp_path: Path) -> None:
    with InferSession(0, dynamic_model(tmp_path / "m.om")) as session:
        assert session.get_inputs()[0].shape == [-1, 3]
        for rows in (2, 50, 7):
            x = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
            np.testing.assert_array_equal(session.infer([x], "dymshape")[0], -x)
            assert session.get_inputs()[0].realsize == 12 * rows
        with pytest.raises(RuntimeError, match="145021"):
            session.infer([np.zeros((51, 3), np.float32)], "dymshape")
        with pytest.raises(RuntimeError, match="does not fit"):
            session.infer([np.zeros((4, 4), np.float32)], "dymshape")
        with pytest.raises(RuntimeError, match="bytes, set were 11"):
            session.infer([np.zeros((2, 3), np.float32)], "dymshape", custom_sizes=11)


@pytest.mark.parametrize(
    ("feeds", "mode", "words"),
    [([X], "static", "feeds given"), ([X.astype(np.float64), W], "static", "float64"), ([X, "w"], "static", "type str"),
     ([X, W], "dynshape", "no mode"), ([X, W], "dymbatch", "static"), ([X[:2], W], "static", "48 bytes, got 24")],
)  # fmt: skip
def test_what_does_not_fit_is_a_runtime_error(tmp_path: Path, feeds: list[object], mode: str, words: str) -> None:
    with InferSession(0, static_model(tmp_path / "m.om")) as session, pytest.raises(RuntimeError, match=words):
        session.infer(feeds, mode)


@pytest.mark.parametrize(
    "arguments", [(256, "m.om"), ("0", "m.om"), (0, "absent.om"), (0, "m.om", "absent.json"), (0, "m.om", None, False, 0)]
)
def test_arguments_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    static_model(tmp_path / "m.om")
    with pytest.raises(RuntimeError):
        InferSession(*arguments)


def test_several_sessions_on_a_device(tmp_path: Path) -> None:
    many = MultiDeviceSession(str(static_model(tmp_path / "m.om")))
    feeds = [[X, W], [W, X]]
    found = many.infer({0: feeds})
    for got, (x, w) in zip(found[0], feeds, strict=True):
        assert_close(got, expected(x, w))
    assert len(many.summary()[0]) == 2


def test_times_of_copies(tmp_path: Path) -> None:
    MemorySummary.reset()
    with InferSession(0, static_model(tmp_path / "m.om")) as session:
        session.infer([X, W])
    assert len(MemorySummary.get_h2d_time_list()) == len(MemorySummary.get_d2h_time_list()) == 2


def test_batches_of_tensors() -> None:
    tensors = [aclruntime.Tensor(X), aclruntime.Tensor(W)]
    np.testing.assert_array_equal(np.array(aclruntime.batch(tensors)), np.stack([X, W]))
    np.testing.assert_array_equal(np.array(aclruntime.batch(tensors, True)), np.concatenate([X, W]))
    with pytest.raises(RuntimeError, match="no batch"):
        aclruntime.batch([tensors[0], aclruntime.Tensor(X[:2])])
