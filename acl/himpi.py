"""acl.himpi: the media units of other chips, absent. Every name is a function that gives 207000."""

from __future__ import annotations

from acl._call import Function
from acl_runtime.device import Code


def __getattr__(name: str) -> Function:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return lambda *_: int(Code.FEATURE_NOT_SUPPORT)
