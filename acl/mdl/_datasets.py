"""Datasets: the buffers of a model's inputs or outputs."""

from __future__ import annotations

from acl._call import plain, status, valued, word
from acl._process import handles
from acl.mdl._lookup import item as item_at
from acl_runtime.device import DataBuffer, Dataset, TensorDesc

__all__ = [
    "add_dataset_buffer",
    "create_dataset",
    "destroy_dataset",
    "get_dataset_buffer",
    "get_dataset_num_buffers",
    "get_dataset_tensor_desc",
    "set_dataset_tensor_desc",
]


@plain()
def create_dataset() -> int:
    return handles.of(Dataset())


@status(word)
def destroy_dataset(dataset: int) -> None:
    """Ends the list and the tensor descriptions in it, neither buffers nor memory."""
    for desc in handles.remove(dataset, Dataset).descs.values():
        handles.remove(handles.of(desc), TensorDesc)


@valued(word, word)
def add_dataset_buffer(dataset: int, buffer: int) -> int:
    """Appends; gives the dataset."""
    handles.get(dataset, Dataset).buffers.append(handles.get(buffer, DataBuffer))
    return dataset


@plain(word)
def get_dataset_num_buffers(dataset: int) -> int:
    return len(handles.get(dataset, Dataset).buffers)


@plain(word, word)
def get_dataset_buffer(dataset: int, index: int) -> int:
    """0 if there is none."""
    return handles.of(item_at(handles.get(dataset, Dataset).buffers, index))


@valued(word, word, word)
def set_dataset_tensor_desc(dataset: int, desc: int, index: int) -> int:
    """Says the shape of a dynamic input; the dataset owns the description from now on. Gives the dataset."""
    item = handles.get(dataset, Dataset)
    item_at(item.buffers, index)
    item.descs[index] = handles.get(desc, TensorDesc)
    return dataset


@plain(word, word)
def get_dataset_tensor_desc(dataset: int, index: int) -> int:
    """The description of an input as set, of an output as the last execution left it; 0 if there is none."""
    item = handles.get(dataset, Dataset)
    item_at(item.buffers, index)
    return handles.of(item.descs[index]) if index in item.descs else 0
