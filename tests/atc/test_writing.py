"""What a command writes: nothing of the user's is lost, nothing is half written, what fails is named."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import small_models
from onnx import helper
from small_models import F32, N, info, model_of, random

ROOT = Path(__file__).resolve().parents[2]
ATC = [sys.executable, "-m", "atc"]


@pytest.fixture
def mlp(tmp_path):
    return small_models.save("mlp", tmp_path)


@pytest.fixture
def package(atc, mlp):
    assert atc("convert", mlp, "-q")[0] == 0
    return mlp.with_suffix(".om")


def shell(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    """`script` with the words as "$@"."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)  # what is still buffered at the end of the process is what hurts
    return subprocess.run(["bash", "-c", script, "-", *ATC, *map(str, words)], capture_output=True, text=True,
                          cwd=ROOT, env=environment, timeout=120)  # fmt: skip


def refused(atc, code, *words):
    found, out, _ = atc(*words, "--json")
    error = json.loads(out)["error"]
    assert found == code and error["remedy"], error
    return error


# Nothing of the user's is lost


def test_the_output_is_never_the_model_its_data_or_a_key(atc, tmp_path, mlp):
    data = tmp_path / "m.data"
    onnx.save(onnx.load(str(mlp)), str(tmp_path / "m.onnx"), save_as_external_data=True, location="m.data",
              size_threshold=0)  # fmt: skip
    key = tmp_path / "key"
    key.write_text("-----BEGIN PRIVATE KEY-----\n")
    (tmp_path / "link").symlink_to("m.onnx")
    before = {p: p.read_bytes() for p in (tmp_path / "m.onnx", data, key)}
    for output in (*before, tmp_path / "link"):
        assert refused(atc, 2, "convert", tmp_path / "m.onnx", "-o", output)["where"]["flag"] == "--output"
    assert {p: p.read_bytes() for p in before} == before


def test_packages_and_empty_files_are_replaced(atc, tmp_path, mlp, package):
    (tmp_path / "empty").touch()
    for output in (package, tmp_path / "empty"):
        assert atc("convert", mlp, "-o", output, "-q")[0] == 0
        assert output.read_bytes()[:4] == b"IMOD"


def test_strip_and_csv_keep_what_they_read(atc, mlp, package):
    assert refused(atc, 2, "strip", package, "-o", mlp)["where"]["flag"] == "--output"
    assert refused(atc, 2, "compare", mlp, package, "--csv", package)["where"]["flag"] == "--csv"
    onnx.load(str(mlp))


# Refused before the work


@pytest.mark.parametrize("name", [".", "nodir/x.om", "model.onnx/x.om", "x" * 300])
def test_an_output_that_cannot_be_written_is_refused_before_the_compile(atc, tmp_path, mlp, name, monkeypatch):
    mlp.rename(tmp_path / "model.onnx")
    monkeypatch.setattr("atc.pass_watch.run_passes", lambda *_, **__: pytest.fail("the work has begun"))
    error = refused(atc, 2 if name == "." else 7, "convert", tmp_path / "model.onnx", "-o", f"{tmp_path}/{name}")
    assert error["where"]["flag"] == "--output" and error["code"] == ("E10022" if name == "." else "E13004")


def test_a_model_that_is_absent_is_what_is_said_even_if_the_output_is_wrong_too(atc, tmp_path):
    error = refused(atc, 3, "convert", tmp_path / "nodir" / "nowhere.onnx")
    assert "nowhere.onnx" in error["message"]


@pytest.mark.parametrize("flag", ["--output-dir", "--csv", "--folder"])
def test_the_flag_of_what_cannot_be_written(atc, tmp_path, mlp, package, flag):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "x"
    words = {"--output-dir": ["run", package], "--csv": ["compare", mlp, package], "--folder": ["demo"]}[flag]
    error = refused(atc, 7, *words, flag, place)
    assert error["code"] == "E13004" and error["where"]["flag"] == flag and str(place) in error["message"]


def test_atcs_spelling_makes_the_folders_of_the_output(atc, tmp_path, mlp):
    words = [f"--model={mlp}", "--framework=5", "--soc_version=Ascend910B2", "--log=error"]
    assert atc(*words, f"--output={tmp_path}/a/b/out")[0] == 0
    assert (tmp_path / "a" / "b" / "out.om").exists()


# A full disk: /dev/full in place of the file that is opened


@pytest.fixture
def full(monkeypatch):
    """Every file that is written anew is on a full disk."""
    real = os.fdopen

    class Full(io.BytesIO):
        def write(self, _):
            raise OSError(28, "No space left on device")

    def fdopen(descriptor, mode="r", *rest, **more):
        if "w" not in mode:
            return real(descriptor, mode, *rest, **more)
        os.close(descriptor)
        return Full()

    monkeypatch.setattr("acl_runtime.om.replace_file.os.fdopen", fdopen)


def test_a_full_disk_leaves_nothing_behind_and_names_the_file(atc, tmp_path, mlp, package, full):
    pytest.importorskip("cryptography")
    before = sorted(p.name for p in tmp_path.iterdir())
    cases = {
        "PATH": (["key", "new", tmp_path / "key"], "key"),
        "--csv": (["compare", mlp, package, "--csv", tmp_path / "rows.csv"], "rows.csv"),
        "--output-dir": (["run", package, "--output-dir", tmp_path / "out"], "out/"),
        "--folder": (["demo", "--folder", tmp_path / "out"], "demo.onnx"),
        "--output": (["convert", mlp], package.name),
    }
    for flag, (words, named) in cases.items():
        error = refused(atc, 5, *words)
        assert error["where"]["flag"] == flag and named in error["message"], error
    (tmp_path / "out").rmdir()
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_key_that_could_not_be_written_can_be_made_afterwards(atc, tmp_path):
    pytest.importorskip("cryptography")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acl_runtime.om.replace_file.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
        assert refused(atc, 5, "key", "new", tmp_path / "key")
    assert atc("key", "new", tmp_path / "key")[0] == 0
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert refused(atc, 7, "key", "new", tmp_path / "key")["code"] == "E13004"


def test_a_key_never_follows_a_link(atc, tmp_path):
    pytest.importorskip("cryptography")
    (tmp_path / "key").symlink_to("elsewhere")
    assert refused(atc, 7, "key", "new", tmp_path / "key")
    assert not (tmp_path / "elsewhere").exists()


# Files of outputs


def test_outputs_whose_files_would_collide_or_be_too_long(atc, tmp_path):
    names = ["a.b", "a/b", "A_b", "é", "ü", "x" * 300, "x" * 299 + "y", "p_0"]
    scales = {name: float(2 + i) for i, name in enumerate(names)}
    nodes, constants = [], []
    for i, (name, scale) in enumerate(scales.items()):
        constants.append(small_models.array(f"c{i}", np.float32(scale)))
        nodes.append(N("Mul", ["x", f"c{i}"], [name], f"n{i}"))
    nodes.append(N("SplitToSequence", ["x"], ["p"], "split", axis=0))
    sequence = helper.make_tensor_sequence_value_info("p", F32, None)
    model = model_of(nodes, [info("x", F32, [2, 3])], [*(info(n, F32, [2, 3]) for n in names), sequence], constants)
    onnx.save(model, str(tmp_path / "m.onnx"))
    np.save(tmp_path / "x.npy", random(2, 3))
    words = ["run", tmp_path / "m.onnx", "--output-dir", tmp_path / "out", "--input", f"x={tmp_path / 'x.npy'}"]
    code, out, err = atc(*words, "--json")
    assert code == 0, out + err
    found = json.loads(out)["outputs"]
    for name, scale in scales.items():
        np.testing.assert_allclose(np.load(found[name]["file"]), random(2, 3) * np.float32(scale))
    for row, element in enumerate(found["p"]["elements"]):
        np.testing.assert_array_equal(np.load(element["file"]), random(2, 3)[row : row + 1])
    assert len({str(p).lower() for p in (tmp_path / "out").iterdir()}) == len(names) + 2
    _, out, _ = atc(*words)
    assert all(str(p) in out for p in (tmp_path / "out").iterdir())


def test_a_reader_of_models_gets_a_message_for_a_target_that_cannot_be_written(tmp_path, monkeypatch, capsys):
    from models.__main__ import main, registry

    (tmp_path / "m.onnx").write_bytes(b"model")
    monkeypatch.setattr(registry, "get", lambda _: tmp_path / "m.onnx")
    assert main(["get", "m", "-o", str(tmp_path / "nodir" / "x.onnx")]) == 1
    assert "nodir/x.onnx" in capsys.readouterr().err
    assert main(["get", "m", "-o", str(tmp_path / "x.onnx")]) == 0
    assert (tmp_path / "x.onnx").read_bytes() == b"model"


# Standard output


def test_a_closed_standard_output(package):
    found = shell('"$@" >&-', "run", package)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("words", [["run", "--json"], ["run"], ["--help"], []])
def test_a_full_standard_output_is_said_once(package, words):
    found = shell('"$@" >/dev/full', *words, *([package] if "run" in words else []))
    assert found.returncode == 5
    first, *rest = found.stderr.splitlines()
    assert first == "E14001: cannot write standard output: No space left on device"
    assert [line.split(":")[0].strip() for line in rest] == ["remedy"]


def test_an_error_as_json_goes_to_standard_error_if_need_be(tmp_path):
    found = shell('"$@" >/dev/full', "run", tmp_path / "nowhere.om", "--json")
    assert found.returncode == 3 and found.stderr.startswith("E13001: ") and "Traceback" not in found.stderr


@pytest.mark.parametrize("words", [["--json"], ["--layers"], ["--help"]])
def test_a_reader_that_has_gone_ends_the_command_quietly(package, words):
    found = shell('mkfifo "$0.fifo"; (exec 3<"$0.fifo"; exec 3<&-) & exec 4>"$0.fifo"; wait; exec "$@" >&4'.replace(
        "$0.fifo", str(package) + ".fifo"), "inspect", package, *words)  # fmt: skip
    assert (found.returncode, found.stderr) == (141, "")


# Signals


def test_an_interrupt_during_the_imports_is_quiet(tmp_path):
    # The interrupt comes while the module is imported that the entry point imports first.
    program = (
        "import sys, importlib.abc\n"
        "class Interrupt(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'atc.command_line': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from atc.__main__ import main\n"
        "main()\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert (found.returncode, found.stderr) == (130, "")


def test_the_console_script_is_the_entry_that_expects_interrupts():
    assert 'atc = "atc.__main__:main"' in (ROOT / "pyproject.toml").read_text()


def test_a_worker_whose_parent_is_killed_ends_quietly():
    from codegen.llvm.worker import send_frame
    from codegen.llvm.worker_pool import Worker

    worker = Worker("x86-64-v3")
    send_frame(worker.stream, b"no program")
    worker.stream.close()
    assert worker.process.wait(60) == 0
    worker.words.seek(0)
    assert worker.words.read() == b""
    worker.words.close()


def test_an_interrupt_of_a_compile_ends_it_and_its_workers_quietly(tmp_path):
    program = (
        "import sys, time\n"
        "from codegen.llvm import worker_pool, workers\n"
        "real = worker_pool.Worker.ask\n"
        "def ask(worker, program, seconds):\n"
        "    sys.stdout.write('asked\\n'); sys.stdout.flush(); time.sleep(0.5)\n"
        "    return real(worker, program, seconds)\n"
        "worker_pool.Worker.ask = ask\n"
        "try:\n"
        "    workers.compile_many([b'%d' % i for i in range(40)], 'x86-64-v3', workers=2)\n"
        "except KeyboardInterrupt:\n"
        "    pass\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    process.stdout.readline()
    started = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert err == "" and process.returncode == 0
    assert out.count("asked") <= 4 and time.monotonic() - started < 15


def test_a_request_to_end_leaves_no_temporary_folder(tmp_path):
    """`atc run` of a model keeps its package in a folder for the time of the run."""
    start = (
        "import sys, time, atc.conversion, atc.__main__ as m\n"
        "def wait(*_, **__): print('converting', flush=True); time.sleep(60)\n"
        "atc.conversion.convert = wait\n"
        "m.main()"
    )
    model = small_models.save("demo", tmp_path)
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", start, "run", str(model)], cwd=ROOT, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )  # fmt: skip
    while "converting" not in process.stdout.readline():
        assert process.poll() is None
    assert list((tmp_path / "tmp").iterdir()), "the folder is there"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143 and err == ""
    assert not list((tmp_path / "tmp").iterdir())
