"""LSTM layers (ONNX LSTM, default activations): gates i, o, f, c; peepholes, directions and sequence lengths."""

from __future__ import annotations

from codegen.kernels.recurrent import Recurrence, lower_layer
from codegen.kernels.tiling import Tiling
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim
from tensor_types.dtypes import F32


def lower_lstm(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around an LSTM; NotLowerable says why there is none."""
    return lower_layer(lambda: _Lstm(node, target, "lstm"), tiling)


class _Lstm(Recurrence):
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
            b, t, r, _ = inputs.index
            addend = View(inputs.base, (b, t, r, self.panel * n + axis(1)), gates.shape)
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
                task.sigmoid(dst, scratch)
            else:
                task.sigmoid(dst, source[k])

        gate(i, 0, c, 0)
        gate(f, 2, c, 2)
        task.tanh(g, source[3])
        task.mul(i, i, g)
        task.fma(c, c, f, i)
        gate(o, 1, c, 1)
        task.tanh(g, c)
        task.mul(h, o, g)
