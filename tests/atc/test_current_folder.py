"""Python files that lie beside a model are not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import small_models

ROOT = Path(__file__).resolve().parents[2]


def test_a_conversion_imports_nothing_of_the_current_folder(tmp_path: Path) -> None:
    small_models.save("mlp", tmp_path)
    for name in ("llvmlite", "onnx", "numpy", "copy", "ml_dtypes", "json", "rich", "codegen", "tensor_types", "socket"):
        (tmp_path / f"{name}.py").write_text(f"open('ran', 'a').write({name!r})\nraise SystemExit('planted')\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENATC_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "atc", "convert", "mlp.onnx", "-q"], cwd=tmp_path, env=environment, text=True,
        capture_output=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()
    assert (tmp_path / "mlp.om").exists()
