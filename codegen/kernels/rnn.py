"""Simple recurrent layers (ONNX RNN): h = f(x @ W + h @ R + biases), f being Tanh, Relu or Sigmoid."""

from __future__ import annotations

from codegen.kernels.operands import NotLowerable
from codegen.kernels.recurrent import Recurrence, lower_layer
from codegen.kernels.tiling import Tiling
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim
from tensor_types.dtypes import F32


def lower_rnn(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around an RNN; NotLowerable says why there is none."""
    return lower_layer(lambda: _Rnn(node, target, "rnn"), tiling)


class _Rnn(Recurrence):
    def _check_attributes(self) -> None:
        given = [str(a).lower() for a in self.anchor.attrs.get("activations") or ("tanh",)]  # type: ignore[union-attr]
        if given[0] not in ("tanh", "relu", "sigmoid"):
            raise NotLowerable(f"the activation {given[0]}")
        self.activations = (given[0],)
        super()._check_attributes()

    def initial(self) -> tuple[Value | None, ...]:
        return (self._value(5),)

    def declare(self) -> None:
        self.recurrent = self.weight(self.r, self.hidden)

    def states(self) -> tuple[Buffer, ...]:
        self.hidden_state, self.sums = self.tile(self.block, self.hidden), self.tile(self.block, self.hidden)
        return (self.hidden_state,)

    def step(self, direction: Dim, inputs: View) -> None:
        task, rows = self.task, self.rows
        h = self.hidden_state.window((0, 0), (rows, self.hidden))
        left = self.left_operand(h)
        b, t, row, _ = inputs.index
        with task.loop("n", self.n_panels) as n:
            sums = self.sums.window((0, self.panel * n), (rows, self.panel_columns(n)))
            addend = View(inputs.base, (b, t, row, self.panel * n + axis(1)), sums.shape)
            addend = self.paths.vector_input(addend, (self.block, self.panel), F32)
            self.recurrent_product(self.recurrent, direction, n, left, sums, addend)
        self.activate(self.activations[0], h, self.sums.window((0, 0), (rows, self.hidden)))
