"""Twelve sources that drift for 21 days, loaded by Widen, dlt, deltalake with pandas, and Spark with Delta Lake.

    python bench/twelve.py [--days 21] [--tools widen,dlt,deltalake,spark] [--sources orders,clicks]

``examples/twelve-sources`` makes the files; ``twelve_tools.py`` has the code of the other tools. Each tool loads day
after day in a process of its own. A day that a tool refuses is left out, and the next one is tried. Then all values of
its tables are compared with those of the files, as the readers of their formats give them: by value, without names, so
that a nested record may be a table of its own. Printed are for each source:

- lines: of code or TOML without blank lines; each tool also has lines to set it up
- seconds: of the processor, for all days, without the start of the tool
- refused: days that ended in an error
- lost: values that the tables lack, of the days that were loaded
- as text: values that are there in another kind: numbers, times or bytes as text, or times as numbers
- renamed: fields of the records that no column has as its name
"""

from __future__ import annotations

import argparse
import ast
import base64
import csv
import gzip
import inspect
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import twelve_tools
from turns import measure

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "twelve-sources"
TOOLS = ("widen", "dlt", "deltalake", "spark")
Value = tuple[str, str]
"""A kind and a text of a value, the same for equal values."""


def main() -> int:
    """Run every tool in a process of its own, and print what each made of the sources."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=21)
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--sources", default="", help="some of the sources; by default all")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(run_tool(chosen.one, chosen.days, chosen.sources)))
        return 0
    heads = f"{'tool':<12}{'source':<12}{'lines':>6}{'seconds':>9}{'refused':>9}{'lost':>13}{'as text':>9}"
    print(f"{heads}  renamed; first error; load of the machine {os.getloadavg()[0]:.1f}")
    failed = 0
    for tool in chosen.tools.split(","):
        command = [sys.executable, __file__, "--one", tool, "--days", str(chosen.days), "--sources", chosen.sources]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        rows = found["sources"]
        for name, row in rows.items():
            lost = f"{row['lost']}/{row['values']}"
            error = f"; {row['error']}" if row["error"] else ""
            print(
                f"{tool:<12}{name:<12}{row['lines']:>6}{row['seconds']:>9.2f}{row['refused']:>9}{lost:>13}{row['texts']:>9}"
                f"  {', '.join(row['renamed'])}{error}"
            )
        total = {
            key: sum(row[key] for row in rows.values()) for key in ("lines", "seconds", "refused", "lost", "texts")
        }
        whole = sum(not (row["refused"] or row["lost"] or row["texts"]) for row in rows.values())
        print(
            f"{tool:<12}{'all':<12}{total['lines'] + found['setup']:>6}{total['seconds']:>9.2f}{total['refused']:>9}"
            f"{total['lost']:>13}{total['texts']:>9}  {whole} of {len(rows)} whole; start {found['start']:.2f} s",
            flush=True,
        )
        failed |= tool == "widen" and whole < len(rows)
    return int(failed)


def run_tool(tool: str, days: int, sources: str) -> dict[str, Any]:
    """Load all days with a tool, and return what it made of each source."""
    make = runpy.run_path(str(EXAMPLE / "make_days.py"))
    names = sources.split(",") if sources else list(make["SOURCES"])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        os.chdir(place)
        started: list[Any] = []
        start = measure(lambda: started.append(open_tool(tool, place / "lake")))
        (loader,) = started
        seconds, loaded, errors = Counter[str](), dict[str, list[int]](), dict[str, list[str]]()
        for day in range(1, days + 1):
            make["write_day"](place / "landing", day)
            for name in names:
                works: list[str] = []

                def work(name: str = name, day: int = day, works: list[str] = works) -> None:
                    try:
                        loader.load(name, place / "landing" / name, f"{day:02}")
                    except Exception as error:  # what a tool raises is a result
                        works.append(first_line(error))

                seconds[name] += measure(work).cpu
                errors.setdefault(name, []).extend(works)
                loaded.setdefault(name, []).extend([] if works else [day])
        rows = {}
        for name in names:
            files = [file for day in loaded[name] for file in sorted((place / "landing" / name).glob(f"{day:02}*"))]
            sent, fields = truth(name, files)
            found, columns = loader.read(name) if loaded[name] else (Counter(), set())
            lost, texts = compare(sent, found)
            rows[name] = {
                "lines": loader.lines(name),
                "seconds": seconds[name],
                "refused": days - len(loaded[name]),
                "values": sum(sent.values()),
                "lost": lost,
                "texts": texts,
                "renamed": sorted(fields - columns) if columns else [],
                "error": errors[name][0] if errors[name] else "",
            }
        loader.close()
    return {"sources": rows, "setup": loader.setup_lines, "start": start.cpu}


def first_line(error: Exception) -> str:
    """Return the beginning of the message of what has led to an error."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or [''])[0]}"[:110]


# ---- the tools -------------------------------------------------------------------------------------


class Loader:
    """A tool whose code for each source is a function of ``twelve_tools``."""

    def __init__(self, prefix: str, tool: Any) -> None:
        self.prefix, self.tool = prefix, tool
        self.setup_lines: int = tool.setup_lines

    def load(self, name: str, folder: Path, day: str) -> None:
        """Load the files of a day of one source."""
        getattr(twelve_tools, f"{self.prefix}_{name}")(self.tool, folder, day)

    def lines(self, name: str) -> int:
        """Return the number of lines of the code for a source."""
        source = inspect.getsource(getattr(twelve_tools, f"{self.prefix}_{name}"))
        body = [line for line in source.splitlines()[1:] if line.strip() and "import " not in line]
        return len(body) + (count_lines(twelve_tools.sniff) if "sniff(" in source else 0)

    def read(self, name: str) -> tuple[Counter[Value], set[str]]:
        """Return the values of the tables of a source, and the names of the columns."""
        raise NotImplementedError

    def close(self) -> None:
        """End what has been started."""


class WidenLoader(Loader):
    """The file of the example."""

    setup_lines = 3

    def __init__(self, place: Path) -> None:
        import widen

        self.widen, self.place = widen, place
        shutil.copy(EXAMPLE / "pipelines.toml", place.parent / "pipelines.toml")
        os.environ["WIDEN_ENGINE"] = "local"

    def load(self, name: str, folder: Path, day: str) -> None:
        """Run the load of a source, which finds its new files."""
        (step,) = self.widen.run("pipelines.toml", only=[name]).steps
        if step.status.value != "loaded":
            raise ValueError(str(step))

    def lines(self, name: str) -> int:
        """Return the number of lines in the file."""
        blocks = Path("pipelines.toml").read_text().split("[[load]]")
        (block,) = [each for each in blocks if f'"landing/{name}/"' in each]
        return 1 + len([line for line in block.splitlines() if line.strip()])

    def read(self, name: str) -> tuple[Counter[Value], set[str]]:
        """Return the values of the table."""
        return values_of(self.widen.Table(self.place / name).to_arrow())


class DltLoader(Loader):
    """dlt, whose tables are in DuckDB."""

    def load(self, name: str, folder: Path, day: str) -> None:
        """Load a day; one that fails is dropped, or dlt would try it again before the next one."""
        try:
            super().load(name, folder, day)
        except Exception:
            self.tool.pipeline.drop_pending_packages()
            raise

    def read(self, name: str) -> tuple[Counter[Value], set[str]]:
        """Return the values of the table of a source and of its child tables."""
        import duckdb

        found: Counter[Value] = Counter()
        columns: set[str] = set()
        with duckdb.connect(str(Path("lake") / "twelve.duckdb"), read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            tables = connection.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'lake'"
            ).fetchall()
            for (table,) in tables:
                if table == name or table.startswith(f"{name}__"):
                    values, names = values_of(connection.execute(f'SELECT * FROM lake."{table}"').to_arrow_table())
                    found += values
                    columns |= names if table == name else {table.removeprefix(f"{name}__")}
        return found, columns


class DeltalakeLoader(Loader):
    """deltalake with pandas."""

    def read(self, name: str) -> tuple[Counter[Value], set[str]]:
        """Return the values of the table."""
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        table = DeltaTable(str(Path("lake") / name))
        return values_of(pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()))


class SparkLoader(Loader):
    """Spark with Delta Lake."""

    def read(self, name: str) -> tuple[Counter[Value], set[str]]:
        """Return the values of the table."""
        self.tool.spark.conf.set("spark.sql.session.timeZone", "UTC")
        return values_of(self.tool.spark.read.format("delta").load(str(Path("lake").resolve() / name)).toArrow())

    def close(self) -> None:
        """Stop the session."""
        self.tool.spark.stop()


def open_tool(tool: str, place: Path) -> Loader:
    """Return a tool, started."""
    place.mkdir()
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    if tool == "widen":
        return WidenLoader(place)
    loaders = {"dlt": DltLoader, "deltalake": DeltalakeLoader, "spark": SparkLoader}
    makers = {"dlt": twelve_tools.Dlt, "deltalake": twelve_tools.Deltalake, "spark": twelve_tools.Spark}
    return loaders[tool](tool, makers[tool](place))


def count_lines(function: Any) -> int:
    """Return the number of lines of a function, without its docstring."""
    (found,) = ast.parse(inspect.getsource(function)).body
    return len([line for line in ast.unparse(found).splitlines() if line.strip()]) - 1


# ---- values ----------------------------------------------------------------------------------------


_OWN = ("_dlt_", "_widen", "_corrupt", "_loaded_at", "_source_file", "_valid_", "gone")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")


def to_value(value: Any) -> Value:
    """Return the kind and the text of a scalar."""
    match value:
        case bool():
            return "boolean", str(value)
        case int() | Decimal():
            return "number", f"{Decimal(value).normalize():f}"
        case float():
            return "number", "NaN" if value != value else f"{Decimal(repr(value)).normalize():f}"
        case datetime():
            instant = value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)
            return "time", instant.strftime("%Y-%m-%dT%H:%M:%S.%f")
        case date():
            return "time", f"{value.isoformat()}T00:00:00.000000"
        case bytes():
            return "bytes", base64.b64encode(value).decode()
    return "text", str(value)


def leaves(value: Any) -> Iterator[Value]:
    """Yield the scalars of a value."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from leaves(inner)
    elif value is not None:
        yield to_value(value)


def values_of(table: Any) -> tuple[Counter[Value], set[str]]:
    """Return the scalars of a table of Arrow without the columns of tools, and the names of its columns."""
    names = [name for name in table.schema.names if not name.startswith(_OWN)]
    found: Counter[Value] = Counter()
    for name in names:
        found.update(leaves(table[name].to_pylist()))
    return found, set(names)


def compare(sent: Counter[Value], found: Counter[Value]) -> tuple[int, int]:
    """Return how many values are lost, and how many are there as text only."""
    missing, others = sent - found, found - sent
    lost = texts = 0
    spare: Counter[str] = Counter()
    for (kind, text), count in others.items():
        if kind == "text" and _TIME.fullmatch(text):
            spare[to_value(datetime.fromisoformat(text.replace("Z", "+00:00")))[1]] += count
        elif kind in ("text", "number"):
            spare[text] += count
        if kind == "text" and text[:1] in ("{", "["):  # a record as JSON
            with suppress(ValueError):
                spare.update({leaf: count for _, leaf in leaves(json.loads(text))})
    times = Counter({text: count for (kind, text), count in others.items() if kind == "time"})
    for (kind, text), count in missing.items():
        left = count
        if kind == "text" and _TIME.fullmatch(text):  # a text that was read as a time
            parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
            left -= take(times, to_value(parsed)[1], left)
        as_text = 0
        for spelled in spellings(kind, text):
            as_text += take(spare, spelled, left - as_text)
        texts, lost = texts + as_text, lost + left - as_text
    return lost, texts


def take(counts: Counter[str], text: str, most: int) -> int:
    """Take up to so many of a text, and return how many there were."""
    found = min(counts[text], most)
    counts[text] -= found
    return found


def spellings(kind: str, text: str) -> Iterator[str]:
    """Yield how a value may be spelled as text, or a time as a number."""
    yield text
    if kind == "boolean":
        yield text.lower()
    if kind == "number" and text != "NaN":
        yield f"{Decimal(text):.2f}"
        yield f"{Decimal(text):.1f}"
        yield f"{Decimal(text):.2f}".replace(".", ",")
    if kind == "time":
        instant = datetime.fromisoformat(f"{text}+00:00")
        yield str((instant - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1))
        yield text[:10]


# ---- what was sent ---------------------------------------------------------------------------------


def truth(name: str, files: list[Path]) -> tuple[Counter[Value], set[str]]:
    """Return the values that the files of a source have, and the fields of its records."""
    records = [record for file in files for record in read_records(name, file)]
    if name == "customers":
        state: dict[Any, Any] = {}
        for event in records:
            row = event["after"] or event["before"]
            state[row["id"]] = None if event["op"] == "d" else row
        records = [row for row in state.values() if row is not None]
    sent: Counter[Value] = Counter()
    for record in records:
        sent.update(leaves(record))
    if name == "stock":
        del sent["number", "NaN"]  # pandas' missing value
    return sent, {field for record in records for field in record}


def read_records(name: str, file: Path) -> list[dict[str, Any]]:
    """Return the records of a file."""
    match name:
        case "sales":
            separator, encoding, mark = twelve_tools.sniff(file)
            rows = csv.DictReader(io.StringIO(file.read_bytes().decode(encoding)), delimiter=separator)
            return [{key: to_number(value, mark) for key, value in row.items()} for row in rows]
        case "stock":
            import pyarrow as pa
            import pyarrow.parquet as pq

            table = pq.read_table(file)
            at = table.schema.get_field_index("at")
            times = table["at"].cast(pa.timestamp("us", "UTC"))
            return list(table.set_column(at, "at", times).to_pylist())
        case "payments":
            import fastavro

            with file.open("rb") as content:
                return list(fastavro.reader(content))
        case "budget":
            from python_calamine import CalamineWorkbook

            head, *cells = CalamineWorkbook.from_path(file).get_sheet_by_index(0).to_python()
            return [dict(zip(map(str, head), row, strict=True)) for row in cells]
        case "catalog":
            return list(json.loads(file.read_text())["data"]["items"])
        case "logs":
            scopes = json.loads(file.read_text())["resourceLogs"][0]["scopeLogs"]
            return [record for scope in scopes for record in scope["logRecords"]]
        case "webhooks":
            return [json.loads(file.read_text())]
    packed = file.read_bytes()
    text = gzip.decompress(packed) if file.suffix == ".gz" else packed
    records = [json.loads(line) for line in text.splitlines()]
    if name == "profiles":
        return [{key: from_extended(value) for key, value in record.items()} for record in records]
    if name == "customers":
        return [record for record in records if "op" in record]
    if name == "sensors":
        return [record | {"at": from_ms(record["at"])} for record in records]
    return records


def to_number(text: str, mark: str) -> Any:
    """Return a cell of CSV as a number where it is one."""
    try:
        return Decimal(text.replace(mark, "."))
    except InvalidOperation:
        return text


def from_ms(count: int) -> datetime:
    """Return a time by its milliseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=count)


def from_extended(value: dict[str, Any]) -> Any:
    """Return a value of MongoDB's Extended JSON."""
    ((key, inner), *_) = value.items()
    match key:
        case "$numberLong" | "$numberInt":
            return int(inner)
        case "$numberDecimal":
            return Decimal(inner)
        case "$date":
            return from_ms(int(inner["$numberLong"]))
        case "$binary":
            return base64.b64decode(inner["base64"])
    return inner


if __name__ == "__main__":
    raise SystemExit(main())
