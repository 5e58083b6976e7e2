"""Bytes of a file to a ModelProto whose envelope is sound."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from tensor_types.errors import InvalidModel


def load_proto(path: Path) -> onnx.ModelProto:
    """Parses the file; external data stays where it is. InvalidModel when it is no ONNX model."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidModel(
            f"the model {path.name} cannot be opened: {error.strerror}", code="E13001", remedy="check --model"
        ) from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise InvalidModel(
            f"{path.name} is not an ONNX model, or it is truncated",
            code="E13005",
            remedy="check the file with onnx.checker.check_model, or copy it again",
        ) from error
    if not model.HasField("graph") or not (model.ir_version or model.opset_import):
        raise InvalidModel(f"{path.name} holds no ONNX graph", code="E16004", remedy="give a file that onnx.save wrote")
    opsets(model.opset_import)
    return model


def opsets(imports: object) -> dict[str, int]:
    """Domain -> opset version, with '' for ai.onnx. InvalidModel when a domain is imported in two versions."""
    found: dict[str, int] = {}
    for item in imports:  # type: ignore[attr-defined]
        domain = "" if item.domain == "ai.onnx" else item.domain
        if found.setdefault(domain, item.version) != item.version:
            raise InvalidModel(
                f"the domain {domain or 'ai.onnx'} is imported in versions {found[domain]} and {item.version}",
                code="E16005",
                remedy="keep one opset_import for each domain",
            )
    newest = onnx.defs.onnx_opset_version()
    if found.get("", 1) > newest:
        raise InvalidModel(
            f"opset {found['']} is newer than the newest known one, {newest}", remedy="export with an older opset"
        )
    return found
