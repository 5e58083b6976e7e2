"""Resize as copies between views: whole factors of nearest neighbour, of any run-time size."""

from __future__ import annotations

from codegen.kernels.movement_copy import MovementTiling, Walk, emit_copy, program_dim
from codegen.kernels.operands import NotLowerable, shape_of
from codegen.kernels.region_space import order
from codegen.kernels.region_task import KernelTask
from codegen.targets.target import Target
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, product


def _factors(op: Node, x: Value, y: Value) -> list[int]:
    """The whole factor of every axis; NotLowerable if one is no whole number."""
    factors = []
    scales = op.inputs[2] if len(op.inputs) > 2 else None
    for k, (size, result) in enumerate(zip(shape_of(x), shape_of(y), strict=True)):
        if scales is not None and scales.data is not None and scales.data.size == len(shape_of(x)):
            factor = float(scales.data.reshape(-1)[k])
        elif isinstance(size, int) and isinstance(result, int) and size:
            factor = result / size
        elif size == result:
            factor = 1.0
        else:
            raise NotLowerable("Resize to a run-time size")
        if factor != int(factor) or factor < 1 or result != size * int(factor):
            raise NotLowerable("Resize by a fraction")
        factors.append(int(factor))
    return factors


def lower_resize(node: Node, op: Node, x: Value, y: Value, target: Target, tiling: MovementTiling) -> list[Record]:
    """Tasks of a Resize; NotLowerable if its mode or factors have no kernel."""
    if str(op.attrs.get("mode", "nearest")) != "nearest" or op.attrs.get("axes"):
        raise NotLowerable("Resize other than nearest")
    factors = _factors(op, x, y)
    transform = str(op.attrs.get("coordinate_transformation_mode", "half_pixel"))
    rounding = str(op.attrs.get("nearest_mode", "round_prefer_floor"))
    floors = transform == "asymmetric" and (
        rounding in ("floor", "by_direction")
        or (rounding == "round_prefer_floor" and all(f in (1, 2) for f in factors))
    )
    centres = transform in ("half_pixel", "half_pixel_symmetric") and rounding.startswith("round_prefer")
    if not (floors or centres or all(f == 1 for f in factors)):
        raise NotLowerable(f"Resize nearest, {transform}, {rounding}")
    shape = shape_of(x)
    extents: list[Dim] = []
    reads: list[Walk] = []
    writes: list[list[Walk]] = []
    for size, factor in zip(shape, factors, strict=True):
        reads.append(Walk(size, len(extents)))
        writes.append([Walk(size, len(extents))] + ([Walk(factor, len(extents) + 1)] if factor > 1 else []))
        extents += [size] + ([factor] if factor > 1 else [])
    if any(e == 0 for e in extents):
        return []
    task = KernelTask(node, "movement", target)
    emit_copy(
        task, tiling, x, y, extents, [reads[a] for a in order(x.format, len(shape))],
        [w for a in order(y.format, len(shape)) for w in writes[a]],
    )  # fmt: skip
    return [task.record(work=product(program_dim(task, e) for e in extents))]
