"""Operators of the user that come with a tile program: one operator, one task.

The program's parameters are the inputs that are present, then the outputs, in order, dense and of the values' dtypes; a
model may leave out last outputs. `workspace` parameters may stand anywhere. A dim of the program takes the extent of an
axis whose shape in a parameter is that dim alone, so one program serves many sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codegen.kernels.built_programs import text_of
from codegen.kernels.operands import NotLowerable, body_of, outer_values
from codegen.targets.target import Target
from codegen.tile.ir import Instr, Param, Program, walk
from codegen.tile.text import parse_program
from codegen.tile.verifier import VerifyError, verify
from graph_opt.ir.core import Node, Value
from graph_opt.ir.ops.custom import TensorType, type_of
from graph_opt.plan.records import KernelRecord, Record, TaskOperand
from tensor_types.dims import Dim, dim, product, substitute
from tensor_types.errors import InvalidModel, OpenAtcError
from tensor_types.proofs import prove_le

ProgramFunction = Callable[
    [Sequence[TensorType | None], Sequence[TensorType], Target, Mapping[str, Any]], Program | str | None
]
"""Types of inputs and outputs, target, attributes of the node -> a program or its text; None if there is none."""

_PROGRAMS: dict[str, ProgramFunction] = {}


def set_custom(op: str, function: ProgramFunction | None) -> None:
    """Gives an operator of the user, 'Domain::Name', its tile program, or takes it away."""
    if function is None:
        _PROGRAMS.pop(op, None)
    else:
        _PROGRAMS[op] = function


def custom_operators() -> frozenset[str]:
    """The operators that have a program."""
    return frozenset(_PROGRAMS)


def lower_custom(node: Node, target: Target) -> list[Record]:
    """The task of a Fused node that holds one registered operator. InvalidModel if its program does not fit."""
    [inner] = body_of(node).nodes
    outside = outer_values(node)
    inputs = [None if v is None else outside.get(v.name, v) for v in inner.inputs]
    outputs = [outside.get(v.name, v) for v in inner.outputs]
    if all(v.shape is not None and product(v.shape) == 0 for v in outputs):
        return []
    types = [None if v is None else type_of(v) for v in inputs]
    try:
        made = _PROGRAMS[inner.op](types, [type_of(v) for v in outputs], target, inner.attrs)
        if made is None:
            raise NotLowerable("its function gives no program")
        program = parse_program(made) if isinstance(made, str) else made
        present = [v for v in inputs if v is not None]
        dims = _bind(program, [*present, *outputs], len(present), body_of(node).dims)
        verify(program, target)
    except VerifyError as error:
        if target.explicit_memory:
            # Written for hosts, most programs move nothing between a chip's memories: the numpy function stands in.
            raise NotLowerable(f"its tile program does not fit the chip: {error.reason}") from error
        raise _refused(node, inner, f"`{error.statement}`: {error.reason}") from error
    except (NotLowerable, OpenAtcError):
        raise
    except Exception as error:  # whatever the user's code raises
        raise _refused(node, inner, f"{type(error).__name__}: {error}") from error
    values = iter([*present, *outputs])
    read = {v.name for v in (*node.outputs, *present)}
    operands = []
    for param in program.params:
        value = next(values, None) if param.role != "workspace" else None
        if value is not None and value.name in read:
            operands.append(TaskOperand(value.name, param.role))
        else:  # scratch, or a result that nothing reads
            operands.append(TaskOperand(None, "workspace", bytes=substitute(_bytes(param), dims)))
    work = product(product(v.shape) for v in outputs) * sum(isinstance(s, Instr) for s in walk(program.body))
    bound = tuple(dims[d.name] for d in program.dims)
    grid = substitute(program.grid_size(), dims)
    return [KernelRecord(text_of(program), tuple(operands), bound, grid, node.name, "custom", work)]


def _bind(
    program: Program, values: Sequence[Value], n_inputs: int, ranges: Mapping[str, tuple[int, int | None]]
) -> dict[str, Dim]:
    """The extents that the program's dims stand for. ValueError if parameters and values do not go together."""
    params = [p for p in program.params if p.role != "workspace"]
    roles = ["in"] * n_inputs + ["out"] * max(len(params) - n_inputs, len(values) - n_inputs)
    if [p.role for p in params] != roles:
        wanted = f"{n_inputs} in, then {len(values) - n_inputs} out"
        raise ValueError(f"its parameters are {', '.join(p.role for p in params)}; the operator has {wanted}")
    bound: dict[str, Dim] = {}
    for param, value in zip(params, values, strict=False):
        shape = value.shape or ()
        if param.dtype != value.dtype or len(param.shape) != len(shape) or param.strides is not None:
            raise ValueError(f"parameter {param.name} is {param.dtype}{_list(param.shape)}, its tensor {value}")
        for wanted, extent in zip(param.shape, shape, strict=True):
            for d in program.dims:
                if wanted == dim(d.name):
                    bound.setdefault(d.name, extent)
    for d in program.dims:
        if d.name not in bound:
            raise ValueError(f"its dim {d.name} is no axis of a parameter")
        extent = bound[d.name]
        below = prove_le(extent, d.low - 1, ranges)
        if below or d.high is not None and prove_le(d.high + 1, extent, ranges):
            raise ValueError(f"its dim {d.name} in [{d.low}, {d.high}] cannot be {extent}")
    for param, value in zip(params, values, strict=False):
        if tuple(substitute(d, bound) for d in param.shape) != value.shape:
            raise ValueError(f"parameter {param.name} is {param.dtype}{_list(param.shape)}, its tensor {value}")
    return bound


def _bytes(param: Param) -> Dim:
    return product(param.shape) * param.dtype.bytes


def _list(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _refused(node: Node, inner: Node, reason: str) -> InvalidModel:
    return InvalidModel(
        f"the tile program is refused: {reason}", code="E17001", where={"node": node.name, "op": inner.op},
        remedy="mend the function tile that the operator was registered with",
    )  # fmt: skip
