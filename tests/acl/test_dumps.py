"""Dumps: what Ascend's tools would read of them, by a reader of protobuf that is not ours, against numpy."""

from __future__ import annotations

import csv
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acl_programs import Program, ok, to_device
from converted import converted, scaled_mean
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import acl
from acl_runtime.device.dump_statistics import table_of

X = np.random.default_rng(5).standard_normal((2, 3, 4, 5)).astype(np.float32)


def dump_data() -> Any:
    """The class of the message toolkit.dump.DumpData, as far as it is written."""
    file = descriptor_pb2.FileDescriptorProto(name="dump.proto", package="toolkit.dump", syntax="proto3")
    kinds = {"u64": 4, "i32": 5, "text": 9, "bytes": 12}
    for name, fields in {
        "Shape": {"dim": (1, "u64", True)},
        "OriginalOp": {"name": (1, "text", False), "output_index": (2, "u64", False)},
        "OpOutput": {"data_type": (1, "i32", False), "format": (2, "i32", False), "shape": (3, "Shape", False),
                     "original_op": (4, "OriginalOp", False), "data": (5, "bytes", False), "size": (6, "u64", False)},
        "OpInput": {"data_type": (1, "i32", False), "format": (2, "i32", False), "shape": (3, "Shape", False),
                    "data": (4, "bytes", False), "size": (5, "u64", False)},
        "DumpData": {"version": (1, "text", False), "dump_time": (2, "u64", False), "output": (3, "OpOutput", True),
                     "input": (4, "OpInput", True), "op_name": (6, "text", False)},
    }.items():  # fmt: skip
        message = file.message_type.add(name=name)
        for field, (number, kind, several) in fields.items():
            made = message.field.add(name=field, number=number, label=3 if several else 1, type=kinds.get(kind, 11))
            if kind not in kinds:
                made.type_name = f".toolkit.dump.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("toolkit.dump.DumpData"))


DumpData = dump_data()


def read(path: Path) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
    """Header, inputs and outputs of a file."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = DumpData.FromString(data[8 : 8 + size])
    at, found = 8 + size, []
    for tensors in (header.input, header.output):
        found.append([])
        for t in tensors:
            kind = {1: np.float32, 9: np.uint32, 8: np.int64}[t.data_type]
            found[-1].append(np.frombuffer(data[at : at + t.size], kind).reshape(t.shape.dim))
            at += t.size
    assert at == len(data)
    return header, *found


def run(program: Program, path: str, times: int = 1) -> None:
    model = ok(acl.mdl.load_from_file(path))
    inputs, places, outputs, _ = program.datasets(model)
    to_device(X, places[0])
    for _ in range(times):
        ok(acl.mdl.execute(model, inputs, outputs))
    ok(acl.mdl.unload(model))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    return converted(tmp_path_factory.mktemp("m"), input_shape="x:2,3,4,5")


@pytest.fixture
def settings(tmp_path: Path):
    """Writes a file of settings with this section `dump`, whose folder is `out`."""
    (tmp_path / "out").mkdir()

    def write(**dump: Any) -> str:
        path = tmp_path / "acl.json"
        path.write_text(json.dumps({"dump": {"dump_path": str(tmp_path / "out"), "dump_list": [], **dump}}))
        return str(path)

    return write


@pytest.fixture
def with_settings(settings):
    """A program whose `acl.init` gets the settings."""
    programs = []

    def begin(**dump: Any) -> Program:
        assert acl.init(settings(**dump)) == 0
        programs.append(Program.__new__(Program))
        program = programs[-1]
        ok(acl.rt.set_device(0))
        program.context, program.stream, program.blocks = ok(acl.rt.create_context(0)), ok(acl.rt.create_stream()), []
        return program

    yield begin
    for program in programs:
        program.end()


def files(folder: Path) -> list[Path]:
    return sorted(p for p in (folder / "out").rglob("*") if p.is_file())


def test_every_layer_is_written_with_its_tensors(with_settings: Any, package: str, tmp_path: Path) -> None:
    run(with_settings(dump_mode="all"), package, 2)
    found = files(tmp_path)
    y, z = scaled_mean(X)
    assert {p.parent.relative_to(tmp_path / "out").parts[1:] for p in found} == {
        ("0", "model", str(n), str(step)) for n in {int(p.parts[-3]) for p in found} for step in (0, 1)
    }
    outputs = {}
    for path in found:
        kind, name, task, stream, stamp = path.name.split(".")
        header, takes, gives = read(path)
        assert header.version == "2.0" and header.op_name and int(stamp) >= header.dump_time > 10**15
        assert kind and name and int(task) >= 0 and stream == "0"
        assert takes and [list(t.shape.dim) for t in header.output] == [list(g.shape) for g in gives]
        for tensor, array in zip(header.output, gives, strict=True):
            outputs[tensor.original_op.name, array.shape] = array
    made = list(outputs.values())
    assert any(a.shape == y.shape and np.allclose(a, y, rtol=1e-6) for a in made)
    assert any(a.size == z.size and np.allclose(a.reshape(z.shape), z, rtol=1e-5) for a in made)


def test_models_layers_and_steps_are_chosen(with_settings: Any, package: str, tmp_path: Path) -> None:
    run(with_settings(dump_list=[{"model_name": "other"}]), package)
    assert not files(tmp_path)


def test_steps(with_settings: Any, package: str, tmp_path: Path) -> None:
    run(with_settings(dump_list=[{"model_name": "model"}], dump_step="1|3-4"), package, 6)
    assert {p.parent.name for p in files(tmp_path)} == {"1", "3", "4"}
    assert all(not read(p)[1] for p in files(tmp_path))  # outputs alone without dump_mode


def test_a_layer_that_there_is_not(with_settings: Any, package: str) -> None:
    with_settings(dump_list=[{"model_name": "model", "layer": ["conv9"]}])
    assert acl.mdl.load_from_file(package) == (0, 100009)
    assert "no layer conv9" in acl.get_recent_err_msg()


def test_dumps_by_calls(program: Program, settings: Any, package: str, tmp_path: Path) -> None:
    assert acl.mdl.set_dump(settings()) == 100045
    ok(acl.mdl.init_dump())
    assert acl.mdl.init_dump() == 100044
    ok(acl.mdl.set_dump(settings()))
    run(program, package)
    count = len(files(tmp_path))
    ok(acl.mdl.finalize_dump())
    assert acl.mdl.finalize_dump() == 100045
    run(program, package)
    assert count and len(files(tmp_path)) == count


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ('{"dump": {"dump_mode": "all"}}', 100009, "dump_list is missing"),
        ('{"dump": {"dump_list": [], "dump_path": "/nowhere"}}', 100009, "no folder that can be written"),
        ('{"dump": {"dump_lists": []}}', 100009, "did you mean dump_list?"),
        ('{"dump": {"dump_list": [], "dump_mode": "both"}}', 100009, "use one of"),
        ('{"dump": {"dump_list": [{"layer": []}], "dump_path": "."}}', 100009, "write {"),
        ('{"dump": {"dump_list": [], "dump_path": ".", "dump_step": "3-1"}}', 100009, "dump_step"),
        ('{"dump": {"dump_list": [], "dump_data": "statistics"}}', 100009, "use one of ['stats', 'tensor']"),
        ('{"dump": []}', 0, ""),
        ('{"profiler": {"switch": "on", "output": "/nowhere"}}', 100010, "no folder"),
        ('{"profiler": {"switch": "maybe"}}', 100010, "use one of"),
        ('{"profiler": {"swich": "on"}}', 100010, "did you mean switch?"),
        ('{"dumps": {}}', 100008, "did you mean dump?"),
        ('{"max_opqueue_num": "10000", "err_msg_mode": "1"}', 0, ""),
        ("[]", 100006, "no object"),
    ],
)
def test_settings_that_are_wrong(text: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "acl.json").write_text(text)
    try:
        assert acl.init(str(tmp_path / "acl.json")) == code
        if code:
            assert said in acl.get_recent_err_msg()
    finally:
        acl.finalize()


def test_statistics_instead_of_tensors(with_settings: Any, package: str, tmp_path: Path) -> None:
    run(with_settings(dump_mode="output", dump_data="stats"), package)
    found = files(tmp_path)
    assert found and all(p.suffix == ".csv" for p in found)
    rows = [row for p in found for row in csv.DictReader(p.open())]
    y, z = scaled_mean(X)
    for wanted in (y, z):
        shape = "x".join(map(str, wanted.shape))
        (row,) = [r for r in rows if r["Shape"] == shape and r["Input/Output"] == "Output"]
        got = [float(row[k]) for k in ("Max Value", "Min Value", "Avg Value")]
        np.testing.assert_allclose(got, [wanted.max(), wanted.min(), wanted.mean()], rtol=1e-5)
        assert [row[k] for k in ("Data Type", "Count", "Nan Count")] == ["f32", str(wanted.size), "0"]


def test_statistics_are_of_the_finite_values() -> None:
    (row,) = csv.DictReader(
        table_of([("Input", 0, np.array([1, np.nan, -np.inf, np.inf, 3], np.float16))]).decode().splitlines()
    )
    assert [row[k] for k in ("Max Value", "Min Value", "Avg Value")] == ["3.0", "1.0", "2.0"]
    assert [row[f"{k} Count"] for k in ("Nan", "Negative Inf", "Positive Inf")] == ["1", "1", "1"]
