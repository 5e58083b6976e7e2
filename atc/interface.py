"""What a package takes and gives, as the options ask: gears, images, dtypes of inputs and outputs.

Works on the graph as read, before anything is optimised. What does not fit the model is told all at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from atc.aipp import AippOp
from atc.gears import Gears, bind_gears, header_of
from atc.options import Options
from atc.usage import Problems, UsageError, did_you_mean
from graph_opt.interface.dtypes import set_input_dtype, set_output_dtype
from graph_opt.interface.image_preparation import ImagePreparation
from graph_opt.interface.images import image_shape, prepare_at_run_time, prepare_image
from graph_opt.ir import Graph, Value
from tensor_types.dims import Dim, product
from tensor_types.dtypes import DTYPES, F16
from tensor_types.images import CHANNELS, YUV

PARAMETERS = "ascend_dynamic_aipp_data"
"""Name of the input for what a program says of images at run time; that of a second one has `_1` behind it."""


def apply_interface(graph: Graph, options: Options) -> dict[str, Any]:
    """Changes the inputs and outputs of the graph; gives the header's `gears` and `aipp`, where there are any.

    UsageError, of all that does not fit: E10016, E10017 for names, E10034, E10052 for images, those of
    `gears.bind_gears`.
    """
    problems = Problems()
    numbers: dict[str, int] = {}
    layout = "NHWC" if options.input_format == "NHWC" else "NCHW"
    with problems.gathered():
        if options.dynamic_dims is not None:
            numbers = bind_gears(graph, options.dynamic_dims, options.input_shape, layout)
    rows = []
    prepared: list[tuple[Value, AippOp]] = []
    for op in options.insert_op_conf:
        with problems.gathered():
            value = _image_input(graph, op)
            if op.spec is None:
                _check_at_run_time(value, op, layout, set(numbers))
                rows.append(_row_at_run_time(value, op, layout, sum("parameters" in row for row in rows)))
            else:
                _check_image(value, op, op.spec, layout)
                _check_even(value, op, op.spec, layout, options.dynamic_dims, numbers)
                rows.append(_row(value, op.spec, layout))
            prepared.append((value, op))
    with problems.gathered():
        _set_fp16(graph, options, {value.name for value, _ in prepared})
    with problems.gathered():
        _set_output_types(graph, options)
    problems.raise_all()
    for (value, op), row in zip(prepared, rows, strict=True):
        if op.spec is None:
            prepare_at_run_time(graph, value, op.max_bytes, row["parameters"], layout)
        else:
            prepare_image(graph, value, op.spec, layout)
        if op.unused:
            graph.warnings.append(
                f"--insert_op_conf: line {op.line}: a program says at run time what {', '.join(op.unused)} would say"
            )
    header: dict[str, Any] = {}
    if options.dynamic_dims is not None:
        header["gears"] = header_of(graph, options.dynamic_dims, numbers)
    if rows:
        header["aipp"] = rows
    return header


# --- dtypes


def _set_fp16(graph: Graph, options: Options, images: Iterable[str]) -> None:
    values = _named(graph, options.input_fp16_nodes, "--input_fp16_nodes")
    for value in values:
        where = {"flag": "--input_fp16_nodes", "tensor": value.name}
        if value.name in images:
            raise UsageError(f"{value.name} takes images and cannot be f16 as well", code="E10034", where=where,
                             remedy="leave it out of --input_fp16_nodes or of --insert_op_conf")  # fmt: skip
        if not value.dtype.is_float:
            raise UsageError(f"{value.name} is {value.dtype}, not a float", where=where, remedy="leave it out")
        set_input_dtype(graph, value, F16)


def _set_output_types(graph: Graph, options: Options) -> None:
    """A type for all outputs of floats, or types for single outputs."""
    outputs = {v.name: v for v in graph.outputs}
    for given, dtype in options.output_type:
        if not given:
            for value in outputs.values():
                if value.dtype.is_float:
                    set_output_dtype(graph, value, DTYPES[dtype])
            continue
        name = _tensor_of(graph, given)
        if name not in outputs:
            raise UsageError(
                f"--output_type names {given!r}, which is no output", code="E10016", where={"flag": "--output_type"},
                remedy=f"{did_you_mean(given, outputs)}the outputs are {', '.join(outputs)}; --out_nodes adds others",
            )  # fmt: skip
        set_output_dtype(graph, outputs[name], DTYPES[dtype])


def _tensor_of(graph: Graph, given: str) -> str:
    """The tensor that 'node:index' stands for; the text itself where it is none."""
    node, _, index = given.rpartition(":")
    for found in graph.nodes:
        if index.isdecimal() and found.name == node and int(index) < len(found.outputs):
            return found.outputs[int(index)].name
    return given


def _named(graph: Graph, names: Iterable[str], flag: str) -> list[Value]:
    inputs = {v.name: v for v in graph.inputs}
    problems = Problems()
    for name in names:
        with problems.gathered():
            if name not in inputs:
                is_node = any(n.name == name for n in graph.nodes)
                raise UsageError(
                    f"{flag} names {name!r}, which is {'a node, not an input' if is_node else 'not in the model'}",
                    code="E10017" if is_node else "E10016", where={"flag": flag, "tensor": name},
                    remedy=f"{did_you_mean(name, inputs)}the inputs are {', '.join(inputs)}",
                )  # fmt: skip
    problems.raise_all()
    return [inputs[name] for name in names]


# --- images


def _image_input(graph: Graph, op: AippOp) -> Value:
    names = [v.name for v in graph.inputs]
    if op.name is not None and op.name not in names:
        raise _wrong(
            op, f"related_input_name is {op.name}", f"{did_you_mean(op.name, names)}use one of {', '.join(names)}"
        )
    if op.name is None and (op.rank or 0) >= len(names):
        raise _wrong(op, f"related_input_rank is {op.rank}, but the model has {len(names)} inputs",
                     f"use a number below {len(names)}: the inputs are {', '.join(names)}")  # fmt: skip
    return graph.inputs[op.rank or 0 if op.name is None else names.index(op.name)]


def _sizes(value: Value, op: AippOp, layout: str) -> tuple[Dim, Dim, Dim, int]:
    """Batch, height, width and channels of an input that can take images."""
    if value.shape is None or len(value.shape) != 4 or not value.dtype.is_float:
        raise _wrong(op, f"the input {value} is no image of floats", "name an input of four axes")
    batch, height, width, channels = (value.shape[layout.index(axis)] for axis in "NHWC")
    if not isinstance(channels, int) or channels not in (1, 3, 4):
        raise _wrong(op, f"the input {value} has {channels} channels in {layout}",
                     "give --input_format as the model has it: NCHW or NHWC")  # fmt: skip
    return batch, height, width, channels


def _check_at_run_time(value: Value, op: AippOp, layout: str, bounded: set[str]) -> None:
    batch, height, width, channels = _sizes(value, op, layout)
    if not (isinstance(height, int) and isinstance(width, int)):
        raise _wrong(op, f"dynamic AIPP makes images of one size, the model takes {height} x {width}",
                     "fix height and width with --input_shape")  # fmt: skip
    if not isinstance(batch, int) and str(batch) not in bounded:
        raise _wrong(op, f"dynamic AIPP needs to know how many images there are, the batch is {batch}",
                     "fix it with --input_shape, or give --dynamic_batch_size")  # fmt: skip
    if isinstance(batch, int) and op.max_bytes < batch:
        raise _wrong(op, f"max_src_image_size is {op.max_bytes}, too small for {batch} images",
                     "give the bytes of all images of a batch")  # fmt: skip


def _row_at_run_time(value: Value, op: AippOp, layout: str, number: int) -> dict[str, Any]:
    _, *result = _sizes(value, op, layout)
    return {
        "input": value.name, "mode": "dynamic", "parameters": f"{PARAMETERS}_{number}" if number else PARAMETERS,
        "max_bytes": op.max_bytes, "result": result,
    }  # fmt: skip


def _check_image(value: Value, op: AippOp, spec: ImagePreparation, layout: str) -> None:
    _, height, width, channels = _sizes(value, op, layout)
    count = 3 if spec.matrix is not None else CHANNELS[spec.format]
    if channels > count:
        raise _wrong(op, f"images of {spec.format} give {count} channels, the model takes {channels}",
                     "choose another input_format")  # fmt: skip
    is_open = not (isinstance(height, int) and isinstance(width, int))
    if is_open and (spec.crop is not None or any(spec.padding) or spec.source is not None):
        raise _wrong(op, "sizes are open, so crop, padding and src_image_size cannot be given",
                     "leave them out, or fix the size with --input_shape")  # fmt: skip
    if is_open:
        return
    top, bottom, left, right = spec.padding
    if spec.crop is not None and spec.source is None:
        raise _wrong(op, "a crop needs the size of the image", "give src_image_size_h and src_image_size_w")
    inner = spec.crop[2:] if spec.crop is not None else spec.source or (height - top - bottom, width - left - right)
    if (inner[0] + top + bottom, inner[1] + left + right) != (height, width):
        made = f"{inner[0] + top + bottom} x {inner[1] + left + right}"
        raise _wrong(
            op, f"crop and padding make {made}, the model takes {height} x {width}", "change sizes, crop or padding"
        )
    if spec.format == YUV and spec.source is None and (inner[0] % 2 or inner[1] % 2):
        raise _wrong(op, f"the image is {inner[0]} x {inner[1]}, but {YUV} has even sizes", "crop a larger image")


def _check_even(
    value: Value, op: AippOp, spec: ImagePreparation, layout: str, gears: Gears | None, numbers: Mapping[str, int]
) -> None:
    """Gears of YUV420SP images have even sizes."""
    if spec.format != YUV or gears is None:
        return
    _, *sizes, _ = _sizes(value, op, layout)
    places = [numbers[str(size)] for size in sizes if str(size) in numbers]
    odd = [",".join(map(str, c)) for c in gears.combinations if any(c[place] % 2 for place in places)]
    if odd:
        raise _wrong(op, f"images of {YUV} have even sizes, not those of {gears.flag} {'; '.join(odd)}",
                     "use even sizes, or another input_format")  # fmt: skip


def _row(value: Value, spec: ImagePreparation, layout: str) -> dict[str, Any]:
    assert value.shape is not None
    batch, *sizes = (value.shape[layout.index(axis)] for axis in "NHW")
    top, bottom, left, right = spec.padding
    source = spec.source or (sizes[0] - top - bottom, sizes[1] - left - right)
    bytes_ = product(image_shape(spec, 1, *source))
    return {
        "input": value.name, "mode": "static", "format": spec.format, "source": [_size(d) for d in source],
        "bytes": bytes_ if isinstance(bytes_, int) else None,
    }  # fmt: skip


def _size(dim: Dim) -> int:
    return dim if isinstance(dim, int) else 0


def _wrong(op: AippOp, what: str, remedy: str) -> UsageError:
    return UsageError(f"--insert_op_conf: line {op.line}: {what}", code="E10052", where={"flag": "--insert_op_conf"},
                      remedy=remedy)  # fmt: skip
