"""`atc explain` knows every code, openatc's own and those that only ATC gives."""

from __future__ import annotations

import json

import pytest

from atc.explain import explanation
from atc.foreign_codes import FOREIGN_CODES
from tensor_types.error_codes import ERROR_CODES

ATC_CODES = """E10001-11 E10012-14 E10016-22 E10023-27 E10029-32 E10034-41 E10045-52 E10054-63 E10401-406 E10410 E10501
E11001 E11003-5 E11008-9 E11012 E11014-18 E11021-24 E11027 E11029 E11032-33 E11035-37 E12004 E12009 E12013 E12029 E16001-2
E16004-5 E13000-6 E13009-10 E13014-15 E13018 E13023-31 E14001-2 E19999 W11001-3"""
"""The catalogue of ATC, ranges by their last digits."""


def catalogue():
    for word in ATC_CODES.split():
        first, _, last = word.partition("-")
        start = int(first[1:])
        end = int(first[1 : len(first) - len(last)] + last) if last else start
        yield from (f"{first[0]}{n}" for n in range(start, end + 1))


def test_every_code_of_the_catalogue_is_explained_once():
    assert not FOREIGN_CODES.keys() & ERROR_CODES.keys()
    missing = [c for c in catalogue() if c not in FOREIGN_CODES and c not in ERROR_CODES]
    assert missing == []


@pytest.mark.parametrize("code", ["E10016", "e13023", "W11001"])
def test_an_explanation_has_meaning_and_remedy(code):
    found = explanation(code)
    assert found["code"] == code.upper() and found["meaning"] and found["remedy"]


def test_the_command(atc):
    code, out, _ = atc("explain", "E10016")
    assert code == 0 and "names an input, node or tensor that is not there" in out
    code, out, _ = atc("explain", "E99999", "--json")
    assert code == 2 and "no code" in json.loads(out)["error"]["message"]
