"""The one place of `acl` that knows the compiler: it is loaded when the first single operator is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime.device.operators import Operator, Operators


def _compile(path: Path, operator: Operator) -> None:
    from atc.single_operator import compile_operator

    constants = {}
    for number, data in operator.constants:
        dtype, dims = operator.inputs[number]
        constants[number] = np.frombuffer(data, dtype.numpy).reshape(dims)
    attributes = {name: _listed(value) for name, value in operator.attributes}
    compile_operator(path, operator.kind, operator.inputs, operator.outputs, attributes, constants)


def _listed(value: Any) -> Any:
    return list(map(_listed, value)) if isinstance(value, tuple) else value


operators = Operators(_compile)
