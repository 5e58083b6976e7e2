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

from acl_runtime.executor import Graph, task_records
from acl_runtime.kernels import Kernel, load_kernels
from acl_runtime.om import Package, PackageError, open_package
from acl_runtime.om.container import align
from acl_runtime.package_layout import PORTABLE, kernel_form, read_objects, section
from acl_runtime.plan_format import LoadedPlan, PlanConstant, PlanTask, read_plan
from codegen.llvm.detect import detect_host_class
from tensor_types.dims import Dim, evaluate, substitute
from tensor_types.errors import InvalidModel

_DAMAGED = "the file is damaged: copy it again or convert the model again"


class LoadedModel:
    """What all sessions of a package share; immutable.

    host: host class of the instance in use, whose `plan` and `kernels` (one per program) these are.
    constants: arrays in the plan's order, in kernel form; those that need no packing are views of the mapped file.
    graph: the task graph with its edges; addresses, dims and grids belong to a binding.
    compiled_at_load: programs that neither the package nor this machine's cache had code for.
    """

    def __init__(self, package: Package) -> None:
        self.package = package
        machine = detect_host_class()
        self.instance = next((h for h in (machine, PORTABLE) if section(h, "plan") in package), None)
        if self.instance is None:
            classes = ", ".join(package.header.get("classes", [])) or "none"
            raise PackageError(
                f"the package has no instance for host class {machine} and no portable one (it has: {classes})",
                remedy="convert the model again on this machine or with --host " + machine,
            )
        self.host = machine
        self.plan: LoadedPlan = read_plan(
            _json(package, section(self.instance, "plan")), _json(package, section(self.instance, "programs"))
        )
        objects_name = section(self.instance, "objects")
        objects = read_objects(package.section(objects_name)) if objects_name in package else None
        if objects is not None and len(objects) != len(self.plan.programs):
            raise PackageError("the package has not one object per program", remedy=_DAMAGED)
        self.kernels: list[Kernel]
        self.kernels, self.compiled_at_load = load_kernels(self.plan.programs, self.host, objects)
        self._table: Mapping[str, Any] = _json(package, "constants")
        self.constants = self._load_constants()
        self.graph = self._graph()

    def kernel(self, task: PlanTask) -> Kernel:
        """The kernel of a native task."""
        assert task.program is not None
        return self.kernels[task.program]

    def in_model_dims(self, task: PlanTask, size: Dim) -> Dim:
        """An expression over the dims of the task's program as one over the dims of the model."""
        if isinstance(size, int):
            return size
        facts = self.kernel(task).facts
        return substitute(size, {name: value for (name, _, _), value in zip(facts.dims, task.dims, strict=True)})

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

    def _load_constants(self) -> list[np.ndarray]:
        packed_name = section(self.instance or PORTABLE, "packed")
        packed = packed_name if packed_name in self.package else None
        arrays, position = [], 0
        for constant in self.plan.constants:
            value = self.plan.values[constant.value]
            array = self.constant(value.name)
            if array.dtype != value.dtype.numpy or array.shape != value.shape:
                raise PackageError("a constant differs from the plan", where={"tensor": value.name}, remedy=_DAMAGED)
            if not constant.is_stored:
                shape = self._packed_shape(constant, array.shape)
                if packed is not None:
                    array = self.package.array(packed, value.dtype.name, shape, position)
                    position = align(position + array.nbytes)
                else:
                    array = kernel_form(array, constant.permute, constant.reshape, constant.packing)
            arrays.append(array)
        return arrays

    def _packed_shape(self, constant: PlanConstant, shape: tuple[int, ...]) -> tuple[int, ...]:
        name = self.plan.values[constant.value].name
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

    def _graph(self) -> Graph:
        tasks = self.plan.tasks
        records = task_records(len(tasks))
        successors: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for before in sorted(set(task.after)):
                successors[before].append(number)
            records["n_predecessors"][number] = len(set(task.after))
            if task.guard is not None:
                records["guard_offset"][number], records["guard_value"][number] = task.guard
            if task.program is not None:
                self._check_task(task)
        flat = [s for row in successors for s in row]
        counts = np.array([len(row) for row in successors], np.int32)
        records["n_successors"] = counts
        records["first_successor"] = np.cumsum(counts, dtype=np.int32) - counts
        scratch = max((k.facts.scratch_bytes for k in self.kernels), default=0)
        return Graph(records, np.array(flat, np.int32), self.plan.n_guards, scratch)

    def _check_task(self, task: PlanTask) -> None:
        """Counts and roles of a task against its program."""
        facts = self.kernel(task).facts
        if len(task.operands) != len(facts.params) or len(task.dims) != len(facts.dims):
            raise PackageError(
                "a task does not give what its program takes", where={"node": task.node}, remedy=_DAMAGED
            )
        for place, (role, _) in zip(task.operands, facts.params, strict=True):
            if place.region == "object" or (role != "in" and place.region in ("input", "constant")):
                raise PackageError(
                    f"a task uses its {place.region} as {role}", where={"node": task.node}, remedy=_DAMAGED
                )


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
