"""Codes of unsigned bytes as signed ones: less 128, the middle of their range."""

from __future__ import annotations

import numpy as np

from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.core import Value
from tensor_types.dtypes import I8, I32

MIDDLE = 128

Signed = dict[Value, Value]
"""What has been made of unsigned values, so that all products of one share it."""


def signed(do: Arithmetic, value: Value, made: Signed) -> Value:
    """The codes less 128, as i8; of a constant at convert time."""
    if value not in made:
        if value.data is not None:
            made[value] = do.constant((value.data.astype(np.int16) - MIDDLE).astype(np.int8), "signed")
        else:
            # By way of i32, which is how vector units narrow.
            made[value] = do.cast(do("Sub", do.cast(value, I32), MIDDLE), I8)
    return made[value]
