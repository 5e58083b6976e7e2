"""AMX without the hardware: the intrinsics in a module's text become calls of plain LLVM functions, appended to it.

The functions follow the operations in Intel's Software Developer's Manual on state in memory: eight tiles and their
configuration. bf16 denormals and denormal results are zero, the even and odd numbers of each pair are two chains of
fused multiply-adds, whose sum is added to the accumulator. An instruction that the processor refuses (a tile without
configuration, sizes that do not fit) leaves a tile of ones, which no product of small numbers equals.

One state serves a module: its kernels must not run in two threads at once.
"""

from __future__ import annotations

import re

from codegen.llvm.text import Function, Value, module_text

_CALL = re.compile(r"@llvm\.x86\.(ldtilecfg|tilerelease|tilezero|tileloadd64|tilestored64|tdpbf16ps|tdpb[su][su]d)\b")
_STATE = [
    "@amx.tiles = internal global [8 x [16 x [16 x i32]]] zeroinitializer, align 64",
    "@amx.config = internal global [64 x i8] zeroinitializer, align 64",
]
_WORDS, _FLOATS, _BYTES = "<16 x i32>", "<16 x float>", "<64 x i8>"


def emulate(text: str) -> str:
    """The module with AMX intrinsics replaced; a module without any stays as it is."""
    used = sorted(set(_CALL.findall(text)))
    if not used:
        return text
    lines = [line for line in text.splitlines() if not (line.startswith("declare") and _CALL.search(line))]
    declared = {line for line in lines if line.startswith("declare")}
    added = module_text([_emulated(name) for name in used], _STATE).splitlines()
    kept = _CALL.sub(r"@amx.\1", "\n".join(lines))
    return "\n".join([kept, *(line for line in added if line not in declared), ""])


def _emulated(name: str) -> Function:
    if name == "ldtilecfg":
        return _configure()
    if name == "tilerelease":
        fn = _function(name)
        fn.store(_BYTES, "zeroinitializer", "@amx.config")
    elif name == "tilezero":
        fn = _function(name, "i8 %tile")
        tile = _wide(fn, "%tile")
        fn.when(_configured(fn, tile), lambda: _fill(fn, tile, 0), lambda: _fill(fn, tile, -1))
    elif name == "tileloadd64":
        fn = _function(name, "i8 %tile", "ptr %from", "i64 %stride")
        _load(fn, _wide(fn, "%tile"))
    elif name == "tilestored64":
        fn = _function(name, "i8 %tile", "ptr %to", "i64 %stride")
        _store(fn, _wide(fn, "%tile"))
    else:
        fn = _function(name, "i8 %d", "i8 %a", "i8 %b")
        _multiply(fn, name)
    fn.do("ret void")
    return fn


def _function(name: str, *params: str) -> Function:
    return Function(f"amx.{name}", params, "void", "nounwind")


def _wide(fn: Function, byte: str) -> str:
    return fn.emit(f"zext i8 {byte} to i64")


def _size(fn: Function, tile: str, first: int, scale: int) -> str:
    at = fn.add(fn.mul(tile, scale), first)
    return _wide(fn, fn.load("i8", fn.offset("@amx.config", at, "i8")))


def _rows(fn: Function, tile: str) -> str:
    return _size(fn, tile, 48, 1)


def _width(fn: Function, tile: str) -> str:
    """Bytes of a row."""
    return _size(fn, tile, 16, 2)


def _configured(fn: Function, tile: str) -> str:
    sizes = fn.emit(f"mul i64 {_rows(fn, tile)}, {_width(fn, tile)}")
    return fn.emit(f"icmp ne i64 {sizes}, 0")


def _row(fn: Function, tile: str, row: Value) -> str:
    return fn.offset("@amx.tiles", fn.add(fn.mul(tile, 256), fn.mul(row, 16)), "i32")


def _fill(fn: Function, tile: str, value: int) -> None:
    with fn.loop(16) as row:
        fn.store(_WORDS, f"splat (i32 {value})", _row(fn, tile, row))


def _inside(fn: Function, width: str) -> str:
    """The mask operand of the bytes below `width`."""
    numbers = ", ".join(f"i64 {i}" for i in range(64))
    limit = fn.splat(width, "i64", 64)
    return f"<64 x i1> {fn.emit(f'icmp ult <64 x i64> <{numbers}>, {limit}')}"


def _configure() -> Function:
    """Palette 1 with tiles of at most 16 rows of 64 bytes; anything else configures nothing."""
    fn = _function("ldtilecfg", "ptr %from")
    fn.store(_BYTES, fn.load(_BYTES, "%from"), "@amx.config")
    palette = fn.load("i8", "@amx.config")
    good = fn.emit(f"icmp eq i8 {palette}, 1")
    for tile in range(8):
        for size, most in ((_rows(fn, str(tile)), 16), (_width(fn, str(tile)), 64)):
            good = fn.emit(f"and i1 {good}, {fn.emit(f'icmp ule i64 {size}, {most}')}")
        _fill(fn, str(tile), 0)
    kept = fn.emit(f"select i1 {good}, {_BYTES} {fn.load(_BYTES, '@amx.config')}, {_BYTES} zeroinitializer")
    fn.store(_BYTES, kept, "@amx.config")
    fn.do("ret void")
    return fn


def _load(fn: Function, tile: str) -> None:
    _fill(fn, tile, 0)
    mask = _inside(fn, _width(fn, tile))

    def load() -> None:
        with fn.loop(_rows(fn, tile)) as row:
            source = fn.offset("%from", fn.mul(row, "%stride"), "i8")
            value = fn.call(_BYTES, "llvm.masked.load.v64i8.p0", f"ptr align 1 {source}", mask,
                            f"{_BYTES} zeroinitializer")  # fmt: skip
            fn.store(_BYTES, value, _row(fn, tile, row))

    fn.when(_configured(fn, tile), load, lambda: _fill(fn, tile, -1))


def _store(fn: Function, tile: str) -> None:
    """A tile without configuration is stored as one row of ones."""
    configured = _configured(fn, tile)
    rows = fn.emit(f"select i1 {configured}, i64 {_rows(fn, tile)}, i64 1")
    mask = _inside(fn, fn.emit(f"select i1 {configured}, i64 {_width(fn, tile)}, i64 64"))
    with fn.loop(rows) as row:
        held = fn.load(_BYTES, _row(fn, tile, row))
        value = fn.emit(f"select i1 {configured}, {_BYTES} {held}, {_BYTES} splat (i8 -1)")
        place = fn.offset("%to", fn.mul(row, "%stride"), "i8")
        fn.call("void", "llvm.masked.store.v64i8.p0", f"{_BYTES} {value}", f"ptr align 1 {place}", mask)


def _multiply(fn: Function, name: str) -> None:
    d, a, b = (_wide(fn, f"%{x}") for x in "dab")
    width_a = _width(fn, a)
    depth = fn.emit(f"lshr i64 {width_a}, 2")
    pairs = [(_rows(fn, d), _rows(fn, a)), (_width(fn, d), _width(fn, b)), (_rows(fn, b), depth)]
    checks = [fn.emit(f"icmp eq i64 {x}, {y}") for x, y in pairs]
    checks += [fn.emit(f"icmp ne i64 {x}, {y}") for x, y in ((d, a), (d, b), (a, b))]
    checks += [_configured(fn, t) for t in (d, a, b)]
    legal = checks[0]
    for check in checks[1:]:
        legal = fn.emit(f"and i1 {legal}, {check}")
    row_of = _bf16_row if name == "tdpbf16ps" else _byte_row

    def multiply() -> None:
        with fn.loop(_rows(fn, d)) as row:
            held = fn.load(_WORDS, _row(fn, d, row))
            total = row_of(fn, name, held, _row(fn, a, row), b, depth)
            fn.store(_WORDS, total, _row(fn, d, row))

    fn.when(legal, multiply, lambda: _fill(fn, d, -1))


def _bf16_row(fn: Function, name: str, held: str, a: str, b: str, depth: str) -> str:
    initial = ["zeroinitializer"] * 2
    with fn.carried_loop(depth, [_FLOATS] * 2, initial) as carried:
        left = fn.splat(fn.load("i32", fn.offset(a, carried.index, "i32")), "i32", 16)
        right = fn.load(_WORDS, _row(fn, b, carried.index))
        for half, chain in enumerate(carried.values):
            factors = [_flushed(fn, _half(fn, words, half)) for words in (left, right)]
            typed = [f"{_FLOATS} {x}" for x in (*factors, chain)]
            carried.next.append(_flushed(fn, fn.call(_FLOATS, "llvm.fma.v16f32", *typed)))
    even, odd = carried.results
    both = _flushed(fn, fn.emit(f"fadd {_FLOATS} {even}, {odd}"))
    before = _flushed(fn, fn.emit(f"bitcast {_WORDS} {held} to {_FLOATS}"))
    total = _flushed(fn, fn.emit(f"fadd {_FLOATS} {before}, {both}"))
    return fn.emit(f"bitcast {_FLOATS} {total} to {_WORDS}")


def _half(fn: Function, words: str, half: int) -> str:
    """The lower (0) or upper (1) bf16 number of each word as f32."""
    bits = fn.emit(f"and {_WORDS} {words}, splat (i32 -65536)" if half else f"shl {_WORDS} {words}, splat (i32 16)")
    return fn.emit(f"bitcast {_WORDS} {bits} to {_FLOATS}")


def _flushed(fn: Function, value: str) -> str:
    """Denormal numbers as zero of their sign."""
    bits = fn.emit(f"bitcast {_FLOATS} {value} to {_WORDS}")
    exponent = fn.emit(f"and {_WORDS} {bits}, splat (i32 {0x7F800000})")
    small = fn.emit(f"icmp eq {_WORDS} {exponent}, zeroinitializer")
    sign = fn.emit(f"and {_WORDS} {bits}, splat (i32 {-(1 << 31)})")
    chosen = fn.emit(f"select <16 x i1> {small}, {_WORDS} {sign}, {_WORDS} {bits}")
    return fn.emit(f"bitcast {_WORDS} {chosen} to {_FLOATS}")


def _byte_row(fn: Function, name: str, held: str, a: str, b: str, depth: str) -> str:
    signs = name[len("tdpb") : -1]
    with fn.carried_loop(depth, [_WORDS], [held]) as carried:
        left = fn.splat(fn.load("i32", fn.offset(a, carried.index, "i32")), "i32", 16)
        right = fn.load(_WORDS, _row(fn, b, carried.index))
        (total,) = carried.values
        for byte in range(4):
            factors = []
            for words, sign in zip((left, right), signs, strict=True):
                high = fn.emit(f"shl {_WORDS} {words}, splat (i32 {24 - 8 * byte})")
                factors.append(fn.emit(f"{'ashr' if sign == 's' else 'lshr'} {_WORDS} {high}, splat (i32 24)"))
            product = fn.emit(f"mul {_WORDS} {factors[0]}, {factors[1]}")
            total = fn.emit(f"add {_WORDS} {total}, {product}")
        carried.next.append(total)
    return carried.results[0]
