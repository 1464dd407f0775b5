"""What Spark's own reader of JSON changes or drops is kept exactly, or whole: every input in one interval, proved."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from widen import ingest
from widen.table import Table

FIFTY = "12345678901234567890123456789012345678901234567890"
DEEP = '{"n":99,"x":' + "[" * 1000 + "1" + "]" * 1000 + "}"

# The value of the field ``a`` beside texts, so that its column says the tokens themselves.
TOKENS = ["1e400", "1E400", "-1e400", FIFTY, "0." + FIFTY, "1e3", "1.10", "-0", "-0.0", "9007199254740993", '"\\u0000"']
HELD = [*TOKENS[:-1], "\x00"]

# Values in fields of their own: numbers stay numbers where a type holds them.
NUMBERS: dict[str, tuple[str, Any]] = {
    "thousand": ("1e3", 1000.0),
    "big": ("123456789012345678901234567890", Decimal("123456789012345678901234567890")),
    "past": (FIFTY, FIFTY),
    "huge": ("1e400", "1e400"),
}

WHOLE = [
    '{"a":1,"a":2}',
    '{"a":{"b":1,"b":2}}',
    '{"a":"\\ud800"}',
    '{"\\udc00":1}',
    '{"a":NaN}',
    '{"a":1',
    DEEP,
]


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    place = tmp_path_factory.mktemp("exact")
    lines = [f'{{"n":{number},"a":{token}}}' for number, token in enumerate(TOKENS)]
    lines += ['{"n":50,"a":"x"}']
    lines += [f'{{"n":60,{",".join(f"{json_key(key)}:{token}" for key, (token, _) in NUMBERS.items())}}}']
    (place / "s.jsonl").write_text("\ufeff" + "\n".join([*lines, *WHOLE]) + "\n", encoding="utf-8")
    done = ingest(str(place / "s.jsonl"), str(place / "table"), verify=True, spark=spark)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    assert (done.records, done.corrupt) == (len(lines), len(WHOLE))
    found = [row.asDict(recursive=True) for row in Table(str(place / "table")).read(spark=spark).collect()]
    return [{key: value for key, value in row.items() if value is not None} for row in found]


def json_key(key: str) -> str:
    return f'"{key}"'


@pytest.mark.parametrize(("number", "held"), list(enumerate(HELD)))
def test_a_token_is_the_text_that_it_was(rows: list[dict[str, Any]], number: int, held: str) -> None:
    assert [row["a"] for row in rows if row.get("n") == number] == [held]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_held_by_a_type_that_says_it(rows: list[dict[str, Any]], name: str) -> None:
    assert [row[name] for row in rows if row.get("n") == 60] == [NUMBERS[name][1]]


@pytest.mark.parametrize("text", WHOLE, ids=lambda text: text[:24])
def test_what_cannot_be_kept_exactly_is_kept_whole_with_its_place(rows: list[dict[str, Any]], text: str) -> None:
    [row] = [row for row in rows if row.get("_corrupt_record") == text]
    assert re.search(r"s\.jsonl:(\d+) \(not a JSON record: .+\)$", row["_corrupt_at"])[1] == str(  # type: ignore[index]
        len(TOKENS) + 2 + WHOLE.index(text) + 1
    )
