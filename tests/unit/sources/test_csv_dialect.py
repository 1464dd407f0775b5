from __future__ import annotations

import random
from collections import Counter

import pytest

from widen.errors import InvalidOption
from widen.model.native_kernel import find_kernel
from widen.sources.csv_dialect import CsvDialect, _patterns, parse_dialect


@pytest.mark.parametrize("name", ["nosuch", "base64", "rot13", "undefined", "utf-8\0"])
def test_an_encoding_of_no_text_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="encoding"):
        parse_dialect({"encoding": name})


@pytest.mark.parametrize("name", ["utf-8", "UTF8", "latin-1", "cp1252", "utf-16", "shift_jis"])
def test_an_encoding_of_texts_is_accepted(name: str) -> None:
    assert parse_dialect({"charset": name}).encoding == name


def test_quotes_are_plain_with_and_without_the_kernel() -> None:
    kernel, chance = find_kernel(), random.Random(47)
    if kernel is None:
        pytest.skip("the kernel is not built")
    dialects = [CsvDialect(), CsvDialect(separator="|", quote="'")]
    answers = Counter[bool]()
    for number in range(20_000):
        dialect = dialects[number % 2]
        assert dialect.quote is not None
        quote, separator = dialect.quote, dialect.separator
        parts = [quote, quote, separator, "\n", "\r", " ", "a", f"{separator}{quote}a{quote}", f"{quote}{quote}"]
        data = "".join(chance.choices(parts, k=chance.randrange(12))).encode()
        plain = kernel.has_plain_quotes(data, ord(quote), ord(separator))
        assert plain == (quote.encode() not in _patterns(dialect)[0].sub(b"", data)), data
        answers[plain] += 1
    assert min(answers.values()) > 4_000
