from __future__ import annotations

import pytest

from widen.errors import InvalidOption
from widen.sources.csv_dialect import parse_dialect


@pytest.mark.parametrize("name", ["nosuch", "base64", "rot13", "undefined", "utf-8\0"])
def test_an_encoding_of_no_text_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="encoding"):
        parse_dialect({"encoding": name})


@pytest.mark.parametrize("name", ["utf-8", "UTF8", "latin-1", "cp1252", "utf-16", "shift_jis"])
def test_an_encoding_of_texts_is_accepted(name: str) -> None:
    assert parse_dialect({"charset": name}).encoding == name
