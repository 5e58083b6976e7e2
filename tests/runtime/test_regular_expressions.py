"""RegexFullMatch against onnxruntime's, which is RE2's: the same verdicts, the same patterns refused; and its bounds."""

from __future__ import annotations

import random

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from acl_runtime.aicpu import evaluate
from acl_runtime.aicpu.regular_expressions import compiled
from acl_runtime.aicpu.schemas import Operand, check_task
from tensor_types.deadline import run_deadline
from tensor_types.errors import ResourceLimit

_PATTERNS = [
    "", "a", "a*", "(a|b)*abb", "a+?b??", "[a-c]+[^a-c]*", r"\d{2,3}-\w+", r"\.\*\\", ".", "(?s).*", "(?i)aBc", "(?i)[^a]b",
    "(?i:a)B", "(a(?i)b)c", "^ab$", r"\Aab\z", "(?m)^a$\n^b$", r"\bab\b c", r"a\Bb", r"\Qa.b*\E+", r"[[:alpha:]][[:^digit:]]",
    r"\pL+\p{Nd}\PL", r"[\d\-x]+", "[]a]+", "[^]a]+", "[a-]+", r"\x41\x{1F600}?", r"\101\012?", "a{3}", "a{2,}b{0,1}",
    "a{,2}", "x{a}", "(?P<n>ab)+", "(((a+)+)+)b", "(a*)*", "(|a)+", "a|", r"[\pL_]\w*", r"[^\s]+\s?", "日本?", r"\t\n", "é+",
    r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}", "(?U)a+", "(?i-s:.b)", r"\/\-\_?", r"[\x00-\x{10FFFF}]*",
    # and what is refused
    "(", ")", "a)", "[a", "a**", "*a", r"\1(a)", "(?=a)", "(?<!a)b", "[b-a]", "a{1001}", r"\y", "[[:nope:]]", r"\p{Nope}", "a{2,1}",
    "(a", "(?P<n", "\\", "(?x)a",
]  # fmt: skip
_WORDS = ["", "a", "b", "ab", "aB", "abc", "ABC", "abb", "aabb", "aaa", "aab", "aaab", "ba", "c", "cab!", "12-x_1", ".*\\", "\n",
          "a\nb", "ab c", "a.b*", "a.b**", "x9", "x{a}", "a{,2}", "]a", "-a", "A", "A😀", "A\n", "abab", "_x1", "é", "éé", "日", "日本",
          "\t\n", "x y", "me@x.org", "ſ", "K", "/-_", "٣", "a1 ", "aé", "Éa"]  # fmt: skip


def _theirs(pattern: str, words: list[str]) -> list[bool] | None:
    """onnxruntime's verdicts, None if it refuses the pattern."""
    x = helper.make_tensor_value_info("x", TensorProto.STRING, [None])
    y = helper.make_tensor_value_info("y", TensorProto.BOOL, [None])
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)
    opset = helper.make_opsetid("", 20)
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=[opset], ir_version=9)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, {"x": np.array(words, object)})[0])
    except Exception:
        return None


def _ours(pattern: str, words: list[str]) -> list[bool] | None:
    try:
        machine = compiled(pattern)
    except ValueError:
        return None
    return [machine.full_match(word) for word in words]


@pytest.mark.parametrize("pattern", _PATTERNS)
def test_verdicts_are_re2s(pattern: str) -> None:
    assert _ours(pattern, _WORDS) == _theirs(pattern, _WORDS)


def test_random_patterns() -> None:
    draw = random.Random(5)
    pieces = ["a", "b", "[ab]", "[^b]", ".", "(a|b)", "(ab)", "(?i:A)", r"\w", r"\b", "^", "$", "|"]
    for _ in range(150):
        pattern = "".join(draw.choice(pieces) + draw.choice(["", "", "*", "+", "?", "{2}", "{1,3}"]) for _ in range(4))
        words = ["".join(draw.choice("abA\n") for _ in range(draw.randrange(6))) for _ in range(30)]
        assert _ours(pattern, words) == _theirs(pattern, words), pattern


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*)(.*)(.*)(.*)(.*)x", "(" * 50 + "a" + "*)" * 50 + "b"])
def test_patterns_that_try_everything_elsewhere_take_steps_by_the_character(pattern: str) -> None:
    assert not compiled(pattern).full_match("a" * 20_000)


@pytest.mark.parametrize("pattern", ["(a{1000}){1000}", "(" * 200 + "a" + ")" * 200, "((a{100}){100}){100}"])
def test_patterns_are_bounded(pattern: str) -> None:
    with pytest.raises(ValueError, match="more than 20000 places|nested deeper"):
        compiled(pattern)


def test_a_match_ends_with_the_time_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENATC_LIMITS", "run_seconds=0")
    with run_deadline(), pytest.raises(ResourceLimit, match="0 seconds"):
        evaluate("RegexFullMatch", {"pattern": "a*"}, [np.array(["a" * 1000], object)])


def test_a_pattern_is_checked_when_a_package_is_read() -> None:
    check_task("RegexFullMatch", {"pattern": "a*"}, [Operand("s", 1)], 1)
    with pytest.raises(ValueError, match="refers to a group"):
        check_task("RegexFullMatch", {"pattern": r"(a)\1"}, [Operand("s", 1)], 1)
