"""Bytes of a file to a ModelProto whose envelope is sound."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from frontend.mapped_file import MalformedFile, stripped
from tensor_types.errors import InvalidModel

_WHERE = {"flag": "--model"}


def load_proto(path: Path) -> onnx.ModelProto:
    """Parses the file; weights stay in it, or in the files beside it. InvalidModel when it is no ONNX model."""
    model = onnx.ModelProto()
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InvalidModel(
            f"the model {path.name} is a pipe or a device; weights are mapped from a file", code="E13001", where=_WHERE,
            remedy="write the model to a file first",
        )  # fmt: skip
    try:
        with path.open("rb") as file:
            if path.stat().st_size:  # an empty file cannot be mapped
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as content:
                    model.ParseFromString(stripped(content, path.name))
    except OSError as error:
        raise InvalidModel(
            f"the model {path.name or path} cannot be opened: {error.strerror}", code="E13001", where=_WHERE,
            remedy="check the path and its permissions",
        ) from error  # fmt: skip
    except (DecodeError, MalformedFile) as error:
        raise InvalidModel(
            f"{path.name} is not an ONNX model, or it is truncated: {error}", code="E13005", where=_WHERE,
            remedy="export the model again, or copy it completely",
        ) from error  # fmt: skip
    if not model.graph.output or not (model.ir_version or model.opset_import):
        raise InvalidModel(
            f"{path.name} holds no ONNX graph with outputs", code="E16004", where=_WHERE,
            remedy="give a file that an ONNX exporter wrote",
        )  # fmt: skip
    newest, own = onnx.defs.onnx_opset_version(), opsets(model.opset_import).get("", 1)
    if own > newest:
        raise InvalidModel(
            f"the model uses opset {own}, the newest known one is {newest}", code="E10055", where=_WHERE,
            remedy=f"install a newer onnx, or export with opset {newest}",
        )  # fmt: skip
    return model


def opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Domain -> opset version, with '' for ai.onnx. InvalidModel when a domain is imported in two versions."""
    found: dict[str, int] = {}
    for item in imports:
        domain = "" if item.domain == "ai.onnx" else item.domain
        if found.setdefault(domain, item.version) != item.version:
            raise InvalidModel(
                f"the domain {domain or 'ai.onnx'} is imported in versions {found[domain]} and {item.version}",
                code="E16005", where=_WHERE, remedy="keep one opset_import for each domain",
            )  # fmt: skip
    return found
