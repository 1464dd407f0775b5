"""Loading files: only new ones, each exactly once, and what is told of known, changed and late ones."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.command_line import run, run_json
from widen import ingest, ingest_stream, plan
from widen.errors import CorruptFile, FilesChanged, InvalidOption, LimitExceeded
from widen.log.loads import FOLDER
from widen.log.log_store import LogStore
from widen.table import Table, create_table


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    place = tmp_path / "landing"
    place.mkdir()
    return place


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def put(landing: Path, name: str, *numbers: int, time: int = 1_700_000_000) -> None:
    path = landing / name
    path.write_text("".join(json.dumps({"n": number}) + "\n" for number in numbers))
    os.utime(path, (time, time))


def numbers(spark: SparkSession, table: str) -> list[int]:
    return sorted(row.n for row in Table(table).read(spark=spark).collect())


def loaded(table: str) -> list[tuple[int, int, list[str]]]:
    return [
        (load.version, load.records, [Path(file.path).name for file in load.files]) for load in Table(table).loads()
    ]


def test_a_day_of_files(spark: SparkSession, landing: Path, table: str) -> None:
    load_new = partial(ingest, str(landing), table, new=True, spark=spark)
    put(landing, "a.jsonl", 1, 2)
    put(landing, "b.jsonl", 3)
    ingest(str(landing / "a.jsonl"), table, spark=spark)
    done = load_new()
    assert (done.version, done.records, len(done.compared.skipped)) == (1, 1, 1)
    assert numbers(spark, table) == [1, 2, 3]

    again = load_new()
    assert (again.version, again.records, again.is_unchanged) == (1, 0, True)
    assert plan(str(landing), table, new=True, spark=spark).is_empty

    put(landing, "late.jsonl", 4, time=1_600_000_000)
    done = load_new()
    assert [Path(path).name for path in done.compared.late.first] == ["late.jsonl"]

    put(landing, "b.jsonl", 3, 30)
    with pytest.raises(FilesChanged, match=r"b\.jsonl"):
        load_new()
    assert load_new(changed="skip").is_unchanged
    assert load_new(changed="load").records == 2
    assert load_new().is_unchanged
    assert numbers(spark, table) == [1, 2, 3, 3, 4, 30]

    repeated = ingest(str(landing / "a.jsonl"), table, spark=spark)
    assert [Path(path).name for path in repeated.compared.repeated.first] == ["a.jsonl"]
    assert loaded(table) == [
        (0, 2, ["a.jsonl"]),
        (1, 1, ["b.jsonl"]),
        (2, 1, ["late.jsonl"]),
        (3, 2, ["b.jsonl"]),
        (4, 2, ["a.jsonl"]),
    ]


def test_each_content_is_loaded_once(spark: SparkSession, landing: Path, table: str) -> None:
    put(landing, "a.jsonl", 1)
    load_new = partial(ingest, str(landing), table, new=True, new_by="content", spark=spark)
    load_new()
    put(landing, "a.jsonl", 1, time=1_700_000_001)
    put(landing, "copy+of a.jsonl", 1)
    put(landing, "b.jsonl", 2)
    done = load_new()
    assert sorted(Path(path).name for path in done.compared.known.first) == ["a.jsonl", "copy+of a.jsonl"]
    assert numbers(spark, table) == [1, 2]
    assert [len(file.content) for load in Table(table).loads() for file in load.files] == [32, 32]

    put(landing, "b.jsonl", 3)  # same size and time
    with pytest.raises(FilesChanged):
        load_new()


def test_writers_at_the_same_time_load_each_file_once(spark: SparkSession, landing: Path, table: str) -> None:
    for number in range(4):
        put(landing, f"{number}.jsonl", number)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(ingest, str(landing), table, new=True, spark=spark) for _ in range(2)]
        assert sorted(run.result().records for run in runs) == [0, 4]
    assert numbers(spark, table) == [0, 1, 2, 3]


def test_a_run_that_ends_before_its_commit_has_loaded_nothing(
    spark: SparkSession, landing: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(landing, "a.jsonl", 1)
    ingest(str(landing), table, new=True, spark=spark)
    put(landing, "b.jsonl", 2)
    put_if_absent = LogStore.put_if_absent

    def dies(store: LogStore, path: str, data: bytes) -> bool:
        if path.startswith(FOLDER):
            return put_if_absent(store, path, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(LogStore, "put_if_absent", dies)
    with pytest.raises(KeyboardInterrupt):
        ingest(str(landing), table, new=True, spark=spark)
    monkeypatch.undo()
    assert loaded(table) == [(0, 1, ["a.jsonl"])]
    assert ingest(str(landing), table, new=True, spark=spark).records == 1
    assert numbers(spark, table) == [1, 2]


def test_a_table_that_may_have_forgotten_its_loads_takes_no_new_files(
    spark: SparkSession, landing: Path, table: str
) -> None:
    expiring = "delta.setTransactionRetentionDuration"
    created = create_table(table, "n bigint", properties={expiring: "interval 1 hours"})
    put(landing, "a.jsonl", 1)
    with pytest.raises(InvalidOption, match="lets the table forget"):
        ingest(str(landing), table, new=True, spark=spark)
    assert numbers(spark, table) == []
    created.unset_properties([expiring])
    assert ingest(str(landing), table, new=True, spark=spark).records == 1


def test_streams_and_typed_files_are_recorded_and_rows_are_not(
    spark: SparkSession, landing: Path, table: str, tmp_path: Path
) -> None:
    put(landing, "a.jsonl", 1)
    stream = ingest_stream(str(landing), table, checkpoint=str(tmp_path / "c"), once=True, spark=spark)
    stream.wait()
    assert loaded(table) == [(0, 1, ["a.jsonl"])]
    assert ingest(str(landing), table, new=True, spark=spark).is_unchanged
    spark.range(2, 4).selectExpr("id as n").coalesce(1).write.parquet(str(tmp_path / "p"))
    assert ingest(str(tmp_path / "p"), table, new=True, spark=spark).records == 2
    assert [records for _, records, _ in loaded(table)] == [1, 2]
    ingest(spark.range(1).selectExpr("id as n"), table, spark=spark)
    assert len(loaded(table)) == 2
    with pytest.raises(InvalidOption, match="new cannot be True"):
        ingest(spark.range(1), table, new=True, spark=spark)


def test_the_command_line_tells_what_is_loaded(landing: Path, table: str) -> None:
    put(landing, "a.jsonl", 1, 2)
    assert run("ingest", str(landing), "--into", table, "--new").exit_code == 0
    quiet = run("ingest", str(landing), "--into", table, "--new")
    # The length of the path decides where lines wrap.
    assert (quiet.exit_code, " ".join(quiet.stdout.split())) == (0, f"No new files: {table} has version 0.")
    again = run("ingest", str(landing), "--into", table)
    assert "warning: loaded again; --new leaves out 1 file: file:" in again.stderr
    put(landing, "a.jsonl", 1, 2, 3)
    changed = run("ingest", str(landing), "--into", table, "--new")
    assert changed.exit_code == 1
    assert "WIDEN_FILES_CHANGED" in changed.stderr
    found = run_json("loads", table)
    assert [(each["version"], each["records"], each["quarantined"], len(each["files"])) for each in found] == [
        (0, 2, 0, 1),
        (1, 2, 0, 1),
    ]
    assert found[0]["files"][0]["modifiedMs"] == 1_700_000_000_000
    assert "a.jsonl" in "".join(run("loads", table).stdout.split())
    assert "a.jsonl" in "".join(run("loads", table, "--files").stdout.split())
    shutil.rmtree(Path(table) / FOLDER)
    missing = run("ingest", str(landing), "--into", table, "--new")
    assert (missing.exit_code, "a part of the record of loads is missing" in missing.stderr) == (1, True)
    assert run("ingest", str(landing), "--into", table).exit_code == 0
    assert [(each["version"], len(each["files"])) for each in run_json("loads", table)] == [(2, 1)]


def test_a_table_that_is_built_again_keeps_its_layout(spark: SparkSession, landing: Path, table: str) -> None:
    for name, total in (("a.jsonl", "2.5"), ("b.jsonl", '"free"')):
        (landing / name).write_text(f'{{"total": {total}}}\n')
        ingest(str(landing / name), table, spark=spark)
    names = ["total", "total_string"]
    assert [field.name for field in Table(table).schema] == names
    done = ingest(str(landing), table + "2", layout_of=table, verify=True, spark=spark)
    assert done.verification is not None
    assert done.verification.is_clean
    assert [field.name for field in Table(table + "2").schema] == names
    with pytest.raises(InvalidOption, match="layout_of cannot be"):
        plan(str(landing), table + "3", layout_of=table + "4", spark=spark)


def test_small_named_files_take_no_spark_job_and_are_the_same_files_as_in_their_folder(
    spark: SparkSession, landing: Path, table: str
) -> None:
    names = ["a.jsonl", "b.jsonl", "empty.jsonl"]
    for number, name in enumerate(names):
        put(landing, name, *[number] * (name != "empty.jsonl"))
        os.utime(landing / name, ns=(0, 1_700_000_000_123_999_999))
    before = spark.sparkContext.statusTracker().getJobIdsForGroup()
    ingest([str(landing / name) for name in names], table, spark=spark, source_columns=True)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup() == before
    assert Table(table).loads()[0].files[0].modified_ms == 1_700_000_000_123
    assert ingest(str(landing), table, new=True, spark=spark).compared.known.first == tuple(
        f"file:{landing / name}" for name in names[:2]
    )
    ingest(str(landing), table, spark=spark, source_columns=True)
    rows = Table(table).read(spark=spark).select("n", "_source_file").collect()
    assert sorted(map(tuple, rows)) == sorted(2 * [(n, f"file:{landing / name}") for n, name in enumerate(names[:2])])


def test_an_unchanged_bad_file_is_skipped_once(spark: SparkSession, landing: Path, table: str) -> None:
    load_new = partial(ingest, str(landing), table, new=True, skip_bad_files=True, spark=spark)

    def kept() -> list[str]:
        return sorted(Path(row.file).name for row in Table(table + "_quarantine").read(spark=spark).collect())

    put(landing, "a.jsonl", 1)
    (landing / "bad.json.gz").write_bytes(b"no gzip")
    assert [Path(file.path).name for file in load_new().bad_files] == ["bad.json.gz"]
    again = load_new()
    assert (again.version, again.is_unchanged, again.bad_files) == (0, True, ())
    assert [Path(path).name for path in again.compared.bad.first] == ["bad.json.gz"]
    (landing / "worse.json.gz").write_bytes(b"no gzip either")
    alone = load_new()  # the only new file: its record is a separate commit
    assert (alone.version, alone.is_unchanged, len(alone.bad_files)) == (1, False, 1)
    assert load_new().is_unchanged
    assert kept() == ["bad.json.gz", "worse.json.gz"]
    with pytest.raises(CorruptFile):
        ingest(str(landing), table, new=True, spark=spark)  # without skipping, they are tried again
    assert [(len(load["files"]), len(load["badFiles"])) for load in run_json("loads", table)] == [(1, 1), (0, 1)]
    assert "skipped: it could not be read" in " ".join(run("loads", table, "--files").stdout.split())

    (landing / "bad.json.gz").write_bytes(gzip.compress(b'{"n":2}\n'))
    assert load_new().records == 1
    assert numbers(spark, table) == [1, 2]


# ---- parked files ----------------------------------------------------------------------------------


def test_files_over_a_limit_are_parked(spark: SparkSession, landing: Path, table: str) -> None:
    for number in range(7):
        put(landing, f"{number}.jsonl", *range(number * 10, number * 10 + 10))
    (landing / "bad.jsonl").write_text('{"n": 1000}\n' + "no record\n" * 3)
    (landing / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"n": 2000}\n' * 1000)[:-9])
    park = partial(ingest, str(landing), table, new=True, max_corrupt=2, park_over_limit=True, spark=spark)
    done = park(verify=True)
    assert (done.records, done.corrupt, numbers(spark, table)) == (70, 0, [*range(70)])
    assert done.verification is not None
    assert done.verification.is_clean
    found = {Path(file.path).name: (file.is_parked, file.reason) for file in done.bad_files}
    assert found["cut.jsonl.gz"][0] is False
    assert found["bad.jsonl"][0] is True
    assert "3 of " in found["bad.jsonl"][1]
    assert "the limit is 2" in found["bad.jsonl"][1]
    assert "parked" in run("loads", table, "--files").stdout
    assert "1 file parked" in run("loads", table).stdout
    assert run_json("loads", table)[0]["badFiles"]

    assert park().is_unchanged
    put(landing, "8.jsonl", 80)
    words = ("--into", table, "--new", "--max-corrupt", "2", "--park-over-limit")
    answer = run("ingest", str(landing), *words)
    assert (answer.exit_code, "park-over-limit" in answer.stderr) == (0, True)
    assert numbers(spark, table) == [*range(70), 80]
    reasons = [row.reason for row in Table(f"{table}_quarantine").read(spark=spark).collect()]
    assert sorted(reason.split(":")[0] for reason in reasons) == ["the file cannot be read", "the file is parked"]

    (landing / "cut.jsonl.gz").unlink()
    done = ingest(str(landing), table, new=True, max_corrupt=5, spark=spark)
    assert (done.records, done.corrupt) == (1, 3)
    assert "parked" not in run("loads", table).stdout


def test_parked_files_that_change_are_new(spark: SparkSession, landing: Path, table: str) -> None:
    park = partial(ingest, str(landing), table, new=True, fail_on="conflict", park_over_limit=True, spark=spark)
    put(landing, "a.jsonl", 1)
    park()
    (landing / "b.jsonl").write_text('{"n": "x"}\n')
    done = park()
    assert ([Path(file.path).name for file in done.bad_files], numbers(spark, table)) == (["b.jsonl"], [1])
    assert "conflict" in done.bad_files[0].reason
    put(landing, "b.jsonl", 2)
    assert park().records == 1
    assert numbers(spark, table) == [1, 2]


def test_files_that_a_mode_refuses_are_parked(spark: SparkSession, landing: Path, table: str) -> None:
    put(landing, "a.jsonl", 1)
    ingest(str(landing), table, new=True, spark=spark)
    (landing / "b.jsonl").write_text('{"n": 2, "m": 1}\n')
    put(landing, "c.jsonl", 3)
    done = ingest(str(landing), table, new=True, evolve="fail", park_over_limit=True, spark=spark)
    assert (done.records, [Path(file.path).name for file in done.bad_files]) == (1, ["b.jsonl"])


def test_nothing_is_parked_without_a_table(spark: SparkSession, landing: Path, table: str) -> None:
    (landing / "a.jsonl").write_text('{"n": 1}\nno record\n')
    with pytest.raises(LimitExceeded):
        ingest(str(landing), table, new=True, max_corrupt=0, park_over_limit=True, spark=spark)
    assert not Path(table).exists()
    with pytest.raises(InvalidOption, match="park_over_limit"):
        ingest(str(landing), table, max_corrupt=0, park_over_limit=True, spark=spark)


def test_files_are_parked_for_an_iceberg_table(spark: SparkSession, landing: Path, tmp_path: Path) -> None:
    put(landing, "a.jsonl", 1)
    (landing / "b.jsonl").write_text('{"n": 1}\nno record\n')
    words = {"to": "iceberg", "catalog": tmp_path / "c.db", "new": True, "max_corrupt": 0, "park_over_limit": True}
    done = ingest(str(landing), "shop.t", spark=spark, **words)  # type: ignore[arg-type]
    assert (done.records, [Path(file.path).name for file in done.bad_files]) == (1, ["b.jsonl"])
    assert ingest(str(landing), "shop.t", spark=spark, **words).is_unchanged  # type: ignore[arg-type]
