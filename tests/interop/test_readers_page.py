"""Which client appends to a table with which feature: each is tried, and the page of the guide says the same.

``WIDEN_UPDATE_OUTPUTS=1`` writes what was found into the page. Who reads which table is in `test_readers.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from support.command_line import run
from widen import ingest
from widen.table import Table, create_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "readers.md"
BEGIN, END = "<!-- tests/interop/test_readers_page.py writes this table -->\n", "<!-- end of the table -->\n"
ENGINES = ("Delta Lake on Spark", "deltalake")
READS, REFUSES, MISREADS = "yes", "refuses", "**other values**"


def new_table(path: str, columns: str = "id int, name string", **properties: str) -> Table:
    """A table with two rows."""
    table = create_table(path, columns, properties={key.replace("_", "."): value for key, value in properties.items()})
    append(table, 1, "a")
    append(table, 2, "b")
    return Table(path)


def append(table: Table, number: int, name: str) -> None:
    frame = spark_session().createDataFrame([(number, name)], "id int, name string")
    table.append(frame)


def spark_session() -> SparkSession:
    session = SparkSession.getActiveSession()
    assert session is not None
    return session


def widened(path: str) -> None:
    table = new_table(path, delta_enableTypeWidening="true")
    table.alter_column("id", type="bigint")


def handed_over(path: str) -> None:
    widened(path)
    run("handover", path, "--to", "deltalake")


def with_deletions(path: str) -> None:
    table = create_table(path, "id int, name string", properties={"delta.enableDeletionVectors": "true"})
    rows = [(1, "a"), (2, "b"), (3, "c")]
    table.append(spark_session().createDataFrame(rows, "id int, name string").coalesce(1))
    Table(path).delete("id = 3")


def loaded(path: str) -> None:
    for number, name in ((1, "a"), (2, "b")):
        ingest(pa.table({"id": pa.array([number], pa.int32()), "name": [name]}), path)


CASES: Mapping[str, Callable[[str], object]] = {
    "a table without features": new_table,
    "loads of Widen, and no column widened yet": loaded,
    "type widening is on, no column widened yet": lambda path: new_table(path, delta_enableTypeWidening="true"),
    "a column was widened": widened,
    "…after `widen handover --to deltalake`": handed_over,
    "deletion vectors, with a deleted row": with_deletions,
    "column mapping": lambda path: new_table(path, delta_columnMapping_mode="name"),
    "change data feed": lambda path: new_table(path, delta_enableChangeDataFeed="true"),
    "row tracking": lambda path: new_table(path, delta_enableRowTracking="true"),
    "v2 checkpoints": lambda path: new_table(path, delta_checkpointPolicy="v2"),
    "in-commit timestamps": lambda path: new_table(path, delta_enableInCommitTimestamps="true"),
    "compatible with Iceberg (IcebergCompatV2)": lambda path: new_table(
        path, delta_enableIcebergCompatV2="true", delta_columnMapping_mode="name"
    ),
}
"""What a table has, and what makes such a table with the rows 1, a and 2, b."""


@pytest.mark.parametrize("case", CASES)
def test_the_page_says_which_client_appends(case: str, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    CASES[case](path)
    found = [
        appends(
            path, lambda: spark.read.format("delta").load(path).limit(1).write.format("delta").mode("append").save(path)
        ),
        appends(path, lambda: write_deltalake(path, Table(path).to_arrow(limit=1), mode="append")),
    ]
    if os.environ.get("WIDEN_UPDATE_OUTPUTS") == "1":
        write_row(case, [text or "" for text in found])
    shown = rows_of_page().get(case)
    assert shown is not None
    assert len(shown) == len(found)
    assert [text for text in found if text] == [text for text, known in zip(shown, found, strict=True) if known]


def appends(path: str, write: Callable[[], object]) -> str:
    """Whether a client appends a row; the table is then restored."""
    version = Table(path).version
    try:
        write()
    except Exception:  # each client has errors of its own
        assert Table(path).version == version
        return REFUSES
    table = Table(path)
    is_right = sorted(next(iter(row.values())) for row in table.to_arrow().to_pylist()) in ([1, 1, 2], [1, 2, 2])
    table.restore(version)
    return READS if is_right else MISREADS


def rows_of_page() -> dict[str, list[str]]:
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:] if line]
    return {row[0].strip("| "): row[1:] for row in rows}


def write_row(case: str, found: list[str]) -> None:
    rows = rows_of_page()
    rows[case] = found
    lines = [
        "| the table has | " + " | ".join(ENGINES) + " |",
        "|---" * (len(ENGINES) + 1) + "|",
        *(f"| {each} | " + " | ".join(rows[each]) + " |" for each in CASES if each in rows),
    ]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2], encoding="utf-8")


def test_the_page_lists_what_was_tried() -> None:
    assert list(rows_of_page()) == list(CASES)
    header = re.search(re.escape(BEGIN) + r"\| the table has \| (.*) \|\n", PAGE.read_text(encoding="utf-8"))
    assert header is not None
    assert tuple(header[1].split(" | ")) == ENGINES
