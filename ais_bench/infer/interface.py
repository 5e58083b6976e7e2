"""`InferSession` and `MultiDeviceSession`: models run with numpy arrays."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Thread
from typing import Any

import numpy as np

import aclruntime
from ais_bench.infer.aipp_config import read_aipp_config, set_images

_MAX_DEVICE = 255
_KEEP = -1

Feed = Any
"""An ndarray, a numpy scalar, an aclruntime.Tensor or a CPU tensor of torch."""


class InferSession:
    """A model on a device.

    device_id: 0 to 255. model_path: a package. acl_json_path: settings of `acl.init`. debug: more to the log. loop:
    executions of each call of `infer`. Wrong arguments raise RuntimeError.
    """

    def __init__(
        self, device_id: int, model_path: str | os.PathLike[str], acl_json_path: str | None = None,
        debug: bool = False, loop: int = 1,
    ) -> None:  # fmt: skip
        if isinstance(device_id, bool) or not isinstance(device_id, int) or not 0 <= device_id <= _MAX_DEVICE:
            raise RuntimeError(f"device_id is {device_id!r}, a number from 0 to {_MAX_DEVICE} is wanted")
        if not os.path.isfile(model_path):
            raise RuntimeError(f"there is no model {model_path}")
        if acl_json_path and not os.path.isfile(acl_json_path):
            raise RuntimeError(f"there is no file {acl_json_path}")
        if isinstance(loop, bool) or not isinstance(loop, int) or loop < 1:
            raise RuntimeError(f"loop is {loop!r}, a number from 1 on is wanted")
        options = aclruntime.session_options()
        options.acl_json_path = acl_json_path or ""
        options.log_level = 1 if debug else 2
        options.loop = loop
        self.device_id, self.model_path, self.loop = device_id, str(model_path), loop
        self.session = aclruntime.InferenceSession(str(model_path), device_id, options)
        self.outputs_names = [t.name for t in self.session.get_outputs()]

    def __enter__(self) -> InferSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.free_resource()

    def get_inputs(self) -> list[aclruntime.tensor_desc]:
        return self.session.get_inputs()

    def get_outputs(self) -> list[aclruntime.tensor_desc]:
        return self.session.get_outputs()

    # Shapes

    def set_loop_count(self, loop: int) -> None:
        self.session.options().loop = loop

    def set_staticbatch(self) -> None:
        self.session.set_staticbatch()

    def set_dynamic_shape(self, text: str) -> None:
        self.session.set_dynamic_shape(text)

    def set_dynamic_batchsize(self, batch: int) -> None:
        self.session.set_dynamic_batchsize(batch)

    def set_dynamic_hw(self, height: int, width: int) -> None:
        self.session.set_dynamic_hw(height, width)

    def set_dynamic_dims(self, text: str) -> None:
        self.session.set_dynamic_dims(text)

    def set_custom_outsize(self, sizes: int | Sequence[int]) -> None:
        """One size for all outputs, or one each."""
        outputs = len(self.outputs_names)
        self.session.set_custom_outsize([sizes] * outputs if isinstance(sizes, int) else list(sizes))

    def load_aipp_config_file(self, path: str | os.PathLike[str], batch: int) -> None:
        """What the images of a model with dynamic AIPP are, for `batch` of them, from a file of keys."""
        set_images(self.session, read_aipp_config(path), batch)

    # Runs

    def infer(
        self, feeds: Sequence[Feed], mode: str = "static", custom_sizes: int | Sequence[int] = 100000,
        out_array: bool = True,
    ) -> list[Any]:  # fmt: skip
        """Outputs in the model's order: arrays, or tensors on the device without `out_array`."""
        tensors = self._tensors(feeds)
        self._set_shapes(mode, [t.shape for t in tensors], custom_sizes)
        return self.run(tensors, out_array)

    def infer_pipeline(
        self, feeds_list: Sequence[Sequence[Feed]], mode: str = "static", custom_sizes: int | Sequence[int] = 100000
    ) -> list[list[np.ndarray]]:
        """`infer` for a list of feeds; copies in, executions and copies out overlap."""
        ready: Queue[list[aclruntime.Tensor] | BaseException | None] = Queue(maxsize=2)

        def upload() -> None:
            try:
                self.session.set_context()
                for feeds in feeds_list:
                    ready.put(self._tensors(feeds))
                ready.put(None)
            except BaseException as error:
                ready.put(error)

        feeder = Thread(target=upload, daemon=True)
        feeder.start()
        results = []
        with ThreadPoolExecutor(1) as downloader:
            while (tensors := ready.get()) is not None:
                if isinstance(tensors, BaseException):
                    raise tensors
                self._set_shapes(mode, [t.shape for t in tensors], custom_sizes)
                results.append(downloader.submit(_arrays, self.run(tensors, out_array=False)))
            feeder.join()
            return [r.result() for r in results]

    def infer_iteration(
        self, feeds: Sequence[Feed], in_out_list: Sequence[int] | None = None, iteration_times: int = 1,
        mode: str = "static", custom_sizes: int | Sequence[int] = 100000,
    ) -> list[np.ndarray]:  # fmt: skip
        """Runs `iteration_times` times; before each further run input i becomes output in_out_list[i] of the last one
        (-1: it stays). Without a list output i feeds input i. Tensors stay on the device in between."""
        if iteration_times < 1:
            raise RuntimeError(f"iteration_times is {iteration_times}, a number from 1 on is wanted")
        tensors = self._tensors(feeds)
        links = list(in_out_list) if in_out_list is not None else list(range(len(tensors)))
        if len(links) != len(tensors) or any(not _KEEP <= k < len(self.outputs_names) for k in links):
            raise RuntimeError(f"in_out_list is {links}: one output number or -1 for each of {len(tensors)} inputs")
        self._set_shapes(mode, [t.shape for t in tensors], custom_sizes)
        for number in range(iteration_times):
            results = self.run(tensors, out_array=False)
            if number + 1 < iteration_times:
                tensors = [t if k == _KEEP else results[k] for t, k in zip(tensors, links, strict=True)]
        return _arrays(results)

    def run(self, feeds: Sequence[aclruntime.Tensor | np.ndarray], out_array: bool = True) -> list[Any]:
        """Runs with the shapes set before."""
        results = self.session.run(self.outputs_names, self._tensors(feeds))
        return _arrays(results) if out_array else results

    def create_tensor_from_fileslist(self, desc: aclruntime.tensor_desc, files: Sequence[str]) -> aclruntime.Tensor:
        return self.session.create_tensor_from_fileslist(desc, files)

    def create_tensor_from_arrays_to_device(self, array: np.ndarray) -> aclruntime.Tensor:
        tensor = aclruntime.Tensor(array)
        tensor.to_device(self.device_id)
        return tensor

    # Figures and the end

    def summary(self) -> Any:
        """`exec_time_list`: begin and end of each execution, in milliseconds of one clock."""
        return self.session.sumary()

    def reset_summaryinfo(self) -> None:
        self.session.reset_sumaryinfo()

    def free_resource(self) -> None:
        """Unloads the model; once is enough."""
        self.session.free_resource()

    @staticmethod
    def finalize() -> None:
        aclruntime.InferenceSession.finalize()

    def _tensors(self, feeds: Sequence[Feed]) -> list[aclruntime.Tensor]:
        inputs = self.session.get_inputs()
        if len(feeds) != len(inputs):
            raise RuntimeError(f"{len(feeds)} feeds given, the model has {len(inputs)} inputs")
        tensors = []
        for feed, desc in zip(feeds, inputs, strict=True):
            tensor = feed if isinstance(feed, aclruntime.Tensor) else aclruntime.Tensor(_array(feed, desc))
            tensor.to_device(self.device_id)
            tensors.append(tensor)
        return tensors

    def _set_shapes(self, mode: str, shapes: Sequence[Sequence[int]], custom_sizes: int | Sequence[int]) -> None:
        inputs = self.session.get_inputs()
        if mode == "static":
            self.session.set_staticbatch()
            return
        self.session.set_staticbatch()
        inputs = self.session.get_inputs()
        text = ";".join(f"{d.name}:{','.join(map(str, s))}" for d, s in zip(inputs, shapes, strict=False))
        if mode == "dymshape":
            self.session.set_dynamic_shape(text)
            self.set_custom_outsize(custom_sizes)
        elif mode == "dymdims":
            self.session.set_dynamic_dims(text)
        elif mode == "dymbatch":
            self.session.set_dynamic_batchsize(_batch_of([d.shape for d in inputs], shapes))
        elif mode == "dymhw":
            if len(shapes[0]) != 4:
                raise RuntimeError(f"dymhw wants an input of four axes first, it has {list(shapes[0])}")
            self.session.set_dynamic_hw(shapes[0][2], shapes[0][3])
        else:
            raise RuntimeError(f"there is no mode {mode!r}: static, dymbatch, dymhw, dymdims or dymshape")


class MultiDeviceSession:
    """Models on several devices at once; one session for each list of feeds."""

    def __init__(
        self, model_path: str, acl_json_path: str | None = None, debug: bool = False, loop: int = 1
    ) -> None:
        self._arguments = (model_path, acl_json_path, debug, loop)
        self._times: dict[int, list[float]] = {}

    def infer(
        self, device_feeds: Mapping[int, Sequence[Sequence[Feed]]], mode: str = "static",
        custom_sizes: int | Sequence[int] = 100000,
    ) -> dict[int, list[list[np.ndarray]]]:  # fmt: skip
        """{device: [feeds, ...]} in, {device: [outputs, ...]} out."""
        return self._each(device_feeds, lambda s, feeds: s.infer(feeds, mode, custom_sizes))

    def infer_pipeline(
        self, device_feeds_list: Mapping[int, Sequence[Sequence[Sequence[Feed]]]], mode: str = "static",
        custom_sizes: int | Sequence[int] = 100000,
    ) -> dict[int, list[list[list[np.ndarray]]]]:  # fmt: skip
        """As `infer`, every item a list of feeds."""
        return self._each(device_feeds_list, lambda s, feeds: s.infer_pipeline(feeds, mode, custom_sizes))

    def infer_iteration(
        self, device_feeds: Mapping[int, Sequence[Sequence[Feed]]], in_out_list: Sequence[int] | None = None,
        iteration_times: int = 1, mode: str = "static", custom_sizes: int | Sequence[int] = 100000,
    ) -> dict[int, list[list[np.ndarray]]]:  # fmt: skip
        """As `InferSession.infer_iteration`, for every item."""
        return self._each(
            device_feeds, lambda s, feeds: s.infer_iteration(feeds, in_out_list, iteration_times, mode, custom_sizes)
        )

    def summary(self) -> dict[int, list[float]]:
        """Milliseconds of the last call's items, by device."""
        return dict(self._times)

    def _each(self, feeds: Mapping[int, Sequence[Any]], call: Any) -> dict[int, list[Any]]:
        model, *rest = self._arguments
        self._times = {}

        def work(device: int, items: Any) -> tuple[Any, float]:
            with InferSession(device, model, *rest) as session:
                start = time.perf_counter()
                return call(session, items), (time.perf_counter() - start) * 1e3

        jobs = [(device, items) for device, list_ in feeds.items() for items in list_]
        results: dict[int, list[Any]] = {device: [] for device in feeds}
        with ThreadPoolExecutor(max(1, len(jobs))) as pool:
            for (device, _), done in zip(jobs, pool.map(lambda job: work(*job), jobs), strict=True):
                results[device].append(done[0])
                self._times.setdefault(device, []).append(done[1])
        return results


class MemorySummary:
    """Milliseconds of copies to the devices and back."""

    @staticmethod
    def get_h2d_time_list() -> list[float]:
        return list(aclruntime.MemorySummary().H2D_time_list)

    @staticmethod
    def get_d2h_time_list() -> list[float]:
        return list(aclruntime.MemorySummary().D2H_time_list)

    @staticmethod
    def reset() -> None:
        aclruntime.MemorySummary().reset()


def _array(feed: Feed, desc: aclruntime.tensor_desc) -> np.ndarray:
    if isinstance(feed, np.ndarray):
        array = feed
    elif isinstance(feed, np.generic):
        array = np.array([feed])
    elif hasattr(feed, "detach") and hasattr(feed, "numpy"):  # a tensor of torch
        array = feed.detach().cpu().numpy()
    else:
        raise RuntimeError(f"a feed of type {type(feed).__name__}: arrays, numpy scalars and tensors are taken")
    if array.dtype != np.dtype(desc.datatype.value):
        raise RuntimeError(f"input {desc.name} is of {desc.datatype.value}, the feed of {array.dtype}")
    return array


def _arrays(tensors: Sequence[aclruntime.Tensor]) -> list[np.ndarray]:
    for tensor in tensors:
        tensor.to_host()
    return [np.array(t) for t in tensors]


def _batch_of(dims: Sequence[Sequence[int]], shapes: Sequence[Sequence[int]]) -> int:
    """The size of the first open axis; RuntimeError unless all other axes are the model's."""
    batch = 0
    for wanted, shape in zip(dims, shapes, strict=True):
        for w, s in zip(wanted, shape, strict=False):
            if w == -1:
                batch = batch or s
        if len(wanted) != len(shape) or any(w not in (-1, s) for w, s in zip(wanted, shape, strict=True)):
            raise RuntimeError(f"an input has shape {list(wanted)}, {list(shape)} does not fit")
    if not batch:
        raise RuntimeError("no axis of the model is open: use the mode 'static'")
    return batch
