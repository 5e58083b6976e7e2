"""What is measured: a model file with its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Case:
    """`flops` counts a multiply-add as two, where known. `reference_path` is a faster form of the same function for
    onnxruntime. `package` is what ours runs instead of a conversion of its own, and `reduced` tells that it computes in
    fewer bits than the model asks for. `int8`: a quantised model, checked within the limits for those."""

    name: str
    path: Path
    inputs: dict[str, np.ndarray]
    int8: bool = False
    flops: float | None = None
    reference_path: Path | None = None
    package: Path | None = None
    reduced: bool = False
