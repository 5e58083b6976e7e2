"""The command line: options, the run, what is printed (the lines that scripts look for) and written."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ais_bench.devices import run_on_devices
from ais_bench.infer.interface import InferSession, MemorySummary
from ais_bench.inputs import PURE, Batches, grouped, listed, made_up
from ais_bench.summary import Summary

_REFUSED = {
    "energy_consumption": "a simulated device takes no energy",
    "npu_id": "a simulated device takes no energy",
    "backend": "there is one backend",
    "perf": "there is one backend",
    "dump_npy": "use atc compare, which sees every tensor",
    "profiler_rename": "the files have the names that Ascend's profiler gives them",
}
_LAST_DEVICE = 255
_NEW = {"model": "-om", "dymBatch": "-db", "dymHW": "-dhw", "dymDims": "-dd", "dymShape": "-ds",
        "dymShape_range": "-dr", "outputSize": "-outsize", "input": "-i", "output": "-o", "device": "-d"}  # fmt: skip


def _yes(text: str) -> bool:
    word = text.lower()
    if word in ("y", "yes", "t", "true", "1"):
        return True
    if word in ("n", "no", "f", "false", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")


_DIGITS = 18
"""More than that no number of a command has: sizes, batches and devices end before."""


def _is_number(text: str) -> bool:
    return text.strip().isdecimal() and len(text) <= _DIGITS


def _at_least(low: int) -> Any:
    def number(text: str) -> int:
        if not _is_number(text) or int(text) < low:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {low} on")
        return int(text)

    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("ais_bench", description="Runs a package and measures it.", allow_abbrev=False)

    def option(name: str, help_: str, **settings: Any) -> None:
        names = [f"--{name}", *([_NEW[name]] if name in _NEW else [])]
        if "_" in name:
            names.append(f"--{name.replace('_', '-')}")
        parser.add_argument(*names, dest=name, help=help_, **settings)

    parser.add_argument("--model", "-om", "--om-model", dest="model", required=True, help="package (.om)")
    option("input", "files or folders, one each input, with commas")
    option("output", "folder for outputs and the summary")
    option("output_dirname", "name of the folder in --output")
    option("outfmt", "BIN, NPY or TXT", default="BIN", type=str.upper, choices=["BIN", "NPY", "TXT"])
    option("loop", "executions of each input", default=1, type=_at_least(1))
    option("debug", "say more", default=False, type=_yes)
    option("device", "device number; several with commas: a process each", default="0")
    option("dymBatch", "batch of a model with batch gears", default=0, type=_at_least(0))
    option("dymHW", "height,width of a model with image gears")
    option("dymDims", "dims of a model with gears: name:1,8;...")
    option("dymShape", "shapes of a dynamic model: name:1,3,224,224;...")
    option("outputSize", "most bytes of each output, with commas")
    option("auto_set_dymshape_mode", "shapes of a dynamic model from the .npy files", default=False, type=_yes)
    option("auto_set_dymdims_mode", "gears from the .npy files", default=False, type=_yes)
    option("batchsize", "batch for the throughput", default=0, type=_at_least(0))
    option("pure_data_type", "zero or random, without --input", default="zero", choices=["zero", "random"])
    option("profiler", "times of tasks into the folder `profiler` of --output", default=False, type=_yes)
    option("dump", "tensors of layers into the folder `dump` of --output", default=False, type=_yes)
    option("aipp_config", "what the images of a model with dynamic AIPP are (.config)")
    option("acl_json_path", "settings of acl.init")
    option("output_batchsize_axis", "axis that outputs are cut along", default=0, type=_at_least(0))
    option("run_mode", "array, files, tensor or full: the same here", default="array",
           choices=["array", "files", "tensor", "full"])  # fmt: skip
    option("display_all_summary", "also the times of copies", default=False, type=_yes)
    option("warmup_count", "executions before the first that counts", default=1, type=_at_least(0))
    option("pipeline", "copies overlap with executions", default=False, type=_yes)
    option("threads", "without effect: OPENATC_THREADS says how many", default=1, type=_at_least(1))
    for name in _REFUSED:
        option(name, argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 after a line that says what went wrong (2 for wrong options)."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if any("\0" in value for value in vars(options).values() if isinstance(value, str)):
        parser.error("a value holds a byte of 0, which no path and no name has")
    for name, why in _REFUSED.items():
        if getattr(options, name) is not None:
            parser.error(f"--{name} does nothing here: {why}")
    if options.output_dirname and not options.output:
        parser.error("--output_dirname wants --output")
    looks = [name for name in ("profiler", "dump", "acl_json_path") if getattr(options, name)]
    if len(looks) > 1:
        parser.error(f"--{looks[0]} and --{looks[1]} exclude each other")
    if (options.profiler or options.dump) and not options.output:
        parser.error(f"--{looks[0]} wants --output")
    try:
        devices = _devices(options.device)
        if len(devices) > 1:
            words = list(sys.argv[1:] if arguments is None else arguments)
            return run_on_devices(words, devices, options.output_dirname)
        _benchmark(options)
    except RuntimeError as error:
        print(f"[ERROR] {error}", file=sys.stderr)
        return 1
    return 0


def _say(text: str) -> None:
    print(f"[INFO] {text}", flush=True)


def _devices(text: str) -> list[int]:
    words = str(text).split(",")
    if not all(_is_number(w) and int(w) <= _LAST_DEVICE for w in words) or len(set(words)) < len(words):
        raise RuntimeError(f"--device {text}: different numbers from 0 to {_LAST_DEVICE} are wanted")
    return [int(w) for w in words]


def _benchmark(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="ais_bench") as folder:
        settings = _settings(options, Path(folder) / "acl.json") or options.acl_json_path
        session = InferSession(int(options.device), options.model, settings, options.debug)
    _say("acl init success")
    _say(f"open device {options.device} success")
    _say(f"load model {options.model} success")
    _say("create model description success")
    try:
        _set_shapes(session, options)
        if options.aipp_config:
            session.load_aipp_config_file(options.aipp_config, _batch_size(session, options))
        _measure(session, options)
    finally:
        session.free_resource()
        _say("unload model success, model Id is 1")
        InferSession.finalize()
        _say(f"end to reset device is {options.device}")
        _say("end to finalize acl")


def _settings(options: argparse.Namespace, path: Path) -> str | None:
    """The file of settings that --profiler and --dump stand for."""
    kind = "profiler" if options.profiler else "dump" if options.dump else None
    if kind is None:
        return None
    folder = Path(options.output).absolute() / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RuntimeError(f"cannot make the folder {folder}: {error.strerror}") from error
    section = (
        {"switch": "on", "output": str(folder)}
        if options.profiler
        else {"dump_path": str(folder), "dump_mode": "all", "dump_list": []}
    )
    path.write_text(json.dumps({kind: section}))
    return str(path)


def _measure(session: InferSession, options: argparse.Namespace) -> None:
    descs = session.get_inputs()
    if options.debug:
        print(session.session)
    batches = Batches(grouped(listed(options.input), len(descs)), descs) if options.input else None
    batch = options.batchsize or _batch_size(session, options)
    _say(f"try get model batchsize:{batch}")
    folder = _folder(options)
    summary = Summary(batch)
    if batches is not None:
        _say(
            f"get filesperbatch files0 size:{batches.file_size} tensor0size:{descs[0].realsize} "
            f"filesperbatch:{batches.per_batch} runcount:{batches.runs}"
        )
        runs: Any = batches
    else:
        runs = [(made_up(descs, options.pure_data_type), [])]
    automatic = options.auto_set_dymshape_mode or options.auto_set_dymdims_mode
    mode = "dymshape" if options.auto_set_dymshape_mode else "dymdims"
    first = True
    for number, (feeds, files) in enumerate(runs):
        if automatic:
            session._set_shapes(mode, [f.shape for f in feeds], _sizes(options) or 1 << 62)
        if first:
            session.set_loop_count(1)
            for _ in range(options.warmup_count):
                session.run(feeds)
            _say(f"warm up {options.warmup_count} done")
            session.reset_summaryinfo()
            MemorySummary.reset()
            first = False
        session.set_loop_count(options.loop)
        outputs = session.run(feeds)
        stems = [f.stem for f in files[0]] if files else [PURE]
        if folder is not None:
            summary.files[number] = {
                "infiles": [str(f) for group in files for f in group],
                "outfiles": _save(folder, outputs, stems, batches.per_batch if batches else 1, options),
            }
    summary.compute = [end - begin for begin, end in session.summary().exec_time_list]
    summary.h2d, summary.d2h = MemorySummary.get_h2d_time_list(), MemorySummary.get_d2h_time_list()
    for row in summary.lines(options.display_all_summary):
        _say(row)
    if folder is not None:
        summary.write(folder.parent / f"{folder.name}_summary.json", _arguments(options))


def _set_shapes(session: InferSession, options: argparse.Namespace) -> None:
    given = [n for n in ("dymBatch", "dymHW", "dymDims", "dymShape") if getattr(options, n)]
    if len(given) > 1:
        raise RuntimeError(f"--{given[0]} and --{given[1]} exclude each other")
    if options.dymBatch:
        session.set_dynamic_batchsize(options.dymBatch)
    elif options.dymHW:
        words = options.dymHW.split(",")
        if len(words) != 2 or not all(_is_number(w) for w in words):
            raise RuntimeError(f"--dymHW {options.dymHW}: height,width is wanted")
        session.set_dynamic_hw(*map(int, words))
    elif options.dymDims:
        session.set_dynamic_dims(options.dymDims)
    elif options.dymShape:
        session.set_dynamic_shape(options.dymShape)
    if sizes := _sizes(options):
        session.set_custom_outsize(sizes)


def _sizes(options: argparse.Namespace) -> list[int]:
    words = (options.outputSize or "").split(",") if options.outputSize else []
    if not all(_is_number(w) for w in words):
        raise RuntimeError(f"--outputSize {options.outputSize}: numbers with commas are wanted")
    return [int(w) for w in words]


def _batch_size(session: InferSession, options: argparse.Namespace) -> int:
    shape = session.get_inputs()[0].shape
    return options.dymBatch or (shape[0] if shape and shape[0] > 0 else 1)


def _folder(options: argparse.Namespace) -> Path | None:
    if not options.output:
        return None
    folder = Path(options.output) / (options.output_dirname or time.strftime("%Y_%m_%d-%H_%M_%S"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RuntimeError(f"cannot make the folder {folder}: {error.strerror}") from error
    _say(f"output path:{folder}")
    return folder


def _save(
    folder: Path, outputs: Sequence[np.ndarray], stems: Sequence[str], per_batch: int, options: argparse.Namespace
) -> list[str]:
    """Writes outputs as `<stem of the first input's file>_<output>.<format>`; those of a batch that was put together of
    several files are cut along the batch axis, and what filled it up is left out."""
    axis, written = options.output_batchsize_axis, []
    for index, array in enumerate(outputs):
        parts = [array]
        if per_batch > 1 and array.ndim > axis and array.shape[axis] % per_batch == 0:
            parts = np.split(array, per_batch, axis)
        for name, part in zip(stems, parts, strict=False):
            path = folder / f"{name}_{index}.{options.outfmt.lower()}"
            try:
                _write(path, np.ascontiguousarray(part), options.outfmt)
            except OSError as error:
                raise RuntimeError(f"cannot write {path}: {error.strerror}") from error
            written.append(str(path))
    return written


def _write(path: Path, array: np.ndarray, format_: str) -> None:
    part = path.with_name(f".{path.name}.part")
    with open(part, "wb") as file:
        if format_ == "NPY":
            np.save(file, array)
        elif format_ == "BIN":
            file.write(array.tobytes())
        else:
            np.savetxt(file, array.reshape(array.shape[0] if array.ndim else 1, math.prod(array.shape[1:])))
    os.replace(part, path)


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    return {k: v for k, v in vars(options).items() if isinstance(v, str | int | float | bool | type(None))}

