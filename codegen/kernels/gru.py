"""GRU layers (ONNX GRU, default activations): gates z, r, h, the reset gate before or after the product with R."""

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


def lower_gru(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around a GRU; NotLowerable says why there is none."""
    return lower_layer(lambda: _Gru(node, target, "gru"), tiling)


class _Gru(Recurrence):
    activations = ("sigmoid", "tanh")

    def initial(self) -> tuple[Value | None, ...]:
        return (self._value(5),)

    def declare(self) -> None:
        self.reset_after = bool(self.anchor.attrs.get("linear_before_reset", 0))
        self.joins_recurrent_bias = not self.reset_after
        self.recurrent = self.weight(self.r, self.hidden)
        self.bias = self.task.operand(self.b) if self.b is not None and self.reset_after else None

    def states(self) -> tuple[Buffer, ...]:
        block, hidden = self.block, self.hidden
        self.hidden_state = self.tile(block, hidden)
        self.products = self.tile(block, self.columns)
        self.parts = [self.tile(block, hidden) for _ in range(3)]
        return (self.hidden_state,)

    def _multiply(self, direction: Dim, state: View, first: int, last: int) -> None:
        """The products of a state with panels first .. last-1 of R."""
        left = self.left_operand(state)
        with self.task.loop("n", last - first) as i:
            n = i + first
            products = self.products.window((0, self.panel * n), (self.rows, self.panel_columns(n)))
            addend = None
            if self.bias is not None:
                addend = self.bias.view(direction, self.columns + self.panel * n + axis(1), shape=products.shape)
                addend = self.paths.vector_f32(addend, (self.block, self.panel), self.dtype)
            self.recurrent_product(self.recurrent, direction, n, left, products, addend)

    def step(self, direction: Dim, inputs: View) -> None:
        task, hidden = self.task, self.hidden
        size = (self.rows, hidden)
        h = self.hidden_state.window((0, 0), size)
        z, r, g = (t.window((0, 0), size) for t in self.parts)
        b, t, row, _ = inputs.index
        parts = [View(inputs.base, (b, t, row, hidden * k + axis(1)), size) for k in range(3)]
        x = [self.paths.vector_input(part, (self.block, hidden), F32) for part in parts]
        product = [self.products.window((0, hidden * k), size) for k in range(3)]
        boundary = 2 * hidden
        self._multiply(direction, h, 0, self.n_panels if self.reset_after else -(-boundary // self.panel))
        for gate, k in ((z, 0), (r, 1)):
            task.add(gate, product[k], x[k])
            self.activate("sigmoid", gate, gate)
        if self.reset_after:
            task.mul(g, r, product[2])
        else:
            task.mul(g, r, h)
            self._multiply(direction, g, boundary // self.panel, self.n_panels)
            task.mov(g, product[2])
        task.add(g, g, x[2])
        self.activate("tanh", g, g)
        # h = (1 - z) * g + z * h
        task.sub(h, h, g)
        task.fma(h, z, h, g)
