"""acl.prof and the section `profiler` of acl.init: op_summary, trace, and records in a pipe."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from acl_programs import Program, ok, to_device
from converted import converted

import acl

X = np.random.default_rng(5).standard_normal((2, 3, 4, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    return converted(tmp_path_factory.mktemp("m"), input_shape="x:2,3,4,5")


class Loaded:
    def __init__(self, program: Program, path: str) -> None:
        self.id = ok(acl.mdl.load_from_file(path))
        self.inputs, places, self.outputs, _ = program.datasets(self.id)
        to_device(X, places[0])

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            ok(acl.mdl.execute(self.id, self.inputs, self.outputs))


def check_files(folder: Path, executions: int) -> list[dict[str, str]]:
    (made,) = folder.glob("PROF_*/mindstudio_profiler_output")
    (table,), (trace,) = made.glob("op_summary_*.csv"), made.glob("msprof_*.json")
    rows = list(csv.DictReader(table.open()))
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    assert len(events) == len(rows) and len(rows) % executions == 0 and rows
    for row in rows:
        assert row["Op Name"] and row["Task Type"] in ("AI_CORE", "AI_CPU") and float(row["Task Duration(us)"]) > 0
    begins = [float(row["Task Start Time(us)"]) for row in rows]
    assert begins == sorted(begins)
    return rows


def test_a_profile_by_calls(program: Program, package: str, tmp_path: Path) -> None:
    model = Loaded(program, package)
    config = acl.prof.create_config([0], 0, 0, 0xFFFF)
    assert acl.prof.start(config) == 100043 and acl.prof.finalize() == 100043
    assert acl.prof.init(str(tmp_path / "none")) == 100003
    ok(acl.prof.init(str(tmp_path)))
    assert acl.prof.init(str(tmp_path)) == 100042
    model.run()
    ok(acl.prof.start(config))
    assert acl.prof.start(config) == 100042
    model.run(3)
    ok(acl.mdl.execute_async(model.id, model.inputs, model.outputs, program.stream))
    ok(acl.rt.synchronize_stream(program.stream))
    ok(acl.prof.stop(config))
    assert acl.prof.stop(config) == 100043
    model.run(5)
    ok(acl.prof.finalize())
    ok(acl.prof.destroy_config(config))
    rows = check_files(tmp_path, 4)
    assert {row["Model ID"] for row in rows} == {str(model.id)}
    assert len({row["Stream ID"] for row in rows}) == 2
    assert acl.prof.create_config([7], 0, 0, 1) == acl.prof.create_config([], 0, 0, 1) == 0


def test_a_profile_by_settings(package: str, tmp_path: Path) -> None:
    (tmp_path / "acl.json").write_text(json.dumps({"profiler": {"switch": "on", "output": str(tmp_path)}}))
    assert acl.init(str(tmp_path / "acl.json")) == 0
    program = Program.__new__(Program)
    ok(acl.rt.set_device(0))
    program.context, program.stream, program.blocks = ok(acl.rt.create_context(0)), ok(acl.rt.create_stream()), []
    Loaded(program, package).run(2)
    assert acl.prof.init(str(tmp_path)) == 148047
    assert not list(tmp_path.glob("PROF_*"))
    program.end()
    check_files(tmp_path, 2)


def test_records_in_a_pipe(program: Program, package: str) -> None:
    model, (end, begin) = Loaded(program, package), os.pipe()
    config = acl.prof.create_subscribe_config(1, 0, begin)
    ok(acl.prof.model_subscribe(model.id, config))
    assert acl.prof.model_subscribe(model.id, config) == 148046
    assert acl.prof.model_subscribe(model.id + 9, config) == 145003
    model.run()
    ok(acl.prof.model_un_subscribe(model.id))
    model.run()
    os.close(begin)
    with os.fdopen(end, "rb") as pipe:
        data = pipe.read()
    size = ok(acl.prof.get_op_desc_size())
    address, length = acl.util.bytes_to_ptr(data), len(data)
    count = ok(acl.prof.get_op_num(address, length))
    assert count * size == length and count >= 1
    for n in range(count):
        assert acl.prof.get_model_id(address, length, n) == model.id
        name = acl.prof.get_op_name(address, length, n, ok(acl.prof.get_op_name_len(address, length, n)))
        kind = acl.prof.get_op_type(address, length, n, ok(acl.prof.get_op_type_len(address, length, n)))
        assert name and kind in ("region", "reduction", "movement")
        start, stop = acl.prof.get_op_start(address, length, n), acl.prof.get_op_end(address, length, n)
        assert 0 < start < stop and 0 < acl.prof.get_op_duration(address, length, n) <= stop - start
    assert acl.prof.get_op_num(address, length - 1) == (0, 100000)
    assert acl.prof.get_model_id(address, length, count) == 0
    ok(acl.prof.destroy_subscribe_config(config))


def test_stamps_stand_beside_the_tasks(program: Program, package: str, tmp_path: Path) -> None:
    model, config = Loaded(program, package), acl.prof.create_config([0], 0, 0, 0xFFFF)
    stamp = acl.prof.create_stamp()
    ok(acl.prof.set_stamp_trace_message(stamp, "before", 6))
    ok(acl.prof.mark(stamp))  # nothing is measured yet
    ok(acl.prof.init(str(tmp_path)))
    ok(acl.prof.start(config))
    ok(acl.prof.set_stamp_trace_message(stamp, "request and more", 7))
    ok(acl.prof.push(stamp))
    number = ok(acl.prof.range_start(stamp))
    model.run()
    ok(acl.prof.range_stop(number))
    ok(acl.prof.pop())
    ok(acl.prof.mark(stamp))
    assert acl.prof.pop() == acl.prof.range_stop(number) == 100000
    assert acl.prof.set_stamp_trace_message(stamp, "x", 0) == acl.prof.mark(0) == 100000
    ok(acl.prof.stop(config))
    ok(acl.prof.finalize())
    ok(acl.prof.destroy_stamp(stamp))
    (table,), (trace,) = (list(tmp_path.rglob(name)) for name in ("msprof_tx_*.csv", "msprof_2*.json"))
    rows = list(csv.DictReader(table.open()))
    assert [(r["event_type"], r["message"]) for r in rows] == [
        ("push/pop", "request"), ("start/end", "request"), ("marker", "request")
    ]  # fmt: skip
    events = json.loads(trace.read_text())["traceEvents"]
    tasks = [e for e in events if e["ph"] == "X" and e["pid"] == 0]
    ranges = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    assert tasks and len(ranges) == 2
    for r in ranges:
        assert r["ts"] <= min(t["ts"] for t in tasks) and r["ts"] + r["dur"] >= max(t["ts"] + t["dur"] for t in tasks)
