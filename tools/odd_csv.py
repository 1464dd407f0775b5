"""Write docs/guide/odd-csv.md: what Widen, Spark, DuckDB and polars make of odd CSV files.

Widen's column comes from the code, without Spark; a test compares it with the page. The other columns come from a run
with ``--others`` in an environment that has pyspark, duckdb and polars.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "guide" / "odd-csv.md"
HEAD = b"n,name\n"

CASES: dict[str, bytes] = {
    # quotes
    "a quoted separator": HEAD + b'1,"a,b"\n2,c\n',
    "a doubled quote": HEAD + b'1,"say ""yes"""\n2,c\n',
    "a quoted line break": HEAD + b'1,"a\nb"\n2,c\n',
    "a quoted address": HEAD + b'1,"Main St\nParis, France"\n2,c\n',
    "a quoted blank line": HEAD + b'1,"a\n\nb"\n2,c\n',
    "an open quote at the end": HEAD + b'1,a\n2,"b\n3,c\n4,d\n',
    "an open quote in the last field": HEAD + b'1,a\n2,"b',
    "two stray quotes, at the start and at the end of a field": HEAD + b'1,a\n2,"b\n3,c\n4,d"\n5,e\n',
    "a stray quote that a quoted field closes": HEAD + b'1,a\n2,"b\n3,"c"\n4,d\n',
    "two stray quotes that change the number of fields": HEAD + b'1,a\n2,"b\n3,c",x\n4,d\n',
    "a quote within a field": HEAD + b'1,5" pipe\n2,c\n',
    "a quote at the end of a field": HEAD + b'1,b"\n2,c\n',
    "text after a closing quote": HEAD + b'1,"a"b\n2,c\n',
    "a space after a closing quote": HEAD + b'1,"a" \n2,c\n',
    "a space before an opening quote": HEAD + b'1, "a"\n2,c\n',
    "a quoted empty field": HEAD + b'1,""\n2,c\n',
    "an empty field": HEAD + b"1,\n2,c\n",
    "a single quote character": HEAD + b"1,'a,b'\n2,c\n",
    "a backslash before a quote": HEAD + b'1,"a\\"b"\n2,c\n',
    "a backslash at the end of a quoted field": HEAD + b'1,"a\\"\n2,c\n',
    "three quotes": HEAD + b'1,"""\n2,c\n',
    "four quotes": HEAD + b'1,""""\n2,c\n',
    "quoted numbers": HEAD + b'"1","2"\n"3","4"\n',
    # widths
    "a row with too many fields": HEAD + b"1,a,x\n2,c\n",
    "a row with too few fields": b"n,name,x\n1,a\n2,c,y\n",
    "a separator at the end of each row": HEAD + b"1,a,\n2,c,\n",
    "a separator at the end of the header": b"n,name,\n1,a,\n2,c,\n",
    "only separators": HEAD + b"1,a\n,\n2,c\n",
    "a separator that differs from the header's": HEAD + b"1;a\n2;c\n",
    # lines
    "CRLF": b"n,name\r\n1,a\r\n2,c\r\n",
    "CR": b"n,name\r1,a\r2,c\r",
    "mixed line endings": b"n,name\r\n1,a\n2,b\r3,c\n",
    "LF CR": b"n,name\n\r1,a\n\r2,c\n\r",
    "CR CR LF": b"n,name\r\r\n1,a\r\r\n2,c\r\r\n",
    "CR in a quoted field": HEAD + b'1,"a\rb"\n2,c\n',
    "CRLF in a quoted field": b'n,name\r\n1,"a\r\nb"\r\n2,c\r\n',
    "no line ending at the end": HEAD + b"1,a\n2,c",
    "a blank line in the middle": HEAD + b"1,a\n\n2,c\n",
    "a blank line at the start": b"\n" + HEAD + b"1,a\n2,c\n",
    "blank lines at the end": HEAD + b"1,a\n2,c\n\n\n",
    "a line of spaces": HEAD + b"1,a\n   \n2,c\n",
    "a vertical tab and a form feed": HEAD + b"1,a\x0bb\x0cc\n2,c\n",
    "U+2028 and U+0085": HEAD + "1,a\u2028b\x85c\n2,c\n".encode(),
    # headers
    "a header and no rows": HEAD,
    "a quoted header with a line break": b'n,"na\nme"\n1,a\n2,c\n',
    "two equal names": b"n,n\n1,a\n2,c\n",
    "an empty name": b"n,\n1,a\n2,c\n",
    "names that differ only in case": b"n,N\n1,a\n2,c\n",
    "spaces around names": b" n , name \n1,a\n2,c\n",
    "a comment line": b"# made by x\n" + HEAD + b"1,a\n2,c\n",
    "a line sep=,": b"sep=,\n" + HEAD + b"1,a\n2,c\n",
    # bytes
    "a byte order mark": b"\xef\xbb\xbf" + HEAD + b"1,a\n2,c\n",
    "a byte order mark before a quoted name": b'\xef\xbb\xbf"n",name\n1,a\n2,c\n',
    "a byte that is not UTF-8": HEAD + b"1,\xe9\n2,c\n",
    "a NUL": HEAD + b"1,a\0b\n2,c\n",
    "Ctrl-Z at the end": HEAD + b"1,a\n2,c\n\x1a",
    "UTF-16 with a mark": (HEAD + b"1,a\n2,c\n").decode().encode("utf-16"),
    "UTF-16 without a mark": (HEAD + b"1,a\n2,c\n").decode().encode("utf-16-le"),
    "an Excel workbook": b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml",
    "an HTML page": b"<!DOCTYPE html>\n<html><body>Not found</body></html>\n",
    "spaces around values": HEAD + b"1, a \n2,c\n",
    "the string NULL": HEAD + b"1,NULL\n2,c\n",
    "numbers with extra zeros": HEAD + b"007,1.50\n2,c\n",
}

Rows = list[list[str | None]]


def widen(path: Path) -> str:
    """What Widen makes of a file: rows, and lines that it keeps in _corrupt_record; or the error."""
    import msgspec

    from widen.errors import WidenError
    from widen.sources.csv_detection import find_dialect
    from widen.sources.csv_dialect import CsvDialect, FieldGroup
    from widen.sources.csv_frames import CsvRanges, read_csv_groups
    from widen.sources.file_ranges import FileRange

    names: tuple[str, ...] = ()
    rows: Rows = []
    refused: list[str] = []
    try:
        dialect = find_dialect(path.read_bytes(), CsvDialect(), ())
        ranges = CsvRanges([FileRange(f"file:{path}", 0, path.stat().st_size, True)], dialect)
        for group in read_csv_groups(msgspec.json.encode(ranges)):
            if isinstance(group, FieldGroup):
                names = group.names
                rows += [list(row) for row in zip(*(column.to_pylist() for column in group.columns), strict=True)]
                refused += [f"line {each.line}: {each.reason}" for each in group.refused]
    except WidenError as error:
        return f"refused: {error.fields['reason']}"
    text = show(names, rows) if names else "no rows"
    return text + "".join(f"; corrupt, {each}" for each in refused)


def spark(path: Path) -> str:
    """What Spark's reader makes of a file, with a header and fields over several lines."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    frame = session.read.csv(str(path), header=True, multiLine=True)
    return show(frame.columns, [list(row) for row in frame.collect()])


def duckdb(path: Path) -> str:
    """What DuckDB makes of a file, with its own detection but no types."""
    import duckdb as engine

    found: Any = engine.sql(f"FROM read_csv('{path}', all_varchar = true, header = true)")
    return show(found.columns, [list(row) for row in found.fetchall()])


def polars(path: Path) -> str:
    """What polars makes of a file, without types."""
    import polars as engine

    frame = engine.read_csv(path, infer_schema=False)
    return show(frame.columns, [list(row) for row in frame.rows()])


def show(names: Any, rows: Rows) -> str:
    """Return the names unless they are the usual ones, and the rows."""
    head = "" if list(names) == ["n", "name"] else f"{json.dumps(list(names), ensure_ascii=False)}: "
    shown = " ".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    return head + (shown or "no rows")


READERS: dict[str, Callable[[Path], str]] = {"Spark": spark, "DuckDB": duckdb, "polars": polars}


def answers(read: Callable[[Path], str]) -> dict[str, str]:
    """What a reader makes of every case."""
    found = {}
    for number, (name, data) in enumerate(CASES.items()):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"case{number}.csv"
            path.write_bytes(data)
            try:
                found[name] = read(path)
            except Exception as error:  # every failure of another engine is an answer
                kind = type(error).__name__
                found[name] = f"error ({kind})"
    return found


START = """# Odd CSV files

What {readers} make of the same files. Each row of a result is a JSON list; the names are shown
unless they are `n` and `name`. A corrupt line is kept unchanged in `_corrupt_record`, and counts towards
`--max-corrupt`; a refused file is an error, or is skipped with `--skip-bad-files`. {settings}.

`tools/odd_csv.py` writes this page; a test compares the column of Widen with the code.

"""

SETTINGS = {
    "Spark": "Spark reads with `header` and `multiLine`",
    "DuckDB": "DuckDB reads with `header` and `all_varchar`",
    "polars": "polars reads without types",
}


def start(readers: list[str]) -> str:
    """The text above the table: whose readers are compared, and how they read."""
    listed = f"{', '.join(readers[:-1])} and {readers[-1]}"
    return START.format(readers=listed, settings=", ".join(SETTINGS[each] for each in readers if each in SETTINGS))


def cell(text: str) -> str:
    """A result as a cell of the table."""
    return "`" + text.replace("|", "¦").replace("`", "'") + "`"


def page(columns: dict[str, dict[str, str]]) -> str:
    """The whole page."""
    lines = [f"| {name} | " + " | ".join(cell(column[name]) for column in columns.values()) + " |" for name in CASES]
    names = ["file", *columns]
    head = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    return start(list(columns)) + "\n".join([*head, *lines]) + "\n"


def pinned() -> dict[str, list[str]]:
    """The cells of the page by the name of the case, without the first."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text("utf-8").split("\n") if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows[1:]}


def main() -> None:
    """Write the page, or print what one reader makes of the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reader", choices=READERS, help="print what one reader makes of the cases, as JSON")
    parser.add_argument("--others", type=Path, metavar="FOLDER", help="with NAME.json, what --reader NAME printed")
    options = parser.parse_args()
    if options.reader:
        json.dump(answers(READERS[options.reader]), sys.stdout, ensure_ascii=False)
        return
    columns = {"Widen": answers(widen)}
    if options.others:
        files = {name: options.others / f"{name}.json" for name in READERS}
        columns |= {name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.exists()}
    else:
        known = pinned()
        names = next(line for line in PAGE.read_text("utf-8").split("\n") if line.startswith("| file")).strip("| ")
        for at, name in enumerate(names.split(" | ")[2:], 1):
            columns[name] = {case: known[case][at].strip("`") for case in CASES}
    PAGE.write_text(page(columns), "utf-8")


if __name__ == "__main__":
    main()
