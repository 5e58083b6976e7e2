"""Planning: neutral kernel records in, task graphs with order, dependencies, guards and arena offsets out.

Knows no kernel code and no tile program: a record carries a program as opaque text.
"""

from graph_opt.plan.plan_json import model_to_json
from graph_opt.plan.planner import COPY_GUARD, plan
from graph_opt.plan.records import AicpuRecord, AliasRecord, KernelRecord, Record, TaskOperand
from graph_opt.plan.segments import ModelPlan, Segment, plan_model
from graph_opt.plan.task_graph import Growing, GuardedRequirement, Plan, PlanInput, Scheduled, ValueInfo

__all__ = [
    "COPY_GUARD",
    "AliasRecord",
    "Growing",
    "GuardedRequirement",
    "AicpuRecord",
    "KernelRecord",
    "ModelPlan",
    "Plan",
    "PlanInput",
    "Record",
    "Scheduled",
    "Segment",
    "TaskOperand",
    "ValueInfo",
    "model_to_json",
    "plan",
    "plan_model",
]
