"""Files that commands and pyACL read: each attack that once gave a bare exception, and a few changed files of each kind."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import acl
from acl_runtime.device import DeviceError
from acl_runtime.device.settings import read_settings
from acl_runtime.generation.folder import read_folder
from ais_bench.infer.interface import InferSession
from ais_bench.inputs import listed
from atc.aipp import parse_aipp
from atc.fusion_switches import switch_file
from atc.precision_files import mixlist
from atc.single_operator import compile_operator
from atc.single_operator_file import read_operators
from atc.usage import UsageError
from tensor_types.array_files import read_array, read_arrays
from tensor_types.dtypes import F32
from tensor_types.errors import InvalidModel, OpenAtcError
from tests.hostile import files, packages

DEEP = "[" * 100_000


def test_deep_json_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "genai_config.json"
    path.write_text(DEEP)
    for read in (read_operators, lambda p: mixlist("m", p), lambda p: switch_file("f", p)):
        with pytest.raises(UsageError):
            path.write_text('{"a":' + DEEP)
            read(path)
    with pytest.raises(InvalidModel, match="nested too deeply"):
        read_folder(tmp_path)
    with pytest.raises(DeviceError, match="nested too deeply"):
        read_settings(str(path))


@pytest.mark.parametrize(
    "entry",
    [
        {"attr": 5},
        {"attr": [{"name": "a", "type": ["int"], "value": 1}]},
        {"attr": [{"name": "a", "type": "data_type", "value": ["float"]}]},
        {"input_desc": [{"type": ["float"], "shape": []}]},
        {"input_desc": [{"type": "float", "shape": [], "format": {"a": 1}}]},
    ],
)
def test_values_of_another_type_in_a_file_of_operators(tmp_path: Path, entry: dict[str, object]) -> None:
    (tmp_path / "op.json").write_text(json.dumps([{"op": "Add", **entry}]))
    with pytest.raises(UsageError):
        read_operators(tmp_path / "op.json")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x93NUMPY\x01\x00F\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }   \n", "tells 87960"),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((((", "damaged|header"),
        (b"", "damaged|data"),
        (b"PK\x03\x04" + bytes(40), "damaged|zip"),
    ],
)
def test_damaged_arrays_are_told(tmp_path: Path, data: bytes, reason: str) -> None:
    if b"1099511627776" in data:
        head, rest = data[:8], data[10:]
        data = head + len(rest).to_bytes(2, "little") + rest
    path = tmp_path / "a.npy"
    path.write_bytes(data)
    with pytest.raises((ValueError, OSError)) as raised:
        read_arrays(path)
    assert re.search(reason, str(raised.value))


def test_arrays_are_read(tmp_path: Path) -> None:
    for shape in ((), (0, 3), (2, 3)):
        np.save(tmp_path / "a.npy", np.ones(shape))
        assert read_array(tmp_path / "a.npy").shape == shape
    np.savez(tmp_path / "b.npz", a=np.ones(2), b=np.zeros(3))
    assert {n: a.shape for n, a in read_arrays(tmp_path / "b.npz").items()} == {"a": (2,), "b": (3,)}
    with pytest.raises(ValueError, match="archive"):
        read_array(tmp_path / "b.npz")


def test_a_long_file_is_read_in_one_pass(tmp_path: Path) -> None:
    """A hundred thousand words: what took a minute when each word counted the lines before it."""
    path = tmp_path / "aipp.cfg"
    path.write_text("aipp_op {\n" + "mean_chn_0 : 1\n" * 30_000 + "}")
    with pytest.raises(UsageError, match="given twice"):
        parse_aipp("insert_op_conf", path)


def test_changed_files_of_each_kind(tmp_path: Path) -> None:
    packages.prepare(tmp_path, ("llama",))
    case = files.Case(tmp_path)
    for number, kind in enumerate(case.kinds * 8):
        try:
            case.changed(random.Random(f"short {number}"), kind)
        except OpenAtcError as error:
            assert error.code != "E19999", (kind, number, error)


_LONG = "x" * 3000


@pytest.mark.parametrize(
    "ask",
    [
        lambda f: listed(_LONG),
        lambda f: InferSession(0, _LONG),
        lambda f: InferSession(0, str(f), _LONG),
    ],
)
def test_names_longer_than_files_have_are_names_of_none(tmp_path: Path, ask: Callable[[Path], object]) -> None:
    (tmp_path / "m.om").write_bytes(b"")
    with pytest.raises(RuntimeError, match="there is no"):
        ask(tmp_path / "m.om")


def test_folders_of_long_names_give_codes(tmp_path: Path) -> None:
    assert not acl.init()
    assert acl.mdl.load_from_file(_LONG)[1] == acl.mdl.load_from_file("/nowhere")[1] != 0
    assert acl.op.set_model_dir(_LONG) == acl.op.set_model_dir("/nowhere") != 0
    assert acl.prof.init(_LONG) == acl.prof.init("/nowhere") != 0
    assert not acl.finalize()
    settings = tmp_path / "acl.json"
    settings.write_text(json.dumps({"profiler": {"switch": "on", "output": _LONG}}))
    with pytest.raises(DeviceError, match="no folder"):
        read_settings(str(settings))


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "reason"),
    [
        ("MatMulV2", 1, {}, "MatMulV2 has not 1 inputs and 1 outputs"),
        ("Relu6", 0, {}, "Relu6 has not 0 inputs"),
        ("Add", 2, {"axis": [[1], 2.5]}, "no attribute axis"),
        ("Softmax", 1, {"axis": [[1], 2.5]}, "Softmax"),
        ("TransposeD", 1, {"perm": [[1], 2.5]}, "TransposeD does not take these attributes"),
    ],
)
def test_single_operators_of_other_operands(
    tmp_path: Path, kind: str, inputs: int, attributes: dict[str, object], reason: str
) -> None:
    tensor = (F32, (2, 2))
    with pytest.raises(LookupError, match=reason) as raised:
        compile_operator(tmp_path / "o.om", kind, [tensor] * inputs, [tensor], attributes, {})
    assert type(raised.value) is LookupError
