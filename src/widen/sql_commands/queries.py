"""The tables of a query: each becomes a DataFrame of Widen, and the rest of the text goes to Spark unchanged.

Source: Delta Lake's time travel and table_changes; Spark's parameterized queries (``{name}`` for a DataFrame).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime, timedelta, timezone
from functools import cached_property, partial
from typing import Any, TypeAlias

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from widen.errors import InvalidOption, NameNotFound, TableNotFound
from widen.errors.tables import first_line
from widen.files.iceberg_columns import LINEAGE
from widen.frames.scan import may_have_list, read_snapshot
from widen.iceberg.metadata_files import has_row_lineage
from widen.log.commit_files import time_text, to_ms
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.model.column_path import Path, fields, format_path
from widen.model.schema_json import to_identifier, to_literal
from widen.model.types import compact_sql, name_key, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.actions import clustering_columns
from widen.protocol.column_mapping import to_physical_path
from widen.protocol.column_metadata import DEFAULT
from widen.protocol.table_features import MIN_READER_VERSION, MIN_WRITER_VERSION, supported_features
from widen.protocol.table_properties import FEATURE_PREFIX, canonical_key
from widen.schema.source_metadata import COMMENT
from widen.spark.engine import find_session
from widen.spark.spark_types import DataFrame, SparkSession, spark_errors
from widen.sql_commands.grammar import Token, TokenReader, refused_message, split_list, to_table_reference, tokenize
from widen.sql_commands.iceberg_statements import IcebergCatalog, iceberg_codes
from widen.sql_commands.statements import (
    DescribeDetail,
    DescribeHistory,
    DescribeTable,
    QueryResult,
    Question,
    ShowProperties,
    TableReference,
)
from widen.table import Table

_CHANGES, _CHANGES_BY_PATH = "TABLE_CHANGES", "TABLE_CHANGES_BY_PATH"
_AT_VERSION = re.compile(r"(.+)@v(\d+)", re.DOTALL)
_LINEAGE = {name_key(field.name) for field in LINEAGE}
_EXCEPT = f" EXCEPT ({', '.join(LINEAGE.names)})"
_STAR = "* would have the columns of row lineage too; name the columns, or use `widen read --row-lineage`"
_NO_LEVELS, _LEVELS = "REQUIRES_SINGLE_PART_NAMESPACE", 2
"""What Spark says about a name with more parts than its own catalog has, and how many these are."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class _Reference:
    """A table in a query: its place in the text, and what is read.

    Args:
        start: The position of its first character.
        end: The position after its last one, the version included.
        changes: The texts of the first and the last version of its changes, if these are read.
        alias: The alias to add, because the query has no alias.
    """

    start: int
    end: int
    table: TableReference
    version: str | None = None
    timestamp: str | None = None
    changes: tuple[str, ...] = ()
    alias: str = ""
    is_iceberg: bool = False
    has_lineage: bool = False


@dataclass
class QueryRunner:
    """Runs queries in a session.

    Args:
        reason: Why Spark is needed.
        options: Settings and credentials of the stores of the tables.
        catalog: The Iceberg catalog that is asked for a name before the session's catalog.
    """

    session: SparkSession | None
    reason: str
    options: Mapping[str, str] | None = None
    catalog: IcebergCatalog | None = None
    _locations: dict[TableReference, str | None] = field(default_factory=dict)

    @cached_property
    def spark(self) -> SparkSession:
        """The session of Spark, which starts if it has not."""
        return find_session(self.session, self.reason)

    def run(self, text: str) -> DataFrame:
        """Return the rows of a query.

        Args:
            text: The query in Spark SQL. Tables are paths, ``delta.`/data/orders```, names in the catalog of the
                session, or ``table_changes``; they can have a version or a time.
        """
        frames: dict[str, DataFrame] = {}
        references = [*self._references(text)]
        edits = [*_short_qualifiers(text, references)]
        if any(each.has_lineage for each in references):
            edits += _stars_without_lineage(text, references)
        for number, reference in enumerate(references):
            name = f"widen_{number}"
            frames[name] = self._read(text, reference)
            edits.append((reference.start, reference.end, f"{{{name}}}{reference.alias}"))
        template, at = "", 0
        for start, end, new in sorted(edits):
            template += _escape(text[at:start]) + new
            at = end
        template += _escape(text[at:])
        try:
            return self.spark.sql(template, None, **frames) if frames else self.spark.sql(text)
        except spark_errors() as error:
            if _NO_LEVELS in str(error):
                self._ensure_tables_exist(text)
            raise refused_message(text, 0, f"Spark says: {first_line(error).rstrip('.')}") from error

    def _ensure_tables_exist(self, text: str) -> None:
        """Check names that only the Iceberg catalog can have: Spark's catalog has one level of namespaces."""
        if self.catalog is None:
            return
        for _, parts, _ in _tables(text, tokenize(text)):
            name = self.catalog.name(to_table_reference(parts))
            if name is not None and len(parts) > _LEVELS and self.catalog.find(to_table_reference(parts)) is None:
                raise name.not_found()

    def _references(self, text: str) -> Iterator[_Reference]:
        """Yield the tables that are read by Widen; views and other tables of the session are left to Spark."""
        tokens = tokenize(text)
        names = {name_key(token.text) for token in tokens}
        yield from _changes(text, tokens)
        for last, parts, alias in _tables(text, tokens):
            table = to_table_reference(parts)
            end, version, timestamp = _time_travel(text, tokens, last)
            first = last - 2 * (len(parts) - 1)
            found = None if self.catalog is None else self.catalog.find(table)
            if found is not None:
                lineage = has_row_lineage(found.table.metadata) and not _LINEAGE.isdisjoint(names)
                place = partial(_Reference, tokens[first].start, end, table, version, timestamp, alias=alias)
                yield place(is_iceberg=True, has_lineage=lineage)
                continue
            if version is None and timestamp is None:
                table, version = self._split_version(table)
            if self._locate(table, is_required=bool(version or timestamp)) is not None:
                yield _Reference(tokens[first].start, end, table, version, timestamp, alias=alias)

    def _split_version(self, table: TableReference) -> tuple[TableReference, str | None]:
        """Return a path that ends in ``@v`` and a number without them, with the number, unless a table is there."""
        match = _AT_VERSION.fullmatch(table.location or "")
        if match is None:
            return table, None
        with suppress(TableNotFound):
            open_snapshot(LogStore(match[0], self.options))
            return table, None
        return TableReference((TableReference.DELTA, match[1])), match[2]

    def _locate(self, table: TableReference, *, is_required: bool) -> str | None:
        """Return the location of a table; None for a name that belongs to something other than a Delta table."""
        if table.location is not None:
            return table.location
        if table not in self._locations:
            try:
                self._locations[table] = find_table_location(self.spark, table.parts)
            except NameNotFound:
                if is_required:
                    raise
                self._locations[table] = None
        return self._locations[table]

    def _read(self, text: str, reference: _Reference) -> DataFrame:
        if reference.is_iceberg:
            with iceberg_codes():
                return self._read_iceberg(reference)
        location = self._locate(reference.table, is_required=True)
        assert location is not None
        table = Table(location, self.options)
        if reference.changes:
            first, *last = reference.changes
            begin = self._version(table, first, is_first=True)
            return table.changes(begin, self._version(table, last[0]) if last else None, spark=self.spark)
        version = None if reference.version is None else _number(text, reference)
        moment = None if reference.timestamp is None else self._moment(reference.timestamp)
        snapshot = table._past(version, moment)
        return read_snapshot(self.spark, table.store, snapshot, has_lists=may_have_list(text))

    def _read_iceberg(self, reference: _Reference) -> DataFrame:
        """Return the rows of a table of the catalog; a version may also be a branch or a tag."""
        table = None if self.catalog is None else self.catalog.find(reference.table)
        assert table is not None
        read = partial(table.read, row_lineage=reference.has_lineage, spark=self.spark)
        if reference.timestamp is not None:
            return read(timestamp=self._moment(reference.timestamp))
        if reference.version is None:
            return read()
        text = reference.version.strip("'\"")
        if text.isdecimal():
            return read(version=int(text))
        is_tag = any(each.name == text and each.kind == "tag" for each in table.references)
        return read(tag=text) if is_tag else read(branch=text)

    def _version(self, table: Table, text: str, *, is_first: bool = False) -> int:
        """Return the version that an argument of table_changes names: a number, or a time."""
        if text.isdecimal():
            return int(text)
        moment_ms = to_ms(self._moment(text))
        if is_first and table.history()[-1].timestamp_ms >= moment_ms:
            return table.history()[-1].version
        snapshot = open_snapshot(table.store, timestamp_ms=moment_ms)
        return snapshot.version + (is_first and snapshot.timestamp_ms < moment_ms)

    def _moment(self, expression: str) -> datetime:
        """Return a time, which Spark evaluates in the time zone of the session."""
        try:
            micros = self.spark.sql(f"SELECT unix_micros(CAST({expression} AS TIMESTAMP))").collect()[0][0]
        except spark_errors() as error:
            raise InvalidOption(option="timestamp", value=expression, expected=f"Spark says: {error}") from error
        if micros is None:
            raise InvalidOption(
                option="timestamp", value=expression, expected="Must be a time, e.g. '2024-01-31 12:00:00'."
            )
        return _EPOCH + timedelta(microseconds=micros)


@dataclass(frozen=True, slots=True)
class PlainSelect:
    """A query that only selects rows of one table.

    Args:
        columns: The texts of its columns and expressions; none for all columns.
        where: The text of its condition.
    """

    table: TableReference
    version: int | None
    columns: tuple[str, ...]
    where: str | None
    limit: int | None


_OF_PLAIN_SELECT = frozenset({"expressions", "from", "from_", "where", "limit"})


def find_plain_select(text: str) -> PlainSelect | None:
    """Return what a query selects; None if it does more, or reads a table as it was at a time."""
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError):
        return None
    if not isinstance(tree, sql.Select) or {name for name, value in tree.args.items() if value} - _OF_PLAIN_SELECT:
        return None
    sources = [each.parent for each in tree.find_all(sql.Table)]
    if len(sources) != 1 or not isinstance(sources[0], sql.From) or sources[0].parent is not tree:
        return None
    reader = TokenReader(text)
    reader.expect("SELECT")
    columns = tuple(item.rest() for item in reader.items("FROM"))
    reader.expect("FROM")
    table = reader.table()
    at_version = reader.accept("VERSION", "AS", "OF")
    version = reader.next().text if at_version else None
    where = reader.until("LIMIT") if reader.accept("WHERE") else None
    limit = reader.next().text if reader.accept("LIMIT") else None
    is_whole = reader.is_done and all(number is None or number.isdecimal() for number in (version, limit))
    if not is_whole or _AT_VERSION.fullmatch(table.location or ""):
        return None
    version_number, most = (None if number is None else int(number) for number in (version, limit))
    return PlainSelect(table, version_number, () if columns == ("*",) else columns, where, most)


def _escape(text: str) -> str:
    """Return a text whose braces do not stand for DataFrames."""
    return text.replace("{", "{{").replace("}", "}}")


def _number(text: str, reference: _Reference) -> int:
    version = (reference.version or "").strip("'\"")
    if not version.isdecimal():
        raise refused_message(text, reference.start, f"a version must be a number, not {reference.version}")
    return int(version)


_Edit: TypeAlias = tuple[int, int, str]
"""The positions in a text that enclose a replaced part."""


def _short_qualifiers(text: str, references: Sequence[_Reference]) -> Iterator[_Edit]:
    """Yield what makes ``orders.id`` of ``shop.orders.id``: a table has the last part of its name as alias here."""
    tokens = [each for each in tokenize(text) if not any(ref.start <= each.start < ref.end for ref in references)]
    names = [name_key(token.text) for token in tokens]
    for parts in {reference.table.parts for reference in references if reference.alias}:
        wanted = [name_key(part) for part in parts]
        for length in range(len(wanted), 1, -1):
            path = [step for part in wanted[-length:] for step in (part, ".")]
            for at in range(len(names) - len(path)):
                if names[at : at + len(path)] == path and (not at or names[at - 1] != "."):
                    yield tokens[at].start, tokens[at + len(path) - 2].start, ""


def _stars_without_lineage(text: str, references: Sequence[_Reference]) -> Iterator[_Edit]:
    """Yield what takes the columns of row lineage out of ``*``, which does not have them in Iceberg for Spark.

    A ``*`` of a query stays as it is if another query names its columns.
    """
    tokens = tokenize(text)
    levels = _query_levels(tokens)
    stars = [number for number, token in enumerate(tokens) if token.word == "*" and _is_star(tokens, number)]
    places = {token.start: level for token, level in zip(tokens, levels, strict=True)}
    for number in stars:
        level, star = levels[number], tokens[number]
        tables = [each for each in references if places.get(each.start) == level]
        if not any(each.has_lineage for each in tables):
            continue
        words = [token.word for token, other in zip(tokens, levels, strict=True) if other == level]
        after = words[words.index("FROM") :] if "FROM" in words else []
        end = next((at for at, word in enumerate(after) if word.partition(" ")[0] in _AFTER_FROM), len(after))
        sources = 1 + after.count("JOIN") + after[:end].count(",")
        is_other = words.count("SELECT") > 1 or sum(levels[other] == level for other in stars) > 1
        if is_other or sources > 1 or [each.word for each in tokens[number + 1 : number + 2]] == ["EXCEPT"]:
            raise refused_message(text, star.start, _STAR)
        yield star.end, star.end, _EXCEPT


_AFTER_FROM = {"WHERE", "GROUP", "HAVING", "ORDER", "SORT", "DISTRIBUTE", "CLUSTER", "WINDOW", "LIMIT", "OFFSET"}


def _query_levels(tokens: Sequence[Token]) -> list[int]:
    """Return for each token the number of the first token of the innermost query around it."""
    levels, open_queries = list[int](), [0]
    for number, token in enumerate(tokens):
        if token.word == "(":
            begins = tokens[number + 1].word in ("SELECT", "WITH") if number + 1 < len(tokens) else False
            open_queries.append(number + 1 if begins else open_queries[-1])
        levels.append(open_queries[-1])
        if token.word == ")" and len(open_queries) > 1:
            open_queries.pop()
    return levels


def _is_star(tokens: Sequence[Token], number: int) -> bool:
    """Return whether an asterisk stands for columns: it neither multiplies nor counts."""
    before, after = (tokens[at].word if 0 <= at < len(tokens) else "" for at in (number - 1, number + 1))
    is_counted = before == "(" and after == ")" and number > 1 and tokens[number - 2].word == "COUNT"
    return before in ("SELECT", "DISTINCT", "ALL", ",", ".", "(") and not is_counted


def _tables(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, tuple[str, ...], str]]:
    """Yield the number of the last token of each table, the parts of its name, and the alias that it needs."""
    ends = {token.end: number for number, token in enumerate(tokens)}
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError):
        yield from _paths(tokens)
        return
    with_names = {name_key(each.alias) for each in tree.find_all(sql.CTE)}
    for table in tree.find_all(sql.Table):
        names = [part for part in table.parts if isinstance(part, sql.Identifier)]
        is_plain = bool(names) and len(names) == len(table.parts)
        last = ends.get(names[-1].meta.get("end", -2) + 1) if is_plain else None
        if last is None or (len(names) == 1 and name_key(names[0].name) in with_names):
            continue
        parts = tuple(name.name for name in names)
        is_named = to_table_reference(parts).location is None and not table.alias
        yield last, parts, f" AS {to_identifier(parts[-1])}" if is_named else ""


def _paths(tokens: Sequence[Token]) -> Iterator[tuple[int, tuple[str, ...], str]]:
    """Yield the paths in a query that sqlglot cannot parse; names are left to Spark."""
    for number in range(2, len(tokens)):
        first, dot, path = tokens[number - 2 : number + 1]
        is_qualified = number > 2 and tokens[number - 3].word == "."
        if first.word == "DELTA" and dot.word == "." and path.kind == "IDENTIFIER" and not is_qualified:
            yield number, (first.text, path.text), ""


def _time_travel(text: str, tokens: Sequence[Token], last: int) -> tuple[int, str | None, str | None]:
    """Return the end of a table with its version or time, and the text of each."""
    at = last + 1
    words = [token.word for token in tokens]
    at += words[at : at + 1] == ["FOR"]
    kind = words[at] if at < len(words) else ""
    kind = {"SYSTEM_VERSION": "VERSION", "SYSTEM_TIME": "TIMESTAMP"}.get(kind, kind)
    if kind not in ("VERSION", "TIMESTAMP") or words[at + 1 : at + 3] != ["AS", "OF"] or at + 3 >= len(words):
        return tokens[last].end, None, None
    end = _expression_end(words, at + 3)
    value = text[tokens[at + 3].start : tokens[end].end]
    return tokens[end].end, value if kind == "VERSION" else None, value if kind == "TIMESTAMP" else None


def _expression_end(words: Sequence[str], at: int) -> int:
    """Return the number of the last token of a literal, a call or a group, with intervals added or subtracted."""
    if words[at] != "(" and words[at + 1 : at + 2] == ["("]:
        at += 1
    if words[at] == "(":
        depth = 1
        while depth and at + 1 < len(words):
            at += 1
            depth += (words[at] == "(") - (words[at] == ")")
    while words[at + 1 : at + 2] in (["-"], ["+"]) and words[at + 2 : at + 3] == ["INTERVAL"]:
        at = min(at + 4, len(words) - 1)
    return at


def _changes(text: str, tokens: Sequence[Token]) -> Iterator[_Reference]:
    """Yield the calls of table_changes."""
    for number, token in enumerate(tokens[:-1]):
        if token.word not in (_CHANGES, _CHANGES_BY_PATH) or tokens[number + 1].word != "(":
            continue
        reader = TokenReader(text[tokens[number + 1].start :])
        name, *versions = split_list(reader.enclosed())
        end = tokens[number + 1].start + reader.last_end
        if not 1 <= len(versions) <= 2:
            raise refused_message(text, token.start, "table_changes takes a table and one or two versions")
        inner = tokenize(name)[0].text
        by_path = token.word == _CHANGES_BY_PATH
        table = TableReference((TableReference.DELTA, inner)) if by_path else TokenReader(inner).table()
        yield _Reference(token.start, end, table, changes=tuple(versions))


# The results of DESCRIBE and SHOW statements, with the same schemas as Delta Lake on Spark.
#
# Source: Delta Lake's DESCRIBE DETAIL and DESCRIBE HISTORY; Spark's DESCRIBE TABLE and SHOW TBLPROPERTIES.


_DETAIL = (
    ("format", "string"),
    ("id", "string"),
    ("name", "string"),
    ("description", "string"),
    ("location", "string"),
    ("createdAt", "timestamp"),
    ("lastModified", "timestamp"),
    ("partitionColumns", "array<string>"),
    ("clusteringColumns", "array<string>"),
    ("numFiles", "bigint"),
    ("sizeInBytes", "bigint"),
    ("properties", "map<string,string>"),
    ("minReaderVersion", "int"),
    ("minWriterVersion", "int"),
    ("tableFeatures", "array<string>"),
)
_JOB = "struct<jobId:string,jobName:string,jobRunId:string,runId:string,jobOwnerId:string,triggerType:string>"
_HISTORY = (
    ("version", "bigint"),
    ("timestamp", "timestamp"),
    ("userId", "string"),
    ("userName", "string"),
    ("operation", "string"),
    ("operationParameters", "map<string,string>"),
    ("job", _JOB),
    ("notebook", "struct<notebookId:string>"),
    ("clusterId", "string"),
    ("readVersion", "bigint"),
    ("isolationLevel", "string"),
    ("isBlindAppend", "boolean"),
    ("operationMetrics", "map<string,string>"),
    ("userMetadata", "string"),
    ("engineInfo", "string"),
)
_TABLE = (("col_name", "string"), ("data_type", "string"), ("comment", "string"))
_PROPERTIES = (("key", "string"), ("value", "string"))

_Row: TypeAlias = tuple[str, str, str | None]


def run_query(question: Question, table: Table) -> QueryResult:
    """Return the result of a DESCRIBE or SHOW statement."""
    match question:
        case DescribeDetail():
            return QueryResult(_DETAIL, [_detail(table)])
        case DescribeHistory(_, limit):
            return QueryResult(_HISTORY, [_commit(*entry) for entry in table.history(limit)])
        case DescribeTable(_, extended):
            return QueryResult(_TABLE, list(_describe_table(table, extended=extended)))
        case ShowProperties(_, key):
            return QueryResult(_PROPERTIES, _shown_properties(table, key))


# ---- the table as a whole --------------------------------------------------------------------------


def _detail(table: Table) -> Sequence[Any]:
    metadata, protocol = table.metadata, table.protocol
    return (
        "delta",
        metadata.id,
        metadata.name,
        metadata.description,
        table.location,
        None if metadata.created_time is None else time_text(metadata.created_time),
        time_text(table.snapshot.timestamp_ms),
        list(table.partition_by),
        [format_path(path) for path in _clustering(table)],
        *table.snapshot.count_files(),
        table.properties,
        protocol.min_reader_version,
        protocol.min_writer_version,
        sorted(supported_features(protocol)),
    )


def _commit(version: int, time_ms: int, info: Mapping[str, Any]) -> Sequence[Any]:
    return (version, time_text(time_ms), *(info.get(name) for name, _ in _HISTORY[2:]))


def _shown_properties(table: Table, key: str | None) -> list[tuple[str, str]]:
    protocol = table.protocol
    # Legacy versions imply features that they do not list; Delta Lake shows only the listed ones.
    names = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    listed = {f"{FEATURE_PREFIX}{name}": "supported" for name in names}
    versions = {MIN_READER_VERSION: protocol.min_reader_version, MIN_WRITER_VERSION: protocol.min_writer_version}
    shown = {**table.properties, **listed, **{name: str(version) for name, version in versions.items()}}
    if key is None:
        return sorted(shown.items())
    nothing = f"Table {table.location} does not have property: {key}"
    return [(key, shown.get(canonical_key(key), nothing))]


def _clustering(table: Table) -> Iterator[Path]:
    """Yield the clustering columns by their logical names."""
    schema, mode = table.snapshot.schema, table.snapshot.configuration.mapping
    logical = {to_physical_path(schema, path, mode): path for path, _ in fields(schema)}
    for path in clustering_columns(table.snapshot.domains):
        yield logical.get(path, path)


# ---- the columns -----------------------------------------------------------------------------------


def _describe_table(table: Table, *, extended: bool) -> Iterator[_Row]:
    columns = {
        field.name: (field.name, compact_sql(field.type, str), field.metadata.get(COMMENT)) for field in table.schema
    }
    yield from columns.values()
    if table.partition_by:
        yield from (_heading("# Partition Information"), ("# col_name", "data_type", "comment"))
        yield from ((quote_name(name), *columns[name][1:]) for name in table.partition_by)
    if not extended:
        return
    yield from (_heading(""), _heading("# Detailed Table Information"))
    yield from ((key, value, "") for key, value in _facts(table) if value)
    defaults = [field for field in table.schema if DEFAULT in field.metadata]
    if defaults:
        yield from (_heading(""), _heading("# Column Default Values"))
        yield from ((field.name, compact_sql(field.type, str), field.metadata[DEFAULT]) for field in defaults)


def _facts(table: Table) -> Iterator[tuple[str, str | None]]:
    """Yield the table information of Spark, without the parts that only a catalog has."""
    yield "Comment", table.metadata.description
    yield "Location", table.location
    yield "Provider", "delta"
    yield "Table Properties", f"[{','.join(f'{key}={value}' for key, value in _shown_properties(table, None))}]"


def _heading(text: str) -> _Row:
    return text, "", ""


# Tables in the catalog of a Spark session.
#
# A session without Delta Lake cannot describe a Delta table, but it can list it; either yields the location.
#
# Source: Spark's DESCRIBE TABLE and SHOW TABLE EXTENDED.

_DETAILS, _PROVIDER, _LOCATION = "# Detailed Table Information", "Provider", "Location"
_WITHOUT_DELTA = "DATA_SOURCE_NOT_FOUND"
_CODE = re.compile(r"^\[[\w.]+\] ")
_LOCAL = re.compile(r"file:/+(?=[^/])")


def find_table_location(spark: SparkSession, name: Path) -> str:
    """Return the location of the Delta table with a name."""
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {_quote_path(name)}").collect()
    except spark_errors() as error:
        if _WITHOUT_DELTA in str(error):
            return _location(name, _list_table(spark, name))
        raise _name_error(name, _reason(error)) from error
    names = [row["col_name"] for row in rows]
    # A column may have the name of the heading, so only what follows its last occurrence are details.
    first = len(names) - names[::-1].index(_DETAILS) if _DETAILS in names else len(names)
    return _location(name, {row["col_name"]: row["data_type"] for row in rows[first:]})


def _list_table(spark: SparkSession, name: Path) -> dict[str, str]:
    """Return the provider and the location of a table that the session can list but not open; empty without one.

    A comment may contain lines that look like these entries. Spark prints the provider before the comment and the
    location after it, so the first provider and the last location are the real ones.
    """
    within = f" IN {_quote_path(name[:-1])}" if name[:-1] else ""
    rows = spark.sql(f"SHOW TABLE EXTENDED{within} LIKE {to_literal(name[-1])}").collect()
    entries = [row["information"] for row in rows if name_key(row["tableName"]) == name_key(name[-1])]
    lines = [line.partition(": ") for line in entries[0].splitlines()] if entries else []
    providers, locations = ([value for key, _, value in lines if key == wanted] for wanted in (_PROVIDER, _LOCATION))
    return {_PROVIDER: providers[0], _LOCATION: locations[-1]} if providers and locations else {}


def _location(name: Path, details: dict[str, str]) -> str:
    provider = details.get(_PROVIDER, "").lower()
    if provider != "delta" or _LOCATION not in details:
        raise _name_error(name, f"it is a {provider} table" if provider else "it is not a table")
    return _LOCAL.sub("/", details[_LOCATION])


def ensure_registers(spark: SparkSession, name: Path) -> None:
    """Check that a session can register a Delta table in its catalog."""
    try:
        _ = spark.read.format("delta").load("/").schema
    except spark_errors() as error:
        if _WITHOUT_DELTA in str(error):
            raise _name_error(name, "a session without Delta Lake cannot register a Delta table") from error


def is_name_in_use(spark: SparkSession, name: Path) -> bool:
    """Return whether a table or view of that name exists."""
    return spark.catalog.tableExists(_quote_path(name))


def register_table(spark: SparkSession, name: Path, location: str) -> None:
    """Register the table at a location under a name."""
    try:
        spark.sql(f"CREATE TABLE {_quote_path(name)} USING delta LOCATION {to_literal(location)}")
    except spark_errors() as error:
        raise _name_error(
            name, f"the table at {location} was created but could not be registered: {_reason(error)}"
        ) from error


def _quote_path(name: Path) -> str:
    return ".".join(map(to_identifier, name))


def _reason(error: Exception) -> str:
    return _CODE.sub("", first_line(error))


def _name_error(name: Path, reason: str) -> NameNotFound:
    return NameNotFound(name=format_path(name), reason=reason)
