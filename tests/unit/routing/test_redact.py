from __future__ import annotations

from widen.observe.json_document import parse_document
from widen.planning.evolution.policy import Policy, TextForm
from widen.routing.redact import Redactor

TEXT = b'{"phone": "123", "user": {"email": "a@b", "n": 1.10}}'


def test_nothing_is_hidden_unless_somebody_says_so() -> None:
    hider = Redactor(Policy(pins={("user",): TextForm.JSON}))
    assert hider.record(parse_document(TEXT), TEXT) == TEXT.decode()
    assert hider.text(TEXT) == TEXT.decode()
    assert hider.corrupt(b"no\xff") == "b'no\\xff'"


def test_a_record_is_kept_without_what_is_hidden() -> None:
    hider = Redactor(Policy(left_out=frozenset([("phone",)]), masked=frozenset([("user", "email")])))
    assert hider.record(parse_document(TEXT), TEXT) == '{"user":{"email":"***","n":1.10}}'
    assert hider.text(TEXT) == '{"user":{"email":"***","n":1.10}}'


def test_of_what_is_no_record_nothing_is_kept_where_something_is_hidden() -> None:
    hider = Redactor(Policy(left_out=frozenset([("phone",)]), masked=frozenset([("user", "email")])))
    assert hider.corrupt(b'{"phone":"123') == "*** 13 bytes that may hold phone, user.email"


def test_a_record_of_an_array_is_told_alone() -> None:
    assert Redactor(Policy()).record(parse_document(b'{"a" : 1}'), None) == '{"a":1}'
