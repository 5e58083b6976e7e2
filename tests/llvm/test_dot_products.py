"""Dot product instructions: which class uses which, by text, and their numbers, emulated where this machine has none."""

from __future__ import annotations

import re

import numpy as np
import pytest

from codegen.llvm import detect
from codegen.llvm.compile import assembly
from codegen.llvm.cube_bytes import quad_dot
from codegen.llvm.text import module_text
from codegen.targets import host_class_names, target
from codegen.targets.hosts import HOST_CLASSES, HOSTS
from tensor_types.dtypes import BF16, F32, I8, I32, U8
from tests.llvm.emulation import EMULATED
from tests.llvm.test_cube import Case, quads, random, run

BF16_CLASSES = [name for name, row in HOST_CLASSES.items() if row.engines.dot_bf16]
SIGNS = [(U8, I8), (I8, I8), (U8, U8), (I8, U8)]


def pairs(b: np.ndarray) -> np.ndarray:
    """A [k, n] matrix as the view [k/2, 2, n] of memory packed [k/2][n][2], n padded to 16."""
    k, n = b.shape
    packed = np.full((k // 2, -(-n // 16) * 16, 2), np.nan, b.dtype)
    packed[:, :n] = b.reshape(k // 2, 2, n).transpose(0, 2, 1)
    return packed[:, :n].transpose(0, 2, 1)


def numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Small whole numbers, whose sums are exact in any order."""
    return rng.integers(-9, 10, shape).astype(BF16.numpy)


@pytest.mark.parametrize("name", [n for n in EMULATED if n in BF16_CLASSES])
def test_bf16_two_k_at_a_time(name: str) -> None:
    rng, cases = np.random.default_rng(3), []
    for m, k, n in ((6, 64, 64), (5, 34, 17), (1, 128, 48), (2, 2, 5)):
        a, b = numbers(rng, (m, k)), numbers(rng, (k, n))
        cases.append(Case(a.reshape(m, k // 2, 2), pairs(b), 1, F32, initial=m == 5, dynamic="mn" if m == 5 else ""))
        cases.append(Case(a, b, 1, F32, initial=m == 5))
    a, b = numbers(rng, (3, 33)), numbers(rng, (33, 20))
    cases.append(Case(a, b, 1, F32))
    text = run(cases, name)
    assert "dpbf16ps" in text or "bfdot" in text


@pytest.mark.parametrize("name", [n for n in EMULATED if n != "x86-64-v4-bf16"])
@pytest.mark.parametrize(("a", "b"), SIGNS, ids=str)
def test_four_bytes_at_a_time(name: str, a, b) -> None:
    rng, cases = np.random.default_rng(4), []
    for m, k, n in ((6, 64, 64), (5, 36, 17), (1, 128, 48)):
        left, right = random(rng, (m, k // 4, 4), a), random(rng, (k, n), b)
        left[0], right[:, 0] = np.iinfo(a.numpy).min, np.iinfo(b.numpy).min
        cases.append(Case(left, quads(right), 1, I32, dynamic="mn" if m == 5 else "", initial=m == 5))
    run(cases, name)


def instructions(name: str, a: np.ndarray, b: np.ndarray, acc) -> set[str]:
    """Names of the products that the machine code of one site has."""
    fn, _ = Case(a, b, 1, acc).emit("site", HOST_CLASSES[name])
    text = assembly(module_text([fn]), name)
    found = re.findall(r"(\{vex\} vpdpbusd|vpdpbusd|vdpbf16ps|[us]+dot|bfdot|vfmadd\w+|fmla|vpmaddwd)\b",
                       text.replace("\t", " "))  # fmt: skip
    return set(found)


BYTES = {
    "x86-64-v3": {(U8, I8): "vpmaddwd"},
    "x86-64-v3-vnni": dict.fromkeys(SIGNS, "{vex} vpdpbusd"),
    "x86-64-v4-vnni": dict.fromkeys(SIGNS, "vpdpbusd"),
    "x86-64-v4-bf16": dict.fromkeys(SIGNS, "vpdpbusd"),
    "aarch64-dot": {(U8, I8): "sdot", (I8, I8): "sdot", (U8, U8): "udot", (I8, U8): "sdot"},
    "aarch64-bf16": {(U8, I8): "usdot", (I8, I8): "sdot", (U8, U8): "udot", (I8, U8): "usdot"},
    "aarch64-apple": {(I8, I8): "sdot"},
    "aarch64-apple-bf16": {(U8, I8): "usdot"},
}


@pytest.mark.parametrize(("name", "signs"), [(n, s) for n, row in BYTES.items() for s in row], ids=str)
def test_bytes_use_the_instruction_of_the_class(name: str, signs) -> None:
    rng, (a, b) = np.random.default_rng(5), signs
    found = instructions(name, random(rng, (4, 16, 4), a), quads(random(rng, (64, 32), b)), I32)
    assert found == {BYTES[name][signs]}


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", BF16_CLASSES)
def test_bf16_uses_the_instruction_of_the_class(name: str, packed: bool) -> None:
    rng = np.random.default_rng(6)
    a, b = numbers(rng, (4, 64)), numbers(rng, (64, 32))
    found = instructions(name, a.reshape(4, 32, 2) if packed else a, pairs(b) if packed else b, F32)
    assert found == {"vdpbf16ps" if name.startswith("x86") else "bfdot"}


def test_a_class_without_the_engine_has_no_dot_product() -> None:
    for row in HOSTS:
        lanes = row.vector_bytes // 4
        for a, b in SIGNS:
            has = quad_dot(row, lanes, a, b) is not None
            assert has == (row.engines.dot_u8s8 or row.engines.dot_same_sign)


# Detection


def best(monkeypatch: pytest.MonkeyPatch, architecture: str, features: set[str], granted: bool = True) -> str:
    monkeypatch.delenv("OPENATC_HOST", raising=False)
    monkeypatch.setattr(detect, "machine_architecture", lambda: architecture)
    monkeypatch.setattr(detect, "machine_features", lambda: frozenset(features))
    monkeypatch.setattr(detect, "request_amx", lambda: granted)
    return detect.detect_host_class()


def test_each_row_is_found_by_its_own_features(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in HOSTS:
        assert best(monkeypatch, row.architecture, {*row.needs, "unknown"}) == row.name


def test_features_are_a_set_and_no_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    v4, v3 = HOST_CLASSES["x86-64-v4"], HOST_CLASSES["x86-64-v3"]
    assert best(monkeypatch, "x86_64", {*v4.needs, "avxvnni"}) == "x86-64-v4", "512 bits before 256 with VNNI"
    assert best(monkeypatch, "x86_64", {*v3.needs, "avxvnni", "avx512f"}) == "x86-64-v3-vnni"
    assert best(monkeypatch, "x86_64", {*v4.needs, "avx512vnni", "avx512bf16"}) == "x86-64-v4-vnni", "not on Intel"
    amx = HOST_CLASSES["x86-64-amx"].needs
    assert best(monkeypatch, "x86_64", set(amx), granted=False) == "x86-64-v4-vnni"
    assert best(monkeypatch, "aarch64", {"neon", "bf16", "dotprod"}) == "aarch64-dot"


def test_the_processor_information_of_linux_names_arm_features(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "processor : 0\nFeatures : fp asimd asimddp i8mm bf16 sve\nprocessor : 1\nFeatures : fp\n"
    monkeypatch.setattr(detect.Path, "read_text", lambda _: text)
    assert detect._linux_arm_features() == {"dotprod", "i8mm", "bf16"}


def test_every_class_is_a_target_of_its_own() -> None:
    assert [target(name).name for name in host_class_names()] == [row.name for row in HOSTS] == list(HOST_CLASSES)
