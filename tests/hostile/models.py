"""Models that were changed: fields of the protobuf, or bytes of the file; read, optimised and lowered."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from atc.pipeline import shared_passes, target_passes
from codegen.kernels import kernels
from codegen.lowering import lower_graph
from codegen.targets import target
from frontend import read_model
from frontend.unsupported import unsupported
from graph_opt.ir.passes import run_passes
from graph_opt.plan import plan_model
from tests.hostile.sources import LATE, LOOPS, MODELS, model

_INTEGERS = (0, 1, -1, 2, 3, 5, 18, 100, 127, 255, 1 << 16, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1)
_F = FieldDescriptor


def prepare(folder: Path) -> None:
    """Saves the models that are changed."""
    for name in (*MODELS, *LATE, *LOOPS):
        onnx.save(model(name), folder / f"{name}.onnx")


def _messages(message: Message, found: list[Message]) -> list[Message]:
    found.append(message)
    for field, value in message.ListFields():
        if field.type == _F.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                _messages(inner, found)
    return found


def _scalar(draw: random.Random, field: Any, words: list[str]) -> Any:
    if field.type in (_F.TYPE_STRING, _F.TYPE_BYTES):
        text = draw.choice([*draw.sample(words, min(4, len(words))), "", "x" * 300, "\x1b[31m", "ü", "a\nb"])
        return text.encode() + draw.choice([b"", b"\xff"]) if field.type == _F.TYPE_BYTES else text
    if field.type in (_F.TYPE_FLOAT, _F.TYPE_DOUBLE):
        return draw.choice([0.0, -1.0, 1e30, float("nan"), float("inf")])
    value = draw.choice(_INTEGERS)
    if field.type == _F.TYPE_ENUM:
        return draw.choice([v.number for v in field.enum_type.values])
    if field.type in (_F.TYPE_INT32, _F.TYPE_SINT32):
        return max(min(value, (1 << 31) - 1), -(1 << 31))
    return abs(value) if field.type in (_F.TYPE_UINT64, _F.TYPE_UINT32) else value


def change(draw: random.Random, model: onnx.ModelProto, words: list[str]) -> None:
    """Changes one field of one message."""
    message = draw.choice(_messages(model, []))
    field = draw.choice(message.DESCRIPTOR.fields)
    if draw.random() < 0.6 and message.ListFields():
        field = draw.choice(message.ListFields())[0]
    if field.is_repeated:
        values = getattr(message, field.name)
        kind = draw.random()
        if values and kind < 0.35:
            del values[draw.randrange(len(values))]
        elif field.type == _F.TYPE_MESSAGE:
            if values:
                values.append(draw.choice(values))
        elif values and kind < 0.8:
            values[draw.randrange(len(values))] = _scalar(draw, field, words)
        else:
            values.append(_scalar(draw, field, words))
    elif draw.random() < 0.15 or field.type == _F.TYPE_MESSAGE:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _scalar(draw, field, words))


class Case:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {p.stem: p.read_bytes() for p in sorted(folder.glob("*.onnx")) if not p.stem.startswith("case")}
        self.host = target("x86-64-v3")

    def run(self, draw: random.Random) -> str:
        data = self.files[draw.choice(sorted(self.files))]
        path = self.folder / f"case{os.getpid()}.onnx"
        if draw.random() < 0.1:
            changed = bytearray(data)
            for _ in range(draw.choice([1, 3, 20])):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            path.write_bytes(changed)
        else:
            proto = onnx.ModelProto.FromString(data)
            words = ["", *{n.op_type for n in proto.graph.node}, *{o for n in proto.graph.node for o in n.output}]
            words += [i.name for i in proto.graph.initializer] + ["ai.onnx", "com.microsoft", "auto_pad", "axis"]
            for _ in range(draw.choice([1, 1, 1, 2, 4])):
                change(draw, proto, sorted(words))
            path.write_bytes(proto.SerializeToString())
        graph = read_model(path)
        if unsupported(graph):
            return "unsupported"
        run_passes(graph, shared_passes())
        run_passes(graph, target_passes(kernels([self.host])))
        lowered = lower_graph(graph, self.host)
        from atc.conversion import plan_input

        plan_model(plan_input(graph, lowered))
        return "planned"
