"""The graph room: IR, and the passes that fold, fuse, choose precision and layout, and plan memory.

Takes a `Graph` and gives a `Graph`, and in `plan` takes neutral kernel records and gives a task graph with offsets.
Knows no ONNX, no kernel code, no tile program and no package; what kernels can absorb reaches passes as data.
"""
