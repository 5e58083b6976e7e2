"""A thread for each part of the inputs, with a context, a stream and a model of its own."""

import sys

import numpy as np
from lite import Model, Resource, check_ret

import acl

path, inputs, output = sys.argv[1:]
resource = Resource()
arrays = np.load(inputs)
results = {}


def work(part):
    assert acl.rt.create_stream()[1] == 107002  # a thread begins without a context
    context, ret = acl.rt.create_context(0)
    check_ret("create_context", ret)
    model = Model(path)
    for number in range(part, len(arrays), 4):
        results[number] = model.execute([arrays[number : number + 1]])[0]
    model.close()
    check_ret("destroy_context", acl.rt.destroy_context(context))


threads = [acl.util.start_thread(work, part) for part in range(4)]
for thread, ret in threads:
    check_ret("start_thread", ret)
    assert acl.util.stop_thread(thread) == 0
np.save(output, np.concatenate([results[n] for n in range(len(arrays))]))
resource.close()
