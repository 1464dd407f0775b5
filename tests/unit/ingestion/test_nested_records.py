"""`records`: what documents have below a path is loaded, proved and refused as if it were a file of its own."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner

import widen
from widen.cli.app import app
from widen.data_source.ingest_sink import parse_option, sink_options
from widen.errors import CorruptFile, InvalidOption, LimitExceeded
from widen.evolution.plan import Plan
from widen.ingestion.options import parse_policy
from widen.json import record_path
from widen.proof import nested_records
from widen.sources import file_ranges

Record = dict[str, Any]

DOCUMENTS: list[Record] = [
    {"next": "a", "data": {"count": 2, "items": [{"id": 1, "n": 1.10}, {"id": 2, "tags": ["x", {"y": 1}]}]}},
    {"data": {"items": [{"id": 3, "n": 2.5}], "count": 1}, "next": None},
    {"data": {"items": []}},
    {"data": {"items": None}},
]
ROWS = [(1, "a", 2), (2, "a", 2), (3, None, 1)]


def array(documents: list[Record]) -> bytes:
    return json.dumps(documents, indent=1).encode()


def lines(documents: list[Record]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in documents).encode()


def concatenated(documents: list[Record]) -> bytes:
    return "".join(json.dumps(each, indent=2) for each in documents).encode()


FORMS: Mapping[str, tuple[str, Callable[[list[Record]], bytes]]] = {
    "lines": ("a.json", lines),
    "array": ("a.json", array),
    "concatenated": ("a.json", concatenated),
    "gzip": ("a.json.gz", lambda documents: gzip.compress(array(documents))),
    "bzip2": ("a.json.bz2", lambda documents: bz2.compress(lines(documents))),
}


def load(source: Path, place: Path, kind: str = "delta", **words: Any) -> tuple[widen.IngestResult, list[Record]]:
    """Load and verify a source; return the result and the rows of the table."""
    into, where = ("shop.t", {"catalog": f"{place}/c.db"}) if kind == "iceberg" else (str(place / "t"), {})
    place.mkdir(exist_ok=True)
    done = widen.ingest(source, into, engine="local", verify=True, **where, **words)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    if where:
        rows = SqlCatalog("default", uri=f"sqlite:///{where['catalog']}").load_table(into).scan().to_arrow()
    else:
        rows = widen.Table(into).to_arrow()
    return done, rows.to_pylist()


@pytest.fixture(params=[False, True], ids=["small", "large"])
def is_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether every file and document is too large to be held."""
    if request.param:
        for module, name in (
            (record_path, "HELD_BYTES"),
            (nested_records, "LARGE"),
            (file_ranges, "MAX_WHOLE_FILE_BYTES"),
        ):
            monkeypatch.setattr(module, name, 40)
        monkeypatch.setattr(record_path, "_BLOCK_BYTES", 64)
        monkeypatch.setattr(nested_records, "_BLOCK", 64)
    return bool(request.param)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("form", FORMS)
def test_documents_of_any_framing(tmp_path: Path, form: str, kind: str, *, is_large: bool) -> None:
    name, make = FORMS[form]
    (tmp_path / name).write_bytes(make(DOCUMENTS))
    done, rows = load(tmp_path / name, tmp_path / "l", kind, records="data.items[*]", keep="all")
    assert (done.records, done.corrupt) == (3, 0)
    found = sorted((row["id"], row["_parent_next"], row["_parent_data_count"]) for row in rows)
    assert found == ROWS
    assert {row["n"] for row in rows} == {1.1, None, 2.5}


def test_a_load_is_that_of_the_records_alone(tmp_path: Path, *, is_large: bool) -> None:
    items = [each for document in DOCUMENTS for each in document["data"]["items"] or ()]
    (tmp_path / "records.json").write_bytes(lines(items))
    (tmp_path / "documents.json").write_bytes(array(DOCUMENTS))
    _, expected = load(tmp_path / "records.json", tmp_path / "a")
    _, rows = load(tmp_path / "documents.json", tmp_path / "b", records="data.items[*]")
    assert sorted(map(str, rows)) == sorted(map(str, expected))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_corrupt_documents_keep_their_text_and_say_why(tmp_path: Path, kind: str) -> None:
    texts = ['{"data": {"items": [{"id": 1}, 7, {"id": tru}]}}', '{"other": 1}', '{"data": {"items": 5}}', "{]"]
    (tmp_path / "a.json").write_text("\n".join(texts))
    done, rows = load(tmp_path / "a.json", tmp_path / "l", kind, records="data.items[*]")
    assert done.corrupt == 5
    corrupt = {row["_corrupt_record"]: row["_corrupt_at"] for row in rows if row["_corrupt_record"] is not None}
    assert corrupt.keys() == {"7", '{"id": tru}', '{"other": 1}', '{"items": 5}', "{]"}
    assert "it has no data" in str(corrupt['{"other": 1}'])
    assert "data.items is not a list" in str(corrupt['{"items": 5}'])
    with pytest.raises(LimitExceeded):
        widen.ingest(tmp_path / "a.json", tmp_path / "m", records="data.items[*]", max_corrupt=4, engine="local")


def test_records_of_a_whole_file_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"r": [{"id": 1},\n {"id": 2}, {"id": "x"}]}')
    (tmp_path / "b.json").write_text('{"r": []}\n{"r": [{"id": 1}, {"id": "x"}]}\n' * 2)
    for name, numbers in (("a.json", [3]), ("b.json", [2, 4])):
        place = tmp_path / name[0]
        widen.create_table(str(place), "id int not null")
        done = widen.ingest(tmp_path / name, place, records="r[*]", engine="local", verify=True, evolve="freeze")
        assert done.verification is not None
        assert done.verification.is_clean
        rows = widen.Table(f"{place}_quarantine").to_arrow().to_pylist()
        assert [row["text"] for row in rows] == ['{"id": "x"}'] * len(numbers)
        # On lines, a record has the number of its document.
        assert [row["position"] for row in rows] == numbers


@pytest.mark.parametrize("words", [{}, {"evolve": "freeze"}])
def test_what_goes_to_the_quarantine_is_proved(tmp_path: Path, words: Mapping[str, Any]) -> None:
    """An object without the path looks like a record there."""
    (tmp_path / "a.json").write_text('{"r": [{"id": 1}, {"id": null}, 5]}\n{"id": 2}\n{"r": [{"id": 3, "q": [')
    widen.create_table(str(tmp_path / "t"), "id int not null")
    done = widen.ingest(tmp_path / "a.json", tmp_path / "t", records="r[*]", engine="local", verify=True, **words)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    assert widen.Table(tmp_path / "t").to_arrow()["id"].to_pylist() == [1]
    rows = widen.Table(tmp_path / "t_quarantine").to_arrow().to_pylist()
    assert {row["text"] for row in rows} == {'{"id": null}', "5", '{"id": 2}', '{"r": [{"id": 3, "q": ['}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("words", [{}, {"missing": "keep"}, {"history": True}])
def test_rows_by_key(tmp_path: Path, kind: str, words: Mapping[str, Any], *, is_large: bool) -> None:
    first = [{"at": 1, "r": [{"id": 1, "v": 1}, {"id": 2, "v": 7}]}, {"no": 1}]
    second = [{"r": [{"id": 1, "v": 2}, {"v": 1}], "at": 2}]
    keyed = {"key": ["id"], "sequence_by": "_parent_at", "records": "r[*]", "keep": ["at"], **words}
    for number, documents in enumerate((first, second)):
        (tmp_path / f"{number}.json").write_bytes(lines(documents))
        _, rows = load(tmp_path / f"{number}.json", tmp_path / "l", kind, **keyed)
    current = [row for row in rows if row.get("_is_current", True)]
    assert sorted((row["id"], row["v"], row["_parent_at"]) for row in current) == [(1, 2, 2), (2, 7, 1)]


def test_a_large_damaged_file_is_skipped_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_path, "HELD_BYTES", 50)
    monkeypatch.setattr(file_ranges, "MAX_WHOLE_FILE_BYTES", 50)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "good.json").write_text(json.dumps({"r": [{"id": at} for at in range(40)]}, indent=1))
    (tmp_path / "s" / "bad.json").write_text(json.dumps({"x": [{"id": at} for at in range(40)]}, indent=1))
    with pytest.raises(CorruptFile, match=r"bad.json.*has no r\[\*\]"):
        widen.ingest(tmp_path / "s", tmp_path / "t", records="r[*]", engine="local")
    done = widen.ingest(tmp_path / "s", tmp_path / "t", records="r[*]", skip_bad_files=True, engine="local")
    assert done.records == 40
    (row,) = widen.Table(tmp_path / "t_quarantine").to_arrow().to_pylist()
    assert row["file"].endswith("bad.json")


def test_a_name_that_a_record_has_already(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1, "r": [{"_parent_id": 2}, {"id": 3}]}')
    done, rows = load(tmp_path / "a.json", tmp_path / "l", records="r[*]", keep="all")
    assert done.corrupt == 1
    assert [(row["id"], row["_parent_id"]) for row in rows if row["id"]] == [(3, 1)]
    (text,) = (row["_corrupt_record"] for row in rows if row["_corrupt_record"])
    assert text == '{"_parent_id": 2,"_parent_id":1}'


def test_masks_and_lists_of_fields_see_kept_fields(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"who": "ann", "r": [{"id": 1, "x": 2}]}\n{"who": "secret"}')
    _, rows = load(tmp_path / "a.json", tmp_path / "l", records="r[*]", keep=["who"], mask=["_parent_who"])
    assert {row["_parent_who"] for row in rows} == {"***", None}
    _, rows = load(tmp_path / "a.json", tmp_path / "m", records="r[*]", keep="all", include=["id"])
    assert [row["id"] for row in rows if row["id"]] == [1]
    assert "ann" not in str(rows)


def test_envelopes_below_a_path(tmp_path: Path) -> None:
    event = {"before": None, "after": {"id": 1, "v": 1.0}, "op": "c", "source": {"lsn": 5, "connector": "postgresql"}}
    (tmp_path / "a.json").write_text(json.dumps({"events": [event, {"x": 1}]}))
    done, rows = load(tmp_path / "a.json", tmp_path / "l", records="events[*]", envelope="debezium")
    assert done.corrupt == 1
    assert [(row["id"], row["_op"]) for row in rows if row["id"]] == [(1, "c")]


def test_fields_of_files(tmp_path: Path, *, is_large: bool) -> None:
    (tmp_path / "s" / "day=1").mkdir(parents=True)
    (tmp_path / "s" / "day=1" / "a.json").write_bytes(array(DOCUMENTS))
    _, rows = load(tmp_path / "s", tmp_path / "l", records="data.items[*]", source_columns=True)
    assert {row["day"] for row in rows} == {"1"}
    assert all(row["_source_file"].endswith("a.json") for row in rows)


def test_what_has_no_documents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "a.json").write_text('{"r": [{"id": 1}]}')
    for source, words, message in (
        ("a.csv", {"records": "r[*]"}, "read from JSON, and the source has files of the format csv"),
        ("a.json", {"keep": "all"}, "keep cannot be 'all'.*Needs records"),
        ("a.json", {"records": "r[*]", "keep": []}, "keep cannot be"),
        ("a.json", {"records": "r[0]"}, r"records cannot be 'r\[0\]'.*field names with dots"),
    ):
        with pytest.raises(InvalidOption, match=f"(?s){message}"):
            widen.ingest(tmp_path / source, tmp_path / "t", engine="local", **words)


def test_rows_in_memory_have_no_documents(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="read from JSON, and the source has"):
        widen.ingest(pa.table({"r": [1]}), tmp_path / "t", records="r[*]", engine="local")


def test_every_door(tmp_path: Path) -> None:
    """The command line, standard input, a file of settings, pipelines, a plan, a stream, and the options of a sink."""
    source = tmp_path / "in" / "a.json"
    source.parent.mkdir()
    source.write_bytes(lines(DOCUMENTS))
    config = tmp_path / "c.toml"
    config.write_text('records = "data.items[*]"\nkeep = ["count"]\n')
    assert parse_policy(config=config) == parse_policy(records="data.items[*]", keep="count")
    assert (
        parse_policy(config=config, keep="all").record_path
        == parse_policy(records="data.items[*]", keep="all").record_path
    )
    assert parse_option("keep", sink_options()["keep"][0], '["a", "b"]') == ["a", "b"]
    assert parse_option("records", sink_options()["records"][0], "data.items[*]") == "data.items[*]"
    pipelines = tmp_path / "p.toml"
    pipelines.write_text(
        f'[[load]]\nsource = "{source.parent}"\ninto = "{tmp_path}/t3"\nengine = "local"\nverify = true\n'
        'records = "data.items[*]"\nkeep = ["count"]\n'
    )
    words = ["--records", "data.items[*]", "--keep", "count", "--engine", "local", "--verify"]
    for number, command in enumerate(
        (
            ["ingest", str(source), "--into", f"{tmp_path}/t0", *words],
            ["ingest", "-", "--format", "json", "--into", f"{tmp_path}/t1", *words],
            [
                "ingest",
                str(source.parent),
                "--once",
                "--checkpoint",
                f"{tmp_path}/cp",
                "--into",
                f"{tmp_path}/t2",
                *words,
            ],
            ["run", str(pipelines)],
        )
    ):
        result = CliRunner().invoke(app, command, input=source.read_bytes())
        assert result.exit_code == 0, result.output
        rows = widen.Table(tmp_path / f"t{number}").to_arrow().to_pylist()
        assert sorted((row["id"], row["_parent_data_count"]) for row in rows) == [(1, 2), (2, 2), (3, 1)], number
    plan = widen.plan(source, tmp_path / "p", config=config, engine="local")
    assert isinstance(plan, Plan)
    assert set(plan.schema.names) >= {"id", "n", "_parent_data_count"}
