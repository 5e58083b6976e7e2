"""u8 pictures into a model whose package prepares them (static AIPP)."""

import sys

import numpy as np
from lite import Model, Resource, check_ret

import acl

path, pixels, output = sys.argv[1:]
resource = Resource()
model = Model(path)
kind, _, ret = acl.mdl.get_aipp_type(model.id, 0)
check_ret("get_aipp_type", ret)
assert kind == 1
data = np.load(pixels)
assert data.nbytes == acl.mdl.get_input_size_by_index(model.desc, 0)
np.save(output, model.execute([data])[0])
model.close()
resource.close()
