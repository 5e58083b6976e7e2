"""Add as a single operator."""

import sys

import numpy as np
from lite import Resource, check_ret

import acl

folder, output = sys.argv[1:]
resource = Resource()
assert acl.op.set_model_dir(folder) in (0, 100002)
factors = [np.arange(128, dtype=np.int32).reshape(8, 16) * k for k in (1, 3)]
descs = [acl.create_tensor_desc(3, [8, 16], 2) for _ in range(3)]
size = acl.get_tensor_desc_size(descs[0])
blocks = [acl.rt.malloc(size, 0)[0] for _ in range(3)]
buffers = [acl.create_data_buffer(block, size) for block in blocks]
for block, factor in zip(blocks, factors, strict=False):
    data = factor.tobytes()
    check_ret("memcpy", acl.rt.memcpy(block, size, acl.util.bytes_to_ptr(data), size, 1))
attr = acl.op.create_attr()
ret = acl.op.execute_v2("Add", descs[:2], buffers[:2], descs[2:], buffers[2:], attr, resource.stream)
check_ret("execute_v2", ret)
check_ret("synchronize_stream", acl.rt.synchronize_stream(resource.stream))
np.save(output, np.frombuffer(acl.util.ptr_to_bytes(blocks[2], size), np.int32).reshape(8, 16))
acl.op.destroy_attr(attr)
for block, buffer, desc in zip(blocks, buffers, descs, strict=True):
    check_ret("destroy", acl.rt.free(block) or acl.destroy_data_buffer(buffer))
    acl.destroy_tensor_desc(desc)
resource.close()
