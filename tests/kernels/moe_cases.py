"""Fused nodes of operators that no ONNX runtime knows, with results that the test computes itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from graph_opt.ir.core import Node
from tests.kernels.lowered import Case


@dataclass
class Given(Case):
    """A case whose results are `made`, by the name of each value."""

    made: Mapping[str, np.ndarray] = field(default_factory=dict)

    def expected(self) -> dict[str, np.ndarray]:
        return dict(self.made)

    def fused(self) -> Node:
        """The Fused node."""
        return self.node(self.expected())
