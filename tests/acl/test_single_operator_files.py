"""`atc --singleop`: packages of single operators from ATC's JSON list, found and run by acl.op."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acl_programs import Program, from_device, ok, to_device

import acl
from acl.op import _execution
from acl_runtime.device.operators import Operator
from acl_runtime.om import open_package
from atc.atc_command import run_as_atc

ND, I32, F16 = 2, 3, 1


def tensor(shape: list[int], type_: str = "int32", **more: Any) -> dict[str, Any]:
    return {"format": "ND", "shape": shape, "type": type_, **more}


ADD = {"op": "Add", "input_desc": [tensor([8, 16])] * 2, "output_desc": [tensor([8, 16])]}
SOFTMAX = {"op": "SoftmaxV2", "name": "soft", "input_desc": [tensor([4, 8], "float16")],
           "output_desc": [tensor([4, 8], "float16")],
           "attr": [{"name": "axes", "type": "list_int", "value": [0]}]}  # fmt: skip
SLICE = {"op": "Slice", "output_desc": [tensor([2, 2])],
         "input_desc": [tensor([3, 4]), *(tensor([2], "int64", is_const=True, const_value=v) for v in ([1, 1], [2, 2]))]}  # fmt: skip


def made(folder: Path, *entries: Any) -> int:
    (folder / "ops.json").write_text(json.dumps(list(entries)))
    return run_as_atc(
        [f"--singleop={folder / 'ops.json'}", "--soc_version=Ascend310P3", f"--output={folder / 'ops'}/"], False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("single")
    assert made(folder, ADD, SOFTMAX, SLICE) == 0
    return folder / "ops"


@pytest.fixture
def none_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has named no folder and made no operator."""
    monkeypatch.setattr(_execution, "_folders", [])
    monkeypatch.setattr(_execution.operators, "_sessions", {})
    monkeypatch.setattr(_execution.operators, "_packages", {})

    def compile_(path: Path, operator: Operator) -> None:
        raise AssertionError(f"{operator.kind} was compiled")

    monkeypatch.setattr(_execution.operators, "_compiler", compile_)


def run(program: Program, kind: str, arrays: list[np.ndarray], descs: list[int], out: int, attr: int = 0) -> np.ndarray:
    buffers = []
    for desc, array in zip([*descs, out], [*arrays, None], strict=True):
        size = acl.get_tensor_desc_size(desc)
        address = program.malloc(size)
        if array is not None:
            to_device(array, address)
        buffers.append(acl.create_data_buffer(address, size))
    ok(acl.op.execute_v2(kind, descs, buffers[:-1], [out], buffers[-1:], attr, program.stream))
    ok(acl.rt.synchronize_stream(program.stream))
    return from_device(acl.get_data_buffer_addr(buffers[-1]), (8, 16), np.int32)


def test_packages_have_atcs_names_and_run_from_the_folder(program: Program, folder: Path, none_named: None) -> None:
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["0_Add_3_2_8_16_3_2_8_16_3_2_8_16.om", "2_Slice_3_2_3_4_9_2_2_9_2_2_3_2_2_2.om", "soft.om"]
    ok(acl.op.set_model_dir(str(folder)))
    x, y = (np.random.default_rng(n).integers(0, 99, (8, 16), np.int32) for n in (1, 2))
    desc = acl.create_tensor_desc(I32, [8, 16], ND)
    np.testing.assert_array_equal(run(program, "Add", [x, y], [desc, desc], desc), x + y)
    attr = acl.op.create_attr()
    ok(acl.op.set_attr_list_int(attr, "axes", [0]))
    half = acl.create_tensor_desc(F16, [4, 8], ND)
    ok(acl.op.create_handle("SoftmaxV2", [half], [half], attr))
    assert acl.op.set_model_dir(str(folder)) == 100002


def test_an_operator_from_memory(program: Program, folder: Path, none_named: None) -> None:
    data = (folder / "0_Add_3_2_8_16_3_2_8_16_3_2_8_16.om").read_bytes()
    ok(acl.op.load(acl.util.bytes_to_ptr(data), len(data)))
    x = np.arange(128, dtype=np.int32).reshape(8, 16)
    desc = acl.create_tensor_desc(I32, [8, 16], ND)
    np.testing.assert_array_equal(run(program, "Add", [x, x], [desc, desc], desc), 2 * x)
    junk = b"x" * 4096
    assert acl.op.load(acl.util.bytes_to_ptr(junk), len(junk)) == 100025
    assert acl.op.load(acl.util.bytes_to_ptr(junk), 0) == 100000


def test_a_folder_with_a_file_that_is_no_package(program: Program, tmp_path: Path, none_named: None) -> None:
    (tmp_path / "x.om").write_bytes(b"x" * 300)
    assert acl.op.set_model_dir(str(tmp_path)) == 100025
    assert acl.op.set_model_dir(str(tmp_path / "none")) == 100014


def test_constants_of_the_file_are_in_the_package(folder: Path) -> None:
    (path,) = folder.glob("2_Slice*")
    found = Operator.of_header(open_package(path).header)
    assert found is not None and [n for n, _ in found.constants] == [1, 2]
    assert np.frombuffer(found.constants[1][1], np.int64).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("entry", "code", "said"),
    [
        ({**ADD, "op": ""}, "E10026", "entry 0: op is missing"),
        ({**ADD, "opp": 1}, "E10032", "did you mean op?"),
        ({**ADD, "input_desc": [tensor([8], "int23")]}, "E10027", "did you mean int32"),
        ({**ADD, "input_desc": [tensor([8, -1])]}, "E10027", "give fixed sizes"),
        ({**ADD, "input_desc": [tensor([8]) | {"format": "NC1HWC0"}]}, "E10027", "input_desc 0: format is 'NC1HWC0'"),
        ({**ADD, "input_desc": [tensor([3], is_const=True, const_value=[1])]}, "E10027", "3 numbers of int32"),
        ({**ADD, "attr": [{"type": "int", "value": 1}]}, "E10029", "attr 0: name is missing"),
        ({**ADD, "attr": [{"name": "a", "type": "int", "value": "x"}]}, "E10030", "a is 'x', its type int"),
        ({**ADD, "attr": [{"name": "a", "type": "itn", "value": 1}]}, "E10030", "did you mean int"),
        ({**ADD, "op": "Addd"}, "E10501", "there is no operator Addd"),
        ({**ADD, "attr": [{"name": "alpha", "type": "int", "value": 1}]}, "E10501", "Add has no attribute alpha"),
    ],
)
def test_a_wrong_file(
    entry: dict[str, Any], code: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(tmp_path, entry) == 2
    told = capsys.readouterr().err
    assert code in told and said in told


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert made(tmp_path, {**ADD, "op": ""}, {**ADD, "attr": [{}]}) == 2
    told = capsys.readouterr().err
    assert "E10026" in told and "entry 1, attr 0" in told


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--singleop=none.json", "--output=o", "--soc_version=Ascend310P3"], "E10024"),
        (["--singleop=x.json", "--output=o", "--soc_version=Ascend310P3", "--framework=5"], "E10023"),
        (["--singleop=x.json", "--output=o", "--soc_version=Ascend310P3", "--mode=1"], "E10023"),
        (["--singleop=x.json", "--soc_version=Ascend310P3"], "E10054"),
        (["--singleop=x.json", "--output=o"], "E10008"),
    ],
)
def test_flags_that_do_not_go_together(words: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_as_atc(words, False) == 2
    assert code in capsys.readouterr().err
