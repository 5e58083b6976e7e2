"""Builders of standard architectures, one module a family: hyper-parameters and a seed in, an ONNX model out.

Weights are random with a scale that keeps activations near unit variance through depth; a seed gives one model.
Must not know the registry, the cache or the compiler.
"""
