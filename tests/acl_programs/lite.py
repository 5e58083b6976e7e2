"""Classes in the manner of acllite: a resource that begins and ends, a model that takes and gives arrays."""

import numpy as np

import acl

H2D, D2H = 1, 2
DTYPES = {0: np.float32, 1: np.float16, 3: np.int32, 4: np.uint8, 9: np.int64}


def check_ret(message, ret):
    if ret != 0:
        raise Exception(f"{message} failed ret={ret}: {acl.get_recent_err_msg()}")


class Resource:
    def __init__(self, device=0):
        self.device = device
        ret = acl.init()
        check_ret("acl.init", ret)
        check_ret("acl.rt.set_device", acl.rt.set_device(device))
        self.context, ret = acl.rt.create_context(device)
        check_ret("acl.rt.create_context", ret)
        self.stream, ret = acl.rt.create_stream()
        check_ret("acl.rt.create_stream", ret)
        self.run_mode, ret = acl.rt.get_run_mode()
        check_ret("acl.rt.get_run_mode", ret)

    def close(self):
        check_ret("acl.rt.destroy_stream", acl.rt.destroy_stream(self.stream))
        check_ret("acl.rt.destroy_context", acl.rt.destroy_context(self.context))
        check_ret("acl.rt.reset_device", acl.rt.reset_device(self.device))
        check_ret("acl.finalize", acl.finalize())


class Model:
    def __init__(self, path):
        self.id, ret = acl.mdl.load_from_file(path)
        check_ret("acl.mdl.load_from_file", ret)
        self.desc = acl.mdl.create_desc()
        check_ret("acl.mdl.get_desc", acl.mdl.get_desc(self.desc, self.id))
        self.hidden, ret = acl.mdl.get_input_index_by_name(self.desc, "ascend_mbatch_shape_data")
        self.is_static = ret != 0
        self.n_inputs = acl.mdl.get_num_inputs(self.desc)
        self.n_outputs = acl.mdl.get_num_outputs(self.desc)
        self.inputs, self.input_blocks = self._dataset(
            [acl.mdl.get_input_size_by_index(self.desc, i) for i in range(self.n_inputs)]
        )
        self.outputs, self.output_blocks = self._dataset(
            [acl.mdl.get_output_size_by_index(self.desc, i) for i in range(self.n_outputs)]
        )

    def _dataset(self, sizes):
        dataset, blocks = acl.mdl.create_dataset(), []
        for size in sizes:
            block, ret = acl.rt.malloc(size, 2)
            check_ret("acl.rt.malloc", ret)
            _, ret = acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(block, size))
            check_ret("acl.mdl.add_dataset_buffer", ret)
            blocks.append((block, size))
        return dataset, blocks

    def feed(self, arrays):
        for array, (block, size) in zip(arrays, self.input_blocks, strict=False):
            data = np.ascontiguousarray(array).tobytes()
            ret = acl.rt.memcpy(block, size, acl.util.bytes_to_ptr(data), len(data), H2D)
            check_ret("acl.rt.memcpy", ret)

    def fetch(self):
        results = []
        for i, (block, _) in enumerate(self.output_blocks):
            dims, ret = acl.mdl.get_cur_output_dims(self.desc, i)
            check_ret("acl.mdl.get_cur_output_dims", ret)
            dtype = np.dtype(DTYPES[acl.mdl.get_output_data_type(self.desc, i)])
            size = int(np.prod(dims["dims"])) * dtype.itemsize
            data = bytes(size)
            check_ret("acl.rt.memcpy", acl.rt.memcpy(acl.util.bytes_to_ptr(data), size, block, size, D2H))
            results.append(np.frombuffer(data, dtype).reshape(dims["dims"]).copy())
        return results

    def execute(self, arrays):
        self.feed(arrays)
        check_ret("acl.mdl.execute", acl.mdl.execute(self.id, self.inputs, self.outputs))
        return self.fetch()

    def close(self):
        for dataset, blocks in ((self.inputs, self.input_blocks), (self.outputs, self.output_blocks)):
            for i, (block, _) in enumerate(blocks):
                buffer = acl.mdl.get_dataset_buffer(dataset, i)
                check_ret("acl.destroy_data_buffer", acl.destroy_data_buffer(buffer))
                check_ret("acl.rt.free", acl.rt.free(block))
            check_ret("acl.mdl.destroy_dataset", acl.mdl.destroy_dataset(dataset))
        check_ret("acl.mdl.unload", acl.mdl.unload(self.id))
        check_ret("acl.mdl.destroy_desc", acl.mdl.destroy_desc(self.desc))
