"""Exported architectures at two sizes against onnxruntime: right, and as good as nothing on the AI CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import atc
from acl_runtime import InferSession
from models import exported

pytestmark = pytest.mark.long
DATA_DEPENDENT = {"vits": {"Range", "RandomNormalLike"}}
"""Operators that stay on the AI CPU: the length of what VITS says is data, and its noise is drawn."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("torch", "transformers", "diffusers", "onnxscript"):
        pytest.importorskip(module)
    return tmp_path_factory.mktemp("exports")


def other_size(model: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs repeated along their open dims: a batch of 3, and 5/3 of every other extent."""
    sizes: dict[str, int] = {}
    found = {}
    for value in onnx.load(model, load_external_data=False).graph.input:
        array = arrays[value.name]
        rows = []
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            size = array.shape[axis]
            if dim.dim_param and "+" not in dim.dim_param:
                size = sizes.setdefault(dim.dim_param, 3 if axis == 0 else size * 5 // 3)
            rows.append(np.arange(size) % array.shape[axis])
        found[value.name] = array[np.ix_(*rows)] if array.ndim else array
    return found


@pytest.mark.parametrize("mode", exported.MODES)
@pytest.mark.parametrize("name", exported.ARCHITECTURES)
def test_an_export_is_right_at_two_sizes(name: str, mode: str, folder: Path) -> None:
    try:
        path = exported.export(name, mode, folder)
    except Exception as error:
        pytest.skip(f"no {mode} export of {name} here: {type(error).__name__}")
    with np.load(path.with_suffix(".npz")) as held:
        taken = {i.name for i in onnx.load(path, load_external_data=False).graph.input}
        arrays = {key: held[key] for key in held.files if key in taken}
    result = atc.convert(path, path.with_suffix(".om"))
    assert {row["op"] for row in result.aicpu_nodes} <= DATA_DEPENDENT.get(name, set())
    session = InferSession(0, path.with_suffix(".om"))
    oracle = onnxruntime.InferenceSession(str(path))
    for feeds in (arrays, other_size(path, arrays)):
        try:
            wanted = oracle.run(None, feeds)
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
            continue  # the tracing exporter fixed a size that the inputs leave open
        for ours, theirs in zip(session.infer(feeds), wanted, strict=True):
            scale = np.linalg.norm(theirs.astype(np.float64))
            assert np.linalg.norm(ours.astype(np.float64) - theirs) <= 1e-4 * scale
