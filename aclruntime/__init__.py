"""The module under `ais_bench`: sessions and tensors of the simulated device, under the names of the original.

Every failure is a RuntimeError whose text names the cause. Stands on `acl_runtime.device`, as `acl` does, and shares
that module's books: addresses and models of both are of one device.
"""

from aclruntime.sessions import InferenceSession, infer_options, session_options, tensor_desc
from aclruntime.tensors import (
    BaseTensor,
    MemorySummary,
    Tensor,
    batch,
    bool,
    double,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    memory_device,
    memory_dvpp,
    memory_host,
    type,
    uint8,
    uint16,
    uint32,
    uint64,
)

pure_infer_data = "pure_infer_data"
pure_infer_data_zero = "pure_infer_data_zero"
pure_infer_data_random = "pure_infer_data_random"

__all__ = [
    "BaseTensor", "InferenceSession", "MemorySummary", "Tensor", "batch", "bool", "double", "dtype", "float16",
    "float32", "float64", "infer_options", "int16", "int32", "int64", "int8", "memory_device", "memory_dvpp",
    "memory_host", "pure_infer_data", "pure_infer_data_random", "pure_infer_data_zero", "session_options",
    "tensor_desc", "type", "uint16", "uint32", "uint64", "uint8",
]  # fmt: skip
