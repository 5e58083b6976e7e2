"""Packages: round trip, determinism, both table forms, whole-or-nothing writing, strip, hostile bytes."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import mmap
import os
import resource
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acl_runtime.om import (
    ConstDesc,
    FusedGraph,
    NodeDesc,
    PackageError,
    Section,
    SectionKind,
    TensorDesc,
    container,
    model_def,
    open_package,
    outer,
    strip,
    write_package,
)
from acl_runtime.om.reader import Package

_HERE = Path(__file__).parent


def _load(name: str):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, _HERE / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


sample = _load("sample")


@pytest.fixture
def path(tmp_path):
    write_package(tmp_path / "sample.om", sample.graph(), sample.sections(), sample.HEADER)
    return tmp_path / "sample.om"


def content(package: Package) -> dict[str, bytes]:
    return {s.name: bytes(package.section(s.name)) for s in package.sections()}


# Round trip


def test_round_trip(path):
    package = open_package(path, verify=True)
    assert package.header == sample.HEADER
    assert bytes(package.section("plan")) == b'{"tasks":[]}'
    assert bytes(package.section("report")) == b""
    assert bytes(package.section("class/x86_64-v4/objects")) == b"\x7fELF" * 40
    assert bytes(package.section("class/x86_64-v4/weights")) == sample.WEIGHT.T.tobytes()
    assert bytes(package.section("weights")) == sample.WEIGHT.tobytes() + bytes(16) + sample.BIAS.tobytes()
    for section in package.sections():
        assert hashlib.sha256(package.section(section.name)).digest() == section.sha256
        assert section.size == len(package.section(section.name))


def test_arrays_are_read_only_aligned_views_of_the_file(path):
    package = open_package(path)
    w = package.array("weights", "f32", (3, 4))
    assert np.array_equal(w, sample.WEIGHT) and not w.flags.writeable and not w.flags.owndata
    assert w.ctypes.data % 64 == 0
    assert np.array_equal(package.array("weights", np.dtype(np.float16), (4,), 64), sample.BIAS)
    bits = package.array("weights", np.dtype(np.uint16), (4,), 64)
    assert np.array_equal(package.array("weights", "bf16", (4,), 64).view(np.uint16), bits)
    assert package.array("weights", "f32", (5, 0), 72).shape == (5, 0)
    del package
    assert w[2, 3] == np.float32(1.1)  # the view alone keeps the file mapped


@pytest.mark.parametrize(
    ("section", "dtype", "shape", "offset"),
    [
        ("weights", "f32", (3, 7), 0),
        ("weights", "f32", (1,), 72),
        ("weights", "f32", (1,), -4),
        ("weights", "f32", (1,), 2),
        ("weights", "f32", (-1,), 0),
        ("weights", "f32", (2**62, 2**62), 0),
        ("weights", "f32", (0, 2**62, 2**62), 0),
        ("weights", "f32", (1,) * 40, 0),
        ("weights", "str", (1,), 0),
        ("weights", "f33", (1,), 0),
        ("weights", np.dtype("V0"), (1,), 0),
        ("nothing", "f32", (1,), 0),
    ],
)
def test_arrays_outside_their_section_are_refused(path, section, dtype, shape, offset):
    with pytest.raises(PackageError) as caught:
        open_package(path).array(section, dtype, shape, offset)
    assert caught.value.remedy


def test_bfloat16_and_strided_arrays_are_stored_as_their_bytes(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_package(
        tmp_path / "a.om", FusedGraph("g", (), (), ()), {"b": values.astype(ml_dtypes.bfloat16), "t": [values.T]}, {}
    )
    package = open_package(tmp_path / "a.om")
    assert np.array_equal(package.array("b", "bf16", (2, 3)).astype(np.float32), values)
    assert np.array_equal(package.array("t", "f32", (3, 2)), values.T)


# Graph description


def test_graph_round_trip(path):
    graph, found = sample.graph(), open_package(path).graph()
    assert (found.name, found.inputs, found.outputs, found.constants) == (
        graph.name, graph.inputs, graph.outputs, graph.constants
    )  # fmt: skip
    for ours, theirs in zip(graph.nodes, found.nodes, strict=True):
        assert (theirs.name, theirs.type, theirs.inputs) == (ours.name, ours.type, ours.inputs)
        assert (theirs.outputs, theirs.source_names) == (ours.outputs, ours.source_names)
        assert theirs.attrs == {**ours.attrs, **({"note": "a\\nb \\xe9"} if "note" in ours.attrs else {})}
    encoded = model_def.encode(graph)
    assert model_def.encode(model_def.decode(memoryview(encoded))) == encoded


def test_dtypes_without_a_public_number_survive():
    graph = FusedGraph("g", (TensorDesc("x", "f8e4m3fn", (2,)), TensorDesc("y", "u4", (2,))), (), ())
    assert model_def.decode(memoryview(model_def.encode(graph))).inputs == graph.inputs


_X = TensorDesc("x", "f32", (2,))
_Y = TensorDesc("y", "f32", (2,))


@pytest.mark.parametrize(
    "nodes",
    [
        [NodeDesc("n", "Relu", ("later",), (_Y,))],
        [NodeDesc("n", "Relu", ("x",), (_X,))],
        [NodeDesc("n", "Relu", ("x",), (_Y,)), NodeDesc("n", "Relu", ("x",), ())],
        [NodeDesc("", "Relu", ("x",), (_Y,))],
        [NodeDesc("n", "Const", ("x",), (_Y,))],
        [NodeDesc("n", "Relu", ("x",), (_Y,), {"a": [1, "b"]})],
        [NodeDesc("n", "Relu", ("x",), (_Y,), {"a": [[1]]})],
        [NodeDesc("n", "Relu", ("x",), (_Y,), {"a": 2**63})],
        [NodeDesc("n", "Relu", ("x",), (_Y,), {"a": None})],
        [NodeDesc("n", "Relu", ("x",), (replace(_Y, shape=(-2,)),))],
    ],
)
def test_graphs_that_viewers_would_show_wrong_are_refused(nodes):
    with pytest.raises(PackageError):
        model_def.encode(FusedGraph("g", (_X,), (), tuple(nodes)))


# Determinism


def test_same_input_gives_same_bytes_whatever_order_hash_seed_and_chunks(path, tmp_path):
    pieces = dict(reversed([(k, v) for k, v in sample.sections().items()]))
    pieces["weights"] = b"".join(c.tobytes() if isinstance(c, np.ndarray) else c for c in pieces["weights"])
    header = dict(reversed(sample.HEADER.items()))
    graph = sample.graph()
    nodes = tuple(replace(node, attrs=dict(reversed(node.attrs.items()))) for node in graph.nodes)
    other = tmp_path / "elsewhere" / "named_otherwise.om"
    other.parent.mkdir()
    write_package(other, replace(graph, nodes=nodes), pieces, header)
    assert other.read_bytes() == path.read_bytes()

    script = "import sys; sys.path[:0] = sys.argv[2:]; import sample; from acl_runtime.om import write_package;"
    script += "write_package(sys.argv[1], sample.graph(), sample.sections(), sample.HEADER)"
    third = tmp_path / "third.om"
    for seed in "1", "2":
        command = [sys.executable, "-c", script, str(third), str(_HERE), str(_HERE.parents[1])]
        subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed})
        assert third.read_bytes() == path.read_bytes()


# Table forms and sizes beyond 4 GiB


def test_table_form_follows_the_file_size(path, tmp_path, monkeypatch):
    assert struct.unpack_from("<4I", path.read_bytes(), 256) == (3, 0, 0, open_package(path).sections()[0].size)
    size = path.stat().st_size
    for limit, wide in (size, False), (size - 1, True):
        monkeypatch.setattr(outer, "LIMIT_32BIT", limit)
        other = tmp_path / "other.om"
        write_package(other, sample.graph(), sample.sections(), sample.HEADER)
        assert (struct.unpack_from("<5I", other.read_bytes(), 256) == (3, 0, 0, 0, 0)) == wide
        assert content(open_package(other, verify=True)) == content(open_package(path))


def test_sections_beyond_4_gib(tmp_path):
    """A sparse file: 5 GiB of weights, then a container whose second section is 5 GiB long as well."""
    large, path = 5 << 30, tmp_path / "large.om"
    model, header = model_def.encode(sample.graph()), b"{}"
    weights_at = container.align(outer.front_size(3) + len(model))
    base = container.align(weights_at + large)
    first = container.first_section_offset(["model_def", "weights", "header", "class/a/weights", "last"])
    last = container.align(first + 64 + large)
    sections = [
        Section("model_def", SectionKind.METADATA, 0, 0, len(model), hashlib.sha256(model).digest()),
        Section("weights", SectionKind.WEIGHTS, 1, 0, large, bytes(32)),
        Section("header", SectionKind.METADATA, 3, first, 2, hashlib.sha256(header).digest()),
        Section("class/a/weights", SectionKind.WEIGHTS, 3, first + 64, large, bytes(32)),
        Section("last", SectionKind.METADATA, 3, last, 3, hashlib.sha256(b"end").digest()),
    ]
    size = base + last + 3
    start = outer.table_end(3, size)
    partitions = [
        outer.Partition(0, start, len(model)), outer.Partition(1, weights_at, large), outer.Partition(3, base, last + 3)
    ]  # fmt: skip
    with open(path, "wb") as file:
        for place, data in [
            (0, outer.encode_front("large", 2, True, partitions, size) + model),
            (weights_at + large - 8, struct.pack("<2i", 7, 8)),
            (base, container.encode_table(sections, last + 3)),
            (base + first, header),
            (base + first + 64 + large - 4, struct.pack("<i", 9)),
            (base + last, b"end"),
        ]:
            file.seek(place)
            file.write(data)
    package = open_package(path)
    assert package.array("weights", "i32", (2,), large - 8).tolist() == [7, 8]
    assert package.array("class/a/weights", "i32", (1,), large - 4).tolist() == [9]
    assert bytes(package.section("last")) == b"end"


# Whole or not at all


def _interrupted():
    yield b"some bytes"
    raise KeyboardInterrupt


def _assert_untouched(path: Path, before: bytes) -> None:
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_interrupt_leaves_the_old_file(path):
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_package(path, sample.graph(), {"weights": _interrupted()}, {})
    _assert_untouched(path, before)


def test_full_disk_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()
    with monkeypatch.context() as patch:

        def full(_descriptor):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "fsync", full)
        with pytest.raises(PackageError, match="No space left") as caught:
            write_package(path, sample.graph(), sample.sections(), {"new": True})
    assert "disk space" in caught.value.remedy
    _assert_untouched(path, before)


def test_refused_write_leaves_the_old_file(path):
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(PackageError) as caught:
            write_package(path, sample.graph(), {"weights": (bytes(1 << 16) for _ in range(64))}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.code == "E13004"
    _assert_untouched(path, before)


def test_bad_constants_names_and_headers_leave_nothing(tmp_path):
    graph = sample.graph()
    for bad in ConstDesc("w", "f32", (3, 4), 32, 48), ConstDesc("w", "f32", (3, 4), -1, 48):
        with pytest.raises(PackageError):
            write_package(
                tmp_path / "a.om", replace(graph, constants=(bad, graph.constants[1])), {"weights": bytes(72)}, {}
            )
    for name in "", "a//b", "/a", "é", "a" * 256, "header", "model_def":
        with pytest.raises(PackageError):
            write_package(tmp_path / "a.om", FusedGraph("g", (), (), ()), {name: b""}, {})
    for header in {"a": float("nan")}, {"a": object()}, {"a": "x" * (1 << 20)}:
        with pytest.raises(PackageError):
            write_package(tmp_path / "a.om", FusedGraph("g", (), (), ()), {}, header)
    for place in tmp_path / "missing" / "a.om", tmp_path, Path(os.devnull):
        with pytest.raises(PackageError):
            write_package(place, FusedGraph("g", (), (), ()), {}, {})
    assert not list(tmp_path.iterdir())
    assert not os.path.isfile(os.devnull)


# Strip


@pytest.mark.parametrize("in_place", [False, True])
def test_strip_gives_what_writing_without_the_parts_gives(path, tmp_path, in_place):
    target = path if in_place else tmp_path / "stripped.om"
    dropped = strip(path, target)
    assert sorted(s.name.rsplit("/", 1)[1] for s in dropped) == ["objects", "programs", "weights"]
    kept = {name: data for name, data in sample.sections().items() if not name.startswith("class/")}
    write_package(tmp_path / "direct.om", sample.graph(), kept, sample.HEADER)
    assert target.read_bytes() == (tmp_path / "direct.om").read_bytes()


def test_strip_refuses_damaged_weights_rather_than_signing_them_anew(path, tmp_path):
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(sample.WEIGHT.tobytes()) + 5] ^= 1
    path.write_bytes(damaged)
    open_package(path)
    with pytest.raises(PackageError, match="weights"):
        open_package(path, verify=True)
    with pytest.raises(PackageError, match="weights"):
        strip(path, tmp_path / "out.om")


# Hostile bytes


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "sample.om"
    write_package(path, sample.graph(), sample.sections(), sample.HEADER)
    return path.read_bytes(), content(open_package(path)), path.with_name("fuzzed.om")


def _opens_alike_or_is_refused(intact, data: bytes) -> None:
    _, expected, path = intact
    path.write_bytes(data)
    try:
        package = open_package(path, verify=True)
    except PackageError as error:
        assert error.message and error.remedy
        return
    assert content(package) == expected
    assert package.header == sample.HEADER
    package.graph()


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_flipped_bits(intact, data):
    damaged = bytearray(intact[0])
    for _ in range(data.draw(st.integers(1, 4))):
        # Half of the flips hit header and tables, which are a small part of the file.
        last = data.draw(st.sampled_from((340, len(damaged)))) - 1
        damaged[data.draw(st.integers(0, last))] ^= 1 << data.draw(st.integers(0, 7))
    _opens_alike_or_is_refused(intact, bytes(damaged))


def test_every_truncation(intact):
    for size in range(0, len(intact[0]), 7):
        with pytest.raises(PackageError):
            intact[2].write_bytes(intact[0][:size])
            open_package(intact[2])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=600), st.integers(0, 400))
def test_spliced_bytes(intact, piece, place):
    _opens_alike_or_is_refused(intact, intact[0][:place] + piece + intact[0][place + len(piece) :])


def _section(name: str, offset: int, size: int, partition: int = 3, kind: int = 1) -> Section:
    return Section(name, kind, partition, offset, size, bytes(32))


_SIZES = {0: 100, 1: 200}
_A, _B = _section("a", 256, 64), _section("b", 320, 10)


def _decode(sections: list[Section], size: int = 384) -> tuple[Section, ...]:
    return container.decode_table(memoryview(container.encode_table(sections, size).ljust(size, b"\0")), _SIZES)


def test_sound_tables_are_read():
    """The constructions below are sound but for the one thing that each of them breaks."""
    for sections in (
        [_A, _B],
        [_B, _A],
        [_A, _section("e", 320, 0), _B],
        [_section("m", 0, 100, 0), _section("w", 0, 200, 1)],
        [],
    ):
        assert _decode(sections) == tuple(sections)


@pytest.mark.parametrize(
    ("sections", "size", "message"),
    [
        ([_A, _section("b", 256, 10)], 384, "overlaps"),
        ([_section("a", 256, 65), _B], 384, "overlaps"),
        ([_section("a", 64, 10)], 384, "overlaps"),
        ([_A, _section("b", 320, 65)], 384, "leaves the container"),
        ([_A, _section("b", 2**64 - 64, 63)], 384, "leaves the container"),
        ([_A, _section("b", 320, 2**64 - 1)], 384, "leaves the container"),
        ([_A, _section("b", 324, 1)], 384, "aligned"),
        ([_A, _section("a", 320, 10)], 384, "twice"),
        ([_section("m", 0, 99, 0)], 384, "does not match partition"),
        ([_section("m", 1, 100, 0)], 384, "does not match partition"),
        ([_section("m", 0, 0, 7)], 384, "does not match partition"),
        ([_section("m", 0, 100, 0), _section("n", 0, 100, 0)], 384, "same partition"),
        ([_section("a", 256, 1, kind=0)], 384, "unknown kind"),
    ],
)
def test_tables_with_right_digests_and_hostile_numbers(sections, size, message):
    with pytest.raises(PackageError, match=message) as caught:
        _decode(sections, size)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("offset", "form", "value", "message"),
    [
        (0, "8s", b"OPENATX\0", "does not hold"),
        (8, "<I", 3, "version 3"),
        (12, "<I", 2**32 - 1, "sections in a table"),
        (12, "<I", 3, "sections in a table"),
        (16, "<Q", 2**64 - 1, "sections in a table"),
        (16, "<Q", 336, "leaves the container"),
        (24, "<Q", 385, "says 385 bytes"),
        (64, "<I", 2, "leaves the name table"),
        (68, "<H", 3, "leaves the name table"),
        (68, "<H", 0, "bad section name"),
        (176, "<B", 200, "not text"),
        (176, "<B", 32, "bad section name"),
    ],
)
def test_containers_with_a_right_digest_and_a_hostile_field(offset, form, value, message):
    data = bytearray(container.encode_table([_A, _B], 384).ljust(384, b"\0"))
    struct.pack_into(form, data, offset, value)
    table_size = min(struct.unpack_from("<Q", data, 16)[0], len(data) - 64)
    data[32:64] = hashlib.sha256(data[:32] + data[64 : 64 + table_size]).digest()
    with pytest.raises(PackageError, match=message):
        container.decode_table(memoryview(data), _SIZES)


def test_every_bit_of_the_table_is_under_its_digest():
    data = container.encode_table([_A, _B], 384)
    for place in range(len(data)):
        damaged = bytearray(data.ljust(384, b"\0"))
        damaged[place] ^= 1
        with pytest.raises(PackageError):
            container.decode_table(memoryview(damaged), _SIZES)


def test_too_many_sections_are_refused_before_they_are_read(monkeypatch):
    data = container.encode_table([_A, _B], 384).ljust(384, b"\0")
    monkeypatch.setattr(container, "MAX_SECTIONS", 1)
    with pytest.raises(PackageError, match="sections in a table"):
        container.decode_table(memoryview(data), _SIZES)
    with pytest.raises(PackageError, match="limit"):
        container.encode_table([_A, _B], 384)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("rows", "sound"),
    [
        ([(0, 0, 10), (1, 10, 20), (3, 30, 70)], True),
        ([(0, 0, 10), (1, 9, 20), (3, 30, 70)], False),
        ([(0, 0, 10), (1, 10, 20), (3, 30, 71)], False),
        ([(0, 0, 10), (1, 10, 20), (1, 30, 70)], False),
        ([(0, 0, 10), (1, 10, 20), (5, 30, 70)], False),
        ([(0, 0, 10), (1, 10, 2**32 - 1), (3, 30, 70)], False),
        ([(0, 0, 100)], False),
    ],
)
def test_partition_tables(wide, rows, sound):
    count, form = (struct.pack("<II", len(rows), 0), "<QQQ") if wide else (struct.pack("<I", len(rows)), "<III")
    table = count + b"".join(struct.pack(form, *row) for row in rows)
    data = memoryview(b"IMOD" + struct.pack("<I", 256) + bytes(248) + table + bytes(100))
    if sound:
        start = 256 + len(table)
        assert [(p.type, p.offset - start, p.size) for p in outer.decode_front(data).values()] == rows
    else:
        with pytest.raises(PackageError):
            outer.decode_front(data)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_hostile_graph_descriptions(data):
    encoded = bytearray(model_def.encode(sample.graph()))
    for _ in range(data.draw(st.integers(1, 5))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        graph = model_def.decode(memoryview(encoded))
    except PackageError:
        return
    assert isinstance(graph, FusedGraph)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_random_graph_descriptions(data):
    try:
        model_def.decode(memoryview(data))
    except PackageError as error:
        assert error.remedy


@pytest.mark.parametrize(
    "text", [b"[]", b"{", b"\xff", b"[" * 100_000, b'{"a":' + b"1" * 5000 + b"}", b'{"a":"' + b"x" * (1 << 20) + b'"}']
)
def test_hostile_headers(intact, text):
    data = _with_section(intact[0], "header", text)
    intact[2].write_bytes(data)
    with pytest.raises(PackageError):
        open_package(intact[2])


def _with_section(data: bytes, name: str, new: bytes) -> bytes:
    """`data` with the named last-placed section replaced by `new`, all digests right."""
    base = data.index(container.MAGIC)
    body = memoryview(data)[base:]
    sizes = {p.type: p.size for p in outer.decode_front(memoryview(data)).values()}
    sections = list(container.decode_table(body, sizes))
    place = container.align(len(body))
    sections = [
        replace(s, offset=place, size=len(new), sha256=hashlib.sha256(new).digest()) if s.name == name else s
        for s in sections
    ]
    table = container.encode_table(sections, place + len(new))
    grown = table + bytes(body[len(table) :]) + bytes(place - len(body)) + new
    out = bytearray(data[:base] + grown)
    struct.pack_into("<I", out, 256 + 4 + 2 * 12 + 8, len(grown))
    return bytes(out)


def test_replacing_a_section_by_hand_works(intact):
    """The construction of `test_hostile_headers` is sound: a good header passes through it."""
    intact[2].write_bytes(_with_section(intact[0], "header", json.dumps({"k": 1}).encode()))
    assert open_package(intact[2], verify=True).header == {"k": 1}


def test_not_a_package(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_bytes(b"IMOD" + b"x" * 1000)
    for name in "pipe", "empty", "text", "missing", ".", "nul\0name":
        with pytest.raises(PackageError) as caught:
            open_package(tmp_path / name)
        assert caught.value.remedy


def test_the_mapping_is_the_file_itself(path, monkeypatch):
    """No section is read into memory at open: the views point into the one map of the file."""
    maps = []
    real = mmap.mmap
    monkeypatch.setattr(mmap, "mmap", lambda *a, **k: maps.append(real(*a, **k)) or maps[-1])
    package = open_package(path)
    start = np.frombuffer(maps[0], np.uint8).ctypes.data
    for section in package.sections():
        if section.size:
            address = np.frombuffer(package.section(section.name), np.uint8).ctypes.data
            assert start < address < start + len(maps[0])
