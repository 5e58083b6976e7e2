"""`atc.register_op`: numpy functions and tile programs as operators of a model, judged by numpy written anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_models import BOOL, F32, I64, N, array, info, model_of, random

import atc as product
from acl_runtime import InferSession
from acl_runtime.om import open_package
from codegen.tile.build import ProgramBuilder
from tensor_types.dims import ceildiv, dmin
from tensor_types.errors import InvalidModel, OpenAtcError, UnsupportedOperator

ROOT = Path(__file__).resolve().parents[2]
D = "test.custom"


def same(x, *_, **__):
    return x.dtype, x.shape


def times_program(inputs, outputs, target, *, factor):
    """y = factor * x for f32 [rows, columns], columns static; one program for all numbers of rows."""
    x_type = inputs[0]
    if x_type.dtype.name != "f32" or len(x_type.shape) != 2 or not isinstance(x_type.shape[1], int):
        return None
    b, columns = ProgramBuilder("times"), x_type.shape[1]
    m = b.dim("m")
    x, y = b.param("x", x_type.dtype, (m, columns)), b.param("y", x_type.dtype, (m, columns), "out")
    t = b.tile("t", x_type.dtype, (16, columns))
    i = b.grid("i", ceildiv(m, 16))
    shape = (dmin(16, m - 16 * i), columns)
    b.load(t.window((0, 0), shape), x.window((16 * i, 0), shape))
    b.mul(t.window((0, 0), shape), t.window((0, 0), shape), factor)
    b.store(y.window((16 * i, 0), shape), t.window((0, 0), shape))
    return b.finish()


def save(folder: Path, nodes, inputs, outputs, constants=(), domains=(D,)) -> Path:
    path = folder / "m.onnx"
    onnx.save(model_of(nodes, inputs, outputs, constants, domains=domains), str(path))
    return path


def one_node(folder: Path, op: str, shape=("m", 8), domain: str = D, **attrs) -> Path:
    """x f32 → y f32 of the same shape through one custom operator."""
    return save(folder, [N(op, ["x"], ["y"], "own", domain=domain, **attrs)], [info("x", F32, shape)],
                [info("y", F32, shape)], domains=(domain,))  # fmt: skip


def operators(package: Path) -> dict:
    return open_package(package).header["operators"]


def test_a_numpy_function(tmp_path):
    @product.register_op(D, "Cubed", infer=same)
    def cubed(x):
        return x * x * x

    package = tmp_path / "m.om"
    found = product.convert(one_node(tmp_path, "Cubed"), package)
    assert [n["op"] for n in found.aicpu_nodes] == ["Cubed"]
    assert operators(package) == {f"{D}::Cubed": {"module": __name__, "kind": "numpy"}}
    session = InferSession(0, package)
    for rows in (1, 3):
        x = random(rows, 8, seed=rows)
        np.testing.assert_array_equal(session.infer([x])[0], x * x * x)


@pytest.mark.parametrize("host", ["", "x86-64-v2"])
def test_a_tile_program_serves_every_size(tmp_path, monkeypatch, host):
    if host:
        monkeypatch.setenv("OPENATC_HOST", host)
    product.register_op(D, "Times", infer=same, tile=times_program, attributes={"factor": 2.0})
    package = tmp_path / "m.om"
    found = product.convert(one_node(tmp_path, "Times", factor=0.75), package)
    assert found.fused == {"custom": 1} and not found.aicpu_nodes
    assert operators(package) == {f"{D}::Times": {"module": __name__, "kind": "tile"}}
    session = InferSession(0, package)
    for rows in (1, 15, 16, 17, 31, 97):
        x = random(rows, 8, seed=rows)
        np.testing.assert_array_equal(session.infer([x])[0], x * np.float32(0.75))


def test_other_processes_need_the_module_of_a_numpy_function_and_none_for_a_tile_program(atc, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "numpy_ops.py").write_text(
        "import atc\natc.register_op('test.numpy', 'Minus', infer=lambda x: (x.dtype, x.shape), numpy=lambda x: -x)\n"
    )
    product.register_op(D, "Native", infer=same, tile=times_program, attributes={"factor": 2.0})
    native, python = tmp_path / "native.om", tmp_path / "python.om"
    product.convert(one_node(tmp_path, "Native"), native)
    model, flag = one_node(tmp_path, "Minus", domain="test.numpy"), ("--custom_op", tmp_path / "numpy_ops.py")
    assert atc("convert", model, "-o", python, *flag)[0] == 0
    assert json.loads(atc("inspect", python, "--json")[1])["operators"] == {
        "test.numpy::Minus": {"module": "numpy_ops", "kind": "numpy"}
    }
    x = random(2, 8)
    np.save(tmp_path / "x.npy", x)
    assert atc("run", python, *flag, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path / "out")[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), -x)

    program = """
import json, numpy as np
from acl_runtime import InferSession
x = np.load("x.npy")
found = {"native": bool((InferSession(0, "native.om").infer([x])[0] == 2 * x).all())}
try:
    InferSession(0, "python.om")
except Exception as error:
    found |= {"code": error.code, "exit": error.exit_code, "where": error.where, "remedy": error.remedy}
import numpy_ops
found["python"] = bool((InferSession(0, "python.om").infer([x])[0] == -x).all())
import sys
found["loaded"] = [m for m in ("onnx", "onnxruntime", "typer", "networkx") if m in sys.modules]
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=tmp_path, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert json.loads(done.stdout) == {
        "native": True, "code": "E13010", "exit": 4, "where": {"op": "test.numpy::Minus"},
        "remedy": "import numpy_ops before loading the package; with atc: --custom_op numpy_ops", "python": True,
        "loaded": [],
    }, done.stderr  # fmt: skip


def test_the_portable_instance_has_the_program_too(atc, tmp_path):
    product.register_op(D, "Portable", infer=same, tile=times_program, attributes={"factor": 3.0})
    package = tmp_path / "m.om"
    product.convert(one_node(tmp_path, "Portable"), package)
    assert atc("strip", package)[0] == 0
    x = random(5, 8)
    np.testing.assert_array_equal(InferSession(0, package).infer([x])[0], x * np.float32(3))


def test_a_program_as_text_with_two_inputs_and_a_workspace(tmp_path):
    text = """program total (n in [1, inf]) {
  param in a: f32[n]
  param in b: f32[n]
  param workspace w: f32[n]
  param out y: f32[n]
  tile t: f32[16] UB
  tile u: f32[16] UB
  grid i < (n + 15)//16
  body {
    TLOAD t[_0]{min(16, n - 16*i)}, a[16*i + _0]{min(16, n - 16*i)}
    TLOAD u[_0]{min(16, n - 16*i)}, b[16*i + _0]{min(16, n - 16*i)}
    TADD t[_0]{min(16, n - 16*i)}, t[_0]{min(16, n - 16*i)}, u[_0]{min(16, n - 16*i)}
    TSTORE w[16*i + _0]{min(16, n - 16*i)}, t[_0]{min(16, n - 16*i)}
    TLOAD u[_0]{min(16, n - 16*i)}, w[16*i + _0]{min(16, n - 16*i)}
    TMUL t[_0]{min(16, n - 16*i)}, t[_0]{min(16, n - 16*i)}, u[_0]{min(16, n - 16*i)}
    TSTORE y[16*i + _0]{min(16, n - 16*i)}, t[_0]{min(16, n - 16*i)}
  }
}
"""
    product.register_op(D, "SquaredSum", infer=same, tile=lambda inputs, outputs, target: text)
    path = save(tmp_path, [N("SquaredSum", ["x", "w"], ["y"], "own", domain=D)], [info("x", F32, ["k"])],
                [info("y", F32, ["k"])], [array("w", random(33))])  # fmt: skip
    package = tmp_path / "m.om"
    with pytest.raises(InvalidModel, match="parameter b is"):  # w has 33 elements, x any number
        product.convert(path, package)
    product.convert(path, package, input_shape={"x": [33]})
    x = random(33, seed=5)
    np.testing.assert_array_equal(InferSession(0, package).infer([x])[0], (x + random(33)) ** 2)


def test_the_numpy_function_is_the_fallback_of_a_program(tmp_path):
    product.register_op(D, "Either", infer=same, tile=times_program, attributes={"factor": 2.0},
                        numpy=lambda x, factor: (x * factor).astype(x.dtype))  # fmt: skip
    package = tmp_path / "m.om"
    product.convert(one_node(tmp_path, "Either", shape=("m", "k")), package)  # the program wants static columns
    assert operators(package)[f"{D}::Either"]["kind"] == "numpy"
    x = random(3, 5)
    np.testing.assert_array_equal(InferSession(0, package).infer([x])[0], 2 * x)

    product.register_op(D, "Only", infer=same, tile=times_program, attributes={"factor": 2.0})
    with pytest.raises(UnsupportedOperator) as caught:
        product.convert(one_node(tmp_path, "Only", shape=("m", "k")), package)
    assert caught.value.where == {"node": "own", "op": f"{D}::Only"} and "numpy" in caught.value.remedy


def test_several_results_absent_inputs_tensors_and_sizes_that_the_data_decide(tmp_path):
    def infer(x, bias, table, *, limit, weights):
        assert bias is None and table.value is not None and limit == 1 and weights.shape == (2,)
        return [(x.dtype, (None,)), (np.int64, ()), ("f32", x.shape)]

    @product.register_op(D, "Large", infer=infer, attributes={"limit": int, "weights": np.ndarray})
    def large(x, bias, table, *, limit, weights):
        return x[x > limit], np.int64((x > limit).sum()), x * weights.sum() + table

    nodes = [
        N("Large", ["x", "", "table"], ["chosen", "", "y"], "own", domain=D, limit=1,
          weights=array("", np.float32([1, 2]))),
        N("Neg", ["chosen"], ["z"], "neg"),
    ]  # fmt: skip
    path = save(tmp_path, nodes, [info("x", F32, [40])], [info("z", F32, ["n"]), info("y", F32, [40])],
                [array("table", random(40, seed=3))])  # fmt: skip
    package = tmp_path / "m.om"
    product.convert(path, package)
    session = InferSession(0, package)
    for seed in (1, 2):
        x = random(40, seed=seed)
        z, y = session.infer([x])
        np.testing.assert_array_equal(z, -x[x > 1])
        np.testing.assert_allclose(y, x * 3 + random(40, seed=3), rtol=1e-6)


def test_constants_fold_unless_the_operator_says_that_it_is_not_deterministic(tmp_path):
    for name, deterministic in (("Known", True), ("Drawn", False)):
        product.register_op(D, name, infer=same, numpy=lambda x: x + 1, deterministic=deterministic)
        nodes = [N(name, ["c"], ["t"], "own", domain=D), N("Add", ["x", "t"], ["y"], "add")]
        path = save(tmp_path, nodes, [info("x", F32, [4])], [info("y", F32, [4])], [array("c", random(4))])
        package = tmp_path / f"{name}.om"
        product.convert(path, package)
        assert bool(operators(package)) is not deterministic
        x = random(4, seed=2)
        np.testing.assert_allclose(InferSession(0, package).infer([x])[0], x + random(4) + 1, rtol=1e-6)


def test_inside_a_loop(atc, tmp_path):
    product.register_op(D, "Half", infer=same, numpy=lambda x: (x / 2).astype(x.dtype))
    body = onnx.helper.make_graph(
        [N("Half", ["before"], ["after"], "own", domain=D), N("Identity", ["go"], ["go_on"], "keep")], "body",
        [info("i", I64, []), info("go", BOOL, []), info("before", F32, [4])],
        [info("go_on", BOOL, []), info("after", F32, [4])],
    )  # fmt: skip
    nodes = [N("Loop", ["times", "", "x"], ["y"], "loop", body=body)]
    path = save(tmp_path, nodes, [info("x", F32, [4])], [info("y", F32, [4])], [array("times", np.int64(3))])
    package = tmp_path / "m.om"
    product.convert(path, package)
    assert operators(package) == {f"{D}::Half": {"module": __name__, "kind": "numpy"}}
    np.testing.assert_array_equal(InferSession(0, package).infer([random(4)])[0], random(4) / 8)
    code, out, _ = atc("compare", path, package, "--json")
    assert code == 6 and json.loads(out)["verdict"] == "unknown"  # onnxruntime cannot run such a loop


def test_precision_modes_leave_the_operator_alone(tmp_path):
    product.register_op(D, "Wide", infer=same, tile=times_program, attributes={"factor": 2.0})
    nodes = [N("MatMul", ["x", "w"], ["t"], "mm"), N("Wide", ["t"], ["y"], "own", domain=D)]
    path = save(tmp_path, nodes, [info("x", F32, [4, 8])], [info("y", F32, [4, 8])], [array("w", random(8, 8))])
    package = tmp_path / "m.om"
    found = product.convert(path, package, precision_mode="force_fp16")
    assert found.dtypes == {"f16": 1, "f32": 1} and found.fused["custom"] == 1
    x = random(4, 8, seed=1)
    np.testing.assert_allclose(InferSession(0, package).infer([x])[0], 2 * (x @ random(8, 8)), atol=0.05)


def test_compare_calls_the_numpy_function_between_stages_of_onnxruntime(atc, tmp_path):
    product.register_op(D, "Right", infer=same, numpy=lambda x, **_: x * 2, tile=times_program,
                        attributes={"factor": 2.0})  # fmt: skip
    nodes = [
        N("Constant", [], ["one"], "one", value=array("", np.float32(1))),
        N("Add", ["x", "one"], ["a"], "add"),
        N("Right", ["a"], ["b"], "own", domain=D),
        N("Sub", ["b", "one"], ["c"], "sub"),
        N("Right", ["c"], ["d"], "own2", domain=D),
        N("Tanh", ["d"], ["y"], "tanh"),
    ]
    path = save(tmp_path, nodes, [info("x", F32, ["m", 8])], [info("y", F32, ["m", 8])])
    code, out, err = atc("compare", path, "--input_shape", "x:5,8", "--json")
    found = json.loads(out)
    assert code == 0 and found["verdict"] == "pass", err
    states = {row["source"]: row["state"] for row in found["layers"]}
    assert states == {"one": "folded", "x": "compared", "a": "compared", "b": "reference", "c": "compared",
                      "d": "reference", "y": "compared"}  # fmt: skip
    assert found["outputs"][0]["rel_l2"] < 1e-6


def test_compare_finds_a_program_that_computes_something_else(atc, tmp_path):
    product.register_op(D, "Wrong", infer=same, numpy=lambda x, **_: x * 3, tile=times_program,
                        attributes={"factor": 2.0})  # fmt: skip
    code, out, _ = atc("compare", one_node(tmp_path, "Wrong"), "--json")
    found = json.loads(out)
    assert code == 6 and found["verdict"] == "fail" and found["first_bad"] == "y"


def test_compare_says_what_nothing_can_judge(atc, tmp_path):
    product.register_op(D, "Alone", infer=same, tile=times_program, attributes={"factor": 2.0})
    nodes = [N("Alone", ["x"], ["t"], "own", domain=D), N("Neg", ["t"], ["y"], "neg"), N("Exp", ["x"], ["z"], "exp")]
    path = save(tmp_path, nodes, [info("x", F32, [3, 8])], [info("y", F32, [3, 8]), info("z", F32, [3, 8])])
    code, out, _ = atc("compare", path, "--json")
    found = json.loads(out)
    assert code == 6 and found["verdict"] == "unknown" and found["first_bad"] is None
    assert {r["source"]: r["state"] for r in found["layers"]} == {"x": "compared", "t": "unknown", "y": "unknown",
                                                                  "z": "compared"}  # fmt: skip
    assert {o["name"]: o["verdict"] for o in found["outputs"]} == {"y": "unknown", "z": "pass"}
    assert "test.custom::Alone" in found["layers"][1]["note"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.replace("f32[n, 8]", "f32[n, 9]", 1), "parameter x is f32"),
        (lambda t: t.replace("param in x: f32", "param in x: i32"), "parameter x is i32"),
        (lambda t: t.replace("param in x", "param inout x"), "its parameters are"),
        (lambda t: t.replace("n in [1, inf]", "n in [1, inf], k in [1, 4]"), "dim k is no axis"),
        (lambda t: t.replace("n in [1, inf]", "n in [9, inf]"), "cannot be 3"),
        (lambda t: t.replace("y[i, _0]{8}", "y[i + 1, _0]{8}"), "TSTORE"),
        (lambda t: t.replace("TLOAD", "TNOTHING"), "TNOTHING"),
    ],
)
def test_a_program_that_does_not_fit_is_refused_with_its_place(tmp_path, change, said):
    text = """program copy (n in [1, inf]) {
  param in x: f32[n, 8]
  param out y: f32[n, 8]
  tile t: f32[8] UB
  grid i < n
  body {
    TLOAD t[_0]{8}, x[i, _0]{8}
    TSTORE y[i, _0]{8}, t[_0]{8}
  }
}
"""
    product.register_op(D, "Copied", infer=same, tile=lambda inputs, outputs, target: change(text))
    with pytest.raises(InvalidModel, match=said) as caught:
        product.convert(one_node(tmp_path, "Copied", shape=(3, 8)), tmp_path / "m.om")
    assert caught.value.code == "E17001" and caught.value.remedy
    assert caught.value.where == {"node": "own", "op": f"{D}::Copied"}


@pytest.mark.parametrize(
    ("registered", "attrs", "said"),
    [
        ({"infer": lambda x, **_: 1 / 0}, {}, "shape rule failed: ZeroDivisionError"),
        ({"infer": lambda x, **_: ("f33", x.shape)}, {}, "shape rule failed"),
        ({"infer": lambda x, **_: []}, {}, "gives 0 outputs"),
        ({"infer": lambda x, **_: (x.dtype, (-1, 8))}, {}, "an extent is -1"),
        ({"infer": lambda x, **_: (x.dtype, (3.0, 8))}, {}, "shape rule failed: TypeError"),
        ({"attributes": {"k": int}}, {}, "lacks attributes: k"),
        ({"attributes": {}}, {"j": 1}, "not registered: j"),
        ({"version": 2}, {}, "opset 2"),
    ],
)
def test_what_the_registration_and_the_model_disagree_on_is_an_error_with_its_place(tmp_path, registered, attrs, said):
    product.register_op(D, "Bad", **{"infer": same, "numpy": lambda x: x, **registered})
    with pytest.raises(OpenAtcError, match=said) as caught:
        product.convert(one_node(tmp_path, "Bad", **attrs), tmp_path / "m.om")
    assert caught.value.where == {"node": "own", "op": f"{D}::Bad"} and caught.value.remedy


def test_extents_may_be_numbers_of_numpy(tmp_path):
    product.register_op(D, "Flat", infer=lambda x: (x.dtype, (np.prod(x.shape),)), numpy=np.ravel)
    product.convert(one_node(tmp_path, "Flat", shape=(3, 8)), tmp_path / "m.om")
    x = random(3, 8)
    np.testing.assert_array_equal(InferSession(0, tmp_path / "m.om").infer([x])[0], x.ravel())


@pytest.mark.parametrize(
    "function", [lambda x: x.astype(np.float64), lambda x: x[:1], lambda x: (), lambda x: x.no_such_thing]
)
def test_a_numpy_function_that_breaks_its_shape_rule_is_named(tmp_path, function):
    product.register_op(D, "Liar", infer=same, numpy=function)
    package = tmp_path / "m.om"
    product.convert(one_node(tmp_path, "Liar"), package)
    with pytest.raises(InvalidModel) as caught:
        InferSession(0, package).infer([random(3, 8)])
    assert caught.value.where == {"node": "own", "op": f"{D}::Liar"} and caught.value.remedy


def test_a_numpy_function_that_fails_on_constants_is_named_by_the_run(tmp_path):
    product.register_op(D, "Failing", infer=same, numpy=lambda x: x.no_such_thing)
    path = save(tmp_path, [N("Failing", ["c"], ["t"], "own", domain=D), N("Add", ["x", "t"], ["y"], "add")],
                [info("x", F32, [4])], [info("y", F32, [4])], [array("c", random(4))])  # fmt: skip
    product.convert(path, tmp_path / "m.om")  # the branch that needs it may never run
    with pytest.raises(InvalidModel, match="no_such_thing") as caught:
        InferSession(0, tmp_path / "m.om").infer([random(4)])
    assert caught.value.where["op"] == f"{D}::Failing" and caught.value.where["node"] == "own" and caught.value.remedy


def test_names_that_cannot_be_registered():
    for domain, name, more in (("", "Own", {}), ("ai.onnx", "Relu", {}), ("com.microsoft", "Gelu", {}),
                               ("a::b", "Own", {}), (D, "Own", {"attributes": {"opset": 1}})):  # fmt: skip
        with pytest.raises(OpenAtcError) as caught:
            product.register_op(domain, name, infer=same, numpy=lambda x: x, **more)
        assert caught.value.exit_code == 2 and caught.value.remedy


def test_registering_again_replaces(tmp_path):
    package = tmp_path / "m.om"
    for factor in (2, 5):
        product.register_op(D, "Again", infer=same, numpy=lambda x, f=factor: x * np.float32(f))
        product.convert(one_node(tmp_path, "Again"), package)
        np.testing.assert_array_equal(InferSession(0, package).infer([random(2, 8)])[0], random(2, 8) * factor)
    with pytest.raises(OpenAtcError):  # a declaration without a function is none
        product.register_op(D, "Nothing", infer=same)
        product.convert(one_node(tmp_path, "Nothing"), package)


def test_modules_that_cannot_be_imported(atc, tmp_path):
    (tmp_path / "broken_ops.py").write_text("import atc\n1 / 0\n")
    (tmp_path / "json.py").write_text("")
    model = one_node(tmp_path, "Any")
    for given in ("no_such_module", tmp_path / "none.py", tmp_path / "broken_ops.py", tmp_path / "json.py"):
        code, out, _ = atc("check", model, "--custom_op", given, "--json")
        error = json.loads(out)["error"]
        assert code == 2 and error["where"]["flag"] == "--custom_op" and error["remedy"], given
    assert "broken_ops" not in sys.modules


def test_atcs_own_spelling_takes_the_flag(atc, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "spelled_ops.py").write_text(
        "import atc\natc.register_op('test.spelled', 'Op', infer=lambda x: (x.dtype, x.shape), numpy=lambda x: x)\n"
    )
    model = one_node(tmp_path, "Op", domain="test.spelled")
    words = [f"--model={model}", "--framework=5", f"--output={tmp_path / 'out'}", "--soc_version=Ascend910B2"]
    assert atc(*words, "--log=error")[0] == 4
    assert atc(*words, "--log=error", f"--custom_op={tmp_path / 'spelled_ops.py'}")[0] == 0
    assert operators(tmp_path / "out.om")


def test_a_header_that_makes_no_sense_is_refused(tmp_path):
    from acl_runtime.custom_operators import require_operators

    row = {"module": "m", "kind": "tile"}
    for wrong in ([], {"a::b": 1}, "text", {"a::b": {**row, "kind": "code"}}, {"a::b": {**row, "module": "\x1b[2J"}},
                  {"a::b": {**row, "module": "m" * 300}}, {"a\n": row},
                  {"a::b": {**row, "module": "/tmp/m.py"}}, {"a::b": {**row, "module": "m; other"}}):  # fmt: skip
        with pytest.raises(OpenAtcError) as caught:
            require_operators({"operators": wrong})
        assert caught.value.remedy
    require_operators({})
    require_operators({"operators": {"a::b": row}})


@pytest.mark.parametrize("read", ["first", "second", "both"])
def test_a_program_with_two_results_of_which_one_may_be_unread(tmp_path, read):
    text = """program both (n in [1, inf]) {
  param in x: f32[n]
  param out y: f32[n]
  param out z: f32[n]
  tile t: f32[1] UB
  grid i < n
  body {
    TLOAD t[_0]{1}, x[i + _0]{1}
    TSTORE y[i + _0]{1}, t[_0]{1}
    TMUL t[_0]{1}, t[_0]{1}, t[_0]{1}
    TSTORE z[i + _0]{1}, t[_0]{1}
  }
}
"""
    product.register_op(D, "Both", infer=lambda x: [(x.dtype, x.shape)] * 2, tile=lambda i, o, t: text)
    names = [name if read in (name, "both") else "" for name in ("first", "second")]
    outputs = [info(name, F32, ["m"]) for name in names if name]
    path = save(tmp_path, [N("Both", ["x"], names, "own", domain=D)], [info("x", F32, ["m"])], outputs)
    package = tmp_path / "m.om"
    assert product.convert(path, package).fused == {"custom": 1}
    x = random(5)
    expected = [v for v, name in zip((x, x * x), names, strict=True) if name]
    for found, wanted in zip(InferSession(0, package).infer([x]), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
