"""A second reader of Excel workbooks for the proof, which shares nothing with the reader that a load uses.

Source: ECMA-376, Part 1: "SpreadsheetML", "Cell Values" and "Date and Time"
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, BinaryIO, NamedTuple
from xml.etree import ElementTree

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_DAY_MS = 86_400_000


class SheetCell(NamedTuple):
    """A cell with a value.

    Args:
        type: ``n`` for numbers, ``b`` for booleans, and ``s`` for texts.
    """

    type: str
    text: str


class Sheet(NamedTuple):
    """The rows of a sheet that have values, each with its cells by their column from 0.

    Args:
        epoch: The day that is counted as 0.
    """

    rows: Sequence[Mapping[int, SheetCell]]
    epoch: datetime


def read_sheet(file: BinaryIO, name: str | None) -> Sheet:
    """Return a sheet of a workbook."""
    with zipfile.ZipFile(file) as book:
        root = ElementTree.fromstring(book.read("xl/workbook.xml"))
        links = ElementTree.fromstring(book.read("xl/_rels/workbook.xml.rels"))
        targets = {each.get("Id"): each.get("Target", "") for each in links}
        texts = _read_texts(book)
        properties = root.find(f"{_MAIN}workbookPr")
        is_1904 = properties is not None and properties.get("date1904") in ("1", "true")
        epoch = datetime(1904, 1, 1) if is_1904 else datetime(1899, 12, 30)
        for sheet in root.iter(f"{_MAIN}sheet"):
            if name is not None and sheet.get("name") != name:
                continue
            target = targets[sheet.get(_LINK)]
            path = target[1:] if target.startswith("/") else f"xl/{target}"
            rows = list(_read_rows(book, path, texts))
            if rows or name is not None:
                return Sheet(rows, epoch)
    return Sheet((), epoch)


def _read_texts(book: zipfile.ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in book.namelist():
        return []
    root = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
    return [_text_of(item) for item in root.iter(f"{_MAIN}si")]


def _text_of(item: ElementTree.Element) -> str:
    """Return the text of an item: its own, or those of its runs. Phonetic texts do not count."""
    parts = [*item.findall(f"{_MAIN}t"), *item.findall(f"{_MAIN}r/{_MAIN}t")]
    return "".join(part.text or "" for part in parts)


def _read_rows(book: zipfile.ZipFile, path: str, texts: Sequence[str]) -> Iterator[Mapping[int, SheetCell]]:
    with book.open(path) as content:
        for _, element in ElementTree.iterparse(content):
            if element.tag != f"{_MAIN}row":
                continue
            cells = dict(_cells_of(element, texts))
            if cells:
                yield cells
            element.clear()


def _cells_of(row: ElementTree.Element, texts: Sequence[str]) -> Iterator[tuple[int, SheetCell]]:
    at = -1
    for cell in row.iter(f"{_MAIN}c"):
        place = re.match("[A-Z]+", cell.get("r", ""))
        at = at + 1 if place is None else _column_of(place[0])
        found = _read_cell(cell, texts)
        if found is not None and found.text:
            yield at, found


def _column_of(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number - 1


def _read_cell(cell: ElementTree.Element, texts: Sequence[str]) -> SheetCell | None:
    kind, value = cell.get("t", "n"), cell.findtext(f"{_MAIN}v")
    if kind == "inlineStr":
        inline = cell.find(f"{_MAIN}is")
        return None if inline is None else SheetCell("s", _text_of(inline))
    if value is None or kind == "e":  # an error is no value
        return None
    if kind == "s":
        return SheetCell("s", texts[int(value)])
    return SheetCell("s" if kind == "str" else kind, value)


def is_cell_value(cell: SheetCell | None, value: Any, epoch: datetime) -> bool:
    """Return whether a value of a column is the one of a cell.

    Args:
        value: A text, number, boolean, date or time; durations are microseconds, and times of day texts.
    """
    if cell is None or value is None:
        return cell is None and value is None
    if cell.type == "s":
        return bool(value == cell.text)
    if cell.type == "b":
        return value is (cell.text == "1")
    number = float(cell.text)
    if isinstance(value, (date, datetime)):
        return _to_moment(value) == _moment_of(number, epoch)
    if isinstance(value, str):
        return _time_of(value) == round(number * _DAY_MS) % _DAY_MS
    if isinstance(value, bool):
        return False
    return value == number or (isinstance(value, int) and value == round(number * _DAY_MS) * 1000)


def _to_moment(value: date) -> datetime:
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)


def _moment_of(number: float, epoch: datetime) -> datetime:
    # Excel counts a 29 February 1900, which did not exist.
    leap = timedelta(days=1) if epoch.year == 1899 and number < 60 else timedelta()
    return epoch + leap + timedelta(milliseconds=round(number * _DAY_MS))


def _time_of(text: str) -> int:
    try:
        found = time.fromisoformat(text)
    except ValueError:
        return -1
    return ((found.hour * 60 + found.minute) * 60 + found.second) * 1000 + found.microsecond // 1000
