"""Messages of the reader name what is wrong: attribute, axis, equation, declared output."""

from __future__ import annotations

import os
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from frontend import read_model
from tensor_types.errors import OpenAtcError

N = helper.make_node
F, I64 = TensorProto.FLOAT, TensorProto.INT64


def info(name, shape, kind=F):
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.fixture
def read(tmp_path):
    def call(nodes, shapes, output=None, kind=F, constants=(), opset=17, domains=(), version=1):
        inputs = [info(name, shape) for name, shape in shapes.items()]
        graph = helper.make_graph(nodes, "g", inputs, [info("y", output, kind)], list(constants))
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, version) for d in domains)]
        path = tmp_path / "m.onnx"
        path.write_bytes(helper.make_model(graph, opset_imports=imports).SerializeToString())
        return read_model(path)

    return call


@pytest.fixture
def refused(read):
    def call(code, words, *args, **options):
        with pytest.raises(OpenAtcError) as caught:
            read(*args, **options)
        error = caught.value
        assert error.code == code and "opset" not in error.remedy and error.remedy
        for word in words:
            assert word in error.message, error.message
        return error

    return call


def test_attribute_is_missing(refused):
    error = refused("E14002", ["axis", "int"], [N("Concat", ["a", "a"], ["y"], name="join")], {"a": [2, 3]})
    assert error.where == {"node": "join", "op": "Concat"}


@pytest.mark.parametrize("opset", [11, 17])
def test_attribute_of_another_type(refused, opset):
    node = N("Softmax", ["a"], ["y"], name="s", axis="foo")
    error = refused("E13014", ["axis", "string", "int"], [node], {"a": [2, 3]}, opset=opset)
    assert error.where["node"] == "s"


def test_attribute_of_another_type_where_onnx_knows_no_schema(refused):
    node = N("QuickGelu", ["a"], ["y"], domain="com.microsoft", alpha="one")
    refused("E13014", ["alpha", "string", "float"], [node], {"a": [2, 3]}, domains=["com.microsoft"])


def test_a_domain_of_a_huge_version(read):
    node = N("QuickGelu", ["a"], ["y"], domain="com.microsoft")
    assert read([node], {"a": [2, 3]}, domains=["com.microsoft"], version=1 << 40).values["y"].shape == (2, 3)


def test_old_form_of_an_attribute(read):
    """Concat had a default axis until opset 3."""
    assert read([N("Concat", ["a", "a"], ["y"])], {"a": [2, 3]}, opset=3).values["y"].shape == (2, 6)


def test_unknown_attribute_is_a_warning(read):
    graph = read([N("Relu", ["a"], ["y"], name="r", foo=7)], {"a": [2, 3]}, [2, 3])
    (line,) = graph.warnings
    assert "node r" in line and "Relu knows no attribute foo" in line
    assert not read([N("Relu", ["a"], ["y"])], {"a": [2, 3]}, [2, 3]).warnings


@pytest.mark.parametrize(("declared", "odd"), [([2, 4], True), ([2], True), (["n", 3], False), ([2, 3], False),
                                               (None, False)])  # fmt: skip
def test_declared_shape_of_an_output(read, declared, odd):
    warnings = read([N("Relu", ["a"], ["y"])], {"a": [2, 3]}, declared).warnings
    assert len(warnings) == odd and all("y" in w and "[2, 3]" in w for w in warnings)


def test_declared_dtype_of_an_output(refused):
    error = refused("E13014", ["i64", "f32"], [N("Relu", ["a"], ["y"])], {"a": [2, 3]}, [2, 3], I64)
    assert error.where == {"tensor": "y"}


@pytest.mark.parametrize(
    ("node", "shapes", "words"),
    [
        (N("MatMul", ["a", "b"], ["y"]), {"a": [2, 3], "b": [4, 5]}, ["axis 1 of A [2, 3]", "axis 0 of B [4, 5]"]),
        (N("MatMul", ["a", "b"], ["y"]), {"a": [9, 2, 3], "b": [9, 4, 5]}, ["axis 2 of A", "axis 1 of B"]),
        (N("Conv", ["a", "b"], ["y"]), {"a": [1, 3, 8, 8], "b": [4, 2, 3, 3]},
         ["channels", "axis 1 of the input [1, 3, 8, 8]", "axis 1 of the weight [4, 2, 3, 3]"]),
        (N("Conv", ["a", "b"], ["y"], group=2), {"a": [1, 3, 8, 8], "b": [4, 2, 3, 3]}, ["3 and 4", "group 2"]),
        (N("Add", ["a", "b"], ["y"]), {"a": [2, 3, 5], "b": [4, 5]}, ["axis -2 of [2, 3, 5] and [4, 5]"]),
        (N("Concat", ["a", "b"], ["y"], axis=0), {"a": [2, 3], "b": [2, 4]}, ["3 and 4", "axis 1 of the inputs"]),
        (N("Einsum", ["a", "b"], ["y"], equation="ij,jk,kl->il"), {"a": [2, 3], "b": [3, 4]}, ["ij,jk,kl->il"]),
        (N("Einsum", ["a", "b"], ["y"], equation="ij,jk->ik"), {"a": [2, 3], "b": [4, 5]}, ["ij,jk->ik", "'j'"]),
        (N("Einsum", ["a"], ["y"], equation="ij->iz"), {"a": [2, 3]}, ["ij->iz", "'z'"]),
        (N("Einsum", ["a"], ["y"], equation="ijk->i"), {"a": [2, 3]}, ["ijk->i"]),
        (N("MatMul", ["a"], ["y"]), {"a": [2, 3]}, ["input 1 is missing"]),
    ],
)  # fmt: skip
def test_which_axes_and_inputs(refused, node, shapes, words):
    refused("E13014", words, [node], shapes)


def test_two_initializers_of_one_name(refused):
    twice = [numpy_helper.from_array(np.ones(3, np.float32), "w")] * 2
    error = refused("E13031", ["by an initializer and by an initializer"], [N("Add", ["a", "w"], ["y"])], {"a": [3]},
                    constants=twice)  # fmt: skip
    assert error.where == {"tensor": "w"}


def test_a_tensor_that_no_offset_reaches(refused):
    error = refused("E14001", ["too large", str(1 << 40)], [N("MatMul", ["a", "b"], ["y"])],
                    {"a": [1 << 40, 1], "b": [1, 1 << 40]})  # fmt: skip
    assert error.where["tensor"] == "y"


def test_a_pipe_is_no_file(tmp_path):
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    found: list[OpenAtcError] = []

    def read() -> None:
        try:
            read_model(pipe)
        except OpenAtcError as error:
            found.append(error)

    thread = threading.Thread(target=read, daemon=True)  # opening a pipe without a writer would wait for ever
    thread.start()
    thread.join(10)
    (error,) = found
    assert error.code == "E13001" and "pipe" in error.message and "file" in error.remedy


def test_onnx_names_types_as_the_declarations_do():
    """The checks compare names of types: those of ONNX and of the operator declarations."""
    from graph_opt.ir.ops.registry import TYPES

    assert {t for t in TYPES if t != "type"} <= {n.lower() for n in onnx.defs.OpSchema.AttrType.__members__}
