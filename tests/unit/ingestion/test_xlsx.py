"""Sheets of Excel workbooks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

import widen
from support.workbooks import Error, Formula, workbook
from widen.errors import CorruptFile, InvalidOption, PackageMissing, SourceContentError
from widen.sources import converted_files, xlsx_sheets


def write(path: Path, sheets: Mapping[str, Sequence[Sequence[Any]]], **form: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(workbook(sheets, **form))
    return path


def load(source: Path, table: Path, **options: Any) -> widen.IngestResult:
    done = widen.ingest(source, table, verify=True, engine="local", **options)
    assert str(done.verification).endswith("leaves exact")
    return done


def rows(table: Path, *names: str) -> list[Any]:
    found = sorted(widen.Table(table).to_arrow().to_pylist(), key=lambda row: row["id"])
    return [tuple(row[name] for name in names) for row in found]


def types(table: Path) -> dict[str, str]:
    return {field.name: field.type.sql for field in widen.Table(table).schema}


DAY, MOMENT = date(2024, 1, 31), datetime(2024, 1, 31, 12, 30, 1, 5000)
COLUMNS: list[tuple[list[Any], str, list[Any]]] = [
    ([1, 2, None], "int", [1, 2, None]),
    ([1, 2.5], "double", [1.0, 2.5]),
    ([2**53, 1], "double", [2.0**53, 1.0]),
    (["a", "", " b & <c> "], "string", ["a", None, " b & <c> "]),
    ([Formula("x"), "y"], "string", ["x", "y"]),
    ([True, False], "boolean", [True, False]),
    ([DAY, None], "date", [DAY, None]),
    ([DAY, MOMENT], "timestamp_ntz", [datetime(2024, 1, 31), MOMENT]),
    ([time(1, 2, 3)], "string", ["01:02:03.000000"]),
    ([timedelta(hours=30)], "bigint", [108_000_000_000]),
    ([Error("#N/A"), 1], "int", [None, 1]),
]


@pytest.mark.parametrize(("cells", "column", "expected"), COLUMNS)
@pytest.mark.parametrize("form", [{}, {"is_1904": True}, {"inline": True}])
def test_a_column_has_the_type_of_its_cells(
    tmp_path: Path, cells: list[Any], column: str, expected: list[Any], form: dict[str, Any]
) -> None:
    sheet = [["id", "x"], *([at, cell] for at, cell in enumerate(cells))]
    load(write(tmp_path / "a.xlsx", {"Orders": sheet}, **form), tmp_path / "t")
    assert types(tmp_path / "t") == {"id": "int", "x": column}
    assert rows(tmp_path / "t", "x") == [(each,) for each in expected]


def test_cells_of_several_kinds_go_to_several_columns(tmp_path: Path) -> None:
    sheet = [["id", "x", "y"], [0, "a", None], [1, 5, DAY], [2, None, None], [3, "b", "c"]]
    done = load(write(tmp_path / "a.xlsx", {"Orders": sheet}), tmp_path / "t")
    assert done.records == 4
    assert types(tmp_path / "t") == {
        "id": "int", "x": "string", "x_int": "int", "y": "string", "y_date": "date",
    }  # fmt: skip
    assert rows(tmp_path / "t", "x", "x_int", "y", "y_date") == [
        ("a", None, None, None), ("5", 5, "2024-01-31", DAY), (None, None, None, None), ("b", None, "c", None),
    ]  # fmt: skip


def test_later_sheets_widen_the_numbers_of_earlier_ones(tmp_path: Path) -> None:
    for number, value in enumerate((7, 2.5, 2**40)):
        load(
            write(tmp_path / f"{number}.xlsx", {"a": [["id", "big"], [value, 5 if number < 2 else value]]}),
            tmp_path / "t",
        )
    assert types(tmp_path / "t") == {"id": "double", "big": "bigint"}
    assert sorted(widen.Table(tmp_path / "t").to_arrow()["id"].to_pylist()) == [2.5, 7.0, 2.0**40]


def test_names_and_blank_rows(tmp_path: Path) -> None:
    sheet = [
        [], [None, "id", "id", 2024, None, "none", None], [], [None, 1, "a", 5, "x", None, None], [None] * 7,
        [None, 2, None, 6, None, None, None],
    ]  # fmt: skip
    load(write(tmp_path / "a.xlsx", {"Orders": sheet}), tmp_path / "t")
    assert rows(tmp_path / "t", "id_2", "2024", "_c4") == [("a", 5, "x"), (None, 6, None)]


def test_a_sheet_is_chosen_by_its_name(tmp_path: Path) -> None:
    sheets = {"Notes": [["see below"]], "Orders": [["id"], [1]], "Empty": []}
    source = write(tmp_path / "a.xlsx", sheets)
    load(source, tmp_path / "t", options={"sheet": "Orders"})
    assert rows(tmp_path / "t", "id") == [(1,)]
    with pytest.raises(SourceContentError, match=r"it has 2 sheets with values: Notes, Orders.*option sheet"):
        widen.ingest(source, tmp_path / "u", engine="local")
    with pytest.raises(SourceContentError, match="it has no sheet Other; its sheets are Notes, Orders, Empty"):
        widen.ingest(source, tmp_path / "u", engine="local", options={"sheet": "Other"})
    load(write(tmp_path / "b.xlsx", {"Empty": [], "Orders": [["id"], [1]]}), tmp_path / "v")


def test_a_sheet_may_have_no_names(tmp_path: Path) -> None:
    source = write(tmp_path / "a.xlsx", {"Orders": [[1, 2], [3, 4]]})
    with pytest.raises(SourceContentError, match=r"its first row has no text.*option header"):
        widen.ingest(source, tmp_path / "t", engine="local")
    load(source, tmp_path / "t", options={"header": "false"})
    assert sorted(widen.Table(tmp_path / "t").to_arrow()["_c1"].to_pylist()) == [2, 4]
    load(source, tmp_path / "u", options={"header": "true"})
    assert types(tmp_path / "u") == {"1": "int", "2": "int"}


def test_damaged_workbooks_and_wrong_options_are_named(tmp_path: Path) -> None:
    good = workbook({"Orders": [["id"], [1]]})
    for name, content in {"half": good[: len(good) // 2], "text": b"id\n1\n", "nothing in it": good[:4]}.items():
        (tmp_path / f"{name}.xlsx").write_bytes(content)
        with pytest.raises(CorruptFile, match=rf"{name}\.xlsx"):
            widen.ingest(tmp_path / f"{name}.xlsx", tmp_path / "t", engine="local")
    (tmp_path / "a.xlsx").write_bytes(good)
    for options in ({"sheets": "Orders"}, {"header": "yes"}):
        with pytest.raises(InvalidOption):
            widen.ingest(tmp_path / "a.xlsx", tmp_path / "t", engine="local", options=options)
    assert not (tmp_path / "t").exists()


def test_a_damaged_workbook_does_not_block_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.xlsx", {"Orders": [["id"], [1]]})
    (tmp_path / "in" / "b.xlsx").write_bytes(b"PK\3\4")
    done = widen.ingest(tmp_path / "in", tmp_path / "t", engine="local", skip_bad_files=True, new=True)
    assert ([Path(each.path).name for each in done.bad_files], done.records) == (["b.xlsx"], 1)


def test_without_calamine_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "a.xlsx", {"Orders": [["id"], [1]]})
    monkeypatch.setattr(converted_files, "has_xlsx_reader", lambda: False)
    with pytest.raises(PackageMissing, match=r"widen\[xlsx\]"):
        widen.ingest(source, tmp_path / "t")


def test_the_proof_finds_cells_that_were_read_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "a.xlsx", {"Orders": [["id", "x"], [1, "a"], [2, "b"], [3, "c"]]})
    cells = xlsx_sheets._to_rows
    for number, wrong in enumerate((lambda rows: [*rows[:2], rows[1], *rows[3:]], lambda rows: rows[:-1])):
        monkeypatch.setattr(xlsx_sheets, "_to_rows", lambda sheet, wrong=wrong: wrong(cells(sheet)))
        with pytest.raises(widen.errors.WidenError, match=r"a\.xlsx was not read as its format defines"):
            widen.ingest(source, tmp_path / f"t{number}", engine="local", verify=True)


def _cell(chance: random.Random) -> Any:
    return chance.choice(
        [
            None,
            chance.randint(-(2**40), 2**40),
            chance.gauss(0, 1e6),
            "".join(chance.choice("ab ä<&\n") for _ in range(chance.randint(1, 6))).strip() or "x",
            chance.random() < 0.5,
            date.fromordinal(chance.randint(700_000, 750_000)),
            datetime.fromordinal(chance.randint(700_000, 750_000))
            + timedelta(milliseconds=chance.randint(0, 86_399_999)),
        ]
    )


@pytest.mark.parametrize("seed", range(20))
def test_generated_sheets_are_exact(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sheet = [["id", "a", "b", "c"], *([at, *(_cell(chance) for _ in range(3))] for at in range(60))]
    source = write(tmp_path / "a.xlsx", {"Orders": sheet}, is_1904=chance.random() < 0.5, inline=chance.random() < 0.5)
    assert load(source, tmp_path / "t").records == 60
    found = sorted(widen.Table(tmp_path / "t").to_arrow().to_pylist(), key=lambda row: row["id"])
    for record, row in zip(sheet[1:], found, strict=True):
        for name, cell in zip("abc", record[1:], strict=True):
            values = [row[key] for key in row if key.partition("_")[0] == name and row[key] is not None]
            whole = datetime(cell.year, cell.month, cell.day) if type(cell) is date else cell
            assert cell is None or cell in values or whole in values, (name, cell, values)
            assert cell is not None or values == []


def test_a_contract_is_checked_on_a_named_sheet(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(workbook({"other": [["id"], ["x"]], "orders": [["id"], [1], [7]]}))
    contract = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 1}}}
    words: dict[str, Any] = {"options": {"sheet": "orders"}, "engine": "local"}
    report = widen.check_contract(tmp_path / "a.xlsx", contract, **words)
    assert (report.records, report.counts) == (2, [("id", "is more than 1", 1)])
