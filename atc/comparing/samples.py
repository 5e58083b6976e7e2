"""Several inputs for a comparison: a folder, an archive or images, each sample with a name."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime.session import TensorInfo
from atc.comparing.oracles import file_name
from atc.usage import UsageError
from tensor_types.array_files import read_array, read_arrays

Samples = list[tuple[str, dict[str, Any]]]

_IMAGES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})
_ARRAYS = frozenset({".npy", ".bin"})
_USUAL_SIDE = 224
"""Height and width of images where neither package nor file of AIPP says one."""


def read_samples(
    path: Path, inputs: Sequence[TensorInfo], images: Sequence[Mapping[str, Any]], flag: str = "--data"
) -> Samples:
    """The samples of a path, in order of their names. `images` are the package's rows of AIPP.

    1. An .npz holds arrays by input. One with an axis more than its input, or that is a multiple of a fixed first axis,
       holds several samples.
    2. An image is one for the input that AIPP prepares, resized to its size.
    3. A folder holds folders (a sample each, with `INPUT.npy` or .bin), .npz files, images, or .npy and .bin files: all
       inputs of one sample if they are named so, else a sample each for the only input.

    UsageError for what is none of these.
    """
    try:
        found = list(_of_folder(path, inputs, images) if path.is_dir() else _of_file(path, inputs, images))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"cannot read {path}: {error}", where={"flag": flag},
                         remedy="give a folder, an .npz, or images") from error  # fmt: skip
    if not found:
        raise UsageError(
            f"{path} holds no sample", where={"flag": flag},
            remedy=f"name files after the inputs ({', '.join(file_name(t.name) for t in inputs)}), or give .npz files",
        )  # fmt: skip
    return found


def _of_folder(
    path: Path, inputs: Sequence[TensorInfo], images: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    entries = sorted(p for p in path.iterdir() if not p.name.startswith("."))
    arrays = [p for p in entries if p.suffix in _ARRAYS]
    names = {file_name(t.name): t for t in inputs}
    if arrays and all(p.stem in names for p in arrays):
        yield path.name, {names[p.stem].name: _array(p, names[p.stem]) for p in arrays}
        arrays = []
    for entry in entries:
        if entry.is_dir():
            yield from _of_folder(entry, inputs, images)
        elif entry.suffix == ".npz" or entry.suffix.lower() in _IMAGES:
            yield from _of_file(entry, inputs, images)
        elif entry in arrays:
            if len(inputs) != 1:
                raise ValueError(f"{entry.name} is named after no input, and the model has {len(inputs)}")
            yield entry.name, {inputs[0].name: _array(entry, inputs[0])}


def _of_file(
    path: Path, inputs: Sequence[TensorInfo], images: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.suffix.lower() in _IMAGES:
        yield path.name, {str(row["input"]): _image(path, row) for row in _image_rows(images, path)}
        return
    loaded = read_arrays(path)
    if isinstance(loaded, np.ndarray):
        if len(inputs) != 1:
            raise ValueError(f"an array without a name, and the model has {len(inputs)} inputs")
        found = {inputs[0].name: loaded}
    else:
        found = loaded
    ranks = {t.name: t for t in inputs}
    if unknown := found.keys() - ranks.keys():
        raise ValueError(f"the model has no input {min(unknown)!r}")
    parts = {name: _parts(array, ranks[name]) for name, array in found.items()}
    count = max(map(len, parts.values()), default=0)
    if any(len(p) not in (1, count) for p in parts.values()):
        raise ValueError(f"inputs with {', '.join(str(len(p)) for p in parts.values())} samples")
    for number in range(count):
        name = path.name if count == 1 else f"{path.name}[{number}]"
        yield name, {key: p[number if len(p) > 1 else 0] for key, p in parts.items()}


def _parts(array: np.ndarray, tensor: TensorInfo) -> list[np.ndarray]:
    """The samples of an array, one if it is the input itself."""
    shape = tensor.shape
    if shape is None or array.ndim == len(shape) and (not shape or not isinstance(shape[0], int)):
        return [array]
    if array.ndim == len(shape) + 1:
        return list(array)
    first = shape[0] if shape else 1
    if isinstance(first, int) and first and array.ndim and array.shape[0] > first and array.shape[0] % first == 0:
        return [array[i : i + first] for i in range(0, array.shape[0], first)]
    return [array]


def _array(path: Path, tensor: TensorInfo) -> np.ndarray:
    if path.suffix == ".npy":
        return read_array(path)
    data = np.fromfile(path, tensor.dtype)
    open_axes = [a for a, d in enumerate(tensor.shape or ()) if not isinstance(d, int)]
    if len(open_axes) > 1:
        raise ValueError(f"{path.name} does not say its shape: give .npy")
    return data.reshape([d if isinstance(d, int) else -1 for d in tensor.shape or ()])


def _image_rows(images: Sequence[Mapping[str, Any]], path: Path) -> Sequence[Mapping[str, Any]]:
    if not images:
        raise ValueError(f"{path.name} is an image, and the package takes none: convert with --aipp, as imagenet-rgb")
    return images[:1]


def _image(path: Path, row: Mapping[str, Any]) -> np.ndarray:
    """The u8 tensor of an image, of batch 1, in the format and size that AIPP takes."""
    from PIL import Image

    height, width = (int(n) or _USUAL_SIDE for n in row["source"])
    with Image.open(path) as opened:
        picture = opened.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    rgb = np.asarray(picture, np.uint8)
    kind = str(row["format"])
    if kind == "RGB888_U8":
        return rgb[None]
    if kind == "XRGB8888_U8":
        return np.concatenate([np.zeros((height, width, 1), np.uint8), rgb], axis=2)[None]
    luma, *chroma = np.moveaxis(np.asarray(picture.convert("YCbCr"), np.uint8), 2, 0)
    if kind == "YUV400_U8":
        return luma[None, :, :, None]
    if kind == "YUV420SP_U8":
        halves = np.stack([c[::2, ::2] for c in chroma], axis=2).reshape(height // 2, width)
        return np.concatenate([luma, halves])[None]
    raise ValueError(f"images of the format {kind} are not made here: give arrays")
