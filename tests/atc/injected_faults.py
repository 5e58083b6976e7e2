"""Faults of six kinds in real models, and whether `atc compare` names the layer and the pass.

`python -m tests.atc.injected_faults [--no-pass] MODEL...` prints a line a fault; test_injected_faults.py holds the rates.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import atc.conversion
from acl_runtime.run_state import RunState
from atc.compare_model import Comparer, Settings
from atc.comparing.bisect import Probe, bisect_passes
from atc.comparing.rows import Comparison
from atc.conversion import convert
from atc.options import Options
from atc.pass_table import switchable
from graph_opt.ir import Graph
from models import registry
from tensor_types.dims import evaluate
from tensor_types.dtypes import I64
from tests.atc.faults import KERNEL, POINTER, wrong_constant

MODELS = ("mobilenetv2", "silero_vad", "silero_vad_if", "dddd_ocr", "magika", "ppocr_cls", "basic_pitch", "spindle_unet",
          "minilm_int8w", "ppocrv6_rec")  # fmt: skip
KINDS = ("wrong kernel", "stale buffer", "wrong fold", "dropped cast", "swapped layout", "f16 overflow")
PASS = "remove-identities"
"""The pass that does something wrong beside its work, in faults of graphs."""


@dataclass(frozen=True)
class Outcome:
    """right_pass is None where no pass is to blame, or none was looked for."""

    model: str
    kind: str
    expected: frozenset[str]
    found: str | None
    red: int
    right_pass: bool | None = None

    @property
    def right_layer(self) -> bool:
        return self.found in self.expected


def clean(name: str, taps: bool = False) -> Comparison:
    """The model as it is."""
    return compare(registry.get(name), registry.inputs(name), Settings(taps=taps))


def compare(model: Path, feeds: Any, settings: Settings, package: Path | None = None) -> Comparison:
    with Comparer(model, package, settings) as comparer:
        return comparer.compare([("", feeds)])


def outcomes(name: str, with_pass: bool = True) -> Iterator[Outcome]:
    """One fault of each kind, at a place that depends on the model's name alone."""
    draw = np.random.default_rng([len(name), *name.encode()])
    model, feeds = registry.get(name), registry.inputs(name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        package = folder / "clean.om"
        convert(model, package, Options())
        with Comparer(model, package, Settings()) as comparer:
            base = comparer.compare([("", feeds)])
            tasks = _native(comparer)
        node = str(draw.choice(list(tasks)))
        for kind in KINDS[:2]:
            with pytest.MonkeyPatch.context() as patch:
                spoil(patch, node, stale=kind == "stale buffer")
                yield _outcome(name, kind, tasks[node], compare(model, feeds, Settings(), package))
        for kind, prepare in (("wrong fold", _fold), ("dropped cast", _cast), ("swapped layout", _layout)):
            proto = onnx.load(str(model), load_external_data=True)
            place = prepare(proto, base, draw, feeds)
            if place is None:
                continue
            path = folder / f"{kind}.onnx"
            onnx.save(proto, str(path))
            expected, spoil_graph = place
            with pytest.MonkeyPatch.context() as patch:
                real = atc.conversion.shared_passes
                patch.setattr(atc.conversion, "shared_passes",
                              lambda real=real, s=spoil_graph: [_Spoilt(p, s) if p.name == PASS else p for p in real()])
                found = compare(path, feeds, Settings())
                guilty = None
                if with_pass and found.verdict == "fail":
                    probe = Probe(path, feeds)
                    names = bisect_passes(lambda out, p=probe: p(out).verdict == "fail", switchable())
                    guilty = names == (PASS,)
            yield _outcome(name, kind, expected | _same_kernel(found, expected), found, guilty)
        proto = onnx.load(str(model), load_external_data=True)
        place = _overflow(proto, base, draw)
        if place is not None:
            onnx.save(proto, str(folder / "overflow.onnx"))
            settings = Settings(Options(precision_mode="force_fp16"))
            found = compare(folder / "overflow.onnx", feeds, settings)
            yield _outcome(name, "f16 overflow", place | _same_kernel(found, place), found)


def _outcome(name: str, kind: str, expected: Any, found: Comparison, right_pass: bool | None = None) -> Outcome:
    red = sum(r.verdict == "fail" for r in found.rows)
    return Outcome(name, kind, frozenset(expected), found.first_bad, red, right_pass)


def _same_kernel(found: Comparison, expected: frozenset[str]) -> frozenset[str]:
    """What the kernels write that compute the expected tensors: interior ones show there."""
    holders = {r.holder for r in found.rows if r.source in expected and r.holder}
    return frozenset(r.source for r in found.rows if r.holder in holders)


def _native(comparer: Comparer) -> dict[str, frozenset[str]]:
    """Source tensors that the native tasks write as f32, by the name of the node."""
    graph = comparer.graph
    held: dict[str, set[str]] = {}
    for source, origin in graph.origins.items():
        value = graph.values.get(origin.value or "")
        if origin.relation == "same" and value is not None and value.producer is not None and not value.is_constant:
            held.setdefault(value.name, set()).add(source)
    tasks = {t.node for s in comparer.session.plan.segments for t in s.tasks if t.program is not None and not t.guard}
    found = {}
    for node in graph.nodes:
        sources = frozenset(s for v in node.outputs for s in held.get(v.name, ()))
        if node.name in tasks and sources and all(v.dtype.name == "f32" for v in node.outputs):
            found[node.name] = sources
    return found


def spoil(patch: pytest.MonkeyPatch, node: str, stale: bool) -> None:
    """The last task of a node writes five per cent too much, or nothing."""
    real = RunState.attach

    def attach(self: RunState, *arguments: Any) -> None:
        real(self, *arguments)
        own = [n for n, t in enumerate(self.plan.tasks) if t.node == node and t.program is not None]
        if not own:
            return
        record, task = self.run.records[own[-1]], self.plan.tasks[own[-1]]
        kernel, facts = KERNEL(int(record["fn"])), self.binder.segment.kernel(task).facts
        written = max(n for n, (role, _) in enumerate(facts.params) if role in ("out", "inout"))
        grid = int(record["grid"])

        def call(args: int, dims: int, begin: int, end: int, scratch: int) -> int:
            if stale:
                return 0
            status = kernel(args, dims, begin, end, scratch)
            if end == grid:
                address = ctypes.cast(args, ctypes.POINTER(ctypes.c_uint64))[written]
                values = ctypes.cast(dims, ctypes.POINTER(ctypes.c_int64))
                sizes = {d[0]: values[i] for i, d in enumerate(facts.dims)}
                count = evaluate(facts.params[written][1], sizes) // 4
                np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (count,))[...] *= 1.05
            return status

        self.faulty = KERNEL(call)  # type: ignore[attr-defined]  # kept as long as its address is used
        record["fn"] = ctypes.cast(self.faulty, POINTER).value  # type: ignore[attr-defined]

    patch.setattr(RunState, "attach", attach)


class _Spoilt:
    """A pass that does its work, and once something wrong as well."""

    def __init__(self, real: Any, fault: Callable[[Graph], bool]) -> None:
        self.real, self.name, self.fault, self.done = real, real.name, fault, False

    def apply(self, graph: Graph) -> bool:
        changed = bool(self.real.apply(graph))
        if not self.done:
            self.done = self.fault(graph)
        return changed or self.done


Place = tuple[frozenset[str], Callable[[Graph], bool]] | None


def _fold(proto: onnx.ModelProto, base: Comparison, draw: np.random.Generator, feeds: Any) -> Place:
    """A weight becomes half as large again."""
    weights = {t.name for t in proto.graph.initializer if t.data_type == 1 and int(np.prod(t.dims)) > 1}
    alive = {r.source for r in base.rows if r.state in ("compared", "fused")}
    users: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    fit = [w for w in sorted(weights) if len(users.get(w, ())) == 1
           and users[w][0].op_type in ("Conv", "MatMul", "Gemm", "Add", "Mul") and users[w][0].output[0] in alive]  # fmt: skip
    if not fit:
        return None
    name = str(draw.choice(fit))

    def fault(graph: Graph) -> bool:
        if name not in graph.values or not graph.values[name].uses:
            return False
        wrong_constant(name)(graph)
        return True

    return frozenset(users[name][0].output), fault


def _inside(proto: onnx.ModelProto, base: Comparison, rank: int) -> list[tuple[int, str]]:
    """Compared f32 tensors of the main graph of at least this rank, each with the position behind its producer."""
    shapes = {r.source: r for r in base.rows if r.state == "compared" and r.dtype == "f32" and r.found is not None}
    outputs = {o.name for o in proto.graph.output}
    used = {i for n in proto.graph.node for i in n.input}  # what only branches read is not rewired
    found = []
    for at, node in enumerate(proto.graph.node):
        for name in node.output:
            if name in shapes and name in used and name not in outputs and (shapes[name].found.largest or 0) > 1:  # type: ignore[union-attr]
                found.append((at + 1, name))
    return found


def _insert(proto: onnx.ModelProto, at: int, name: str, nodes: list[onnx.NodeProto], last: str) -> None:
    """Nodes behind a tensor, whose users read `last` from now on."""
    for node in proto.graph.node:
        for i, used in enumerate(node.input):
            if used == name:
                node.input[i] = last
    for k, node in enumerate(nodes):
        proto.graph.node.insert(at + k, node)


def _cast(proto: onnx.ModelProto, base: Comparison, draw: np.random.Generator, feeds: Any) -> Place:
    """A tensor is rounded to bf16 and back; the pass forgets it. (Whole numbers would jump where a value is near one.)"""
    fit = _inside(proto, base, 1)
    if not fit:
        return None
    at, name = fit[int(draw.integers(len(fit)))]
    make = onnx.helper.make_node
    narrow = 16 if max(o.version for o in proto.opset_import if not o.domain) >= 13 else 10  # older Casts: f16
    nodes = [make("Cast", [name], [f"{name}/narrow"], "fault_narrow", to=narrow), make("Cast", [f"{name}/narrow"],
             [f"{name}/back"], "fault_back", to=1)]  # fmt: skip
    _insert(proto, at, name, nodes, f"{name}/back")

    def fault(graph: Graph) -> bool:
        node = next((n for n in graph.nodes if n.name == "fault_back"), None)
        if node is None or name not in graph.values:
            return False
        node.op, node.attrs = "Identity", {}
        node.set_input(0, graph.values[name])
        return True

    return frozenset({f"{name}/back", f"{name}/narrow"}), fault


def _layout(proto: onnx.ModelProto, base: Comparison, draw: np.random.Generator, feeds: Any) -> Place:
    """A tensor is turned and turned back; the pass takes the first turn for a change of shape."""
    shapes = _shapes(proto, feeds)
    fit = [(at, n) for at, n in _inside(proto, base, 2) if len([d for d in shapes.get(n, ()) if d > 1]) >= 2]
    if not fit:
        return None
    at, name = fit[int(draw.integers(len(fit)))]
    shape = shapes[name]
    wide = [a for a, d in enumerate(shape) if d > 1][-2:]
    perm = list(range(len(shape)))
    perm[wide[0]], perm[wide[1]] = wide[1], wide[0]
    make = onnx.helper.make_node
    nodes = [make("Transpose", [name], [f"{name}/turned"], "fault_turn", perm=perm), make("Transpose",
             [f"{name}/turned"], [f"{name}/back"], "fault_back", perm=perm)]  # fmt: skip
    _insert(proto, at, name, nodes, f"{name}/back")

    def fault(graph: Graph) -> bool:
        node = next((n for n in graph.nodes if n.name == "fault_turn"), None)
        if node is None:
            return False
        target = np.array([shape[p] for p in perm], np.int64)
        wanted = graph.add_constant("fault_shape", target, I64)
        node.op, node.attrs = "Reshape", {}
        node.inputs.append(None)
        node.set_input(1, wanted)
        return True

    return frozenset({f"{name}/back", f"{name}/turned"}), fault


def _shapes(proto: onnx.ModelProto, feeds: Any) -> dict[str, tuple[int, ...]]:
    import onnxruntime

    shown = onnx.ModelProto()
    shown.CopyFrom(proto)
    known = {o.name for o in shown.graph.output}
    for node in shown.graph.node:
        for name in node.output:
            if name and name not in known:
                shown.graph.output.add().name = name
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options)
    names = [o.name for o in session.get_outputs()]
    found = session.run(names, {i.name: feeds[i.name] for i in session.get_inputs()})
    return {n: v.shape for n, v in zip(names, found, strict=True) if isinstance(v, np.ndarray)}


def _overflow(proto: onnx.ModelProto, base: Comparison, draw: np.random.Generator) -> frozenset[str] | None:
    """A weight a million times as large, and a factor behind that takes it back: between them f16 ends."""
    weights = {t.name: t for t in proto.graph.initializer if t.data_type == 1}
    alive = {r.source for r in base.rows if r.state in ("compared", "fused")}
    outputs = {o.name for o in proto.graph.output}
    fit = [(at, n) for at, n in enumerate(proto.graph.node) if n.op_type in ("Conv", "MatMul", "Gemm") and len(n.input) > 1
           and n.input[1] in weights and n.output[0] in alive and n.output[0] not in outputs]  # fmt: skip
    if not fit:
        return None
    at, node = fit[int(draw.integers(len(fit)))]
    own = onnx.numpy_helper.to_array(weights[node.input[1]])
    scaled = onnx.numpy_helper.from_array((own * np.float32(3e6)), f"{node.input[1]}/scaled")
    proto.graph.initializer.append(scaled)
    node.input[1] = scaled.name
    name = node.output[0]
    back = onnx.numpy_helper.from_array(np.array(1 / 3e6, np.float32), f"{name}/factor")
    proto.graph.initializer.append(back)
    _insert(proto, at + 1, name, [onnx.helper.make_node("Mul", [name, back.name], [f"{name}/small"], "fault_small")],
            f"{name}/small")  # fmt: skip
    return frozenset({name, f"{name}/small"})


if __name__ == "__main__":
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    for chosen in words or MODELS:
        for outcome in outcomes(chosen, "--no-pass" not in sys.argv):
            mark = "right" if outcome.right_layer else f"WRONG, expected {sorted(outcome.expected)[:4]}"
            print(f"{chosen:14} {outcome.kind:15} {outcome.found} ({outcome.red} red) {mark}, pass {outcome.right_pass}",
                  flush=True)  # fmt: skip
