"""Command lines of the kinds that users of ATC publish, with stand-in models of the same inputs and node names."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh


class Line(NamedTuple):
    """Arguments in one text, blanks between them; inputs with kind (f: float, i: int64) and dims, names are open; nodes
    or tensors that --out_nodes wants."""

    words: str
    inputs: dict[str, tuple[str, list]]
    wanted: tuple[str, ...] = ()


F, ALL = "--framework=5 --model=m.onnx --output=out", "--model=m.onnx --framework=5 --output=out"
NCHW = "--input_format=NCHW"
MIX = "--precision_mode=allow_mix_precision --modify_mixlist=mix.json"
TEXT = {name: ("i", ["b", "s"]) for name in ("input_ids", "attention_mask", "token_type_ids")}


def _image(name: str, *dims: object, batch: object = 1) -> dict[str, tuple[str, list]]:
    return {name: ("f", [batch, *dims])}


LINES = {
    "c03": Line(f"--model=m.onnx --framework=5 {NCHW} --input_shape=image:32,3,600,600 --output=out --soc_version=Ascend310P3 --log=error --optypelist_for_implmode=Sigmoid --op_select_implmode=high_performance", _image("image", 3, 600, 600, batch="n")),
    "c05": Line(f"{ALL} --input_format=ND --input_shape_range=xs_input:[1,1~1500,80];xs_input_lens:[1] --log=error --soc_version=Ascend710", {"xs_input": ("f", [1, "t", 80]), "xs_input_lens": ("i", [1])}),
    "c07": Line(f"{ALL} --soc_version=Ascend310B4 --input_shape=input:1,3,224,224 --enable_small_channel=1", _image("input", 3, 224, 224)),
    "c08": Line("--framework=5 --soc_version=Ascend310B4 --model=m.onnx --insert_op_conf=aipp.cfg --output=out", _image("input", 3, 224, 224)),
    "c11": Line(f"{F} --input_format=NCDHW --input_shape=image:1,75,3,64,64 --log=error --soc_version=Ascend310P3", _image("image", 75, 3, 64, 64, batch="n")),
    "c12": Line(f"{F} {NCHW} --input_shape=input:1,3,1216,1216 --log=debug --soc_version=Ascend310P3", _image("input", 3, 1216, 1216)),
    "c14": Line(f"{F} {NCHW} --input_shape=image:16,3,299,299 --log=debug --soc_version=Ascend310", _image("image", 3, 299, 299, batch="n")),
    "c15": Line(f"{F} {NCHW} --input_shape=image:1,3,512,512 --log=error --soc_version=Ascend310", _image("image", 3, 512, 512)),
    "c16": Line(f"{F} {NCHW} --input_shape=input:1,3,1216,1216 --soc_version=Ascend310P3 --out_nodes=Concat_947:0;Reshape_949:0 --log info", _image("input", 3, 1216, 1216), ("Concat_947", "Reshape_949")),
    "c18": Line(f"--framework=5 --model=m.onnx --insert_op_conf=aipp.cfg --output=out {NCHW} -input_shape=image:1,1,321,481 --log=debug --soc_version=Ascend310 --output_type=FP32", _image("image", 1, 321, 481)),
    "c23": Line(f"{ALL} {NCHW} --input_shape=actual_input_1:16,3,224,224 --enable_small_channel=1 --log=info --soc_version=Ascend310", _image("actual_input_1", 3, 224, 224, batch="n")),
    "c24": Line(f"{ALL} {NCHW} --input_shape=input:-1,3,-1,-1 --soc_version=Ascend310P3 --keep_dtype keep.cfg", _image("input", 3, "h", "w", batch="n")),
    "c25": Line("--model=m.onnx --framework=5 --input_shape=x:-1,3,48,192 --input_format=ND --dynamic_dims=1;4;8;16;32 --soc_version=Ascend310P3 --output=out --log=error", _image("x", 3, 48, 192, batch="n")),
    "c32": Line(f"-model=m.onnx --output=out --dynamic_image_size=768,1024;800,800 --soc_version=Ascend310 --input_shape=input.1:1,3,-1,-1 {NCHW} --framework=5 --insert_op_conf=aipp.cfg", _image("input.1", 3, "h", "w")),
    "c33": Line(f"{ALL} {NCHW} --input_shape=lrImage:1,3,-1,-1 --dynamic_image_size=140,140;256,256;172,114 --log=info --soc_version=Ascend310", _image("lrImage", 3, "h", "w")),
    "c34": Line(f"--framework 5 --model=m.onnx --output=out {NCHW} --input_shape=image:8,3,224,224 --log=debug --soc_version=Ascend310P3 --insert_op_conf=aipp.cfg --fusion_switch_file=switch.cfg", _image("image", 3, 224, 224, batch="n")),
    "c35": Line(f"{F} {NCHW} --input_shape=image:1,3,256,256 --fusion_switch_file=switch.cfg --log=debug --soc_version=Ascend310", _image("image", 3, 256, 256, batch="n")),
    "c37": Line(f"{ALL} --soc_version=Ascend310B4 --input_shape=input:1,3,256,256 {NCHW} --precision_mode=force_fp32 --insert_op_conf=aipp.cfg --fusion_switch_file=switch.cfg", _image("input", 3, 256, 256)),
    "c39": Line(f"{F} --input_format=ND --input_shape=input:1,3,-1,-1 --dynamic_dims=1024,512;960,512;896,512 --out_nodes=Conv_770:0;Conv_795:0 --soc_version=Ascend310P3", _image("input", 3, "h", "w"), ("Conv_770", "Conv_795")),
    "c40": Line(f"{ALL} --soc_version=Ascend310P3 --input_shape=input_ids:-1,-1;attention_mask:-1,-1;token_type_ids:-1,-1 --optypelist_for_implmode=Gelu --op_select_implmode=high_performance --input_format=ND --precision_mode_v2=mixed_float16 --modify_mixlist=mix.json", TEXT),
    "c41": Line(f"{F} {NCHW} --input_shape=x.1:1,3,512,512 --log=debug --soc_version=Ascend310P3 {MIX}", _image("x.1", 3, 512, 512)),
    "c43": Line(f"{ALL} --input_format=ND {MIX} --input_fp16_nodes=65;66 --output_type=FP16 --input_shape=prev_output_tokens:5,-1;65:120,16,-1,64;66:120,16,90,64;67:60,90 --dynamic_dims=2,1;3,2;4,3 --log=error --soc_version=Ascend310P3", {"prev_output_tokens": ("i", [5, "s"]), "65": ("f", [120, 16, "p", 64]), "66": ("f", [120, 16, 90, 64]), "67": ("f", [60, 90])}),
    "c44": Line(f"--input_format=ND --framework=5 --model=m.onnx --input_shape=src:1,512;segs:1,512;clss:1,37;mask:1,512;mask_cls:1,37 --output=out --log=info --soc_version=Ascend310 {MIX}", {name: ("i", [1, 37 if "cls" in name else 512]) for name in ("src", "segs", "clss", "mask", "mask_cls")}),
    "c47": Line("--framework=5 --model=m.onnx --input_shape=image:1,1,512,512 --output=out --soc_version=Ascend310P3 --precision_mode=allow_mix_precision --log=error", _image("image", 1, "h", "w", batch="n")),
    "c48": Line("--framework=5 --model=m.onnx --input_shape=kpts0:1,1~2048,2;desc0:1,1~2048,256 --input_format=ND --output=out --soc_version=Ascend310P3 --precision_mode=allow_mix_precision --log=error", {"kpts0": ("f", [1, "k", 2]), "desc0": ("f", [1, "k", 256])}),
    "c50": Line(f"{ALL} --input_shape=actual_input_1:1,3,224,224 --soc_version=Ascend310", _image("actual_input_1", 3, 224, 224)),
    "c51": Line(f"{ALL} --soc_version=Ascend310 --insert_op_conf=aipp.cfg --input_shape=actual_input_1:1,3,224,224 {NCHW}", _image("actual_input_1", 3, 224, 224)),
    "c53": Line(f"--input_shape=input.1:1,3,608,1088 --check_report=report.json {NCHW} --output=out --soc_version=Ascend310 --framework=5 --model=m.onnx", _image("input.1", 3, 608, 1088)),
}  # fmt: skip

AIPP = """aipp_op {
  aipp_mode: static
  input_format: %s
  csc_switch: false
  rbuv_swap_switch: false
  min_chn_0: 0.0
  var_reci_chn_0: 0.00392157
  var_reci_chn_1: 0.00392157
  var_reci_chn_2: 0.00392157
}
"""


def stand_in(line: Line) -> onnx.ModelProto:
    """Inputs with the dims of the line's model, nodes with the wanted names."""
    nodes, ins, outs, weights = [], [], [], []
    first = ""
    for name, (kind, dims) in line.inputs.items():
        ins.append(h.make_tensor_value_info(name, T.FLOAT if kind == "f" else T.INT64, dims))
        y = f"{name}_y"
        if kind == "f" and len(dims) == 4 and dims[1] in (1, 3):
            weight = (np.random.default_rng(0).random((4, dims[1], 3, 3)) - 0.5).astype(np.float32)
            weights.append(nh.from_array(weight, f"w_{name}"))
            nodes.append(h.make_node("Conv", [name, f"w_{name}"], [f"{name}_c"], name=f"Conv_{name}", kernel_shape=[3, 3], strides=[4, 4], pads=[1, 1, 1, 1]))
            nodes.append(h.make_node("Relu", [f"{name}_c"], [y], name=f"Relu_{name}"))
            first = first or f"{name}_c"
        elif kind == "f":
            nodes.append(h.make_node("Sigmoid", [name], [y], name=f"Sig_{name}"))
            first = first or name
        else:
            nodes.append(h.make_node("Cast", [name], [f"{name}_c"], to=T.FLOAT, name=f"Cast_{name}"))
            nodes.append(h.make_node("Neg", [f"{name}_c"], [y], name=f"Neg_{name}"))
        outs.append(h.make_tensor_value_info(y, T.FLOAT, None))
    for name in line.wanted:
        nodes.append(h.make_node("Tanh", [first], [f"t_{name}"], name=name))
        nodes.append(h.make_node("Abs", [f"t_{name}"], [f"o_{name}"], name=f"tail_{name}"))
        outs.append(h.make_tensor_value_info(f"o_{name}", T.FLOAT, None))
    return h.make_model(h.make_graph(nodes, "g", ins, outs, weights), opset_imports=[h.make_opsetid("", 11)], ir_version=6)


def build(folder: Path, line: Line) -> list[str]:
    """Writes m.onnx and the files that the line's flags name into the folder; gives the arguments for atc."""
    onnx.save(stand_in(line), folder / "m.onnx")
    four = [dims for kind, dims in line.inputs.values() if kind == "f" and len(dims) == 4]
    files = {
        "aipp.cfg": AIPP % ("YUV400_U8" if four and four[0][1] == 1 else "RGB888_U8"),
        "switch.cfg": '{"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}}}',
        "mix.json": '{"black-list": {"to-add": ["Sigmoid"]}}',
        "keep.cfg": "OpType::Conv\n",
    }
    for name, text in files.items():
        if name in line.words:
            (folder / name).write_text(text)
    return line.words.split()
