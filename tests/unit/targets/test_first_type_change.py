"""A new table has no feature before it needs it: its first type change turns on type widening, and says who is lost."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import widen
from support.command_line import run, run_json
from support.race import other_first
from widen.errors import FeatureNotPresent, InvalidOption, TypeChangeRefused
from widen.model.display import READERS_LOG
from widen.targets.delta import DeltaDraft

sys.path.append(str(Path(__file__).resolve().parents[3] / "tools"))
import readers

INTENT = ("widen.typeWidening", "whenNeeded")
ENABLED = ("delta.enableTypeWidening", "true")


def records(folder: Path, name: str, *values: object) -> str:
    path = folder / f"{name}.json"
    path.write_text("".join(json.dumps({"id": number, "v": value}) + "\n" for number, value in enumerate(values)))
    return str(path)


def load(folder: Path, name: str, *values: object, **options: Any) -> widen.Table:
    widen.ingest(records(folder, name, *values), str(folder / "t"), engine="local", **options)
    return widen.Table(folder / "t")


def protocol(table: widen.Table) -> tuple[int, int]:
    return table.snapshot.protocol.min_reader_version, table.snapshot.protocol.min_writer_version


def widens(table: widen.Table) -> bool:
    return "typeWidening" in (table.snapshot.protocol.reader_features or ())


def test_a_week_without_a_type_change_needs_no_feature(tmp_path: Path) -> None:
    for day in range(7):
        table = load(tmp_path, f"day{day}", day, None if day % 2 else 100 + day)
    assert (table.version, protocol(table)) == (6, (1, 2))
    assert INTENT in table.properties.items()
    assert ENABLED not in table.properties.items()
    expected = sorted(row["v"] for row in table.to_arrow().to_pylist() if row["v"] is not None)
    for rows in (
        DeltaTable(table.location).to_pyarrow_table(),
        import_module("polars").read_delta(table.location).to_arrow(),
        import_module("duckdb").from_arrow(DeltaTable(table.location).to_pyarrow_dataset()).to_arrow_table(),
    ):
        assert sorted(value for value in rows["v"].to_pylist() if value is not None) == expected
    asked = {"table": table.location, "columns": ["v"], "question": {"column": "v", "op": "value"}}
    for name in ("daft", "duckdb", "datafusion", "sail"):  # in an environment of their own, which `make readers` makes
        if (readers.EXTRAS / "bin" / "python").exists():
            client = readers.Client(name, ())
            assert sorted(int(value) for (value,) in client.ask(asked)["rows"]) == expected, name
            client.close()


def test_the_first_type_change_brings_the_feature_and_names_the_readers_that_are_lost(tmp_path: Path) -> None:
    load(tmp_path, "a", 1)
    second = records(tmp_path, "b", 1.5)
    plan = widen.plan(second, str(tmp_path / "t"), engine="local")
    assert (plan.enables_widening, plan.widenable) == (True, ())
    shown = run("plan", second, "--into", str(tmp_path / "t")).stdout
    assert "deltalake, polars and other readers" in shown
    done = run_json("ingest", second, "--into", str(tmp_path / "t"), "--plan-hash", plan.hash, "--verify")
    assert done["plan"]["enablesTypeWidening"] is True
    assert done["plan"]["readersLost"] == ["deltalake", "polars"]
    table = widen.Table(tmp_path / "t")
    assert (table.version, widens(table)) == (1, True)
    assert ENABLED in table.properties.items()
    assert INTENT not in table.properties.items()
    for read in (lambda: DeltaTable(table.location).to_pyarrow_table(), lambda: polars_rows(table)):
        with pytest.raises(Exception, match=r"(?i)typeWidening|feature"):
            read()
    assert sorted(table.to_arrow()["v"].to_pylist()) == [1.0, 1.5]
    again = widen.plan(records(tmp_path, "c", 2.5), table.location, engine="local")
    assert (again.enables_widening, again.is_empty) == (False, True)


def polars_rows(table: widen.Table) -> Any:
    return import_module("polars").read_delta(table.location)


def test_a_new_column_and_a_type_for_a_column_of_nulls_bring_none(tmp_path: Path) -> None:
    load(tmp_path, "a", None)
    path = tmp_path / "b.json"
    path.write_text('{"id": 1, "v": 12, "w": "x"}\n')
    result = widen.ingest(path, str(tmp_path / "t"), engine="local")
    assert not result.plan.enables_widening
    assert protocol(widen.Table(tmp_path / "t")) == (1, 2)


@pytest.mark.parametrize(
    ("options", "property"), [({"enable_type_widening": True}, ENABLED), ({"evolve": "split"}, None)]
)
def test_the_first_load_may_decide_otherwise(
    tmp_path: Path, options: dict[str, Any], property: tuple[str, str] | None
) -> None:
    table = load(tmp_path, "a", 1, **options)
    assert widens(table) is (property is not None)
    assert INTENT not in table.properties.items()
    assert property is None or property in table.properties.items()


def test_the_option_turns_it_on_before_the_first_type_change(tmp_path: Path) -> None:
    load(tmp_path, "a", 1)
    table = load(tmp_path, "b", 2, enable_type_widening=True)
    assert widens(table)
    assert ENABLED in table.properties.items()
    assert INTENT not in table.properties.items()


def test_a_change_of_a_column_brings_it_too(tmp_path: Path) -> None:
    table = load(tmp_path, "a", 1)
    table.alter_column("v", comment="a number")
    assert protocol(table) == (1, 2)
    table.alter_column("v", type="bigint")
    assert widens(table)
    assert [change.new.sql for _, change in table.type_changes] == ["bigint"]


def test_a_table_that_did_not_say_so_is_not_widened(tmp_path: Path) -> None:
    table = widen.create_table(tmp_path / "t", "id int, v int")
    with pytest.raises(TypeChangeRefused, match="not enabled"):
        table.alter_column("v", type="bigint")
    table = load(tmp_path, "a", 1.5)
    assert [field.name for field in table.schema] == ["id", "v", "v_double"]
    created = widen.create_table(tmp_path / "u", "id int, v int", properties=dict([INTENT]))
    created.alter_column("v", type="bigint")
    assert widens(created)


def test_a_no_wins_over_the_intent(tmp_path: Path) -> None:
    table = load(tmp_path, "a", 1).set_properties({"delta.enableTypeWidening": "false"})
    assert INTENT not in table.properties.items()
    assert [field.name for field in load(tmp_path, "b", 1.5).schema] == ["id", "v", "v_double"]
    table.unset_properties(["delta.enableTypeWidening"])
    with pytest.raises(TypeChangeRefused):
        table.alter_column("v", type="bigint")


def test_the_property_has_one_value(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="whenNeeded"):
        widen.create_table(tmp_path / "t", "id int", properties={"widen.typeWidening": "true"})


def test_the_property_is_known_in_any_spelling(tmp_path: Path) -> None:
    table = widen.create_table(tmp_path / "t", "id int, v int", properties={"Widen.typewidening": "whenNeeded"})
    assert table.properties == dict([INTENT])
    assert table.unset_properties(["WIDEN.TYPEWIDENING"]).properties == {}


def test_dropping_the_feature_of_a_table_that_never_had_it_forgets_the_intent(tmp_path: Path) -> None:
    table = load(tmp_path, "a", 1)
    table.drop_feature("typeWidening")
    assert (table.version, table.properties) == (1, {})
    assert [field.name for field in load(tmp_path, "b", 1.5).schema] == ["id", "v", "v_double"]
    with pytest.raises(FeatureNotPresent):
        table.drop_feature("typeWidening")


def test_a_dropped_feature_does_not_come_back_by_itself(tmp_path: Path) -> None:
    load(tmp_path, "a", 1)
    table = load(tmp_path, "b", 1.5)
    table.drop_feature("typeWidening")
    assert not widens(table)
    assert INTENT not in table.properties.items()
    assert sorted(DeltaTable(table.location).to_pyarrow_table()["v"].to_pylist()) == [1.0, 1.5]
    path = tmp_path / "c.json"
    path.write_text('{"id": 2.5, "v": 2}\n')
    widen.ingest(path, table.location, engine="local")
    assert not widens(table.refresh())


def test_a_handover_forgets_the_intent(tmp_path: Path) -> None:
    table = load(tmp_path, "a", 1)
    shown = run("handover", table.location, "--to", "polars", "--dry-run").stdout
    assert "widen.typeWidening is unset" in shown
    assert INTENT in table.refresh().properties.items()
    assert run_json("handover", table.location, "--to", "polars")["unset"] == ["widen.typeWidening"]
    assert table.refresh().properties == {}
    assert "unset" not in run_json("handover", table.location, "--to", "polars")


@pytest.mark.parametrize(("first", "second"), [(2**40, 1.5), (1.5, 2**40), (2**40, 2**41), (1.5, 2)])
def test_two_writers_may_make_the_first_type_change_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: object, second: object
) -> None:
    """The second one loses the race for the protocol, plans anew against the widened table, and loses no record."""
    load(tmp_path, "a", 1)
    other = records(tmp_path, "other", first)
    other_first(
        monkeypatch,
        DeltaDraft,
        "commit",
        lambda: widen.ingest(other, str(tmp_path / "t"), engine="local"),
    )
    table = load(tmp_path, "b", second, verify=True)
    assert (table.version, widens(table)) == (2, True)
    assert INTENT not in table.properties.items()
    values = [value for row in table.to_arrow().to_pylist() for key, value in row.items() if key != "id"]
    assert sorted(float(value) for value in values if value is not None) == sorted(map(float, (1, first, second)))


def test_a_plain_writer_beside_the_first_type_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that widens nothing loses against one that does: the protocol of the table is another one."""
    load(tmp_path, "a", 1)
    other = records(tmp_path, "other", 1.5)
    other_first(monkeypatch, DeltaDraft, "commit", lambda: widen.ingest(other, str(tmp_path / "t"), engine="local"))
    table = load(tmp_path, "b", 2, verify=True)
    assert (table.version, widens(table)) == (2, True)
    assert table.schema.find("v").type.sql == "double"
    assert sorted(table.to_arrow()["v"].to_pylist()) == [1.0, 1.5, 2.0]


def test_a_restored_version_widens_again(tmp_path: Path) -> None:
    load(tmp_path, "a", 1)
    table = load(tmp_path, "b", 1.5)
    table.restore(0)
    assert (widens(table), table.schema.find("v").type.sql) == (True, "int")
    table = load(tmp_path, "c", 2.5)
    assert table.schema.find("v").type.sql == "double"
    assert ENABLED in table.properties.items()
    assert table.to_arrow().num_rows == 2
    assert table.to_arrow().schema.field("v").type == pa.float64()


SENTENCE = (
    "deltalake, polars and other readers that do not support the table feature typeWidening refuse the table from"
)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What is told to users of Python, also after a command of this process."""
    monkeypatch.setattr(logging.getLogger(READERS_LOG), "disabled", False)
    return caplog


DOORS: dict[str, Callable[[str], Any]] = {
    "alter_column": lambda t: widen.Table(t).alter_column("v", type="bigint"),
    "alter_columns": lambda t: widen.Table(t).alter_columns({"v": {"type": "bigint"}}),
    "replace_columns": lambda t: widen.Table(t).replace_columns("id int, v bigint"),
    "set_properties": lambda t: widen.Table(t).set_properties(dict([ENABLED])),
    "add_feature": lambda t: widen.Table(t).add_feature("typeWidening"),
    "sql": lambda t: widen.sql(f"ALTER TABLE delta.`{t}` ALTER COLUMN v TYPE bigint"),
    "sql properties": lambda t: widen.sql(f"ALTER TABLE delta.`{t}` SET TBLPROPERTIES ('{ENABLED[0]}' = 'true')"),
    "restore": lambda t: widen.Table(t).restore(2),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_says_who_is_lost(tmp_path: Path, told: pytest.LogCaptureFixture, door: str) -> None:
    place = str(tmp_path / "t")
    widen.create_table(place, "id int, v int", properties=dict([INTENT]))
    if door == "restore":
        load(tmp_path, "a", 1)
        widen.Table(place).alter_column("v", type="bigint")
        widen.Table(place).drop_feature("typeWidening")
        told.clear()
    DOORS[door](place)
    assert widens(widen.Table(place))
    assert [line for line in told.messages if SENTENCE in line] == [f"{place}: {SENTENCE} then on."]


@pytest.mark.parametrize(
    "words",
    [
        ("alter", "{}", "v", "--type", "bigint"),
        ("sql", "ALTER TABLE delta.`{}` ALTER COLUMN v TYPE bigint"),
        ("properties", "{}", "--set", "delta.enableTypeWidening=true"),
        ("sql", "ALTER TABLE delta.`{}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"),
    ],
    ids=["alter", "sql", "properties", "sql properties"],
)
def test_every_command_says_who_is_lost(tmp_path: Path, words: tuple[str, ...]) -> None:
    for form in ("text", "json"):
        place = str(tmp_path / form)
        widen.create_table(place, "id int, v int", properties=dict([INTENT]))
        call = [word.format(place) for word in words]
        if form == "text":
            shown = run(*call)
            assert (shown.exit_code, shown.stdout.count(SENTENCE), shown.stderr) == (0, 1, "")
            continue
        found = run_json(*call)
        assert (found["addedFeatures"], found["readersLost"]) == (["typeWidening"], ["deltalake", "polars"])
        assert found["enablesTypeWidening"] is True


def test_other_features_are_named_too(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    table = widen.create_table(tmp_path / "t", "id int")
    assert (table.added_features, told.messages) == ((), [])
    table.add_feature("timestampNtz").add_columns({"at": "timestamp_ntz"})
    table.set_properties({"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"})
    assert table.added_features == ("timestampNtz", "columnMapping", "deletionVectors")
    assert [line.partition("t: ")[2] for line in told.messages] == [
        "Readers that do not support the table feature timestampNtz refuse the table from then on.",
        "deltalake, polars and other readers that do not support the table feature columnMapping refuse or misread the "
        "table from then on.",
        "deltalake and other readers that do not support the table feature deletionVectors refuse the table from then "
        "on.",
    ]
    table.set_properties({"a": "b"}).add_columns({"more": "int"})
    assert len(told.messages) == 3


WRONG = "DuckDB, extension delta 1.5.5: reads → wrong: filters for a range (v: float became double)"
FLOATS: dict[str, Callable[[str], Any]] = {
    "alter_column": lambda t: widen.Table(t).alter_column("v", type="double"),
    "replace_columns": lambda t: widen.Table(t).replace_columns("v double"),
    "sql": lambda t: widen.sql(f"ALTER TABLE delta.`{t}` ALTER COLUMN v TYPE double"),
    "ingest": lambda t: widen.ingest(pa.table({"v": [0.1]}), t, engine="local"),
}


def of_floats(folder: Path, rows: int = 1) -> str:
    place = str(folder)
    widen.create_table(place, "v float", properties=dict([INTENT]))
    if rows:
        widen.ingest(pa.table({"v": pa.array([0.1] * rows, pa.float32())}), place, engine="local")
    return place


@pytest.mark.parametrize("door", FLOATS)
def test_every_door_says_who_becomes_wrong(tmp_path: Path, told: pytest.LogCaptureFixture, door: str) -> None:
    place = of_floats(tmp_path / "t")
    FLOATS[door](place)
    assert [line for line in told.messages if "wrong" in line] == [f"{place}: {WRONG}"]
    (found,) = (each for each in widen.Table(place).readers("duckdb") if each.reader.name == "duckdb")
    assert found.shown == "wrong: filters for a range"


def test_commands_say_who_becomes_wrong(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    place = of_floats(tmp_path / "t")
    command = ("alter", place, "v", "--type", "double")
    planned, found = (run_json(*command, *more)["readersWrong"] for more in (("--dry-run",), ()))
    assert planned == found
    assert [(each["reader"], each["before"], each["after"]) for each in found] == [("duckdb", "reads", "wrong")]
    other, file = of_floats(tmp_path / "other"), tmp_path / "b.parquet"
    pq.write_table(pa.table({"v": [0.1]}), file)
    for words in (("alter", other, "v", "--type", "double", "--dry-run"), ("plan", str(file), "--into", other)):
        assert "wrong: filters for a range" in run(*words).stdout
    assert run_json("ingest", str(file), "--into", other)["plan"]["readers"] == found
    empty = of_floats(tmp_path / "empty", rows=0)
    assert "readersWrong" not in run_json("alter", empty, "v", "--type", "double")
