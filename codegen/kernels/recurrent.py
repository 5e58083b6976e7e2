"""What recurrent layers share: the product of all inputs with W, the loop over time, directions, run-time lengths.

A grid index is one direction and a block of the batch. It first multiplies all time steps with W (biases added) into a
workspace; then it walks through time with its state in tiles, R lying in packed panels. With run-time sequence lengths
a block is one sequence, and outputs behind its end are zeros. States, gates and sums are f32; of layers in halves the
hidden state is rounded as the left operand of its product, and results when they are stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from codegen.kernels.conv_core import panel_width
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmin
from tensor_types.dtypes import BF16, F16, F32
from tensor_types.formats import panels


@dataclass(frozen=True)
class RecurrentTiling(Tiling, kind="recurrent"):
    """`batch` sequences of a grid index, panels of `columns` gates; x @ W takes `steps` time steps at once."""

    batch: int
    columns: int
    steps: int


class Recurrence(ABC):
    """Emits one recurrent layer: subclasses give the gates and the arithmetic of a step."""

    activations: tuple[str, ...]
    """The default activations of one direction, the only ones that have a kernel."""
    joins_recurrent_bias = True
    """R's bias can be added before the loop over time."""

    def __init__(self, node: Node, target: Target, family: str) -> None:
        body = body_of(node)
        if len(body.nodes) != 1:
            raise NotLowerable("more than one layer")
        self.anchor = body.nodes[0]
        self.values = outer_values(node)
        self.target = target
        self._check_attributes()
        self.lengths, self.h0 = self._value(4), self._value(5)
        directions, rows, hidden, width = self._read()
        x = self.x
        steps, batch = shape_of(x)[:2]
        if not all(isinstance(d, int) for d in (directions, rows, hidden, width)):
            raise NotLowerable("input and hidden sizes must be static")
        if not all(v is None or v.is_constant for v in (self.w, self.r)):
            raise NotLowerable("weights must be constants")
        if x.dtype not in (F32, F16, BF16) or any(not v.format.is_plain for v in self.values.values()):
            raise NotLowerable("f32, f16 and bf16 in plain order only")
        self.dtype = x.dtype
        self.width, self.hidden, self.directions = int(width), int(hidden), int(directions)  # type: ignore[arg-type]
        self.columns = int(rows)  # type: ignore[arg-type]
        self.task = KernelTask(node, family, target)
        self.steps, self.batch = self.task.extent(steps), self.task.extent(batch)
        self.work = 2 * steps * batch * self.columns * (self.width + self.hidden) * self.directions
        self.paths = MemoryPaths(self.task, target, products=3)

    def _read(self) -> tuple[Dim, Dim, Dim, Dim]:
        """Sets `x`, `w`, `r` and `b`; directions, gates times hidden size, hidden size, input size."""
        x, self.w, self.r, self.b = (self._value(i) for i in range(4))
        assert x is not None and self.w is not None and self.r is not None
        self.x = x
        directions, rows, hidden = shape_of(self.r)
        return directions, rows, hidden, shape_of(x)[2]

    def candidates(self) -> Iterator[RecurrentTiling]:
        """Equal blocks of the batch; with run-time lengths a block is one sequence."""
        target = self.target
        lanes = target.vector_bytes // 4
        widest = 64 if target.explicit_memory else (4 if target.registers >= 32 else 2) * lanes
        columns = panel_width(self.columns, widest, lanes)
        for most in (1,) if self.lengths is not None else halvings(24):
            batch = _even(self.batch, most) if self.lengths is None else 1
            yield RecurrentTiling(batch, columns, max(1, 64 // batch) if target.explicit_memory else 32)

    # What a layer gives

    @abstractmethod
    def states(self) -> tuple[Buffer, ...]:
        """Declares the state tiles [block, H]; the first is the hidden state."""

    @abstractmethod
    def initial(self) -> tuple[Value | None, ...]:
        """Initial values [directions, batch, H] of the states; None means zeros."""

    @abstractmethod
    def step(self, direction: Dim, inputs: View) -> None:
        """Advances the states by one step; `inputs` is x @ W + biases [block, gates*H], in the workspace."""

    # The frame

    def emit(self, tiling: RecurrentTiling) -> list[Record]:
        """The whole layer as one task."""
        task = self.task
        if self.lengths is not None and tiling.batch != 1:
            raise NotLowerable("with run-time lengths a block is one sequence: batch=1")
        self.tiling, self.panel, block = tiling, tiling.columns, tiling.batch
        self.n_panels = -(-self.columns // self.panel)
        self.block = block
        self._declare_inputs()
        # Their batch is that of x: the operator requires it where they have another name for it.
        state = (self.directions, self.batch, self.hidden)
        lengths = None if self.lengths is None else task.operand(self.lengths, shape=(self.batch,))
        starts = [None if v is None else task.operand(v, shape=state) for v in self.initial()]
        outputs = [self._output(i) for i in range(len(self.initial()) + 1)]
        self._declare_projection()
        self.declare()
        self.direction = self.paths.grid(self.directions)
        first: Dim = 0
        rows: Dim = block
        if not isinstance(self.batch, int) or self.batch != block:
            first = self.paths.grid(ceildiv(self.batch, block)) * block
            even = isinstance(self.batch, int) and self.batch % block == 0
            rows = block if even or block == 1 else dmin(block, self.batch - first)
        self.first, self.rows = first, rows
        states = self.states()
        count = self.steps
        if lengths is not None:
            count = task.read("length", lengths.view(first, shape=()), 0, self.steps)
        self._project()
        for state, start in zip(states, starts, strict=True):
            held = state.window((0, 0), (rows, self.hidden))
            if start is None:
                task.expands(held, 0.0)
            else:
                source = start.view(self.direction, first + axis(0), axis(1), shape=(rows, self.hidden))
                if self.dtype == F32:
                    task.load(held, source)
                else:
                    task.cvt(held, self.paths.vector_input(source, (block, self.hidden), self.dtype))
        backward = self.anchor.attrs.get("direction", "forward") == "reverse"
        if self.directions == 1:
            self._walk(count, backward, states, outputs[0])
        else:
            with task.when(self.direction, "<", 1):
                self._walk(count, False, states, outputs[0])
            with task.otherwise():
                self._walk(count, True, states, outputs[0])
        if lengths is not None and outputs[0] is not None:
            with task.loop("z", self.steps - count) as z:
                self.paths.store(self._result(outputs[0], count + z), 0.0, (block, self.hidden), self.dtype)
        for state, output in zip(states, outputs[1:], strict=True):
            if output is not None:
                self._write(output.view(self.direction, first + axis(0), axis(1), shape=(rows, self.hidden)),
                            state.window((0, 0), (rows, self.hidden)))  # fmt: skip
        return [task.record(self.work)]

    @abstractmethod
    def declare(self) -> None:
        """Declares further operands of the layer."""

    def weight(self, value: Value | None, depth: int) -> Buffer:
        """A weight [directions, gates*H, depth] as panels [directions, panel, depth, NR]; for chips as it is."""
        assert value is not None
        if self.target.explicit_memory:
            return self.task.operand(value)
        return self.task.operand(
            value, "in", (self.directions, self.n_panels, depth, self.panel), packing=panels(self.panel, 3),
            permute=(0, 2, 1),
        )  # fmt: skip

    def weight_panel(self, weight: Buffer, direction: Dim, p: Dim, depth: int) -> View:
        """Panel p of a weight as [depth, columns]."""
        shape = (depth, self.panel_columns(p))
        if self.target.explicit_memory:
            return weight.view(direction, self.panel * p + axis(1), axis(0), shape=shape)
        return weight.view(direction, p, axis(0), axis(1), shape=shape)

    def left_operand(self, state: View) -> View:
        """A state [block, H] as products with R take it: in the layer's dtype, on a chip in global memory."""
        size = (self.block, self.hidden)
        state = self._narrow(state)
        if not self.target.explicit_memory:
            return state
        shared = self.paths.private(self.dtype, size, state.shape)
        self.task.store(shared, state)
        return shared

    def recurrent_product(
        self, weight: Buffer, direction: Dim, n: Dim, left: View, result: View, addend: View | None = None
    ) -> None:
        """result = left @ panel n of R + addend, which is f32 where the vector engine can read it."""
        paths, bounds = self.paths, (self.block, self.panel)
        panel = self.weight_panel(weight, direction, n, self.hidden)
        if not self.target.explicit_memory:
            self.task.matmul(result, left, panel, nm=1, nk=1)
            product = result
        else:
            acc = paths.accumulator(self.dtype, bounds, result.shape)
            paths.product(acc, bounds, left, panel, self.dtype)
            product = paths.to_vector(acc, bounds, F32)
        if addend is not None:
            self.task.add(result, product, addend)
        elif product is not result:
            self.task.mov(result, product)

    def _narrow(self, state: View) -> View:
        """A state [block, H] in the layer's dtype."""
        if self.dtype == F32:
            return state
        narrow = self.paths.passing(self.dtype, (self.block, self.hidden), "UB").window((0, 0), state.shape)
        self.task.cvt(narrow, state)
        return narrow

    def _write(self, result: View, state: View) -> None:
        self.task.store(result, self._narrow(state))

    def tile(self, *shape: int) -> Buffer:
        """A tile of f32."""
        return self.paths.tile(F32, shape)

    def panel_columns(self, p: Dim) -> Dim:
        """Columns of panel p."""
        if self.columns % self.panel == 0:
            return self.panel
        return self.columns if self.n_panels == 1 else dmin(self.panel, self.columns - self.panel * p)

    def _walk(self, count: Dim, backward: bool, states: tuple[Buffer, ...], result: Buffer | None) -> None:
        with self.task.loop("t", count) as t:
            at = count - 1 - t if backward else t
            self.step(self.direction, self._projected(at))
            if result is not None:
                hidden = states[0].window((0, 0), (self.rows, self.hidden))
                self._write(self._result(result, at), hidden)

    def _result(self, buffer: Buffer, step: Dim) -> View:
        shape = (self.rows, self.hidden)
        return buffer.view(step, self.direction, self.first + axis(0), axis(1), shape=shape)

    def _declare_inputs(self) -> None:
        """Declares what the gates are made of before the loop over time."""
        self.source, self.input_weight = self.task.operand(self.x), self.weight(self.w, self.width)
        self.input_bias = None if self.b is None else self.task.operand(self.b)

    def _declare_projection(self) -> None:
        """Declares where the product of all steps is kept."""
        self.space = self.task.workspace(F32, (self.directions, self.steps, self.batch, self.columns))

    def _projected(self, step: Dim) -> View:
        """x @ W + biases of a step [block, gates*H]."""
        return self.space.view(self.direction, step, self.first + axis(0), axis(1), shape=(self.rows, self.columns))

    def _project(self) -> None:
        """The workspace: x @ W + biases for all steps."""
        task, rows, x, w, bias = self.task, self.rows, self.source, self.input_weight, self.input_bias
        most = self.tiling.steps
        size = min(most, self.steps) if isinstance(self.steps, int) else most
        bounds = (size, self.block, self.panel)
        with task.loop("p", self.n_panels) as p:
            columns = self.panel_columns(p)
            weight = self.weight_panel(w, self.direction, p, self.width)
            with task.loop("s", ceildiv(self.steps, size)) as s:
                even = isinstance(self.steps, int) and self.steps % size == 0
                steps = size if even else dmin(size, self.steps - size * s)
                shape = (steps, rows, columns)
                source = x.view(size * s + axis(0), self.first + axis(1), axis(2), shape=(steps, rows, self.width))
                acc = self.paths.accumulator(self.dtype, bounds, shape)
                self.paths.product(acc, bounds, source, weight, self.dtype)
                block = self.paths.to_vector(acc, bounds, F32)
                column = self.panel * p + axis(2)
                shifts = [] if bias is None else [0, self.columns] if self.joins_recurrent_bias else [0]
                for shift in shifts:
                    assert bias is not None
                    part = bias.view(self.direction, shift + column, shape=shape)
                    task.add(block, block, self.paths.vector_f32(part, bounds, self.dtype))
                task.store(self.space.view(self.direction, size * s + axis(0), self.first + axis(1), column,
                                           shape=shape), block)  # fmt: skip

    def activate(self, name: str, result: View, x: View) -> None:
        """An activation, of what lies within the limit that the layer has for it."""
        clip = self.anchor.attrs.get("clip")
        if clip is not None:
            limit = float(clip)  # type: ignore[arg-type]
            self.task.min(result, x, limit)
            self.task.max(result, result, -limit)
            x = result
        getattr(self.task, name)(result, x)

    def _value(self, index: int) -> Value | None:
        inner = self.anchor.input(index)
        return None if inner is None else self.values.get(inner.name, inner)

    def _output(self, index: int) -> Buffer | None:
        outputs = self.anchor.outputs
        if index >= len(outputs) or outputs[index].name not in self.values:
            return None
        return self.task.operand(self.values[outputs[index].name], "out")

    def _check_attributes(self) -> None:
        attrs = self.anchor.attrs
        if attrs.get("layout"):
            raise NotLowerable("the batch comes first")
        given = [str(a).lower() for a in attrs.get("activations") or ()]  # type: ignore[union-attr]
        if given and given != list(self.activations) * (len(given) // len(self.activations)):
            raise NotLowerable("activations other than the default ones")


def lower_layer(make: Callable[[], Recurrence], tiling: Tiling | None) -> list[Record]:
    """One task for a recurrent layer, which `make` reads from its node."""
    layer = make()
    if 0 in shape_of(layer.x):
        raise NotLowerable("no steps, or nothing in them")
    return first_fit(layer.candidates(), lambda chosen: make().emit(chosen), tiling)


def _even(batch: Dim, most: int) -> int:
    """Equal blocks of a batch, at most so many sequences each."""
    if not isinstance(batch, int):
        return min(8, most)
    parts = -(-batch // most)
    return -(-batch // max(parts, 1))
