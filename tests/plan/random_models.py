"""Random planning problems: chains, branches, aliases, scratch, in-place kernels, AI CPU tasks and guards."""

from __future__ import annotations

import random

from graph_opt.plan import AicpuRecord, AliasRecord, KernelRecord, PlanInput, Scheduled, TaskOperand, ValueInfo
from tensor_types.dims import Dim, dim
from tensor_types.dtypes import BOOL, F32


def operand(value: str, role: str = "in") -> TaskOperand:
    return TaskOperand(value, role)


def random_model(seed: int, symbolic: bool = False, tasks: int = 40) -> PlanInput:
    """A model in which task n reads some earlier values and makes one; every value has a chance to be an output."""
    rng = random.Random(seed)
    scale: Dim = dim("n") if symbolic else 1
    sizes = [16, 64, 64, 256, 1000]

    def shape() -> tuple[Dim, ...]:
        size = rng.choice(sizes)
        return (size * scale if rng.random() < 0.8 else size, 4)

    values = [ValueInfo("x", F32, (64 * scale, 4), "input"), ValueInfo("w", F32, (64, 4), "constant")]
    by_name = {v.name: v for v in values}
    flags: list[str] = []
    records: list[Scheduled] = []
    alive = ["x", "w"]
    for number in range(tasks):
        kind = rng.random()
        node, name = f"node{number}", f"v{number}"
        recent = alive[-6:] if rng.random() < 0.8 else alive
        reads = [rng.choice(recent) for _ in range(rng.randint(1, 3))]
        guards: tuple[tuple[str, int], ...] = ()
        if flags and rng.random() < 0.2:
            guards = ((rng.choice(flags), rng.randint(0, 1)),)
        if kind < 0.1:
            value = ValueInfo(name, BOOL, ())
            records.append(Scheduled(KernelRecord("flag", (operand(reads[0]), operand(name, "out")), (), 1, node, "f")))
            flags.append(name)
        elif kind < 0.2 and by_name[reads[0]].kind != "constant":
            source = by_name[reads[0]]
            value = ValueInfo(name, source.dtype, (1, *(source.shape or ())))
            records.append(Scheduled(AliasRecord(name, reads[0], node)))
        elif kind < 0.3:
            value = ValueInfo(name, F32, shape())
            records.append(Scheduled(AicpuRecord("Op", (*reads, None), (name,), node), guards))
        else:
            source = by_name[reads[0]]
            in_place = source.dtype is F32 and rng.random() < 0.5
            value = ValueInfo(name, F32, source.shape if in_place else shape())
            operands = [operand(r) for r in reads] + [operand(name, "out")]
            if rng.random() < 0.3:
                operands.append(TaskOperand(None, "workspace", bytes=rng.choice(sizes) * scale))
            alias = ((len(reads), 0),) if in_place and reads.count(reads[0]) == 1 else ()
            program = f"program{rng.randint(0, 5)}"
            record = KernelRecord(program, tuple(operands), (), 1, node, "f", may_alias=alias)
            records.append(Scheduled(record, guards))
        values.append(value)
        by_name[name] = value
        alive.append(name)
    outputs = tuple(rng.sample([v.name for v in values[2:]], 3)) + (alive[-1],)
    dims = {"n": (1, None)} if symbolic else {}
    return PlanInput(tuple(values), tuple(records), ("x",), tuple(dict.fromkeys(outputs)), dims)
