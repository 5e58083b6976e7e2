"""Code generation: the tile language, kernel families, targets and native code for the host.

Takes fused graph nodes (only in `kernels`) and gives tile programs, and from their serialised form native objects.
`tile`, `targets` and `llvm` know no graph IR, no file format and no runtime.
"""
