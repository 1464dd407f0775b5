"""The sink that ingests: ``writeStream.format("widen").option("ingest", "json")``, and batch writes with this option.

Each batch is one ingestion, as `widen.ingest` makes it: observed, planned, written, quarantined, verified on request,
and committed once. Tasks stage the rows, and the commit ingests them in the process that Spark gives it, which has no
session.

Source: Spark's Python Data Source API; docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from os import PathLike
from typing import Any, ForwardRef, get_args, get_origin

import msgspec

from widen.data_source.batch_reader import SourceOptions
from widen.data_source.staging import ROWS_OF_BATCH, StagedRows, StagingPlace, clear_staged
from widen.errors import DataSourceRefused, EngineUnsuitable, InvalidOption, MicroBatchTooLarge, PostCommitFailed
from widen.files.pandas_import import without_pandas
from widen.ingestion.commit_batch import AfterCommit, BatchRequest, commit_batch, parse_share
from widen.ingestion.ingest_options import IngestOptions, StreamOptions
from widen.ingestion.options import CheckedOptions, check_options, parse_limits
from widen.ingestion.stream import ingest_stream
from widen.limits import STAGED_BYTES
from widen.model.argument_types import ensure_argument_types
from widen.model.display import did_you_mean
from widen.model.keyword_options import Option, declared, with_defaults
from widen.model.types import AtomicType, StructType
from widen.model.value_classes import dataclass
from widen.sources.staged_files import StagedFile, as_sources, read_staged_texts
from widen.spark.engine import SOURCE_OPTIONS, Engine, LocalSession
from widen.spark.spark_types import SparkSession
from widen.targets.table_format import TransactionId, run_logged

JSON, ROWS = "json", "rows"
_VALUE = "value"
_OWN = ("path", "checkpointLocation", "ingest", "column", "maxBatchBytes", "stagingLocation", "txnAppId", "txnVersion")
"""The options of the sink that an ingestion does not have."""

_OF_FILES = "It is for files, and a sink gets rows."
_OF_CALLS = "It is for calls in Python: use widen.ingest_stream, or widen.ingest in foreachBatch."
_OF_SOURCE = "Limit the batches in the source of the stream."
_OF_APPEND = "It is for writes without the option ingest. An ingestion adds and widens columns by itself; see evolve."
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("new", "new_by", "changed", "order", "audit", "park_over_limit", "skip_bad_files"), _OF_FILES),
    **dict.fromkeys(("queue", "partition_folders", "options", "detect_types"), _OF_FILES),
    **dict.fromkeys(("spark", "progress", "on_event", "on_interval"), _OF_CALLS),
    **dict.fromkeys(("max_files", "max_bytes"), _OF_SOURCE),
    **dict.fromkeys(("once", "every_seconds"), "Use trigger(availableNow=True) or trigger(processingTime=…)."),
    "nan": "It is for data in memory; the columns of a sink are those of Spark.",
    **dict.fromkeys(("nanos", "integral_doubles"), "The columns of a sink are those of Spark."),
    "engine": "A sink works in the process that Spark gives it.",
    "format": "The option ingest says what the rows are: json or rows.",
    "plan_hash": "Many batches have no single plan.",
    "txn": "Use txnAppId and txnVersion for a batch write. The commits of a stream have the id of its query.",
    "storage_options": "Give each of them by its own name, e.g. AWS_ACCESS_KEY_ID.",
    "mergeSchema": _OF_APPEND,
    "widening": _OF_APPEND,
}
"""Options that make no sense for a sink, and what to do."""

_INSTEAD = "Nothing was written. Use widen.ingest_stream, or widen.ingest in foreachBatch, which work in the session."


@cache
def sink_options() -> Mapping[str, tuple[Any, Option]]:
    """Return the types and the declarations of the options of ingestions that a sink has."""
    options = {**declared(IngestOptions), **declared(StreamOptions)}
    return {name: option for name, option in options.items() if name not in _REFUSED}


def _fold(name: str) -> str:
    """Return the spelling that names are compared by: sequence_by and sequenceBy are one."""
    return name.replace("_", "").lower()


# The values of options, which Spark passes as texts.


def parse_option(name: str, kind: Any, text: str) -> Any:
    """Return the value of an option of an ingestion from its text.

    Raises:
        InvalidOption: the text has no such value.
    """
    kinds = (() if get_origin(kind) is tuple else get_args(kind)) or (kind,)
    plain = {each for each in kinds if isinstance(each, type)}
    origins = {get_origin(each) for each in (*kinds, kind)}
    if text.lstrip()[:1] in ("{", "[") and origins & {*_MAPPINGS, *_LISTS}:
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise InvalidOption(option=name, value=text, expected=f"Must be JSON: {error}.") from error
    if bool in plain and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if str in plain or any(get_origin(each) is PathLike or isinstance(each, ForwardRef) for each in kinds):
        return int(text) if int in plain and text.isdecimal() else text
    if origins & _LISTS:
        return _split(text)
    for number in (int, float):
        if number in plain:
            try:
                return number(text)
            except ValueError:
                continue
    raise InvalidOption(option=name, value=text, expected=f"Must be {_EXPECTED[_form(plain, origins)]}.")


_BOOLEANS = {"true": True, "false": False}
_MAPPINGS, _LISTS = {Mapping}, {Iterable, Sequence}
_EXPECTED = {
    "map": 'a JSON object, e.g. {"a.b": "json"}',
    "flag": "true or false",
    "share": "true, false or a number from 0 to 1",
    "number": "a number",
}


def _form(plain: set[type], origins: set[Any]) -> str:
    if origins & _MAPPINGS:
        return "map"
    return ("share" if float in plain else "flag") if bool in plain else "number"


def _split(text: str) -> list[str]:
    """Return the parts of a list. Commas separate them, except in parentheses and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "`\"'":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "," and not depth:
            parts.append("")
            continue
        parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


# The sink.


@dataclass(frozen=True, kw_only=True)
class IngestSink:
    """What the options of a sink say.

    Args:
        options: The arguments of `ingest_stream`, all of them.
        has_types: Whether the rows have types; else one column has JSON.
        column: The column with JSON; None to take ``value`` or the only one.
    """

    checked: CheckedOptions
    options: Mapping[str, Any]
    has_types: bool
    column: str | None
    limit_bytes: int
    staging_location: str | None

    def place(self, schema: StructType) -> StagingPlace:
        """Return where the tasks stage rows."""
        store = self.checked.table.staging_stores(self.staging_location)[0]
        column = None if self.has_types else _find_column(schema, self.column)
        reader = self.checked.reader
        return StagingPlace(
            store=store,
            owner=uuid.uuid4().hex,
            column=column,
            schema=schema,
            limit_bytes=self.limit_bytes,
            max_record_bytes=reader.max_record_bytes,
            loaded_at=reader.loaded_at if self.has_types else None,
        )

    def commit(self, place: StagingPlace, staged: Sequence[StagedRows], interval: TransactionId | None) -> None:
        """Ingest what the tasks of a batch have staged.

        Raises:
            MicroBatchTooLarge: it is more than a sink takes.
            DataSourceRefused: only Spark can do the work.
        """
        files = [file for each in staged for file in each.files]
        size_bytes = sum(file.data_bytes for file in files)
        location = self.checked.table.location
        if size_bytes > self.limit_bytes:
            raise MicroBatchTooLarge(location=location, size=size_bytes, limit=self.limit_bytes)
        if not files:
            return
        try:
            self._ingest(place, files, size_bytes, interval)
        except EngineUnsuitable as error:
            reason = str(error.fields["reason"])
            raise DataSourceRefused(verb="ingest into", location=location, reason=reason, fix=_INSTEAD) from error

    def clear(self, owner: str, batch: int) -> None:
        """Delete what no commit needs any more; see `clear_staged`."""
        for store in self.checked.table.staging_stores(self.staging_location):
            clear_staged(store, owner, batch)

    def _ingest(
        self, place: StagingPlace, files: Sequence[StagedFile], size_bytes: int, interval: TransactionId | None
    ) -> None:
        options, checked = self.options, self.checked
        session = LocalSession(Engine.LOCAL, _without_spark)
        session.accept(size_bytes)
        request = BatchRequest(
            table=checked.table,
            policy=checked.policy,
            interval=interval,
            may_be_empty=True,
            quarantine=checked.quarantine,
            is_strict=options["strict"],
            limits=parse_limits(options["max_corrupt"], options["max_quarantined"], options["fail_on"]),
            keys=checked.keys,
        )
        target = request.open_target()
        reader = checked.reader.for_table(target.schema)
        if self.has_types:
            SOURCE_OPTIONS.set(place.store.storage_options)
            batch = reader.open_staged_rows(session, as_sources(place.store, files), ROWS_OF_BATCH)
        else:
            batch = reader.open_texts(session, partial(read_staged_texts, session, place.store, files), ROWS_OF_BATCH)
        result = commit_batch(lambda _: batch, request, target, AfterCommit(parse_share(options["verify"])))
        proof = None if result is None else result.verification
        if result is not None and proof is not None and not proof.is_clean:
            reason = "; ".join([f"the verification found {proof}", *proof.places])
            raise PostCommitFailed(version=result.version, location=checked.table.location, reason=reason)


def _without_spark(reason: str) -> SparkSession:
    raise EngineUnsuitable(reason=reason)


def _find_column(schema: StructType, name: str | None) -> int:
    wanted = name or (_VALUE if _VALUE in schema.names or len(schema.names) != 1 else schema.names[0])
    if wanted not in schema.names:
        expected = f"The rows have no such column, but {', '.join(schema.names)}. Name the column that has JSON."
        raise InvalidOption(option="column", value=wanted, expected=expected)
    kind = schema.fields[schema.names.index(wanted)].type
    if kind not in (AtomicType("string"), AtomicType("binary")):
        expected = f"It is {kind.sql}, and must be string or binary. For columns with types, use ingest = rows."
        raise InvalidOption(option="column", value=wanted, expected=expected)
    return schema.names.index(wanted)


def parse_sink(given: SourceOptions, *, is_overwrite: bool) -> IngestSink:
    """Return what the options of a sink say.

    Raises:
        InvalidOption: an option is unknown, makes no sense for a sink, or has an invalid value.
    """
    kind = given.text("ingest")
    if kind not in (JSON, ROWS):
        expected = "Must be json (one column has JSON texts) or rows (the columns have types)."
        raise InvalidOption(option="ingest", value=kind, expected=expected)
    if is_overwrite:
        expected = "An ingestion adds rows, or replaces them by key. Use mode('append') or outputMode('append')."
        raise InvalidOption(option="mode", value="overwrite or complete", expected=expected)
    storage_options = given.storage_options
    arguments: dict[str, Any] = {"storage_options": storage_options or None}
    known = {_fold(name): name for name in sink_options()}
    refused = {_fold(name): name for name in _REFUSED}
    own = {_fold(name) for name in _OWN}
    for name, text in given.given.items():
        folded = _fold(name)
        if folded in own or name in given.added or name in storage_options:
            continue
        if name.startswith("delta."):
            expected = "A sink creates no table with properties. Create it first: widen.create_table or `widen create`."
            raise InvalidOption(option=name, value=text, expected=expected)
        if folded in refused:
            raise InvalidOption(option=refused[folded], value=text, expected=_REFUSED[refused[folded]])
        if folded not in known:
            near = did_you_mean(folded, {*known, *own})
            expected = f"{near}Must be one of {', '.join((*_OWN, *sink_options()))}, or a storage option."
            raise InvalidOption(option="an option", value=name, expected=expected)
        argument = known[folded]
        arguments[argument] = parse_option(argument, sink_options()[argument][0], text)
    has_types = kind == ROWS
    if has_types and given.text("column") is not None:
        raise InvalidOption(option="column", value=given.text("column"), expected="It is for ingest = json.")
    ensure_argument_types(ingest_stream, arguments)
    options = {**with_defaults(StreamOptions, arguments), "format": None}
    given.open_store()  # for its errors about the path
    given.transaction()
    checked = check_options(None, given.text("path") or "", options, checkpoint=given.text("checkpointLocation"))
    parse_limits(options["max_corrupt"], options["max_quarantined"], options["fail_on"])
    parse_share(options["verify"])
    return IngestSink(
        checked=checked,
        options=options,
        has_types=has_types,
        column=given.text("column"),
        limit_bytes=given.number("maxBatchBytes", 1) or STAGED_BYTES,
        staging_location=given.text("stagingLocation"),
    )


def commit_staged(
    options: SourceOptions,
    place: StagingPlace,
    staged: Sequence[StagedRows],
    owner: str,
    batch: int,
    interval: tuple[str, int] | None,
) -> None:
    """Ingest what the tasks of a batch have staged, and delete what no commit needs any more.

    Args:
        interval: The id and the number of the commit. If the table has it already, nothing is ingested.
    """
    sink = parse_sink(options, is_overwrite=False)
    with without_pandas():
        sink.commit(place, staged, None if interval is None else TransactionId(*interval))
    run_logged(partial(sink.clear, owner, batch), "delete the staged rows of a batch")
