"""A small emitter of textual LLVM IR: one `Function` collects the lines of one function.

Values are SSA names (`str`) or Python ints, which stand for i64 constants; integer arithmetic on ints folds at once,
so address computations with static strides leave no instructions behind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

Value: TypeAlias = int | str
"""An SSA name such as '%v3', or an int that stands for an i64 constant."""


class Function:
    """Lines of one LLVM function, with fresh names, basic blocks and the declarations it needs."""

    def __init__(self, name: str, params: Sequence[str], result: str = "i64", attributes: str = "") -> None:
        self.name = name
        self.params = list(params)
        self.result = result
        self.attributes = attributes
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.constants: dict[str, str] = {}
        """Module-level definitions of constant tables, by name."""
        self.block = "entry"
        self._next = 0

    def fresh(self, prefix: str = "v") -> str:
        self._next += 1
        return f"{prefix}{self._next}"

    def emit(self, expression: str) -> str:
        """Appends `%new = expression` and returns its name."""
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {expression}")
        return name

    def do(self, line: str) -> None:
        """Appends an instruction without a result."""
        self.lines.append(f"  {line}")

    def label(self, name: str) -> None:
        """Starts a basic block."""
        self.lines.append(f"{name}:")
        self.block = name

    def branch(self, target: str) -> None:
        self.do(f"br label %{target}")

    def branch_if(self, condition: str, then: str, orelse: str) -> None:
        self.do(f"br i1 {condition}, label %{then}, label %{orelse}")

    def call(self, result: str, callee: str, *args: str) -> str:
        """Calls `callee`, each argument written 'type value'; declares it. Returns '' for a void call."""
        types = ", ".join(_type_of(a) for a in args)
        self.declarations[callee] = f"declare {result} @{callee}({types})"
        text = f"call {result} @{callee}({', '.join(args)})"
        if result == "void":
            self.do(text)
            return ""
        return self.emit(text)

    def constant(self, name: str, values: Sequence[float]) -> str:
        """The address of a constant table of doubles, private to the module."""
        words = (struct.unpack("<Q", struct.pack("<d", v))[0] for v in values)
        body = ", ".join(f"double 0x{w:016X}" for w in words)
        self.constants[name] = f"@{name} = private unnamed_addr constant [{len(values)} x double] [{body}], align 64"
        return f"@{name}"

    # Integer arithmetic on i64, folded when both sides are ints.
    def add(self, a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self.emit(f"add i64 {a}, {b}")

    def sub(self, a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self.emit(f"sub i64 {a}, {b}")

    def mul(self, a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1 or b == 1:
            return b if a == 1 else a
        return self.emit(f"mul i64 {a}, {b}")

    def floordiv(self, a: Value, b: Value) -> Value:
        """a // b for a positive b; rounds towards minus infinity."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        if isinstance(b, int) and b & (b - 1) == 0:
            return a if b == 1 else self.emit(f"ashr i64 {a}, {b.bit_length() - 1}")
        quotient = self.emit(f"sdiv i64 {a}, {b}")
        rest = self.emit(f"srem i64 {a}, {b}")
        negative = self.emit(f"icmp slt i64 {rest}, 0")
        return self.emit(f"add i64 {quotient}, {self.emit(f'sext i1 {negative} to i64')}")

    def mod(self, a: Value, b: Value) -> Value:
        return self.sub(a, self.mul(self.floordiv(a, b), b))

    def minimum(self, a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.call("i64", "llvm.smin.i64", f"i64 {a}", f"i64 {b}")

    def maximum(self, a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.call("i64", "llvm.smax.i64", f"i64 {a}", f"i64 {b}")

    def offset(self, pointer: str, elements: Value, element_type: str) -> str:
        """The address `elements` elements after `pointer`."""
        if elements == 0:
            return pointer
        return self.emit(f"getelementptr {element_type}, ptr {pointer}, i64 {elements}")

    def load(self, type_: str, pointer: str, align: int = 1) -> str:
        return self.emit(f"load {type_}, ptr {pointer}, align {align}")

    def store(self, type_: str, value: Value, pointer: str, align: int = 1) -> None:
        self.do(f"store {type_} {value}, ptr {pointer}, align {align}")

    def splat(self, scalar: str, element_type: str, lanes: int) -> str:
        """A vector of `lanes` copies of a scalar."""
        vector = f"<{lanes} x {element_type}>"
        one = self.emit(f"insertelement {vector} poison, {element_type} {scalar}, i64 0")
        return self.emit(f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer")

    @contextmanager
    def loop(self, extent: Value, step: int = 1, start: Value = 0) -> Iterator[Value]:
        """for i in range(start, extent, step): yields i; an int trip count of one leaves no loop behind."""
        if isinstance(extent, int) and isinstance(start, int):
            if extent <= start:
                # Nothing runs: the body is emitted aside, for its side effects on names only, and dropped.
                lines, block = self.lines, self.block
                self.lines = []
                yield start
                self.lines, self.block = lines, block
                return
            if extent <= start + step:
                yield start
                return
        with self.carried_loop(extent, (), (), step, start) as carried:
            yield carried.index

    @contextmanager
    def carried_loop(
        self, extent: Value, types: Sequence[str], initial: Sequence[str], step: int = 1, start: Value = 0
    ) -> Iterator[CarriedLoop]:
        """A loop that carries SSA values: read `carried.values`, set `carried.next`; results in `carried.results`.

        Runs at least zero times; after it `results` holds the values of the last iteration (or the initial ones).
        The condition stands at the bottom, behind one test whether the loop runs at all (none if that is certain).
        """
        body, done = self.fresh("body"), self.fresh("done")
        certain = isinstance(extent, int) and isinstance(start, int) and extent > start
        before = self.block
        if certain:
            self.branch(body)
        else:
            self.branch_if(self.emit(f"icmp slt i64 {start}, {extent}"), body, done)
        self.label(body)
        index = f"%{self.fresh('i')}"
        names = [f"%{self.fresh('c')}" for _ in initial]
        at = len(self.lines)
        carried = CarriedLoop(index, list(names), [], [])
        yield carried
        following = self.emit(f"add i64 {index}, {step}")
        condition = self.emit(f"icmp slt i64 {following}, {extent}")
        phis = [f"  {index} = phi i64 [ {start}, %{before} ], [ {following}, %{self.block} ]"]
        for name, type_, first, latest in zip(names, types, initial, carried.next, strict=True):
            phis.append(f"  {name} = phi {type_} [ {first}, %{before} ], [ {latest}, %{self.block} ]")
        self.lines[at:at] = phis
        end = self.block
        self.branch_if(condition, body, done)
        self.label(done)
        if certain:
            carried.results.extend(carried.next)
            return
        for type_, first, latest in zip(types, initial, carried.next, strict=True):
            carried.results.append(self.emit(f"phi {type_} [ {first}, %{before} ], [ {latest}, %{end} ]"))

    def when(self, condition: str, then: Callable[[], None], orelse: Callable[[], None] | None = None) -> None:
        """if condition: then() else: orelse()"""
        yes, no, done = self.fresh("then"), self.fresh("else"), self.fresh("done")
        self.branch_if(condition, yes, no if orelse else done)
        self.label(yes)
        then()
        self.branch(done)
        if orelse:
            self.label(no)
            orelse()
            self.branch(done)
        self.label(done)

    def text(self, linkage: str = "") -> str:
        """The function's definition."""
        head = f"define {linkage} {self.result} @{self.name}({', '.join(self.params)}) {self.attributes} {{".replace(
            "  ", " "
        )
        return "\n".join([head, "entry:", *self.lines, "}", ""])


class CarriedLoop:
    """State of `Function.carried_loop` while its body is emitted."""

    def __init__(self, index: str, values: list[str], next_: list[str], results: list[str]) -> None:
        self.index = index
        self.values = values
        self.next = next_
        self.results = results


def _type_of(argument: str) -> str:
    """The type of an argument written 'type value'."""
    if argument.startswith("<"):
        return argument[: argument.index(">") + 1]
    return argument.split(" ")[0]


def module_text(functions: Sequence[Function], globals_: Sequence[str] = ()) -> str:
    """A module of the functions, their declarations once each."""
    declarations: dict[str, str] = {}
    constants: dict[str, str] = {}
    defined = {f.name for f in functions}
    for function in functions:
        constants.update(function.constants)
        declarations.update({k: v for k, v in function.declarations.items() if k not in defined})
    return "\n".join([*globals_, *constants.values(), *(f.text() for f in functions), *declarations.values(), ""])
