"""Dim expressions: the normal form means what the operations mean, text round-trips, proofs are true."""

from __future__ import annotations

import os
import pickle
import random
import signal
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_types import dims
from tensor_types.dim_text import parse
from tensor_types.dims import Dim, ceildiv, dim, dmax, dmin, evaluate, floordiv, mod, names, substitute
from tensor_types.proofs import Range, prove_le

NAMES = ("m", "n", "k")


class Tree:
    """An expression as its author wrote it: the reference that the normal form must agree with."""

    def __init__(self, op: str, *args: object) -> None:
        self.op, self.args = op, args

    def dim(self) -> Dim:
        if self.op == "int":
            return self.args[0]  # type: ignore[return-value]
        if self.op == "name":
            return dim(str(self.args[0]))
        a, b = (x.dim() for x in self.args)  # type: ignore[attr-defined]
        functions = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "min": lambda: dmin(a, b),
                     "max": lambda: dmax(a, b), "//": lambda: floordiv(a, b), "%": lambda: mod(a, b)}  # fmt: skip
        return functions[self.op]()

    def value(self, env: dict[str, int]) -> int:
        if self.op == "int":
            return self.args[0]  # type: ignore[return-value]
        if self.op == "name":
            return env[str(self.args[0])]
        a, b = (x.value(env) for x in self.args)  # type: ignore[attr-defined]
        functions = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "min": lambda: min(a, b),
                     "max": lambda: max(a, b), "//": lambda: a // b, "%": lambda: a % b}  # fmt: skip
        return functions[self.op]()

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.args))})"


def _extend(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    positive = st.integers(1, 9).map(lambda n: Tree("int", n))
    # A named divisor is positive wherever the names are.
    divisor = positive | st.sampled_from(NAMES).map(lambda n: Tree("name", n))
    return st.builds(Tree, st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner) | st.builds(
        Tree, st.sampled_from(["//", "%"]), inner, divisor
    )


leaves = st.integers(-9, 9).map(lambda n: Tree("int", n)) | st.sampled_from(NAMES).map(lambda n: Tree("name", n))
trees = st.recursive(leaves, _extend, max_leaves=8)
environments = st.fixed_dictionaries({n: st.integers(1, 40) for n in NAMES})


@given(trees, environments)
@settings(max_examples=1500, deadline=None)
def test_normal_form_keeps_the_value(tree: Tree, env: dict[str, int]) -> None:
    assert evaluate(tree.dim(), env) == tree.value(env)


@given(trees)
@settings(max_examples=1500, deadline=None)
def test_text_round_trips(tree: Tree) -> None:
    value = tree.dim()
    assert parse(str(value)) == value


@given(trees, trees, environments)
@settings(max_examples=500, deadline=None)
def test_substitute_is_evaluation_of_the_replaced_tree(tree: Tree, other: Tree, env: dict[str, int]) -> None:
    # The replaced name may be a divisor; only positive values are legal there.
    inner = dmax(other.dim(), 1)
    replaced = substitute(tree.dim(), {"m": inner})
    assert evaluate(replaced, env) == tree.value({**env, "m": max(other.value(env), 1)})
    assert names(replaced) <= set(NAMES)


@given(trees, trees, st.lists(st.tuples(st.integers(1, 12), st.integers(0, 20)), min_size=3, max_size=3))
@settings(max_examples=1500, deadline=None)
def test_proofs_are_true(a: Tree, b: Tree, spans: list[tuple[int, int]]) -> None:
    ranges: dict[str, Range] = {n: (low, low + size) for n, (low, size) in zip(NAMES, spans, strict=True)}
    # k may depend on the others, as a loop variable does.
    ranges["k"] = (1, dmax(1, dim("m") - dim("n")))
    if prove_le(a.dim(), b.dim(), ranges):
        draw = random.Random(0)
        for _ in range(60):
            env = {n: draw.randint(s, s + w) for n, (s, w) in zip(NAMES, spans, strict=True)}
            env["k"] = draw.randint(1, max(1, env["m"] - env["n"]))
            assert a.value(env) <= b.value(env), (a, b, env)


@given(trees, trees)
@settings(max_examples=500, deadline=None)
def test_equal_values_on_a_grid_or_unequal_forms(a: Tree, b: Tree) -> None:
    """Forms that compare equal evaluate alike and hash alike."""
    left, right = a.dim(), b.dim()
    if left == right:
        assert hash(left) == hash(right)
        for env in ({"m": 1, "n": 2, "k": 3}, {"m": 7, "n": 5, "k": 2}):
            assert evaluate(left, env) == evaluate(right, env)


m, n = dim("m"), dim("n")


@pytest.mark.parametrize(
    ("a", "b", "ranges"),
    [
        # What the verifier asks of blocked loops with tails.
        (64 * dim("b") + dmin(64, m - 64 * dim("b")), m, {"b": (0, ceildiv(m, 64) - 1), "m": (1, None)}),
        (0, dmin(64, m - 64 * dim("b")), {"b": (0, ceildiv(m, 64) - 1), "m": (1, None)}),
        (dim("i") * 768 + dim("j"), 768 * m - 1, {"i": (0, m - 1), "j": (0, 767), "m": (1, None)}),
        (n * dim("i") + dim("j"), n * m - 1, {"i": (0, m - 1), "j": (0, n - 1), "m": (1, None), "n": (1, None)}),
        (2 * dim("y") + dim("r"), 2 * m + 1, {"y": (0, m - 1), "r": (0, 2), "m": (1, None)}),
        ((m // 2) * 2, m, {}),
        (m % n, n - 1, {"n": (1, None)}),
        (dim("g") // 4, m - 1, {"g": (0, 4 * m - 1), "m": (1, None)}),
        (m - dim("k"), m, {"k": (0, m)}),
        # The end of a range cancels a minimum as a whole, wherever the other is smaller.
        (dim("_0") + dmin(7, dim("r")), 6, {"_0": (0, 6 - dmin(7, dim("r"))), "r": (0, 6)}),
        (dmin(7, dim("r")), dim("_0"), {"_0": (dmin(7, dim("r")), 9), "r": (0, None)}),
        (dim("_0") * 2 - dmax(m, n), m + n, {"_0": (0, dmax(m, n)), "m": (0, None), "n": (0, None)}),
        # Which bound of the inner minimum suffices differs from one of the outer to the other.
        (dmax(0, m - 32 * dim("c")), dmin(32, n - 32 * dim("c")),
         {"c": (0, None), "n": (32 * dim("c") + 1, None), "m": (0, dmin(32 * dim("c") + 31, n - 1))}),
        # One end of a term may be known without the other.
        (16 * dim("p") + 15, 255, {"p": (0, ceildiv(dmin(256, m - 256 * n), 16) - 1), "n": (0, None)}),
    ],
)
def test_proves_what_kernels_need(a: Dim, b: Dim, ranges: dict[str, Range]) -> None:
    assert prove_le(a, b, ranges)


@pytest.mark.parametrize(
    ("a", "b", "ranges"),
    [
        (m, 63, {}),
        (64 * dim("b") + 63, m - 1, {"b": (0, ceildiv(m, 64) - 1), "m": (1, None)}),
        (0, m - 1, {}),
        (m * n, m, {"m": (0, None), "n": (0, None)}),
        # Products of one variable by factors of mixed sign: it is not clear at which end their difference is least.
        (dim("i") * n, dim("i") * m, {"i": (0, 7), "m": (1, None), "n": (1, None)}),
        (dim("i") * n, dim("i") * m, {"i": (0, 7), "m": (1, 9), "n": (1, 9)}),
        (dim("i") * n + 3, dim("i") * m + 5, {"i": (0, m), "m": (1, None), "n": (1, None)}),
        (dim("i") * n, dim("i") * n * m, {"i": (-3, 7), "m": (1, None), "n": (1, None)}),
        # A square is least in the middle.
        (dim("i") * dim("i"), 4, {"i": (-3, 2)}),
        # The other factor of i may be negative.
        (-5 * m, dim("i") * dmin(m - n, 3), {"i": (0, 5), "m": (0, 9), "n": (0, None)}),
    ],
)
def test_refuses_what_is_false(a: Dim, b: Dim, ranges: dict[str, Range]) -> None:
    assert not prove_le(a, b, ranges)


@pytest.mark.parametrize(
    "text", ["", "m +", "m m", "(m", "m)", "min(m", "min()", "m // 0", "m % -1", "1.5", "m $ n", "*m", "m//(0)",
             "(" * 100 + "m" + ")" * 100, "9" * 200, "*".join(["(a + b + c + d)"] * 30), "+".join(["m"] * 9000),
             "*".join(["9000000000000000000"] * 100)]
)  # fmt: skip
def test_malformed_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_equal_atoms_are_one_object_however_they_are_made():
    there = pickle.loads(pickle.dumps(dim("m") // 3 + 1))
    assert there == dim("m") // 3 + 1 and there.terms[0][0][0] is (dim("m") // 3).terms[0][0][0]
    made = []
    threads = [Thread(target=lambda: made.append([mod(dim("n"), k) for k in range(2, 200)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(row == made[0] for row in made) and len(made) == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_makes_atoms_whoever_made_one_when_it_was_forked():
    with dims._atoms_lock:  # as another thread may hold it
        child = os.fork()
        if not child:
            signal.alarm(10)
            os._exit(0 if str(dim("made_in_a_child") // 7) else 1)
    assert os.waitpid(child, 0)[1] == 0
