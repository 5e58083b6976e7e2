"""Answers of families, remembered in the cache: what a node of some kind becomes is found out once on a machine.

A file is named by everything that decides an answer: the signature of the node without its names, the target, the
limits, and the sources of kernels, tile language and proofs. Big constants count by which operands are the same one;
where lowering read the content of some (zero points of a row each), a first file says of which, and their digests name
the second. What the verifier refuses is not remembered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from codegen.cache_files import CacheFiles, name_of, sources_digest
from codegen.cache_folder import cache_folder
from codegen.kernels.signature import Signature
from codegen.targets.target import Target
from graph_opt.plan.records import AliasRecord, KernelRecord, Record, TaskOperand
from tensor_types.dim_text import parse
from tensor_types.dims import Dim
from tensor_types.formats import parse_format
from tensor_types.limits import LIMITS, limit
from tensor_types.recipes import Recipe

_SOURCES = ("codegen/kernels", "codegen/targets", "codegen/tile", "graph_opt/ir", "graph_opt/plan", "tensor_types")
_LIMIT = 128 << 20
"""Bytes of all answers, of a few thousand each."""


def answer_files() -> CacheFiles:
    """Where answers are kept."""
    return CacheFiles(cache_folder() / "answers", _LIMIT)


class AnswerFiles:
    """The answers on disk: records, or the reason why there is no kernel."""

    def __init__(self, at_first_miss: Callable[[], None] = lambda: None) -> None:
        self._files = answer_files()
        self._at_first_miss: Callable[[], None] | None = at_first_miss
        self._facts = (sources_digest(*_SOURCES), *(str(limit(name)) for name in LIMITS))
        self._written = False

    def read(self, asked: Signature, target: Target, node: str) -> list[Record] | str | None:
        """The answer for a node of this name and signature; None if nobody has asked before."""
        known = self._read(asked, target, node)
        if known is None and self._at_first_miss is not None:
            called, self._at_first_miss = self._at_first_miss, None
            called()
        return known

    def _read(self, asked: Signature, target: Target, node: str) -> list[Record] | str | None:
        name = self._name(asked, target)
        for _ in range(2):
            content = self._files.read(name)
            if content is None:
                return None
            with suppress(ValueError, KeyError, TypeError, IndexError):  # of an older version: it is found out again
                answer = json.loads(content)
                if "reads" in answer:
                    constants = asked.constants_in_order()
                    name = name_of(name, *(constants[n].digest for n in answer["reads"]))
                    continue
                if "reason" in answer:
                    return str(answer["reason"])
                return [_record(row, asked.names, node) for row in answer["records"]]
            return None
        return None

    def write(self, asked: Signature, target: Target, answer: Sequence[Record] | str, read: Sequence[Recipe]) -> None:
        """Remembers an answer, for which the content of the constants `read` was looked at."""
        constants = asked.constants_in_order()
        numbers = [n for n, c in enumerate(constants) if any(c is r for r in read)]
        if isinstance(answer, str):
            content: dict[str, Any] = {"reason": answer}
        else:
            place = {name: n for n, name in reversed(list(enumerate(asked.names)))}
            try:
                content = {"records": [_row(record, place) for record in answer]}
            except KeyError:  # it speaks of more than the node has
                return
        name = self._name(asked, target)
        if numbers:
            self._files.write(name, json.dumps({"reads": numbers}).encode())
            name = name_of(name, *(constants[n].digest for n in numbers))
        self._files.write(name, json.dumps(content).encode())
        self._written = True

    def close(self) -> None:
        """Keeps the limit of the folder, if anything was written."""
        if self._written:
            self._files.tend()

    def _name(self, asked: Signature, target: Target) -> str:
        first: dict[str, int] = {}
        pattern = [first.setdefault(name, n) for n, name in enumerate(asked.names)]
        order: dict[int, int] = {}
        same = [order.setdefault(id(c), n) for n, c in enumerate(asked.constants_in_order())]
        return name_of(*self._facts, target.name, repr(asked.structure), str(pattern), str(same))


def _dim(value: Dim) -> int | str:
    return value if isinstance(value, int) else str(value)


@lru_cache(maxsize=4096)
def _parsed(value: int | str) -> Dim:
    return value if isinstance(value, int) else parse(value)


def _row(record: Record, place: dict[str, int]) -> dict[str, Any]:
    """A record as JSON values, values of the graph as their numbers in the signature. KeyError for others."""
    if isinstance(record, AliasRecord):
        offset = _dim(record.byte_offset)
        return {"output": place[record.output], "input": place[record.input], "at": offset, "update": record.update}
    if not isinstance(record, KernelRecord):
        raise KeyError(record.node)
    return {
        "program": record.program,
        "operands": [
            [
                None if o.value is None else place[o.value], o.role, str(o.packing), _dim(o.bytes),
                o.permute, o.reshape,
            ]
            for o in record.operands
        ],
        "dims": [_dim(d) for d in record.dims],
        "grid": _dim(record.grid),
        "family": record.family,
        "work": _dim(record.work),
        "alias": record.may_alias,
        "tiling": record.tiling,
    }  # fmt: skip


def _record(row: dict[str, Any], names: Sequence[str], node: str) -> Record:
    if "output" in row:
        return AliasRecord(names[row["output"]], names[row["input"]], node, _parsed(row["at"]), bool(row["update"]))
    operands = tuple(
        TaskOperand(
            None if value is None else names[value], role, parse_format(packing), _parsed(size), _ints(permute),
            _ints(reshape),
        )
        for value, role, packing, size, permute, reshape in row["operands"]
    )  # fmt: skip
    pairs = tuple((int(a), int(b)) for a, b in row["alias"])
    dims = tuple(map(_parsed, row["dims"]))
    return KernelRecord(
        row["program"], operands, dims, _parsed(row["grid"]), node, row["family"], _parsed(row["work"]), pairs,
        row["tiling"],
    )  # fmt: skip


def _ints(numbers: list[int] | None) -> tuple[int, ...] | None:
    return None if numbers is None else tuple(numbers)
