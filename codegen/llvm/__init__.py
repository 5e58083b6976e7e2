"""Native code for the host: serialised tile programs in, object files for one host class out.

Emits textual LLVM IR, compiles it in worker processes and keeps objects in a cache.
Knows the tile language and the host classes only: no graph, no package, no runtime.

    from codegen.llvm.lower import lower, scratch_bytes, symbol_name
    from codegen.llvm.compile import compile_program
    from codegen.llvm.workers import compile_many
    from codegen.llvm.cache import ObjectCache
    from codegen.llvm.detect import detect_host_class
"""
