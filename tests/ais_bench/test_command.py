"""The command line: what scripts read from it and from the files that it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from acl_programs import dynamic_model, negative_model, static_model
from converted import converted

from ais_bench.command import _write, main

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def test_without_input_zeros_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = static_model(tmp_path / "m.om")
    out = tmp_path / "out"
    assert main(["--model", str(model), "--loop", "3", "--output", str(out), "--output_dirname", "run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    order = ["acl init success", "open device 0 success", "load model", "create model description success",
             "try get model batchsize:4", "output path:", "warm up 1 done", "Performance Summary", "NPU_compute_time (ms): min = ",
             "throughput 1000*batchsize.mean(4)/NPU_compute_time.mean(", "unload model success, model Id is 1",
             "end to reset device is 0", "end to finalize acl"]  # fmt: skip
    at = [next(i for i, row in enumerate(lines) if words in row) for words in order]
    assert at == sorted(at)
    data = np.fromfile(out / "run" / "pure_infer_data_0.bin", np.float32)
    np.testing.assert_allclose(data, np.tanh(1.0), rtol=1e-6)
    record = json.loads((out / "run_summary.json").read_text())
    assert record["NPU_compute_time"]["count"] == 3 == len(record["npu_compute_time_list"])
    assert record["throughput"] == pytest.approx(4000 / record["NPU_compute_time"]["mean"])


def test_files_are_put_together_to_batches(tmp_path: Path) -> None:
    """Five files of two elements fill an input of six: two runs, of which the second is filled up."""
    model = negative_model(tmp_path / "m.om", 6)
    folder = tmp_path / "in"
    folder.mkdir()
    for k in range(5):
        np.array([k, 10 + k], np.float32).tofile(folder / f"f{k}.bin")
    arguments = ["--model", str(model), "--input", str(folder), "--output", str(tmp_path), "--output_dirname", "o"]
    assert main([*arguments, "--outfmt", "NPY"]) == 0
    for k in range(5):
        np.testing.assert_array_equal(np.load(tmp_path / "o" / f"f{k}_0.npy"), [-k, -10 - k])
    assert not (tmp_path / "o" / "f5_0.npy").exists()


def test_dynamic_shapes_from_the_option_and_from_the_files(tmp_path: Path) -> None:
    model = dynamic_model(tmp_path / "m.om")
    np.save(tmp_path / "x.npy", X)
    common = ["--model", str(model), "--input", str(tmp_path / "x.npy"), "--output", str(tmp_path), "--outfmt", "NPY"]
    assert main([*common, "--output_dirname", "a", "--dymShape", "x:4,3"]) == 0
    assert main([*common, "--output_dirname", "b", "--auto_set_dymshape_mode", "1"]) == 0
    for folder in "ab":
        np.testing.assert_array_equal(np.load(tmp_path / folder / "x_0.npy"), -X)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--model", "absent.om"], "no model"), (["--model", "m.om", "--input", "absent.npy"], "no file or folder"),
     (["--model", "m.om", "--dymShape", "y:1"], "no input y"), (["--model", "m.om", "--dymShape", "x=1"], "no shape"),
     (["--model", "m.om"], "is open"), (["--model", "m.om", "--dymBatch", "2"], "no gears"),
     (["--model", "m.om", "--input", ","], "0 inputs given"), (["--model", "m.om", "--dymHW", "9" * 5000], "width"),
     (["--model", "m.om", "--device", "9" * 5000], "different numbers"),
     (["--model", "m.om", "--outputSize", "9" * 5000], "numbers with commas"),
     (["--model", "m.om", "--dymShape", f"x:{9 * 10**17},3"], "than a memory has"),
     (["--model", "m.om", "--dymShape", f"x:{9 * 10**12},3"], "no room")],
)  # fmt: skip
def test_mistakes_are_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    dynamic_model(tmp_path / "m.om")
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert words in error and len(error.splitlines()) == 1


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,), (2, 3, 2), ()])
def test_text_has_a_line_for_each_row(tmp_path: Path, shape: tuple[int, ...]) -> None:
    _write(tmp_path / "a.txt", np.ones(shape, np.float32), "TXT")
    assert len((tmp_path / "a.txt").read_text().splitlines()) == (shape[0] if shape else 1)


def test_a_byte_of_zero_is_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--model", "m.om", "--output", "\0"])
    assert stop.value.code == 2 and "byte of 0" in capsys.readouterr().err


def test_what_does_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--model", "m.om", "--perf", "1"])
    assert stop.value.code == 2
    assert "there is one backend" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "wanted"), [("profiler", "PROF_*/*/op_summary_*.csv"), ("dump", "*/0/model/*/*/*.*.*.*.*")])
def test_profiles_and_dumps(flag: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = converted(tmp_path, input_shape="x:1,3,2,2")
    assert main(["--model", path, "--output", str(tmp_path / "o"), f"--{flag}", "1", "--warmup_count", "0"]) == 0
    assert list((tmp_path / "o" / flag).glob(wanted))
    with pytest.raises(SystemExit):
        main(["--model", path, f"--{flag}", "1"])
    with pytest.raises(SystemExit):
        main(["--model", path, "--output", str(tmp_path), "--profiler", "1", "--dump", "1"])
    assert "--profiler and --dump exclude each other" in capsys.readouterr().err


def test_several_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(static_model(tmp_path / "m.om"))
    monkeypatch.setenv("OPENATC_DEVICES", "2")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    line = ["--model", path, "--device", "0,1", "--output", str(tmp_path), "--output_dirname", "o"]
    assert main(line) == 0
    said = capsys.readouterr().out
    figures = [float(said.split(f"device_{n} throughput:")[1].split()[0]) for n in (0, 1)]
    assert float(said.split("summary throughput:")[1]) == pytest.approx(sum(figures)) and min(figures) > 0
    assert all((tmp_path / f"o_{n}" / "pure_infer_data_0.bin").exists() for n in (0, 1))
    assert main(["--model", path, "--device", "0,0"]) == 1
    assert "different numbers" in capsys.readouterr().err
