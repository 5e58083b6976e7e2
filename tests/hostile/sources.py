"""The models that are changed: those of the tests of `atc`, whose modules import each other by plain names."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

sys.path.append(str(Path(__file__).parents[1] / "atc"))

import late_models  # noqa: E402
import small_models  # noqa: E402
import test_loop_bodies  # noqa: E402

MODELS = ("mlp", "branches", "with_function", "integers", "half_cast", "sequence", "quantised", "bert", "llama")
LATE = ("selected_rows", "detector", "twice", "guarded", "counted", "filled")
LOOPS = ("layer", "sliding", "growing", "nested")


def model(name: str) -> onnx.ModelProto:
    """The model of that name."""
    if name in small_models.BUILDERS:
        return small_models.BUILDERS[name]()
    return getattr(test_loop_bodies if name in LOOPS else late_models, name)()
