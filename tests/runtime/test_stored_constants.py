"""Each constant lies once in a package, in the form of the host class's kernels, and is read back in any other."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from packages import BLOCK, VIEWER, elementwise

from acl_runtime import InferSession
from acl_runtime.model import load_model
from acl_runtime.om import PackageError, open_package
from acl_runtime.package_layout import ClassPart, plan_texts, write_model
from acl_runtime.stored_constants import CANONICAL, ConstantTable, KernelForm, lay_out
from acl_runtime.strip_package import strip_package
from codegen.llvm.detect import detect_host_class
from graph_opt.plan import KernelRecord, PlanInput, Scheduled, TaskOperand, ValueInfo, model_to_json, plan_model
from tensor_types.dtypes import F16, F32
from tensor_types.formats import Format, Pad, Permute, Split, panels
from tensor_types.recipes import Recipe, Source, cast, permute

NEG = elementwise(["neg"])


def f32(name: str, *shape: int, kind: str = "temporary") -> ValueInfo:
    return ValueInfo(name, F32, shape, kind)


W = np.arange(7 * 64, dtype=np.float32).reshape(7, 64)
FORM = KernelForm(packing=panels(16))


def write(path: Path, form: KernelForm, *, for_host: bool = True) -> Path:
    """y = -w with w [7, 64] wanted in this form by the only task."""
    operand = TaskOperand("w", "in", packing=form.packing, permute=form.permute, reshape=form.reshape)
    grid = -(-W.size // BLOCK)
    records = [Scheduled(KernelRecord(NEG, (operand, TaskOperand("y", "out")), (W.size,), grid, "neg", "region"))]
    values = (f32("w", *W.shape, kind="constant"), f32("y", *W.shape))
    plan = model_to_json(plan_model(PlanInput(values, tuple(records), (), ("y",))))
    constants = {"w": Source(W)}
    classes = dict.fromkeys((detect_host_class(), "portable"), ClassPart(plan_texts(plan)))
    classes = classes if for_host else {"portable": classes["portable"]}
    table = lay_out(constants, plan if for_host else None)
    write_model(path, classes=classes, constants=constants, table=table, viewer=VIEWER, header={"tool": "test"})
    return path


def test_only_the_packed_form_is_stored(tmp_path: Path) -> None:
    path = write(tmp_path / "a.om", FORM)
    package = open_package(path)
    expected = W.reshape(7, 4, 16).transpose(1, 0, 2)
    assert bytes(package.section("weights")) == expected.tobytes()
    model = load_model(path)
    (held,) = model.segments[0].constants
    assert np.shares_memory(held, np.frombuffer(package.section("weights"), np.uint8)) or not held.flags.owndata
    assert np.array_equal(model.constant("w"), W)
    (y,) = InferSession(0, path).infer([])
    assert np.array_equal(y.reshape(-1), -expected.reshape(-1))


@pytest.mark.parametrize(
    "form",
    [
        FORM,
        KernelForm(permute=(1, 0), packing=panels(7)),
        KernelForm(permute=(1, 0), reshape=(8, 56), packing=Format((Split(0, 2), Permute((1, 0, 2))))),
        KernelForm(reshape=(4, 112), packing=Format((Pad(0, 1, 2), Split(1, 10)))),
        CANONICAL,
    ],
)
def test_the_canonical_tensor_comes_back_from_every_form(tmp_path: Path, form: KernelForm) -> None:
    stored = np.asarray(form.of(Source(W)).array(), order="C")
    assert np.array_equal(form.canonical(stored, W.shape), W)
    table = ConstantTable(open_package(write(tmp_path / "a.om", form)), _rows(tmp_path / "a.om"))
    assert np.array_equal(table.canonical("w"), W)
    assert np.array_equal(table.in_form("w", FORM).reshape(-1), W.reshape(7, 4, 16).transpose(1, 0, 2).reshape(-1))


def test_a_file_cut_while_a_form_is_made_is_an_error_and_no_signal(tmp_path: Path) -> None:
    """Threads make forms once a session is open: reading the map itself would end the process with SIGBUS."""
    path = write(tmp_path / "a.om", CANONICAL)
    table = ConstantTable(open_package(path), _rows(path))
    form = table.view_or_recipe("w", KernelForm((1, 0), packing=panels(3)))
    assert isinstance(form, Recipe)
    child = os.fork()  # a signal ends the child alone
    if not child:
        code = 2
        try:
            os.truncate(path, 0)
            form.array()
        except PackageError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_what_only_a_chip_takes_is_made_of_what_the_host_takes(tmp_path: Path) -> None:
    """A cast of the host's constant costs no bytes and is evaluated when asked for; another tensor is stored."""
    plan = {"segments": [{"values": [{"name": "w"}], "constants": [_form_row(FORM)]}]}
    narrow = permute(cast(Source(W), F16), (1, 0))
    constants = {"w": Source(W), "w@chip": narrow, "v": Source(W[:, ::-1])}
    table = lay_out(constants, plan)
    assert [row.nbytes for row in table.values()] == [W.nbytes, W.nbytes, 0]  # v, w, w@chip
    path = tmp_path / "a.om"
    write_model(path, classes={}, constants=constants, table=table, viewer=VIEWER)
    for _ in range(2):
        stored = ConstantTable(open_package(path), _rows(path))
        assert np.array_equal(stored.canonical("w@chip"), W.T.astype(np.float16))
        assert np.array_equal(stored.canonical("v"), W[:, ::-1])
        strip_package(path, path)


@pytest.mark.parametrize(
    "change",
    [
        {"of": "w@chip"}, {"of": "missing"}, {"of": 7}, {"steps": [["cast", "f33"]]}, {"steps": [["launch", 1]]},
        {"steps": [["reshape", [-1, 64]]]}, {"steps": [["reshape", [7, 65]]]}, {"steps": [["permute", [0, 0]]]},
        {"steps": [["cut", [[0, 9], [0, 64]]]]}, {"steps": [["cut", [[0, 7]]]]}, {"steps": [["permute", [1, 0]]] * 17},
        {"steps": []}, {"steps": 3}, {"shape": [64, 7]}, {"dtype": "f32"},
    ],
)  # fmt: skip
def test_hostile_steps_are_refused(tmp_path: Path, change: dict) -> None:
    row = {"dtype": "f16", "shape": [7, 64], "of": "w", "steps": [["cast", "f16"]]}
    path = write(tmp_path / "a.om", FORM)
    package, rows = open_package(path), _rows(path)
    assert ConstantTable(package, {**rows, "w@chip": row}).canonical("w@chip").dtype == np.float16
    table = ConstantTable(package, {**rows, "w@chip": {**row, **change}})
    with pytest.raises(PackageError):
        table.canonical("w@chip")


def test_much_padding_is_not_stored(tmp_path: Path) -> None:
    wide = KernelForm(packing=Format((Split(0, 64),)))  # 7 rows would become 64
    path = write(tmp_path / "a.om", wide)
    assert bytes(open_package(path).section("weights")) == W.tobytes()
    assert load_model(path).segments[0].constants[0].shape == (1, 64, 64)


def test_strip_gives_what_a_conversion_for_no_host_gives(tmp_path: Path) -> None:
    path, direct = write(tmp_path / "a.om", FORM), write(tmp_path / "b.om", FORM, for_host=False)
    strip_package(path, path)
    assert bytes(open_package(path).section("weights")) == W.tobytes()
    stripped, other = open_package(path), open_package(direct)
    for section in other.sections():
        if section.name != "header":
            assert stripped.section(section.name) == other.section(section.name)
    assert np.array_equal(InferSession(0, path).infer([])[0], InferSession(0, direct).infer([])[0])


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"dtype": "f32", "shape": [7, 64]},
        {"dtype": "f32", "shape": [7, 64], "offset": 0, "form": {"permute": [0, 0], "reshape": None, "packing": "plain"}},
        {"dtype": "f32", "shape": [7, 64], "offset": 0, "form": {"permute": None, "reshape": [9], "packing": "perm(0)"}},
        {"dtype": "f32", "shape": [7, 64], "offset": 0, "form": {"permute": None, "reshape": None, "packing": "perm(2)"}},
        {"dtype": "f32", "shape": [7, 64], "offset": 0, "form": {"permute": None, "reshape": None, "packing": "split(5,2)"}},
        {"dtype": "f32", "shape": [7, 64], "offset": 0,
         "form": {"permute": None, "reshape": None, "packing": "pad(0,0,99999999999999)"}},
        {"dtype": "f32", "shape": [7, 64], "offset": 0,
         "form": {"permute": None, "reshape": None, "packing": "split(1,65536)"}},
        {"dtype": "f32", "shape": [7, 64], "offset": 64},
        {"dtype": "f32", "shape": [-7, -64], "offset": 0},
        {"dtype": "f33", "shape": [7, 64], "offset": 0},
        {"dtype": "str", "shape": [3], "strings": ["a"]},
        {"dtype": "f32", "shape": [7, 64], "offset": 0, "form": 7},
    ],
)  # fmt: skip
def test_a_hostile_table_is_refused(tmp_path: Path, row: dict) -> None:
    table = ConstantTable(open_package(write(tmp_path / "a.om", FORM)), {"w": row})
    for read in (lambda: table.canonical("w"), lambda: table.in_form("w", FORM), lambda: table.canonical("v")):
        with pytest.raises(PackageError):
            read()


def _form_row(form: KernelForm) -> dict:
    return {"value": 0, "permute": form.permute, "reshape": form.reshape, "packing": str(form.packing)}


def _rows(path: Path) -> dict:
    return dict(json.loads(bytes(open_package(path).section("constants"))))
