"""Segments at run time, on hand-written packages: sizes, memory, branches that do not run, and damaged plans."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import packages
import pytest
from packages import elementwise, host, kernel, write

from acl_runtime import InferSession, segment_runs
from graph_opt.plan import AliasRecord, GuardedRequirement, Scheduled, ValueInfo
from tensor_types.dims import dim
from tensor_types.dtypes import BOOL, F32, I64, STR
from tensor_types.errors import OpenAtcError
from tensor_types.formats import channels_last

U = dim("u0")
# A late size may be 0.
NEG = elementwise(["neg"]).replace("d0 in [1, inf]", "d0 in [0, inf]")
MUL = elementwise(["mul"], 2).replace("d0 in [1, inf]", "d0 in [0, inf]")
LATE = {"u0": (0, 300)}


def f32(name: str, *shape: Any, kind: str = "temporary", **more: Any) -> ValueInfo:
    return ValueInfo(name, F32, shape, kind, **more)


def compressed(path: Path) -> Path:
    """y, z = -kept, kept * -kept of the elements `kept` of x [300] whose `keep` is true; w = -x."""
    values = [
        f32("x", 300, kind="input"), ValueInfo("keep", BOOL, (300,), "input"), f32("w", 300), f32("kept", U),
        f32("y", U), f32("t", U), f32("z", U),
    ]  # fmt: skip
    records = [
        kernel(NEG, ["x"], "w", 300), host("Compress", ["x", "keep"], ["kept"], axis=0), kernel(NEG, ["kept"], "y", U),
        kernel(MUL, ["kept", "y"], "t", U), kernel(NEG, ["t"], "z", U),
    ]  # fmt: skip
    write(path, values, records, ["x", "keep"], ["y", "z", "w", "kept"], late_dims=LATE)
    return path


def given(count: int) -> list[np.ndarray]:
    keep = np.zeros(300, bool)
    keep[np.random.default_rng(count).permutation(300)[:count]] = True
    return [np.random.default_rng(count + 1).normal(size=300).astype(np.float32), keep]


@pytest.mark.parametrize("threads", [1, 2])
def test_every_size(tmp_path: Path, threads: int) -> None:
    session = InferSession(0, compressed(tmp_path / "m.om"), threads)
    for count in (5, 0, 300, 1, 64, 65, 127, 5):
        x, keep = given(count)
        y, z, w, kept = session.infer([x, keep])
        for found, expected in ((y, -x[keep]), (z, x[keep] ** 2), (w, -x), (kept, x[keep])):
            np.testing.assert_array_equal(found, expected)
    assert session.output_shapes([(300,), (300,)]) == [None, None, (300,), None]
    assert [t.device for t in session.profile(given(7)).tasks] == ["AI Core", "AI CPU", "AI Core", "AI Core", "AI Core"]


def test_results_are_the_callers_own(tmp_path: Path) -> None:
    """A tensor that is a result and is passed on is not written by later runs."""
    session = InferSession(0, compressed(tmp_path / "m.om"))
    x, keep = given(40)
    first = session.infer([x, keep])
    session.infer([-x, keep])
    np.testing.assert_array_equal(first[3], x[keep])
    np.testing.assert_array_equal(first[0], -x[keep])


def test_states_and_arenas_are_used_again(tmp_path: Path) -> None:
    session = InferSession(0, compressed(tmp_path / "m.om"))
    for count in (300, 10, 20):
        session.infer(given(count))
    states = [s for segment in session._runs.segments for s in segment.free]
    arenas = {a.ctypes.data for a in session._runs.arenas.free}
    gc.collect()
    for count in range(30):
        session.infer(given(count))
    assert [s for segment in session._runs.segments for s in segment.free] == states and len(states) == 2
    assert {a.ctypes.data for a in session._runs.arenas.free} == arenas and len(arenas) == 1


def test_kept_tensors_of_all_segments(tmp_path: Path) -> None:
    session = InferSession(0, compressed(tmp_path / "m.om"), keep=True)
    x, keep = given(33)
    session.infer([x, keep])
    assert set(session.tensor_names()) == {"x", "keep", "w", "kept", "y", "t", "z"}
    np.testing.assert_array_equal(session.read("t"), -(x[keep] ** 2))
    np.testing.assert_array_equal(session.read("kept"), x[keep])


def test_an_object_is_no_view_of_the_arena(tmp_path: Path) -> None:
    """Reshape on the AI CPU gives a view; the bytes of its operand are another tensor's by the time it is read."""
    values = [
        f32("x", 64, kind="input"), ValueInfo("shape", I64, (1,), "input"), f32("a", 64), f32("b", U), f32("c", 64),
        f32("y", 64), f32("z", U),
    ]  # fmt: skip
    records = [
        kernel(NEG, ["x"], "a", 64),
        host("Reshape", ["a", "shape"], ["b"]),
        kernel(MUL, ["x", "x"], "c", 64),
        kernel(NEG, ["c"], "y", 64),
        host("Identity", ["b"], ["z"]),
    ]
    path = tmp_path / "m.om"
    write(path, values, records, ["x", "shape"], ["y", "z"])
    x = np.arange(64, dtype=np.float32)
    y, z = InferSession(0, path).infer([x, np.array([-1])])
    np.testing.assert_array_equal(z, -x)
    np.testing.assert_array_equal(y, -(x**2))


@pytest.mark.parametrize("flag", [True, False])
def test_what_a_branch_that_does_not_run_would_decide(tmp_path: Path, flag: bool) -> None:
    """The late tensor is not made, its kernel does not run, and the other branch gives the result."""
    on, off = (("flag", 1),), (("flag", 0),)
    text = elementwise(["neg"], symbolic=False, size=1)
    values = [
        f32("x", 300, kind="input"), ValueInfo("keep", BOOL, (300,), "input"), ValueInfo("flag", BOOL, (), "input"),
        f32("kept", U), f32("n", U), f32("total"), f32("one", 1, kind="input"), f32("y", 1),
    ]  # fmt: skip
    records = [
        Scheduled(host("Compress", ["x", "keep"], ["kept"], axis=0).record, on),
        kernel(NEG, ["kept"], "n", U, guards=on),
        Scheduled(host("ReduceSum", ["n"], ["total"], keepdims=0, noop_with_empty_axes=0).record, on),
        kernel(text, ["total"], "y", None, guards=on),
        kernel(text, ["one"], "y", None, guards=off),
    ]
    path = tmp_path / "m.om"
    write(path, values, records, ["x", "keep", "flag", "one"], ["y"], late_dims=LATE)
    session = InferSession(0, path)
    for count in (9, 0, 300):
        x, keep = given(count)
        (y,) = session.infer([x, keep, np.array(flag), np.float32([5])])
        np.testing.assert_allclose(y, [x[keep].sum() if flag else -5], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_demand_of_a_branch_counts_when_the_branch_runs(tmp_path: Path, threads: int) -> None:
    """`kept` must have 60 elements where it is multiplied with `sixty`; the branch that does not run may have any."""
    on, off = (("flag", 1),), (("flag", 0),)
    values = [
        f32("x", 300, kind="input"), ValueInfo("keep", BOOL, (300,), "input"), ValueInfo("flag", BOOL, (), "input"),
        f32("sixty", 60, kind="input"), f32("kept", U), f32("y", 60),
    ]  # fmt: skip
    static = elementwise(["mul"], 2, symbolic=False, size=60)
    negative = elementwise(["neg"], symbolic=False, size=60)
    records = [
        host("Compress", ["x", "keep"], ["kept"], axis=0),
        kernel(static, ["kept", "sixty"], "y", None, guards=on),
        kernel(negative, ["sixty"], "y", None, guards=off),
    ]
    path = tmp_path / "m.om"
    requirements = [GuardedRequirement(U, 60, "equal", "product", on)]
    write(path, values, records, ["x", "keep", "flag", "sixty"], ["y"], late_dims=LATE, requirements=requirements)
    session = InferSession(0, path, threads)
    sixty = np.arange(60, dtype=np.float32)
    for count in (60, 7, 0, 300, 60):
        x, keep = given(count)
        np.testing.assert_array_equal(session.infer([x, keep, np.array(False), sixty])[0], -sixty)
        if count == 60:
            np.testing.assert_array_equal(session.infer([x, keep, np.array(True), sixty])[0], x[keep] * sixty)
            continue
        for _ in range(2):
            with pytest.raises(OpenAtcError, match=rf"u0 = {count} and 60 \[node product\]"):
                session.infer([x, keep, np.array(True), sixty])


def test_strings_and_physical_formats_are_passed_on(tmp_path: Path) -> None:
    nhwc = channels_last(4)
    values = [
        f32("x", 2, 3, 4, 5, kind="input"), ValueInfo("s", STR, (2,), "input"), f32("f", 2, 3, 4, 5, format=nhwc),
        ValueInfo("t", STR, (2,)), ValueInfo("keep", BOOL, (2,), "input"), f32("kept", U, 3, 4, 5, format=nhwc),
        f32("y", U, 3, 4, 5, format=nhwc), f32("plain", U, 3, 4, 5), f32("both", 120), f32("z", 120),
        ValueInfo("w", STR, (2,)),
    ]  # fmt: skip
    records = [
        host("Identity", ["x"], ["f"]),
        host("Identity", ["s"], ["t"]),
        host("Compress", ["f", "keep"], ["kept"], axis=0),
        kernel(NEG, ["kept"], "y", 60 * U),
        host("Identity", ["y"], ["plain"]),
        Scheduled(AliasRecord("both", "x", "view")),
        kernel(NEG, ["both"], "z", 120),
        host("Identity", ["t"], ["w"]),
    ]
    path = tmp_path / "m.om"
    write(path, values, records, ["x", "s", "keep"], ["plain", "z", "w"], late_dims=LATE)
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)
    session = InferSession(0, path)
    for keep in ([True, False], [False, False], [True, True]):
        plain, z, w = session.infer([x, np.array(["a", "b"], object), np.array(keep)])
        np.testing.assert_array_equal(plain, -x[np.array(keep)])
        np.testing.assert_array_equal(z, -x.reshape(-1))
        assert w.tolist() == ["a", "b"]


def _value(plan: Any, segment: int, name: str) -> dict[str, Any]:
    return next(v for v in plan["segments"][segment]["values"] if v["name"] == name)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p["segments"][1]["sources"].pop(),
        lambda p: p["segments"][1]["sources"].__setitem__(0, [1, 99]),
        lambda p: p["segments"][1]["sources"].__setitem__(0, [0, 0]),
        lambda p: p["segments"][1]["sources"].__setitem__(0, [2, 0]),
        lambda p: p["segments"][1]["sources"].__setitem__(0, [3, 0]),
        lambda p: p["segments"][0]["sources"].reverse(),
        lambda p: p["segments"].reverse(),
        lambda p: p["segments"].pop(),
        lambda p: p["segments"].clear(),
        lambda p: p.pop("outputs"),
        lambda p: p["outputs"].__setitem__(0, [0, 0]),
        lambda p: p["outputs"].__setitem__(0, [2, 7]),
        lambda p: p["segments"][1]["dims"].__setitem__("u0", [0, 3]),
        lambda p: p["segments"][1]["dims"].update(u9=[0, 3]) or _value(p, 1, "kept").__setitem__("shape", ["u9*u9"]),
        lambda p: _value(p, 1, "kept").__setitem__("shape", ["2*u0"]),
        lambda p: _value(p, 1, "kept").__setitem__("dtype", "f64"),
        lambda p: _value(p, 1, "z").__setitem__("place", ["object", 0, 0]) or p["segments"][1].update(objects=1),
        lambda p: p["segments"][1]["requirements"].append(["u0", 3, "equal", "n", None]),
        lambda p: p["segments"][1]["requirements"].append(["u0", 3, "equal", "n", [0, 1]]),
    ],
)
def test_damaged_links_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], object]
) -> None:
    honest = packages.model_to_json

    def damaged(planned: Any) -> dict[str, Any]:
        plan = honest(planned)
        change(plan)
        return plan

    monkeypatch.setattr(packages, "model_to_json", damaged)
    with pytest.raises(OpenAtcError):
        InferSession(0, compressed(tmp_path / "m.om")).infer(given(20))


def test_bindings_are_told_apart_by_which_sizes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """In branches another size may be the known one, with the same value."""

    class Binder:
        def __init__(self, segment: object) -> None:
            pass

        def bind(self, dims: dict[str, int], threads: int, keep: bool) -> SimpleNamespace:
            return SimpleNamespace(dims=dict(dims))

    monkeypatch.setattr(segment_runs, "Binder", Binder)
    plan = SimpleNamespace(values=[], inputs=[], dims={"n": (1, None), "u0": (0, None), "u1": (0, None)})
    runs = segment_runs.SegmentRuns(
        SimpleNamespace(plan=plan), SimpleNamespace(threads=1), segment_runs.Arenas(), False  # type: ignore[arg-type]
    )  # fmt: skip
    assert runs.bind((), {"n": 5, "u0": 3}).dims == {"n": 5, "u0": 3}  # type: ignore[attr-defined]
    assert runs.bind((), {"n": 5, "u1": 3}).dims == {"n": 5, "u1": 3}  # type: ignore[attr-defined]
