"""The ONNX backend's tests that stand in files: simple models, exports of PyTorch, networks without their weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper
from onnx.backend.test import runner
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

KINDS = ("simple", "pytorch-operator", "pytorch-converted", "real")
_DATA = Path(onnx.__file__).parents[1]


def load_model_cases() -> dict[str, Callable[[], TestCase]]:
    """The tests by 'kind/name'; each is read when it is called."""
    return {f"{kind}/{case.name}": partial(_read, kind, case) for kind in KINDS for case in load_model_tests(kind=kind)}


def _read(kind: str, case: TestCase) -> TestCase:
    named = replace(case, name=f"{kind}/{case.name}")
    if case.model_dir is None:
        return _network(named, _DATA / str(case.url))
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = [
        tuple(
            [_value(path, info) for path, info in zip(_numbered(data, role), infos, strict=False)]
            for role, infos in (("input", model.graph.input), ("output", model.graph.output))
        )
        for data in sorted(folder.glob("test_data_set*"))
    ]
    return replace(named, model=model, data_sets=sets)


def _network(case: TestCase, path: Path) -> TestCase:
    """A network whose weights are made by nodes, on the numbers that ONNX's runner feeds."""
    model = onnx.load(path)
    weights = {i.name for i in model.graph.initializer}
    fed = [i for i in model.graph.input if i.name not in weights]
    inputs = [runner.Runner.generate_dummy_data(i, seed=0, name=case.name, random=False) for i in fed]
    outputs = [_value(Path(f"{path.with_suffix('')}_output_{n}.pb"), o) for n, o in enumerate(model.graph.output)]
    return replace(case, model=model, data_sets=[(inputs, outputs)])


def _numbered(folder: Path, role: str) -> list[Path]:
    return [folder / f"{role}_{n}.pb" for n in range(len(list(folder.glob(f"{role}_*.pb"))))]


def _value(path: Path, info: onnx.ValueInfoProto) -> Any:
    content = path.read_bytes()
    if info.type.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if info.type.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))
