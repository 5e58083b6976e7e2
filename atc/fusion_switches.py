"""--fusion_switch_file and --optimization_switch: which fusions are left out, by ATC's names of passes or by ours.

A file has lines `Name:off`, or is JSON: {"Switch": {"GraphFusion": {"ALL": "off", "Name": "on"}, "UBFusion": {...}}}.
Names that mean the same as a pass of docs/passes.md switch it; others have nothing to switch here, which a note says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from atc.option_values import Noted, one_of
from atc.usage import UsageError, did_you_mean, nearest
from tensor_types.json_text import parse_json

FUSIONS = (
    "fuse-conv-bn", "fuse-norms", "fuse-group-norm", "fuse-softmax", "fuse-gelu", "fuse-moe", "fuse-attention",
    "merge-sibling-matmuls", "merge-transposes", "fuse-piecewise",
)  # fmt: skip
"""What ALL stands for. Loop fusion (fuse-regions) is no choice: it is how operators get kernels at all."""

ALIASES = {
    "fuse-conv-bn": ("ConvBatchnormFusionPass", "BatchNormBnInferFusionPass", "SingleBatchNormFusion",
                     "HostBNFusionPass", "ConvBnFusionPass", "BnFusionPass"),
    "fuse-norms": ("LayerNormFusionPass", "LayerNormONNXFusionPass", "LayerNormV4", "RmsNormFusionPass",
                   "AddRmsNormFusionGraphPass", "InplaceAddRmsNorm", "AutoSingleNorm"),
    "fuse-group-norm": ("GroupNormFusionPass", "InstanceNormFusionPass"),
    "fuse-softmax": ("SoftmaxFusionPass", "SoftmaxTransFusionPass", "SoftmaxArgFusionPass", "ASoftmaxFusionPass"),
    "fuse-gelu": ("GeluFusionPass", "FastGeluFusionPass", "GeluONNXFusionPass"),
    "fuse-attention": ("FlashAttentionFusionPass", "AttentionScoreFusionPass", "AttentionLnQKVFusionPass",
                       "AttentionQKVGradXFusionPass", "MhaFusionPass"),
    "merge-sibling-matmuls": ("BatchMatMulFusionPass", "MatMulMergeFusionPass", "MatmulReshape"),
    "merge-transposes": ("PermuteFusionPass", "TransposeFusionPass", "UnchangedTransposeRemovePass"),
    "fuse-piecewise": ("RotaryMulFusionPass", "ConcatSliceFusionPass", "SplitConcatFusionPass"),
}  # fmt: skip
"""ATC's names of passes that do what one of ours does."""

_OURS = {alias.lower(): name for name, aliases in ALIASES.items() for alias in (name, *aliases)}
_SPELLINGS = tuple(spelling for name, aliases in ALIASES.items() for spelling in (name, *aliases))
_FORM = 'write lines Name:off, or {"Switch": {"GraphFusion": {"ALL": "off"}}}'


def switch_file(flag: str, value: Any) -> Noted:
    """Names of the passes that a file switches off."""
    try:
        text = Path(value).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"--{flag}={value} cannot be read: {reason}", code="E10410", where={"flag": f"--{flag}"},
            remedy="check the path and its permissions",
        ) from error  # fmt: skip
    return _switched(flag, list(_of_json(flag, text) if text.lstrip().startswith("{") else _of_lines(flag, text)))


def level(flag: str, value: str) -> Noted:
    """Names of the passes that are left out at level O1; none at O3."""
    return _switched(flag, [("ALL", "off" if one_of(flag, value, ("O1", "O3")) == "O1" else "on")])


def switch_list(flag: str, value: Any) -> Noted:
    """Names of the passes that 'Name:off;Name2:on' switches off."""
    return _switched(flag, list(_of_lines(flag, str(value).replace(";", "\n"))))


def _of_lines(flag: str, text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(r"\s*([\w.-]+)\s*:\s*(\w+)\s*", line)
        if match is None:
            raise _wrong(flag, f"line {number} is not understood: {line.strip()}")
        yield match[1], _state(flag, match[1], match[2])


def _of_json(flag: str, text: str) -> Iterator[tuple[str, str]]:
    try:
        switch = parse_json(text)["Switch"]
        pairs = [
            (name, str(state)) for group in ("GraphFusion", "UBFusion") for name, state in switch.get(group, {}).items()
        ]
        unknown = sorted(set(switch) - {"GraphFusion", "UBFusion"})
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise _wrong(flag, f"it is not understood: {type(error).__name__} {error}") from None
    if unknown:
        raise _wrong(
            flag, f"there is no group {unknown[0]}", f"{did_you_mean(unknown[0], ('GraphFusion', 'UBFusion'))}{_FORM}"
        )
    # A group's ALL holds for what is not named beside it.
    for name, state in sorted(pairs, key=lambda pair: pair[0].upper() != "ALL"):
        yield name, _state(flag, name, state)


def _state(flag: str, name: str, state: str) -> str:
    if state.lower() not in ("on", "off"):
        raise _wrong(flag, f"{name} is {state}", "write on or off")
    return state.lower()


def _switched(flag: str, switches: Iterable[tuple[str, str]]) -> Noted:
    states: dict[str, str] = {}
    nothing = []
    for name, state in switches:
        if name.upper() == "ALL":
            states.update(dict.fromkeys(FUSIONS, state))
        elif name.lower() in _OURS:
            states[_OURS[name.lower()]] = state
        else:
            guess = nearest(name, _SPELLINGS)
            nothing.append(f"{name} (did you mean {guess}?)" if guess else name)
    off = tuple(name for name in FUSIONS if states.get(name) == "off")
    notes = [f"--{flag} leaves out {', '.join(off)}"] if off else []
    if nothing:
        notes.append(f"--{flag}: nothing here is called {', '.join(sorted(nothing))}; docs/passes.md lists the passes")
    return Noted(off, tuple(notes))


def _wrong(flag: str, what: str, remedy: str = _FORM) -> UsageError:
    return UsageError(f"--{flag}: {what}", where={"flag": f"--{flag}"}, remedy=remedy)
