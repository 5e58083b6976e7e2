"""Planning: neutral kernel records in, a task graph with order, dependencies, guards and arena offsets out.

Knows no kernel code and no tile program: a record carries a program as opaque text.
"""

from graph_opt.plan.plan_json import plan_to_json
from graph_opt.plan.planner import plan
from graph_opt.plan.records import AliasRecord, HostRecord, KernelRecord, Record, TaskOperand
from graph_opt.plan.task_graph import Demand, Plan, PlanInput, Scheduled, ValueInfo

__all__ = [
    "AliasRecord",
    "Demand",
    "HostRecord",
    "KernelRecord",
    "Plan",
    "PlanInput",
    "Record",
    "Scheduled",
    "TaskOperand",
    "ValueInfo",
    "plan",
    "plan_to_json",
]
