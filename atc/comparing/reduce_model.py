"""`--reduce`: the smallest part of a model that still fails, as an ONNX file with its inputs, which runs without us.

Parts are cut at tensors that the oracle knows, whose values become inputs. The first try is what the failing tensor's
kernel computes; while that passes, what comes before it is taken along, a doubling number of nodes at a time. What then
fails is made smaller by leaving out nodes, the earliest first, as long as it goes on failing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from acl_runtime.om.replace_file import replace_file
from atc.comparing.rows import Comparison
from atc.golden import golden_tensors
from atc.golden_stages import free_names, part_of
from atc.writing import writing
from frontend.load_proto import load_proto
from tensor_types.errors import InvalidModel, OpenAtcError

_MOST_PROBES = 60


@dataclass(frozen=True)
class Reduced:
    """nodes: names of what is left, of the `of` nodes of the model. output: the tensor that fails."""

    proto: onnx.ModelProto
    inputs: Mapping[str, Any]
    nodes: tuple[str, ...]
    of: int
    output: str
    probes: int


Probe = Callable[[Path, Mapping[str, Any]], Comparison]
"""Converts a model and compares it on these inputs."""


def reduce_model(model: Path, found: Comparison, given: Mapping[str, Any], probe: Probe) -> Reduced:
    """The smallest part that fails. `given` are all inputs of the model.

    InvalidModel if nothing fails, or if no part of the model fails by itself.
    """
    row = found.first_bad_row
    if row is None:
        raise InvalidModel("the comparison does not fail, so there is nothing to reduce",
                           where={"flag": "--reduce"}, remedy="compare on the input that fails")  # fmt: skip
    load_proto(model)
    proto = onnx.load(str(model), load_external_data=True)
    nodes = list(proto.graph.node)
    makers = {o: n for n, node in enumerate(nodes) for o in node.output if o}
    if row.source not in makers:
        raise InvalidModel(f"no node of the model's main graph makes {row.source}", where={"flag": "--reduce"},
                           remedy="inline functions and branches first, for instance with onnx.inliner")  # fmt: skip
    everything = {name: np.dtype(np.float32) for name in makers}
    golden = golden_tensors(model, given, everything)
    values = {**given, **golden.values}
    search = _Search(proto, nodes, values, row.source, probe)
    holders = {r.source for r in found.rows if row.holder and r.holder == row.holder}
    kernel = [n for n in (makers[s] for s in (*holders, row.source) if s in makers)]
    start = _between(nodes, makers, makers[row.source], set(kernel))
    chosen = search.grown(start, _ancestors(nodes, makers, makers[row.source]))
    if chosen is None:
        raise InvalidModel(
            "no part of the model fails by itself", where={"flag": "--reduce", "tensor": row.source},
            remedy="the fault needs the whole model: report it with the model",
        )  # fmt: skip
    chosen = search.shrunk(chosen)
    part, inputs = search.part(chosen)
    names = tuple(nodes[n].name or f"{nodes[n].op_type}_{n}" for n in chosen)
    return Reduced(part, inputs, names, len(nodes), row.source, search.probes)


def write_reduced(path: Path, found: Reduced, flag: str = "--reduce") -> Path:
    """The ONNX file, and beside it the inputs as .npz, whose path is given back."""
    data = path.with_suffix(".npz")
    with writing(flag), replace_file(path) as file:
        file.write(found.proto.SerializeToString())
    with writing(flag), replace_file(data) as file:
        np.savez(file, **{name: np.asarray(value) for name, value in found.inputs.items()})  # type: ignore[arg-type]
    return data


class _Search:
    def __init__(
        self, proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], values: Mapping[str, Any], output: str,
        probe: Probe,
    ) -> None:  # fmt: skip
        self.proto, self.nodes, self.values, self.output, self.probe = proto, nodes, values, output, probe
        self.probes = 0

    def part(self, chosen: Sequence[int]) -> tuple[onnx.ModelProto, dict[str, Any]]:
        """The model of some nodes and its inputs."""
        inside = {o for n in chosen for o in self.nodes[n].output}
        outside = {name: value for name, value in self.values.items() if name not in inside}
        part = part_of(self.proto, [self.nodes[n] for n in chosen], outside, [self.output])
        declared = np.asarray(self.values[self.output])
        dtype = onnx.helper.np_dtype_to_tensor_dtype(declared.dtype)
        part.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info(self.output, dtype, declared.shape))
        for value in part.graph.input:  # the sizes of this run: a smaller model than one of open sizes
            shape = np.shape(self.values[value.name])
            element = value.type.tensor_type.elem_type
            if element:
                value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, element, shape))
        return part, {i.name: self.values[i.name] for i in part.graph.input}

    def fails(self, chosen: Sequence[int]) -> bool:
        """Whether the model of these nodes can be made and fails."""
        if not chosen or self.probes >= _MOST_PROBES:
            return False
        reads = {name for n in chosen for name in free_names(self.nodes[n])}
        made = {o for n in chosen for o in self.nodes[n].output}
        stored = {t.name for t in self.proto.graph.initializer}
        if any(name not in self.values and name not in stored for name in reads - made) or self.output not in made:
            return False
        self.probes += 1
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "part.onnx"
            try:
                part, inputs = self.part(chosen)
                onnx.save(part, str(path))
                return self.probe(path, inputs).verdict == "fail"
            except (OpenAtcError, ValueError, TypeError):
                return False

    def grown(self, start: Sequence[int], ancestors: Sequence[int]) -> list[int] | None:
        """The start, with as many of the nodes before it as it takes to fail; `ancestors` are nearest first."""
        more = 0
        while True:
            chosen = sorted({*start, *ancestors[:more]})
            if self.fails(chosen):
                return chosen
            if more >= len(ancestors):
                return None
            more = max(2, 2 * more)

    def shrunk(self, chosen: list[int]) -> list[int]:
        """Without the nodes that the failure does not need: halves of what is left first, then single ones."""
        size = max(1, len(chosen) // 2)
        while True:
            at = 0
            while at < len(chosen):
                rest = [*chosen[:at], *chosen[at + size :]]
                if self.fails(rest):
                    chosen = rest
                else:
                    at += size
            if size == 1:
                return chosen
            size = max(1, size // 2)


def _between(
    nodes: Sequence[onnx.NodeProto], makers: Mapping[str, int], last: int, kernel: set[int]
) -> list[int]:  # fmt: skip
    """The nodes of a kernel up to `last`, and those on the ways between them."""
    wanted = {n for n in kernel if n <= last} | {last}
    first = min(wanted)
    before = {n for n in _ancestors(nodes, makers, last) if n >= first}
    reached = set(wanted)
    for n in sorted(before):
        if any(makers.get(name) in reached for name in free_names(nodes[n])):
            reached.add(n)
    return sorted(reached & (before | {last}))


def _ancestors(nodes: Sequence[onnx.NodeProto], makers: Mapping[str, int], last: int) -> list[int]:
    """Nodes that `last` depends on, nearest first in breadth."""
    found: dict[int, None] = {}
    level = [last]
    while level:
        before = dict.fromkeys(makers[name] for n in level for name in sorted(free_names(nodes[n])) if name in makers)
        level = [n for n in before if n not in found and n != last]
        found.update(dict.fromkeys(level))
    return list(found)
