"""ais_bench from Python."""

import sys

import numpy as np

from ais_bench.infer.interface import InferSession

path, inputs, output = sys.argv[1:]
session = InferSession(0, path)
arrays = np.load(inputs)
results = session.infer_pipeline([[array[None]] for array in arrays])
assert len(session.summary().exec_time_list) == len(arrays)
np.save(output, np.concatenate([r[0] for r in results]))
session.free_resource()
InferSession.finalize()
