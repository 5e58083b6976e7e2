"""A kernel image: an object file with the facts that loading and binding need of its program, as one run of bytes.

Image = length of the facts (4 bytes, little endian), the facts as JSON, the object file. Facts come from the very
lowering that the object came from; whoever trusts an image trusts both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from codegen.tile.arithmetic import Bounds
from codegen.tile.ir import ROLES, Param, Program
from tensor_types.dim_text import parse
from tensor_types.dims import Dim, product


@dataclass(frozen=True)
class KernelFacts:
    """What binding has to know of a program: (role, bytes) of parameters, (name, low, high) of dims, the grid, and the
    bounds under which the verifier's proof holds."""

    symbol: str
    scratch_bytes: int
    params: tuple[tuple[str, Dim], ...]
    dims: tuple[tuple[str, int, int | None], ...]
    grid: Dim
    bounds: Bounds


def facts_of(program: Program, bounds: Bounds, symbol: str, scratch_bytes: int) -> KernelFacts:
    """The facts of a program: the verifier's bounds, and the function that it was lowered to with so much scratch."""
    return KernelFacts(
        symbol,
        scratch_bytes,
        tuple((p.role, param_bytes(p)) for p in program.params),
        tuple((d.name, d.low, d.high) for d in program.dims),
        program.grid_size(),
        bounds,
    )


def pack_image(facts: KernelFacts, code: bytes) -> bytes:
    """The image of an object file and its facts; equal arguments give equal bytes."""
    params = [[role, str(size)] for role, size in facts.params]
    bounds = [str(facts.bounds.size), str(facts.bounds.work)]
    text = json.dumps([facts.symbol, facts.scratch_bytes, params, facts.dims, str(facts.grid), bounds]).encode()
    return len(text).to_bytes(4, "little") + text + code


def unpack_image(image: bytes) -> tuple[KernelFacts, bytes]:
    """Facts and object file of an image. ValueError if it is none."""
    end = 4 + int.from_bytes(image[:4], "little")
    if not 4 < end < len(image):
        raise ValueError("not a kernel image")
    try:
        symbol, scratch, params, dims, grid, (size, work) = json.loads(image[4:end])
        facts = KernelFacts(
            symbol,
            scratch,
            tuple((r, parse(extent)) for r, extent in params),
            tuple((name, low, high) for name, low, high in dims),
            parse(grid),
            Bounds(parse(size), parse(work)),
        )
    except (AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"not a kernel image: {error}") from error
    if not _is_sound(facts):
        raise ValueError("not a kernel image: facts of another kind")
    return facts, image[end:]


def _is_sound(facts: KernelFacts) -> bool:
    scalars = isinstance(facts.symbol, str) and isinstance(facts.scratch_bytes, int) and facts.scratch_bytes >= 0
    dims = all(
        isinstance(n, str) and isinstance(low, int) and (high is None or isinstance(high, int))
        for n, low, high in facts.dims
    )
    return scalars and dims and all(role in ROLES for role, _ in facts.params)


def param_bytes(param: Param) -> Dim:
    """Bytes from the first to the last element of a parameter."""
    if param.strides is None:
        return product(param.shape) * param.dtype.bytes
    last: Dim = 0
    for extent, stride in zip(param.shape, param.strides, strict=True):
        last = last + (extent - 1) * stride
    return (last + 1) * param.dtype.bytes
