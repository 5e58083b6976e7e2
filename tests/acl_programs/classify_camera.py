"""Pictures of any size into a model that is told at run time what they are (dynamic AIPP): a crop of each, its colours."""

import sys

import numpy as np
from lite import Model, Resource, check_ret

import acl

RGB888 = 3
path, pixels, output, size = sys.argv[1:]
size = int(size)
resource = Resource()
model = Model(path)
kind, parameters, ret = acl.mdl.get_aipp_type(model.id, 0)
check_ret("get_aipp_type", ret)
index, ret = acl.mdl.get_input_index_by_name(model.desc, "ascend_dynamic_aipp_data")
check_ret("get_input_index_by_name", ret)
assert (kind, parameters) == (2, index)
results = []
for picture in np.load(pixels).values():
    height, width, _ = picture.shape
    aipp = acl.mdl.create_aipp(1)
    check_ret("input format", acl.mdl.set_aipp_input_format(aipp, RGB888))
    check_ret("image size", acl.mdl.set_aipp_src_image_size(aipp, width, height))
    left, top = (width - size) // 2, (height - size) // 2
    check_ret("crop", acl.mdl.set_aipp_crop_params(aipp, 1, left, top, size, size, 0))
    check_ret("swap", acl.mdl.set_aipp_rbuv_swap_switch(aipp, 1))
    check_ret("mean", acl.mdl.set_aipp_dtc_pixel_mean(aipp, 104, 117, 123, 0, 0))
    check_ret("factor", acl.mdl.set_aipp_pixel_var_reci(aipp, 0.017, 0.0175, 0.0174, 1.0, 0))
    check_ret("set_input_aipp", acl.mdl.set_input_aipp(model.id, model.inputs, index, aipp))
    check_ret("destroy_aipp", acl.mdl.destroy_aipp(aipp))
    results.append(model.execute([picture])[0])
np.save(output, np.concatenate(results))
model.close()
resource.close()
