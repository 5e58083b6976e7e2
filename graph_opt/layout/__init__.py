"""Layout: which physical format every value has, and where a relayout is needed.

Takes a `Graph` whose values are plain and gives the same graph with formats assigned and `Relayout` nodes inserted.
Knows which operators want or keep a format, not how kernels are written.
"""
