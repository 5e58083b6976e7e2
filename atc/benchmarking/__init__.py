"""Packages beside onnxruntime and OpenVINO: one pinned worker a contender, taking turns, outputs checked first.

For `atc bench`, and for the project's own benchmarks. Must not know how a contender works inside: `contenders.py` uses
each through its public face only.
"""
