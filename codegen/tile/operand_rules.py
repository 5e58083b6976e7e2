"""Shape, dtype and attribute rules of each instruction class: what can be said without bounds, roles or a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codegen.tile.instructions import CODE_BITS, INSTRUCTIONS
from codegen.tile.ir import Imm, Instr, View, linear_index
from tensor_types.dims import Dim, Expr
from tensor_types.dtypes import BF16, BOOL, F16, F32, I32, U32, DType

FLOAT, INTEGER, NUMBER, BITS, ANY = "float", "integer", "number", "bits", "any"

_KINDS: dict[str, str] = {
    **dict.fromkeys(("TABS", "TNEG", "TRELU", "TSIGN", "TADD", "TSUB", "TMUL", "TDIV", "TREM", "TFMOD"), NUMBER),
    **dict.fromkeys(("TMAX", "TMIN", "TFMA", "TROWSUM", "TROWPROD", "TROWMAX", "TROWMIN"), NUMBER),
    **dict.fromkeys(("TROWARGMAX", "TROWARGMIN", "TCUMSUM"), NUMBER),
    **dict.fromkeys(("TEXP", "TEXP2", "TLOG", "TSQRT", "TRSQRT", "TRECIP", "TTANH", "TSIGMOID", "TERF"), FLOAT),
    **dict.fromkeys(("TSIN", "TCOS", "TFLOOR", "TCEIL", "TROUND", "TTRUNC", "TISNAN", "TISINF", "TPOW"), FLOAT),
    **dict.fromkeys(("TNOT", "TAND", "TOR", "TXOR"), BITS),
    **dict.fromkeys(("TSHL", "TSHR"), INTEGER),
}
_GIVES_BOOL = ("TCMP", "TISNAN", "TISINF")
_CONVERTS = ("TCVT", "TSTORE", "TMOV")
ENGINES = ("MTE1", "MTE2", "MTE3", "M", "V", "FIX", "S")


@dataclass(frozen=True)
class Rules:
    """Checks one instruction; `dtype` gives the dtype of a base, `equal` decides equality of extents.

    Each check returns the reason of a refusal or None.
    """

    dtype: Callable[[str], DType]
    equal: Callable[[Dim, Dim], bool]

    def check(self, instr: Instr) -> str | None:
        """Why the instruction is malformed, or None."""
        declared = INSTRUCTIONS.get(instr.op)
        if declared is None:
            return "unknown instruction"
        if len(instr.srcs) != declared.sources:
            return f"takes {declared.sources} sources, has {len(instr.srcs)}"
        given = [name for name, _ in instr.attrs]
        if unknown := [name for name in given if name not in declared.attrs]:
            return f"has no attribute {unknown[0]}"
        if len(set(given)) != len(given):
            return "an attribute is given twice"
        check: Callable[[Instr], str | None] = getattr(self, f"_{declared.kind}")
        return check(instr)

    def _same_shape(self, instr: Instr, *views: View) -> str | None:
        for view in views:
            if len(view.shape) != len(instr.dst.shape) or not all(map(self.equal, view.shape, instr.dst.shape)):
                return f"{view.base} has extents {_text(view)}, the destination {_text(instr.dst)}"
        return None

    def _kind(self, instr: Instr, dtype: DType) -> str | None:
        wanted = _KINDS.get(instr.op, ANY)
        fits = {
            FLOAT: dtype.is_float,
            INTEGER: dtype.is_integer,
            NUMBER: dtype.is_float or dtype.is_integer,
            BITS: dtype.is_integer or dtype.kind == "bool",
            ANY: dtype.kind in ("float", "int", "uint", "bool"),
        }[wanted]
        return None if fits else f"takes {wanted} operands, not {dtype}"

    def _flags(self, instr: Instr, *names: str) -> str | None:
        for name in names:
            if instr.attr(name, 0) not in (0, 1):
                return f"{name} is 0 or 1"
        return None

    def _move(self, instr: Instr) -> str | None:
        source = instr.srcs[0]
        dst = self.dtype(instr.dst.base)
        if (instr.op == "TEXPANDS") != isinstance(source, Imm):
            return "TEXPANDS takes an immediate, other moves a view"
        if isinstance(source, Imm):
            if isinstance(source.value, Expr) and not dst.is_integer:
                return f"a size is an integer, not {dst}"
            return self._kind(instr, dst)
        pad = instr.attr("pad")
        if pad is not None and not isinstance(pad, int | float):
            return "pad is a number"
        if self.dtype(source.base) != dst and instr.op not in _CONVERTS:
            return f"moves {self.dtype(source.base)} into {dst}; only {', '.join(_CONVERTS)} convert"
        return self._same_shape(instr, source) or self._kind(instr, dst)

    def _elementwise(self, instr: Instr) -> str | None:
        if any(isinstance(s, Imm) and isinstance(s.value, Expr) for s in instr.srcs):
            return "only TEXPANDS takes a size as its number"
        views = [s for s in instr.srcs if isinstance(s, View)]
        if wrong := self._same_shape(instr, *views):
            return wrong
        dst = self.dtype(instr.dst.base)
        values = views
        if instr.op == "TSEL":
            condition = instr.srcs[0]
            if not isinstance(condition, View) or self.dtype(condition.base) != BOOL:
                return "the first source is a bool view"
            values = [s for s in instr.srcs[1:] if isinstance(s, View)]
        if instr.op == "TCMP" and instr.attr("mode") not in ("eq", "ne", "lt", "le", "gt", "ge"):
            return "mode is one of eq ne lt le gt ge"
        if instr.op == "TCVT" and (wrong := self._flags(instr, "round", "sat")):
            return wrong
        if not views and instr.op in _GIVES_BOOL:
            return "needs a view among its sources: immediates have no dtype of their own"
        common = self.dtype(values[0].base) if values else dst
        for view in values:
            if self.dtype(view.base) != common:
                return f"sources disagree in dtype: {common} and {self.dtype(view.base)}"
        if instr.op != "TCVT":
            result = BOOL if instr.op in _GIVES_BOOL else common
            if dst != result:
                return f"gives {result}, the destination holds {dst}"
        return self._kind(instr, common) or self._kind(instr, dst if instr.op == "TCVT" else common)

    def _reduce(self, instr: Instr) -> str | None:
        source = instr.srcs[0]
        if not isinstance(source, View):
            return "reduces a view"
        if wrong := self._same_shape(instr, source):
            return wrong
        axes, rank = instr.attr("axes"), len(source.shape)
        if not isinstance(axes, tuple) or not axes or len(set(axes)) != len(axes) or not set(axes) <= set(range(rank)):
            return f"axes are distinct numbers below {rank}"
        argument = instr.op in ("TROWARGMAX", "TROWARGMIN")
        if argument and len(axes) != 1:
            return "takes one axis"
        steps = [linear_index(i, rank)[1] for i in instr.dst.index]
        if any(step[k] != 0 for step in steps for k in axes):
            return "a reduced axis occurs in the destination's index"
        dst, src = self.dtype(instr.dst.base), self.dtype(source.base)
        if argument and not dst.is_integer:
            return "gives integers"
        if not argument and dst != src:
            return f"reduces {src} into {dst}"
        return self._kind(instr, src) or self._flags(instr, "acc", "nan", "last")

    def _scan(self, instr: Instr) -> str | None:
        source = instr.srcs[0]
        if not isinstance(source, View):
            return "scans a view"
        if self.dtype(source.base) != self.dtype(instr.dst.base):
            return "source and destination disagree in dtype"
        return (
            self._same_shape(instr, source)
            or self._axis(instr, len(source.shape))
            or self._kind(instr, self.dtype(source.base))
            or self._flags(instr, "exclusive", "reverse")
        )

    def _axis(self, instr: Instr, rank: int) -> str | None:
        axis = instr.attr("axis")
        if not isinstance(axis, int) or not 0 <= axis < rank:
            return f"axis is a number below {rank}"
        return None

    def _matmul(self, instr: Instr) -> str | None:
        a, b = instr.srcs
        if not isinstance(a, View) or not isinstance(b, View):
            return "multiplies views"
        nm, nk = instr.attr("nm", 1), instr.attr("nk", 1)
        if not isinstance(nm, int) or not isinstance(nk, int) or nm < 0 or nk < 1:
            return "nm and nk count axes"
        bits = instr.attr("bits", 0)
        if bits not in (0, *CODE_BITS):
            return f"bits is one of {CODE_BITS}"
        assert isinstance(bits, int)
        extents = (*b.shape[:-1], 32 // bits, b.shape[-1]) if bits else b.shape
        if (len(a.shape), len(extents), len(instr.dst.shape)) != (nm + nk, nk + 1, nm + 1):
            return f"ranks of dst, a and b are not {nm + 1}, {nm + nk} and {nk + 1 - bool(bits)}"
        pairs = [
            *zip(a.shape[:nm], instr.dst.shape, strict=False),
            *zip(a.shape[nm:], extents, strict=False),
            (b.shape[-1], instr.dst.shape[-1]),
        ]
        if not all(self.equal(x, y) for x, y in pairs):
            return f"extents of {_text(a)} @ {_text(b)} do not give {_text(instr.dst)}"
        left, right, dst = self.dtype(a.base), self.dtype(b.base), self.dtype(instr.dst.base)
        if not _multiplies(left, right, bool(bits)):
            return f"multiplies {left} by {right}" + (f" of {bits}-bit codes" if bits else "")
        wanted = F32 if left.is_float and left.bits < 64 else I32 if left.bits == 8 else left
        return None if dst == wanted else f"accumulates {left} in {wanted}, the destination holds {dst}"

    def _indexed(self, instr: Instr) -> str | None:
        data, index = instr.srcs
        if not isinstance(data, View) or not isinstance(index, View):
            return "takes views"
        near, far = (instr.dst, data) if instr.op == "TGATHER" else (data, instr.dst)
        if wrong := self._axis(instr, len(near.shape)):
            return wrong
        axis = instr.attr("axis")
        if len(index.shape) != len(near.shape) or not all(map(self.equal, index.shape, near.shape)):
            return f"indices have extents {_text(index)}, what they place {_text(near)}"
        if len(far.shape) != len(near.shape) or not all(
            k == axis or self.equal(x, y) for k, (x, y) in enumerate(zip(far.shape, near.shape, strict=True))
        ):
            return f"{far.base} may differ from the others on axis {axis} only"
        if self.dtype(data.base) != self.dtype(instr.dst.base):
            return "source and destination disagree in dtype"
        if not self.dtype(index.base).is_integer:
            return "indices are integers"
        reduce = instr.attr("reduce", "none")
        if reduce not in ("none", "add", "mul", "max", "min"):
            return "reduce is one of none add mul max min"
        if reduce != "none" and self.dtype(data.base).kind == "bool":
            return "does not combine bool"
        return self._kind(instr, self.dtype(data.base)) or self._flags(instr, "wrap")

    def _hint(self, instr: Instr) -> str | None:
        return None

    def _sync(self, instr: Instr) -> str | None:
        if instr.attr("from") not in ENGINES or instr.attr("to") not in ENGINES:
            return f"from and to are engines: {' '.join(ENGINES)}"
        return None


def _multiplies(left: DType, right: DType, words: bool) -> bool:
    """Whether there are products of these two dtypes; with `words` the right one holds codes."""
    floats = left.is_float and left.bits in (16, 32)
    eight = left.is_integer and left.bits == 8
    if words:
        return right == U32 and (floats or eight)
    bytes_ = right.is_integer and right.bits == 8
    narrower = floats and (bytes_ or (left == F32 and right in (F16, BF16)))
    return left == right or (eight and bytes_) or narrower


def _text(view: View) -> str:
    return "{" + ", ".join(map(str, view.shape)) + "}"
