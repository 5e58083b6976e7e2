"""Our packages beside onnxruntime and OpenVINO: one pinned worker a contender, taking turns, outputs checked first.

Takes names of models or probes, gives a table and JSON. `python -m benchmarks --help` says how.
Must not know how a contender works inside: `contenders.py` uses each through its public face only.
"""
