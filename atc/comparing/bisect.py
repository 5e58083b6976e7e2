"""Who broke it: searches by converting again with less, until what is left is what matters.

Every probe is a conversion and a comparison on the same inputs; `Probe` is where they happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from acl_runtime.om.replace_file import replace_file
from atc.compare_model import Comparer, Settings
from atc.comparing.rows import Comparison, Row
from atc.pass_table import switchable
from atc.precision_files import Wish
from atc.writing import writing
from frontend import read_model
from tensor_types.errors import InvalidModel, OpenAtcError

_ROUNDS = 8
"""Sets of nodes that are tried before giving up: each keeps what the last one left at fault."""


@dataclass
class Probe:
    """Converts a model with options of the search and compares it; counts how often."""

    model: Path
    given: Mapping[str, np.ndarray]
    settings: Settings = field(default_factory=Settings)
    say: Callable[[str], None] = lambda words: None
    """Told of each probe, since many take long."""
    count: int = 0

    def __call__(self, disabled: Iterable[str] = (), kept: Iterable[str] = ()) -> Comparison:
        """The comparison without some passes, or with nodes kept in the dtype of the model."""
        self.count += 1
        asked = self.settings.options
        left_out, wide = tuple(disabled), tuple(kept)
        options = replace(
            asked, disable_pass=(*asked.disable_pass, *left_out),
            keep_dtype=(*asked.keep_dtype, *(Wish("keep_dtype", "name", name, "keep") for name in wide)),
        )  # fmt: skip
        found = self.on(self.model, self.given, replace(self.settings, options=options))
        counts = ((left_out, "passes left out"), (wide, "nodes kept"))
        what = [f"{len(names)} {word}" for names, word in counts if names]
        self.say(f"probe {self.count}: {', '.join(what) or 'as it is'}: {found.verdict}")
        return found

    def on(self, model: Path, given: Mapping[str, np.ndarray], settings: Settings) -> Comparison:
        """Any model under any settings."""
        with Comparer(model, None, settings) as comparer:
            return comparer.compare([("", given)])


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

    def fails(disabled: Sequence[str]) -> bool:
        try:
            return probe(disabled).verdict == "fail"
        except OpenAtcError as error:  # without them the model cannot be converted: no way out of the failure
            probe.say(f"probe {probe.count}: {error.code} without {len(disabled)} passes")
            return True

    guilty = bisect_passes(fails, switchable())
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
    graph = read_model(probe.model, dict(probe.settings.input_shape) or None)
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
