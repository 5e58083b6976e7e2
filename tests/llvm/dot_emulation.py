"""Dot product instructions without the hardware: in a module's text, their intrinsics become plain LLVM functions.

The functions follow the operations in the manuals of Intel and Arm. What is left is code that any processor runs, so
that host classes which this machine does not have are tested by numbers, not by their text alone.
"""

from __future__ import annotations

import re

from codegen.llvm.text import Function, module_text

_CALL = re.compile(
    r"@llvm\.(x86\.avx512\.vpdpbusd\.(?:256|512)|x86\.avx512\.pmaddw\.d\.512|x86\.avx512bf16\.dpbf16ps\.(?:256|512)|"
    r"aarch64\.neon\.(?:sdot|udot|usdot)\.v4i32\.v16i8|aarch64\.neon\.bfdot\.v4f32\.v8bf16)(?![\w.])"
)
_SIGNS = {"sdot": "ss", "udot": "uu", "usdot": "us", "vpdpbusd": "us"}


def emulate(text: str) -> str:
    """The module with the intrinsics replaced; a module without any stays as it is."""
    used = sorted(set(_CALL.findall(text)))
    if not used:
        return text
    lines = [line for line in text.splitlines() if not (line.startswith("declare") and _CALL.search(line))]
    declared = {line for line in lines if line.startswith("declare")}
    added = module_text([_emulated(name) for name in used]).splitlines()
    kept = _CALL.sub(r"@emulated.\1", "\n".join(lines))
    return "\n".join([kept, *(line for line in added if line not in declared), ""])


def _emulated(name: str) -> Function:
    operation = next(part for part in name.split(".") if "dot" in part or "dp" in part or "pmadd" in part)
    lanes = 16 if name.endswith("512") else 8 if name.endswith("256") else 4
    if operation == "pmaddw":
        return _words(name, lanes)
    return _numbers(name, lanes) if "bf" in operation else _bytes(name, lanes, _SIGNS[operation])


def _function(name: str, result: str, *params: str) -> Function:
    return Function(f"emulated.{name}", params, result, "nounwind")


def _bytes(name: str, lanes: int, signs: str) -> Function:
    t = f"<{lanes} x i32>"
    given = t if name.startswith("x86") else f"<{4 * lanes} x i8>"
    fn = _function(name, t, f"{t} %c", f"{given} %a", f"{given} %b")
    total, words = "%c", [fn.emit(f"bitcast {given} {x} to {t}") for x in ("%a", "%b")]
    for byte in range(4):
        factors = []
        for x, sign in zip(words, signs, strict=True):
            high = fn.emit(f"shl {t} {x}, splat (i32 {24 - 8 * byte})")
            factors.append(fn.emit(f"{'ashr' if sign == 's' else 'lshr'} {t} {high}, splat (i32 24)"))
        total = fn.emit(f"add {t} {total}, {fn.emit(f'mul {t} {factors[0]}, {factors[1]}')}")
    fn.do(f"ret {t} {total}")
    return fn


def _words(name: str, lanes: int) -> Function:
    t, given = f"<{lanes} x i32>", f"<{2 * lanes} x i16>"
    fn = _function(name, t, f"{given} %a", f"{given} %b")
    words = [fn.emit(f"bitcast {given} {x} to {t}") for x in ("%a", "%b")]
    products = []
    for shift in (16, 0):
        high = [fn.emit(f"shl {t} {x}, splat (i32 {shift})") for x in words]
        low = [fn.emit(f"ashr {t} {x}, splat (i32 16)") for x in high]
        products.append(fn.emit(f"mul {t} {low[0]}, {low[1]}"))
    fn.do(f"ret {t} {fn.emit(f'add {t} {products[0]}, {products[1]}')}")
    return fn


def _numbers(name: str, lanes: int) -> Function:
    t, words, given = f"<{lanes} x float>", f"<{lanes} x i32>", f"<{2 * lanes} x bfloat>"
    fn = _function(name, t, f"{t} %c", f"{given} %a", f"{given} %b")
    bits = [fn.emit(f"bitcast {given} {x} to {words}") for x in ("%a", "%b")]
    total = "%c"
    for change in ("and {} {}, splat (i32 -65536)", "shl {} {}, splat (i32 16)"):
        factors = [fn.emit(f"bitcast {words} {fn.emit(change.format(words, x))} to {t}") for x in bits]
        total = fn.call(t, f"llvm.fma.v{lanes}f32", *(f"{t} {x}" for x in (*factors, total)))
    fn.do(f"ret {t} {total}")
    return fn
