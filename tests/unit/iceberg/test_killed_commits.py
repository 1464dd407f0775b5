"""A process that is killed while it commits loses nothing and repeats nothing: intervals, branches, vacuums."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.fault import FULL
from support.without_spark import fork_without_spark
from widen.iceberg.catalog import to_table_name
from widen.iceberg.properties import INTERVAL, last_interval

WORKER = """
import sys
from widen.iceberg.catalog import to_table_name
from widen.iceberg.table_commit import NewTable, open_transaction
from widen.iceberg.file_metrics import IcebergFile
from widen.iceberg.properties import APP_ID, INTERVAL, last_interval, stream_mark
from widen.log.commit_outcome import StagedFiles
from widen.model.types import LONG, Field, StructType

name = to_table_name("shop.orders", sys.argv[1])
while True:
    table = name.find()
    number = 1 + (last_interval(table.properties, "s") or 0 if table else 0)
    new = NewTable(StructType((Field("id", LONG),)), properties={"format-version": sys.argv[2]})
    transaction = open_transaction(name, table, (), new)
    transaction.set_properties(stream_mark("s", number))
    file = IcebergFile(f"job/part-{number}.parquet", 9, '{"rows":1,"offsets":[4],"columns":{}}')
    transaction.add_snapshot([file], {APP_ID: "s", INTERVAL: str(number)})
    transaction.commit(StagedFiles())
    print(number, flush=True)
"""

KILLS = 3


def run_killed(program: str, *words: object, wait: Callable[[float], float]) -> int:
    """Kill a process that prints the number of each round after it, and return the last number.

    Args:
        wait: Returns how many seconds to wait after the first round, given how many that took.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        os.mkfifo(out)
        err.touch()
        begin = time.monotonic()
        with fork_without_spark(program, *map(str, words), out=out, err=err) as (process, told), out.open() as lines:
            line = lines.readline()
            assert line, err.read_text()
            reported = int(line)
            time.sleep(wait(time.monotonic() - begin))
            os.kill(process, signal.SIGKILL)
            rest = lines.read().split()
            assert int(told.readline()) == -signal.SIGKILL
    return int(rest[-1]) if rest and rest[-1].isdigit() else reported


@pytest.mark.parametrize("version", [2, 3])
def test_every_interval_is_there_once(tmp_path: Path, version: int) -> None:
    catalog, rng, reported = tmp_path / "c.db", random.Random(7), 0
    for _ in range(KILLS):
        reported = run_killed(WORKER, catalog, version, wait=lambda _: rng.uniform(0, 0.3))
    table = to_table_name("shop.orders", catalog).load()
    numbers = [int(s.summary[INTERVAL]) for s in table.snapshots() if s.summary and s.summary[INTERVAL]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert last_interval(table.properties, "s") == len(numbers)
    assert len(numbers) in (reported, reported + 1)
    files = sorted(task.file.file_path.rpartition("/")[2] for task in table.scan().plan_files())
    assert files == sorted(f"part-{number}.parquet" for number in numbers)
    assert table.format_version == version
    if version == 3:  # each file has a row
        assert table.metadata.next_row_id == len(numbers)
        assert [each.first_row_id for each in table.snapshots()] == [number - 1 for number in numbers]


PUBLISHER = """
import json, sys
from pathlib import Path
import widen

catalog, number = Path(sys.argv[1]), int(sys.argv[2])
place = {"catalog": catalog, "engine": "local"}
while True:
    source = catalog.parent / f"{number}.jsonl"
    if not source.exists():
        source.with_suffix(".new").write_text(json.dumps({"id": number, f"f{number % 4}": number}) + chr(10))
        source.with_suffix(".new").rename(source)
    words = {"new": True, "txn": ("loader", number), **place}
    if number == 0:
        widen.ingest(str(source), "shop.orders", **words)
    table = widen.IcebergTable("shop.orders", catalog)
    if "audit" not in {each.name for each in table.references}:
        table.create_branch("audit")
    widen.ingest(str(source), "shop.orders", branch="audit", **words)
    table.refresh().fast_forward("main", "audit").drop_branch("audit")
    table.set_sort_order("id" if number % 2 else "id DESC").set_sort_order()
    table.vacuum(0, keep_last=1 + number % 2, force=True)
    print(number, flush=True)
    number += 1
"""


def test_what_is_published_and_cleaned_up_is_there_once(
    tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """A row is in the main branch from the moment on in which the branch is published, and no vacuum deletes it."""
    catalog, rng, reported, kills = tmp_path / "c.db", random.Random(3), -1, 40 if FULL in os.environ else 2
    for _ in range(kills):
        reported = run_killed(PUBLISHER, catalog, reported + 1, wait=lambda first: rng.uniform(0, 0.6) * first)
        rows = to_table_name("shop.orders", catalog).load().scan().to_arrow()
        numbers = sorted(rows["id"].to_pylist())
        assert numbers in ([*range(reported + 1)], [*range(reported + 2)])
    record_testsuite_property("publishers of branches killed", f"{kills}, after {reported} rounds")


RESTORER = """
import json, sys
from pathlib import Path
import widen

catalog, number = Path(sys.argv[1]), int(sys.argv[2])
place, good = {"catalog": catalog, "engine": "local"}, catalog.parent / "good"

def load(number, name, **words):
    source = catalog.parent / f"{name}.jsonl"
    source.with_suffix(".new").write_text(json.dumps({"id": number, f"f{abs(number) % 4}": number}) + chr(10))
    source.with_suffix(".new").rename(source)
    widen.ingest(str(source), "shop.orders", **words, **place)

def undo():
    widen.IcebergTable("shop.orders", catalog).restore(int(good.read_text()))
    good.unlink()

if good.exists():  # what the process before this one has not undone, or has undone without saying so
    undo()
while True:
    load(number, f"good-{number}", txn=("loader", number))
    good.with_suffix(".new").write_text(str(widen.IcebergTable("shop.orders", catalog).version))
    good.with_suffix(".new").rename(good)
    load(-1 - number, f"bad-{number}", txn=("loader", number + 1))
    undo()
    print(number, flush=True)
    number += 1
"""


def test_what_is_restored_is_there_once(
    tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """A restore takes back a load and its mark at once: the next load of that number is not skipped."""
    catalog, rng, reported, kills = tmp_path / "c.db", random.Random(5), -1, 40 if FULL in os.environ else 2
    between = 0
    for _ in range(kills):
        reported = run_killed(RESTORER, catalog, reported + 1, wait=lambda first: rng.uniform(0, 0.6) * first)
        numbers = sorted(to_table_name("shop.orders", catalog).load().scan().to_arrow()["id"].to_pylist())
        bad, good = [each for each in numbers if each < 0], [each for each in numbers if each >= 0]
        assert good in ([*range(reported + 1)], [*range(reported + 2)])
        assert bad in ([], [-1 - good[-1]])
        assert not bad or (tmp_path / "good").exists()
        between += bool(bad)
    record_testsuite_property(
        "restores killed", f"{kills}, after {reported} rounds; {between} before they were visible"
    )


COMPACTOR = """
import json, sys
from pathlib import Path
import widen

catalog, number = Path(sys.argv[1]), int(sys.argv[2])
while True:
    source = catalog.parent / f"{number}.jsonl"
    source.with_suffix(".new").write_text(json.dumps({"id": number, f"f{number % 4}": number}) + chr(10))
    source.with_suffix(".new").rename(source)
    widen.ingest(str(source), "shop.orders", txn=("loader", number), catalog=catalog, engine="local")
    table = widen.IcebergTable("shop.orders", catalog)
    table.change_partitioning(add=[f"bucket({number + 2}, id)"], drop=table.partition_by)
    table.rewrite()
    table.optimize()
    table.vacuum(0, keep_last=1, force=True)
    print(number, flush=True)
    number += 1
"""


def test_what_is_rewritten_is_there_once(
    tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Files are in the table before others are removed, and no vacuum deletes a file of it."""
    catalog, rng, reported, kills = tmp_path / "c.db", random.Random(9), -1, 40 if FULL in os.environ else 2
    for _ in range(kills):
        reported = run_killed(COMPACTOR, catalog, reported + 1, wait=lambda first: rng.uniform(0, 0.6) * first)
        rows = to_table_name("shop.orders", catalog).load().scan().to_arrow()
        numbers = sorted(rows["id"].to_pylist())
        assert numbers in ([*range(reported + 1)], [*range(reported + 2)])
    record_testsuite_property("compactions killed", f"{kills}, after {reported} rounds")
