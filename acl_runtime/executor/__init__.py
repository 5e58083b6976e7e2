"""The native executor: runs a graph of kernel calls on worker threads that stay in native code.

Takes object files and task records (kernel addresses, arguments, edges); gives runs, times and errors.
Knows no model, no package and no operator: a task is an address, and an AI CPU task is a number handed back to the
caller.
"""

from acl_runtime.executor.graph import Graph
from acl_runtime.executor.loader import LoadedCode, LoadError, load_object, load_objects
from acl_runtime.executor.native_state import aligned_zeros
from acl_runtime.executor.run import Executor, Run, TaskFailed
from acl_runtime.executor.task_record import NO_GUARD, TASK, task_records

__all__ = [
    "NO_GUARD",
    "TASK",
    "Executor",
    "Graph",
    "LoadError",
    "LoadedCode",
    "Run",
    "TaskFailed",
    "aligned_zeros",
    "load_object",
    "load_objects",
    "task_records",
]
