"""What a kernel family can absorb, as data: the driver hands these to the fusion and layout passes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FamilyTraits:
    """A family of kernels. `anchors`: operators it computes (empty for pure element-wise regions).

    `prologue` and `epilogue`: operators it takes in before and after the anchor, at the same index of the tensor.
    `formats`: 'plain', 'channels_last'. `dtypes`: element types of the anchor's data.
    """

    name: str
    anchors: frozenset[str]
    prologue: frozenset[str]
    epilogue: frozenset[str]
    formats: frozenset[str]
    dtypes: frozenset[str]
    prefers: str = "plain"
    """The format in which the family is fastest, where it takes several."""
    retypes: bool = True
    """Whether a precision mode may change the dtype that an anchor computes in."""
