"""What a conversion whose kernels are cached loads: no compiler, no runtime, no library of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import small_models

ROOT = Path(__file__).parents[2]
_CODE = """
import sys
from atc.command_line import main
try:
    main(["convert", sys.argv[1]])
except SystemExit as end:
    assert not end.code
absent = ("llvmlite.binding", "typer", "pydantic", "networkx", "onnxruntime", "acl_runtime.session", "rich")
found = [m for m in absent if m in sys.modules]
assert sys.argv[2] == "cold" or not found, found
"""


def test_a_warm_conversion_loads_no_llvm_and_no_typer(tmp_path: Path) -> None:
    model = small_models.save("demo", tmp_path)
    for time in ("cold", "warm"):
        code = [sys.executable, "-c", _CODE, str(model), time]
        subprocess.run(code, cwd=ROOT, check=True, timeout=120, env={**os.environ, "OPENATC_CACHE": str(tmp_path / "c")})
