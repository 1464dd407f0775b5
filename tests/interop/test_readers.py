"""What `widen readers` predicts is what happens: for the tables of `tools/readers.py`, and the readers that are here.

WIDEN_TEST_FAULTS=1 makes every table; else every fourth one. `make readers` asks the other readers as well.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import widen
from interop.conftest import IcebergSpark

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
import reader_clients  # noqa: E402
import readers  # noqa: E402
import readers_page  # noqa: E402
from reader_tables import DELTA, ICEBERG, TABLES, FeatureTable, Maker  # noqa: E402

CLIENTS = {name: reader_clients.CLIENTS[name]() for name in reader_clients.IN_PROCESS}
STEP = 1 if os.environ.get("WIDEN_TEST_FAULTS") else 4
BY_NAME = {readers.key(table): table for table in TABLES}
CHOSEN = [name for kind in (DELTA, ICEBERG) for name in [key for key in BY_NAME if key.startswith(kind)][::STEP]]


@pytest.fixture
def maker(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[Maker]:
    """Delta Lake, and for Iceberg tables a process with Iceberg for Spark."""
    if request.node.callspec.params["name"].startswith(DELTA):
        yield Maker(spark, lambda *_, **__: None, None)
        return
    judge: IcebergSpark = request.getfixturevalue("iceberg")
    catalog: SqlCatalog = request.getfixturevalue("catalog")
    yield Maker(spark, lambda text, **asked: judge.ask(**asked) if text is None else judge.sql(text), catalog)


@pytest.mark.parametrize("name", CHOSEN)
def test_the_prediction_is_what_happens(
    name: str, maker: Maker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    table = BY_NAME[name]
    if table.format == DELTA:
        place = str(tmp_path / "t")
        table.make(maker, place)
        opened: Any = widen.Table(place)
    else:
        short = readers.short_name(table)
        table.make(maker, short)
        place = readers.metadata_location(request.getfixturevalue("folder"), short)
        if "variant" in name:
            pytest.skip("PyIceberg, and so Widen, does not open tables with variants")
        opened = widen.IcebergTable(f"ns.{short}", catalog=request.getfixturevalue("folder") / "catalog.db")
    for each in opened.readers():
        if each.reader.name in CLIENTS:
            found = ask(table, place, CLIENTS[each.reader.name])
            predicted = {kind: each.answers[kind].value for kind in found}
            assert (each.reader.name, predicted) == (each.reader.name, found)


def ask(table: FeatureTable, place: str, client: Callable[[dict[str, Any]], Any]) -> dict[str, str]:
    """Return what a client did, by kind of question."""
    columns = [field.name for field in table.schema.fields]
    found: dict[str, list[str]] = {}
    for question in readers.questions(table):
        request = {"table": place, "name": "", "columns": columns, "question": question.asked}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they are about the clients' own code
                answer = reader_clients.answer(client(request), request)
        except BaseException as error:  # each client has errors of its own, some are panics
            answer = {"error": str(error)}
        found.setdefault(question.kind, []).append(question.check(json.loads(json.dumps(answer))))
    return {kind: readers.worst(outcomes) for kind, outcomes in found.items()}


def test_the_page_has_what_the_data_file_says() -> None:
    text = readers_page.PAGE.read_text(encoding="utf-8")
    for kind in (DELTA, ICEBERG):
        assert f"{readers_page.BEGIN.format(kind)}{readers_page.render(kind)}{readers_page.END.format(kind)}" in text
