"""Names in the catalog: the answers of sessions with and without Delta Lake, as observed on Spark 4.2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from widen.errors import NameNotFound
from widen.sql_commands.queries import find_table_location

DESCRIBED = [
    ("Location", "struct<evil:int>", None),
    ("# Detailed Table Information", "int", "a column that is called so"),
    ("Location", "int", None),
    ("", "", ""),
    ("# Detailed Table Information", "", ""),
    ("Comment", "x\nLocation: file:/elsewhere", ""),
    ("Location", "file:/data/a b%20c/t", ""),
    ("Provider", "delta", ""),
]
INFORMATION = (
    "Catalog: spark_catalog\nDatabase: default\nTable: t\nOwner: root\nType: EXTERNAL\nProvider: {provider}\n"
    "Comment: x\nLocation: file:/elsewhere\nProvider: csv\nLocation: {location}\nSerde Library: org.apache.Lazy\n"
)
WITHOUT_DELTA = AnalysisException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.")
UNKNOWN = AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] The table or view `t` cannot be found.\nVerify it.")


@dataclass
class Session:
    """A session with fixed answers, which records the statement."""

    answers: Mapping[str, Any]

    def sql(self, text: str) -> Session:
        said = next(answer for begin, answer in self.answers.items() if text.startswith(begin))
        if isinstance(said, Exception):
            raise said
        self.rows, self.asked = said, text
        return self

    def collect(self) -> list[dict[str, Any]]:
        return list(self.rows)


def described(*rows: tuple[str, str, str | None]) -> list[dict[str, Any]]:
    return [dict(zip(("col_name", "data_type", "comment"), row, strict=True)) for row in rows]


def listed(provider: str, location: str, name: str = "t") -> Session:
    row = {"tableName": name, "information": INFORMATION.format(provider=provider, location=location)}
    return Session({"DESCRIBE TABLE EXTENDED": WITHOUT_DELTA, "SHOW TABLE EXTENDED": [row]})


def test_a_session_with_delta_lake_describes_the_table() -> None:
    session = Session({"DESCRIBE TABLE EXTENDED `shop`.`a``b`": described(*DESCRIBED)})
    assert find_table_location(session, ("shop", "a`b")) == "/data/a b%20c/t"


@pytest.mark.parametrize(
    ("location", "expected"),
    [("file:/data/t", "/data/t"), ("file:///data/t", "/data/t"), ("s3a://bucket/t", "s3a://bucket/t")],
)
def test_a_session_without_delta_lake_lists_the_table(location: str, expected: str) -> None:
    assert find_table_location(listed("delta", location), ("T",)) == expected


def test_the_schema_in_which_a_name_is_searched() -> None:
    session = listed("delta", "file:/data/t", "it's")
    find_table_location(session, ("cat", "it`s", "it's"))
    assert session.asked == "SHOW TABLE EXTENDED IN `cat`.`it``s` LIKE 'it\\'s'"


@pytest.mark.parametrize(
    ("session", "reason"),
    [
        (Session({"DESCRIBE": UNKNOWN}), "t: The table or view `t` cannot be found."),
        (Session({"DESCRIBE": described(("a", "int", None))}), "it is not a table"),
        (listed("parquet", "file:/data/t"), "it is a parquet table"),
        (listed("delta", "file:/data/t", "other"), "it is not a table"),
    ],
)
def test_other_names_are_refused(session: Session, reason: str) -> None:
    with pytest.raises(NameNotFound) as caught:
        find_table_location(session, ("t",))
    assert reason in caught.value.message
