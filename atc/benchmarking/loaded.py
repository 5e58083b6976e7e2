"""What a contender gives: a function that runs the model once, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Run = Callable[[], Arrays]


@dataclass(frozen=True)
class Loaded:
    """`run` computes all outputs from the inputs given to `load`; `options` are recorded beside the figures."""

    run: Run
    options: dict[str, Any]
