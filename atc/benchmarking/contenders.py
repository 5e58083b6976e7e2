"""What is compared: each contender loads a model and gives a function from named inputs to named outputs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from atc.benchmarking.decoders import GenAi, OursGenerating
from atc.benchmarking.loaded import Arrays, Loaded


class Contender(Protocol):
    """Something that runs models."""

    @property
    def reduced(self) -> bool:
        """Computes in fewer bits than the model asks for, so the wider limits apply."""

    @property
    def compares(self) -> bool:
        """Its outputs are those of the case's inputs. Otherwise it has checked itself when it was loaded."""

    def load(self, model: Path, inputs: Arrays, threads: int) -> Loaded:
        """Raises ImportError when the contender is not installed."""


def _with_fixed_dims(model: Path, inputs: Arrays) -> bytes:
    """The model serialised with the shapes of `inputs` in place of free dims; at most 2 GB."""
    import onnx

    proto = onnx.load(model)
    for value in proto.graph.input:
        if value.name in inputs:
            for dim, size in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape, strict=True):
                dim.dim_value = size
    data: bytes = proto.SerializeToString()
    return data


@dataclass(frozen=True)
class Ours:
    """openatc. `static` converts for the inputs' shapes, otherwise the model's symbolic dims stay; a package runs as
    it is."""

    static: bool = True
    flags: Mapping[str, str] = field(default_factory=dict)
    reduced: bool = False
    compares: bool = True

    def load(self, model: Path, inputs: Arrays, threads: int) -> Loaded:
        import atc
        from acl_runtime import InferSession

        flags = dict(self.flags)
        if model.suffix == ".om":
            return _session_run(InferSession(0, str(model), threads=threads), inputs, {"package": model.name})
        if self.static:
            shapes = {name: ",".join(map(str, array.shape)) for name, array in inputs.items() if array.ndim}
            flags["input_shape"] = ";".join(f"{name}:{shape}" for name, shape in shapes.items())
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / "model.om"
            atc.convert(model, output=package, **flags)
            session = InferSession(0, str(package), threads=threads)
        return _session_run(session, inputs, {"flags": flags})


def _session_run(session: Any, inputs: Arrays, options: dict[str, Any]) -> Loaded:
    ordered = [inputs[entry.name] for entry in session.get_inputs()]
    names = [entry.name for entry in session.get_outputs()]
    return Loaded(lambda: dict(zip(names, session.infer(ordered), strict=True)), options)


@dataclass(frozen=True)
class OnnxRuntime:
    """onnxruntime on the CPU: default graph optimisation, input dims fixed, no spinning."""

    reduced: bool = False
    compares: bool = True

    def load(self, model: Path, inputs: Arrays, threads: int) -> Loaded:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        config = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
        for key, value in config.items():
            options.add_session_config_entry(key, value)
        static = _with_fixed_dims(model, inputs)
        session = onnxruntime.InferenceSession(static, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        recorded = {
            "version": onnxruntime.__version__,
            "intra_op_num_threads": options.intra_op_num_threads,
            "inter_op_num_threads": options.inter_op_num_threads,
            "graph_optimization_level": options.graph_optimization_level.name,
            **config,
        }
        return Loaded(lambda: dict(zip(names, session.run(names, inputs), strict=True)), recorded)


@dataclass(frozen=True)
class OpenVino:
    """OpenVINO on the CPU, one request at a time."""

    precision: str = "f32"
    reduced: bool = False
    compares: bool = True

    def load(self, model: Path, inputs: Arrays, threads: int) -> Loaded:
        import openvino

        core = openvino.Core()
        network = core.read_model(_with_fixed_dims(model, inputs))
        # Inputs go by position: a lookup by name would split names that hold a colon.
        names = [next(name for name in inputs if name in port.get_names()) for port in network.inputs]
        options = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": self.precision,
        }
        request = core.compile_model(network, "CPU", options).create_infer_request()
        feeds = {i: inputs[name] for i, name in enumerate(names)}
        aliases = [sorted(port.get_names()) for port in network.outputs]

        def run() -> Arrays:
            results = request.infer(feeds)
            return {name: results[i] for i, port_names in enumerate(aliases) for name in port_names}

        return Loaded(run, {"version": openvino.__version__, **options})


@dataclass(frozen=True)
class Sgemm:
    """numpy's 512 × 512 × 512 sgemm on one thread: tells how fast the machine is at this moment."""

    FLOPS = 2 * 512**3
    reduced: bool = False
    compares: bool = True

    def load(self, model: Path, inputs: Arrays, threads: int) -> Loaded:
        a, b = (np.random.default_rng(seed).standard_normal((512, 512), np.float32) for seed in (0, 1))
        out = np.empty_like(a)
        return Loaded(lambda: {"out": np.matmul(a, b, out=out)}, {"numpy": np.__version__})


MACHINE = "sgemm"
REFERENCE = "onnxruntime"
OURS = "ours"
CONTENDERS: dict[str, Contender] = {
    OURS: Ours(),
    "ours-dynamic": Ours(static=False),
    "ours-bf16": Ours(flags={"precision_mode": "allow_mix_precision_bf16"}, reduced=True),
    "ours-quantising": Ours(flags={"dynamic_quantisation": "true"}),
    "onnxruntime": OnnxRuntime(),
    "openvino": OpenVino(),
    "openvino-bf16": OpenVino("bf16", reduced=True),
    "ours-generating": OursGenerating(),
    "genai": GenAi(),
    MACHINE: Sgemm(),
}
