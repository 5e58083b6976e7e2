"""Who broke it: searches by converting again with less, until what is left is what matters.

Every probe is a conversion and a comparison on the same inputs; `Probe` is where they happen.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acl_runtime.om.replace_file import replace_file
from atc.compare_model import compare_arrays
from atc.comparing.rows import Comparison, Row
from atc.conversion import convert
from atc.options import Options
from atc.pass_table import switchable
from atc.precision_files import Wish
from atc.writing import writing
from frontend import read_model
from graph_opt.precision.lists import DEFAULT
from tensor_types.errors import InvalidModel

_ROUNDS = 8
"""Sets of nodes that are tried before giving up: each keeps what the last one left at fault."""


@dataclass
class Probe:
    """Converts a model with options of the search and compares it; counts how often."""

    model: Path
    given: Mapping[str, np.ndarray]
    input_shape: Mapping[str, Sequence[int]]
    precision_mode: str = DEFAULT
    count: int = 0

    def __call__(self, disabled: Iterable[str] = (), kept: Iterable[str] = ()) -> Comparison:
        """The comparison without some passes, or with nodes kept in the dtype of the model."""
        self.count += 1
        options = Options(
            input_shape=dict(self.input_shape), precision_mode=self.precision_mode, disable_pass=tuple(disabled),
            keep_dtype=tuple(Wish("keep_dtype", "name", name, "keep") for name in kept),
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / "model.om"
            convert(self.model, package, options)
            return compare_arrays(self.model, package, self.given, self.input_shape)


def bisect_passes(fails: Callable[[Sequence[str]], bool], names: Sequence[str]) -> tuple[str, ...]:
    """The passes without which the failure goes away: one, or a few that only go together; () if all may go in vain.

    `fails` tells whether it still fails when these passes are left out. Halves are tried first, then single ones.
    """
    if fails(names):
        return ()
    left = list(names)
    while len(left) > 1:
        half = len(left) // 2
        better = next((part for part in (left[:half], left[half:]) if not fails(part)), None)
        if better is None:
            break
        left = better
    for name in list(left) if len(left) > 1 else ():
        rest = [n for n in left if n != name]
        if not fails(rest):
            left = rest
    return tuple(left)


def guilty_passes(probe: Probe) -> str:
    """A verdict in a line: the pass to blame, or what else it must be."""
    if probe().verdict != "fail":
        return "nothing to bisect: the comparison does not fail"
    guilty = bisect_passes(lambda disabled: probe(disabled).verdict == "fail", switchable())
    if not guilty:
        return "no optional pass: it fails without them all too; a required pass, a kernel or the dtype is to blame"
    flags = " ".join(f"--disable_pass={name}" for name in guilty)
    return f"pass {', '.join(guilty)}: it passes with {flags}"


def guilty_nodes(probe: Probe) -> tuple[str, ...] | None:
    """A smallest set of source nodes that must keep the dtype of the model; None if keeping nodes does not help.

    1. Each round keeps the nodes in the kernels of all tensors at fault, and of those that fail if none is.
    2. Once it passes, nodes are let go one by one where it passes without them too.
    InvalidModel if the comparison does not fail.
    """
    found = probe()
    if found.verdict != "fail":
        raise InvalidModel("the comparison does not fail, so there is nothing to keep",
                           remedy="use --precision_mode to say which precision is meant")  # fmt: skip
    graph = read_model(probe.model, dict(probe.input_shape) or None)
    makers = {o.name: node.name for node in graph.nodes for o in node.outputs}
    kept: dict[str, None] = {}
    for _ in range(_ROUNDS):
        bad = [r for r in found.rows if r.verdict == "fail"] or found.outputs
        fresh = [n for n in _nodes(found.rows, bad, makers) if n not in kept]
        if not fresh:
            return None
        kept.update(dict.fromkeys(fresh))
        found = probe(kept=kept)
        if found.verdict != "fail":
            break
    else:
        return None
    for name in list(kept):
        rest = [n for n in kept if n != name]
        if probe(kept=rest).verdict != "fail":
            del kept[name]
    return tuple(kept)


def _nodes(rows: Sequence[Row], bad: Sequence[Row], makers: Mapping[str, str]) -> list[str]:
    """Source nodes of the kernels that write the bad tensors, in order."""
    holders = {r.holder for r in bad}
    return list(dict.fromkeys(makers[r.source] for r in rows if r.holder in holders and r.source in makers))


def write_keep_file(path: Path, nodes: Sequence[str], flag: str = "--bisect_precision") -> None:
    """A file for --keep_dtype: a node's name in each line."""
    with writing(flag), replace_file(path) as file:
        file.write("".join(f"{name}\n" for name in nodes).encode())
