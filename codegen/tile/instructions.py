"""The instruction set of the tile language, declared once: name, class, operands, attributes and meaning.

Common rules
- All views of an instruction have the same shape unless its class says otherwise; broadcasting is a view in which an
  axis variable does not occur.
- Element-wise instructions take any mix of views and immediates; a source may be the destination view itself (in
  place), any other overlap of destination and sources is refused.
- dtype: sources agree in dtype and the destination has it too, unless stated. Public PTO spelling with immediates
  (TADDS, TMULS ...) is the printed form of the same instruction.
- Every instruction is total. Float arithmetic is IEEE 754 round-to-nearest-even with denormals (the host may flush them
  inside reduced-precision matmul engines only). Integer arithmetic wraps.

Classes
- `move`: TLOAD (tile <- global), TSTORE (global <- tile), TMOV, TEXTRACT (L1 -> L0A/L0B), TTRANS (TMOV with permuted
  views), TEXPANDS (fill with an immediate). TLOAD takes `pad`: source elements outside the base read as that number.
  TSTORE and TMOV may convert dtype as TCVT does.
- `elementwise`: see the table; TCVT converts dtype, TCMP gives `bool`, TSEL takes a bool first.
- `reduce`: dst has the shape of src, the axes in `axes` do not occur in its index; `acc=1` combines with what dst
  holds. The order of combination is free for max/min and for sums fixed by the program, not by thread count.
- `matmul`: dst[m.., n] (+)= sum over k.. of a[m.., k..] * b[k.., n]; `nm` axes m, `nk` axes k, one axis n.
  f32, f16 and bf16 sources accumulate in f32, 8-bit integers in i32. b may be narrower than a float a, 8-bit integers
  or halves: its elements count as the numbers that they are. With `bits` (2 or 4), b holds u32 words of 32/bits
  unsigned codes, which are the innermost k: b lacks that axis, code j lies at bit 8*(j % 4) + bits*(j // 4).
- `indexed`: TGATHER dst[i] = src[i with axis `axis` replaced by idx[i]]; idx has the shape of dst and an integer dtype,
  src may have another extent on that axis; negative indices count from the end when `wrap=1`. An index out of range
  ends the task with status INDEX and its flattened position within the base of idx; TSCATTER is the mirror image:
  dst[.. idx[i] ..] = src[i], with `reduce` none/add/mul/max/min, applied in index order.
- `hint`: TPREFETCH tells that dst, in global memory, is read soon; nothing is read or written.
- `sync`: TSYNC orders engines (`from`, `to`: MTE1 MTE2 MTE3 M V FIX S); no operands beside dst, which it orders.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Declaration:
    """An instruction: `sources` is its number of source operands, `attrs` the names of legal attributes."""

    name: str
    kind: str
    sources: int
    meaning: str
    attrs: tuple[str, ...] = ()
    ulp: float = 0.0
    """Largest difference between interpreter and native code, in units in the last place of f32."""


CODE_BITS = (2, 4)
"""Widths of codes that a product takes in words."""


def code_shifts(bits: int) -> tuple[int, ...]:
    """Where in a u32 word of a product its codes begin, the first k first."""
    return tuple(8 * (j % 4) + bits * (j // 4) for j in range(32 // bits))


STATUS_INDEX = 1
"""Task status: a data-dependent index is out of range."""
STATUS_RANGE = 2
"""Task status: a dim read from a tensor is outside its stated range."""


def _unary(name: str, meaning: str, ulp: float = 0.0) -> Declaration:
    return Declaration(name, "elementwise", 1, meaning, (), ulp)


def _binary(name: str, meaning: str, ulp: float = 0.0) -> Declaration:
    return Declaration(name, "elementwise", 2, meaning, (), ulp)


INSTRUCTIONS: dict[str, Declaration] = {
    d.name: d
    for d in (
        Declaration("TLOAD", "move", 1, "tile <- global memory", ("pad",)),
        Declaration("TSTORE", "move", 1, "global memory <- tile, converting dtype as TCVT"),
        Declaration("TMOV", "move", 1, "copy, converting dtype as TCVT"),
        Declaration("TEXTRACT", "move", 1, "L1 -> L0A or L0B"),
        Declaration("TTRANS", "move", 1, "copy with permuted axes"),
        Declaration("TEXPANDS", "move", 1, "fill with an immediate, or with a size of the program: size(n + 1)"),
        _unary("TABS", "|a|; wraps for the least integer"),
        _unary("TNEG", "-a"),
        _unary("TEXP", "e**a; underflow to 0, overflow to inf, NaN stays", 2),
        _unary("TEXP2", "2**a, as TEXP", 2),
        _unary("TLOG", "ln a; -inf at 0, NaN below", 2),
        _unary("TSQRT", "square root; NaN below 0"),
        _unary("TRSQRT", "1 / square root, two roundings", 1),
        _unary("TRECIP", "1 / a"),
        _unary("TRELU", "0 where a < 0, else a (NaN and -0 stay)"),
        _unary("TTANH", "tanh a", 6),
        _unary("TSIGMOID", "1 / (1 + e**-a)", 4),
        _unary("TERF", "erf a", 8),
        _unary("TSIN", "sin a", 4),
        _unary("TCOS", "cos a", 4),
        _unary("TFLOOR", "round towards -inf"),
        _unary("TCEIL", "round towards +inf"),
        _unary("TROUND", "round to nearest, ties to even"),
        _unary("TTRUNC", "round towards 0"),
        _unary("TSIGN", "-1, 0 or 1; NaN stays"),
        _unary("TNOT", "bitwise not; logical not for bool"),
        _unary("TISNAN", "bool: a is NaN"),
        _unary("TISINF", "bool: a is +-inf"),
        Declaration("TCVT", "elementwise", 1, "convert dtype: to integer truncates towards 0 and saturates (`round=1`: "
                    "to nearest even), NaN gives 0; integer to narrower integer wraps (`sat=1` saturates); to a float "
                    "rounds to nearest even; to bool tests != 0", ("round", "sat")),
        _binary("TADD", "a + b"),
        _binary("TSUB", "a - b"),
        _binary("TMUL", "a * b"),
        _binary("TDIV", "a / b; integers truncate towards 0, x/0 gives 0, least/-1 wraps"),
        _binary("TREM", "a - b*floor(a/b) for integers (x % 0 gives 0), for floats as well (fmod with the sign of b)"),
        _binary("TFMOD", "remainder with the sign of a; x % 0 gives 0 for integers, NaN for floats"),
        _binary("TMAX", "the larger; NaN if either is NaN"),
        _binary("TMIN", "the smaller; NaN if either is NaN"),
        _binary("TPOW", "a**b as C pow", 16),
        _binary("TAND", "bitwise and"),
        _binary("TOR", "bitwise or"),
        _binary("TXOR", "bitwise xor"),
        _binary("TSHL", "a << b; 0 for shifts >= width"),
        _binary("TSHR", "a >> b, arithmetic for signed; sign fill for shifts >= width"),
        Declaration("TCMP", "elementwise", 2, "bool: a `mode` b, mode eq ne lt le gt ge; NaN compares unequal",
                    ("mode",)),
        Declaration("TSEL", "elementwise", 3, "b where the bool a, else c"),
        Declaration("TFMA", "elementwise", 3, "a*b + c, one rounding or two", ulp=1),
        Declaration("TROWSUM", "reduce", 1, "sum over `axes`", ("axes", "acc"), 64),
        Declaration("TROWPROD", "reduce", 1, "product over `axes`", ("axes", "acc"), 64),
        Declaration("TROWMAX", "reduce", 1, "maximum over `axes`; NaN elements are skipped (-inf if none is left) "
                    "unless `nan=1`: then NaN wins", ("axes", "acc", "nan")),
        Declaration("TROWMIN", "reduce", 1, "minimum, as TROWMAX", ("axes", "acc", "nan")),
        Declaration("TROWARGMAX", "reduce", 1, "index of the first maximum over the one axis in `axes`, integer dst; "
                    "`last=1` takes the last", ("axes", "last")),
        Declaration("TROWARGMIN", "reduce", 1, "index of the first minimum, as TROWARGMAX", ("axes", "last")),
        Declaration("TCUMSUM", "scan", 1, "running sum along `axis`; `exclusive`, `reverse`",
                    ("axis", "exclusive", "reverse"), 64),
        Declaration("TMATMUL", "matmul", 2, "dst = a @ b", ("nm", "nk", "bits"), 64),
        Declaration("TMATMUL_ACC", "matmul", 2, "dst += a @ b", ("nm", "nk", "bits"), 64),
        Declaration("TGATHER", "indexed", 2, "dst[i] = src[i, axis := idx[i]]", ("axis", "wrap")),
        Declaration("TSCATTER", "indexed", 2, "dst[i, axis := idx[i]] = src[i]; sources are src, idx",
                    ("axis", "wrap", "reduce")),
        Declaration("TPREFETCH", "hint", 0, "dst is read soon"),
        Declaration("TSYNC", "sync", 0, "order two engines", ("from", "to")),
    )
}  # fmt: skip
