"""Models with gears: batches, heights and widths, or dims; the choice goes by what the package has."""

import sys

import numpy as np
from lite import Model, Resource, check_ret

import acl

path, output, *files = sys.argv[1:]
resource = Resource()
model = Model(path)
assert not model.is_static
batches, ret = acl.mdl.get_dynamic_batch(model.desc)
check_ret("get_dynamic_batch", ret)
sizes, ret = acl.mdl.get_dynamic_hw(model.desc, -1)
check_ret("get_dynamic_hw", ret)
results = {}
for number, file in enumerate(files):
    array = np.load(file)
    if batches["batchCount"]:
        assert array.shape[0] in batches["batch"]
        ret = acl.mdl.set_dynamic_batch_size(model.id, model.inputs, model.hidden, array.shape[0])
    elif sizes["hwCount"]:
        assert list(array.shape[2:]) in sizes["hw"]
        ret = acl.mdl.set_dynamic_hw_size(model.id, model.inputs, model.hidden, *array.shape[2:])
    else:
        count, ret = acl.mdl.get_input_dynamic_gear_count(model.desc, -1)
        check_ret("get_input_dynamic_gear_count", ret)
        gears, ret = acl.mdl.get_input_dynamic_dims(model.desc, -1, count)
        check_ret("get_input_dynamic_dims", ret)
        gear = next(g for g in gears if g["dims"] == list(array.shape))
        ret = acl.mdl.set_input_dynamic_dims(model.id, model.inputs, model.hidden, gear)
    check_ret("set gear", ret)
    results[str(number)] = model.execute([array])[0]
np.savez(output, **results)
model.close()
resource.close()
