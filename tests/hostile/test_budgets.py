"""What asks for more work or memory than is allowed is refused, with a code and the figure: no clock is read here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from acl_runtime.aicpu import evaluate
from codegen.targets import target
from codegen.tile.text import parse_program
from codegen.tile.verifier import VerifyError, verify
from frontend import read_model
from tensor_types import dim_text, dims
from tensor_types.effort import TooMuchWork, effort
from tensor_types.errors import EnvironmentProblem, InvalidModel, ResourceLimit
from tensor_types.json_text import parse_json
from tensor_types.limits import limit

HOST = target("x86-64-v3")
_OPSET = helper.make_opsetid("", 18)


def _nested(extent: object, depth: int) -> str:
    statement = "TEXPANDS y[0]{}, 1.0"
    for i in reversed(range(depth)):
        earlier = [f"v{j}" for j in range(max(0, i - 5), i)]
        statement = f"for v{i} < {extent(earlier)} {{ {statement} }}"  # type: ignore[operator]
    return f"program p (n in [1, inf]) {{ param out y: f32[16] body {{ {statement} }} }}"


@pytest.mark.parametrize(
    "extent",
    [
        lambda earlier: " + ".join([*earlier, "n"]),
        lambda earlier: f"max({', '.join([*(f'{v}*{v}' for v in earlier), 'n'])})" if earlier else "n",
    ],
    ids=["sums", "squares"],
)
def test_nested_ranges_are_refused(extent: object) -> None:
    with effort(2 * limit("verify_steps")), pytest.raises(VerifyError):
        verify(parse_program(_nested(extent, 40)), HOST)


def test_verification_has_a_budget_that_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = " ".join(f"TEXPANDS z[64*g + {k}]{{}}, 1.0" for k in range(64))
    text = f"program p (n in [1, inf]) {{ param out z: f32[64*n] grid g < n body {{ {stores} }} }}"
    verify(parse_program(text), HOST)
    monkeypatch.setenv("OPENATC_LIMITS", "verify_steps=100")
    with pytest.raises(VerifyError, match="more than 100 steps"):
        verify(parse_program(text), HOST)
    monkeypatch.setenv("OPENATC_LIMITS", "verify_step=100")
    with pytest.raises(EnvironmentProblem, match="names are"):
        verify(parse_program(text), HOST)


@pytest.mark.parametrize("filling", [b"[],", b'{"a":1},', b"1,", b'"",'])
def test_values_of_a_json_text_are_asked_for_before_they_are_made(filling: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of brackets deflates to a kilobyte and inflates to sixty megabytes of lists."""
    text = b"[" + filling * ((1 << 21) // len(filling)) + b"0]"
    monkeypatch.setenv("OPENATC_LIMITS", "json_bytes=1e7")
    with pytest.raises(ResourceLimit, match="JSON"):
        parse_json(text)
    with pytest.raises(ResourceLimit, match="JSON"):
        parse_json(text.decode())
    monkeypatch.delenv("OPENATC_LIMITS")
    assert len(parse_json(text)) > 200_000


def test_only_axes_have_their_names() -> None:
    with pytest.raises(VerifyError, match="_00 is not defined"):
        verify(parse_program("program p () { param out y: f32[16] body { TEXPANDS y[_00]{16}, 1.0 } }"), HOST)


def test_products_of_sums_are_refused() -> None:
    sums = "*".join(["(" + "+".join(f"d{i}" for i in range(30)) + ")"] * 8)
    with pytest.raises(ValueError, match="too large"):
        dim_text.parse(sums)
    value = dims.dim("a") + dims.dim("b") + 1
    with pytest.raises(TooMuchWork):
        for _ in range(40):
            value = value * value  # type: ignore[operator]


def _model(nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto] = (), shape: object = (1, 3, 8, 8),
           constants: list[onnx.TensorProto] = ()) -> onnx.ModelProto:  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], list(constants))
    imports = [_OPSET, helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, functions=list(functions))


def _read(model: onnx.ModelProto, folder: Path) -> None:
    onnx.save(model, folder / "m.onnx")
    read_model(folder / "m.onnx")


def test_functions_that_double_forty_times_are_counted_before_they_are_written_out(tmp_path: Path) -> None:
    imports = [_OPSET, helper.make_opsetid("f", 1)]
    functions = [helper.make_function("f", "f0", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], imports)]
    for i in range(1, 40):
        calls = [helper.make_node(f"f{i - 1}", [s], [t], domain="f") for s, t in (("a", "t"), ("t", "b"))]
        functions.append(helper.make_function("f", f"f{i}", ["a"], ["b"], calls, imports))
    with pytest.raises(ResourceLimit, match="549755813888"):
        _read(_model([helper.make_node("f39", ["x"], ["y"], domain="f")], functions), tmp_path)


def test_functions_that_call_themselves_are_refused(tmp_path: Path) -> None:
    call = helper.make_node("r", ["a"], ["b"], domain="f")
    imports = [_OPSET, helper.make_opsetid("f", 1)]
    recursive = [helper.make_function("f", "r", ["a"], ["b"], [call], imports)]
    with pytest.raises(InvalidModel, match="calls itself"):
        _read(_model([helper.make_node("r", ["x"], ["y"], domain="f")], recursive), tmp_path)


def test_sizes_that_square_themselves_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("ReduceSum", ["s"], ["p0"], keepdims=1)]
    for i in range(14):
        nodes += [helper.make_node("Mul", [f"p{i}", f"p{i}"], [f"q{i}"])]
        nodes += [helper.make_node("Add", [f"q{i}", "p0"], [f"p{i + 1}"])]
    nodes += [helper.make_node("ConstantOfShape", ["p14"], ["y"])]
    with pytest.raises(ResourceLimit, match="too large"):
        _read(_model(nodes, shape=["a", "b", "c", "d"]), tmp_path)


def test_a_constant_that_is_expanded_is_not_written_out(tmp_path: Path) -> None:
    shape = onnx.numpy_helper.from_array(np.array([1 << 20, 1 << 20], np.int64), "s")
    one = onnx.numpy_helper.from_array(np.ones(1, np.int64), "c")
    nodes = [helper.make_node("Expand", ["c", "s"], ["e"]), helper.make_node("Cast", ["e"], ["y"], to=1)]
    _read(_model(nodes, constants=[shape, one]), tmp_path)


@pytest.mark.parametrize(
    ("op", "attrs", "inputs"),
    [
        ("Expand", {}, [np.ones(1, np.float32), np.array([1 << 20, 1 << 20])]),
        ("Tile", {}, [np.ones(4, np.float32), np.array([1 << 40])]),
        ("ConstantOfShape", {}, [np.array([1 << 40])]),
        ("Range", {}, [np.array(0.0), np.array(1e15), np.array(1.0)]),
        ("OneHot", {}, [np.zeros(4, np.int64), np.array(1 << 40), np.array([0.0, 1.0])]),
        ("Pad", {}, [np.ones((2, 2), np.float32), np.array([0, 0, 1 << 40, 0])]),
        ("Resize", {"mode": "nearest"}, [np.ones((1, 1, 2, 2), np.float32), None, np.array([1, 1, 1e6, 1e6]), None]),
        ("MaxPool", {"kernel_shape": [1 << 30, 1 << 30], "pads": [1 << 29] * 4}, [np.ones((1, 1, 8, 8), np.float32)]),
        ("RandomNormal", {"shape": [1 << 20, 1 << 20], "dtype": "f32"}, []),
    ],
)
def test_the_ai_cpu_asks_before_it_takes_memory(op: str, attrs: dict[str, object], inputs: list[object]) -> None:
    with pytest.raises(ResourceLimit, match="bytes of one result: .* at most 8589934592 are allowed"):
        evaluate(op, attrs, inputs)
