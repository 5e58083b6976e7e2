"""Imports flow one way: each room may import only what docs/architecture.md allows."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    "tensor_types": ("frontend", "graph_opt", "codegen", "acl_runtime", "acl", "atc", "onnx", "llvmlite"),
    "frontend": ("codegen", "acl_runtime", "acl", "atc"),
    "graph_opt": ("frontend", "codegen", "acl_runtime", "acl", "atc", "onnx", "llvmlite"),
    "codegen/tile": ("graph_opt", "frontend", "acl_runtime", "atc", "onnx", "codegen.kernels", "codegen.llvm"),
    "codegen/targets": ("graph_opt", "frontend", "acl_runtime", "atc", "onnx", "codegen.kernels", "codegen.llvm"),
    "codegen/llvm": ("graph_opt", "frontend", "acl_runtime", "atc", "onnx", "codegen.kernels"),
    "codegen/kernels": ("codegen.llvm", "codegen.lowering", "frontend", "acl_runtime", "atc", "onnx"),
    "codegen/lowering": ("codegen.llvm", "frontend", "acl_runtime", "atc", "onnx"),
    "acl_runtime": (
        "frontend",
        "graph_opt",
        "codegen.kernels",
        "codegen.lowering",
        "acl",
        "atc",
        "onnx",
        "models",
        "tests",
    ),  # fmt: skip
    "acl": ("frontend", "graph_opt", "codegen", "atc", "onnx"),
    "aclruntime": ("frontend", "graph_opt", "codegen", "atc", "onnx", "ais_bench"),
    "ais_bench": ("frontend", "graph_opt", "codegen", "acl_runtime", "acl", "atc", "onnx"),
    "atc": ("models", "tests", "benchmarks"),
}

COMPILES_AT_RUN_TIME = ("acl/op/_compiler.py", "acl_runtime/model_source.py")
"""Where the runtime loads the compiler: when a program asks for its first single operator, and when a session is opened
from an ONNX model instead of a package."""
GETS_MODELS = "atc/models_command.py"


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("room", sorted(FORBIDDEN))
def test_room_imports_only_what_it_may(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        if path.relative_to(ROOT).as_posix() in (*COMPILES_AT_RUN_TIME, GETS_MODELS):
            continue
        for name in _imported(path):
            for forbidden in FORBIDDEN[room]:
                assert name != forbidden and not name.startswith(f"{forbidden}."), f"{path} imports {name}"


def test_the_runtime_loads_nothing_of_the_compiler() -> None:
    code = (
        "import sys, acl, acl_runtime; acl_runtime.InferSession\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('onnx', 'frontend', 'graph_opt', 'atc')"
        " or m.startswith(('codegen.kernels', 'codegen.lowering'))]\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize(
    ("module", "absent"),
    [("atc.cli", ("numpy", "onnx", "llvmlite", "networkx")), ("atc.run", ("onnx", "networkx", "onnxruntime"))],
)
def test_what_a_command_does_not_use_it_does_not_load(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}\nbad = [m for m in {absent!r} if m in sys.modules]\nassert not bad, bad"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
