"""Rows on stdout: as a table, as JSON, or as a file of CSV, Parquet or Arrow for other programs.

Source: docs/guide/read.md#formats
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
import typer

from widen.cli.output import note, progress, show, show_json_line, writing_output
from widen.errors import InvalidOption, OptionConflict
from widen.files.pandas_import import skip_pandas

if TYPE_CHECKING:
    import pyarrow as pa

    from widen.model.types import Field, StructType
    from widen.spark.spark_types import DataFrame

SHOWN_ROWS = 20
MAX_ROWS = 1_000_000
"""How many rows of Spark this process takes for a file: more are written better by Spark itself."""


class RowForm(str, Enum):
    """How rows are written to stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"

    @property
    def is_file(self) -> bool:
        """Whether the rows are the content of a file."""
        return self in (RowForm.CSV, RowForm.PARQUET, RowForm.ARROW)


Format: TypeAlias = Annotated[
    RowForm,
    typer.Option(
        "--format",
        help="How to write the rows to stdout. csv, parquet, arrow (the stream format): as a file, with all rows.",
    ),
]


def to_row_form(form: RowForm, *, json: bool) -> RowForm:
    """Return how rows are written, given ``--json``.

    Raises:
        OptionConflict: ``--json`` contradicts the form.
        InvalidOption: the form is not text, and stdout is a terminal.
    """
    if json and form not in (RowForm.TABLE, RowForm.JSON):
        raise OptionConflict(option="--json", other_option="--format", expected="Omit one of them.")
    if form in (RowForm.PARQUET, RowForm.ARROW) and sys.stdout.isatty():
        expected = f"Send the rows to a file: > rows.{form.value}"
        raise InvalidOption(option="--format", value=form.value, expected=expected)
    return RowForm.JSON if json else form


def show_query(query: Callable[[int | None], tuple[StructType, pa.Table]], limit: int | None, form: RowForm) -> bool:
    """Show the rows of a query, as `show_rows` does, if they are read without Spark; return whether they are."""
    from widen.files.data_reader import json_lines
    from widen.spark.engine import Unsupported
    from widen.spark.session import Engine, ensure_spark_wanted, find_active, parse_engine

    if find_active() is not None or parse_engine(None) is Engine.SPARK:
        return False
    skip_pandas()
    most = _find_most(limit, form)
    with progress("reading"):
        try:
            columns, rows = query(None if most is None else most + 1)  # one more tells whether there are others
            cells = _to_cells(columns, rows) if form is RowForm.CSV else rows
            lines = [] if form.is_file else list(json_lines(columns, rows))
        except Unsupported as error:
            ensure_spark_wanted(str(error))
            note(f"on Spark, because {error}")
            return False
    if form.is_file:
        _write_file(cells.slice(0, limit), form)
    else:
        show_lines(columns.names, lines, limit, form)
    return True


def show_rows(frame: DataFrame, limit: int | None, form: RowForm) -> None:
    """Show rows: as a file, as JSON one object per line, or as a table of a few of them."""
    if form.is_file:
        with progress("reading"):
            rows = _collect(frame, limit, form)
        _write_file(rows, form)
        return
    shown_limit, json = _find_most(limit, form), form is RowForm.JSON
    with progress("reading"):
        lines = _lines(frame, shown_limit) if json or shown_limit is None else list(_lines(frame, shown_limit + 1))
    show_lines(frame.columns, lines, limit, form)


def show_lines(columns: Sequence[str], lines: Iterable[str], limit: int | None, form: RowForm) -> None:
    """Show rows that are JSON objects; see `show_rows`."""
    from widen.report import terminal

    shown_limit = _find_most(limit, form)
    if form is RowForm.JSON:
        for line in islice(lines, shown_limit):
            show_json_line(line)
        return
    assert shown_limit is not None
    rows = list(lines)
    show(terminal.rows_parts(columns, rows[:shown_limit]))
    if len(rows) > shown_limit:
        note(f"{shown_limit} rows shown, there are more; use --limit, or --json for all.")


def _find_most(limit: int | None, form: RowForm) -> int | None:
    """Return how many rows are shown at most; None for all."""
    return SHOWN_ROWS if limit is None and form is RowForm.TABLE else limit


def _collect(frame: DataFrame, limit: int | None, form: RowForm) -> pa.Table:
    """Return the rows of a DataFrame as they are written to a file.

    Raises:
        InvalidOption: there are too many of them.
    """
    from widen.files.arrow_types import variants_to_text
    from widen.spark.errors import translate_spark_errors
    from widen.spark.spark_types import from_spark

    rows, schema = variants_to_text(frame, from_spark(frame.schema))
    with translate_spark_errors():
        found = rows.limit(MAX_ROWS + 1 if limit is None else limit).toArrow()
    if limit is None and found.num_rows > MAX_ROWS:
        expected = f"There are more than {MAX_ROWS:,} rows. Give a limit or a condition, or write them with Spark."
        raise InvalidOption(option="--format", value=form.value, expected=expected)
    return _to_cells(schema, found) if form is RowForm.CSV else found


def _to_cells(schema: StructType, rows: pa.Table) -> pa.Table:
    """Return rows whose nested and binary values are JSON text, since CSV has no such values."""
    for place, field in enumerate(schema):
        if _is_nested(field):
            rows = rows.set_column(place, field.name, _json_texts(field, rows.column(place)))
    return rows


def _is_nested(field: Field) -> bool:
    from widen.model.types import BINARY, ArrayType, MapType, StructType

    return field.type == BINARY or isinstance(field.type, (ArrayType, MapType, StructType))


def _json_texts(field: Field, values: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    from widen.files.data_reader import json_lines
    from widen.model.types import BINARY, StructType

    lines = json_lines(StructType((replace(field, name="value"),)), pa.table({"value": values}))
    texts = (bytes(msgspec.json.decode(line, type=_OneValue).value) for line in lines)
    to_cell = msgspec.json.decode if field.type == BINARY else bytes.decode
    return pa.array([None if text == b"null" else to_cell(text) for text in texts], pa.string())


class _OneValue(msgspec.Struct):
    value: msgspec.Raw


def _write_file(rows: pa.Table, form: RowForm) -> None:
    import pyarrow as pa

    file = pa.PythonFile(sys.stdout.buffer, mode="w")  # not closed, since stdout is not ours
    with writing_output():
        if form is RowForm.CSV:
            from pyarrow import csv

            csv.write_csv(rows, file)
        elif form is RowForm.PARQUET:
            from pyarrow import parquet

            parquet.write_table(rows, file, compression="zstd")
        else:
            with pa.ipc.new_stream(file, rows.schema) as writer:
                writer.write_table(rows)
        sys.stdout.flush()


def _lines(frame: DataFrame, limit: int | None) -> Iterator[str]:
    """Yield the rows as JSON objects with all columns, nulls included."""
    from widen.evolution.unify import exact_json
    from widen.spark.errors import translate_spark_errors

    text = exact_json("struct(*)", ignoreNullFields="false")
    texts = (frame if limit is None else frame.limit(limit)).selectExpr(text)
    with translate_spark_errors():
        yield from (row[0] for row in islice(texts.toLocalIterator(), limit))
