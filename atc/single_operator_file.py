"""--singleop: the JSON file in which ATC is told of single operators, and a package for each of them.

    [{"op": "Add", "input_desc": [{"format": "ND", "shape": [8, 16], "type": "int32"}, ...],
      "output_desc": [...], "attr": [{"name": "axis", "type": "int", "value": 1}]}]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime.device.operators import Operator
from atc.options import Options
from atc.single_operator import compile_operator
from atc.usage import Problems, UsageError, did_you_mean
from tensor_types.dtypes import DTYPES, DType
from tensor_types.json_text import parse_json

_TYPES = {
    "float": "f32", "float32": "f32", "float16": "f16", "double": "f64", "bfloat16": "bf16", "bool": "bool",
    **{f"{sign}int{bits}": f"{sign[:1] or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_FORMATS = {"NCHW": 0, "NHWC": 1, "ND": 2, "NDHWC": 27, "NCDHW": 30}
"""aclFormat of those whose order of elements is that of the dims."""
_DESC_KEYS = {"format", "origin_format", "shape", "origin_shape", "type", "name", "is_const", "const_value",
              "dynamic_input", "shape_range"}  # fmt: skip
_OP_KEYS = {"op", "name", "input_desc", "output_desc", "attr"}
_MOST_TENSORS = 256


@dataclass(frozen=True)
class SingleOperator:
    """An entry of the file: the operator, and the name of its package without the extension."""

    operator: Operator
    name: str


def read_operators(path: Path) -> list[SingleOperator]:
    """The entries. UsageError, of all that is wrong: E10024, E10025, E10026, E10027, E10029, E10030, E10032."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _wrong("E10024", f"={path} cannot be read: {reason}", "check the path") from error
    try:
        entries = parse_json(text)
    except ValueError as error:
        raise _wrong("E10025", f"={path} is no JSON: {error}", 'write [{"op": "Add", ...}]') from error
    if isinstance(entries, dict):
        entries = [entries]
    if not isinstance(entries, list) or not entries or not all(isinstance(e, dict) for e in entries):
        raise _wrong("E10032", f"={path} is no list of operators", 'write [{"op": "Add", ...}]')
    found: list[SingleOperator] = []
    problems = Problems()
    for number, entry in enumerate(entries):
        with problems.gathered():
            found.append(_entry(number, entry))
    problems.raise_all()
    names = [one.name for one in found]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise _wrong("E10032", f": two entries are called {twice}", "give each its own name, or none")
    return found


def write_operators(path: Path, folder: Path, options: Options) -> list[Path]:
    """A package for each entry, in `folder`; their paths. UsageError as `read_operators`, and for an operator that
    there is not (E10501) or that does not take its tensors."""
    made = []
    for number, one in enumerate(read_operators(path)):
        operator = one.operator
        made.append(folder / f"{one.name}.om")
        constants = {
            n: np.frombuffer(data, operator.inputs[n][0].numpy).reshape(operator.inputs[n][1])
            for n, data in operator.constants
        }
        attributes = {name: _listed(value) for name, value in operator.attributes}
        try:
            compile_operator(
                made[-1], operator.kind, operator.inputs, operator.outputs, attributes, constants, options,
                {"operator": operator.header()},
            )  # fmt: skip
        except LookupError as error:
            raise _wrong("E10501", f", entry {number}: {error}", "write the name of Ascend's IR, or of ONNX") from error
    return made


def _entry(number: int, entry: Mapping[str, Any]) -> SingleOperator:
    place = f", entry {number}"
    _keys(place, entry, _OP_KEYS, "E10032")
    kind = entry.get("op")
    if not isinstance(kind, str) or not kind:
        raise _wrong("E10026", f"{place}: op is missing or empty", 'write "op": "Add"')
    sides: list[list[tuple[DType, tuple[int, ...], int]]] = []
    constants = []
    for key in ("input_desc", "output_desc"):
        descs = entry.get(key, [])
        if not isinstance(descs, list) or len(descs) > _MOST_TENSORS:
            raise _wrong("E10027", f"{place}: {key} is no list of tensors", 'write [{"format": "ND", ...}]')
        sides.append([_tensor(f"{place}, {key} {n}", desc) for n, desc in enumerate(descs)])
        for n, desc in enumerate(descs):
            if key == "input_desc" and desc.get("is_const"):
                constants.append((n, _constant(f"{place}, {key} {n}", desc, *sides[0][n][:2])))
    attributes: dict[str, Any] = {}
    attrs = entry.get("attr") or []
    if not isinstance(attrs, list):
        raise _wrong("E10029", f"{place}: attr is no list", 'write [{"name": "axis", "type": "int", "value": 1}]')
    for n, attr in enumerate(attrs):
        name, value = _attribute(f"{place}, attr {n}", attr)
        attributes[name] = value
    words = [f"{t.acl}_{form}" + "".join(f"_{d}" for d in dims) for side in sides for t, dims, form in side]
    tensors = [tuple((t, dims) for t, dims, _ in side) for side in sides]
    frozen = tuple((name, _frozen(attributes[name])) for name in sorted(attributes))
    name = entry.get("name") or "_".join([str(number), kind, *words])
    if not isinstance(name, str) or "/" in name:
        raise _wrong("E10032", f"{place}: the name {name!r} is no name of a file", "leave name out")
    return SingleOperator(Operator(kind, tensors[0], tensors[1], frozen, tuple(constants)), name)


def _tensor(place: str, desc: Any) -> tuple[DType, tuple[int, ...], int]:
    if not isinstance(desc, dict):
        raise _wrong("E10027", f"{place} is no tensor", 'write {"format": "ND", "shape": [8, 16], "type": "float16"}')
    _keys(place, desc, _DESC_KEYS, "E10027")
    type_, form, shape = desc.get("type"), desc.get("format", "ND"), desc.get("shape")
    if not isinstance(type_, str) or type_ not in _TYPES:
        raise _wrong("E10027", f"{place}: type is {type_!r}",
                     f"{did_you_mean(str(type_), _TYPES)}use one of {', '.join(_TYPES)}")  # fmt: skip
    if not isinstance(form, str) or form not in _FORMATS:
        known = ", ".join(_FORMATS)
        raise _wrong("E10027", f"{place}: format is {form!r}",
                     f"{did_you_mean(str(form), _FORMATS)}use one of {known}: tensors are in plain order")  # fmt: skip
    if not isinstance(shape, list) or not all(isinstance(d, int) and not isinstance(d, bool) for d in shape):
        raise _wrong("E10027", f"{place}: shape is {shape!r}", 'write a list of sizes: "shape": [8, 16]')
    if any(d < 0 for d in shape):
        raise _wrong("E10027", f"{place}: shape is {shape}", "give fixed sizes: a single operator is made for them")
    return DTYPES[_TYPES[type_]], tuple(shape), _FORMATS[form]


def _constant(place: str, desc: Mapping[str, Any], dtype: DType, dims: tuple[int, ...]) -> bytes:
    values = desc.get("const_value")
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, dtype.numpy).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        array = None
    if values is None or array is None or array.size != math.prod(dims):
        raise _wrong("E10027", f"{place}: const_value does not hold {math.prod(dims)} numbers of {desc['type']}",
                     "give a list of them")  # fmt: skip
    return array.tobytes()


def _one(kind: type, bound: type | None = None) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, (kind, bound) if bound else kind) and (kind is bool or not isinstance(v, bool))


_SCALARS = {"bool": _one(bool), "int": _one(int), "float": _one(float, int), "string": _one(str)}


def _attribute(place: str, attr: Any) -> tuple[str, Any]:
    if not isinstance(attr, dict) or not isinstance(attr.get("name"), str) or not attr["name"]:
        form = 'write {"name": "axis", "type": "int", "value": 1}'
        raise _wrong("E10029", f"{place}: name is missing or empty", form)
    name, type_, value = attr["name"], attr.get("type"), attr.get("value")
    kinds = [*_SCALARS, *(f"list_{k}" for k in _SCALARS), "list_list_int", "data_type"]
    if not isinstance(type_, str) or type_ not in kinds:
        raise _wrong("E10030", f"{place}: the type of {name} is {type_!r}",
                     f"{did_you_mean(str(type_), kinds)}use one of {', '.join(kinds)}")  # fmt: skip
    if type_ == "data_type":
        if not isinstance(value, str) or value not in _TYPES:
            raise _wrong("E10030", f"{place}: {name} is {value!r}", f"use one of {', '.join(_TYPES)}")
        return name, DTYPES[_TYPES[value]].acl
    depth, kind = type_.count("list_"), type_.replace("list_", "")
    if not _is(value, depth, _SCALARS[kind]):
        raise _wrong("E10030", f"{place}: {name} is {value!r}, its type {type_}", "give a value of that type")
    return name, value


def _is(value: Any, depth: int, test: Callable[[Any], bool]) -> bool:
    if not depth:
        return test(value)
    return isinstance(value, list) and all(_is(v, depth - 1, test) for v in value)


def _keys(place: str, given: Mapping[str, Any], known: set[str], code: str) -> None:
    for key in given:
        if key not in known:
            raise _wrong(code, f"{place}: there is no key {key!r}",
                         f"{did_you_mean(key, known)}the keys are {', '.join(sorted(known))}")  # fmt: skip


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    return list(map(_listed, value)) if isinstance(value, tuple) else value


def _wrong(code: str, what: str, remedy: str) -> UsageError:
    return UsageError(f"--singleop{what}", code=code, where={"flag": "--singleop"}, remedy=remedy)
