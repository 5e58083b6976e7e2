"""Precision: which operators run in a 16-bit float, and where values change their dtype.

Takes a graph after fusion by meaning, a mode and what the families take; gives a graph with Casts and narrow constants.
The modes and lists of operators are data (`lists`); must not know how a kernel computes, nor a target.
"""
