"""Quantised models, kernel by kernel: fed with onnxruntime's own quantised inputs no integer result is off by more
than one step, and the integer products are exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.utils import Extractor

import atc
from acl_runtime import InferSession
from atc.benchmarking.verify import QUANTISED
from atc.exact_products import make_products_exact
from models import registry

pytestmark = pytest.mark.long

EXACT = {"ConvInteger", "MatMulInteger"}
CODES = {"QuantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeLSTM"}
MODELS = ("resnet50_qdq", "smart_turn_qdq", "dddd_ocr_dynint8", "bert_base_128_dynint8")


def kernels(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, list[str]]]:
    """(node whose first output is compared, tensors to feed): from codes to the next codes, or one integer product."""
    producer = {o: n for n in model.graph.node for o in n.output}
    known = {i.name for i in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in EXACT | {"DynamicQuantizeLinear"}:
            yield node, [i for i in node.input if i and i not in known]
        elif node.op_type == "QuantizeLinear" and node.input[0] not in known:
            feeds: list[str] = []
            waiting, seen = [node.input[0]], set[str]()
            while waiting:
                name = waiting.pop()
                if name in seen or name in known or not name:
                    continue
                seen.add(name)
                before = producer.get(name)
                if before is None or before.op_type in CODES:
                    feeds.append(name)
                else:
                    waiting += before.input
            if feeds:
                yield node, feeds


@pytest.mark.parametrize("name", MODELS)
def test_no_integer_kernel_is_off_by_more_than_one_step(name: str, tmp_path: Path) -> None:
    try:
        path = registry.get(name)
    except registry.ModelUnavailable as error:
        pytest.skip(str(error))
    inputs = registry.inputs(name)
    model = onnx.load(path)
    for wire in model.graph.input:
        if wire.name in inputs:
            for d, size in zip(wire.type.tensor_type.shape.dim, inputs[wire.name].shape, strict=True):
                d.dim_value = size
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    wanted = list(kernels(model))
    assert len(wanted) > 15, "the case says nothing"
    names = {t for node, feeds in wanted for t in (node.output[0], *feeds)} - inputs.keys()
    golden = every_tensor(model, names, inputs)
    extractor = Extractor(model)
    for number, (node, feeds) in enumerate(wanted):
        part = extractor.extract_model(feeds, [node.output[0]])
        fix_shapes(part, golden)
        onnx.save(part, tmp_path / f"{number}.onnx")
        atc.convert(tmp_path / f"{number}.onnx", tmp_path / f"{number}.om")
        (ours,) = InferSession(0, tmp_path / f"{number}.om").infer({f: golden[f] for f in feeds})
        theirs = golden[node.output[0]]
        off = int(np.abs(ours.astype(np.int64) - theirs.astype(np.int64)).max(initial=0))
        assert off <= (0 if node.op_type in EXACT else 1), f"{node.op_type} {node.name}: off by {off}"


def every_tensor(model: onnx.ModelProto, names: set[str], inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """onnxruntime's values of these tensors, integer products exact on every CPU and nothing else rewritten."""
    shown = onnx.ModelProto.FromString(model.SerializeToString())
    present = {o.name for o in shown.graph.output}
    shown.graph.output.extend(onnx.ValueInfoProto(name=n) for n in sorted(names - present))
    make_products_exact(shown)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ordered = sorted(names)
    return dict(zip(ordered, session.run(ordered, inputs), strict=True)) | inputs


def fix_shapes(part: onnx.ModelProto, golden: dict[str, np.ndarray]) -> None:
    """Inputs of a part in the shapes that the run has."""
    for wire in part.graph.input:
        if wire.name in golden:
            array = golden[wire.name]
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            wire.CopyFrom(onnx.helper.make_tensor_value_info(wire.name, kind, array.shape))


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_agrees_with_itself(name: str) -> None:
    """Inputs on which onnxruntime's own rewriting moves an answer as far as the benchmark allows would say nothing."""
    try:
        path = registry.get(name)
    except registry.ModelUnavailable as error:
        pytest.skip(str(error))
    inputs, found = registry.inputs(name), []
    for level in (onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        found.append(session.run(None, inputs))
    for one, other in zip(*found, strict=True):
        if one.dtype.kind == "f":
            assert np.linalg.norm(one - other) <= QUANTISED.relative_l2 / 4 * np.linalg.norm(one)
