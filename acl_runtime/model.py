"""A model in memory: plan, native kernels and constants of one package, shared by the sessions of the process."""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime.custom_operators import require_operators
from acl_runtime.kernels import Kernel, load_kernels
from acl_runtime.om import Package, PackageError, open_package
from acl_runtime.om.container import align
from acl_runtime.package_layout import PORTABLE, kernel_form, read_objects, section
from acl_runtime.plan_format import ModelPlan, PlanConstant, SegmentPlan, read_plan
from acl_runtime.segment import LoadedSegment
from codegen.llvm.detect import detect_host_class, require_runnable
from tensor_types.dims import evaluate
from tensor_types.errors import InvalidModel
from tensor_types.recipes import Source

_DAMAGED = "the file is damaged: copy it again or convert the model again"


class LoadedModel:
    """What all sessions of a package share; immutable.

    host: host class of the instance in use, whose `plan` and `kernels` (one per program) these are.
    segments: those of the plan; constants that need no packing are views of the mapped file.
    compiled_at_load: programs that neither the package nor this machine's cache had code for.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        require_operators(package.header)
        machine = detect_host_class()
        require_runnable(machine)
        self.instance = next((h for h in (machine, PORTABLE) if section(h, "plan") in package), None)
        if self.instance is None:
            classes = ", ".join(package.header.get("classes", [])) or "none"
            raise PackageError(
                f"the package has no instance for host class {machine} and no portable one (it has: {classes})",
                remedy="convert the model again on this machine, or with OPENATC_HOST=" + machine,
            )
        self.host = machine
        self.plan: ModelPlan = read_plan(
            _json(package, section(self.instance, "plan")), _json(package, section(self.instance, "programs"))
        )
        objects_name = section(self.instance, "objects")
        objects = read_objects(package.section(objects_name)) if objects_name in package else None
        if objects is not None and len(objects) != len(self.plan.programs):
            raise PackageError("the package has not one object per program", remedy=_DAMAGED)
        self.kernels: list[Kernel]
        signed = section(self.instance, "signature")
        signature = bytes(package.section(signed)) if signed in package else None
        self.kernels, self.compiled_at_load = load_kernels(self.plan.programs, self.host, objects, signature)
        self._table: Mapping[str, Any] = _json(package, "constants")
        self.segments: list[LoadedSegment] = []
        position = 0
        for plan in self.plan.segments:
            constants, position = self._load_constants(plan, position)
            self.segments.append(LoadedSegment(plan, self.kernels, constants))

    def constant(self, name: str) -> np.ndarray:
        """A constant in canonical layout, read-only."""
        row = self._table.get(name)
        try:
            if row is None:
                raise ValueError("it is not in the constants table")
            shape = tuple(int(n) for n in row["shape"])
            if "strings" in row:
                return np.array(row["strings"], object).reshape(shape)
            return self.package.array("weights", str(row["dtype"]), shape, int(row["offset"]))
        except (KeyError, TypeError, ValueError) as error:
            raise PackageError(
                f"a constant cannot be read: {error}", where={"tensor": name}, remedy=_DAMAGED
            ) from error

    def _load_constants(self, plan: SegmentPlan, position: int) -> tuple[list[np.ndarray], int]:
        """The constants of a segment, those that are packed from `position` of their section on, and where they end."""
        packed_name = section(self.instance or PORTABLE, "packed")
        packed = packed_name if packed_name in self.package else None
        arrays = []
        for constant in plan.constants:
            value = plan.values[constant.value]
            array = self.constant(value.name)
            if array.dtype != value.dtype.numpy or array.shape != value.shape:
                raise PackageError("a constant differs from the plan", where={"tensor": value.name}, remedy=_DAMAGED)
            if not constant.is_stored:
                shape = _packed_shape(constant, array.shape, value.name)
                if packed is not None:
                    array = self.package.array(packed, value.dtype.name, shape, position)
                    position = align(position + array.nbytes)
                else:
                    form = kernel_form(Source(array), constant.permute, constant.reshape, constant.packing)
                    array = np.asarray(form.array(), order="C")
            arrays.append(array)
        return arrays, position


def _packed_shape(constant: PlanConstant, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    try:
        permuted = shape if constant.permute is None else tuple(shape[p] for p in constant.permute)
        if constant.permute is not None and sorted(constant.permute) != list(range(len(shape))):
            raise ValueError("not a permutation")
        reshaped = permuted if constant.reshape is None else constant.reshape
        if int(np.prod(reshaped, dtype=object)) != int(np.prod(shape, dtype=object)):
            raise ValueError("the shape has another number of elements")
        return tuple(evaluate(n, {}) for n in constant.packing.physical_shape(reshaped))
    except (ValueError, IndexError) as error:
        raise PackageError(f"the packing is not valid: {error}", where={"tensor": name}, remedy=_DAMAGED) from error


def _json(package: Package, name: str) -> Any:
    try:
        return json.loads(bytes(package.section(name)))
    except (ValueError, RecursionError) as error:
        raise PackageError(f"section {name} is not JSON: {error}", remedy=_DAMAGED) from error


_models: weakref.WeakValueDictionary[tuple[object, ...], LoadedModel] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def load_model(path: str | os.PathLike[str]) -> LoadedModel:
    """The model of a package; sessions of one unchanged file share it. PackageError, InvalidModel."""
    with _lock:
        try:
            status = Path(path).stat()
        except OSError as error:
            raise InvalidModel(
                f"cannot open {os.fspath(path)}: {error.strerror}", code="E13001", remedy="check the path"
            ) from error
        # What tells a changed file apart without reading all of its weights.
        key = (
            os.path.realpath(path),
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            detect_host_class(),
        )
        model = _models.get(key)
        if model is None:
            model = LoadedModel(open_package(path))
            _models[key] = model
        return model
