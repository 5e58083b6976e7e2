"""Data buffers and tensor descriptions."""

from __future__ import annotations

from acl._call import integer, integers, plain, status, text, valued, word
from acl._process import handles, memory
from acl_runtime.device import Code, DataBuffer, DeviceError, TensorDesc
from acl_runtime.device.dataset import element_type

_ACL_INT4, _ACL_UINT1 = 29, 30


@plain(word, word)
def create_data_buffer(address: int, size: int) -> int:
    """A buffer over memory of the caller; address 0 and size 0 are allowed."""
    return handles.of(DataBuffer(address, size))


@status(word)
def destroy_data_buffer(buffer: int) -> None:
    """Ends the buffer, not the memory."""
    handles.remove(buffer, DataBuffer)


@status(word, word, word)
def update_data_buffer(buffer: int, address: int, size: int) -> None:
    """Points a buffer elsewhere."""
    item = handles.get(buffer, DataBuffer)
    item.address, item.size, item.gear = address, size, None


@plain(word)
def get_data_buffer_addr(buffer: int) -> int:
    return handles.get(buffer, DataBuffer).address


@plain(word)
def get_data_buffer_size(buffer: int) -> int:
    """The size modulo 2**32; `get_data_buffer_size_v2` gives all of it."""
    return handles.get(buffer, DataBuffer).size % (1 << 32)


@plain(word)
def get_data_buffer_size_v2(buffer: int) -> int:
    return handles.get(buffer, DataBuffer).size


@plain(integer, integers, integer)
def create_tensor_desc(dtype: int, dims: list[int], layout: int) -> int:
    """A description: aclDataType, dims (none: a scalar), aclFormat."""
    return handles.of(TensorDesc(dtype, list(dims), layout))


@plain(word, failure=None)
def destroy_tensor_desc(desc: int) -> None:
    handles.remove(desc, TensorDesc)


@plain(word, failure=-1)
def get_tensor_desc_type(desc: int) -> int:
    return handles.get(desc, TensorDesc).dtype


@plain(word, failure=-1)
def get_tensor_desc_format(desc: int) -> int:
    return handles.get(desc, TensorDesc).format


@plain(word)
def get_tensor_desc_size(desc: int) -> int:
    """Bytes; 0 while a dim is dynamic."""
    return handles.get(desc, TensorDesc).nbytes


@plain(word)
def get_tensor_desc_element_count(desc: int) -> int:
    return handles.get(desc, TensorDesc).element_count


@plain(word)
def get_tensor_desc_num_dims(desc: int) -> int:
    return len(handles.get(desc, TensorDesc).dims)


@valued(word, word)
def get_tensor_desc_dim_v2(desc: int, index: int) -> int:
    dims = handles.get(desc, TensorDesc).dims
    if index >= len(dims):
        raise DeviceError(Code.INVALID_PARAM, f"there is no dim {index}, the tensor has {len(dims)}")
    return dims[index]


@plain(word, failure="")
def get_tensor_desc_name(desc: int) -> str:
    return handles.get(desc, TensorDesc).name


@plain(word, text, failure=None)
def set_tensor_desc_name(desc: int, name: str) -> None:
    handles.get(desc, TensorDesc).name = name


@status(word, word, word)
def set_tensor_const(desc: int, address: int, size: int) -> None:
    """Says the values of an input of a single operator; they are read now."""
    item = handles.get(desc, TensorDesc)
    if not address or size < item.nbytes or not item.nbytes:
        raise DeviceError(Code.INVALID_PARAM, f"{size} bytes at {address:#x}, the tensor has {item.nbytes}")
    item.constant = memory().bytes(address, item.nbytes).tobytes()


@plain(integer)
def data_type_size(dtype: int) -> int:
    """Bytes of an element; 1 for the types below a byte, 0 for strings and what is no type."""
    if dtype in (_ACL_INT4, _ACL_UINT1):
        return 1
    element = element_type(dtype)
    return 0 if element is None or element.kind == "handle" else element.bytes
