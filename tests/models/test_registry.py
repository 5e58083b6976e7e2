"""Names, seeded inputs and the models' own input declarations agree."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from models import registry, trained


def test_every_trained_model_has_an_entry():
    assert set(trained.TABLE) == {name for name in registry.names() if registry.spec(name).build is None}


def test_unknown_names_and_dims_are_refused():
    with pytest.raises(KeyError, match="resnet50"):
        registry.get("resnet51")
    with pytest.raises(ValueError, match="height"):
        registry.inputs("dddd_ocr", height=3)


@pytest.mark.parametrize("name", registry.names())
def test_inputs_are_decided_by_the_seed(name):
    first, again, other = registry.inputs(name), registry.inputs(name), registry.inputs(name, seed=1)
    for key, array in first.items():
        assert array.dtype in (np.float32, np.float16, np.int64, np.int32)
        assert np.isfinite(array).all()
        np.testing.assert_array_equal(array, again[key])
    assert any(not np.array_equal(array, other[key]) for key, array in first.items())


@pytest.mark.parametrize("name", registry.names())
def test_inputs_fit_the_model(name):
    path = registry.cache_folder() / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is absent; `python -m models get {name}` brings it")
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    declared = {value.name: value.type.tensor_type for value in graph.input if value.name not in weights}
    arrays = registry.inputs(name)
    assert arrays.keys() == declared.keys()
    for key, array in arrays.items():
        assert array.dtype == onnx.helper.tensor_dtype_to_np_dtype(declared[key].elem_type)
        fixed = [dim.dim_value or None for dim in declared[key].shape.dim]
        assert len(fixed) == array.ndim
        assert all(size in (None, actual) or size < 0 for size, actual in zip(fixed, array.shape, strict=True))


def test_free_dims_change_the_inputs():
    assert registry.shapes("ppocrv6_det", height=736, width=1280) == {"x": (1, 3, 736, 1280)}
    assert registry.shapes("gpt2_decode", past=7)["attention_mask"] == (1, 8)


def test_a_changed_builder_makes_the_file_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENATC_MODELS", str(tmp_path))
    path = registry.get("moe_dense")
    before = path.stat().st_mtime_ns
    assert registry.get("moe_dense").stat().st_mtime_ns == before
    (tmp_path / "moe_dense.key").write_text("of an older builder")
    assert registry.get("moe_dense").stat().st_mtime_ns != before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["moe_dense.key", "moe_dense.onnx"]
