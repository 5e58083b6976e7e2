"""LSTM layers (ONNX LSTM, default activations): gates i, o, f, c; peepholes, directions and sequence lengths.

Of a QuantisedLstm the product of inputs and W is made before, and R lies in bytes: at every step the hidden state of a
sequence becomes bytes by its own least and greatest number, as DynamicQuantizeLinear does, and bytes are multiplied.
"""

from __future__ import annotations

from codegen.kernels.operands import NotLowerable, body_of, shape_of
from codegen.kernels.recurrent import Recurrence, lower_layer
from codegen.kernels.tiling import Tiling
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim
from tensor_types.dtypes import BOOL, F32, I8, I32, U8
from tensor_types.formats import panels

_QUAD = 4
"""Consecutive k of a column that lie together."""


def lower_lstm(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around an LSTM or QuantisedLstm; NotLowerable says why there is none."""
    quantised = any(n.op == "QuantisedLstm" for n in body_of(node).nodes)
    return lower_layer(lambda: (QuantisedLstm if quantised else Lstm)(node, target, "lstm"), tiling)


class Lstm(Recurrence):
    activations = ("sigmoid", "tanh", "tanh")

    def initial(self) -> tuple[Value | None, ...]:
        return self._value(5), self._value(6)

    def declare(self) -> None:
        peephole = self._value(7)
        self.recurrent = self.weight(self.r, self.hidden)
        self.peephole = None if peephole is None else self.task.operand(peephole)

    def states(self) -> tuple[Buffer, ...]:
        block, hidden = self.block, self.hidden
        self.hidden_state, self.cell = self.tile(block, hidden), self.tile(block, hidden)
        self.gates_tile = self.tile(block, self.columns)
        self.parts = [self.tile(block, hidden) for _ in range(5)]
        return self.hidden_state, self.cell

    def step(self, direction: Dim, inputs: View) -> None:
        task, rows = self.task, self.rows
        size = (rows, self.hidden)
        h, c = (t.window((0, 0), size) for t in (self.hidden_state, self.cell))
        left = self.left_operand(h)
        with task.loop("n", self.n_panels) as n:
            gates = self.gates_tile.window((0, self.panel * n), (rows, self.panel_columns(n)))
            addend = View(inputs.base, (*inputs.index[:-1], self.panel * n + axis(1)), gates.shape)
            addend = self.paths.vector_input(addend, (self.block, self.panel), F32)
            self.recurrent_product(self.recurrent, direction, n, left, gates, addend)
        i, o, f, g, scratch = (t.window((0, 0), size) for t in self.parts)
        source = [self.gates_tile.window((0, self.hidden * k), size) for k in range(4)]

        def gate(dst: View, k: int, cell: View, which: int) -> None:
            if self.peephole is not None:
                factor = self.peephole.view(direction, which * self.hidden + axis(1), shape=size)
                factor = self.paths.vector_f32(factor, (self.block, self.hidden), self.dtype)
                task.mul(scratch, cell, factor)
                task.add(scratch, scratch, source[k])
                self.activate("sigmoid", dst, scratch)
            else:
                self.activate("sigmoid", dst, source[k])

        gate(i, 0, c, 0)
        if self.anchor.attrs.get("input_forget"):
            task.mul(f, i, -1.0)
            task.add(f, f, 1.0)
        else:
            gate(f, 2, c, 2)
        self.activate("tanh", g, source[3])
        task.mul(i, i, g)
        task.fma(c, c, f, i)
        gate(o, 1, c, 1)
        task.tanh(g, c)
        task.mul(h, o, g)


class QuantisedLstm(Lstm):
    """R [directions, H, 4*H] in signed bytes, a scale for each column."""

    def _read(self) -> tuple[Dim, Dim, Dim, Dim]:
        x, self.r, self.scales, self.sums = (self._value(i) for i in range(4))
        assert x is not None and self.r is not None
        self.x, self.w, self.b = x, None, None
        directions, hidden, rows = shape_of(self.r)
        if self.anchor.attrs.get("input_forget"):
            raise NotLowerable("input and forget gates of one weight in bytes")
        if self.target.explicit_memory or self.r.dtype != I8 or x.dtype != F32:
            raise NotLowerable("a QuantisedLstm runs on hosts, its weight in signed bytes, its gates in f32")
        if not isinstance(hidden, int) or hidden % _QUAD:
            raise NotLowerable("a hidden size that is no multiple of 4")
        return directions, rows, hidden, 0

    def _declare_inputs(self) -> None:
        self.gates_made = self.task.operand(self.x, "in", (self.steps, self.batch, self.directions, self.columns))

    def _declare_projection(self) -> None:
        """The product is there."""

    def _project(self) -> None:
        """The product is there."""

    def _projected(self, step: Dim) -> View:
        shape = (self.rows, self.columns)
        return self.gates_made.view(step, self.first + axis(0), self.direction, axis(1), shape=shape)

    def declare(self) -> None:
        assert self.scales is not None and self.sums is not None and self.r is not None
        peephole, task = self._value(7), self.task
        shape = (self.directions, self.n_panels, self.hidden // _QUAD, self.panel, _QUAD)
        self.recurrent = task.operand(self.r, "in", shape, packing=panels(self.panel, 3, _QUAD))
        self.column_scales, self.column_sums = task.operand(self.scales), task.operand(self.sums)
        self.peephole = None if peephole is None else task.operand(peephole)
        block, hidden = self.block, self.hidden
        self.row_numbers = [self.tile(block) for _ in range(4)]
        self.row_zero = self.paths.tile(I32, (block,))
        self.row_equal = self.paths.tile(BOOL, (block,))
        self.ratios, self.bytes = self.tile(block, hidden), self.paths.tile(U8, (block, hidden))
        bounds = (block, self.panel)
        self.products, self.shifts = (self.paths.tile(I32, bounds) for _ in range(2))
        self.factors = self.tile(*bounds)

    def left_operand(self, state: View) -> View:
        """The state in bytes; scales and zero points of its rows stay in tiles."""
        task, rows = self.task, self.rows

        def of_rows(tile: Buffer) -> View:
            return tile.view(axis(0), shape=(rows,))

        def spread(tile: Buffer) -> View:
            return tile.view(axis(0), shape=state.shape)

        low, high, scale, zero = self.row_numbers
        task.rowmin(spread(low), state, axes=(1,))
        task.rowmax(spread(high), state, axes=(1,))
        task.min(of_rows(low), of_rows(low), 0.0)
        task.max(of_rows(high), of_rows(high), 0.0)
        task.sub(of_rows(scale), of_rows(high), of_rows(low))
        task.instr("TCMP", of_rows(self.row_equal), of_rows(scale), 0.0, mode="eq")
        task.div(of_rows(scale), of_rows(scale), 255.0)
        task.instr("TSEL", of_rows(scale), of_rows(self.row_equal), 1.0, of_rows(scale))
        task.div(of_rows(zero), of_rows(low), of_rows(scale))
        task.neg(of_rows(zero), of_rows(zero))
        task.max(of_rows(zero), of_rows(zero), 0.0)
        task.min(of_rows(zero), of_rows(zero), 255.0)
        task.round(of_rows(zero), of_rows(zero))
        task.cvt(of_rows(self.row_zero), of_rows(zero))
        ratios, bytes_ = (t.window((0, 0), state.shape) for t in (self.ratios, self.bytes))
        task.div(ratios, state, spread(scale))
        task.round(ratios, ratios)
        task.add(ratios, ratios, spread(zero))
        task.cvt(bytes_, ratios)
        return View(self.bytes.name, (axis(0), _QUAD * axis(1) + axis(2)), (rows, self.hidden // _QUAD, _QUAD))

    def recurrent_product(
        self, weight: Buffer, direction: Dim, n: Dim, left: View, result: View, addend: View | None = None
    ) -> None:
        task, shape = self.task, result.shape
        quads = (self.hidden // _QUAD, _QUAD, shape[1])
        panel = weight.view(direction, n, axis(0), axis(2), axis(1), shape=quads)
        products, shifts, factors = (t.window((0, 0), shape) for t in (self.products, self.shifts, self.factors))
        column = self.panel * n + axis(1)
        task.matmul(products, left, panel, nm=1, nk=2)
        # (bytes - zero) @ R = bytes @ R - zero * (sums of R's columns)
        sums = self.column_sums.view(direction, column, shape=shape)
        task.mul(shifts, sums, self.row_zero.view(axis(0), shape=shape))
        task.sub(products, products, shifts)
        task.cvt(result, products)
        task.mul(factors, self.column_scales.view(direction, 0, column, shape=shape),
                 self.row_numbers[2].view(axis(0), shape=shape))  # fmt: skip
        task.mul(result, result, factors)
        if addend is not None:
            task.add(result, result, addend)
