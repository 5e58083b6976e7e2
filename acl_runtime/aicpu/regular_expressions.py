"""Regular expressions in RE2's syntax, as RegexFullMatch has them, matched in time linear in the text.

A pattern becomes a machine whose state is a set of places in it, so nothing is tried twice: a pattern from a stranger
costs at most its places for each character. What such machines cannot do (references, looking ahead or back) RE2 does
not have either. Patterns are bounded in places and nesting, and a run looks at its time while it matches.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from tensor_types.deadline import check_deadline

MAX_PLACES = 20_000
"""Most places of a pattern with its repetitions written out."""
_MAX_DEPTH = 100
_MAX_REPEATS = 1000
_MAX_REMEMBERED = 1 << 14
"""Steps of a machine that are kept for when they are needed again."""
_STEPS_BETWEEN_LOOKS = 256

Test: TypeAlias = Callable[[str], bool]
_Ranges: TypeAlias = list[tuple[int, int]]

_PERL: dict[str, _Ranges] = {
    "d": [(48, 57)], "s": [(9, 10), (12, 13), (32, 32)], "w": [(48, 57), (65, 90), (95, 95), (97, 122)],
}  # fmt: skip
_POSIX: dict[str, _Ranges] = {
    "alnum": [(48, 57), (65, 90), (97, 122)], "alpha": [(65, 90), (97, 122)], "ascii": [(0, 127)],
    "blank": [(9, 9), (32, 32)], "cntrl": [(0, 31), (127, 127)], "digit": [(48, 57)], "graph": [(33, 126)],
    "lower": [(97, 122)], "print": [(32, 126)], "punct": [(33, 47), (58, 64), (91, 96), (123, 126)],
    "space": [(9, 13), (32, 32)], "upper": [(65, 90)], "word": _PERL["w"],
    "xdigit": [(48, 57), (65, 70), (97, 102)],
}  # fmt: skip
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


@lru_cache(maxsize=64)
def compiled(pattern: str) -> Machine:
    """The machine of a pattern. ValueError if it is none, or too large."""
    return _Parser(pattern).machine()


class Machine:
    """Places are numbers; a place consumes a character, asks a question of its surroundings, or leads to others."""

    def __init__(self) -> None:
        self.tests: list[Test | None] = [None]
        self.questions: list[str] = [""]
        """'^', '$' (ends of lines), 'A', 'z' (of the text), 'b', 'B' (of words), or none."""
        self.followers: list[tuple[int, ...]] = [()]
        self.first = 0
        self._reached: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._moved: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def place(self, test: Test | None, question: str, *followers: int) -> int:
        if len(self.tests) >= MAX_PLACES:
            raise ValueError(f"the pattern has more than {MAX_PLACES} places with its repetitions written out")
        self.tests.append(test)
        self.questions.append(question)
        self.followers.append(followers)
        return len(self.tests) - 1

    def full_match(self, text: str) -> bool:
        """True if the pattern matches the whole text."""
        here = frozenset({self.first})
        asks = any(self.questions)
        for at, character in enumerate(text):
            if at % _STEPS_BETWEEN_LOOKS == 0:
                check_deadline()
            here = self._step(self._closure(here, _true_here(text, at) if asks else ""), character)
            if not here:
                return False
        return 0 in self._closure(here, _true_here(text, len(text)) if asks else "")

    def _closure(self, places: frozenset[int], true: str) -> frozenset[int]:
        """The places that are reached without a character; `true` are the questions whose answer is yes."""
        found = self._reached.get((places, true))
        if found is None:
            seen, left = set(places), list(places)
            while left:
                place = left.pop()
                if self.tests[place] is None and (not self.questions[place] or self.questions[place] in true):
                    left += [n for n in self.followers[place] if n not in seen]
                    seen.update(self.followers[place])
            found = frozenset(p for p in seen if not p or self.tests[p] is not None)
            _remember(self._reached, (places, true), found)
        return found

    def _step(self, places: frozenset[int], character: str) -> frozenset[int]:
        found = self._moved.get((places, character))
        if found is None:
            tests, followers = self.tests, self.followers
            fitting = (p for p in places if (test := tests[p]) is not None and test(character))
            found = frozenset(n for p in fitting for n in followers[p])
            _remember(self._moved, (places, character), found)
        return found


def _remember(known: dict[tuple[frozenset[int], str], frozenset[int]], key: tuple[frozenset[int], str],
              value: frozenset[int]) -> None:  # fmt: skip
    if len(known) * (1 + len(key[0]) // 64) > _MAX_REMEMBERED:
        known.clear()
    known[key] = value


def _true_here(text: str, at: int) -> str:
    before, behind = text[at - 1 : at] if at else "", text[at : at + 1]
    true = ("A" if not before else "") + ("z" if not behind else "")
    true += ("^" if before in ("", "\n") else "") + ("$" if behind in ("", "\n") else "")
    return true + ("b" if _is_word(before) != _is_word(behind) else "B")


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


def _set(ranges: _Ranges, others: list[Test], negated: bool, folds: bool) -> Test:
    def holds(character: str) -> bool:
        number = ord(character)
        return any(low <= number <= high for low, high in ranges) or any(test(character) for test in others)

    def test(character: str) -> bool:
        found = holds(character)
        if not found and folds:
            found = any(holds(c) for c in (character.lower(), character.upper()) if len(c) == 1)
        return found != negated

    return test


_Build: TypeAlias = Callable[[Machine, int], int]
"""Adds what a part of the pattern matches in front of a place, and gives where it begins."""


class _Parser:
    """Reads a pattern; `flags` are those of the group under way."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0
        self.flags = ""
        self.depth = 0

    def machine(self) -> Machine:
        build = self.alternatives()
        if self.at < len(self.text):
            raise ValueError("the pattern has a ')' too many")
        machine = Machine()
        machine.first = build(machine, 0)
        return machine

    def take(self, wanted: str) -> bool:
        if self.text.startswith(wanted, self.at):
            self.at += len(wanted)
            return True
        return False

    def next(self) -> str:
        if self.at >= len(self.text):
            raise ValueError("the pattern ends early")
        self.at += 1
        return self.text[self.at - 1]

    def alternatives(self) -> _Build:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError(f"the pattern is nested deeper than {_MAX_DEPTH}")
        branches = [self.sequence()]
        while self.take("|"):
            branches.append(self.sequence())
        self.depth -= 1
        if len(branches) == 1:
            return branches[0]
        return lambda m, then: m.place(None, "", *[branch(m, then) for branch in branches])

    def sequence(self) -> _Build:
        parts: list[_Build] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            part = self.part()
            if part is not None:
                parts.append(self.repeated(part))

        def build(machine: Machine, then: int) -> int:
            for part in reversed(parts):
                then = part(machine, then)
            return then

        return build

    def repeated(self, part: _Build) -> _Build:
        """The part with the repetition behind it, if there is one; greedy or not is one here."""
        low: int
        most: int | None
        if self.take("*"):
            low, most = 0, None
        elif self.take("+"):
            low, most = 1, None
        elif self.take("?"):
            low, most = 0, 1
        elif (counts := self.counts()) is not None:
            low, most = counts
        else:
            return part
        self.take("?")
        if self.at < len(self.text) and (self.text[self.at] in "*+?" or self.counts() is not None):
            raise ValueError("the pattern repeats a repetition")

        def build(machine: Machine, then: int) -> int:
            begin, copies = then, low
            if most is None:
                loop = machine.place(None, "")
                body = part(machine, loop)
                machine.followers[loop] = (body, then)
                begin, copies = (body, low - 1) if low else (loop, 0)
            else:
                for _ in range(most - low):
                    begin = machine.place(None, "", part(machine, begin), then)
            for _ in range(copies):
                begin = part(machine, begin)
            return begin

        return build

    def counts(self) -> tuple[int, int | None] | None:
        """{n}, {n,} or {n,m}; None for a brace that is a character."""
        end = self.text.find("}", self.at)
        if not self.text.startswith("{", self.at) or end < 0:
            return None
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        numbers = [n for n in (low, high) if n or n is low]
        if not all(n.isascii() and n.isdigit() and len(n) <= 4 for n in numbers):
            return None
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > _MAX_REPEATS or (most is not None and most < least):
            raise ValueError(f"the pattern repeats {self.text[self.at : end + 1]}; at most {_MAX_REPEATS} is possible")
        self.at = end + 1
        return least, most

    def part(self) -> _Build | None:
        """One group, set or character; None for flags alone, and for quotes, whose text is read next."""
        character = self.next()
        if character == "(":
            return self.group()
        if character == "[":
            return _consumes(self.set())
        if character == ".":
            every = "s" in self.flags
            return _consumes(lambda c: every or c != "\n")
        if character in "^$":
            ends = "Az" if "m" not in self.flags else "^$"
            return _asks(ends["^$".index(character)])
        self.at -= 1
        if character in "*+?" or self.counts() is not None:
            raise ValueError("the pattern repeats nothing")
        self.at += 1
        if character != "\\":
            return _consumes(self.one(ord(character)))
        if self.take("Q"):
            end = self.text.find("\\E", self.at)
            end = len(self.text) if end < 0 else end
            quoted = (c if c.isalnum() else f"\\{c}" for c in self.text[self.at : end])
            self.text = self.text[: self.at] + "".join(quoted) + self.text[end + 2 :]
            return None
        if self.text[self.at : self.at + 1] in tuple("AzbB"):
            return _asks(self.next())
        if (known := self.class_escape()) is not None:
            return _consumes(known)
        return _consumes(self.one(self.escape()))

    def group(self) -> _Build | None:
        outside = self.flags
        if self.take("?"):
            if self.take("P<") or self.take("<"):
                name = self.text[self.at : max(self.text.find(">", self.at), 0)]
                if not name.isidentifier() or not name.isascii():
                    raise ValueError("the pattern has a group of that kind which there is none of")
                self.at += len(name) + 1
            elif self.flag_words():
                return None
        build = self.alternatives()
        if not self.take(")"):
            raise ValueError("the pattern lacks a ')'")
        self.flags = outside
        return build

    def flag_words(self) -> bool:
        """Flags behind '(?'; True if they are for what follows in the group around them."""
        flags, on = set(self.flags), True
        while (character := self.next()) not in ":)":
            if character == "-" and on:
                on = False
            elif character in "imsU":
                (flags.add if on else flags.discard)(character)
            else:
                raise ValueError(f"the pattern has a group '(?{character}', which there is none of")
        self.flags = "".join(sorted(flags))
        return character == ")"

    def one(self, number: int) -> Test:
        wanted = chr(number)
        if "i" in self.flags:
            return _set([(number, number)], [], False, True)
        return lambda c: c == wanted

    def escape(self) -> int:
        """The character behind a backslash."""
        character = self.next()
        if character in _CONTROL:
            return _CONTROL[character]
        if character == "x":
            if self.take("{"):
                digits = self.text[self.at : max(self.text.find("}", self.at), 0)]
                self.at += len(digits) + 1
            else:
                digits = self.next() + self.next()
            if not 0 < len(digits) <= 6 or not all(d in "0123456789abcdefABCDEF" for d in digits):
                raise ValueError("the pattern has an escape of no character")
            return min(int(digits, 16), 0x110000 - 1)
        if character in "01234567":
            digits = character
            while len(digits) < 3 and self.text[self.at : self.at + 1] in tuple("01234567"):
                digits += self.next()
            if character != "0" and len(digits) == 1:
                raise ValueError("the pattern refers to a group: such patterns are not regular")
            return int(digits, 8)
        if character.isalnum():
            raise ValueError(f"the pattern has an escape \\{character}, which there is none of")
        return ord(character)

    def class_escape(self) -> Test | None:
        """The test of an escape that stands for several characters, behind the backslash."""
        character = self.text[self.at : self.at + 1]
        if character and character in "dswDSW":
            self.at += 1
            return _set(_PERL[character.lower()], [], character.isupper(), False)
        if character and character in "pP":
            self.at += 1
            name = self.next()
            if name == "{":
                name = self.text[self.at : max(self.text.find("}", self.at), 0)]
                self.at += len(name) + 1
            return self.category(name, character == "P")
        return None

    def category(self, name: str, negated: bool) -> Test:
        if name.startswith("^"):
            name, negated = name[1:], not negated
        kinds = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf",
                 "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs"}  # fmt: skip
        if name != "Any" and not any(kind.startswith(name) for kind in kinds if name):
            raise ValueError(f"the pattern has a class {name[:40]!r}, of which only general categories are known")
        return lambda c: (name == "Any" or unicodedata.category(c).startswith(name)) != negated

    def set(self) -> Test:
        """A set of characters, behind its bracket."""
        negated = self.take("^")
        ranges: _Ranges = []
        others: list[Test] = []
        first = True
        while first or self.text[self.at : self.at + 1] != "]":
            first = False
            if self.take("[:"):
                inverse = self.take("^")
                name = self.text[self.at : max(self.text.find(":]", self.at), 0)]
                if name not in _POSIX:
                    raise ValueError(f"the pattern has a class [:{name[:40]}:], which there is none of")
                self.at += len(name) + 2
                others.append(_set(_POSIX[name], [], inverse, False))
                continue
            if self.text.startswith("\\", self.at):
                self.at += 1
                if (known := self.class_escape()) is not None:
                    others.append(known)
                    continue
                self.at -= 1
            low = self.bound()
            high = low
            if self.text.startswith("-", self.at) and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.bound()
            if high < low:
                raise ValueError("the pattern has a range whose end is before its beginning")
            ranges.append((low, high))
        self.at += 1
        return _set(ranges, others, negated, "i" in self.flags)

    def bound(self) -> int:
        character = self.next()
        return self.escape() if character == "\\" else ord(character)


def _consumes(test: Test) -> _Build:
    return lambda m, then: m.place(test, "", then)


def _asks(question: str) -> _Build:
    return lambda m, then: m.place(None, question, then)

