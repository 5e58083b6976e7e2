"""Whether a family takes a node, and its tasks: one answer, given by lowering the node and verifying the programs.

A node may be hypothetical: a Fused node in no graph, as `graph_opt.ir.outline` makes it. Answers are remembered by
what they depend on, names left out, so that a pass that asks and the lowering that follows do the work once, and so do
layers that are alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from codegen.kernels.answer_files import AnswerFiles
from codegen.kernels.broadcast_cases import all_kernels, broadcast_cases, conditional
from codegen.kernels.built_programs import program_of
from codegen.kernels.elementwise import ELEMENTWISE
from codegen.kernels.family_table import CUSTOM, FAMILY_ROWS
from codegen.kernels.operands import NotLowerable
from codegen.kernels.signature import Signature, renamed, signature
from codegen.kernels.tiling import Tiling, parse_tiling
from codegen.targets import target as named_target
from codegen.targets.target import Target
from codegen.tile.text import MAX_LIST
from codegen.tile.verdicts import verified
from codegen.tile.verifier import VerifyError
from graph_opt.ir.core import Node
from graph_opt.ir.ops.registry import is_fresh
from graph_opt.plan.records import KernelRecord, Record
from tensor_types.dims import names
from tensor_types.recipes import arrays_asked_for

_MOST_REMEMBERED = 4096
_FAULT = "please report"


@dataclass(frozen=True)
class _Answer:
    records: list[Record] | None
    """None if there is no kernel."""
    reason: str
    asked: Signature | None


_answers: dict[tuple[object, str], _Answer] = {}
_on_disk: ContextVar[AnswerFiles | None] = ContextVar("on_disk", default=None)


@contextmanager
def remembered_on_disk(at_first_miss: Callable[[], None] = lambda: None) -> Iterator[None]:
    """As long as this lasts, answers are taken from the cache of this machine, and new ones are put there.

    `at_first_miss` is called before the first that has to be found out: there will be something to compile.
    """
    files = AnswerFiles(at_first_miss)
    before = _on_disk.set(files)
    try:
        yield
    finally:
        _on_disk.reset(before)
        files.close()


def claims(node: Node, target: Target) -> str | None:
    """Why the family of a Fused node has no kernel of it for the target; None if it has one."""
    found = _answer(node, target, signature(node))
    return found.reason if found.records is None else None


def lower_node(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """Tasks of a Fused node, their programs verified for the target; none when there is nothing to compute.

    NotLowerable, with what `claims` says, if there is no kernel. A given tiling is used as it is: NotLowerable tells
    why the kernel cannot have it. Without one the family chooses.
    """
    if tiling is not None:
        return _tasks(node, target, tiling)
    asked = signature(node)
    found = _answer(node, target, asked)
    records = found.records
    if records is not None and asked is not None and found.asked is not None and found.asked is not asked:
        records = renamed(records, found.asked, asked, node.name)
        if records is None:  # names leave it open which value is which
            found = _asked(node, target, asked)
            records = found.records
    if records is None:
        raise NotLowerable(found.reason)
    return records


def preferred_tilings(node: Node, target: Target) -> list[Iterable[Tiling]]:
    """What the family of a Fused node names for it, by falling preference for each of its algorithms; nothing where it
    names none. NotLowerable if there is no kernel."""
    family = str(node.attrs.get("family", ""))
    named = getattr(_module(family), f"tilings_{family}", None) if family in FAMILY_ROWS else None
    return [] if named is None else list(named(node, target))


def tiling_of(text: str) -> Tiling:
    """The tiling of a text form, of any family; ValueError says what is wrong with it."""
    for family in FAMILY_ROWS:
        _module(family)  # declares its tilings
    return parse_tiling(text)


def _answer(node: Node, target: Target, asked: Signature | None) -> _Answer:
    if asked is None:
        return _asked(node, target, None)
    key = (asked.key, target.name)
    known = _answers.get(key)
    if known is not None and known.asked is not None and known.asked.holds(asked):
        return known
    while len(_answers) >= _MOST_REMEMBERED:
        del _answers[next(iter(_answers))]
    answer = _answers[key] = _asked(node, target, asked)
    return answer


def _asked(node: Node, target: Target, asked: Signature | None) -> _Answer:
    files = _on_disk.get() if asked is not None else None
    if files is None or asked is None:
        return _found_out(node, target, asked)
    known = files.read(asked, target, node.name)
    if known is not None:
        return _Answer(None, known, asked) if isinstance(known, str) else _Answer(known, "", asked)
    with arrays_asked_for() as read:
        answer = _found_out(node, target, asked)
    own = {id(v.recipe) for v in (*node.inputs, *node.subgraphs["body"].values.values()) if v is not None}
    # What it made of a constant and looked at stands in no signature, and a refusal of the verifier is a fault.
    if all(id(r) in own for r in read) and not answer.reason.startswith(_FAULT):
        files.write(asked, target, answer.reason if answer.records is None else answer.records, read)
    return answer


def _found_out(node: Node, target: Target, asked: Signature | None) -> _Answer:
    try:
        return _Answer(_tasks(node, target), "", asked)
    except NotLowerable as refusal:
        return _Answer(None, str(refusal), asked)


def _tasks(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    family = str(node.attrs.get("family", ""))
    if node.op != "Fused" or family not in FAMILY_ROWS:
        raise NotLowerable("no kernel for it")
    row, data = FAMILY_ROWS[family], _data_of_anchor(node)
    if row.dtypes is not None and data not in row.dtypes:
        raise NotLowerable(f"no {family} kernel for {data}")
    if tiling is not None and not row.cut:
        raise NotLowerable(f"kernels of the family {family} have no tiling")
    cases = broadcast_cases(node) if row is not CUSTOM else None
    if cases is not None:
        return [conditional(r, c.holds) for c in cases for r in all_kernels(lower_node(c.node, target, tiling))]
    lower = getattr(_module(family), f"lower_{family}")
    records: list[Record] = lower(node, target) if tiling is None else lower(node, target, tiling)
    for record in records:
        if isinstance(record, KernelRecord) and max(len(record.operands), len(record.dims)) > MAX_LIST:
            raise NotLowerable(f"{len(record.operands)} operands: a kernel takes {MAX_LIST}")
    for record in records:
        fault = _fault(record.program, target.name) if isinstance(record, KernelRecord) else None
        if fault is not None:
            # Not a limit of the family but a mistake in it: nothing asks for a program that is not sound.
            raise NotLowerable(f"{_FAULT}: the {family} kernel is refused by the verifier, {fault}")
    if not records and any(is_fresh(n) for v in node.outputs for d in v.shape or () for n in names(d)):
        raise NotLowerable("it has no elements, and only the run knows its shape")
    return records


def _module(family: str) -> ModuleType:
    return import_module(f"codegen.kernels.{family}")


def _data_of_anchor(node: Node) -> str:
    """Element type of the data of the first operator inside that is not element-wise."""
    nodes = node.subgraphs["body"].nodes
    anchor = next((n for n in nodes if n.op not in ELEMENTWISE), nodes[0])
    source = anchor.input(0)
    return (source if source is not None else anchor.output).dtype.name


@functools.lru_cache(maxsize=4096)
def _fault(program: str, name: str) -> str | None:
    """What the verifier says against the program on the target of that name, or None: alike layers share it."""
    try:
        verified(program, named_target(name), lambda: program_of(program))
    except VerifyError as error:
        return f"`{error.statement}`: {error.reason}"
    return None
