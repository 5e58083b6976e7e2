"""Model-local functions are replaced by their bodies, under the names that onnx.inliner gives.

The inliner refuses a function whose opset differs from the model's. Each node of a function is therefore stamped with
the opset of its function, and the imports are made equal before inlining: nodes keep the meaning they were written in.
"""

from __future__ import annotations

import onnx
import onnx.inliner

from frontend.load_proto import opsets

STAMP = "opset"
"""Key of the node metadata with 'domain=version' words of the function that a node came from."""


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without model-local functions; the same object when there are none."""
    if not model.functions:
        return model
    everywhere = opsets(model.opset_import)
    for function in model.functions:
        own = opsets(function.opset_import)
        words = " ".join(f"{domain}={version}" for domain, version in sorted(own.items()))
        if any(everywhere.get(domain, version) != version for domain, version in own.items()):
            _stamp(function.node, words)
        for item in function.opset_import:
            domain = "" if item.domain == "ai.onnx" else item.domain
            item.version = everywhere.setdefault(domain, item.version)
    return onnx.inliner.inline_local_functions(model)


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
