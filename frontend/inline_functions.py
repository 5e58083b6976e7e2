"""Model-local functions are replaced by their bodies, under the names that onnx.inliner gives.

The inliner refuses a function whose opset differs from the model's. Each node of a function is therefore stamped with
the opset of its function, and the imports are made equal before inlining: nodes keep the meaning they were written in.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx.checker
import onnx.inliner

from frontend.load_proto import opsets
from tensor_types.errors import InvalidModel, ResourceLimit
from tensor_types.limits import require_within

_MAX_DEPTH = 200
STAMP = "opset"
"""Key of the node metadata with 'domain=version' words of the function that a node came from."""


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without model-local functions; the same object when there are none."""
    if not model.functions:
        return model
    _require_finite(model)
    everywhere = opsets(model.opset_import)
    for function in model.functions:
        own = opsets(function.opset_import)
        words = " ".join(f"{domain}={version}" for domain, version in sorted(own.items()))
        if any(everywhere.get(domain, version) != version for domain, version in own.items()):
            _stamp(function.node, words)
        for item in function.opset_import:
            domain = "" if item.domain == "ai.onnx" else item.domain
            item.version = everywhere.setdefault(domain, item.version)
    try:
        return onnx.inliner.inline_local_functions(model)
    except (RuntimeError, onnx.checker.ValidationError) as error:  # what it asserts of functions and their calls
        raise InvalidModel(
            f"the model's functions cannot be written out: {str(error)[-200:]}", where={"flag": "--model"},
            remedy="export the model again, without functions if that is possible",
        ) from error  # fmt: skip


def _require_finite(model: onnx.ModelProto) -> None:
    """InvalidModel for a function that calls itself, ResourceLimit if the functions written out are too many nodes."""
    functions = {(f.domain, f.name): f for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}
    open_: list[tuple[str, str]] = []

    def size(key: tuple[str, str]) -> int:
        if key in open_:
            raise InvalidModel(
                f"the function {key[1]} calls itself", where={"op": key[1]}, remedy="ONNX has no recursive functions"
            )
        if key not in sizes:
            if len(open_) > _MAX_DEPTH:
                raise ResourceLimit(f"functions call each other more than {_MAX_DEPTH} deep")
            open_.append(key)
            sizes[key] = nodes(functions[key].node)
            open_.pop()
        return sizes[key]

    def nodes(listed: Iterable[onnx.NodeProto]) -> int:
        total = 0
        for node in listed:
            key = (node.domain, node.op_type)
            total += size(key) if key in functions else 1
            total += sum(nodes(item.g.node) for item in node.attribute if item.HasField("g"))
        return total

    require_within(
        "function_nodes", nodes(model.graph.node), "nodes of the model with its functions written out",
        "export the model with fewer nested functions",
    )  # fmt: skip


def _stamp(nodes: object, words: str) -> None:
    for node in nodes:  # type: ignore[attr-defined]
        node.metadata_props.add(key=STAMP, value=words)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _stamp(attribute.g.node, words)


def stamped_opsets(node: onnx.NodeProto, default: dict[str, int]) -> dict[str, int]:
    """Opset versions that a node was written in."""
    for item in node.metadata_props:
        if item.key == STAMP:
            pairs = (word.rpartition("=") for word in item.value.split(" "))
            return {**default, **{domain: int(version) for domain, _, version in pairs}}
    return default
