"""What is wrong with a file or with input_shape is said with a code, a place and a remedy; never a traceback."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from frontend import read_model
from tensor_types.errors import InvalidModel

N = helper.make_node
F = TensorProto.FLOAT


def info(name, shape=(2, 3), kind=F):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs=None, outputs=None, constants=(), opsets=(("", 17),)):
    graph = helper.make_graph(nodes, "g", inputs or [info("x")], outputs or [info("y")], list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*o) for o in opsets])


@pytest.fixture
def refused(tmp_path):
    """Calls the reader on a model or on bytes, and gives the error after checking that it is complete."""

    def call(content, code, where, in_message="", **options):
        path = tmp_path / "m.onnx"
        path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
        with pytest.raises(InvalidModel) as caught:
            read_model(path, **options)
        error = caught.value
        assert error.code == code
        assert error.where == where
        assert in_message in error.message
        assert len(error.remedy) > 5
        return error

    return call


RELU = N("Relu", ["x"], ["y"], name="r")
MODEL_FLAG = {"flag": "--model"}


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip archive", b"\xff" * 200, b"\x0a\xff\xff\xff"])
def test_not_onnx(refused, content):
    refused(content, "E13005", MODEL_FLAG, "m.onnx")


@pytest.mark.parametrize("content", [b"", onnx.ModelProto(ir_version=8).SerializeToString()])
def test_no_graph(refused, content):
    refused(content, "E16004", MODEL_FLAG, "m.onnx")


def test_truncated_anywhere_is_never_a_crash(tmp_path):
    big = numpy_helper.from_array(np.ones((200, 200), np.float32), "w")  # kept in the file while reading
    nodes = [N("MatMul", ["x", "w"], ["h"]), N("Relu", ["h"], ["y"])]
    whole = model_of(nodes, [info("x", (2, 200))], [info("y", (2, 200))], [big]).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(whole)
    read_model(path)
    for length in (*range(1, 200, 7), 1000, 160_000, len(whole) - 30, len(whole) - 12):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidModel) as caught:
            read_model(path)
        assert caught.value.code in ("E13005", "E16004") and caught.value.where == MODEL_FLAG


def test_no_file(tmp_path):
    with pytest.raises(InvalidModel) as caught:
        read_model(tmp_path / "absent.onnx")
    assert caught.value.code == "E13001" and caught.value.where == MODEL_FLAG and caught.value.remedy
    with pytest.raises(InvalidModel) as caught:
        read_model(tmp_path)
    assert caught.value.code == "E13001"


def external(location, offset="0", length=None, kind=F):
    tensor = TensorProto(name="w", data_type=kind, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    return model_of([N("Add", ["x", "w"], ["y"])], constants=[tensor])


def test_external_data_missing(refused):
    refused(external("w.bin"), "E13001", {"tensor": "w"}, "w.bin")


@pytest.mark.parametrize("location", ["../w.bin", "sub/../../w.bin", "", "/etc/passwd"])
def test_external_data_outside(refused, tmp_path, location):
    (tmp_path.parent / "w.bin").write_bytes(bytes(24))
    refused(external(location), "E13026", {"tensor": "w"}, "outside")


def test_external_data_behind_a_link(refused, tmp_path):
    secret = tmp_path.parent / f"{tmp_path.name}.secret"
    secret.write_bytes(bytes(24))
    (tmp_path / "w.bin").symlink_to(secret)
    refused(external("w.bin"), "E13026", {"tensor": "w"}, "outside")


@pytest.mark.parametrize("offset,length,size", [("0", None, 23), ("8", None, 24), ("0", "20", 24)])
def test_external_data_of_the_wrong_size(refused, tmp_path, offset, length, size):
    (tmp_path / "w.bin").write_bytes(bytes(size))
    refused(external("w.bin", offset, length), "E13015", {"tensor": "w"}, "24 bytes needed")


def test_external_data_before_the_file(refused, tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(24))
    refused(external("w.bin", "-4", None), "E13015", {"tensor": "w"}, "negative offset -4")


def test_external_data_with_words_for_numbers(refused, tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(24))
    refused(external("w.bin", "first"), "E13014", {"tensor": "w"})


def test_inline_data_of_the_wrong_size(refused):
    tensor = TensorProto(name="w", data_type=F, dims=[2, 3], raw_data=bytes(20))
    refused(model_of([N("Add", ["x", "w"], ["y"])], constants=[tensor]), "E13015", {"tensor": "w"})
    tensor = TensorProto(name="w", data_type=F, dims=[2, 3], float_data=[1.0, 2.0])
    refused(model_of([N("Add", ["x", "w"], ["y"])], constants=[tensor]), "E13015", {"tensor": "w"})
    big = TensorProto(name="w", data_type=F, dims=[2, 3], raw_data=bytes(1 << 17))
    refused(model_of([N("Add", ["x", "w"], ["y"])], constants=[big]), "E13015", {"tensor": "w"})


def test_unknown_element_type(refused):
    tensor = TensorProto(name="w", data_type=99, dims=[2], raw_data=bytes(8))
    refused(model_of([N("Add", ["x", "w"], ["y"])], constants=[tensor]), "E13014", {"tensor": "w"}, "99")


def test_cycle(refused):
    nodes = [
        N("Add", ["x", "c"], ["a"], name="one"), N("Relu", ["a"], ["b"], name="two"),
        N("Neg", ["b"], ["c"], name="three"), N("Abs", ["c"], ["y"], name="behind"),
    ]  # fmt: skip
    error = refused(model_of(nodes), "E13025", {"node": "one", "op": "Add", "tensor": "a"}, "cycle")
    assert all(name in error.message for name in ("one", "two", "three")) and "behind" not in error.message


def test_node_that_reads_itself(refused):
    where = {"node": "me", "op": "Add", "tensor": "y"}
    refused(model_of([N("Add", ["x", "y"], ["y"], name="me")]), "E13025", where, "cycle")


def test_dangling_tensor(refused):
    where = {"node": "s", "op": "Sub", "tensor": "onnx::Sub_7"}
    refused(model_of([N("Sub", ["x", "onnx::Sub_7"], ["y"], name="s")]), "E13025", where, "input 1")


def test_dangling_tensor_in_a_subgraph(refused):
    branches = {
        key: helper.make_graph([N("Neg", [name], ["o"])], key, [], [info("o")])
        for key, name in (("then_branch", "x"), ("else_branch", "lost"))
    }
    node = N("If", ["c"], ["y"], name="choice", **branches)
    model = model_of([node], [info("x"), info("c", (), TensorProto.BOOL)])
    refused(model, "E13025", {"node": "choice", "op": "If", "tensor": "lost"}, "subgraph")


def test_output_that_nothing_makes(refused):
    refused(model_of([RELU], outputs=[info("y"), info("z")]), "E13031", {"tensor": "z"})


def test_tensor_made_twice(refused):
    nodes = [N("Relu", ["x"], ["t"], name="first"), N("Neg", ["x"], ["t"], name="second"), N("Abs", ["t"], ["y"])]
    error = refused(model_of(nodes), "E13031", {"node": "second", "op": "Neg", "tensor": "t"})
    assert "first" in error.message and "second" in error.message


def test_node_overwrites_an_input(refused):
    nodes = [N("Relu", ["x"], ["x"], name="r"), N("Abs", ["x"], ["y"])]
    refused(model_of(nodes), "E13031", {"node": "r", "op": "Relu", "tensor": "x"}, "input")


def test_node_overwrites_a_constant(refused):
    constant = numpy_helper.from_array(np.zeros(3, np.float32), "w")
    nodes = [N("Relu", ["x"], ["w"], name="r"), N("Abs", ["w"], ["y"])]
    refused(model_of(nodes, constants=[constant]), "E13031", {"node": "r", "op": "Relu", "tensor": "w"})


def test_initializer_twice(refused):
    constant = numpy_helper.from_array(np.zeros(3, np.float32), "w")
    nodes = [N("Add", ["x", "w"], ["y"])]
    refused(model_of(nodes, constants=[constant, constant]), "E13031", {"tensor": "w"})


def test_input_twice(refused):
    refused(model_of([RELU], [info("x"), info("x")]), "E13031", {"tensor": "x"})


def test_domain_in_two_versions(refused):
    error = refused(model_of([RELU], opsets=[("", 17), ("ai.onnx", 13)]), "E16005", MODEL_FLAG, "ai.onnx")
    assert "17" in error.message and "13" in error.message


def test_same_domain_twice_in_one_version_and_unused_domains_are_fine(tmp_path):
    model = model_of([RELU], opsets=[("", 17), ("ai.onnx", 17), ("com.example", 9)])
    onnx.save(model, tmp_path / "m.onnx")
    assert [n.op for n in read_model(tmp_path / "m.onnx").nodes] == ["Relu"]


def test_domain_that_is_not_imported(refused):
    node = N("Thing", ["x"], ["y"], name="t", domain="com.example")
    refused(model_of([node]), "E16005", {"node": "t", "op": "Thing"}, "com.example")


def test_opset_of_the_future(refused):
    newest = onnx.defs.onnx_opset_version()
    error = refused(model_of([RELU], opsets=[("", newest + 1)]), "E10055", MODEL_FLAG, str(newest + 1))
    assert str(newest) in error.remedy


def test_constant_without_value(refused):
    nodes = [N("Constant", [], ["c"], name="k"), N("Add", ["x", "c"], ["y"])]
    refused(model_of(nodes), "E14002", {"node": "k", "op": "Constant"})


def test_input_without_type(refused):
    bare = onnx.ValueInfoProto(name="x")
    refused(model_of([RELU], [bare]), "E13025", {"tensor": "x"})


def test_sparse_index_out_of_range(refused):
    model = model_of([N("Add", ["x", "w"], ["y"])])
    sparse = model.graph.sparse_initializer.add(dims=[3])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([7], np.int64), "w_indices"))
    refused(model, "E13014", {"tensor": "w"})


# --- input_shape

TWO_INPUTS = [info("x", ("n", 3)), info("z", ("n", 1)), info("c", (2, 3))]
SUM = model_of([N("Sum", ["x", "z"], ["y"])], TWO_INPUTS)


def flag(name):
    return {"tensor": name, "flag": "--input_shape"}


@pytest.mark.parametrize(
    "given,code,place",
    [
        ({"X": [1, 3]}, "E10016", "X"),
        ({"x": [1, 3, 1]}, "E10049", "x"),
        ({"x": []}, "E10049", "x"),
        ({"x": [2, 4]}, "E10050", "x"),
        ({"x": [0, 3]}, "E10011", "x"),
        ({"x": [-2, 3]}, "E10011", "x"),
        ({"x": [2, 3], "z": [4, 1]}, "E10050", "z"),
    ],
)
def test_input_shape(refused, given, code, place):
    error = refused(SUM, code, flag(place), input_shape=given)
    for listed in ("x: f32[n, 3]", "z: f32[n, 1]", "c: f32[2, 3]"):
        assert listed in error.remedy


def test_an_initializer_is_no_input(refused):
    constant = numpy_helper.from_array(np.zeros(3, np.float32), "w")
    model = model_of([N("Add", ["x", "w"], ["y"])], [info("x")], constants=[constant])
    error = refused(model, "E10016", flag("w"), input_shape={"w": [3]})
    assert "w:" not in error.remedy


def test_fixing_a_dim_fixes_it_everywhere(tmp_path):
    onnx.save(SUM, tmp_path / "m.onnx")
    graph = read_model(tmp_path / "m.onnx", {"x": [5, -1]})
    assert [v.shape for v in graph.inputs] == [(5, 3), (5, 1), (2, 3)]
    assert graph.outputs[0].shape == (5, 3)
    assert graph.dims == {}


def test_misfit_inside_names_the_node(tmp_path):
    node = N("Einsum", ["x", "x"], ["y"], name="bad", equation="ij,jk,kl->il")
    onnx.save(model_of([node]), tmp_path / "m.onnx")
    with pytest.raises(InvalidModel) as caught:
        read_model(tmp_path / "m.onnx")
    assert caught.value.where == {"node": "bad", "op": "Einsum"} and caught.value.remedy
