"""The declarations agree with the operator schemas of the onnx package."""

import onnx
import onnx.defs
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_schemas

import frontend.normalise  # noqa: F401 (importing it registers the forms)
from frontend.normalise.pending import has_form
from graph_opt.ir import ops

INTERNAL = {
    "Fused", "Relayout", "IfMerge", "ClosedLoop", "ClosedScan", "MoeRoute", "GroupedMatMul", "BlockMatMul",
    "QuantizeBlocks", "QuantisedLstm", "PrepareImage", "ResizeTaps",
    "SelectBoxes", "SelectedBoxes", "Trees", "ScatterPages", "PagedAttention",
}  # fmt: skip

READ_AS_OTHERS = {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
"""Standard operators that the reader writes as others, whatever their form, so that no pass knows them."""

ADDED = {"ConvInteger": {"pad_value", "zero_outside"}, "Conv": {"direct"}}
"""Attributes that passes give to standard operators."""


def newest() -> dict[str, onnx.defs.OpSchema]:
    found: dict[str, onnx.defs.OpSchema] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        old = found.get(schema.name)
        if schema.domain == "" and (old is None or schema.since_version > old.since_version):
            found[schema.name] = schema
    return {name: s for name, s in found.items() if not s.deprecated and name not in READ_AS_OTHERS}


SCHEMAS = newest()


def test_every_operator_of_onnx_is_declared() -> None:
    assert set(SCHEMAS) - {op.name for op in ops.declared()} == set()
    assert all(has_form(name) for name in READ_AS_OTHERS)


def test_nothing_else_is_declared() -> None:
    assert {op.name for op in ops.declared() if "::" not in op.name} - set(SCHEMAS) == INTERNAL


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_inputs_and_attributes_are_those_of_the_schema(name: str) -> None:
    declared, schema = ops.get(name), SCHEMAS[name]
    option = {"Optional": "?", "Variadic": "*"}
    assert declared is not None
    assert [i.rstrip("?*") for i in declared.inputs] == [i.name for i in schema.inputs]
    if name != "Reshape":  # whose target a pass may drop once the output's shape is known
        assert [i[-1:] if i[-1:] in "?*" else "" for i in declared.inputs] == [
            option.get(i.option.name, "") for i in schema.inputs
        ]
    assert set(declared.attrs) - ADDED.get(name, set()) == set(schema.attributes)
    for key, attribute in schema.attributes.items():
        if not attribute.default_value.name:
            assert declared.attrs[key].default is None, key
            continue
        wanted = onnx.helper.get_attribute_value(attribute.default_value)
        if isinstance(wanted, bytes):
            wanted = wanted.decode()
        if isinstance(wanted, list):
            wanted = tuple(w.decode() if isinstance(w, bytes) else w for w in wanted)
        assert declared.attrs[key].default == (pytest.approx(wanted) if isinstance(wanted, float) else wanted), key


def test_commutative_operators_have_interchangeable_inputs() -> None:
    commutative = {op.name for op in ops.declared() if op.commutative}
    assert {"Add", "Mul", "Max", "Min", "Equal", "And", "Or"} <= commutative
    assert commutative.isdisjoint({"Sub", "Div", "Pow", "Less", "Greater", "Mod", "MatMul", "PRelu"})


CONTRIB = {f"{s.domain}::{s.name}": s for s in onnxruntime_schemas.get_all_operator_schema() if s.domain}


@pytest.mark.parametrize("name", [op.name for op in ops.declared() if "::" in op.name])
def test_contrib_operators_are_those_of_onnxruntime(name: str) -> None:
    declared, schema = ops.get(name), CONTRIB[name]
    assert declared is not None
    assert [i.rstrip("?*") for i in declared.inputs] == [i.name for i in schema.inputs]
    assert set(declared.attrs) - ADDED.get(name, set()) == set(schema.attributes)
    option = {"Optional": "?", "Variadic": "*", "Single": ""}
    for ours, theirs in zip(declared.inputs, schema.inputs, strict=True):
        assert (ours[-1] if ours[-1] in "?*" else "") == option[str(theirs.option).rpartition(".")[2]], ours
