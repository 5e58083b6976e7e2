"""The product's faces: command line, conversion driver, comparison, reports and demo.

Takes models and packages by path; gives packages, tables and exit codes. Alone in knowing every room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    import numpy as np
    import onnx

    from atc.comparing.rows import Comparison
    from atc.console import Progress
    from atc.conversion import ConvertResult
    from atc.custom_operators import register_op

    Model = str | PathLike[str] | bytes | onnx.ModelProto

__version__ = "0.1.0"
__all__ = ["ConvertResult", "compare", "convert", "inspect", "register_op", "__version__"]


def convert(
    model: Model, output: str | PathLike[str] | None = None, *, progress: Progress | None = None, **flags: Any
) -> ConvertResult:
    """Converts an ONNX model, a file, its bytes or an onnx.ModelProto, to the package `output` and says what was done.

    `output` may be left out for a file: the package lies beside it. `flags` are those of `atc convert` (docs/flags.md),
    as text or as values: `input_shape={"x": [1, 3, 224, 224]}`, `precision_mode="force_fp16"`. Raises OpenAtcError with
    code, place and remedy.
    """
    from acl_runtime.internal_error import coded_errors
    from atc.conversion import convert as convert_model
    from atc.model_file import model_file
    from atc.options import Options

    with coded_errors(), model_file(model, output) as path:
        return convert_model(path, output, Options.of(flags), progress)


def compare(
    model: Model,
    package: str | PathLike[str] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    **flags: Any,
) -> Comparison:
    """Compares a package, made on the way when there is none, with onnxruntime, tensor by tensor (docs/compare.md).

    Inputs that are not given get seeded values. `flags`: `input_shape` and `precision_mode` as for `convert`. The
    result has `verdict`, `layers`, `outputs` and `first_bad`. Raises OpenAtcError.
    """
    from pathlib import Path

    from acl_runtime.internal_error import coded_errors
    from atc.compare_model import compare_arrays
    from atc.model_file import model_file
    from atc.options import Options

    options = Options.of(flags)
    with coded_errors(), model_file(model, package or "compared.om") as path:
        given = None if package is None else Path(package)
        return compare_arrays(
            path, given, inputs or {}, options.input_shape, precision_mode=options.precision_mode
        )


def inspect(package: str | PathLike[str], verify: bool = False) -> dict[str, Any]:
    """What a package holds, in the terms of `atc inspect --json`. With `verify` the digests of its weights are checked
    too. Raises OpenAtcError."""
    from pathlib import Path

    from atc.inspect_package import inspect_package

    return inspect_package(Path(package), verify)


def __getattr__(name: str) -> Any:
    """`register_op` at its first use: who only asks for the version does not load the runtime."""
    if name == "register_op":
        from atc.custom_operators import register_op

        return register_op
    raise AttributeError(f"module 'atc' has no attribute {name!r}")
