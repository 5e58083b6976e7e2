"""Checks of every access of a kernel, written into its text: what the interpreter checks, in native code.

Each load and store, masked or of single lanes, is asked first whether its bytes lie in the parameter or scratch
allocation that its pointer was made from. One that does not is turned to a place of its own, and the kernel ends with
`STATUS_OUTSIDE | byte offset << 8`, so that nothing is touched. Stores to a parameter of role `in`, pointers of unknown
origin and instructions that touch memory in other ways are refused when the text is made: nothing stays unchecked.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen.llvm.text import Function
from codegen.targets.hosts import HostClass, host_class

CHECKED = "+checked"
"""Behind the name of a host class: code of that class whose every access is checked."""
VARIABLE = "OPENATC_SANITISE"
STATUS_OUTSIDE = 3
_ROOM = 4096
"""Bytes that take what wrong accesses write."""
_BYTES = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "bfloat": 2, "i32": 4, "float": 4, "i64": 8, "double": 8, "ptr": 8}
_TYPE = r"(?:<\d+ x \w+>|\w+)"
_LOAD = re.compile(rf"^  (%\S+) = load ({_TYPE}), ptr (\S+), (align \d+)$")
_STORE = re.compile(rf"^  store ({_TYPE}) (.+), ptr (\S+), (align \d+)$")
_GEP = re.compile(r"^  (%\S+) = getelementptr (\w+|<\d+ x \w+>), ptr (\S+), (i64|<\d+ x i64>) (.+)$")
_PHI = re.compile(r"^  (%\S+) = phi ptr (.+)$")
_MASKED_LOAD = re.compile(
    r"^(  %\S+ = call (<\d+ x \w+>) @llvm\.masked\.load\.\S+\(ptr align \d+ )(\S+?)"
    r"(, (<\d+ x i1> .+?), <\d+ x \w+> \S+\))$"
)
_MASKED_STORE = re.compile(
    r"^(  call void @llvm\.masked\.store\.\S+\((<\d+ x \w+>) .+?, ptr align \d+ )(\S+?)(, (<\d+ x i1> .+)\))$"
)
_GATHER = re.compile(
    r"^(  %\S+ = call (<\d+ x \w+>) @llvm\.masked\.gather\.\S+\(<\d+ x ptr> align \d+ )(\S+?)"
    r"(, (<\d+ x i1> .+?), <\d+ x \w+> \S+\))$"
)
_SCATTER = re.compile(
    r"^(  call void @llvm\.masked\.scatter\.\S+\((<\d+ x \w+>) .+?, <\d+ x ptr> align \d+ )(\S+?)(, (<\d+ x i1> .+)\))$"
)

_HELPERS = f"""
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctlz.i64(i64, i1)

define internal ptr @within(ptr %p, i64 %first, i64 %size, ptr %low, ptr %high, ptr %bad) {{
entry:
  %a = ptrtoint ptr %p to i64
  %l = ptrtoint ptr %low to i64
  %h = ptrtoint ptr %high to i64
  %begin = add i64 %a, %first
  %end = add i64 %begin, %size
  %behind = icmp uge i64 %begin, %l
  %before = icmp ule i64 %end, %h
  %upwards = icmp uge i64 %end, %begin
  %both = and i1 %behind, %before
  %fine = and i1 %both, %upwards
  br i1 %fine, label %right, label %wrong
wrong:
  %distance = sub i64 %begin, %l
  %shifted = shl i64 %distance, 8
  %status = or i64 %shifted, {STATUS_OUTSIDE}
  store i64 %status, ptr %bad
  %room = getelementptr i8, ptr %bad, i64 64
  ret ptr %room
right:
  ret ptr %p
}}

define internal ptr @within_masked(ptr %p, i64 %lanes, i64 %each, ptr %low, ptr %high, ptr %bad) {{
entry:
  %none = icmp eq i64 %lanes, 0
  br i1 %none, label %untouched, label %some
untouched:
  ret ptr %p
some:
  %lowest = call i64 @llvm.cttz.i64(i64 %lanes, i1 true)
  %empty = call i64 @llvm.ctlz.i64(i64 %lanes, i1 true)
  %count.low = sub i64 64, %empty
  %count = sub i64 %count.low, %lowest
  %first = mul i64 %lowest, %each
  %size = mul i64 %count, %each
  %q = call ptr @within(ptr %p, i64 %first, i64 %size, ptr %low, ptr %high, ptr %bad)
  ret ptr %q
}}
"""


@dataclass(frozen=True)
class Range:
    """The bytes that pointers made from a base may reach, as SSA names of the kernel's entry."""

    low: str
    high: str
    is_input: bool = False


def sanitised() -> bool:
    """Whether the user wants kernels that check every access, and memory between guard pages."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def code_target(target: object) -> tuple[HostClass, bool]:
    """The host class of a `Target` or of its name, and whether its code is to check every access (CHECKED)."""
    if isinstance(target, str) and target.endswith(CHECKED):
        return host_class(target.removesuffix(CHECKED)), True
    return host_class(target), False


def code_name(target: object) -> str:
    """The name of what `code_target` tells apart."""
    host, checked = code_target(target)
    return host.name + CHECKED * checked


def size_of(type_: str) -> int:
    """Bytes of an LLVM type as the emitter writes it."""
    if type_.startswith("<"):
        count, element = type_.strip("<>").split(" x ")
        return int(count) * _BYTES[element]
    return _BYTES[type_]


class Checks:
    """Rewrites the lines of one kernel. `ranges` holds those of the parameters by pointer; `allocations` the offsets of
    scratch allocations, of `scratch_bytes` together."""

    def __init__(
        self, fn: Function, ranges: Mapping[str, Range], allocations: Sequence[int], scratch_bytes: int
    ) -> None:
        self.fn = fn
        self.ranges = ranges
        self.starts = sorted({0, *allocations})
        self.ends = [*self.starts[1:], scratch_bytes]
        self.used: set[int] = set()
        self.lanes: set[int] = set()
        self.made: dict[str, str] = {}
        """Pointer -> the one that it was made from, and for the first step out of scratch its allocation."""
        for line in fn.lines:
            if found := _GEP.match(line):
                name, element, base, _, offset = found.groups()
                start = base == "%scratch" and element == "i8" and offset.isdigit() and int(offset) in self.starts
                self.made[name] = f"scratch {offset}" if start else base
            elif found := _PHI.match(line):
                self.made[found[1]] = found[2].split("[ ")[1].split(",")[0]

    def range_of(self, pointer: str) -> Range | None:
        """What a pointer may reach; None for the tables of arguments, dims and constants, which the emitter alone
        reads. ValueError if its origin is unknown."""
        seen = set()
        while pointer in self.made and pointer not in self.ranges and pointer not in seen:
            seen.add(pointer)
            pointer = self.made[pointer]
        if pointer in self.ranges:
            return self.ranges[pointer]
        if pointer in ("%args", "%dims") or pointer.startswith("@"):
            return None
        if pointer == "%scratch" or pointer.startswith("scratch "):
            at = bisect_right(self.starts, int(pointer.split()[-1]) if " " in pointer else 0) - 1
            self.used.add(at)
            return Range(f"%scratch.low{at}", f"%scratch.high{at}")
        raise ValueError(f"a pointer of unknown origin: {pointer}")

    def text(self) -> str:
        """The module. ValueError if an access cannot be checked."""
        lines: list[str] = []
        for line in self.fn.lines:
            lines += self._checked(line)
        head = [f"  %bad = alloca [{_ROOM + 64} x i8], align 64", "  store i64 0, ptr %bad"]
        for at in sorted(self.used):
            head.append(f"  %scratch.low{at} = getelementptr i8, ptr %scratch, i64 {self.starts[at]}")
            head.append(f"  %scratch.high{at} = getelementptr i8, ptr %scratch, i64 {self.ends[at]}")
        checked = Function(self.fn.name, self.fn.params, self.fn.result, self.fn.attributes)
        checked.lines = [*head, *lines]
        helpers = _HELPERS + "".join(_lane_helper(n) for n in sorted(self.lanes))
        known = {"llvm.cttz.i64", "llvm.ctlz.i64", *(f"llvm.vector.reduce.and.v{n}i1" for n in self.lanes)}
        declared = [text for name, text in self.fn.declarations.items() if name not in known]
        return "\n".join([*self.fn.constants.values(), checked.text(), helpers, *declared, ""])

    def _checked(self, line: str) -> list[str]:
        fn = self.fn
        if line == "  ret i64 0":
            status = fn.fresh("status")
            return [f"  %{status} = load i64, ptr %bad", f"  ret i64 %{status}"]
        if found := _LOAD.match(line):
            name, type_, pointer, align = found.groups()
            checks, safe = self._plain(pointer, size_of(type_), False)
            return [*checks, f"  {name} = load {type_}, ptr {safe}, {align}"]
        if found := _STORE.match(line):
            type_, value, pointer, align = found.groups()
            checks, safe = self._plain(pointer, size_of(type_), True)
            return [*checks, f"  store {type_} {value}, ptr {safe}, {align}"]
        for pattern, writes in ((_MASKED_LOAD, False), (_MASKED_STORE, True)):
            if found := pattern.match(line):
                before, type_, pointer, behind, mask = found.groups()
                checks, safe = self._masked(pointer, type_, mask, writes)
                return [*checks, before + safe + behind]
        for pattern, writes in ((_GATHER, False), (_SCATTER, True)):
            if found := pattern.match(line):
                before, type_, pointers, behind, mask = found.groups()
                checks, safe = self._lanes(pointers, type_, mask, writes)
                return [*checks, before + safe + behind]
        if line.startswith("  call void @llvm.prefetch."):  # touches nothing
            return [line]
        if re.search(r"= load |^  store |call .*\bptr\b|masked\.", line):
            raise ValueError(f"an access that cannot be checked: {line.strip()[:120]}")
        return [line]

    def _reach(self, pointer: str, writes: bool) -> Range | None:
        reach = self.range_of(pointer)
        if writes and (reach is None or reach.is_input):
            raise ValueError(f"a store to what is only read: {pointer}")
        return reach

    def _plain(self, pointer: str, size: int, writes: bool) -> tuple[list[str], str]:
        reach = self._reach(pointer, writes)
        if reach is None:
            return [], pointer
        safe = f"%{self.fn.fresh('safe')}"
        call = f"call ptr @within(ptr {pointer}, i64 0, i64 {size}, ptr {reach.low}, ptr {reach.high}, ptr %bad)"
        return [f"  {safe} = {call}"], safe

    def _masked(self, pointer: str, type_: str, mask: str, writes: bool) -> tuple[list[str], str]:
        reach = self._reach(pointer, writes)
        if reach is None:
            return [], pointer
        lanes = int(type_[1:].split()[0])
        bits, wide, safe = (f"%{self.fn.fresh(name)}" for name in ("bits", "wide", "safe"))
        lines = [f"  {bits} = bitcast {mask} to i{lanes}"]
        if lanes < 64:
            lines.append(f"  {wide} = zext i{lanes} {bits} to i64")
        which = wide if lanes < 64 else bits
        each = size_of(type_) // lanes
        lines.append(
            f"  {safe} = call ptr @within_masked(ptr {pointer}, i64 {which}, i64 {each}, ptr {reach.low}, "
            f"ptr {reach.high}, ptr %bad)"
        )
        return lines, safe

    def _lanes(self, pointers: str, type_: str, mask: str, writes: bool) -> tuple[list[str], str]:
        reach = self._reach(pointers, writes)
        if reach is None:
            return [], pointers
        lanes = int(type_[1:].split()[0])
        self.lanes.add(lanes)
        safe = f"%{self.fn.fresh('safe')}"
        arguments = f"<{lanes} x ptr> {pointers}, {mask}, i64 {size_of(type_) // lanes}"
        call = f"call <{lanes} x ptr> @within_lanes{lanes}({arguments}, ptr {reach.low}, ptr {reach.high}, ptr %bad)"
        return [f"  {safe} = {call}"], safe


def _lane_helper(n: int) -> str:
    """The check of N single addresses: those that are wrong and asked for are turned to the place of their own."""

    def splat(name: str, source: str, type_: str) -> str:
        vector = f"<{n} x {type_}>"
        return (
            f"  %{name}.one = insertelement {vector} poison, {type_} {source}, i64 0\n"
            f"  %{name} = shufflevector {vector} %{name}.one, {vector} poison, <{n} x i32> zeroinitializer\n"
        )

    params = f"<{n} x ptr> %ps, <{n} x i1> %mask, i64 %each, ptr %low, ptr %high, ptr %bad"
    return f"""
declare i1 @llvm.vector.reduce.and.v{n}i1(<{n} x i1>)

define internal <{n} x ptr> @within_lanes{n}({params}) {{
entry:
  %a = ptrtoint <{n} x ptr> %ps to <{n} x i64>
  %l = ptrtoint ptr %low to i64
  %h = ptrtoint ptr %high to i64
{splat("ls", "%l", "i64")}{splat("hs", "%h", "i64")}{splat("es", "%each", "i64")}
  %ends = add <{n} x i64> %a, %es
  %behind = icmp uge <{n} x i64> %a, %ls
  %before = icmp ule <{n} x i64> %ends, %hs
  %upwards = icmp uge <{n} x i64> %ends, %a
  %both = and <{n} x i1> %behind, %before
  %inside = and <{n} x i1> %both, %upwards
  %unused = xor <{n} x i1> %mask, splat (i1 true)
  %fine = or <{n} x i1> %inside, %unused
  %all = call i1 @llvm.vector.reduce.and.v{n}i1(<{n} x i1> %fine)
  br i1 %all, label %right, label %wrong
wrong:
  store i64 {STATUS_OUTSIDE}, ptr %bad
  %room = getelementptr i8, ptr %bad, i64 64
{splat("rooms", "%room", "ptr")}
  %turned = select <{n} x i1> %fine, <{n} x ptr> %ps, <{n} x ptr> %rooms
  ret <{n} x ptr> %turned
right:
  ret <{n} x ptr> %ps
}}
"""
