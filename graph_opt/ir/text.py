"""The text form of a graph: `to_text` and `parse`, inverse to each other. Tests of passes are text before and after.

    graph name(%x: f32[batch, 3, h, w]) -> (%y) {
      dim batch in [1, inf]
      const %w: f32[10, 3, 1, 1] = random seed 7 scale 0.1
      %t: f32[batch, 10, h, w] {perm(0,2,3,1)} = Conv(%x, %w, _) {strides=[1, 1]} @conv1
      %s: i64[4] <batch, 10, h, w> = Shape(%t)
      %u: f32[batch, 10, h, w] = Neg(%t) if %c, !%d @minus
      %y = Relu(%t)
      state %cache -> %cache_out
      origin "src" = same %t
    }

A constant is `dense [...]`, `splat 0.5`, `random seed N scale S` (normal numbers) or `elided "mark"` (read as zeros).
`if %c, !%d` are guards: the node runs only where %c is true and %d false. `?` for a shape is an unknown rank, `_` an
absent input, `<...>` the content of a shape tensor. Output types may be left out when reading: inference fills them.
Subgraphs follow the node as `body = graph ... { ... }`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from graph_opt.ir.core import AttrValue, Graph, Node, Origin, Value
from graph_opt.ir.infer import infer_node
from tensor_types.dim_text import parse as parse_dim
from tensor_types.dims import Dim
from tensor_types.dtypes import F32, DType, dtype, from_numpy
from tensor_types.formats import PLAIN, Format, parse_format
from tensor_types.recipes import Source, blocks, samples

DENSE_LIMIT = 32
"""Constants of more elements are elided."""


class DescribedArray(np.ndarray):
    """An array that remembers the words it was read from, so that it prints as it was written."""

    words: str | None = None


def _described(array: np.ndarray, words: str) -> np.ndarray:
    view = array.view(DescribedArray)
    view.words = words
    return view


# --- printing


def to_text(graph: Graph) -> str:
    """The graph as text, ending in a newline."""
    return "\n".join(_graph_lines(graph, "", frozenset())) + "\n"


def _graph_lines(graph: Graph, indent: str, outer_dims: frozenset[str]) -> list[str]:
    inputs = ", ".join(_declared(v) for v in graph.inputs)
    outputs = ", ".join(_name(v) for v in graph.outputs)
    lines = [f"{indent}graph {_word(graph.name)}({inputs}) -> ({outputs}) {{"]
    inner = indent + "  "
    for name, (low, high) in graph.dims.items():
        if name not in outer_dims:
            lines.append(f"{inner}dim {name} in [{low}, {'inf' if high is None else high}]")
    given = set(graph.inputs)
    for value in graph.constants():
        if value not in given:
            lines.append(f"{inner}const {_declared(value)} = {_data(value)}")
    for node in graph.nodes:
        lines.extend(_node_lines(node, inner, outer_dims | frozenset(graph.dims)))
    for first, last in graph.states.items():
        lines.append(f"{inner}state %{_word(first)} -> %{_word(last)}")
    for source, origin in graph.origins.items():
        target = "" if origin.value is None else f" %{_word(origin.value)}"
        lines.append(f"{inner}origin {json.dumps(source)} = {origin.relation}{target}")
    lines.append(f"{indent}}}")
    return lines


def _node_lines(node: Node, indent: str, dims: frozenset[str]) -> list[str]:
    outputs = ", ".join(_declared(v) for v in node.outputs)
    inputs = ", ".join("_" if v is None else _name(v) for v in node.inputs)
    line = f"{indent}{outputs} = {node.op}({inputs})"
    if node.attrs:
        line += " {" + ", ".join(f"{k}={_attr(v)}" for k, v in sorted(node.attrs.items())) + "}"
    if node.guards:
        line += " if " + ", ".join(("" if wanted else "!") + _name(v) for v, wanted in node.guards)
    if node.name:
        line += f" @{_word(node.name)}"
    lines = [line]
    for key, body in node.subgraphs.items():
        inner = _graph_lines(body, indent + "  ", dims)
        lines.append(f"{indent}  {key} = {inner[0].strip()}")
        lines.extend(inner[1:])
    return lines


_WORD = re.compile(r"[\w./]+")


def _word(name: str) -> str:
    return name if _WORD.fullmatch(name) else json.dumps(name)


def _name(value: Value) -> str:
    return f"%{_word(value.name)}"


def _declared(value: Value) -> str:
    shape = "?" if value.shape is None else ", ".join(map(str, value.shape))
    text = f"{_name(value)}: {value.dtype}[{shape}]"
    if value.content is not None:
        text += f" <{', '.join(map(str, value.content))}>"
    if not value.format.is_plain:
        text += f" {{{value.format}}}"
    return text


def _data(value: Value) -> str:
    recipe = value.recipe
    assert recipe is not None
    if isinstance(recipe, Source) and isinstance(recipe.content, DescribedArray) and recipe.content.words is not None:
        return recipe.content.words
    if recipe.size and value.dtype.kind not in ("handle", "complex"):
        first = next(blocks(recipe, 1)).reshape(-1)[0]
        if all((part == first).all() for some in (samples, blocks) for part in some(recipe)):
            return f"splat {_number(first, value.dtype)}"
    if recipe.size > DENSE_LIMIT:
        return f'elided "{recipe.mark}"'
    return f"dense [{', '.join(_number(v, value.dtype) for v in recipe.array().reshape(-1))}]"


def _number(value: object, kind: DType) -> str:
    if kind.kind == "handle":
        return json.dumps(str(value))
    if kind.kind == "bool":
        return str(bool(value)).lower()
    if kind.kind == "complex":
        return str(value)
    return str(value) if kind.is_float else str(int(cast(int, value)))


def _attr(value: AttrValue) -> str:
    if isinstance(value, np.ndarray):
        kind = from_numpy(value.dtype)
        numbers = ", ".join(_number(v, kind) for v in value.reshape(-1))
        return f"tensor {kind}[{', '.join(map(str, value.shape))}] [{numbers}]"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_attr(v) for v in value)}]"
    if isinstance(value, (bool, str)) or value is None:
        return json.dumps(value)
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    return str(int(cast(int, value)))


# --- reading

_TOKEN = re.compile(r'\s+|#[^\n]*|("(?:[^"\\]|\\.)*"|->|//|[\w.]+(?:/[\w./]+|::\w+)*|/[\w./]+|[^\w\s])')
_NUMBER = re.compile(r"[+-]?(\d+|\d+\.\d*([eE][+-]?\d+)?|\d+[eE][+-]?\d+|inf|nan)")


def parse(text: str) -> Graph:
    """Reads the text form. ValueError with the line on anything else."""
    reader = _Reader(text)
    graph = reader.graph(None)
    if reader.peek():
        raise reader.error("the end")
    return graph


class _Scope:
    """Names of one graph, with the enclosing ones behind."""

    def __init__(self, graph: Graph, outer: _Scope | None) -> None:
        self.graph, self.outer = graph, outer

    def find(self, name: str) -> Value | None:
        found = self.graph.values.get(name)
        return found if found is not None or self.outer is None else self.outer.find(name)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, int]] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"line {text.count(chr(10), 0, at) + 1}: unexpected {text[at]!r}")
            if found[1]:
                self.tokens.append((found[1], at))
            at = found.end()
        self.at = 0

    # --- tokens

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead][0] if self.at + ahead < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(repr(token))

    def error(self, wanted: str) -> ValueError:
        at = self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)
        line = self.text.count("\n", 0, at) + 1
        return ValueError(f"line {line}: expected {wanted}, found {self.peek() or 'the end'!r}")

    def word(self) -> str:
        token = self.next()
        return str(json.loads(token)) if token.startswith('"') else token

    def until(self, *stops: str) -> str:
        """The text up to a token of `stops` at depth 0, without it."""
        depth, parts = 0, []
        while self.peek() and not (depth == 0 and self.peek() in stops):
            token = self.next()
            depth += (token in "([") - (token in ")]") if len(token) == 1 else 0
            parts.append(token)
        return " ".join(parts)

    def dims(self, close: str) -> tuple[Dim, ...]:
        found: list[Dim] = []
        while not self.accept(close):
            found.append(parse_dim(self.until(",", close)))
            self.accept(",")
        return tuple(found)

    # --- grammar

    def graph(self, outer: _Scope | None) -> Graph:
        self.expect("graph")
        graph = Graph(self.word())
        if outer is not None:
            graph.dims = outer.graph.dims
        scope = _Scope(graph, outer)
        self.expect("(")
        while not self.accept(")"):
            graph.inputs.append(self.declaration(graph)[0])
            self.accept(",")
        self.expect("->")
        self.expect("(")
        outputs: list[str] = []
        while not self.accept(")"):
            self.expect("%")
            outputs.append(self.word())
            self.accept(",")
        self.expect("{")
        while not self.accept("}"):
            self.statement(scope)
        for name in outputs:
            graph.outputs.append(self.resolve(scope, name))
        return graph

    def resolve(self, scope: _Scope, name: str) -> Value:
        value = scope.find(name)
        if value is None:
            raise ValueError(f"graph {scope.graph.name}: %{name} is not defined")
        return value

    def declaration(self, graph: Graph) -> tuple[Value, bool]:
        """A value, and whether its type was given."""
        self.expect("%")
        name = self.word()
        if name in graph.values:
            raise ValueError(f"graph {graph.name}: %{name} is defined twice")
        if not self.accept(":"):
            return graph.add_value(name, F32, None), False
        kind = dtype(self.next())
        self.expect("[")
        shape: tuple[Dim, ...] | None = None
        if self.peek() == "?" and self.peek(1) == "]":
            self.at += 2
        else:
            shape = self.dims("]")
        content = self.dims(">") if self.accept("<") else None
        form: Format = PLAIN
        if self.accept("{"):
            form = parse_format(re.sub(r"\s+(?=[(),])|(?<=[(,])\s+", "", self.until("}")))
            self.expect("}")
        value = graph.add_value(name, kind, shape, format=form)
        value.content = content
        return value, True

    def statement(self, scope: _Scope) -> None:
        graph = scope.graph
        if self.accept("dim"):
            name = self.next()
            self.expect("in")
            self.expect("[")
            low = int(self.next())
            self.expect(",")
            high = self.next()
            graph.dims[name] = (low, None if high == "inf" else int(high))
            self.expect("]")
        elif self.accept("const"):
            value, typed = self.declaration(graph)
            if not typed or not value.is_static:
                raise self.error("a static type")
            self.expect("=")
            value.recipe = Source(self.data(value.dtype, cast("tuple[int, ...]", value.shape)))
        elif self.accept("state"):
            self.expect("%")
            first = self.word()
            self.expect("->")
            self.expect("%")
            graph.states[first] = self.word()
        elif self.accept("origin"):
            source = self.word()
            self.expect("=")
            relation = self.next()
            graph.origins[source] = Origin(relation, self.word() if self.accept("%") else None)
        elif self.peek() == "%":
            self.node(scope)
        else:
            raise self.error("a statement")

    def node(self, scope: _Scope) -> None:
        graph = scope.graph
        outputs, typed = [], True
        while True:
            value, given = self.declaration(graph)
            outputs.append(value)
            typed &= given
            if not self.accept(","):
                break
        self.expect("=")
        name = self.next()
        self.expect("(")
        inputs: list[Value | None] = []
        while not self.accept(")"):
            if self.accept("_"):
                inputs.append(None)
            else:
                self.expect("%")
                inputs.append(self.resolve(scope, self.word()))
            self.accept(",")
        attrs: dict[str, AttrValue] = {}
        if self.accept("{"):
            while not self.accept("}"):
                key = self.next()
                self.expect("=")
                attrs[key] = self.attr()
                self.accept(",")
        guards: list[tuple[Value, bool]] = []
        while self.accept("," if guards else "if"):
            wanted = not self.accept("!")
            self.expect("%")
            guards.append((self.resolve(scope, self.word()), wanted))
        label = self.word() if self.accept("@") else ""
        node = graph.add_node(name, inputs, outputs, attrs, name=label, guards=guards)
        while self.peek(1) == "=" and self.peek(2) == "graph":
            key = self.next()
            self.expect("=")
            body = self.graph(None if name == "Fused" else scope)
            node.subgraphs[key] = body
            if name == "Fused":
                body.dims = graph.dims
                for outer, inner in zip(inputs, body.inputs, strict=True):
                    inner.recipe = None if outer is None else outer.recipe
        if not typed:
            infer_node(graph, node)

    def attr(self) -> AttrValue:
        if self.accept("["):
            items: list[AttrValue] = []
            while not self.accept("]"):
                items.append(self.attr())
                self.accept(",")
            return cast(AttrValue, tuple(items))
        if self.accept("tensor"):
            kind = dtype(self.next())
            self.expect("[")
            shape = cast("tuple[int, ...]", self.dims("]"))
            return self.dense(kind, shape)
        if self.peek().startswith('"') or self.peek() in ("true", "false", "null"):
            return cast(AttrValue, json.loads(self.next()))
        number = self.number()
        return int(number) if re.fullmatch(r"[+-]?\d+", number) else float(number)

    def number(self) -> str:
        text = self.next()
        if text in "+-":
            text += self.next()
        if re.search(r"[\d.][eE]$", text) and self.peek() in ("+", "-"):
            text += self.next() + self.next()  # 1e-05 comes as three tokens
        if not _NUMBER.fullmatch(text):
            self.at -= 1
            raise self.error("a number")
        return text

    def element(self, kind: DType) -> object:
        if kind.kind == "handle":
            return self.word()
        if kind.kind == "bool":
            return self.next() == "true"
        if kind.kind == "complex":
            return complex(self.until(",", "]").replace(" ", ""))
        number = self.number()
        return float(number) if kind.is_float else int(number)

    def dense(self, kind: DType, shape: Sequence[int]) -> np.ndarray:
        self.expect("[")
        found: list[object] = []
        while not self.accept("]"):
            found.append(self.element(kind))
            self.accept(",")
        return _array(found, kind).reshape(shape)

    def data(self, kind: DType, shape: tuple[int, ...]) -> np.ndarray:
        form = self.next()
        if form == "dense":
            return self.dense(kind, shape)
        if form == "splat":
            return np.full(shape, _array([self.element(kind)], kind)[0], kind.numpy)
        if form == "random":
            self.expect("seed")
            seed = int(self.number())
            self.expect("scale")
            scale = self.number()
            drawn = np.random.default_rng(seed).normal(0, float(scale), shape).astype(kind.numpy)
            return _described(drawn, f"random seed {seed} scale {scale}")
        if form == "elided":
            digest = self.word()
            return _described(np.broadcast_to(np.zeros((), kind.numpy), shape), f"elided {json.dumps(digest)}")
        self.at -= 1
        raise self.error("dense, splat, random or elided")


def _array(items: Iterable[object], kind: DType) -> np.ndarray:
    listed = list(items)
    if kind.kind == "float" and kind.name != "f64":
        return np.array(listed, np.float64).astype(kind.numpy)
    return np.array(listed, kind.numpy)
