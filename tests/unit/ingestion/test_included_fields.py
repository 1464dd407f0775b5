"""`include`: only the listed fields of records are loaded, as if the records had no others; nothing else is stored."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner

import widen
from widen.cli.app import app
from widen.data_source.ingest_sink import parse_option, sink_options
from widen.errors import InvalidOption, UnmatchedFields
from widen.ingestion.options import parse_policy

SECRET = "hjkmn-secret"
KEPT = ("id", "Name", "n", "deep", "kind")
INCLUDE = ["ID", "name", "n", "deep", "kind"]
Record = dict[str, Any]


def make_records(seed: int, count: int = 60) -> list[Record]:
    """Return records whose fields drift, with fields that `INCLUDE` does not list, some of them late."""
    chance = random.Random(seed)
    records = []
    for at in range(count):
        record: Record = {
            "id": at % 20,
            "Name": chance.choice(("a", "b", None, 7)),
            "n": chance.choice((1, 2.5, 2**40)) if at > 20 else 1,
            "deep": chance.choice(({"x": 1, "secret_": "kept"}, {"x": "y"}, None, [1])),
            "kind": chance.choice("ab"),
            "secret": chance.choice((SECRET, {"s": SECRET}, [SECRET], 1, None)),
            "Other": SECRET,
        }
        if at > 30:
            record[f"late_{at % 3}"] = {"s": SECRET}
        keys = list(record)
        chance.shuffle(keys)
        records.append({key: record[key] for key in keys if chance.random() < 0.9 or key in ("id", "n")})
    return records


def project(record: Record) -> Record:
    return {key: value for key, value in record.items() if key in KEPT}


def as_json(records: list[Record]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in records).encode()


def as_csv(records: list[Record]) -> bytes:
    text = io.StringIO()
    names = list(dict.fromkeys(name for each in records for name in each))
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()


def as_parquet(records: list[Record]) -> bytes:
    names = list(dict.fromkeys(name for each in records for name in each))
    columns = {name: pa.array([json.dumps(each.get(name)) for each in records]) for name in names}
    columns["id"] = pa.array([each["id"] for each in records])
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


FORMS: Mapping[str, Callable[[list[Record]], bytes]] = {"json": as_json, "csv": as_csv, "parquet": as_parquet}


def target(place: Path, kind: str) -> tuple[str, dict[str, Any]]:
    return ("shop.t", {"catalog": f"{place}/c.db"}) if kind == "iceberg" else (str(place / "t"), {})


def content(into: str, where: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of the columns of a table, and its rows."""
    if where:
        rows = SqlCatalog("default", uri=f"sqlite:///{where['catalog']}").load_table(into).scan().to_arrow()
    else:
        rows = widen.Table(into).to_arrow()
    return rows.schema.names, sorted(map(str, rows.to_pylist()))


def stored(place: Path) -> str:
    files = [each for each in place.rglob("*") if each.is_file() and each.suffix != ".crc"]
    texts = [str(pq.read_table(each).to_pylist()) for each in files if each.suffix == ".parquet"]
    return " ".join(texts) + " ".join(each.read_bytes().decode(errors="replace") for each in files)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(2))
def test_a_load_is_that_of_records_without_other_fields(tmp_path: Path, kind: str, form: str, seed: int) -> None:
    records = make_records(seed)
    halves = [records[: 40 + seed], records[40 + seed :]]
    found = []
    for name, change, words in (("list", dict, {"include": INCLUDE}), ("cut", project, {})):
        place = tmp_path / name
        place.mkdir()
        into, where = target(place / "table", kind)
        (place / "table").mkdir()
        for number, half in enumerate(halves):
            source = place / f"{number}.{form}"
            source.write_bytes(FORMS[form](list(map(change, half))))
            done = widen.ingest(source, into, engine="local", verify=True, **where, **words)
            assert done.verification is not None
            assert done.verification.is_clean, done.verification
        found.append(content(into, where))
        if name == "list":
            assert SECRET not in stored(place / "table")
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("words", [{}, {"missing": "keep"}, {"history": True}])
def test_rows_by_key(tmp_path: Path, kind: str, words: Mapping[str, Any]) -> None:
    """Whether a record deletes may depend on a field that is not loaded."""
    chance = random.Random(7)
    records = [{**each, "n": at, "op": chance.choice("uuD")} for at, each in enumerate(make_records(3))]
    chance.shuffle(records)
    keyed = {"key": ["id"], "sequence_by": "n", "engine": "local", "verify": True, **words}
    found = []
    for name, listed in (("list", {"include": INCLUDE}), ("all", {"exclude": ["op"]})):
        (tmp_path / name).mkdir()
        into, where = target(tmp_path / name, kind)
        for number in range(2):
            source = tmp_path / f"{name}{number}.json"
            own = records[number::2] if name == "list" else [{**project(r), "op": r["op"]} for r in records[number::2]]
            source.write_bytes(as_json(own))
            done = widen.ingest(source, into, delete_when="op = 'D'", **keyed, **where, **listed)
            assert done.verification is not None
            assert done.verification.is_clean, done.verification
        found.append((content(into, where), str(done.keys)))
    assert found[0] == found[1]
    assert SECRET not in stored(tmp_path / "list")


def test_what_cannot_be_left_out_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    source.write_bytes(as_json([{"id": 1, "n": 1, "k": {"id": 1}, "name": "x"}]))
    keys = {"key": ["id"], "sequence_by": "n"}
    for words, message in (
        ({**keys, "include": ["n"]}, "key cannot be 'id'.*add id to include"),
        ({**keys, "include": ["id", "name"]}, "sequence_by cannot be 'n'.*add n to include"),
        ({"key": ["k.id"], "include": ["id"]}, r"key cannot be 'k\.id'.*add k to include"),
        ({"include": ["k.id"]}, r"include cannot be 'k\.id'.*with exclude"),
        ({"include": []}, "include cannot be"),
        ({"include": "id"}, "include cannot be 'id'"),
        ({"include": ["id"], "mask": ["name"]}, "mask cannot be 'name'.*include does not list"),
        ({"include": ["id"], "exclude": ["k.x"]}, r"exclude cannot be 'k\.x'.*include does not list"),
    ):
        with pytest.raises(InvalidOption, match=f"(?s){message}"):
            widen.ingest(source, tmp_path / "t", engine="local", **words)
    with pytest.raises(UnmatchedFields, match=r"include nmae: .* Did you mean name"):
        widen.ingest(source, tmp_path / "t", engine="local", include=["id", "name", "nmae"])
    assert not (tmp_path / "t" / "_delta_log").exists()
    done = widen.ingest(source, tmp_path / "t", engine="local", include=["id", "nmae"], allow_unmatched=True)
    assert [str(each).partition(":")[0] for each in done.plan.unmatched] == ["include nmae"]
    widen.ingest(source, tmp_path / "u", engine="local", include=["id", "k"], exclude=["k.id"], mask=["id"])
    assert widen.Table(tmp_path / "u").to_arrow().to_pylist() == [{"id": "***"}]


def test_folders_and_origins(tmp_path: Path) -> None:
    (tmp_path / "s" / "Day=1" / "eu=x").mkdir(parents=True)
    (tmp_path / "s" / "Day=1" / "eu=x" / "a.json").write_bytes(as_json([{"id": 1, "name": SECRET}]))
    widen.ingest(tmp_path / "s", tmp_path / "t", engine="local", include=["id", "day"], source_columns=True)
    (row,) = widen.Table(tmp_path / "t").to_arrow().to_pylist()
    assert row.keys() == {"id", "Day", "_source_file", "_loaded_at"}
    assert (row["id"], row["Day"]) == (1, "1")


def test_quarantined_and_damaged_records(tmp_path: Path) -> None:
    """Nothing of a field that is not listed is kept there, and a replay has the same list."""
    widen.create_table(str(tmp_path / "t"), "id int not null, name string")
    lines = [{"id": 1, "name": "a", "x": SECRET}, {"name": "b", "x": SECRET}, {"id": "c", "x": SECRET}]
    source = tmp_path / "a.json"
    source.write_bytes(as_json(lines) + f'{{"id": 2, "x": "{SECRET}\n'.encode())
    words: dict[str, Any] = {"include": ["id", "name"], "engine": "local"}
    done = widen.ingest(source, tmp_path / "t", verify=True, **words)
    assert done.verification is not None
    assert done.verification.is_clean
    assert SECRET not in stored(tmp_path / "t") + stored(tmp_path / "t_quarantine")
    assert "bytes that may hold fields that are not loaded" in stored(tmp_path / "t_quarantine")
    with pytest.raises(UnmatchedFields, match="nmae"):
        widen.replay(tmp_path / "t_quarantine", tmp_path / "t", include=["id", "nmae"], engine="local")
    widen.replay(tmp_path / "t_quarantine", tmp_path / "t", **words)


def test_a_replay_needs_the_keys(tmp_path: Path) -> None:
    source, into = tmp_path / "a.json", tmp_path / "t"
    source.write_bytes(as_json([{"id": 1, "n": 1, "x": 1}, {"n": 1, "x": 1}]))
    widen.ingest(source, into, engine="local", key=["id"], sequence_by="n")
    with pytest.raises(InvalidOption, match=r"(?s)sequence_by cannot be 'n'.*add n to include"):
        widen.replay(f"{into}_quarantine", into, include=["id"], engine="local")


def test_every_door(tmp_path: Path) -> None:
    """The command line, a file, a plan, a stream, and the options of a sink."""
    source = tmp_path / "in" / "a.json"
    source.parent.mkdir()
    source.write_bytes(as_json([{"id": 1, "name": "a", "x": SECRET}]))
    config = tmp_path / "c.toml"
    config.write_text('include = ["id", "name"]\n')
    assert parse_policy(config=config) == parse_policy(include=["id", "name"])
    assert parse_policy(config=config, include=["id"]).included_names == {"id", "_unchanged"}
    assert parse_option("include", sink_options()["include"][0], "id, name") == ["id", "name"]
    words = ["--include", "id", "--include", "name", "--engine", "local"]
    for number, command in enumerate((["ingest"], ["ingest", "--once", "--checkpoint", str(tmp_path / "cp")])):
        into = tmp_path / f"t{number}"
        result = CliRunner().invoke(app, [*command, str(source.parent), "--into", str(into), *words])
        assert result.exit_code == 0, result.output
        assert widen.Table(into).to_arrow().to_pylist() == [{"id": 1, "name": "a"}]
    plan = widen.plan(source, tmp_path / "p", config=config, engine="local")
    assert plan.schema.names == ("id", "name")
    assert widen.plan(source, tmp_path / "p", include=["id", "name"], engine="local").hash == plan.hash
