"""Ask every reader of Delta and Iceberg tables that can be installed what it finds in tables with one feature each.

    python tools/readers.py FOLDER [--write] [--keep] [--table WORD] [--client NAMES]

Makes the tables below FOLDER with Widen, Delta Lake and Iceberg for Spark and deltalake, and asks each client for all
rows, a count, the nulls of each column, and the rows at the bounds of each column. What happened is written to
``FOLDER/found.json`` and, with ``--write``, to `src/widen/report/readers.json`, which Widen predicts from. Fails where
a prediction for one of the tables is not what happened. `make readers` installs the clients and runs this.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

import pyarrow as pa  # noqa: E402
import reader_clients  # noqa: E402
import reader_tables  # noqa: E402
from reader_tables import DELTA, ICEBERG, TABLES, FeatureTable, Maker  # noqa: E402

WORK = ROOT / ".work"
HERE, EXTRAS, SPARK_4_1 = WORK / "venv", WORK / "venv-readers", WORK / "venv-4.1"
CLIENTS = {
    "spark": (DELTA, HERE),
    "deltalake": (DELTA, HERE),
    "deltalake-sql": (DELTA, HERE),
    "polars": (DELTA, HERE),
    "duckdb-deltalake": (DELTA, HERE),
    "duckdb": (DELTA, EXTRAS),
    "datafusion": (DELTA, EXTRAS),
    "daft": (DELTA, EXTRAS),
    "chdb": (DELTA, EXTRAS),
    "sail": (DELTA, EXTRAS),
    "spark-iceberg": (ICEBERG, SPARK_4_1),
    "pyiceberg": (ICEBERG, HERE),
    "polars-iceberg": (ICEBERG, HERE),
    "duckdb-iceberg": (ICEBERG, EXTRAS),
    "daft-iceberg": (ICEBERG, EXTRAS),
    "chdb-iceberg": (ICEBERG, EXTRAS),
    "sail-iceberg": (ICEBERG, EXTRAS),
}
QUESTIONS = ("scan", "equal", "range", "count", "null")
READS, REFUSES, WRONG = "reads", "refuses", "wrong"
SECONDS = 60


# Questions, and what must be found.


@dataclass(frozen=True)
class Question:
    """One request to a client.

    Args:
        kind: One of `QUESTIONS`.
        asked: The condition; None for all rows.
        expected: The answer.
    """

    kind: str
    asked: dict[str, str] | None
    expected: dict[str, Any]

    def check(self, found: Mapping[str, Any]) -> str:
        """Return how the client answered."""
        if "error" in found:
            return REFUSES
        return READS if found == self.expected else WRONG


def questions(table: FeatureTable) -> Iterator[Question]:
    """Return what every client of a table is asked."""
    expected, names = table.expected, [field.name for field in table.schema.fields]
    rows = reader_clients.rows_of(expected, names)
    yield Question("scan", None, {"rows": rows})
    yield Question("count", {"op": "count"}, {"count": len(rows)})
    for field in table.schema.fields:
        if field.name not in (table.asked or names):
            continue
        column, kind = expected.column(field.name).to_pylist(), str(field.type)
        for op in ("null", "value"):
            mask = [(value is None) == (op == "null") for value in column]
            found = reader_clients.rows_of(expected.filter(pa.array(mask, pa.bool_())), names)
            yield Question("null", {"column": field.name, "op": op}, {"rows": found})
        for question, op, constant in _comparisons(table, field.name, kind, column):
            limit = reader_clients.python_value(kind, constant)
            mask = [value is not None and _holds(value, op, limit) for value in column]
            found = reader_clients.rows_of(expected.filter(pa.array(mask, pa.bool_())), names)
            asked = {"column": field.name, "op": op, "type": kind, "value": constant}
            yield Question(question, asked, {"rows": found})


def _comparisons(table: FeatureTable, name: str, kind: str, column: list[Any]) -> Iterator[tuple[str, str, str]]:
    values = sorted({value for value in column if value is not None and value == value})
    if values and kind not in ("binary",):
        low, high = (_text(value) for value in (values[0], values[-1]))
        yield from (("equal", "=", low), ("equal", "=", high))
        if kind != "boolean":
            yield from (("range", ">", low), ("range", "<", high), ("range", ">=", high), ("range", "<=", low))
    for column_name, constant in table.constants:
        if column_name == name:
            yield from (("range", ">", constant), ("range", "<", constant))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value).removesuffix("+00:00")


def _holds(value: Any, op: str, limit: Any) -> bool:
    if value != value:  # NaN is more than any number, as in Spark
        return op in (">", ">=")
    return bool(reader_clients.OPERATORS[op](value, limit))


# Clients in processes of their own.


class Client:
    """A process that answers; one that dies or hangs is started again, and that request counts as refused."""

    def __init__(self, name: str, arguments: Iterable[str]) -> None:
        self.name, self.arguments = name, tuple(arguments)
        self.process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        if self.process is None:
            self.process = self._start()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if "\x1e" in line:
                found: dict[str, Any] = json.loads(line.rpartition("\x1e")[2])
                return found
        self.close()
        return {"error": "the process ended"}

    def _start(self) -> subprocess.Popen[str]:
        place = CLIENTS[self.name][1]
        mine = ("PYTHON", "PYSPARK_", "SPARK_HOME", "SPARK_REMOTE")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(mine)}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": f"{place}/bin:{os.environ['PATH']}"}
        command = [str(place / "bin" / "python"), str(ROOT / "tools" / "reader_clients.py"), self.name, *self.arguments]
        errors = subprocess.DEVNULL
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            with self.process:  # closes the pipes, which ends the process, and waits for it
                self.process = None


# Making and asking.


def jars(*names: str) -> str:
    """Return the paths of jars."""
    pins = json.loads((ROOT / "tools" / "jars.json").read_text())["jars"]
    return ",".join(str(WORK / "jars" / "{1}-{2}.jar".format(*pin.split(":"))) for pin in pins if pin.startswith(names))


def make_tables(tables: Iterable[FeatureTable], folder: Path) -> dict[str, str]:
    """Make tables and return the locations of those that were made: a folder, or a metadata file."""
    from interop.conftest import IcebergSpark

    folder.mkdir(parents=True, exist_ok=True)
    catalog = reader_tables.iceberg_files.embedded_catalog(folder)
    delta = reader_clients.spark_with_delta(jars("io.delta:"))
    process = IcebergSpark(catalog, folder)

    def iceberg(text: str | None, **request: Any) -> Any:
        return process.sql(text) if text is not None else process.ask(**request)

    maker, places = Maker(delta, iceberg, catalog), {}
    for table in tables:
        name = short_name(table)
        place = str(folder / name) if table.format == DELTA else name
        print(f"{table.format}: {table.name}", flush=True)
        try:
            table.make(maker, place)
        except Exception as error:
            print(f"  NOT MADE: {type(error).__name__}: {str(error)[:600]}", flush=True)
            continue
        if table.format == ICEBERG:
            place = metadata_location(folder, name)
        places[key(table)] = place
    with process.process:  # closes the pipes, which ends the process, and waits for it
        pass
    return places


def metadata_location(folder: Path, name: str) -> str:
    """Return the metadata file of a table; also of one that PyIceberg does not open."""
    with sqlite3.connect(folder / "catalog.db") as database:
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
        (place,) = database.execute(query, [name]).fetchone()
    return str(place)


def short_name(table: FeatureTable) -> str:
    """Return a name that a folder and a table of a catalog can have."""
    return re.sub("[^a-z0-9]+", "_", table.name.lower())


def key(table: FeatureTable) -> str:
    """Return the name of a table in what was found."""
    return f"{table.format}: {table.name}"


def ask_all(tables: Iterable[FeatureTable], places: Mapping[str, str], folder: Path, clients: Iterable[str]) -> Any:
    """Return what each client answered to each question about each table."""
    found: dict[str, dict[str, Any]] = {}
    for name in clients:
        kind, _ = CLIENTS[name]
        arguments = []
        if name == "spark":
            arguments = [jars("io.delta:")]
        if name == "spark-iceberg":
            arguments = [
                jars("org.apache.iceberg:iceberg-spark", "org.xerial:"),
                f"{folder}/catalog.db",
                f"file://{folder}/catalog_warehouse",
            ]
        client: Any = Client(name, arguments)
        for table in tables:
            if table.format != kind or key(table) not in places:
                continue
            request = {
                "table": places[key(table)],
                "name": f"ns.{short_name(table)}",
                "columns": [field.name for field in table.schema.fields],
            }
            cells: dict[str, Any] = {}
            for question in questions(table):
                is_quick = name in JAR_VERSIONS and len(table.schema.fields) > 1
                if is_quick and question.asked is not None and question.asked.get("column") == "id":
                    continue  # a query of Spark takes a second
                answer = client.ask(request | {"question": question.asked})
                outcome = question.check(answer)
                cells.setdefault(question.kind, []).append(
                    [outcome] + ([question.asked, answer, question.expected] if outcome != READS else [])
                )
            found.setdefault(key(table), {})[name] = cells
        client.close()
        print(f"asked {name}", flush=True)
    return found


# What Widen predicts from.


def worst(outcomes: Iterable[str]) -> str:
    """Return the worst of some outcomes."""
    return max(outcomes, key=(READS, REFUSES, WRONG).index)


def observed(found: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return what each client did with a table, by client and kind of question, without what it simply reads."""
    cells = {
        client: {kind: worst(each[0] for each in answers) for kind, answers in kinds.items()}
        for client, kinds in found.items()
    }
    return {client: {kind: text for kind, text in kinds.items() if text != READS} for client, kinds in cells.items()}


def read_traits(places: Mapping[str, str], folder: Path) -> dict[str, list[Any]]:
    """Return the traits of each table that Widen opens."""
    import widen
    from widen.errors import WidenError

    found = {}
    for name, place in places.items():
        try:
            if name.startswith(DELTA):
                table: Any = widen.Table(place)
            else:
                table = widen.IcebergTable(f"ns.{Path(place).parent.parent.name}", catalog=folder / "catalog.db")
            found[name] = table._read_traits()[1]
        except WidenError as error:
            print(f"not opened by Widen: {name}: {error.code}")
    return found


def _has(outcomes: Mapping[str, str], found: Mapping[str, str]) -> bool:
    return found.get("scan") == REFUSES or found.items() >= outcomes.items()


def learn(results: Mapping[str, Any], traits: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return the answers of each client by format and trait.

    A table with fewer traits comes first. What its known traits do not explain is due to the last one that is new.
    """
    answers: dict[str, Any] = {DELTA: {}, ICEBERG: {}}

    def having(trait: str, client: str) -> list[dict[str, str]]:
        tables = [name for name, found in traits.items() if any(each.name == trait for each in found)]
        return [observed(results[name]).get(client, {}) for name in tables if client in results[name]]

    for name in sorted(set(results) & set(traits), key=lambda name: (len({each.name for each in traits[name]}), name)):
        table = answers[name.partition(":")[0]]
        names = list(dict.fromkeys(trait.name for trait in traits[name]))
        new = [trait for trait in names if trait not in table]
        for trait in new:
            table[trait] = {}
        if not new:
            continue
        for client, kinds in observed(results[name]).items():
            known = [table[trait].get(client, {}) for trait in names]
            rest = {
                kind: text
                for kind, text in kinds.items()
                if (expected := worst([each.get(kind, READS) for each in known])) != worst([text, expected])
            }
            if rest:
                always = [trait for trait in new if all(map(partial(_has, rest), having(trait, client)))]
                table[always[0] if always and rest.get("scan") == REFUSES else (always or new)[-1]][client] = rest
    return answers


def write_data(answers: Mapping[str, Any], versions: Mapping[str, str]) -> None:
    """Write the file that Widen predicts from."""
    readers = {
        name: {"title": TITLES[name], "version": versions[name], "format": kind}
        for name, (kind, _) in CLIENTS.items()
        if name in versions
    }
    DATA.write_text(json.dumps({"readers": readers, "answers": answers}, indent=1, sort_keys=False) + "\n")


def differences(results: Mapping[str, Any], traits: Mapping[str, list[Any]]) -> Iterator[str]:
    """Yield the cells for which Widen predicts something else than what happened."""
    from widen.report import reader_predictions

    reader_predictions._data.cache_clear()
    reader_predictions.tested_readers.cache_clear()
    for name, found in observed_by_table(results).items():
        if name not in traits:
            continue
        for each in reader_predictions.predict(traits[name], reader_predictions.tested_readers(name.partition(":")[0])):
            if each.reader.name not in found:
                continue
            for kind, outcome in each.answers.items():
                real = found[each.reader.name].get(kind, READS)
                if outcome.value != real and kind in results[name][each.reader.name]:
                    yield f"{name}: {each.reader.name}: {kind}: predicted {outcome.value}, found {real}"


def observed_by_table(results: Mapping[str, Any]) -> dict[str, dict[str, dict[str, str]]]:
    """Return what each client did with each table."""
    return {name: observed(found) for name, found in results.items()}


def find_versions() -> dict[str, str]:
    """Return the version of the package of each client."""
    found = {}
    for name, (_, place) in CLIENTS.items():
        if name in JAR_VERSIONS:
            pins = json.loads((ROOT / "tools" / "jars.json").read_text())["jars"]
            found[name] = next(pin.rpartition(":")[2] for pin in pins if pin.startswith(JAR_VERSIONS[name]))
            continue
        query = (
            f"from importlib.metadata import version; print(version({PACKAGES.get(name, name.partition('-')[0])!r}))"
        )
        done = subprocess.run([str(place / "bin" / "python"), "-c", query], capture_output=True, text=True, check=True)
        found[name] = done.stdout.strip()
    return found


JAR_VERSIONS = {"spark": "io.delta:delta-spark", "spark-iceberg": "org.apache.iceberg:iceberg-spark"}
PACKAGES = {"sail": "pysail", "sail-iceberg": "pysail", "duckdb-deltalake": "duckdb"}
TITLES = {
    "spark": "Delta Lake for Spark",
    "deltalake": "deltalake, Arrow dataset",
    "deltalake-sql": "deltalake, QueryBuilder",
    "polars": "polars, scan_delta",
    "duckdb-deltalake": "DuckDB over deltalake",
    "duckdb": "DuckDB, extension delta",
    "datafusion": "DataFusion over deltalake",
    "daft": "daft, read_deltalake",
    "chdb": "chdb, deltaLakeLocal",
    "sail": "Sail",
    "spark-iceberg": "Iceberg for Spark",
    "pyiceberg": "PyIceberg",
    "polars-iceberg": "polars, scan_iceberg",
    "duckdb-iceberg": "DuckDB, extension iceberg",
    "daft-iceberg": "daft, read_iceberg",
    "chdb-iceberg": "chdb, icebergLocal",
    "sail-iceberg": "Sail",
}
DATA = ROOT / "src" / "widen" / "report" / "readers.json"


def main(given: argparse.Namespace) -> int:
    """Make, ask, write and compare; return 1 if a prediction was wrong."""
    given.folder = given.folder.resolve()  # chdb and Spark need it
    chosen = [table for table in TABLES if given.table in key(table)]
    clients = given.client.split(",") if given.client else list(CLIENTS)
    places_file, results_file = given.folder / "places.json", given.folder / "found.json"
    if not given.keep:
        shutil.rmtree(given.folder, ignore_errors=True)
    places = json.loads(places_file.read_text()) if places_file.exists() else {}
    missing = [table for table in chosen if key(table) not in places]
    if missing:
        places |= make_tables(missing, given.folder)
        places_file.write_text(json.dumps(places))
    results = json.loads(results_file.read_text()) if results_file.exists() else {}
    for client in [] if given.client == "none" else clients:
        for name, answers in ask_all(chosen, places, given.folder, [client]).items():
            results.setdefault(name, {}).update(answers)
        results_file.write_text(json.dumps(results))
    traits = read_traits(places, given.folder)
    if given.write:
        asked = {client for found in results.values() for client in found}
        write_data(learn(results, traits), {name: text for name, text in find_versions().items() if name in asked})
    wrong = list(differences(results, traits))
    cells = sum(len(kinds) for name, found in results.items() if name in traits for kinds in found.values())
    print("\n".join(wrong))
    print(f"{cells - len(wrong)} of {cells} cells as predicted, {len(results)} tables")
    return int(bool(wrong) or len(places) < len(chosen))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", default="", help="Only tables with this word.")
    parser.add_argument("--client", default="", help="Only these clients, with commas between them.")
    parser.add_argument("--keep", action="store_true", help="Use the tables and answers that are there.")
    parser.add_argument("--write", action="store_true", help="Write what Widen predicts from.")
    sys.exit(main(parser.parse_args()))
