"""What ATC shows of a package: --mode=6, --display_model_info, and a package or model as JSON (--mode=1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from acl_runtime.om import open_package
from acl_runtime.om.replace_file import replace_file
from acl_runtime.om.writer import PARTS, SIZES
from atc.inspect_package import inspect_package
from atc.writing import check_file, writing


def model_info(path: Path) -> list[str]:
    """The lines between ATC's banners: command line, system, resources, parts. PackageError."""
    found = inspect_package(path)
    package = open_package(path)
    header, sizes = package.header, package.graph().attrs.get(SIZES, ())
    parts = zip(PARTS, sizes, strict=False) if isinstance(sizes, list | tuple) else ()
    arena = found["memory"]["arena_bytes"]
    return [
        "============ Display Model Info start ============",
        f"Original Atc command line: {header.get('atc_cmdline', '')}",
        f"system   info: atc_version[{found['tool']}], soc_version[{found['soc_version']}], framework_type[5].",
        f"resource info: memory_size[{-1 if arena is None else arena} B], "
        f"weight_size[{found['memory']['weights_bytes']} B], stream_num[1], event_num[0].",
        "om       info: " + ", ".join(f"{name}_size[{size} B]" for name, size in parts) + ".",
        "============ Display Model Info end   ============",
    ]


def model_json(path: Path) -> dict[str, Any]:
    """A package's graph of kernels, or an ONNX file's graph, in plain values. PackageError, InvalidModel."""
    if path.suffix == ".onnx":
        return _onnx_json(path)
    package = open_package(path)
    graph = package.graph()
    return {
        "name": graph.name,
        "graph": [{
            "name": graph.name,
            "input": [_tensor(t) for t in graph.inputs],
            "output": [_tensor(t) for t in graph.outputs],
            "op": [
                {
                    "name": node.name, "type": node.type, "input": list(node.inputs),
                    "output_desc": [_tensor(t) for t in node.outputs],
                    "attr": {key: _plain(value) for key, value in node.attrs.items()},
                    "original_op_names": list(node.source_names),
                }
                for node in graph.nodes
            ],
        }],
        "attr": {key: _plain(value) for key, value in graph.attrs.items()},
    }  # fmt: skip


def write_json(path: Path, value: dict[str, Any], flag: str) -> None:
    """One JSON file, whole or not at all. PackageError, UsageError."""
    check_file(path, flag)
    with writing(flag, path), replace_file(path) as file:
        file.write(json.dumps(value, indent=4, ensure_ascii=False).encode())


def _onnx_json(path: Path) -> dict[str, Any]:
    from frontend import read_model

    graph = read_model(path)
    ops = [
        {
            "name": n.name, "type": n.op, "input": ["" if v is None else v.name for v in n.inputs],
            "output_desc": [{"name": v.name, "dtype": v.dtype.name, "shape": _shape(v.shape)} for v in n.outputs],
            "attr": {key: _plain(value) for key, value in n.attrs.items()},
        }
        for n in graph.nodes
    ]  # fmt: skip
    ends = {
        role: [{"name": v.name, "dtype": v.dtype.name, "shape": _shape(v.shape)} for v in values]
        for role, values in (("input", graph.inputs), ("output", graph.outputs))
    }
    return {"name": graph.name, "graph": [{"name": graph.name, **ends, "op": ops}], "attr": {}}


def _tensor(desc: Any) -> dict[str, Any]:
    return {"name": desc.name, "dtype": desc.dtype, "shape": list(desc.shape), "layout": desc.format}


def _shape(shape: Any) -> list[Any] | None:
    return None if shape is None else [d if isinstance(d, int) else str(d) for d in shape]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (int, float, str, bool)):
        return value
    return [_plain(v) for v in value] if hasattr(value, "__iter__") else str(value)
