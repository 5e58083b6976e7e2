"""The product's faces: command line, conversion driver, comparison, reports and demo.

Takes models and packages by path; gives packages, tables and exit codes. Alone in knowing every room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atc.conversion import ConvertResult

__version__ = "0.1.0"
__all__ = ["ConvertResult", "convert", "__version__"]


def convert(model: Any, output: Any = None, **flags: Any) -> ConvertResult:
    """Converts an ONNX file to a package; see `atc.conversion.convert` for the flags."""
    from atc.conversion import convert as convert_model

    return convert_model(model, output, **flags)
