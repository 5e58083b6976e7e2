"""Caches that are fed back: continued where they lie, and always what a run on copies gives, whatever else is done."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

import atc
from acl_runtime import InferSession
from acl_runtime.om import PackageError
from acl_runtime.plan_format import read_plan
from atc.pipeline import passes
from atc.plan_input import plan_input
from codegen.kernels import kernels
from codegen.llvm.detect import detect_host_class
from codegen.lowering import lower_graph
from codegen.targets import target
from graph_opt.ir.passes import run_passes
from graph_opt.ir.text import parse
from graph_opt.plan import model_to_json, plan_model
from models.builders.genai_decoder import build
from models.builders.graph_writer import GraphWriter
from tensor_types.errors import InvalidModel

VOCABULARY = 64
Caches = list[np.ndarray]


def joined() -> onnx.ModelProto:
    """Two layers of attention whose caches are joined: present = Concat(past, new)."""
    g = GraphWriter("joined", 3)
    ids = g.input("input_ids", TensorProto.INT64, ["batch", "sequence"])
    mask = g.input("attention_mask", TensorProto.INT64, ["batch", "total"])
    x = g.op("Gather", g.weight(g.normal(VOCABULARY, 32)), ids)
    hidden = g.op("Sub", g.op("Cast", mask, to=TensorProto.FLOAT), g.constant(1.0, np.float32))
    hidden = g.op("Mul", g.op("Unsqueeze", hidden, g.constant([1, 2])), g.constant(1e9, np.float32))
    for layer in range(2):
        heads = []
        for part in ("q", "key", "value"):
            y = g.op("MatMul", x, g.weight(g.normal(32, 32, std=0.2)))
            y = g.op("Transpose", g.op("Reshape", y, g.constant([0, 0, 2, 16])), perm=[0, 2, 1, 3])
            if part != "q":
                past = g.input(f"past.{layer}.{part}", TensorProto.FLOAT, ["batch", 2, "past", 16])
                y = g.op("Concat", past, y, axis=2)
                g.output(y, f"present.{layer}.{part}", TensorProto.FLOAT, ["batch", 2, "total", 16])
                y = f"present.{layer}.{part}"
            heads.append(y)
        scores = g.op("MatMul", heads[0], g.op("Transpose", heads[1], perm=[0, 1, 3, 2]))
        y = g.op("MatMul", g.op("Softmax", g.op("Add", scores, hidden), axis=-1), heads[2])
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.constant([0, 0, 32]))
        x = g.op("Add", x, g.op("MatMul", y, g.weight(g.normal(32, 32, std=0.3))))
    g.output(g.op("MatMul", x, g.weight(g.normal(32, VOCABULARY))), "logits", TensorProto.FLOAT,
             ["batch", "sequence", VOCABULARY])  # fmt: skip
    return g.model()


class Fed:
    """A session of a decoder that is fed caches: logits and the next caches."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        self.session = InferSession(0, path, threads)
        self.pasts = [i.name for i in self.session.get_inputs() if i.name.startswith("past")]
        names = [o.name for o in self.session.get_outputs()]
        self.logits = names.index("logits")
        self.presents = [names.index(n.replace("past_key_values", "present").replace("past.", "present.")) for n in self.pasts]

    def __call__(self, caches: Caches, tokens: Any, total: int = 0) -> tuple[np.ndarray, Caches]:
        tokens = np.array(tokens, np.int64).reshape(caches[0].shape[0], -1)
        total = total or caches[0].shape[2] + tokens.shape[1]
        feeds = {"input_ids": tokens, "attention_mask": np.ones((len(tokens), total), np.int64)}
        results = self.session.infer({**feeds, **dict(zip(self.pasts, caches, strict=True))})
        return results[self.logits], [results[n] for n in self.presents]

    def empty(self, batch: int = 1) -> Caches:
        return [np.zeros((batch, 2, 0, 16), np.float32) for _ in self.pasts]

    def apart(self, caches: Caches, tokens: Any) -> tuple[np.ndarray, Caches]:
        """The same on copies, which no session knows."""
        return self([np.array(c) for c in caches], tokens)


@pytest.fixture(scope="module", params=["joined", "written"])
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fed") / f"{request.param}.om"
    written = build(layers=2, hidden=32, heads=2, kv_heads=2, inner=16, vocabulary=VOCABULARY, positions=4096)
    onnx.save(joined() if request.param == "joined" else written, path.with_suffix(".onnx"))
    report = atc.convert(path.with_suffix(".onnx"), path)
    assert not [n for n in report.fusion_notes if n["step"] == "fuse-caches"]
    return path


def is_same(a: Caches, b: Caches) -> bool:
    return all(x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


def lies_in(a: Caches, b: Caches) -> bool:
    return all(np.shares_memory(x, y) for x, y in zip(a, b, strict=True))


def test_values_are_those_of_onnxruntime(package: Path) -> None:
    fed, peer = Fed(package), ort.InferenceSession(package.with_suffix(".onnx"), providers=["CPUExecutionProvider"])
    names = [o.name for o in peer.get_outputs()]
    ours, theirs = fed.empty(), {n: np.zeros((1, 2, 0, 16), np.float32) for n in fed.pasts}
    total = 0
    for count in (5, 1, 1, 3, 1, 1):
        tokens, total = np.random.default_rng(total).integers(0, VOCABULARY, count), total + count
        logits, ours = fed(ours, tokens)
        want = dict(zip(names, peer.run(None, {"input_ids": tokens[None], "attention_mask": np.ones((1, total), np.int64),
                                               **theirs}), strict=True))  # fmt: skip
        theirs = dict(zip(fed.pasts, (want[names[n]] for n in fed.presents), strict=True))
        np.testing.assert_allclose(logits, want["logits"], rtol=1e-4, atol=1e-4)
        for mine, name in zip(ours, fed.pasts, strict=True):
            np.testing.assert_allclose(mine, theirs[name], rtol=1e-4, atol=1e-4)


def test_what_comes_back_is_continued_where_it_lies(package: Path) -> None:
    fed = Fed(package)
    _, first = fed(fed.empty(), [1, 2, 3])
    assert all(a.flags.writeable and a.flags.c_contiguous for a in first)
    _, second = fed(first, [4])  # an ordinary array that may have been written to: copied once
    assert not lies_in(first, second)
    for tokens in ([5], [6, 7], [8]):
        kept, held = [np.array(a) for a in second], second
        want, others = fed.apart(second, tokens)
        logits, second = fed(second, tokens)
        assert lies_in(second, held) and is_same(second, others) and is_same(held, kept)
        assert logits.tobytes() == want.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        second[0][:] = 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        second[0].flags.writeable = True


def test_a_block_that_is_full_gives_way_to_a_larger_one(package: Path) -> None:
    fed = Fed(package)
    _, now = fed(fed.empty(), [1, 2, 3])
    moves, tokens = 0, np.random.default_rng(2).integers(0, VOCABULARY, 600)
    _, want = fed.apart(now, tokens[:1])
    for at in range(0, 600, 3):
        kept = now
        logits, now = fed(now, tokens[at : at + 3])
        moves += not lies_in(kept, now)
    assert now[0].shape[2] == 603 and 1 < moves < 8
    del want
    kept = [np.array(a) for a in now]
    logits, _ = fed(now, [9])
    assert logits.tobytes() == fed.apart(kept, [9])[0].tobytes()


def any_order(package: Path, steps: int, threads: int = 1) -> None:
    """Runs on any caches that were ever given, whole or cut, of this or another session: equal to runs on copies."""
    rng = np.random.default_rng(steps + threads)
    fed, other, apart = Fed(package, threads), Fed(package), Fed(package)
    living: list[tuple[Caches, Caches]] = [(fed.empty(), fed.empty())]
    for _ in range(steps):
        at = int(rng.integers(max(0, len(living) - 3), len(living)) if rng.random() < 0.7 else rng.integers(len(living)))
        caches, kept = living[at]
        assert is_same(caches, kept)
        act = rng.random()
        rows = caches[0].shape[2]
        if act < 0.1 and rows:
            rows = int(rng.integers(rows + 1))
            caches, kept = ([a[:, :, :rows] for a in c] for c in (caches, kept))
        elif act < 0.15:
            caches = caches[::-1]  # keys as values: other numbers, the same shapes
            kept = kept[::-1]
        elif act < 0.2 and caches[0].flags.writeable and rows:
            caches[0][...] = kept[0][...] = rng.random()
        elif act < 0.25:
            caches = [np.array(a) for a in caches]
        tokens = rng.integers(0, VOCABULARY, int(rng.integers(1, 4)))
        run = other if rng.random() < 0.1 else fed
        want, want_caches = apart.apart(kept, tokens)
        got, got_caches = run(caches, tokens)
        assert got.tobytes() == want.tobytes() and is_same(got_caches, want_caches) and is_same(caches, kept)
        if rows < 60:
            living.append((got_caches, [np.array(a) for a in want_caches]))
        while len(living) > 12:
            del living[int(rng.integers(1, len(living)))]


@pytest.mark.parametrize("threads", [1, 2])
def test_any_order_of_runs(package: Path, threads: int) -> None:
    any_order(package, 100, threads)


@pytest.mark.long
def test_any_order_of_many_runs(package: Path) -> None:
    any_order(package, 10_000)


def test_threads_that_feed_the_same_caches(package: Path) -> None:
    fed = Fed(package)
    _, now = fed(fed.empty(), [1, 2, 3])
    _, now = fed(now, [4])
    want = {token: fed.apart(now, [token]) for token in range(8)}
    found: dict[int, list[tuple[np.ndarray, Caches]]] = {}

    def run(token: int) -> None:
        found[token] = [fed(now, [token]) for _ in range(10)]

    threads = [threading.Thread(target=run, args=(token,)) for token in want]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for token, runs in found.items():
        for logits, caches in runs:
            assert logits.tobytes() == want[token][0].tobytes() and is_same(caches, want[token][1])


def test_a_run_that_fails_leaves_no_row(package: Path) -> None:
    fed = Fed(package)
    _, now = fed(fed.empty(), [1, 2, 3])
    _, now = fed(now, [4])
    kept = [np.array(a) for a in now]
    with pytest.raises(InvalidModel):
        fed(now, [VOCABULARY])
    assert is_same(now, kept)
    want, others = fed.apart(now, [5])
    logits, longer = fed(now, [5])
    assert logits.tobytes() == want.tobytes() and is_same(longer, others)
    assert lies_in(fed(longer, [6])[1], longer)


def test_memory_goes_with_the_last_array(package: Path) -> None:
    fed = Fed(package)
    _, now = fed(fed.empty(), [1, 2, 3])
    for token in range(20):
        _, now = fed(now, [token])
    caches = fed.session._runs._growing
    assert caches is not None and len(caches._blocks[0]) == 1
    part = now[0][:, :, 1:]
    del now
    gc.collect()
    assert len(caches._blocks[0]) == 1
    del part
    assert not caches._blocks[0]


def test_rows_that_were_given_are_not_overwritten(tmp_path: Path) -> None:
    """Sequences of one batch that have lengths of their own: the shorter one's row goes in front of the last."""
    path = tmp_path / "written.om"
    onnx.save(build(layers=1, hidden=32, heads=2, kv_heads=2, inner=16, vocabulary=VOCABULARY), path.with_suffix(".onnx"))
    atc.convert(path.with_suffix(".onnx"), path)
    fed = Fed(path)
    peer = ort.InferenceSession(path.with_suffix(".onnx"), providers=["CPUExecutionProvider"])

    def both(caches: Caches, tokens: np.ndarray, mask: np.ndarray) -> Caches:
        feeds = {"input_ids": tokens, "attention_mask": mask, **dict(zip(fed.pasts, caches, strict=True))}
        results = fed.session.infer(feeds)
        want = peer.run(None, {n: np.array(a) for n, a in feeds.items()})
        np.testing.assert_allclose(results[fed.logits][:, -1], want[fed.logits][:, -1], rtol=1e-4, atol=1e-4)
        return [results[n] for n in fed.presents]

    now = both(fed.empty(2), np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), np.ones((2, 4), np.int64))
    now = both(now, np.array([[1], [2]]), np.ones((2, 5), np.int64))
    now = both(now, np.array([[3], [4]]), np.ones((2, 6), np.int64))
    kept = [np.array(a) for a in now]
    mask = np.ones((2, 7), np.int64)
    mask[1, 5:] = 0  # the second sequence goes on behind its fourth token
    both(now, np.array([[5], [6]]), mask)
    assert is_same(now, kept)


def test_caches_in_buffers_of_the_caller_are_copied(package: Path) -> None:
    fed = Fed(package)
    _, now = fed(fed.empty(), [1, 2, 3])
    _, now = fed(now, [4])
    want, others = fed.apart(now, [5])
    buffers: list[np.ndarray | None] = [None] * (len(fed.presents) + 1)
    for number, cache in zip(fed.presents, others, strict=True):
        buffers[number] = np.empty_like(cache)
    feeds = {"input_ids": np.array([[5]]), "attention_mask": np.ones((1, 5), np.int64), **dict(zip(fed.pasts, now, strict=True))}
    results = fed.session.infer(feeds, buffers)
    assert results[fed.logits].tobytes() == want.tobytes()
    assert is_same([results[n] for n in fed.presents], others) and results[fed.presents[0]] is buffers[fed.presents[0]]


def test_nothing_of_it_shows_in_the_interface(package: Path) -> None:
    session = InferSession(0, package)
    assert not [name for name in session.dims if name.startswith("rows_")]
    assert not any("rows_" in str(d) for t in (*session.get_inputs(), *session.get_outputs()) for d in t.shape or ())
    assert session.plan.growing and len(session.plan.growing[0].pairs) == 4


CHANGES: list[Callable[[dict[str, Any]], None]] = [
    lambda g: g.update(held="p"),
    lambda g: g.update(held=g["room"]),
    lambda g: g.update(axis=9),
    lambda g: g.update(axis=1),
    lambda g: g.update(pairs=[]),
    lambda g: g["pairs"].append(g["pairs"][0]),
    lambda g: g["pairs"][0].__setitem__(1, 1),
    lambda g: g["pairs"][0].__setitem__(1, 99),
]


TEXT = """
graph g(%past: f32[1, 2, p, 16], %rows: f32[1, 2, n, 16], %q: f32[1, 2, n, 16]) -> (%present, %y) {
  dim p in [0, 500]
  dim n in [1, 50]
  %present: f32[1, 2, p + n, 16] = Concat(%past, %rows) {axis=2}
  %y: f32[1, 2, n, 16] = Attention(%q, %present, %present)
}
"""


@pytest.mark.parametrize("change", CHANGES)
def test_a_hostile_plan_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    graph, host = parse(TEXT), target(detect_host_class())
    run_passes(graph, passes(kernels([host])))
    plan = model_to_json(plan_model(plan_input(graph, lower_graph(graph, host))))
    programs = plan.pop("programs")
    read_plan(plan, programs)
    change(plan["growing"][0])
    with pytest.raises(PackageError):
        read_plan(plan, programs)
