"""Files that a user points the commands and pyACL at, changed: configurations, lists, pictures, folders of a model."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime import InferSession
from acl_runtime.device import DeviceError
from acl_runtime.device.media import images
from acl_runtime.device.settings import read_settings
from acl_runtime.generation.folder import read_folder
from acl_runtime.generation.roles import roles_of
from ais_bench.inputs import read as read_input
from atc.aipp import parse_aipp
from atc.fusion_switches import switch_file
from atc.gears import batch_gears, dims_gears, image_gears
from atc.option_values import named_sizes, output_types, shape_ranges, shapes, tilings
from atc.precision_files import customize_dtypes, keep_dtype, mixlist, op_precision_mode
from atc.single_operator_file import read_operators
from atc.text_proto import read_text_proto
from tests.hostile import packages

_GENAI = {
    "model": {
        "eos_token_id": [2, 3], "context_length": 64,
        "decoder": {
            "filename": "llama.om", "inputs": {"input_ids": "x", "past_key_names": "past_key_values.%d.key",
                                               "past_value_names": "past_key_values.%d.value"},
            "outputs": {"logits": "y", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
        },
    }
}  # fmt: skip
_OPERATORS = [
    {"op": "MatMul", "input_desc": [{"format": "ND", "shape": [8, 16], "type": "float16"},
                                    {"format": "ND", "shape": [16, 8], "type": "float16", "is_const": True,
                                     "const_value": [1.0] * 128}],
     "output_desc": [{"format": "ND", "shape": [8, 8], "type": "float16"}], "name": "a",
     "attr": [{"name": "transpose_x1", "type": "bool", "value": False}, {"name": "l", "type": "list_int", "value": [1]},
              {"name": "d", "type": "data_type", "value": "float"}]},
    {"op": "Add", "input_desc": [], "output_desc": []},
]  # fmt: skip
_SETTINGS = {
    "dump": {"dump_path": "/tmp", "dump_list": [{"model_name": "m", "layer": ["a"]}], "dump_mode": "all",
             "dump_step": "0|3-5"},
    "profiler": {"switch": "on", "output": "/tmp", "aic_metrics": "PipeUtilization"},
}  # fmt: skip
_JSON: dict[str, tuple[Any, Callable[[Path], Any]]] = {
    "operators": (_OPERATORS, read_operators),
    "settings": (_SETTINGS, lambda p: read_settings(str(p))),
    "switches": ({"Switch": {"GraphFusion": {"ALL": "off", "BnFusionPass": "on"}, "UBFusion": {"ALL": "on"}}},
                 lambda p: switch_file("fusion_switch_file", p)),
    "mixlist": ({"black-list": {"to-add": ["Sigmoid"], "to-remove": ["Add"]}, "gray-list": {"to-add": []}},
                lambda p: mixlist("modify_mixlist", p)),
}  # fmt: skip
_TEXT: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "aipp": ("aipp_op {\n aipp_mode: static\n related_input_rank: 0\n input_format: YUV420SP_U8\n src_image_size_w: 16\n"
             " src_image_size_h: 16\n csc_switch: true\n matrix_r0c0: 256\n min_chn_0: 0.5\n var_reci_chn_0: 0.01\n"
             " crop: true\n load_start_pos_h: 2\n crop_size_w: 8\n crop_size_h: 8\n mean_chn_0: 3 # words\n}\n",
             lambda p: parse_aipp("insert_op_conf", p)),
    "tilings": ("fc1: matmul rows=96 columns=32 panels_outside=0\n# words\nfc1: matmul_cube rows=128 columns=256\n",
                lambda p: tilings("tiling", p)),
    "switch lines": ("ALL:off\nBnFusionPass:on\n# words\n", lambda p: switch_file("fusion_switch_file", p)),
    "keep": ("conv1\nOpType::MatMul\n", lambda p: keep_dtype("keep_dtype", p)),
    "dtypes": ("fc::InputDtype:float16,float32,OutputDtype:float32\nOpType::Conv2D:InputDtype:int8,OutputDtype:\n",
               lambda p: customize_dtypes("customize_dtypes", p)),
    "variants": ("[ByOpType]\nMatMul=high_precision\n[ByNodeName]\nfc=keep_fp16\n",
                 lambda p: op_precision_mode("op_precision_mode", p)),
    "text proto": ('name: "g" op { name: "c" attr { key: "p" value { i: 1 f: 1e-3 s: "\\001\\"a" b: true } } }\n',
                   read_text_proto),
    "shapes": ("a:1,3,-1;b:2,3~8", lambda p: shapes("input_shape", p.read_text())),
    "ranges": ("a:[1,3~8,-1];b:[2]", lambda p: shape_ranges("input_shape_range", p.read_text())),
    "sizes": ("n=3,m=4", lambda p: named_sizes("dims", p.read_text())),
    "output types": ("y:0:FP16;z:1:FP32", lambda p: output_types("output_type", p.read_text())),
    "batches": ("1,2,4,8", lambda p: batch_gears("dynamic_batch_size", p.read_text())),
    "images": ("16,32;64,64", lambda p: image_gears("dynamic_image_size", p.read_text())),
    "gears": ("1,2;3,4", lambda p: dims_gears("dynamic_dims", p.read_text())),
}  # fmt: skip
_CHARACTERS = "{}[]:;,#\"'\\\n\t\0\x1b=~-+.0123456789eE_aé世\u202e%$/"


def prepare(folder: Path) -> None:
    """A decoder for the folders of models."""
    packages.prepare(folder, ("llama",))


def _pictures() -> dict[str, bytes]:
    from PIL import Image

    found = {}
    for kind, mode in (("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "P"), ("PNG", "I;16")):
        file = io.BytesIO()
        Image.new(mode, (32, 16)).save(file, kind)
        found[f"{kind} {mode}"] = file.getvalue()
    return found


class Case:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / f"files{os.getpid()}"
        self.folder.mkdir(exist_ok=True)
        decoder = self.folder / "llama.om"
        if not decoder.exists():
            decoder.symlink_to(folder / "llama.om")
        self.session = InferSession(0, folder / "llama.om")
        self.pictures = _pictures()
        file = io.BytesIO()
        np.save(file, np.arange(12.0).reshape(3, 4))
        self.array = file.getvalue()
        self.kinds = [*_JSON, *_TEXT, "picture", "array", "folder"]

    def run(self, draw: random.Random) -> str:
        return self.changed(draw, draw.choice(self.kinds))

    def changed(self, draw: random.Random, kind: str) -> str:
        """The outcome for one changed file of a kind."""
        path = self.folder / ("given.npy" if kind == "array" else "given")
        try:
            if kind in _JSON:
                path.write_bytes(changed_json(draw, _JSON[kind][0]))
                _JSON[kind][1](path)
            elif kind in _TEXT:
                path.write_bytes(_text(draw, _TEXT[kind][0]))
                try:
                    path.read_text()
                except ValueError:
                    return "no text"
                _TEXT[kind][1](path)
            elif kind == "folder":
                (self.folder / "genai_config.json").write_bytes(changed_json(draw, _GENAI))
                roles_of(self.session, read_folder(self.folder).names)
            elif kind == "array":
                path.write_bytes(_bytes(draw, self.array))
                read_input(path)
            else:
                self.picture(draw)
        except DeviceError as error:
            if int(error.code) in (500000, 507000):
                raise
            return f"{kind}: {int(error.code)}"
        except RuntimeError as error:
            if kind == "array" and type(error) is RuntimeError:  # what ais_bench says of files
                return "array: refused"
            raise
        return f"{kind}: taken"

    def picture(self, draw: random.Random) -> None:
        name = draw.choice(sorted(self.pictures))
        data = _bytes(draw, self.pictures[name])
        kind = name.split()[0]
        info = images.read_header(data, kind)
        if info.width * info.height > 1 << 24:
            return
        room = np.zeros(4 * images.align(info.width, 128) * images.align(info.height, 16), np.uint8)
        picture = images.Picture()
        picture.data, picture.size = room.ctypes.data // 128 * 128, room.nbytes
        if kind == "JPEG":
            picture.format = 1
            images.prepare_jpeg_output(info, picture, 128)
            images.decode_jpeg(data, picture, room)
        else:
            picture.format = 12
            images.prepare_png_output(info, picture)
            images.decode_png(data, picture, room)


def changed_json(draw: random.Random, value: Any) -> bytes:
    kind = draw.random()
    if kind < 0.05:
        return (draw.choice("[{") * 1).encode() + b'"a":[' * draw.choice([3, 100000]) if kind < 0.02 else b"[" * 100000
    copied = json.loads(json.dumps(value))
    for _ in range(draw.choice([0, 1, 1, 1, 2, 4])):
        packages.change(draw, copied)
    text = json.dumps(copied, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    return _bytes(draw, text) if kind < 0.2 else text


def _text(draw: random.Random, text: str) -> bytes:
    for _ in range(draw.choice([1, 1, 2, 3, 8])):
        at = draw.randrange(len(text) + 1)
        kind = draw.random()
        if kind < 0.3:
            text = text[:at] + draw.choice(_CHARACTERS) + text[at + draw.choice([0, 1]) :]
        elif kind < 0.5:
            text = text[:at] + text[at + draw.choice([1, 3, 20]) :]
        elif kind < 0.7:
            other = draw.randrange(len(text) + 1)
            text = text[:at] + text[other : other + 20] + text[at:]
        elif kind < 0.9:
            number = draw.choice(["-1", "0", "1e400", "nan", "9" * 30, "9" * 5000, "1" * 19, "0x10", "٣", "²", "1_0"])
            text = text[:at] + number + text[at:]
        else:
            text = text[:at] + "x" * 300 + text[at:]
    return text.encode("utf-8", "surrogatepass")


def _bytes(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 4, 30])):
        if changed:
            changed[draw.randrange(len(changed))] = draw.choice([0, 255, 1, draw.randrange(256)])
    return bytes(changed[: draw.randrange(len(changed) + 1)] if draw.random() < 0.15 else changed)
