"""A JPEG through the image units into a model that takes YUV420SP pictures."""

import sys

import numpy as np
from lite import H2D, Model, Resource, check_ret

import acl

path, file, output, width, height = *sys.argv[1:4], *map(int, sys.argv[4:])
resource = Resource()
model = Model(path)
stream = resource.stream


def up(value, step):
    return -(-value // step) * step


def picture(data, size, w, h, ws, hs):
    desc = acl.media.dvpp_create_pic_desc()
    for name, value in dict(
        data=data, size=size, format=1, width=w, height=h, width_stride=ws, height_stride=hs
    ).items():
        check_ret(name, getattr(acl.media, f"dvpp_set_pic_desc_{name}")(desc, value))
    return desc


with open(file, "rb") as jpeg:
    content = jpeg.read()
pointer = acl.util.bytes_to_ptr(content)
w, h, _, ret = acl.media.dvpp_jpeg_get_image_info(pointer, len(content))
check_ret("jpeg_get_image_info", ret)
size, ret = acl.media.dvpp_jpeg_predict_dec_size(pointer, len(content), 1)
check_ret("jpeg_predict_dec_size", ret)
channel = acl.media.dvpp_create_channel_desc()
check_ret("create_channel", acl.media.dvpp_create_channel(channel))
source, ret = acl.media.dvpp_malloc(len(content))
check_ret("dvpp_malloc", ret)
check_ret("memcpy", acl.rt.memcpy(source, len(content), pointer, len(content), H2D))
decoded, ret = acl.media.dvpp_malloc(size)
check_ret("dvpp_malloc", ret)
step = 128 if acl.get_soc_name() == "Ascend310" else 64
large = picture(decoded, size, w, h, up(w, step), up(h, 16))
check_ret("decode", acl.media.dvpp_jpeg_decode_async(channel, source, len(content), large, stream))
check_ret("synchronize", acl.rt.synchronize_stream(stream))
ws, hs = up(width, 16), up(height, 2)
resized, ret = acl.media.dvpp_malloc(ws * hs * 3 // 2)
check_ret("dvpp_malloc", ret)
small = picture(resized, ws * hs * 3 // 2, width, height, ws, hs)
config = acl.media.dvpp_create_resize_config()
check_ret("resize", acl.media.dvpp_vpc_resize_async(channel, large, small, config, stream))
check_ret("synchronize", acl.rt.synchronize_stream(stream))
assert acl.media.dvpp_get_pic_desc_ret_code(small) == 0
assert ws * hs * 3 // 2 == model.input_blocks[0][1]
check_ret("memcpy", acl.rt.memcpy(model.input_blocks[0][0], ws * hs * 3 // 2, resized, ws * hs * 3 // 2, 3))
check_ret("execute", acl.mdl.execute(model.id, model.inputs, model.outputs))
pixels = np.frombuffer(acl.util.ptr_to_bytes(resized, ws * hs * 3 // 2), np.uint8).reshape(-1, ws)
np.savez(output, scores=model.fetch()[0], pixels=pixels)
for block in (source, decoded, resized):
    check_ret("dvpp_free", acl.media.dvpp_free(block))
for desc in (large, small):
    check_ret("destroy_pic_desc", acl.media.dvpp_destroy_pic_desc(desc))
check_ret("destroy", acl.media.dvpp_destroy_resize_config(config) or acl.media.dvpp_destroy_channel(channel))
check_ret("destroy", acl.media.dvpp_destroy_channel_desc(channel))
model.close()
resource.close()
