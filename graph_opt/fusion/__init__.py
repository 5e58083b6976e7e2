"""Fusion: semantic patterns (conv+bn, attention, norms, GELU) and loop fusion of element-wise neighbours into anchors.

Takes a `Graph` and kernel families as data; gives a `Graph` of few large nodes. Knows no kernel code.
"""
