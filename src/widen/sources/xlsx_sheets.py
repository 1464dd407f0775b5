"""Sheets of Excel workbooks as columns, read by calamine without Spark.

The first row with a value has the names. A column has the type of its cells; rows whose cells differ in kind from
others in the column go to a table of their own, as values of a union in Avro do.

Source: ECMA-376, Part 1: "SpreadsheetML"; docs/guide/files.md#xlsx
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from importlib.util import find_spec
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import CorruptFile, InvalidOption, SourceContentError
from widen.model.lazy_module import import_lazily
from widen.sources.avro_columns import TypedRows
from widen.sources.csv_dialect import unique_names
from widen.spark.errors import RESTORE_FILE

calamine = import_lazily("python_calamine")

XLSX_EXTRA = "widen[xlsx]"
"""What installs calamine."""


def has_xlsx_reader() -> bool:
    """Return whether calamine is installed."""
    return find_spec("python_calamine") is not None


def read_xlsx(options: Mapping[str, str], file: BinaryIO, path: str) -> Iterator[TypedRows]:
    """Yield the rows of a sheet as records, without its blank rows.

    Args:
        options: ``sheet``, the name of the sheet, and ``header``, whether its first row has the names.

    Raises:
        CorruptFile: the file is damaged, or is not a workbook.
        SourceContentError: an option must say which sheet, or whether there is a header.
    """
    has_header, name = parse_xlsx_options(options)
    try:
        book = calamine.CalamineWorkbook.from_filelike(file)
        cells = _find_cells(book, name, path)
    except (calamine.CalamineError, OSError, ValueError) as error:
        raise CorruptFile(path=path, reason="it is not a whole Excel workbook", fix=RESTORE_FILE) from error
    rows = [row for row in cells if any(value != "" for value in row)]
    head, rows = (rows[0], rows[1:]) if has_header and rows else ([], rows)
    values = [value for value in head if value != ""]
    if values and not any(isinstance(value, str) for value in values):
        fix = "Set the option header to true if these are names, else to false."
        if "header" not in {key.lower() for key in options}:
            raise SourceContentError(source=path, reason="its first row has no text", fix=fix)
    width = len(head or (rows[0] if rows else []))
    columns = [[None if row[at] == "" else row[at] for row in rows] for at in range(width)]
    kept = [at for at in range(width) if (head and head[at] != "") or any(each is not None for each in columns[at])]
    texts = [_to_name(head[at]) if head and head[at] != "" else f"_c{at}" for at in kept]
    yield from _split(unique_names(texts), [columns[at] for at in kept], len(rows))


def parse_xlsx_options(options: Mapping[str, str]) -> tuple[bool, str | None]:
    """Return whether the first row has the names, and the name of the sheet.

    Raises:
        InvalidOption: an option is unknown or has an invalid value.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given.keys() - {"sheet", "header"}:
        raise InvalidOption(option="XLSX option", value=name, expected="Must be one of: sheet, header.")
    header = given.get("header", "true").lower()
    if header not in ("true", "false"):
        raise InvalidOption(option="header", value=header, expected="Must be true or false.")
    return header == "true", given.get("sheet")


def _find_cells(book: Any, name: str | None, path: str) -> list[list[Any]]:
    names = book.sheet_names
    if name is not None:
        if name not in names:
            reason = f"it has no sheet {name}; its sheets are {', '.join(names)}"
            raise SourceContentError(source=path, reason=reason, fix="Set the option sheet to one of them.")
        return _to_rows(book.get_sheet_by_name(name))
    found = {each: cells for each in names if (cells := _to_rows(book.get_sheet_by_name(each)))}
    if len(found) > 1:
        reason = f"it has {len(found)} sheets with values: {', '.join(found)}"
        raise SourceContentError(source=path, reason=reason, fix="Set the option sheet to one of them.")
    return next(iter(found.values()), [])


def _to_rows(sheet: Any) -> list[list[Any]]:
    rows: list[list[Any]] = sheet.to_python(skip_empty_area=False)
    return rows


def _to_name(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


# ---- columns ---------------------------------------------------------------------------------------


def _to_integers(values: Sequence[Any]) -> pa.Array:
    # Cells have no width: the smallest type leaves a later sheet with fractions the way to one column of doubles.
    whole = pa.array([None if each is None else int(each) for each in values], pa.int64())
    low, high = pc.min_max(whole).values()
    is_small = not low.is_valid or (low.as_py() >= -(2**31) and high.as_py() < 2**31)
    return whole.cast(pa.int32()) if is_small else whole


def _to_moments(values: Sequence[Any]) -> pa.Array:
    whole = [
        each if each is None or isinstance(each, datetime) else datetime(each.year, each.month, each.day)
        for each in values
    ]
    return pa.array(whole, pa.timestamp("us"))


_TO_ARRAY: Mapping[str, Callable[[Sequence[Any]], pa.Array]] = {
    "text": lambda values: pa.array(values, pa.string()),
    "boolean": lambda values: pa.array(values, pa.bool_()),
    "integer": _to_integers,
    "number": lambda values: pa.array(values, pa.float64()),
    "date": lambda values: pa.array(values, pa.date32()),
    "moment": _to_moments,
    "time": lambda values: pa.array(values, pa.time64("us")),
    "duration": lambda values: pa.array(values, pa.duration("us")),
}
"""What makes a column of cells, by their kind."""


def _kind_of(value: Any) -> str:
    for kind, types in _KINDS_OF_CELLS.items():
        if isinstance(value, types):
            return kind
    return "text"


_KINDS_OF_CELLS: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "number": (int, float),
    "moment": (datetime,),
    "date": (date,),
    "time": (time,),
    "duration": (timedelta,),
}


def _find_kinds(values: Sequence[Any]) -> list[str | None]:
    """Return the kind of each cell: numbers of a column that are all integers are integers, and times its dates."""
    kinds = [None if each is None else _kind_of(each) for each in values]
    numbers = [each for each, kind in zip(values, kinds, strict=True) if kind == "number"]
    as_one = {"date": "moment"} if "moment" in kinds else {}
    if all(abs(each) < 2**53 and each == int(each) for each in numbers):
        as_one["number"] = "integer"
    return [as_one.get(kind, kind) if kind is not None else None for kind in kinds]


def _split(names: Sequence[str], columns: Sequence[Sequence[Any]], count: int) -> Iterator[TypedRows]:
    """Yield the rows, those with the same kinds of cells together. A blank cell is of the kind of the one above it."""
    kinds = [_find_kinds(values) for values in columns]
    last = [next((kind for kind in each if kind is not None), None) for each in kinds]
    groups: dict[tuple[str | None, ...], list[int]] = {}
    for row in range(count):
        last = [each[row] or before for each, before in zip(kinds, last, strict=True)]
        groups.setdefault(tuple(last), []).append(row)
    for found, places in (groups or {tuple(last): []}).items():
        arrays = [
            pa.nulls(len(places)) if kind is None else _TO_ARRAY[kind]([values[at] for at in places])
            for kind, values in zip(found, columns, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(arrays, names=list(names))
        yield TypedRows(rows, None if len(groups) < 2 else places)
