"""One operator as a package, as AscendCL's single-operator calls want it: an ONNX model of a node or a few, converted.

Operators go by AscendCL's names where those differ from ONNX's (RealDiv, SoftmaxV2, MatMulV2, ArgMaxV2, Slice ...);
any other name is that of an ONNX operator, whose attributes have ONNX's names then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper

from atc.ascend_operators import OPSET, RENAMED, OperatorModel, Tensor, build, known_names
from atc.conversion import convert
from atc.options import Options
from atc.usage import nearest


def compile_operator(
    path: Path, kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], attributes: Mapping[str, Any],
    constants: Mapping[int, np.ndarray], options: Options | None = None, header: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Writes the package of one operator over tensors of fixed dims, with `header` among the entries of its header.

    `constants` are inputs whose values are known, by number; the package does not have them as inputs. LookupError if
    there is no such operator or not with these attributes; OpenAtcError if it does not take these tensors.
    """
    model = OperatorModel(inputs, outputs, constants)
    try:
        _write(model, kind, attributes)
    except IndexError:
        raise LookupError(f"{kind} has not {len(inputs)} inputs and {len(outputs)} outputs") from None
    except (ValueError, TypeError, OverflowError) as error:  # of the attributes: ONNX's own checks of their types
        raise LookupError(f"{kind} does not take these attributes: {error}") from error
    with tempfile.TemporaryDirectory(prefix="operator") as folder:
        source = Path(folder) / "operator.onnx"
        onnx.save(model.proto(), source)
        convert(source, path, options or Options(), header=header)


def _write(model: OperatorModel, kind: str, attributes: Mapping[str, Any]) -> None:
    """The nodes of an operator, of Ascend's name or ONNX's."""
    if not build(model, kind, attributes):
        name = RENAMED.get(kind, kind)
        if not defs.has(name, OPSET):
            guess = nearest(kind, known_names())
            raise LookupError(f"there is no operator {kind}{guess and f', did you mean {guess}?'}")
        allowed = defs.get_schema(name, OPSET).attributes
        unknown = [a for a in attributes if a not in allowed]
        if unknown:
            raise LookupError(f"{kind} has no attribute {unknown[0]}; it has {', '.join(allowed) or 'none'}")
        model.nodes.append(
            helper.make_node(name, model.names, [f"y{n}" for n in range(len(model.outputs))], name="n", **attributes)
        )
