"""Compiles the executor once per process, or takes its object from the user's cache, and binds its entry points."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm

from acl_runtime.executor import native_text as text
from acl_runtime.executor.loader import LoadError, initialize_llvm, load_object
from codegen.cache_folder import cache_folder, is_private, make_private

_CPU = "generic"
_FEATURES = ""
_DIGEST_SIZE = 32


class Native:
    """Entry points of the loaded executor. Each call releases the GIL.

    Runs and pools are passed as addresses of RUN and POOL structs (`native_state`). Results of the start and resume
    functions: the index of an AI CPU task to execute now, `native_text.FINISHED` or `native_text.FAILED`.
    """

    def __init__(self, object_bytes: bytes) -> None:
        self._code = load_object(object_bytes, text.SYMBOLS)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        bind = self._bind
        self.serial_start = bind(text.SERIAL_START, number, pointer)
        self.serial_resume = bind(text.SERIAL_RESUME, number, pointer, number)
        self.parallel_start = bind(text.PARALLEL_START, number, pointer, pointer)
        self.parallel_resume = bind(text.PARALLEL_RESUME, number, pointer, pointer, number)
        self.parallel_abandon = bind(text.PARALLEL_ABANDON, None, pointer, pointer)
        self.stop = bind(text.STOP, None, pointer, pointer)
        self.pool_init = bind(text.POOL_INIT, None, pointer)
        self.pool_stop = bind(text.POOL_STOP, None, pointer)
        self.worker_loop = bind(text.WORKER_LOOP, None, pointer, number)

    def _bind(self, symbol: str, result: type | None, *arguments: type) -> Callable[..., int]:
        return ctypes.CFUNCTYPE(result, *arguments)(self._code[symbol])


def compile_native(ir: str, triple: str) -> bytes:
    """Object file of the executor for the baseline processor of `triple`, whose LLVM target is initialised."""
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(
        cpu=_CPU, features=_FEATURES, opt=2, codemodel="jitdefault", reloc="default", jit=True
    )
    module = llvm.parse_assembly(ir)
    module.data_layout = str(machine.target_data)
    module.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(module, passes)
    object_bytes: bytes = machine.emit_object(module)
    return object_bytes


def _cache_path(ir: str) -> Path:
    version = ".".join(map(str, llvm.llvm_version_info))
    key = hashlib.sha256(f"{version} {_CPU} {_FEATURES}\n{ir}".encode()).hexdigest()
    return cache_folder() / "executor" / f"{key}.o"


def _read_cache(path: Path) -> bytes | None:
    """The object behind its digest; None when there is none, it is damaged or may be another user's."""
    if not is_private(path.parent.parent, path.parent, path):
        return None
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, object_bytes = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    return object_bytes if hashlib.sha256(object_bytes).digest() == digest else None


def _write_cache(path: Path, object_bytes: bytes) -> None:
    """Store an object under a temporary name and rename it. A cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        make_private(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(object_bytes).digest() + object_bytes)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)


def load_cached(ir: str, triple: str) -> Native:
    """The executor of text `ir`, from the cache when it holds a sound object and compiled otherwise."""
    path = _cache_path(ir)
    cached = _read_cache(path)
    if cached is not None:
        with contextlib.suppress(LoadError):
            return Native(cached)
    initialize_llvm()
    object_bytes = compile_native(ir, triple)
    _write_cache(path, object_bytes)
    return Native(object_bytes)


@functools.cache
def native() -> Native:
    """The executor of this process; it stays loaded until the process ends."""
    triple = llvm.get_process_triple()
    return load_cached(text.native_text(triple), triple)
