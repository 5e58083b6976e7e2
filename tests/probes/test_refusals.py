"""Mutated programs are refused: each probe's program with one edit in its text, on a host class and on chips."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from codegen.kernels import lower_node
from codegen.targets import target
from codegen.tile.text import parse_program
from codegen.tile.verifier import VerifyError, verify
from graph_opt.plan.records import KernelRecord
from tests.probes.probe import CHIPS, Sample
from tests.probes.test_attention import attention
from tests.probes.test_bf16_gemm import bf16_gemm
from tests.probes.test_conv_epilogue import conv
from tests.probes.test_gather import gather, indices
from tests.probes.test_gemm import gemm
from tests.probes.test_gemv import gemv
from tests.probes.test_grouped_matmul import grouped
from tests.probes.test_int8_gemm import int8_gemm
from tests.probes.test_lstm import lstm
from tests.probes.test_softmax import softmax

SAMPLES: dict[str, Callable[[type], Sample]] = {
    "gemm": lambda dtype: gemm(131, 40, 73, dtype, run_time=True),
    "gemv": lambda dtype: gemv(129, 67, dtype, run_time=True),
    "conv_epilogue": lambda dtype: conv(1, 5, 20, 7, 5, dtype=dtype),
    "attention": lambda dtype: attention(65, 129, 16, True, dtype, run_time=True),
    "lstm": lambda dtype: lstm(3, 7, 10, 17, dtype, run_time=True),
    "int8_gemm": lambda dtype: int8_gemm(13, 40, 37, run_time=True),
    "bf16_gemm": lambda dtype: bf16_gemm(13, 40, 73, run_time=True),
    "gather": lambda dtype: gather(indices(13, np.int32), run_time=True),
    "softmax": lambda dtype: softmax(3, 65, dtype),
    "grouped_matmul": lambda dtype: grouped((3, 0, 14), dtype=dtype),
}
_OTHER = {"f32": "f16", "f16": "f32", "i32": "i16"}


def beyond(text: str) -> str:
    """The last statement that writes a result writes one element further along one axis."""
    output = re.findall(r"param out (\w+):", text)[-1]
    at = [m for m in re.finditer(rf"\b(?:T[A-Z0-9_]+) {output}\[", text)][-1].end()
    return text[:at] + text[at:].replace("_0", "1 + _0", 1)


def negative(text: str) -> str:
    """The last statement that writes a result starts one element before its block."""
    output = re.findall(r"param out (\w+):", text)[-1]
    at = [m for m in re.finditer(rf"\b(?:T[A-Z0-9_]+) {output}\[", text)][-1].end()
    return text[:at] + text[at:].replace("_0", "_0 - 1", 1)


def other_dtype(text: str) -> str:
    """The accumulator of a product, or where there is none the first input, holds numbers of another dtype."""
    declared = r"(tile \w+: )(\w+)(?=.* L0C)" if " L0C" in text else r"(param in p0: )(\w+)"
    return re.sub(declared, lambda m: m[1] + _OTHER[m[2]], text, count=1)


def missing_declaration(text: str) -> str:
    """The first tile is not declared; of a program without tiles, the result."""
    line = r"^  tile .*\n" if re.search(r"^  tile ", text, re.M) else r"^  param out .*\n"
    return re.sub(line, "", text, count=1, flags=re.M)


@pytest.mark.parametrize("edit", [beyond, negative, other_dtype, missing_declaration])
@pytest.mark.parametrize("target_name", ["x86-64-v3", *CHIPS])
@pytest.mark.parametrize("probe", SAMPLES)
def test_mutated_program(probe: str, target_name: str, edit: Callable[[str], str]) -> None:
    if target_name == "Ascend310P3" and probe == "bf16_gemm":
        pytest.skip("the chip has no bf16")
    text = text_of(probe, target_name)
    verify(parse_program(text), target(target_name))
    mutated = edit(text)
    assert mutated != text
    with pytest.raises(VerifyError):
        verify(parse_program(mutated), target(target_name))


def text_of(probe: str, target_name: str) -> str:
    """The program of a probe for a target, in f16 where the cube has no f32."""
    given = SAMPLES[probe](np.float16 if target_name == "Ascend310P3" else np.float32)
    records = lower_node(given.case.node(given.results), target(target_name))
    record = records[-1]
    assert isinstance(record, KernelRecord)
    return record.program
