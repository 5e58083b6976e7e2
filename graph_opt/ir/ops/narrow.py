"""Products with weights of 2, 4 or 8 bits, which only the compiler makes: codes stay codes until multiplied."""

from __future__ import annotations

from graph_opt.ir.ops.registry import INT, Inference, declare
from tensor_types.dims import ceildiv
from tensor_types.dtypes import F32, I8, U8
from tensor_types.dtypes import dtype as dtype_of


def _block_matmul(ctx: Inference) -> None:
    """A [.., K] by (B - zeros) * scales gives [.., N]; codes B [K, N], scales and zeros [ceil(K/block_size), N].

    A block is `block_size` consecutive k of a column, 0 for all of them. Zeros are codes or numbers, absent ones 0.
    A is float; or bytes with A_scales and, where there are zeros, A_sums f32 [.., parts], as QuantizeBlocks gives them,
    whose parts of A divide the blocks: i8 counts as A * A_scales, u8 with A_lows as A * A_scales + A_lows. `bytes` 1
    allows a float A to be quantised in such a way, to i8. `result_dtype` names the result's dtype, '' is A's.
    """
    a, b, block = ctx.shape(0), ctx.shape(1), int(ctx.attr("block_size"))
    wanted = str(ctx.attr("result_dtype"))
    result = dtype_of(wanted) if wanted else ctx.dtype(0)
    quantised = ctx.dtype(0).is_integer
    if not ctx.dtype(1).is_integer or ctx.dtype(1).bits > 8 or block < 0 or not result.is_float:
        raise ctx.error("multiplies numbers by codes of 8 bits at most")
    if quantised != ctx.has(4) or quantised < ctx.has(5) or (quantised and ctx.has(3) and not ctx.has(5)):
        raise ctx.error("scales of A belong to codes, its sums to zeros")
    if ctx.has(6) != (ctx.dtype(0) == U8):
        raise ctx.error("lows of A belong to unsigned codes")
    if b is None or a is None:
        return ctx.set(0, result, None)
    if len(b) != 2 or not a:
        raise ctx.error("codes are a matrix [K, N]")
    ctx.agreed((a[-1], b[0]))
    blocks = ceildiv(b[0], block) if block else 1
    for index in (2, 3):
        if ctx.has(index) and ctx.shape(index) not in (None, (blocks, b[1])):
            raise ctx.error(f"input {index} is {list(ctx.shape(index) or ())}, not {[blocks, b[1]]}")
    ctx.set(0, result, (*a[:-1], b[1]))


def _quantize_blocks(ctx: Inference) -> None:
    """x [.., K] as codes [.., K] with f32 [.., K/block_size] each: the scale and the sum of the block's codes; codes
    are rounded to the nearest, ties to even. Without `lows` codes are i8, x / scale with scale = largest |x| / 127.
    With them u8, (x - low) / scale with scale = (largest x - low) / 255, and low, the least x, is the fourth result."""
    shape, block = ctx.shape(), int(ctx.attr("block_size"))
    if not ctx.dtype().is_float or block < 1:
        raise ctx.error("quantises numbers in blocks of 1 or more")
    if shape is not None and (not shape or not isinstance(shape[-1], int) or shape[-1] % block):
        raise ctx.error(f"the last axis is no multiple of {block}")
    each = None if shape is None else (*shape[:-1], ceildiv(shape[-1], block))
    lows = ctx.attr("lows") == 1
    ctx.set(0, U8 if lows else I8, shape)
    for index in range(1, 4 if lows else 3):
        ctx.set(index, F32, each)


declare(
    "BlockMatMul", "A B scales zeros? A_scales? A_sums? A_lows?", "cube", _block_matmul,
    {"block_size": 0, "bytes": 0, "result_dtype": ""},
)  # fmt: skip
declare("QuantizeBlocks", "x", "reduction", _quantize_blocks, {"block_size": INT, "lows": 0})
