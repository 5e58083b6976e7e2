"""Images through Pillow into a classifier, every call written out: raw pyACL."""

import sys

import numpy as np
from PIL import Image

import acl

path, output, *files = sys.argv[1:]


def check(ret):
    assert ret == 0, (ret, acl.get_recent_err_msg())


check(acl.init())
check(acl.rt.set_device(0))
context, ret = acl.rt.create_context(0)
check(ret)
model, ret = acl.mdl.load_from_file(path)
check(ret)
desc = acl.mdl.create_desc()
check(acl.mdl.get_desc(desc, model))
in_size, out_size = acl.mdl.get_input_size_by_index(desc, 0), acl.mdl.get_output_size_by_index(desc, 0)
dims, ret = acl.mdl.get_input_dims(desc, 0)
check(ret)
_, _, height, width = dims["dims"]
blocks, datasets, buffers = [], [], []
for size in (in_size, out_size):
    block, ret = acl.rt.malloc(size, 0)
    check(ret)
    buffer = acl.create_data_buffer(block, size)
    dataset, ret = acl.mdl.add_dataset_buffer(acl.mdl.create_dataset(), buffer)
    check(ret)
    blocks.append(block)
    buffers.append(buffer)
    datasets.append(dataset)
results = []
for file in files:
    pixels = np.asarray(Image.open(file).convert("RGB").resize((width, height)), np.float32)
    data = (pixels.transpose(2, 0, 1)[None] / 255).astype(np.float32).tobytes()
    check(acl.rt.memcpy(blocks[0], in_size, acl.util.bytes_to_ptr(data), len(data), 1))
    check(acl.mdl.execute(model, *datasets))
    host, ret = acl.rt.malloc_host(out_size)
    check(ret)
    check(acl.rt.memcpy(host, out_size, blocks[1], out_size, 2))
    scores = np.frombuffer(acl.util.ptr_to_bytes(host, out_size), np.float32)
    check(acl.rt.free_host(host))
    print("======== top5 inference results: =============")
    for label in scores.argsort()[::-1][:5]:
        print(f"label:{label} confidence:{scores[label]:f}")
    results.append(scores)
for block, buffer, dataset in zip(blocks, buffers, datasets, strict=True):
    check(acl.rt.free(block) or acl.destroy_data_buffer(buffer) or acl.mdl.destroy_dataset(dataset))
check(acl.mdl.unload(model) or acl.mdl.destroy_desc(desc))
check(acl.rt.destroy_context(context) or acl.rt.reset_device(0) or acl.finalize())
np.save(output, np.stack(results))
print("*****run finish******")
