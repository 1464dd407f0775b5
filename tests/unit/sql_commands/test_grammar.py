"""The grammar: one reading for every text, and the forms as people see them."""

from __future__ import annotations

import logging

import pytest
from lark import Lark, logger

from widen.sql_commands.grammar import UNDERSTOOD, grammar


def test_no_text_can_be_read_in_two_ways(caplog: pytest.LogCaptureFixture) -> None:
    """Where it could, Lark would choose silently."""
    logger.propagate = True
    with caplog.at_level(logging.DEBUG, logger.name):
        Lark(grammar(), parser="lalr", lexer="contextual", debug=True)
    assert [record.getMessage() for record in caplog.records if "onflict" in record.getMessage()] == []


def test_forms_are_shown_with_the_parts_that_offer_a_choice() -> None:
    assert UNDERSTOOD["rename_column"] == "ALTER TABLE table RENAME COLUMN column TO name"
    assert UNDERSTOOD["add_columns"].splitlines() == [
        "ALTER TABLE table ADD (COLUMN | COLUMNS) (addition, ... | ( addition, ... ))",
        "    addition: column type (NOT NULL | COMMENT text | DEFAULT expression | FIRST | AFTER name)*",
    ]
    assert UNDERSTOOD["describe_table"] == "(DESCRIBE | DESC) [TABLE] [EXTENDED | FORMATTED] table"
