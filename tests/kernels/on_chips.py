"""Lowered nodes on chips, as far as that goes here: the rules of the verifier, numbers from the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from codegen.targets import target
from codegen.tile.interpreter import interpret
from codegen.tile.text import parse_program
from codegen.tile.verifier import verify
from graph_opt.plan.records import KernelRecord, Record
from tensor_types.dims import evaluate
from tests.kernels.lowered import Case, packed

CHIPS = ("Ascend910B2", "Ascend310P3")


def check_on_chips(
    case: Case, lower: Callable[..., list[Record] | None], rtol: float, atol: float, chips: Sequence[str] = CHIPS,
    exact: bool = False,
) -> None:  # fmt: skip
    """Lowers, verifies and interprets the case for chips; results must agree with onnxruntime, `exact` to the bit."""
    results = case.expected()
    node = case.node(results)
    for chip in chips:
        values = dict(case.arrays)
        values.update({v.name: np.zeros_like(results[v.name]) for v in node.outputs})
        for record in lower(node, target(chip)) or []:
            assert isinstance(record, KernelRecord)
            program = parse_program(record.program)
            verify(program, target(chip))
            dims = {d.name: evaluate(v, case.dims) for d, v in zip(program.dims, record.dims, strict=True)}
            tensors = {}
            for param, operand in zip(program.params, record.operands, strict=True):
                shape = tuple(evaluate(d, dims) for d in param.shape)
                if operand.value is None:
                    tensors[param.name] = np.zeros(shape, param.dtype.numpy)
                else:
                    held = np.ascontiguousarray(packed(operand, values[operand.value]))
                    tensors[param.name] = np.atleast_1d(held).view(param.dtype.numpy).reshape(shape)
            interpret(program, tensors, dims)
            for param, operand in zip(program.params, record.operands, strict=True):
                if operand.role == "out" and operand.value is not None:
                    held = tensors[param.name]
                    values[operand.value] = held.view(values[operand.value].dtype).reshape(values[operand.value].shape)
        for v in node.outputs:
            if exact:
                np.testing.assert_array_equal(values[v.name], results[v.name], err_msg=f"{chip} {v.name}")
                continue
            got, want = values[v.name].astype(np.float64), results[v.name].astype(np.float64)
            np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=f"{chip} {v.name}")
