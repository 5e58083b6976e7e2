"""Sessions on packages with hand-built plans, against numpy."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from packages import BLOCK, elementwise, gather, host, kernel, write

from acl_runtime import InferSession
from acl_runtime.kernels import trust_digest
from acl_runtime.om.trust import record_trusted
from codegen.llvm.compile import compile_program
from codegen.llvm.detect import detect_host_class
from graph_opt.plan import AliasRecord, KernelRecord, Scheduled, TaskOperand, ValueInfo
from tensor_types.dims import dim
from tensor_types.dtypes import BOOL, F32, I64, STR
from tensor_types.errors import EnvironmentProblem, OpenAtcError
from tensor_types.formats import PLAIN, Format, Permute, channels_last

N = dim("n")
EXP_TANH, ADD, NEG, RELU = (
    elementwise(["exp", "tanh"]),
    elementwise(["add"], 2),
    elementwise(["neg"]),
    elementwise(["relu"]),
)


def f32(name: str, *shape: object, kind: str = "temporary", format: Format = PLAIN) -> ValueInfo:
    return ValueInfo(name, F32, shape, kind, format)  # type: ignore[arg-type]


def residual(path: Path) -> Path:
    """y = tanh(exp(x)) + x for x of n by 3, n in 1..1000."""
    values = [f32("x", N, 3, kind="input"), f32("a", N, 3), f32("y", N, 3)]
    records = [kernel(EXP_TANH, ["x"], "a", 3 * N), kernel(ADD, ["a", "x"], "y", 3 * N)]
    write(path, values, records, ["x"], ["y"], dims={"n": (1, 1000)})
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return residual(tmp_path / "model.om")


def expected(x: np.ndarray) -> np.ndarray:
    return np.tanh(np.exp(x.astype(np.float64))) + x


@pytest.mark.parametrize("threads", [1, 2])
def test_infer_by_order_and_by_name_for_many_shapes(model: Path, threads: int) -> None:
    session = InferSession(0, model, threads=threads)
    rng = np.random.default_rng(0)
    for n in (1, 21, 22, 400, 1000, 21):
        x = rng.normal(size=(n, 3)).astype(np.float32)
        kept = x.copy()
        for inputs in ([x], {"x": x}):
            (y,) = session.infer(inputs)
            np.testing.assert_allclose(y, expected(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(x, kept)


def test_outputs_are_fresh_or_the_callers(model: Path) -> None:
    session = InferSession(0, model)
    x = np.ones((4, 3), np.float32)
    (first,), (second,) = session.infer([x]), session.infer([x * 2])
    assert not np.shares_memory(first, second)
    np.testing.assert_allclose(first, expected(x), rtol=1e-5)
    buffer = np.empty((4, 3), np.float32)
    (result,) = session.infer([x * 2], outputs=[buffer])
    assert result is buffer
    np.testing.assert_array_equal(buffer, second)


def test_inputs_that_are_not_contiguous(model: Path) -> None:
    x = np.random.default_rng(1).normal(size=(3, 50)).astype(np.float32).T[::2]
    (y,) = InferSession(0, model).infer([x])
    np.testing.assert_allclose(y, expected(x), rtol=1e-5, atol=1e-6)


def test_a_run_allocates_nothing_new_after_warm_up(model: Path) -> None:
    session = InferSession(0, model)
    x, y = np.ones((500, 3), np.float32), np.empty((500, 3), np.float32)
    for _ in range(3):
        session.infer([x], [y])
    gc.collect()
    arena = session._runs.arenas.free[0].ctypes.data
    states = list(session._runs.segments[0].free)
    for _ in range(20):
        session.infer([x], [y])
    assert list(session._runs.segments[0].free) == states
    assert session._runs.arenas.free[0].ctypes.data == arena


def test_description(model: Path) -> None:
    session = InferSession(0, model)
    (x,), (y,) = session.get_inputs(), session.get_outputs()
    assert (x.name, x.shape, x.dtype) == ("x", ("n", 3), np.float32)
    assert (y.name, y.shape, y.dtype) == ("y", ("n", 3), np.float32)
    assert session.dims == {"n": (1, 1000)}
    assert session.output_shapes([(7, 3)]) == [(7, 3)]
    assert session.arena_bytes([(64, 3)]) == 64 * 3 * 4
    with pytest.raises(OpenAtcError, match="axis 1"):
        session.output_shapes([(7, 4)])


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([np.ones((4, 2), np.float32)], r"axis 1 has size 2, expected 3; got \[4, 2\], expected \[n, 3\] \[tensor x\]"),
        ([np.ones(4, np.float32)], "it has 1 axes, not 2"),
        ([np.ones((0, 3), np.float32)], "at least 1"),
        ([np.ones((1001, 3), np.float32)], "at most 1000"),
        ([np.ones((4, 3))], "got float64, expected float32"),
        ([], "0 inputs given, the model has 1"),
        ({}, "an input is missing"),
        ({"X": np.ones((4, 3), np.float32)}, "no such input .*tensor X.*inputs: x"),
    ],
)
def test_wrong_inputs_are_named(model: Path, inputs: object, text: str) -> None:
    with pytest.raises(OpenAtcError, match=text) as raised:
        InferSession(0, model).infer(inputs)  # type: ignore[arg-type]
    assert raised.value.remedy


def test_wrong_output_buffers_are_named(model: Path) -> None:
    session = InferSession(0, model)
    x = np.ones((4, 3), np.float32)
    frozen = np.ones((4, 3), np.float32)
    frozen.flags.writeable = False
    for buffers in (
        [np.empty((4, 2), np.float32)],
        [np.empty((4, 3))],
        [],
        [np.empty((8, 3), np.float32)[::2]],
        [x],
        [frozen],
    ):
        with pytest.raises(OpenAtcError, match="output"):
            session.infer([x], buffers)


def test_no_device_no_file_no_package(model: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="no device 1"):
        InferSession(1, model)
    with pytest.raises(OpenAtcError, match="cannot open"):
        InferSession(0, tmp_path / "absent.om")
    (tmp_path / "bad.om").write_bytes(b"IMOD" + bytes(1000))
    with pytest.raises(OpenAtcError):
        InferSession(0, tmp_path / "bad.om")


def test_many_threads_use_one_session(model: Path) -> None:
    session = InferSession(0, model)
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            x = rng.normal(size=(int(rng.integers(1, 40)), 3)).astype(np.float32)
            if not np.allclose(session.infer([x])[0], expected(x), rtol=1e-5, atol=1e-6):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_code_comes_from_the_cache_the_second_time(tmp_path: Path) -> None:
    text = elementwise(["exp", "neg", "exp"])
    values, records = [f32("x", N, kind="input"), f32("y", N)], [kernel(text, ["x"], "y", N)]
    for number, compiled in enumerate((1, 0)):
        path = tmp_path / f"{number}.om"
        write(path, values, records, ["x"], ["y"], dims={"n": (1, None)})
        session = InferSession(0, path)
        assert session.compiled_at_run == compiled
        del session
        gc.collect()


def test_only_trusted_objects_of_a_package_are_loaded(tmp_path: Path) -> None:
    """A stranger's object is made again from the text; one that this machine trusts is used as it is."""
    host_class = detect_host_class()
    for number, trusted in enumerate((False, True)):
        text = elementwise(["neg"] * (number + 4))
        code = compile_program(text.encode(), host_class)
        if trusted:
            record_trusted(trust_digest(text, host_class, code))
        path = tmp_path / f"{number}.om"
        values, records = [f32("x", N, kind="input"), f32("y", N)], [kernel(text, ["x"], "y", N)]
        write(path, values, records, ["x"], ["y"], dims={"n": (1, None)}, objects=[code if trusted else b"no object"])
        session = InferSession(0, path)
        assert session.compiled_at_run == (0 if trusted else 1)
        np.testing.assert_array_equal(session.infer([np.ones(3, np.float32)])[0], np.full(3, (-1.0) ** (number + 4)))


def test_sessions_of_one_file_share_the_model(model: Path) -> None:
    first, second = InferSession(0, model), InferSession(0, model, threads=2)
    assert first._model is second._model
    residual(model)  # written again: another file
    assert InferSession(0, model)._model is not first._model


# Constants, formats, aliases, AI CPU tasks


def test_constants_plain_and_packed(tmp_path: Path) -> None:
    """y = relu(-(w transposed)) with w in a kernel form, packed at convert time and at load time."""
    w = np.random.default_rng(2).normal(size=(5, 7)).astype(np.float32)
    form = Format((Permute((1, 0)),))
    values = [f32("w", 5, 7, kind="constant"), f32("a", 7, 5), f32("y", 7, 5), f32("z", 5, 7)]
    packed = TaskOperand("w", "in", packing=form)
    first = KernelRecord(NEG, (packed, TaskOperand("a", "out")), (35,), 1, "neg", "region")
    records = [Scheduled(first), kernel(RELU, ["a"], "y", 35), kernel(RELU, ["w"], "z", 35)]
    for number, at_convert in enumerate((True, False)):
        path = tmp_path / f"{number}.om"
        write(path, values, records, [], ["y", "z"], constants={"w": w}, packed=at_convert)
        y, z = InferSession(0, path).infer([])
        np.testing.assert_array_equal(y, np.maximum(-w.T, 0))
        np.testing.assert_array_equal(z, np.maximum(w, 0))


def test_host_tasks_see_logical_tensors(tmp_path: Path) -> None:
    """Native, host, native, with a channels-last tensor between: the host gets and gives logical order."""
    shape, nhwc = (2, 3, 4, 5), channels_last(4)
    values = [
        f32("x", *shape, kind="input"), f32("a", *shape, format=nhwc), f32("b", *shape, format=nhwc),
        f32("c", 2, 5, 4, 3), f32("y", 2, 5, 4, 3), f32("view", 120),
    ]  # fmt: skip
    records = [
        host("Identity", ["x"], ["a"]),
        kernel(NEG, ["a"], "b", 120),
        host("Transpose", ["b"], ["c"], perm=[0, 3, 2, 1]),
        Scheduled(AliasRecord("view", "c", "reshape")),
        kernel(RELU, ["view"], "y", 120),
    ]
    path = tmp_path / "m.om"
    write(path, values, records, ["x"], ["y", "view"])
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    for threads in (1, 2):
        y, view = InferSession(0, path, threads=threads).infer([x])
        wanted = -x.transpose(0, 3, 2, 1)
        np.testing.assert_array_equal(view, wanted.reshape(-1))
        np.testing.assert_array_equal(y, np.maximum(wanted, 0))


def test_late_tensors_and_strings_are_objects(tmp_path: Path) -> None:
    values = [
        f32("x", 6, kind="input"), ValueInfo("s", STR, (2,), "input"), f32("a", 6),
        ValueInfo("i", I64, (1, dim("u0"))), ValueInfo("t", STR, (2,)),
    ]  # fmt: skip
    records = [kernel(RELU, ["x"], "a", 6), host("NonZero", ["a"], ["i"]), host("Identity", ["s"], ["t"])]
    path = tmp_path / "m.om"
    write(path, values, records, ["x", "s"], ["i", "t"])
    session = InferSession(0, path)
    words = np.array(["ab", "c"], object)
    for x in ([1, -1, 2, -2, 3, -3], [-1] * 6, [1] * 6):
        i, t = session.infer([np.array(x, np.float32), words])
        np.testing.assert_array_equal(i, np.array([[n for n, v in enumerate(x) if v > 0]], np.int64))
        assert t.tolist() == ["ab", "c"]


def test_outputs_that_no_task_writes(tmp_path: Path) -> None:
    """A model input, a constant and another output as outputs."""
    w = np.arange(6, dtype=np.float32)
    values = [f32("x", 2, 3, kind="input"), f32("w", 6, kind="constant"), f32("v", 3, 2), f32("y", 6), f32("z", 2, 3)]
    records = [
        Scheduled(AliasRecord("v", "x", "r")),
        kernel(NEG, ["x"], "y", 6),
        Scheduled(AliasRecord("z", "y", "r")),
    ]
    path = tmp_path / "m.om"
    write(path, values, records, ["x"], ["v", "w", "y", "z"], constants={"w": w})
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    v, got, y, z = InferSession(0, path).infer([x])
    np.testing.assert_array_equal(v, x.reshape(3, 2))
    assert not np.shares_memory(v, x)
    np.testing.assert_array_equal(got, w)
    np.testing.assert_array_equal(y, -x.reshape(-1))
    np.testing.assert_array_equal(z, -x)


@pytest.mark.parametrize("threads", [1, 2])
def test_models_without_tasks_and_without_elements(tmp_path: Path, threads: int) -> None:
    path = tmp_path / "m.om"
    write(path, [f32("x", N, kind="input")], [], ["x"], ["x"], dims={"n": (0, None)})
    session = InferSession(0, path, threads)
    for n in (0, 5):
        np.testing.assert_array_equal(session.infer([np.ones(n, np.float32)])[0], np.ones(n))
    text = elementwise(["neg"]).replace("d0 in [1, inf]", "d0 in [0, inf]")
    write(
        path,
        [f32("x", N, kind="input"), f32("y", N)],
        [kernel(text, ["x"], "y", N)],
        ["x"],
        ["y"],
        dims={"n": (0, None)},
    )
    assert InferSession(0, path, threads).infer([np.ones(0, np.float32)])[0].shape == (0,)


@pytest.mark.parametrize("threads", [1, 2])
def test_guards_choose_and_nest(tmp_path: Path, threads: int) -> None:
    """y = a ? (b ? -x : relu(x)) : tanh(exp(x)), where b is computed only if a holds."""
    values = [
        f32("x", 8, kind="input"), ValueInfo("a", BOOL, (), "input"), ValueInfo("b", BOOL, (), "input"),
        ValueInfo("inner", BOOL, ()), f32("y", 8),
    ]  # fmt: skip

    inner = Scheduled(host("Identity", ["b"], ["inner"]).record, (("a", 1),))
    records = [
        inner,
        kernel(NEG, ["x"], "y", 8, guards=(("a", 1), ("inner", 1))),
        kernel(RELU, ["x"], "y", 8, guards=(("a", 1), ("inner", 0))),
        kernel(EXP_TANH, ["x"], "y", 8, guards=(("a", 0),)),
    ]
    path = tmp_path / "m.om"
    write(path, values, records, ["x", "a", "b"], ["y"])
    session = InferSession(0, path, threads=threads)
    x = np.linspace(-2, 2, 8).astype(np.float32)
    for a in (True, False):
        for b in (True, False):
            (y,) = session.infer([x, np.array(a), np.array(b)])
            wanted = (-x if b else np.maximum(x, 0)) if a else np.tanh(np.exp(x))
            np.testing.assert_allclose(y, wanted, rtol=1e-5)


def test_an_index_out_of_range_is_an_error_with_its_node(tmp_path: Path) -> None:
    table = np.arange(20, dtype=np.float32).reshape(5, 4)
    values = [ValueInfo("i", I64, (3,), "input"), f32("t", 5, 4, kind="constant"), f32("y", 3, 4)]
    records = [kernel(gather(5, 4, 3), ["t", "i"], "y", None, node="embedding")]
    path = tmp_path / "m.om"
    write(path, values, records, ["i"], ["y"], constants={"t": table})
    session = InferSession(0, path)
    np.testing.assert_array_equal(session.infer([np.array([4, 0, -1])])[0], table[[4, 0, -1]])
    with pytest.raises(OpenAtcError, match="out of range.*node embedding"):
        session.infer([np.array([0, 5, 1])])
    np.testing.assert_array_equal(session.infer([np.array([1, 2, 3])])[0], table[[1, 2, 3]])


def test_a_failing_host_task_names_its_node(tmp_path: Path) -> None:
    values = [f32("x", 4, kind="input"), f32("y", 4)]
    path = tmp_path / "m.om"
    values.append(ValueInfo("s", I64, (1,), "constant"))
    write(path, values, [host("Reshape", ["x", "s"], ["y"])], ["x"], ["y"], constants={"s": np.array([3])})
    with pytest.raises(OpenAtcError, match="node host_Reshape"):
        InferSession(0, path).infer([np.ones(4, np.float32)])
    write(path, values, [host("NoSuchOp", ["x"], ["y"])], ["x"], ["y"])
    with pytest.raises(OpenAtcError, match="no implementation of NoSuchOp"):
        InferSession(0, path).infer([np.ones(4, np.float32)])


def test_every_tensor_can_be_read_when_kept(tmp_path: Path) -> None:
    """A chain with in-place kernels, whose tensors share bytes unless they are kept."""
    names = ["x", "a", "b", "c", "y"]
    values = [f32("x", N, kind="input"), *(f32(n, N) for n in names[1:])]
    records = [
        kernel(text, [source], target, N, may_alias=((1, 0),))
        for text, source, target in zip([NEG, RELU, NEG, NEG], names, names[1:], strict=False)
    ]
    path = tmp_path / "m.om"
    json_plan = write(path, values, records, ["x"], ["y"], dims={"n": (1, None)})
    assert len({offset for _, offset in json_plan["segments"][0]["storages"]}) == 1
    session = InferSession(0, path, keep=True)
    x = np.linspace(-3, 3, 3 * BLOCK + 1).astype(np.float32)
    session.infer([x])
    for name, wanted in {"x": x, "a": -x, "b": np.maximum(-x, 0), "c": -np.maximum(-x, 0)}.items():
        np.testing.assert_array_equal(session.read(name), wanted)
    with pytest.raises(OpenAtcError, match="not in memory"):
        session.read("absent")
    with pytest.raises(OpenAtcError, match="keep=True"):
        InferSession(0, path).read("a")


def test_profile_names_nodes_and_devices(tmp_path: Path) -> None:
    values = [f32("x", 640, kind="input"), f32("a", 640), f32("y", 640)]
    path = tmp_path / "m.om"
    write(path, values, [kernel(NEG, ["x"], "a", 640, node="neg"), host("Erf", ["a"], ["y"])], ["x"], ["y"])
    profile = InferSession(0, path).profile([np.ones(640, np.float32)], runs=3)
    assert [(t.node, t.device, t.grid) for t in profile.tasks] == [("neg", "AI Core", 10), ("host_Erf", "AI CPU", 1)]
    assert 0.5 < profile.ai_cpu_share < 1
    assert profile.seconds > 0


# Host classes and damaged plans


def test_another_class_runs_the_portable_instance(tmp_path: Path) -> None:
    values, records = [f32("x", N, kind="input"), f32("y", N)], [kernel(NEG, ["x"], "y", N)]
    path = tmp_path / "m.om"
    write(path, values, records, ["x"], ["y"], dims={"n": (1, None)}, host_class="portable")
    np.testing.assert_array_equal(InferSession(0, path).infer([np.ones(3, np.float32)])[0], -np.ones(3))
    write(path, values, records, ["x"], ["y"], dims={"n": (1, None)}, host_class="aarch64")
    with pytest.raises(OpenAtcError, match="no instance for host class"):
        InferSession(0, path)


def _run_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: object) -> None:
    import packages

    honest = packages.model_to_json

    def damaged(planned: object) -> dict[str, object]:
        json_plan = honest(planned)  # type: ignore[arg-type]
        change(json_plan)  # type: ignore[operator]
        return json_plan

    monkeypatch.setattr(packages, "model_to_json", damaged)
    session = InferSession(0, residual(tmp_path / "damaged.om"))
    session.infer([np.ones((4, 3), np.float32)])


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p["segments"][0]["tasks"][0]["operands"][0].__setitem__(2, 1 << 40),
        lambda p: p["segments"][0]["tasks"][0]["operands"][0].__setitem__(2, -64),
        lambda p: p["segments"][0]["tasks"][0]["operands"][0].__setitem__(2, "4*n"),
        lambda p: p["segments"][0]["tasks"][0]["operands"][0].__setitem__(1, 7),
        lambda p: p["segments"][0]["tasks"][0]["operands"][0].__setitem__(0, "elsewhere"),
        lambda p: p["segments"][0]["tasks"][0]["operands"].pop(),
        lambda p: p["segments"][0]["tasks"][0]["operands"].__setitem__(1, ["input", 0, 0]),
        lambda p: p["segments"][0]["tasks"][0]["dims"].__setitem__(0, "3*n + 64"),
        lambda p: p["segments"][0]["tasks"][0]["dims"].__setitem__(0, 0),
        lambda p: p["segments"][0]["tasks"][0]["dims"].__setitem__(0, "other"),
        lambda p: p["segments"][0]["tasks"][0].__setitem__("grid", 1 << 30),
        lambda p: p["segments"][0]["tasks"][0].__setitem__("program", 2),
        lambda p: p["segments"][0]["tasks"][0].__setitem__("after", [0]),
        lambda p: p["segments"][0]["tasks"][0].__setitem__("guard", [0, 1]),
        lambda p: p["segments"][0]["storages"][0].__setitem__(1, 1 << 20),
        lambda p: p["segments"][0]["storages"][0].__setitem__(0, 16),
        lambda p: p["segments"][0].__setitem__("arena", 32),
        lambda p: p["segments"][0].__setitem__("storages", []),
        lambda p: p["programs"].__setitem__(0, p["programs"][0] + " "),
        lambda p: p["programs"].__setitem__(0, p["programs"][0].replace("p1[_0 + 64*g]", "p1[_0 + 65*g]")),
        lambda p: p["segments"][0]["values"][0].__setitem__("dtype", "f33"),
        lambda p: p["segments"][0]["values"][0].__setitem__("format", "perm(0,0)"),
        lambda p: p["segments"][0]["values"][0].__setitem__("shape", ["n//0", 3]),
        lambda p: p["segments"][0].pop("dims"),
        lambda p: p["segments"][0]["inputs"].append(99),
    ],
)
def test_a_plan_that_would_leave_its_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: object
) -> None:
    with pytest.raises(OpenAtcError):
        _run_damaged(tmp_path, monkeypatch, change)


@pytest.mark.parametrize("region", ["input", "constant"])
def test_a_host_task_that_would_write_to_an_input_or_a_constant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str
) -> None:
    import packages

    honest = packages.model_to_json

    def damaged(planned: object) -> dict[str, object]:
        json_plan = honest(planned)  # type: ignore[arg-type]
        segment = json_plan["segments"][0]
        [task] = [t for t in segment["tasks"] if "op" in t]
        places = [v["place"][0] if v["place"] else "" for v in segment["values"]]
        task["outputs"] = [places.index(region)]
        return json_plan

    values = [f32("x", N, kind="input"), f32("c", 1, kind="constant"), f32("y", N)]
    records, dims, constants = [host("Add", ["x", "c"], ["y"])], {"n": (1, None)}, {"c": np.ones(1, np.float32)}
    path = tmp_path / "m.om"
    write(path, values, records, ["x"], ["y"], dims=dims, constants=constants)
    np.testing.assert_array_equal(InferSession(0, path).infer([np.ones(3, np.float32)])[0], np.full(3, 2))
    monkeypatch.setattr(packages, "model_to_json", damaged)
    write(path, values, records, ["x"], ["y"], dims=dims, constants=constants)
    with pytest.raises(OpenAtcError, match="writes to an input or a constant"):
        InferSession(0, path)


def test_the_undamaged_plan_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run_damaged(tmp_path, monkeypatch, lambda p: None)


def test_the_runtime_imports_no_compiler() -> None:
    code = (
        "import sys, acl_runtime\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('onnx', 'frontend', 'graph_opt', 'atc', 'onnxruntime')\n"
        "       or m.startswith('codegen.kernels')]\n"
        "print(','.join(bad))"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == ""
