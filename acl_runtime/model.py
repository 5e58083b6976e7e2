"""A model in memory: plan, native kernels and constants of one package, shared by the sessions of the process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime.chip_programs import ChipKernel, chip_kernels
from acl_runtime.constant_forms import Constants, Later, Makers
from acl_runtime.custom_operators import require_operators
from acl_runtime.executor import aligned_zeros
from acl_runtime.gear_sizes import gear_dims
from acl_runtime.kernels import Kernel, load_kernels
from acl_runtime.om import Package, PackageError, open_package
from acl_runtime.package_layout import CONSTANTS, PORTABLE, chip_instance, json_section, read_objects, section
from acl_runtime.plan_format import ModelPlan, SegmentPlan, read_plan
from acl_runtime.segment import LoadedSegment
from acl_runtime.stored_constants import ConstantTable, KernelForm
from codegen.llvm.bounds_checks import sanitised
from codegen.llvm.detect import detect_host_class, require_runnable
from tensor_types.errors import InvalidModel

_DAMAGED = "the file is damaged: copy it again or convert the model again"


class LoadedPlan:
    """A plan with the code and constants of its segments, and of the bodies that its loops repeat; immutable.

    gears: the sizes that the dims of its inputs may have together, empty for any in their ranges.
    """

    gears: Sequence[Mapping[str, int]] = ()

    def __init__(self, plan: ModelPlan, load: Callable[[SegmentPlan], LoadedSegment]) -> None:
        self.plan = plan
        self.segments = [load(segment) for segment in plan.segments]
        self.bodies = [LoadedPlan(body, load) for body in plan.bodies]


class LoadedModel(LoadedPlan):
    """What all sessions of a package share; immutable.

    host: host class of this machine. instance: the one in use, whose `plan` and `kernels` (one per program) these are.
    segments: those of the plan; constants in the form in which they are stored are views of the mapped file, and
    `makers` makes the large ones of the others.
    compiled_at_load: programs that neither the package nor this machine's cache had code for.
    """

    def __init__(self, package: Package, chip: str | None = None) -> None:
        """The instance for this machine's host class or, with `chip`, that of the chip for the interpreter."""
        self.package = package
        require_operators(package.header)
        self.host = detect_host_class()
        require_runnable(self.host)
        self.instance = _host_instance(package, self.host) if chip is None else _chip_instance(package, chip)
        plan = read_plan(*(json_section(package, section(self.instance, part)) for part in ("plan", "programs")))
        self.gears = gear_dims(package.header, plan.inputs)
        self.kernels: Sequence[Kernel | ChipKernel]
        if chip is None:
            self.kernels, self.compiled_at_load = self._load_native(plan.programs)
        else:
            self.kernels, self.compiled_at_load = chip_kernels(plan.programs, chip), 0
        self._table = ConstantTable(package, json_section(package, CONSTANTS))
        self.makers = Makers()
        super().__init__(plan, lambda segment: LoadedSegment(segment, self.kernels, self._constants(segment)))

    def _load_native(self, programs: Sequence[str]) -> tuple[list[Kernel], int]:
        package = self.package
        name = section(self.instance, "objects")

        def objects() -> list[bytes]:
            found = read_objects(package.section(name))
            if len(found) != len(programs):
                raise PackageError("the package has not one object per program", remedy=_DAMAGED)
            return found

        signed = section(self.instance, "signature")
        signature = bytes(package.section(signed)) if signed in package else None
        return load_kernels(programs, self.host, objects if package.is_readable(name) else None, signature)

    def constant(self, name: str) -> np.ndarray:
        """A constant in canonical layout, read-only."""
        return self._table.canonical(name)

    def _constants(self, plan: SegmentPlan) -> Constants:
        """The constants of a segment in the forms that its tasks take: views of the file where they are stored so."""
        found: list[np.ndarray | Later] = []
        sizes = []
        for constant in plan.constants:
            value = plan.values[constant.value]
            row = self._table.row(value.name)
            if row.dtype != value.dtype.name or row.shape != value.shape:
                raise PackageError("a constant differs from the plan", where={"tensor": value.name}, remedy=_DAMAGED)
            form = KernelForm(constant.permute, constant.reshape, constant.packing)
            array = self._table.view_or_recipe(value.name, form)
            if isinstance(array, np.ndarray):
                sizes.append(0 if array.dtype.hasobject else array.nbytes)
                found.append(_guarded(array) if sanitised() else array)
            else:
                sizes.append(array.nbytes)
                found.append(self.makers.make(array, _guarded if sanitised() else _contiguous))
        return Constants(found, sizes)


def _contiguous(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, order="C")


def _guarded(array: np.ndarray) -> np.ndarray:
    """A read-only copy between guard pages; objects as they are."""
    if array.dtype.hasobject:
        return array
    copy = aligned_zeros(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    copy.flags.writeable = False
    return copy


def _host_instance(package: Package, host: str) -> str:
    found = next((h for h in (host, PORTABLE) if section(h, "plan") in package), None)
    if found is None:
        classes = _listed(package.header, "classes")
        raise PackageError(
            f"the package has no instance for host class {host} and no portable one (it has: {classes})",
            remedy="convert the model again on this machine, or with OPENATC_HOST=" + host,
        )
    return found


def _listed(header: Mapping[str, Any], key: str) -> str:
    """The names of a list of the header, for a message: whatever stands there."""
    found = header.get(key)
    return ", ".join(str(name)[:40] for name in found[:20]) if isinstance(found, list) and found else "none"


def _chip_instance(package: Package, chip: str) -> str:
    if section(chip_instance(chip), "plan") not in package:
        chips = _listed(package.header, "chips")
        raise PackageError(
            f"the package has no instance for {chip} (its chips: {chips})",
            remedy=f"convert the model again with --soc_version={chip}",
        )
    return chip_instance(chip)


_models: weakref.WeakValueDictionary[tuple[object, ...], LoadedModel] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def load_model(path: str | os.PathLike[str], chip: str | None = None) -> LoadedModel:
    """The model of a package, of `chip` if one is named; sessions of one unchanged file share it. PackageError,
    InvalidModel."""
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
            chip,
        )
        model = _models.get(key)
        if model is None:
            model = LoadedModel(open_package(path), chip)
            _models[key] = model
        return model
