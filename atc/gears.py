"""Gears: the sizes that a package is made for, of --dynamic_batch_size, --dynamic_image_size or --dynamic_dims.

The package is the symbolic one. Gears bound its dims and stand in its header, where the device face reads them
(docs/architecture.md, section 7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atc.usage import UsageError
from tensor_types.dims import Dim, Expr, names

if TYPE_CHECKING:
    from graph_opt.ir import Graph

HIDDEN_INPUT = "ascend_mbatch_shape_data"
_FLAGS = {"batch": "dynamic_batch_size", "image": "dynamic_image_size", "dims": "dynamic_dims"}
_FEWEST, _MOST = 2, 100


@dataclass(frozen=True)
class Gears:
    """`kind` is batch, image or dims; `combinations` are equally long lists of sizes."""

    kind: str
    combinations: tuple[tuple[int, ...], ...]

    @property
    def flag(self) -> str:
        """The flag that asked for them."""
        return f"--{_FLAGS[self.kind]}"


def batch_gears(flag: str, value: Any) -> Gears:
    """'1,2,4'."""
    sizes = [[word] for word in value.split(",")] if isinstance(value, str) else [[n] for n in value]
    return _gears("batch", sizes, "E10003")


def image_gears(flag: str, value: Any) -> Gears:
    """'h,w;h,w'."""
    found = _gears("image", _split(value), "E10020")
    if any(len(c) != 2 for c in found.combinations):
        raise _wrong("image", "E10020", "holds a gear that is no height and width", 'write "224,224;448,448"')
    return found


def dims_gears(flag: str, value: Any) -> Gears:
    """'a,b;a,b': one size for each open dim."""
    return _gears("dims", _split(value), "E10002")


def _split(value: Any) -> Sequence[Sequence[Any]]:
    if not isinstance(value, str):
        return [list(c) for c in value]
    return [part.split(",") for part in value.split(";") if part.strip()]


def _gears(kind: str, given: Sequence[Sequence[Any]], malformed: str) -> Gears:
    try:
        combinations = tuple(tuple(int(word) for word in part) for part in given)
    except (TypeError, ValueError):
        raise _wrong(kind, malformed, "holds something that is no size", _FORMS[kind]) from None
    if len(combinations) < _FEWEST:
        raise _wrong(
            kind,
            "E10035",
            f"has {len(combinations)} gear",
            f"give at least {_FEWEST}, or fix the size with --input_shape",
        )
    if len(combinations) > _MOST:
        raise _wrong(kind, "E10036", f"has {len(combinations)} gears", f"give at most {_MOST}, or leave the sizes open")
    if len({len(c) for c in combinations}) > 1:
        raise _wrong(kind, "E10037", "has gears with different numbers of sizes", _FORMS[kind])
    if any(size < 1 for c in combinations for size in c):
        raise _wrong(kind, "E10038", "has a size that is not positive", "give sizes from 1 on")
    if len(set(combinations)) < len(combinations):
        raise _wrong(kind, "E10039", "has a gear twice", "give each once")
    return Gears(kind, combinations)


_FORMS = {"batch": 'write "1,2,4,8"', "image": 'write "224,224;448,448"', "dims": 'write "1,224;8,448"'}


def bind_gears(graph: Graph, gears: Gears, wishes: Mapping[Any, Sequence[Any]], layout: str) -> dict[str, int]:
    """Bounds the open dims of the graph by the gears; gives the number of the size that each dim takes.

    Open are the dims that --input_shape gives as -1, all symbolic ones of inputs that it does not name. UsageError with
    ATC's code: for a range (E10040), no open dim (E10031, E10040), dims that the kind has no sizes for (E10018,
    E10019), another number of them (E10045), dims that the model fixes and gears that contradict themselves (E10050).
    """
    places = _open_places(graph, gears, wishes)
    if gears.kind == "batch":
        for name, axis in places:
            if axis != 0:
                raise _place(gears, "E10018", name, axis, "only the batch, axis 0, may be open", "fix the others")
        if not places:
            raise _none(gears, "E10031")
        chosen = [(name, axis, 0) for name, axis in places]
    elif gears.kind == "image":
        at = {"NHWC": (1, 2)}.get(layout, (2, 3))
        for name, axis in places:
            if axis not in at or len(_shape(graph, name)) != 4:
                raise _place(gears, "E10019", name, axis, f"only axes {at[0]} and {at[1]} of an image may be open",
                             "fix the others, and check --input_format")  # fmt: skip
        if not places:
            raise _none(gears, "E10019")
        chosen = [(name, axis, at.index(axis)) for name, axis in places]
    else:
        if not places:
            raise _none(gears, "E10040")
        if len(places) != len(gears.combinations[0]):
            shown = ", ".join(f"{name} axis {axis}" for name, axis in places)
            count = len(gears.combinations[0])
            raise _wrong("dims", "E10045", f"has {count} sizes a gear, but {len(places)} dims are open",
                         f"give one for each, in this order: {shown}")  # fmt: skip
        chosen = [(name, axis, number) for number, (name, axis) in enumerate(places)]
    numbers: dict[str, int] = {}
    for name, axis, number in chosen:
        dim = _shape(graph, name)[axis]
        if not isinstance(dim, Expr) or str(dim) not in graph.dims:
            raise _place(gears, "E10050", name, axis, f"the model has {dim} there, which is not open",
                         "export the model with an open dim there")  # fmt: skip
        before = numbers.setdefault(str(dim), number)
        for combination in gears.combinations:
            if combination[before] != combination[number]:
                raise _place(gears, "E10050", name, axis, f"{dim} is {combination[before]} in another place, not "
                             f"{combination[number]}", "give equal sizes: the model has one dim there")  # fmt: skip
    for dim_name, number in numbers.items():
        sizes = [c[number] for c in gears.combinations]
        graph.dims[dim_name] = (min(sizes), max(sizes))
    return numbers


def header_of(graph: Graph, gears: Gears, numbers: Mapping[str, int]) -> dict[str, Any]:
    """The header's `gears`: axes of the graph's inputs as they are now, each with one dim that a size is for."""
    axes = [
        {"input": value.name, "axis": axis, "value": numbers[name]}
        for value in graph.inputs
        for axis, dim in enumerate(value.shape or ())
        for name in names(dim)
        if name in numbers
    ]
    combinations = [list(c) for c in gears.combinations]
    return {"kind": gears.kind, "input": HIDDEN_INPUT, "combinations": combinations, "axes": axes}


def _open_places(graph: Graph, gears: Gears, wishes: Mapping[Any, Sequence[Any]]) -> list[tuple[str, int]]:
    given = {graph.inputs[key].name if isinstance(key, int) else key: dims for key, dims in wishes.items()}
    order = [*given, *(v.name for v in graph.inputs if v.name not in given)]
    places = []
    for name in order:
        for axis, dim in enumerate(_shape(graph, name)):
            wish = given[name][axis] if name in given else -1 if isinstance(dim, Expr) else dim
            if isinstance(wish, tuple):
                raise _place(gears, "E10040", name, axis, "a range and gears exclude each other", "write -1 there")
            if wish == -1:
                places.append((name, axis))
    return places


def _shape(graph: Graph, name: str) -> tuple[Dim, ...]:
    return next((v.shape for v in graph.inputs if v.name == name), None) or ()


def _place(gears: Gears, code: str, name: str, axis: int, what: str, remedy: str) -> UsageError:
    return UsageError(f"{gears.flag}, input {name}, axis {axis}: {what}", code=code,
                      where={"flag": gears.flag, "tensor": name}, remedy=remedy)  # fmt: skip


def _none(gears: Gears, code: str) -> UsageError:
    return _wrong(
        gears.kind, code, "is given, but no dim is open", 'write -1 into --input_shape, as in "x:-1,3,224,224"'
    )


def _wrong(kind: str, code: str, what: str, remedy: str) -> UsageError:
    flag = f"--{_FLAGS[kind]}"
    return UsageError(f"{flag} {what}", code=code, where={"flag": flag}, remedy=remedy)
