"""Which values share one storage: aliases follow their base, and a model output lends its own buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graph_opt.plan.records import AliasRecord, KernelRecord
from graph_opt.plan.task_graph import PlanInput, ValueInfo
from tensor_types.dims import Dim, dmax, names
from tensor_types.errors import InvalidModel, UnsupportedOperator
from tensor_types.proofs import prove_le


@dataclass(frozen=True)
class Roots:
    """`of[name]` is (root value, byte offset within it); `objects` are the values that live as object handles."""

    of: Mapping[str, tuple[str, Dim]]
    objects: frozenset[str]
    bytes: Mapping[str, Dim]
    """Bytes of each root that is no object: of itself or of the largest view of it."""


def find_roots(model: PlanInput, values: Mapping[str, ValueInfo]) -> Roots:
    """Resolves alias records and decides which values are object handles.

    A value is a handle if its dtype is one or its size depends on dims that are not known before the run.
    UnsupportedOperator if a native task touches such a value.
    """
    known = frozenset(model.dims)
    objects = {
        v.name
        for v in values.values()
        if v.dtype.kind == "handle" or v.shape is None or any(names(d) - known for d in v.shape)
    }
    of: dict[str, tuple[str, Dim]] = {}
    for scheduled in model.records:
        record = scheduled.record
        if isinstance(record, AliasRecord):
            if record.input in objects:
                # A view of an object is made by the AI CPU; the caller has to give a record of it for that.
                raise _late(record.node, record.input)
            root, offset = of.get(record.input, (record.input, 0))
            of[record.output] = (root, offset + record.byte_offset)
    for scheduled in model.records:
        if isinstance(scheduled.record, KernelRecord):
            for operand in scheduled.record.operands:
                if operand.value in objects:
                    raise _late(scheduled.record.node, str(operand.value))
    sizes: dict[str, Dim] = {}
    for name, value in values.items():
        if name in objects:
            continue
        root, offset = of.setdefault(name, (name, 0))
        end = offset + value.bytes
        held = sizes.get(root)
        # Most views are the whole of their base; a maximum would only hide that.
        sizes[root] = end if held is None or prove_le(held, end, model.dims) else dmax(held, end)
    return Roots(of, frozenset(objects), sizes)


def _late(node: str, value: str) -> UnsupportedOperator:
    return UnsupportedOperator(
        "a native kernel cannot take a tensor whose size only the run decides",
        where={"node": node, "tensor": value},
        remedy="lower the node for the AI CPU",
    )


def versions_of(model: PlanInput) -> dict[str, tuple[str, str | None]]:
    """For each value that lies in a state: its version and the version that this one overwrote (None: none).

    InvalidModel if a version is overwritten twice.
    """
    found: dict[str, tuple[str, str | None]] = {name: (name, None) for name in model.states}
    overwritten: set[str] = set()
    for scheduled in model.records:
        record = scheduled.record
        if not isinstance(record, AliasRecord) or record.input not in found:
            continue
        version = found[record.input][0]
        if not record.update:
            found[record.output] = (version, None)
            continue
        if version in overwritten or record.byte_offset != 0:
            raise InvalidModel("a state is updated twice from one version", where={"node": record.node})
        overwritten.add(version)
        found[record.output] = (record.output, version)
    return found


def output_roots(outputs: Sequence[str], values: Mapping[str, ValueInfo], roots: Roots) -> dict[str, int]:
    """The outputs whose buffer is the storage of their root: root name -> output number."""
    taken: dict[str, int] = {}
    for number, name in enumerate(outputs):
        if name not in values:
            raise InvalidModel("an output has no value", where={"tensor": name})
        if name in roots.objects:
            continue
        root, offset = roots.of[name]
        fits = offset == 0 and roots.bytes[root] == values[name].bytes
        if fits and values[root].kind not in ("input", "constant", "state") and root not in taken:
            taken[root] = number
    return taken
