"""Copies between host and device: plain, asynchronous, and with memory of the image units."""

import argparse

import numpy as np
from lite import Resource, check_ret

import acl

H2D, D2H, D2D = 1, 2, 3

parser = argparse.ArgumentParser()
parser.add_argument("--number_of_cycles", type=int, default=3)
parser.add_argument("--memory_size", type=int, default=1 << 20)
args = parser.parse_args()

resource = Resource()
size = args.memory_size
for cycle in range(args.number_of_cycles):
    host, ret = acl.rt.malloc_host(size)
    check_ret("malloc_host", ret)
    back, ret = acl.rt.malloc_host(size)
    check_ret("malloc_host", ret)
    device, ret = acl.rt.malloc(size, 0)
    check_ret("malloc", ret)
    picture, ret = acl.media.dvpp_malloc(size)
    check_ret("dvpp_malloc", ret)
    check_ret("memset", acl.rt.memset(host, size, cycle + 1, size))
    check_ret("memcpy", acl.rt.memcpy(device, size, host, size, H2D))
    check_ret("memcpy", acl.rt.memcpy(picture, size, device, size, H2D))  # the pointers decide, as in a sample
    check_ret("memcpy_async", acl.rt.memcpy_async(back, size, picture, size, D2H, resource.stream))
    check_ret("memset_async", acl.rt.memset_async(device, size, 0, size, resource.stream))
    check_ret("synchronize", acl.rt.synchronize_stream(resource.stream))
    assert (acl.util.ptr_to_numpy(back, (size,), 2) == cycle + 1).all()
    assert not np.frombuffer(acl.util.ptr_to_bytes(device, size), np.uint8).any()
    check_ret("free_host", acl.rt.free_host(host) or acl.rt.free_host(back))
    check_ret("free", acl.rt.free(device) or acl.media.dvpp_free(picture))
resource.close()
print("run success!")
