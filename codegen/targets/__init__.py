"""Targets as data: host classes and Ascend chips with their memories, engines, rates and legal memory paths.

Takes a name and gives a frozen `Target`, takes a tile program and gives a roofline estimate of its time; imports only
the tile language and tensor_types. No number that describes a chip stands elsewhere.
"""

from codegen.targets.registry import chip_names, chip_remark, host_class_names, nano_chips, stand_ins, target
from codegen.targets.target import Engine, Engines, Memory, Target

__all__ = [
    "Engine", "Engines", "Memory", "Target", "chip_names", "chip_remark", "host_class_names", "nano_chips", "stand_ins",
    "target",
]  # fmt: skip
