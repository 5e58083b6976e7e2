"""The table of AI CPU implementations, and `evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from acl_runtime.aicpu.result_sizes import require_room
from tensor_types.dtypes import dtype
from tensor_types.errors import InvalidModel, OpenAtcError, UnsupportedOperator

Array: TypeAlias = Any
"""A numpy array of any dtype. Not `np.ndarray`: numpy's own stubs are too narrow for code that works on every dtype."""
Inputs = Sequence[Any]
"""Arrays, None for absent optional inputs; a list for a sequence, None for an empty optional."""
Attrs = Mapping[str, Any]
Implementation = Callable[[Inputs, Attrs, int], Any]

_TABLE: dict[str, Implementation] = {}


def implementation(*ops: str) -> Callable[[Implementation], Implementation]:
    """Registers `function(inputs, attrs, n_outputs)` under op names; it returns one result or a tuple of results."""

    def register(function: Implementation) -> Implementation:
        for op in ops:
            if op in _TABLE:
                raise ValueError(f"{op} has two implementations")
            _TABLE[op] = function
        return function

    return register


def set_custom(op: str, function: Implementation | None) -> None:
    """Gives an operator of the user, 'Domain::Name', its implementation, or takes it away."""
    if function is None:
        _TABLE.pop(op, None)
    else:
        _TABLE[op] = function


def has_implementation(op: str) -> bool:
    """True if `evaluate` knows the op."""
    return op in _TABLE


def implemented_ops() -> tuple[str, ...]:
    """All op names, sorted."""
    return tuple(sorted(_TABLE))


def evaluate(op: str, attrs: Attrs, inputs: Inputs, n_outputs: int = 1) -> list[Any]:
    """Results of one operator, semantics of its newest opset. UnsupportedOperator if there is no implementation.

    InvalidModel for inputs or attributes that it cannot take, ResourceLimit for results that are too large.

    Inputs are never written. Results may share memory with inputs (Reshape, Identity).
    """
    function = _TABLE.get(op)
    if function is None:
        raise UnsupportedOperator(
            f"the AI CPU has no implementation of {op}", where={"op": op}, remedy="express it with other operators"
        )
    given = {name: value for name, value in attrs.items() if value is not None}
    plain = {name: tensor(value) if is_tensor(value) else value for name, value in given.items()}
    require_room(op, inputs, plain)
    try:
        with np.errstate(all="ignore"):
            results = function(inputs, plain, n_outputs)
    except (OpenAtcError, MemoryError):
        raise
    except Exception as error:  # numpy's own errors say nothing of the operator
        raise InvalidModel(
            f"the AI CPU could not compute it: {type(error).__name__}: {str(error)[:300]}", where={"op": op},
            remedy="check the model and the values of its inputs",
        ) from error  # fmt: skip
    found = list(results) if isinstance(results, tuple) else [results]
    return found[:n_outputs]


def is_tensor(value: Any) -> bool:
    """True for the JSON form of a tensor."""
    return isinstance(value, dict) and value.keys() == {"dtype", "shape", "values"}


def tensor(value: Any) -> np.ndarray:
    """The array of {"dtype", "shape", "values"}, values being a flat list; an array is given back as it is."""
    if isinstance(value, np.ndarray):
        return value
    return np.array(value["values"], dtype(value["dtype"]).numpy).reshape(value["shape"])


def get(inputs: Inputs, index: int) -> Any:
    """Input `index`, None when absent or beyond the end."""
    return inputs[index] if index < len(inputs) else None
