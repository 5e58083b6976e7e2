"""Models whose sizes partly only the data decides: native once the sizes are known, and right for every size."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path

import late_models
import numpy as np
import onnx
import onnxruntime
import pytest
from small_models import BOOL, F32, N, array, info, model_of, random

from acl_runtime import InferSession
from acl_runtime.om import open_package
from atc.conversion import convert

OPS = {
    "selected_rows": ["NonZero"],
    "detector": ["SelectedBoxes"],
    "twice": ["Compress", "NonZero"],
    "guarded": ["NonZero"],
    "counted": ["Range"],
    "filled": ["NonZero"],
}
"""What has to run on the AI CPU: operators that decide a size."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Model and package of each small model."""
    folder, made = tmp_path_factory.mktemp("late"), {}
    for name, build in late_models.LATE.items():
        made[name] = (folder / f"{name}.onnx", folder / f"{name}.om")
        onnx.save(build(), made[name][0])
        convert(*made[name])
    return made


def feeds(name: str, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs that lead to `size` rows, boxes or columns (of 20 at most; `detector` and `twice` take it as a seed)."""
    keep = np.zeros(12 if name == "guarded" else 20, bool)
    keep[np.random.default_rng(seed).permutation(len(keep))[:size]] = True
    if name == "selected_rows":
        return {"x": random(20, 16, seed=seed), "keep": keep}
    if name == "detector":
        # Nothing scores above the limit in an image of zeros, whose logits are 0.
        return {"image": random(1, 3, 16, 16, seed=size) * np.float32(size > 0)}
    if name == "twice":
        return {"x": random(20, 6, seed=seed) * np.float32(1 if size else -1) + np.float32(size - 10) / 10}
    if name == "guarded":
        return {"x": random(12, 8, seed=seed), "keep": keep, "flag": np.array(size == 5)}
    if name == "filled":
        return {"x": random(1, 8, seed=seed), "keep": keep}
    return {"count": np.array(size), "x": random(3, 40, seed=seed)}


def assert_like_onnxruntime(
    model: Path, session: InferSession, given: Mapping[str, np.ndarray]
) -> list[tuple[int, ...]]:
    """Outputs within rounding, of the same shapes and dtypes; gives the shapes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    expected = onnxruntime.InferenceSession(str(model), options).run(None, dict(given))
    found = session.infer(dict(given))
    for spec, a, b in zip(session.get_outputs(), found, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), spec.name
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, err_msg=spec.name)
    return [b.shape for b in expected]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", late_models.LATE)
def test_every_size_of_one_session(packages: dict[str, tuple[Path, Path]], name: str, threads: int) -> None:
    model, package = packages[name]
    session = InferSession(0, package, threads)
    assert session.compiled_at_run == 0
    shapes = [
        str(assert_like_onnxruntime(model, session, feeds(name, size, seed)))
        for size, seed in [
            (7, 0),
            (0, 1),
            (1, 2),
            (5, 3),
            (20 if name != "guarded" else 12, 4),
            (7, 5),
            (0, 6),
            (13, 7),
        ]
        if not (name == "guarded" and size not in (0, 5, 7, 12))
    ]
    assert name == "guarded" or len(set(shapes)) > 3


@pytest.mark.parametrize("name", late_models.LATE)
def test_only_what_decides_a_size_runs_on_the_ai_cpu(packages: dict[str, tuple[Path, Path]], atc, name: str) -> None:
    _, package = packages[name]
    code, out, _ = atc("inspect", package, "--json")
    layers = json.loads(out)["layers"]
    assert code == 0
    assert [row["family"] for row in layers if row["engine"] == "AI CPU"] == OPS[name]
    segments = [row["segment"] for row in layers]
    assert segments == sorted(segments) and segments[-1] == len(OPS[name])
    assert [row["task"] for row in layers] == list(range(len(layers)))
    assert all(segments[before] == row["segment"] for row in layers for before in row["after"])
    times = InferSession(0, package).profile(feeds(name, 5), runs=2).tasks
    assert [(t.node, t.device) for t in times] == [(row["node"], row["engine"]) for row in layers]
    assert name == "guarded" or all(t.seconds > 0 for t in times)


@pytest.mark.parametrize("name", late_models.LATE)
def test_compare_looks_into_every_segment(
    packages: dict[str, tuple[Path, Path]], atc, tmp_path: Path, name: str
) -> None:
    model, package = packages[name]
    words = []
    for tensor, value in feeds(name, 5).items():
        np.save(tmp_path / f"{tensor}.npy", value)
        words += ["--input", f"{tensor}={tmp_path / tensor}.npy"]
    code, out, _ = atc("compare", model, package, "--json", *words)
    found = json.loads(out)
    assert code == 0 and found["verdict"] == "pass", found["first_bad"]
    late = {
        "selected_rows": "squared",
        "detector": "found",
        "twice": "shifted",
        "guarded": "product",
        "counted": "scaled",
        "filled": "rows",
    }
    [row] = [r for r in found["layers"] if r["source"] == late[name]]
    assert row["state"] == "compared" and row["rel_l2"] < 1e-5


@pytest.mark.parametrize("name", late_models.LATE)
def test_viewers_see_a_node_for_each_kernel_and_host_task(tmp_path: Path, name: str) -> None:
    onnx.save(late_models.LATE[name](), tmp_path / "m.onnx")
    made = convert(tmp_path / "m.onnx", tmp_path / "m.om")
    shown = open_package(tmp_path / "m.om").graph()
    assert len(shown.nodes) == made.kernels + len(made.aicpu_nodes)
    drawn = {t.name for n in shown.nodes for t in n.outputs} | {t.name for t in shown.inputs}
    drawn |= {c.name for c in shown.constants}
    assert all(name in drawn for n in shown.nodes for name in n.inputs if name)


def test_two_threads_of_one_session_with_different_sizes(packages: dict[str, tuple[Path, Path]]) -> None:
    model, package = packages["selected_rows"]
    session = InferSession(0, package, threads=2)
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for size in range(20):
                assert_like_onnxruntime(model, session, feeds("selected_rows", (size * 7 + seed) % 21, seed))
        except BaseException as problem:
            problems.append(problem)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not problems


def test_output_buffers_of_late_shapes(packages: dict[str, tuple[Path, Path]]) -> None:
    _, package = packages["twice"]
    session = InferSession(0, package)
    given = feeds("twice", 9)
    assert session.output_shapes([(20, 6)]) == [None, ()]
    y, most = session.infer(given)
    target, total = np.full(y.shape, np.nan, np.float32), np.full((), np.nan, np.float32)
    results = session.infer(given, [target, total])
    assert results[0] is target and results[1] is total
    np.testing.assert_array_equal(target, y)
    assert total == most
    with pytest.raises(Exception, match=r"its shape is \[1, 6\], expected"):
        session.infer(given, [np.empty((1, 6), np.float32), None])
    np.testing.assert_array_equal(session.infer(given)[0], y)  # the session lives on


def test_a_late_shape_that_does_not_fit_is_named(packages: dict[str, tuple[Path, Path]]) -> None:
    """Seven kept rows cannot be added to five, as onnxruntime says too; the branch that is not taken may have them."""
    _, package = packages["guarded"]
    given = feeds("guarded", 7)
    with pytest.raises(Exception, match="fit|broadcast|shape"):
        InferSession(0, package).infer({**given, "flag": np.array(True)})


@pytest.mark.parametrize("host", ["x86-64-v2", "x86-64-v3"])
def test_other_classes_run_the_portable_instance(
    packages: dict[str, tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("OPENATC_HOST", host)
    model, package = packages["selected_rows"]
    for size in (0, 3):
        assert_like_onnxruntime(model, InferSession(0, package), feeds("selected_rows", size))


def test_the_same_bytes_again(packages: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    model, package = packages["detector"]
    convert(model, tmp_path / "again.om")
    assert (tmp_path / "again.om").read_bytes() == package.read_bytes()


def test_an_output_without_elements_has_its_late_shape(tmp_path: Path) -> None:
    nodes = [
        N("Split", ["x", "sizes"], ["all", "none"], axis=0),
        N("Compress", ["none", "chosen"], ["picked"], axis=1),
        N("Transpose", ["picked"], ["y"], perm=[1, 0]),
    ]
    constants = [array("sizes", np.array([6, 0]))]
    inputs = [info("x", F32, [6, 5]), info("chosen", BOOL, [5])]
    onnx.save(model_of(nodes, inputs, [info("y", F32, None)], constants), tmp_path / "m.onnx")
    convert(tmp_path / "m.onnx", tmp_path / "m.om")
    chosen = np.array([True, False, True, True, False])
    (y,) = InferSession(0, tmp_path / "m.om").infer({"x": np.ones((6, 5), np.float32), "chosen": chosen})
    assert y.shape == (3, 0) and y.dtype == np.float32


def test_places_in_a_scalar_are_those_of_a_vector_of_one(tmp_path: Path) -> None:
    model = model_of([N("NonZero", ["x"], ["y"], "n")], [info("x", F32, [])], [info("y", onnx.TensorProto.INT64, None)], [])
    onnx.save(model, tmp_path / "m.onnx")
    convert(tmp_path / "m.onnx", tmp_path / "m.om")
    for value in (0, 3):
        assert_like_onnxruntime(tmp_path / "m.onnx", InferSession(0, tmp_path / "m.om"), {"x": np.array(value, np.float32)})
