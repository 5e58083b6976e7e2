"""Constants in a package: each one once, in the form that the host class's kernels take.

A form is an invertible map (a permutation, a shape, a packing), so the canonical tensor is read back from any of
them: for instances that want another form, for comparison, and by `strip`. The `constants` section is a JSON table

    name -> {"dtype", "shape", "offset" into `weights`, "form": {"permute", "reshape", "packing"} unless canonical}
    name -> {"dtype", "shape", "strings"}
    name -> {"dtype", "shape", "of": name of a constant that has bytes, "steps"} as `recipe_paths.along` reads

The last kind has no bytes: it is what an instance for a chip makes of the host's, evaluated when that chip is run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from acl_runtime import host_memory
from acl_runtime.om import WEIGHTS, Package, PackageError, cut_short
from acl_runtime.om.container import align
from tensor_types import recipes
from tensor_types.dims import evaluate
from tensor_types.dtypes import DTYPES, DType
from tensor_types.formats import PLAIN, Bits, Format, parse_format
from tensor_types.recipe_paths import along, path_from
from tensor_types.recipes import Box, Recipe, Source, blocks

_DAMAGED = "the file is damaged: copy it again or convert the model again"
_MOST_PADDING = 1.05
"""Bytes of a form by those of the constant, above which it is stored canonical and packed at load."""
_SMALL = 1 << 12
"""Bytes up to which padding does not count."""
_MAX_RANK = 32
_MAX_STEPS = 16
_LARGEST_PADDING = 1024
"""No kernel's packing makes a constant so many times larger."""


@dataclass(frozen=True)
class KernelForm:
    """How a kernel wants a constant: permuted, then reshaped, then packed. None and plain: as it is."""

    permute: tuple[int, ...] | None = None
    reshape: tuple[int, ...] | None = None
    packing: Format = PLAIN

    @property
    def is_canonical(self) -> bool:
        """True if the bytes are those of the canonical tensor."""
        return self.permute is None and self.packing.is_plain

    def of(self, constant: Recipe) -> Recipe:
        """The constant in this form."""
        if self.permute is not None:
            constant = recipes.permute(constant, self.permute)
        if self.reshape is not None:
            constant = recipes.reshape(constant, self.reshape)
        return recipes.pack(constant, self.packing)

    def shapes(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The shapes behind each step, for a tensor of `shape`. ValueError or IndexError if a step does not fit."""
        permuted = shape
        if self.permute is not None:
            if sorted(self.permute) != list(range(len(shape))):
                raise ValueError("not a permutation")
            permuted = tuple(shape[p] for p in self.permute)
        reshaped = permuted if self.reshape is None else self.reshape
        if prod(reshaped) != prod(shape) or any(n < 0 for n in reshaped) or len(reshaped) > _MAX_RANK:
            raise ValueError("the shape has another number of elements")
        packed = tuple(evaluate(n, {}) for n in self.packing.physical_shape(reshaped))
        if prod(packed) > max(_LARGEST_PADDING * prod(shape), 1 << 24) or len(packed) > _MAX_RANK:
            raise ValueError(f"the packing makes {list(shape)} {list(packed[:_MAX_RANK])}")
        return permuted, reshaped, packed

    def canonical(self, stored: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The tensor of `shape` that `stored` holds in this form; a view where numpy has one."""
        permuted, reshaped, _ = self.shapes(shape)
        array = self.packing.to_logical(stored, reshaped).reshape(permuted)
        return array if self.permute is None else array.transpose(np.argsort(self.permute))


CANONICAL = KernelForm()


@dataclass(frozen=True)
class StoredConstant:
    """A row of the table. Without bytes are string tensors, whose elements `strings` holds, and those that are made
    of constant `of` by `steps`."""

    dtype: str
    shape: tuple[int, ...]
    offset: int = 0
    strings: tuple[str, ...] | None = None
    form: KernelForm = CANONICAL
    of: str | None = None
    steps: tuple[Any, ...] = ()

    @property
    def has_bytes(self) -> bool:
        return self.strings is None and self.of is None

    @property
    def nbytes(self) -> int:
        """Bytes in the section `weights`."""
        return 0 if not self.has_bytes else prod(self.stored_shape) * DTYPES[self.dtype].bytes

    @cached_property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of the bytes as they are stored."""
        return self.shape if self.form.is_canonical else self.form.shapes(self.shape)[2]

    def row(self) -> dict[str, Any]:
        """As JSON values."""
        row: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape)}
        if self.strings is not None:
            return {**row, "strings": list(self.strings)}
        if self.of is not None:
            return {**row, "of": self.of, "steps": list(self.steps)}
        row["offset"] = self.offset
        if not self.form.is_canonical:
            permute, reshape = (None if s is None else list(s) for s in (self.form.permute, self.form.reshape))
            row["form"] = {"permute": permute, "reshape": reshape, "packing": str(self.form.packing)}
        return row


def lay_out(constants: Mapping[str, Recipe], plan: Mapping[str, Any] | None = None) -> dict[str, StoredConstant]:
    """The table of these constants, in name order, as `weights` writes them.

    `plan` is that of the host class, in JSON values: a constant that it takes in a form alone is stored in that form,
    unless padding makes it much larger. What it does not take is made of what it takes, where a recipe says how.
    """
    wanted = _wanted_forms(plan) if plan is not None else {}
    known = {recipe: name for name, recipe in constants.items() if name in wanted}
    table, position = {}, 0
    for name in sorted(constants):
        recipe = constants[name]
        if recipe.dtype.name == "str":
            elements = recipe.array().reshape(-1).tolist()
            words = tuple(w.decode() if isinstance(w, bytes) else str(w) for w in elements)
            table[name] = StoredConstant("str", recipe.shape, strings=words)
            continue
        path = None if name in wanted else path_from(recipe, known)
        if path is not None and len(path[1]) <= _MAX_STEPS:
            table[name] = StoredConstant(recipe.dtype.name, recipe.shape, of=path[0], steps=tuple(path[1]))
            continue
        forms = wanted.get(name, [])
        plain = _plain_form(recipe)
        chosen = plain if any(f.is_canonical for f in forms) else next(iter(forms), plain)
        nbytes = chosen.of(recipe).nbytes
        if nbytes > max(_MOST_PADDING * recipe.nbytes, _SMALL) or not chosen.packing.is_invertible:
            chosen, nbytes = plain, plain.of(recipe).nbytes
        table[name] = StoredConstant(recipe.dtype.name, recipe.shape, position, form=chosen)
        position = align(position + nbytes)
    return table


def weights(constants: Mapping[str, Recipe], table: Mapping[str, StoredConstant]) -> Iterator[np.ndarray | bytes]:
    """The content of the `weights` section, block by block."""
    for name, row in table.items():
        if row.has_bytes:
            stored = row.form.of(constants[name])
            yield from blocks(stored)
            yield bytes(align(stored.nbytes) - stored.nbytes)


def _plain_form(recipe: Recipe) -> KernelForm:
    """The canonical form; of codes below 8 bits their bytes, where rows are whole ones."""
    bits = recipe.dtype.bits
    if bits >= 8 or recipe.dtype.is_float or not recipe.shape or recipe.shape[-1] % (8 // bits):
        return CANONICAL
    return KernelForm(packing=Format((Bits(bits),)))


def all_segments(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The segments of a plan in JSON values, and those of the bodies of its loops."""
    yield from plan["segments"]
    for body in plan.get("bodies", ()):
        yield from all_segments(body)


def _wanted_forms(plan: Mapping[str, Any]) -> dict[str, list[KernelForm]]:
    found: dict[str, list[KernelForm]] = {}
    for segment in all_segments(plan):
        for row in segment["constants"]:
            forms = found.setdefault(segment["values"][row["value"]]["name"], [])
            forms.append(_form(row))
    return found


def _form(row: Mapping[str, Any]) -> KernelForm:
    def integers(numbers: Sequence[Any] | None) -> tuple[int, ...] | None:
        return None if numbers is None else tuple(int(n) for n in numbers)

    return KernelForm(integers(row["permute"]), integers(row["reshape"]), parse_format(str(row["packing"])))


class ConstantTable:
    """The constants of an opened package. Everything that the file says of them is checked when one is read."""

    def __init__(self, package: Package, rows: Mapping[str, Any]) -> None:
        self.package = package
        self._rows = rows
        self._read: dict[str, StoredConstant] = {}

    def row(self, name: str) -> StoredConstant:
        """The row of a constant. PackageError if there is none or it is not sound."""
        if name not in self._read:
            self._read[name] = self._checked(name)
        return self._read[name]

    def _checked(self, name: str) -> StoredConstant:
        try:
            row = self._rows[name]
            shape = tuple(int(n) for n in row["shape"])
            if "strings" in row:
                return StoredConstant("str", shape, strings=tuple(map(str, row["strings"])))
            if "of" in row:
                steps = tuple(row["steps"])
                if len(steps) > _MAX_STEPS or "of" in self._rows[row["of"]]:
                    raise ValueError("its steps do not begin at a constant that has bytes")
                return StoredConstant(str(row["dtype"]), shape, of=row["of"], steps=steps)
            form = _form(row["form"]) if "form" in row else CANONICAL
            found = StoredConstant(str(row["dtype"]), shape, int(row["offset"]), form=form)
            found.stored_shape  # noqa: B018 (checks the form)
            return found
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise PackageError(
                f"a constant cannot be read: {reason}", where={"tensor": name}, remedy=_DAMAGED
            ) from error

    def names(self) -> list[str]:
        """Names of all constants."""
        return list(self._rows)

    def canonical(self, name: str) -> np.ndarray:
        """A constant in canonical layout, read-only; a view of the file where its form allows."""
        return self._canonical(name, self._stored)

    def _canonical(self, name: str, stored: Callable[[str, StoredConstant], np.ndarray]) -> np.ndarray:
        """As `canonical`, of the bytes that `stored` gives."""
        row = self.row(name)
        if row.of is None:
            return row.form.canonical(stored(name, row), row.shape)

        def with_bytes(name: str) -> Recipe:
            if self.row(name).of is not None:
                raise ValueError(f"{name} has no bytes")
            return Source(self._canonical(name, stored))

        try:
            made = along(with_bytes(row.of), row.steps, with_bytes)
            if (made.dtype.name, made.shape) != (row.dtype, row.shape):
                raise ValueError(f"its steps make {made.dtype}{list(made.shape)}")
        except (KeyError, TypeError, ValueError) as error:
            raise PackageError(
                f"a constant cannot be read: {error}", where={"tensor": name}, remedy=_DAMAGED
            ) from error
        return made.array()

    def in_form(self, name: str, form: KernelForm) -> np.ndarray:
        """A constant in a form: a view of the file if that is how it is stored, else a copy."""
        found = self.view_or_recipe(name, form)
        return found if isinstance(found, np.ndarray) else np.asarray(found.array(), order="C")

    def view_or_recipe(self, name: str, form: KernelForm) -> np.ndarray | Recipe:
        """As `in_form`, but a copy is yet to be made. PackageError if the form is none of this constant."""
        row = self.row(name)
        if row.of is None and (row.form == form or (row.form.is_canonical and form.is_canonical)):
            return self._stored(name, row)
        try:
            form.shapes(row.shape)
        except (ValueError, IndexError) as error:
            raise PackageError(f"the packing is not valid: {error}", where={"tensor": name}, remedy=_DAMAGED) from error
        promised = form.of(Source(self.canonical(name)))
        return _Made(promised.shape, promised.dtype, lambda: form.of(Source(self._canonical(name, self._copied))))

    def _stored(self, name: str, row: StoredConstant) -> np.ndarray:
        if row.strings is not None:
            try:
                return np.array(row.strings, object).reshape(row.shape)
            except ValueError as error:
                raise PackageError(
                    f"a constant cannot be read: {error}", where={"tensor": name}, remedy=_DAMAGED
                ) from error
        return self.package.array(WEIGHTS, row.dtype, row.stored_shape, row.offset)

    def _copied(self, name: str, row: StoredConstant) -> np.ndarray:
        """As `_stored`, in memory of its own: making a form may take a while, in which somebody may cut the file."""
        mapped = self._stored(name, row)
        if mapped.dtype.hasobject:
            return mapped
        copy = np.empty_like(mapped)
        if not host_memory.copy(copy.ctypes.data, mapped.ctypes.data, mapped.nbytes):
            raise cut_short()
        return copy


@dataclass(frozen=True, eq=False)
class _Made(Recipe):
    """A constant in a form that is made when it is read, of a copy of its bytes."""

    shape: tuple[int, ...]
    dtype: DType
    make: Callable[[], Recipe]

    @property
    def key(self) -> Hashable:
        return id(self)

    def read(self, box: Box) -> np.ndarray:
        return self.make().read(box)
