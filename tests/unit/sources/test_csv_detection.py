"""How CSV files are written, as their first lines say."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import widen
from widen.cli.app import app
from widen.errors import InvalidOption, SourceContentError
from widen.sources.csv_detection import SAMPLE_BYTES, describe_dialect, find_dialect
from widen.sources.csv_dialect import EXACT_VALUES, parse_dialect


def found(text: str | bytes, *, known: Any = (), given: Any = (), detects: str = EXACT_VALUES, **options: str) -> str:
    head = text.encode() if isinstance(text, str) else text
    default = parse_dialect(options, detects=detects, known=known)
    return describe_dialect(find_dialect(head, default, given))


FORMS: list[tuple[str | bytes, str]] = [
    ("a,b\n1,2\n", ", with header"),
    ("a;b\n1;2\n", "; with header"),
    ("a\tb\n1\t2\n", "tab with header"),
    ("a|b\n1|2\n", "| with header"),
    ("a\n1\n", ", with header"),
    ("", ", with header"),
    ("\n\n", ", with header"),
    # The separator stands outside of quotes, in nearly all rows, and in the first one.
    ('a;b\n"1,5";"2,5"\n', "; with header, decimal comma"),
    ('"a;b",c\n"1;2",3\n', ", with header"),
    ('a;b\n1;"x\ny;z"\n2;w\n', "; with header"),
    ("a;b,c\n1;2,3\n1;3\n", "; with header, decimal comma"),
    ("a,b;c\n1,2\n2,3\n", ", with header"),
    ("a\n1;2\n3;4\n", ", with header"),
    ("a;b\n" + "1;2\n" * 20 + "1;2;3\n", "; with header"),
    ("a;b\n1;2;3\n1\n", ", with header"),
    # A first row that looks like those below it, and has values, is no header.
    ("1,x\n2,y\n", ", without header"),
    ("1;2\n2;3,5\n", "; without header, decimal comma"),
    ("2024-01-02,x\n2024-01-03,y\n", ", without header"),
    ("01/02/2024,x\n03/02/2024,y\n", ", without header"),
    ("x,y\nz,w\n", ", with header"),
    ("id,2023\n1,5\n", ", with header"),
    ("2023,2024\na,b\n", ", with header"),
    ("1,2\n", ", with header"),
    ("1,\n2,3\n", ", without header"),
    ("7,name\n8,9\n", ", with header"),
    # Encodings.
    ("a;b\nä;ö\n", "; with header"),
    ("a;b\nä;ö\n".encode("utf-8-sig"), "; with header"),
    ("name;city\nMüller;Köln\nJäger;Füssen\n".encode("latin-1"), "; with header, Latin-1 (windows-1252)"),
    ("name;city\nМосква;Омск\n".encode("windows-1251"), "; with header"),
    ("name;city\nGarçon;Orléans è\n".encode("latin-1"), "; with header"),
    ("a;b\nä;ö\n".encode("utf-16"), "; with header, UTF-16"),
    # Single quotes.
    ("'a';'b'\n'1;2';'3'\n", "; with header, single quotes"),
    ("a,b\n'1,5',2\n'it''s',3\n", ", with header, single quotes"),
    ("a,b\nit's,2\n", ", with header"),
    ("a,b\n'x',\"y\"\n", ", with header"),
    # A line that names the separator.
    ("sep=;\na;b\n1;2,5\n", "; with header, a line sep=, decimal comma"),
    ('"sep=|"\r\na|b,c\r\n1|2\r\n', "| with header, a line sep="),
    ("SEP=\t\na\tb\n1\t2\n", "tab with header, a line sep="),
    ("sep=a\n1\n", ", with header"),
    # Commas in numbers.
    ("a;b\n1,5;x\n", "; with header, decimal comma"),
    ("a;b\n0,125;x\n", "; with header, decimal comma"),
    ("a;b\n1234,125;x\n", "; with header, decimal comma"),
    ("a;b\n1,125;x\n12,500;y\n", "; with header"),
    ("a;b\n1,5;1.5\n", "; with header"),
    ("a;b\n1;x\n", "; with header"),
]


@pytest.mark.parametrize(("text", "form"), FORMS)
def test_what_the_first_lines_say(text: str | bytes, form: str) -> None:
    assert found(text) == form


def test_what_an_option_says_is_not_searched() -> None:
    text = "1;2\n2;3,5\n"
    assert found(text, given={"separator"}) == ", with header"
    assert found(text, given={"header"}) == "; with header, decimal comma"
    assert found(text, given={"decimal"}) == "; without header"
    assert found(text, detects="") == "; without header"
    assert found("'a';'b'\n'c';'d'\n", given={"quote"}) == "; with header"
    assert found("a;b\nä;ö\nü;ü\n".encode("latin-1"), given={"encoding"}) == "; with header"


AMBIGUOUS = {
    "a;b,c\n1;2,3\n4;5,6\n": ("its fields may be separated by a comma or a semicolon", "Set the option sep"),
    "2023,2024\n5,6\n7,8\n": ("its first line may be years as names, or a record", "Set the option header"),
}


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_what_is_open_is_not_guessed(text: str) -> None:
    reason, fix = AMBIGUOUS[text]
    with pytest.raises(SourceContentError, match=reason) as raised:
        found(text)
    assert fix in str(raised.value)


def test_the_fields_of_the_table_decide() -> None:
    assert found("a;b,c\n1;2,3\n", known=["a"]) == "; with header, decimal comma"
    assert found("a;b,c\n1;2,3\n", known=["c"]) == ", with header"
    assert found("1,2\n3,4\n", known=["1"]) == ", with header"
    assert found("1,2\n3,4\n", known=["_c0", "_c1"]) == ", without header"
    assert found("1,2\n3,4\n", known=["a"]) == ", with header", "its error says that the table lacks the fields"


def test_a_long_sample_may_end_anywhere() -> None:
    rows = "".join(f"{number};{'ä' * (number % 7)}ö\n" for number in range(20_000))
    head = f"id;name\n{rows}".encode()
    for cut in range(SAMPLE_BYTES, SAMPLE_BYTES + 20):
        assert found(head[:cut]) == "; with header"


def load(source: Path, table: Path, **options: Any) -> widen.IngestResult:
    done = widen.ingest(source, table, verify=True, engine="local", **options)
    assert str(done.verification).endswith("leaves exact")
    return done


def rows(table: Path) -> list[dict[str, Any]]:
    return sorted(widen.Table(table).to_arrow().to_pylist(), key=lambda row: row["id"])


def test_files_of_a_folder_differ(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id,name,total\n1,x,1.5\n")
    (folder / "b.csv").write_bytes("id;name;total\n2;Müller;2,5\n3;Bäcker;7\n4;z;1.234\n".encode("latin-1"))
    (folder / "c.csv").write_text("id\tname\ttotal\n5\ty\t3.5\n")
    (folder / "d.csv").write_bytes("id|name|total\n6|ž|4.5\n".encode("utf-16"))
    done = load(folder, tmp_path / "t", detect_types=True)
    assert [(each.form, dict(each.options), len(each.files)) for each in done.plan.read_as] == [
        ("; with header, Latin-1 (windows-1252)", {"sep": ";", "encoding": "windows-1252"}, 1),
        ("tab with header", {"sep": "\t"}, 1),
        ("| with header, UTF-16", {"sep": "|", "encoding": "utf-16"}, 1),
    ]
    assert [row["name"] for row in rows(tmp_path / "t")] == ["x", "Müller", "Bäcker", "z", "y", "ž"]
    assert done.to_value()["plan"]["readAs"][1] == {
        "form": "tab with header",
        "options": {"sep": "\t"},
        "files": (f"file:{folder}/c.csv",),
    }


def test_numbers_with_commas_become_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;total;note\n1;2,5;x\n2;-0,25;1.5\n3;7;y\n4;1.234;1,50\n5;;\n")
    done = load(tmp_path / "a.csv", tmp_path / "t", detect_types=True)
    assert [each.form for each in done.plan.read_as] == ["; with header"]
    (tmp_path / "b.csv").write_text("id;total;note\n1;2,5;x\n2;-0,25;1 500\n3;7;y\n5;;\n")
    done = load(tmp_path / "b.csv", tmp_path / "u", detect_types=True)
    assert [each.form for each in done.plan.read_as] == ["; with header, decimal comma"]
    assert [row["total"] for row in rows(tmp_path / "u")] == [2.5, -0.25, 7.0, None]


def test_a_point_is_no_fraction_where_a_comma_is(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;total;note\n1;2,5;x\n2;1.5;y\n3;7;1,5\n4;1,50;true\n5;1.234,5;2,5\n")
    done = load(tmp_path / "a.csv", tmp_path / "t", detect_types=True, options={"sep": ";", "decimal": ","})
    assert done.corrupt == 0
    found = [(row["total_double"], row["total"]) for row in rows(tmp_path / "t")]
    assert found == [(2.5, "2.5"), (None, "1.5"), (7.0, "7"), (None, "1,50"), (None, "1.234,5")]
    assert [row["note_double"] for row in rows(tmp_path / "t")] == [None, None, 1.5, None, 2.5]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("header", ["true", "false"])
def test_a_line_that_names_the_separator_is_no_row(tmp_path: Path, end: str, header: str) -> None:
    lines = ["", "sep=;", "", "id;b", *(f"{number};x,{number}" for number in range(3)), "1;2;3"]
    (tmp_path / "a.csv").write_text(end.join(lines), newline="")
    done = load(tmp_path / "a.csv", tmp_path / "t", options={"header": header})
    assert (done.records, done.corrupt) == (3 + (header == "false"), 1)
    found = widen.Table(tmp_path / "t").to_arrow().to_pylist()
    place = [row["_corrupt_at"] for row in found if row["_corrupt_at"]]
    assert len(place) == 1
    assert "8" in str(place[0])
    key = "b" if header == "true" else "_c1"
    assert sorted(row[key] for row in found if row[key]) == ["b"] * (header == "false") + ["x,0", "x,1", "x,2"]


def test_the_option_decimal_needs_types(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;b\n1;2,5\n")
    with pytest.raises(InvalidOption, match="decimal"):
        widen.ingest(tmp_path / "a.csv", tmp_path / "t", engine="local", options={"decimal": ","})
    with pytest.raises(InvalidOption, match="decimal"):
        widen.ingest(tmp_path / "a.csv", tmp_path / "t", engine="local", detect_types=True, options={"decimal": ";"})


def test_an_ambiguous_file_is_a_bad_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id;b,c\n1;2,3\n")
    (tmp_path / "in" / "b.csv").write_text("id;d\n2;3\n")
    done = widen.ingest(tmp_path / "in", tmp_path / "t", engine="local", skip_bad_files=True)
    assert [(Path(each.path).name, each.reason) for each in done.bad_files] == [
        ("a.csv", "its fields may be separated by a comma or a semicolon")
    ]
    assert done.records == 1


def test_the_command_line_says_how_it_has_read_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;b\n1;2\n")
    done = CliRunner().invoke(
        app, ["ingest", str(tmp_path / "a.csv"), "--into", str(tmp_path / "t"), "--engine", "local"]
    )
    assert done.exit_code == 0, done.output
    assert f"read as ; with header: file:{tmp_path}/a.csv" in done.stderr
    done = CliRunner().invoke(
        app, ["plan", str(tmp_path / "a.csv"), "--into", str(tmp_path / "t"), "--engine", "local"]
    )
    assert "read as ; with header" in done.stderr


# ---- generated: many dialects, the same records ----------------------------------------------------

WORDS = ["plain", "with, comma", "with; semicolon", 'with "quotes"', "line\nbreak", "Müller", "", " padded ", "it's"]


def _write(chance: random.Random, records: list[tuple[str, ...]], separator: str, encoding: str) -> bytes:
    def field(text: str) -> str:
        needs = any(sign in text for sign in ('"', "\n", separator)) or (text == "" and chance.random() < 0.5)
        return '"' + text.replace('"', '""') + '"' if needs or chance.random() < 0.2 else text

    end = chance.choice(["\n", "\r\n"])
    return end.join(separator.join(map(field, record)) for record in records).encode(encoding)


@pytest.mark.parametrize("seed", range(60))
def test_generated_files_are_read_as_they_were_written(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    separator = chance.choice(",;\t|")
    encoding = chance.choice(["utf-8", "utf-8-sig", "utf-16"])
    records = [(str(at), chance.choice(WORDS), chance.choice(WORDS)) for at in range(chance.randint(3, 60))]
    head = [("id", "first", "second")]
    (tmp_path / "a.csv").write_bytes(_write(chance, head + records, separator, encoding))
    load(tmp_path / "a.csv", tmp_path / "t")
    expected = [{"id": one, "first": two, "second": three} for one, two, three in records]
    found = [
        {key: row[key] or "" for key in ("id", "first", "second")}
        for row in widen.Table(tmp_path / "t").to_arrow().to_pylist()
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)
