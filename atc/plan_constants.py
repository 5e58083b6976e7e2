"""The constants that plans take, by names that are theirs in the whole package."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from codegen.lowering import Lowered
from graph_opt.ir import Graph
from tensor_types.recipes import Recipe


def add_constants(
    plan: dict[str, Any], graph: Graph, lowered: Lowered, constants: MutableMapping[str, Recipe], owner: str
) -> None:
    """Adds what a plan (JSON values) takes of its graph, and of the bodies of loops, to the constants of the package.

    One whose name another one has is renamed in the plan, after its `owner`: a chip, or the loop that it is in.
    """
    for segment in plan["segments"]:
        for row in segment["constants"]:
            value = segment["values"][row["value"]]
            recipe = graph.values[value["name"]].recipe
            assert recipe is not None
            while constants.get(value["name"], recipe) != recipe:
                value["name"] = f"{value['name']}@{owner}"
            constants[value["name"]] = recipe
    for part, (body, made) in zip(plan["bodies"], lowered.bodies, strict=True):
        add_constants(part, body, made, constants, f"{owner}{body.name}")
