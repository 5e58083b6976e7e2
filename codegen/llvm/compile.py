"""From a serialised tile program to a kernel image for one host class, in this process: one lowering a program."""

from __future__ import annotations

import sys
from functools import lru_cache

import llvmlite.binding as llvm

from codegen.llvm.bounds_checks import code_target
from codegen.llvm.detect import machine_architecture
from codegen.llvm.kernel_image import facts_of, pack_image
from codegen.llvm.lower import lowering
from codegen.llvm.sound_program import read_program
from codegen.targets.hosts import HostClass, host_class

_OPT_LEVEL = 2
"""Of the machine code generator. No IR passes run: the emitter writes the shape it wants (measured: same speed)."""


def llvm_triple(host: HostClass) -> str:
    """The triple of the class on this operating system; ELF where the class is not this machine's."""
    machine = machine_architecture()
    if machine == host.architecture and sys.platform == "darwin":
        return f"{host.architecture}-apple-darwin"
    if machine == host.architecture and sys.platform == "win32":
        return f"{host.architecture}-pc-windows-msvc"
    return f"{host.architecture}-unknown-linux-gnu"


_OPTIONS = ("-disable-lsr",)
"""Loop strength reduction takes three fifths of the time of code generation, and the emitter has done its work: loops
carry pointers and address by displacement. Without it kernels run as fast (0.98 to 1.00 of the time)."""


@lru_cache(maxsize=1)
def _set_options() -> None:
    """Options of LLVM belong to the process, and each may be given once."""
    for option in _OPTIONS:
        llvm.set_option("openatc", option)


@lru_cache(maxsize=8)
def _machine(host: HostClass) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    _set_options()
    # Large code model: the linker of LLJIT places code and constants independently, and in a process with gigabytes of
    # mappings they may lie further apart than a 32-bit displacement reaches; LLVM then ends the process.
    return llvm.Target.from_triple(llvm_triple(host)).create_target_machine(
        cpu=host.cpu, features=host.features, opt=_OPT_LEVEL, reloc="static", codemodel="large", jit=False
    )


def _parsed(text: str, host: HostClass) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple = llvm_triple(host)
    module.data_layout = str(_machine(host).target_data)
    return module


def compile_text(text: str, target: object) -> bytes:
    """An object file of LLVM module text."""
    host = host_class(target)
    return bytes(_machine(host).emit_object(_parsed(text, host)))


def assembly(text: str, target: object) -> str:
    """The machine code of LLVM module text as assembly."""
    host = host_class(target)
    return str(_machine(host).emit_assembly(_parsed(text, host)))


def compile_program(serialised: bytes, target: object) -> bytes:
    """The kernel image (`kernel_image`) of a serialised tile program for a host class: a `Target` or its name, behind
    which CHECKED may stand; the code then checks every access.

    InvalidModel or VerifyError if the text is no sound program: nothing else is ever compiled.
    """
    host, checked = code_target(target)
    program, bounds = read_program(serialised.decode("utf-8", "replace"), host.name)
    lowered = lowering(program, host.name, checked)
    code = compile_text(lowered.text(), host.name)
    return pack_image(facts_of(program, bounds, lowered.fn.name, lowered.storage.scratch_bytes), code)
