"""Executions that are queued, with a callback behind each on a thread of its own."""

import sys

import numpy as np
from lite import Model, Resource, check_ret

import acl

path, inputs, output = sys.argv[1:]
resource = Resource()
models = [Model(path) for _ in range(3)]
running = [True]
results = {}


def serve(context):
    check_ret("set_context", acl.rt.set_context(context))
    while running:
        acl.rt.process_report(20)


def take(number):
    results[number] = models[number % 3].fetch()[0]


thread, ret = acl.util.start_thread(serve, resource.context)
check_ret("start_thread", ret)
check_ret("subscribe_report", acl.rt.subscribe_report(thread, resource.stream))
arrays = np.load(inputs)
for number, array in enumerate(arrays):
    model = models[number % 3]
    if number >= 3:
        check_ret("synchronize_stream", acl.rt.synchronize_stream(resource.stream))
    model.feed([array[None]])
    check_ret("execute_async", acl.mdl.execute_async(model.id, model.inputs, model.outputs, resource.stream))
    check_ret("launch_callback", acl.rt.launch_callback(take, number, 1, resource.stream))
check_ret("synchronize_stream", acl.rt.synchronize_stream(resource.stream))
check_ret("unsubscribe_report", acl.rt.unsubscribe_report(thread, resource.stream))
running.clear()
assert acl.util.stop_thread(thread) == 0
np.save(output, np.concatenate([results[n] for n in range(len(arrays))]))
for model in models:
    model.close()
resource.close()
print("run finish!!!")
