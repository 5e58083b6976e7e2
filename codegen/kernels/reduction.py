"""Reductions and normalisations: reduced axes of any place and number, with element-wise code before and after.

What each operator computes in its passes is here; how the passes run is `reduction_passes`.
"""

from __future__ import annotations

from collections.abc import Callable

from codegen.kernels.attached import store_results
from codegen.kernels.block_emitter import Operand, Words, immediate
from codegen.kernels.near_one import log1p
from codegen.kernels.operands import NotLowerable, shape_of
from codegen.kernels.reduction_passes import ARG, Chunk, ReductionPasses, neutral
from codegen.kernels.tiling import Tiling, first_fit
from codegen.kernels.wide_integers import in_words
from codegen.kernels.wide_reductions import ONE_BY_ONE, position_of_words, reduce_words
from codegen.targets.target import Target
from codegen.tile.ir import Imm, View
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import product
from tensor_types.dtypes import BOOL, I32, I64


def lower_reduction(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node around a reduction; NotLowerable says why there is none."""
    kernel = _Lowering(node, target)
    if any(d == 0 for _, v in kernel.outputs for d in shape_of(v)):
        return []
    if 0 in kernel.full:
        raise NotLowerable("it reduces nothing: the result is a constant or no number")
    return first_fit(kernel.candidates(), lambda chosen: _Lowering(node, target).emit(chosen), tiling)


class _Lowering(ReductionPasses):
    """What operators compute in their passes."""

    of_words = ONE_BY_ONE

    def _emit(self) -> None:
        if self.normalises:
            self._normalise()
            return
        if self.op in ARG:
            result: Operand = self._position()
        else:
            result = self._reduce()
        out = self.anchor.output
        if self.compute != self.dtype and self.op not in ARG:
            result = self.small.apply("TCVT", self.dtype, result)
        if self.op in ARG:
            assert isinstance(result, View)
            if in_words(out.dtype, self.paths.target):
                result = Words(result, Imm(0))  # positions, for which 32 bits are enough
            elif self.task.element_type(result) != out.dtype:
                result = self.small.apply("TCVT", out.dtype, result)
        index, extents = self._kept_index(), self.kept_counts or (1,)
        viewer = self._viewer(index, extents)
        operands = self.epilogue.emit(self.small, self.paths, viewer, {out.name: result}, self.body.outputs)
        store_results(self.paths, self.small, self.outputs, operands, self._viewer(index, extents, "out"))

    def _reduce(self) -> Operand:
        op, small, compute = self.op, self.small, self.compute
        total: Operand
        if in_words(self.dtype, self.paths.target):
            total = reduce_words(self)
            return self._mean_of(total) if op == "ReduceMean" else total
        plain: dict[str, str] = {"ReduceSum": "TROWSUM", "ReduceProd": "TROWPROD", "ReduceMean": "TROWSUM",
                                 "ReduceLogSum": "TROWSUM"}  # fmt: skip
        if op in ("ReduceMax", "ReduceMin"):
            instruction = "TROWMAX" if op == "ReduceMax" else "TROWMIN"
            return self.accumulate(instruction, lambda c: c.x, **({"nan": 1} if self.dtype.is_float else {}))
        if op in plain:
            total = self.accumulate(plain[op], lambda c: c.x)
            if op == "ReduceMean":
                return self._mean_of(total)
            return small.apply("TLOG", compute, total) if op == "ReduceLogSum" else total
        if op == "ReduceL1":
            return self.accumulate("TROWSUM", lambda c: c.emitter.apply("TABS", compute, c.x))
        if op in ("ReduceL2", "ReduceSumSquare"):
            total = self.accumulate("TROWSUM", lambda c: c.emitter.apply("TMUL", compute, c.x, c.x))
            return small.apply("TSQRT", compute, total) if op == "ReduceL2" else total
        largest = self.accumulate("TROWMAX", lambda c: c.x)
        finite = small.apply("TISINF", BOOL, largest)
        shift = small.apply("TSEL", compute, finite, Imm(0.0), largest)
        total = self.accumulate(
            "TROWSUM",
            lambda c: c.emitter.apply("TEXP", compute, c.emitter.apply("TSUB", compute, c.x, self.spread(shift, c))),
        )
        return small.apply("TADD", compute, small.apply("TLOG", compute, total), shift)

    def _mean_of(self, total: Operand) -> Operand:
        if self.compute.is_float:
            return self.small.apply("TMUL", self.compute, total, self.count())
        volume = product(self.space.extents[g] for g in self.reduced)
        if not isinstance(volume, int):
            raise NotLowerable("the mean of integers over a run-time axis")
        return self.small.apply("TDIV", self.compute, total, volume)

    def _position_in_chunks(self) -> View:
        """The first extreme over chunks: one that is better than what came before takes its place."""
        task, maximum = self.task, self.op == "ArgMax"
        best, place, base = self.stat(self.compute), self.stat(I32), self.stat(I32)
        here, at, better = self.stat(self.compute), self.stat(I32), self.stat(BOOL)
        low, high = (neutral("TROWMAX", self.compute), neutral("TROWMIN", self.compute))
        task.expands(best, low if maximum else high)
        task.expands(place, 0)
        task.expands(base, 0)
        last = {"last": 1} if self.anchor.attrs.get("select_last_index") else {}
        (group,) = self.reduced
        with self.passed() as chunk:
            spread = [self.spread(s, chunk) for s in (here, at)]
            task.instr("TROWMAX" if maximum else "TROWMIN", spread[0], chunk.x, axes=(group,))
            task.instr("TROWARGMAX" if maximum else "TROWARGMIN", spread[1], chunk.x, axes=(group,), **last)
            mode = ("g" if maximum else "l") + ("e" if last else "t")
            task.instr("TCMP", better, here, best, mode=mode)
            task.add(at, at, base)
            task.sel(place, better, at, place)
            task.sel(best, better, here, best)
            task.add(base, base, self.pieces[group] or 0)
        return place

    def _position(self) -> View:
        if in_words(self.dtype, self.paths.target):
            return position_of_words(self)
        if not self.whole:
            return self._position_in_chunks()
        out = self.anchor.output.dtype
        if self.paths.explicit:
            out = I32
        stat = self.stat(out if out in (I32, I64) else I64)
        instruction = "TROWARGMAX" if self.op == "ArgMax" else "TROWARGMIN"
        last = {"last": 1} if self.anchor.attrs.get("select_last_index") else {}
        with self.passed() as chunk:
            if not self.reduced:
                self.task.expands(stat, 0)
            else:
                self.task.instr(instruction, self.spread(stat, chunk), chunk.x, axes=tuple(self.reduced), **last)
        return stat

    def _normalise(self) -> None:
        compute, small = self.compute, self.small
        if self.op in ("Softmax", "LogSoftmax"):
            largest = self.accumulate("TROWMAX", lambda c: c.x)

            def below(c: Chunk) -> Operand:
                if "below" not in c.held:
                    c.held["below"] = c.emitter.apply("TSUB", compute, c.x, self.spread(largest, c))
                return c.held["below"]

            def power(c: Chunk) -> Operand:
                if "power" not in c.held:
                    c.held["power"] = c.emitter.apply("TEXP", compute, below(c))
                return c.held["power"]

            if self.op == "Softmax":
                total = self.accumulate("TROWSUM", power)
                scale = small.apply("TRECIP", compute, total)
                self._finish(lambda c: c.emitter.apply("TMUL", compute, power(c), self.spread(scale, c)))
            else:
                log = self._log_of_sum(below, power)
                self._finish(lambda c: c.emitter.apply("TSUB", compute, below(c), self.spread(log, c)))
            return
        epsilon = float(self.anchor.attrs.get("epsilon", 1e-5))  # type: ignore[arg-type]
        inverse = self.count()

        def centred(c: Chunk) -> Operand:
            if self.op == "RMSNormalization":
                return c.x
            if "centred" not in c.held:
                c.held["centred"] = c.emitter.apply("TSUB", compute, c.x, self.spread(mean, c))
            return c.held["centred"]

        if self.op != "RMSNormalization":
            mean = small.apply("TMUL", compute, self.accumulate("TROWSUM", lambda c: c.x), inverse)
        square = self.accumulate("TROWSUM", lambda c: c.emitter.apply("TMUL", compute, centred(c), centred(c)))
        variance = small.apply("TMUL", compute, square, inverse)
        scale = small.apply("TRSQRT", compute, small.apply("TADD", compute, variance, epsilon))
        gain, shift = (None if v is None else self.values.get(v.name, v) for v in (*self.anchor.inputs[1:], None)[:2])

        def parameter(c: Chunk, value: Value) -> Operand:
            if (constant := immediate(value)) is not None:
                return constant
            view = self._input(value, c.index, c.counts, c.emitter.shape)
            return view if value.dtype == compute else c.emitter.apply("TCVT", compute, view)

        def result(c: Chunk) -> Operand:
            y: Operand = c.emitter.apply("TMUL", compute, centred(c), self.spread(scale, c))
            if gain is not None:
                y = c.emitter.apply("TMUL", compute, y, parameter(c, gain))
            return y if shift is None else c.emitter.apply("TADD", compute, y, parameter(c, shift))

        self._finish(result)

    def _log_of_sum(self, below: Callable[[Chunk], Operand], power: Callable[[Chunk], Operand]) -> View:
        """ln of a sum of e**x whose largest x are 0, exact to relative rounding: the first of these is left out."""
        compute, small = self.compute, self.small
        ones, rest = self.stat(compute), self.stat(compute)
        more = {} if self.whole else {"acc": 1}
        for stat in (ones, rest) if more else ():
            self.task.expands(stat, 0.0)
        with self.passed() as c:
            first = c.emitter.apply("TCMP", BOOL, below(c), 0.0, mode="eq")
            for stat, a, b in ((ones, Imm(1.0), Imm(0.0)), (rest, Imm(0.0), power(c))):
                term = c.emitter.apply("TSEL", compute, first, a, b)
                if self.reduced:
                    self.task.instr("TROWSUM", self.spread(stat, c), term, axes=tuple(self.reduced), **more)
                else:
                    self.task.mov(stat, term)
        further = small.apply("TADD", compute, small.apply("TSUB", compute, ones, 1.0), rest)
        return log1p(lambda op, *operands: small.apply(op, compute, *operands), further)

    def _finish(self, term: Callable[[Chunk], Operand]) -> None:
        """The last pass of a normalisation: its result, the epilogue, the stores."""
        with self.passed() as c:
            value = term(c)
            out = self.anchor.output
            if out.dtype != self.compute:
                value = c.emitter.apply("TCVT", out.dtype, value)
            given: dict[str, Operand] = {out.name: value}
            if self.source.name not in self.values and self.compute == self.dtype:
                given[self.source.name] = c.x
            viewer = self._viewer(c.index, c.counts)
            operands = self.epilogue.emit(c.emitter, self.paths, viewer, given, self.body.outputs)
            store_results(self.paths, c.emitter, self.outputs, operands, self._viewer(c.index, c.counts, "out"))
