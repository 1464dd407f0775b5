from __future__ import annotations

from widen.evolution.policy import Policy, TextForm
from widen.json.document import parse_document
from widen.rows.row import Redactor

TEXT = b'{"phone": "123", "user": {"email": "a@b", "n": 1.10}}'


def test_without_redaction_texts_are_unchanged() -> None:
    redactor = Redactor(Policy(pins={("user",): TextForm.JSON}))
    assert redactor.redact_record(parse_document(TEXT), TEXT) == TEXT.decode()
    assert redactor.redact_text(TEXT) == TEXT.decode()
    assert redactor.redact_corrupt(b"no\xff") == "b'no\\xff'"


def test_redacted_values_are_not_kept() -> None:
    redactor = Redactor(Policy(excluded=frozenset([("phone",)]), masked=frozenset([("user", "email")])))
    assert redactor.redact_record(parse_document(TEXT), TEXT) == '{"user":{"email":"***","n":1.10}}'
    assert redactor.redact_text(TEXT) == '{"user":{"email":"***","n":1.10}}'


def test_of_a_corrupt_text_only_the_length_is_kept_if_fields_are_redacted() -> None:
    redactor = Redactor(Policy(excluded=frozenset([("phone",)]), masked=frozenset([("user", "email")])))
    assert redactor.redact_corrupt(b'{"phone":"123') == "*** 13 bytes that may hold phone, user.email"


def test_a_record_of_an_array_is_kept_without_the_others() -> None:
    assert Redactor(Policy()).redact_record(parse_document(b'{"a" : 1}'), None) == '{"a":1}'
