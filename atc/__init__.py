"""The product's faces: command line, conversion driver, comparison, reports and demo.

Takes models and packages by path; gives packages, tables and exit codes. Alone in knowing every room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atc.conversion import ConvertResult
    from atc.custom_operators import register_op

__version__ = "0.1.0"
__all__ = ["ConvertResult", "convert", "register_op", "__version__"]


def convert(model: Any, output: Any = None, *, progress: Any = None, **flags: Any) -> ConvertResult:
    """Converts an ONNX file to a package. `flags` are those of `atc convert` (docs/flags.md), as text or as values:
    `input_shape={"x": [1, 3, 224, 224]}`, `precision_mode="force_fp16"`. Raises OpenAtcError; see
    `atc.conversion.convert`."""
    from atc.conversion import convert as convert_model
    from atc.options import Options

    return convert_model(model, output, Options.of(flags), progress)


def __getattr__(name: str) -> Any:
    """`register_op` at its first use: who only asks for the version does not load the runtime."""
    if name == "register_op":
        from atc.custom_operators import register_op

        return register_op
    raise AttributeError(f"module 'atc' has no attribute {name!r}")
