"""The device as AscendCL sees it: memory in books of its own, contexts of threads, streams, events, loaded models.

Takes addresses, sizes and datasets, gives results in memory or a `DeviceError` with AscendCL's code. Knows nothing of
handles and of Python calling conventions (those are `acl`'s), nor of how a model is compiled.
"""

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.context import Context, Contexts
from acl_runtime.device.dataset import DataBuffer, Dataset, TensorDesc
from acl_runtime.device.description import ModelDescription, TensorDescription
from acl_runtime.device.event import Event
from acl_runtime.device.in_flight import Execution, Use, run_now, submit
from acl_runtime.device.memory import Allocation, Memory
from acl_runtime.device.model import DeviceModel, ModelTable
from acl_runtime.device.reports import Reports
from acl_runtime.device.stream import Stream

__all__ = [
    "Allocation",
    "Code",
    "Context",
    "Contexts",
    "DataBuffer",
    "Dataset",
    "DeviceError",
    "DeviceModel",
    "Event",
    "Execution",
    "Memory",
    "ModelDescription",
    "ModelTable",
    "Reports",
    "Stream",
    "TensorDesc",
    "TensorDescription",
    "Use",
    "run_now",
    "submit",
]
