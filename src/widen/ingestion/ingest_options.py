"""The keyword arguments of ingestions, each declared once.

A declaration says which type and default an argument has, what it does, and how the command line spells it. Functions
take a class of them as ``**options``. The command line makes its options from them, and TOML files are checked by them.

Source: docs/evolution-rules.md#d1, #d5, #d6, #d10, #d12, #d13, #d16
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from widen.model.display import no_progress
from widen.model.keyword_options import Option

if TYPE_CHECKING:
    from widen.iceberg.catalog import CatalogSource
    from widen.ingestion.result import OnEvent, OnInterval
    from widen.model.display import Progress
    from widen.spark.spark_types import SparkSession

# A declaration is one paragraph.
# fmt: off


class NewFileOptions(TypedDict, total=False):
    """Which files are loaded."""

    new: Annotated[bool, Option(
        "Whether to load only files that the table has not loaded. The table records the files of every load. If "
        "there are no new files, nothing is committed.",
        default=False,
        help="Load only files that the table has not loaded; see `widen loads`.")]
    new_by: Annotated[str, Option(
        "What identifies a file: ``path`` (with size and time of modification), or ``content``: each content is "
        "loaded once, under any file name. Spark then reads every file once more, up to 2 GB each.",
        default="path", choices=("path", "content"),
        help="With --new: how to recognize a loaded file. path: by path, size and time; content: by content, "
        "whatever its name.")]
    changed: Annotated[str, Option(
        "With ``new``, what to do with files that have another size or time than when they were loaded: ``fail`` "
        "refuses the batch, ``load`` loads the whole file again, ``skip`` leaves it out.",
        default="fail", choices=("fail", "load", "skip"),
        help="With --new: what to do with files whose size or time has changed since they were loaded. fail: load "
        "nothing; load: load them again as a whole; skip: leave them out.")]
    order: Annotated[str, Option(
        "With ``new``, which files of a folder are listed: ``any``, or with ``name`` only those whose names come after "
        "the last one that is loaded, where names grow. ``audit`` finds late names.",
        default="any", choices=("any", "name"),
        help="With --new: which files of a folder to list. any: all; name: those whose names come after the last one "
        "loaded. Use --audit to find late names.")]
    audit: Annotated[str | None, Option(
        "With ``order`` or ``queue``, how often a folder is listed as a whole, so that files with late names, or "
        "without an event, are found: a time such as ``1d`` or ``12h``, or ``now``. The table records when it was. The "
        "result names these files as ``missed``.",
        metavar="TIME|now",
        help="With --order name or --queue: how often to list everything, e.g. 1d or 12h, or now, to find what "
        "they miss.")]
    queue: Annotated[str | None, Option(
        "With ``new``, the queue with the events of the store, whose objects are loaded instead of those of a listing: "
        "the URL of an SQS queue, or ``sqs://NAME``. Its messages are acknowledged after the commit.",
        metavar="QUEUE",
        help="With --new: load the objects of S3 that the messages of an SQS queue name, instead of listing folders: "
        "its URL, or sqs://NAME.")]


class LimitOptions(TypedDict, total=False):
    """When a batch is refused."""

    max_corrupt: Annotated[int | str | None, Option(
        "The maximum number of lines that are not records, or their maximum share, e.g. ``1%``. A batch over a "
        "limit is refused as a whole.",
        metavar="N|P%",
        help="Refuse a batch with more corrupt lines than this number or share.")]
    max_quarantined: Annotated[int | str | None, Option(
        "The maximum number or share of records that go to the quarantine.",
        metavar="N|P%",
        help="Refuse a batch with more quarantined records than this number or share.")]
    fail_on: Annotated[str | None, Option(
        "Refuse a plan with changes of this grade or a worse one: ``conflict`` (values of types that no single "
        "column holds) or ``structural`` (scalars become arrays or records, or the reverse).",
        choices=("conflict", "structural"),
        help="Refuse a batch whose plan has changes of this grade or worse.")]


class FormatOptions(TypedDict, total=False):
    """The format of the table."""

    to: Annotated[str | None, Option(
        "The format of the table: ``delta`` or ``iceberg``; by default ``iceberg`` if there is a catalog.",
        choices=("delta", "iceberg"),
        help="The format of the table; iceberg if there is a --catalog.")]
    catalog: Annotated["CatalogSource | None", Option(
        "The catalog of an Iceberg table: the name of a catalog in the configuration of PyIceberg, a file "
        "``NAME.db`` for an embedded catalog, which is created if it does not exist, or a PyIceberg catalog.",
        metavar="NAME|FILE.db",
        help="The catalog of an Iceberg table: a name in PyIceberg's configuration, or a file for an embedded one.")]


class PartitionOptions(FormatOptions, total=False):
    """A table that may be new."""

    partition_by: Annotated[Iterable[str] | None, Option(
        'The partition fields of a new Iceberg table, e.g. ``["day(placed_at)", "bucket(16, id)"]``.',
        metavar="FIELD",
        help="A partition field of a new Iceberg table, e.g. day(placed_at) or bucket(16, id); can be repeated.")]
    format_version: Annotated[int | None, Option(
        "The format version of a new Iceberg table, from 1 to 3; by default 2. With 3 each row has an id that it keeps "
        "(`_row_id`), and clients that only know version 2 cannot open the table.",
        metavar="N", minimum=1,
        help="The format version of a new Iceberg table, from 1 to 3; by default 2.")]


class BranchOptions(FormatOptions, total=False):
    """A table that may have branches."""

    branch: Annotated[str | None, Option(
        "The branch of an Iceberg table that gets the rows; by default ``main``. New columns belong to the whole "
        "table. What ``new`` and ``txn`` have loaded into a branch, the main branch has once it is moved to it.",
        metavar="NAME",
        help="The branch of an Iceberg table that gets the rows; by default main.")]


class SessionOptions(TypedDict, total=False):
    """How the work is done."""

    storage_options: Annotated[Mapping[str, str] | None, Option(
        "Settings and credentials of the stores of the tables, and of sources and checkpoints in S3.")]
    spark: Annotated["SparkSession | None", Option(
        "The session to work in; by default the active one, or one that is started if the work needs it.")]
    progress: Annotated["Progress", Option(
        "Called with a description of each step.",
        default=no_progress)]


class EngineOptions(SessionOptions, total=False):
    """How the work is done, and which engine does it."""

    engine: Annotated[str | None, Option(
        "Where the work is done without a session: ``auto`` in this process where possible, and on Spark "
        "otherwise; ``local`` in this process, for a source of any size; or ``spark``. ``auto`` is the default, "
        "unless the environment variable ``WIDEN_ENGINE`` names another one.")]


class EventOptions(SessionOptions, total=False):
    """How the work is done, and who hears of it."""

    on_event: Annotated["OnEvent | None", Option(
        "Called with each event of the plan after the commit, then with one for the load; or with one that says "
        "why the load failed. An error that it raises after the commit is a `PostCommitFailed`.")]


_Nanos = Annotated[str, Option(
    "What becomes of times with nanoseconds that microseconds do not hold, in Parquet, Avro and data in memory: "
    "``error``, ``truncate`` (the digits after the microseconds are cut) or ``text`` (records with one have the "
    "field as text; not in ORC). Times that microseconds hold stay times.",
    default="error", choices=("error", "truncate", "text"),
    help="What becomes of times with nanoseconds that microseconds do not hold: an error, cut off, or text.")]


class ReadOptions(TypedDict, total=False):
    """How records are read."""

    format: Annotated[str | None, Option(
        "What the files hold: ``json`` (lines, arrays of records, or one document per file), ``csv``, ``text``, "
        "``parquet``, ``avro``, ``orc`` or ``xlsx``; by default the file names decide. With a DataFrame, ``json`` "
        "reads JSON from its column ``value``, or from its only column.",
        choices=("json", "csv", "text", "parquet", "avro", "orc", "xlsx"),
        help="The format of the files; by default from their names.")]
    options: Annotated[Mapping[str, str] | None, Option(
        'Options of the Spark reader, e.g. ``{"sep": ";"}``.',
        metavar="KEY=VALUE", flag="--option",
        help="A reader option of Spark, e.g. sep=';' or header=false; can be repeated.")]
    detect_types: Annotated[bool, Option(
        "Whether CSV fields and text lines become numbers and booleans where they are written exactly as JSON "
        "would write them; otherwise they stay strings. 12.50 becomes a number only with ``numbers``.",
        default=False,
        help="Read CSV values as numbers and booleans where that is exact.")]
    nanos: _Nanos
    integral_doubles: Annotated[str, Option(
        "What becomes of columns of floats in Parquet and data in memory of which each value is an integer or NaN, as "
        "pandas writes integers with missing values: ``keep`` (the default), or ``convert`` them to ``bigint``, with "
        "null instead of NaN. In JSON and CSV, ``convert`` reads each number such as 1.0 and 1e2 as the integer that "
        "its digits say, if it fits ``bigint``; -0.0 stays a double.",
        default="keep", choices=("keep", "convert"),
        help="Read columns of floats as integers where each value is an integer or NaN, which becomes null; in JSON "
        "each number such as 1.0.")]


class NumberOptions(TypedDict, total=False):
    """What fractions become."""

    numbers: Annotated[str | None, Option(
        "What fractions become: ``exact`` (a double where that is exact, else a decimal; the default), ``decimal`` "
        "(a decimal with the digits as written, so that 12.50 stays 12.50) or ``double`` (a double; where "
        "fractions and other numbers meet in a field, they are rounded to doubles, and the plan counts them).",
        choices=("exact", "decimal", "double"),
        help="What fractions become. exact: double where that is exact (default); decimal: the digits as written; "
        "double: one column of doubles, rounded where needed, but not in maps and sources with types.")]


class NanOptions(TypedDict, total=False):
    """Whether NaN is a number."""

    allow_nan: Annotated[bool | None, Option(
        "Whether ``NaN``, ``Infinity`` and ``-Infinity`` in JSON are doubles. They are not JSON, so without it a "
        "record with one is corrupt.",
        flag="--allow-nan/--no-allow-nan",
        help="Read NaN, Infinity and -Infinity in JSON as doubles; otherwise a record with one is corrupt.")]


_Config = Annotated[str | PathLike[str] | None, Option(
    "A TOML file with settings of the schema; arguments override it.",
    metavar="FILE",
    help="A TOML file with these options.")]


class GrowthOptions(NumberOptions, total=False):
    """How the schema may grow."""

    evolve: Annotated[str | None, Option(
        "``widen`` changes columns in place where that is exact and otherwise adds columns; ``split`` only adds "
        "columns; ``freeze`` adds nothing and keeps what does not fit as JSON text; ``fail`` refuses a batch that "
        "needs changes. The default is ``widen``.",
        choices=("widen", "split", "freeze", "fail"),
        help="widen: widen columns if that is exact, otherwise add columns; split: only add columns; freeze: "
        "change nothing and keep values that do not fit as JSON; fail: refuse a batch that needs changes. Default: "
        "widen.")]
    enable_type_widening: Annotated[bool | None, Option(
        "Whether to turn on type widening with the commit, for an existing Delta table without it, and the feature "
        "``timestampNtz`` if a new column has times without a time zone. Clients without these table features then "
        "refuse the table. A new table gets it at once; without the option, a table that an ingestion creates in mode "
        "``widen`` gets it with its first type change. Iceberg tables need no switch.",
        help="Turn on type widening with the commit, for a Delta table without it, and timestampNtz for "
        "times without a time zone. Clients without these table features then refuse the table.")]
    config: _Config
    pins: Annotated[Mapping[str, str] | None, Option(
        "A mode, ``text``, ``json``, ``map`` or a type for single fields, by their path.",
        metavar="FIELD=WHAT", flag="--pin",
        help="Fix the type or mode of a field: a type, text, json, map or a mode, e.g. a.b='decimal(18,4)'; can be "
        "repeated.",
        setting="a table of fields, each with a mode, text, json or a type")]
    max_columns: Annotated[int | None, Option(
        "The maximum number of leaf columns that ingestion may create; further fields are kept as JSON text.",
        minimum=1,
        help="The maximum number of leaf columns; further fields are kept as JSON. Default: 2000.")]
    samples: Annotated[str | None, Option(
        "How plans, events and the log show values of records: ``masked`` (letters as x, digits as 9; the "
        "default), ``none`` or ``raw``.",
        choices=("none", "masked", "raw"),
        help="How plans, events and the history show values. masked: letters as x, digits as 9 (default).")]


class FieldOptions(GrowthOptions, NanOptions, total=False):
    """How the schema may grow, and rules for single fields."""

    exclude: Annotated[Iterable[str] | None, Option(
        "Fields to leave out. Names match without regard to case. A field that neither the table, nor an earlier "
        "load, nor the batch has is refused.",
        metavar="FIELD",
        help="Ignore a field; upper and lower case do not matter; can be repeated.",
        setting="fields to ignore")]
    include: Annotated[Iterable[str] | None, Option(
        "The fields to load, at the top level of records; all others are left out, as with ``exclude``. Names match "
        "without regard to case. A field that neither the table nor the batch has is refused.",
        metavar="FIELD",
        help="Load only this field of the records, and others given so; upper and lower case do not matter; can be "
        "repeated.",
        setting="the only fields to load")]
    mask: Annotated[Iterable[str] | None, Option(
        "Fields whose values are replaced by ``***``, by the same rules. Where the policy expects a record and the "
        "source has a text, the whole text is masked, since it may hold the field.",
        metavar="FIELD",
        help="Write *** instead of the values of a field; upper and lower case do not matter; can be repeated.",
        setting="fields whose values become ***")]
    allow_unmatched: Annotated[bool | None, Option(
        "Whether ``exclude``, ``include`` and ``mask`` may name fields that do not exist: for a field that comes and "
        "goes. The plan and an event then report them.",
        help="Allow --mask, --exclude and --include to name fields that do not exist (yet).")]
    no_stats: Annotated[Iterable[str] | None, Option(
        "Fields whose columns get no minimum and no maximum in the log, in footers and in manifests. Masked and "
        "excluded fields never have them.",
        metavar="FIELD",
        help="Write no minimum and maximum of a field to the log and to footers; can be repeated.",
        setting="fields without minimum and maximum in the log")]
    detect_dates: Annotated[bool | Iterable[str] | None, Option(
        "Whether strings that are dates or timestamps become such; or the fields where they do.",
        flag="--detect-dates/--no-detect-dates",
        help="Read strings that are dates or UTC timestamps as dates and timestamps.",
        setting="true, false or a list of fields")]
    date_spellings: Annotated[str | None, Option(
        "Which strings are timestamps where strings are read as such: ``exact`` (ISO 8601 in UTC, which a timestamp "
        "gives back; the default), or ``any`` of the spellings that say their instant, e.g. "
        "``2024-01-02 03:04:05+0200`` and ``Tue, 02 Jan 2024 03:04:05 +0200``. The table then has the instant and not "
        "the spelling, and the proof counts it as converted.",
        choices=("exact", "any"),
        help="With --detect-dates, or a pin to timestamp: read only ISO 8601 in UTC (exact, the default), or any "
        "spelling that says its instant, with offsets, spaces, or as in mails.")]
    time_zone: Annotated[str | None, Option(
        "The time zone of timestamps that name none, e.g. ``Europe/Berlin``. Without it they are not instants, and "
        "stay strings. So does a time that the zone does not have, or has twice.",
        metavar="ZONE",
        help="The time zone of timestamps that name none, e.g. Europe/Berlin; a time that it lacks or has twice stays "
        "a string.",
        setting="the name of a time zone, e.g. Europe/Berlin")]
    detect_maps: Annotated[bool | None, Option(
        "Whether the objects of a new field become maps if they have many keys, few of them in each object, with "
        "values of one shape. Otherwise each key becomes a column, and the plan says so.",
        flag="--detect-maps/--no-detect-maps",
        help="Read objects as maps if they have many different keys, but only a few each.")]
    epoch_unit: Annotated[Mapping[str, str] | None, Option(
        "The unit of integers that go to a timestamp column, by field path: ``s``, ``ms``, ``us`` or ``ns``; by "
        "default their size decides. In JSON and CSV, the integers of a field that is also pinned to ``timestamp`` are "
        "timestamps and get no second column.",
        metavar="FIELD=UNIT",
        help="The unit of integers in a timestamp field: s, ms, us or ns; can be repeated.",
        setting="a table of fields, each with s, ms, us or ns")]
    max_keys: Annotated[int | None, Option(
        "The maximum number of keys that the objects of one field may have in a batch; with more, the keys are "
        "probably data, and the batch is refused. 10,000 by default; it does not apply to maps and in mode freeze.",
        minimum=1,
        help="The maximum number of keys in one field; a batch with more is refused. Default: 10000.")]
    names: Annotated[str | None, Option(
        "When two names mean one field: ``any-case`` (where they differ in case only, unless the table or a record "
        "has both; the default) or ``exact``. The table records it for later loads.",
        choices=("any-case", "exact"),
        help="When two names mean one field. any-case: if they differ in case only (default); exact: if they are "
        "equal.")]


class DocumentOptions(TypedDict, total=False):
    """How documents hold records."""

    max_record_size: Annotated[int | str | None, Option(
        "The maximum size of a record, or of a line of text, after decompression: bytes, or a size such as "
        "``64MB``, which is the default. A file with a longer one cannot be read.",
        metavar="SIZE",
        help="The maximum size of a record or a line, after decompression, e.g. 256MB. Default: 64MB.",
        setting="bytes, or a size such as 64MB")]
    records: Annotated[str | None, Option(
        "The path to the records in JSON documents that hold them in a list: field names with dots between them, and "
        "``[*]`` after each list, e.g. ``Records[*]`` or ``data.items[*]``. A document may be larger than memory. A "
        "document without the path is corrupt; an empty list, and null, have no records.",
        metavar="PATH",
        help="Where documents have their records, e.g. 'Records[*]' or 'data.items[*]'.",
        setting="a path to records inside of documents, e.g. data.items[*]")]
    keep: Annotated[str | Iterable[str] | None, Option(
        "With ``records``, the fields of the levels above that each record gets: ``all``, or names. A field of the "
        "document becomes ``_parent_NAME``, one of a level below ``_parent_LEVEL_NAME``.",
        metavar="all|FIELD",
        help="With --records: a field above the records that each of them gets, as _parent_FIELD; can be repeated. "
        "all: every field.",
        setting="all, or a list of fields")]
    dialect: Annotated[str | Mapping[str, Any] | None, Option(
        "How the JSON writes values in their types: ``mongodb`` (Extended JSON, canonical and relaxed), ``dynamodb``, "
        "``firestore``, or ``connect`` for documents of Kafka Connect with a schema part; for messages in a column "
        "``value``, ``registry:`` and the URL or the folder of a schema registry, or ``module:function`` for a "
        "function that returns their JSON. The values become plain "
        "JSON, with numbers as they are spelled; what is not of the dialect "
        'stays as it is. Or a mapping: ``values`` says what the name of each wrapper holds, e.g. ``{"N": "number"}``, '
        "and ``root`` names the field that has the record. NaN is then a number, unless ``allow_nan`` is false.",
        metavar="NAME",
        help="How values are wrapped in their types: mongodb, dynamodb, firestore or connect; for messages "
        "registry:URL, or MODULE:FUNCTION. For others, see --config.",
        setting="mongodb, dynamodb, firestore, connect, registry:URL, module:function, or a table with values and "
        "root")]
    envelope: Annotated[str | Mapping[str, Any] | None, Option(
        "The shape of documents that describe the change of a row: ``debezium``, ``maxwell``, ``canal``, ``dms``, "
        "``datastream``, ``mongodb``, ``sqlserver-cdc`` or ``spanner``. The records are then the "
        "rows, with the operation and the rest of the document in fields such as ``_op``. Or a mapping with the names "
        "``after`` and ``before`` of the rows, the path ``op`` of the "
        "operation, and which operations are ``deletes``. With ``key``, deletions delete, and the log position of "
        "the event tells what is newer, where it has one.",
        metavar="NAME",
        help="The shape of the envelopes around the records: debezium, maxwell, canal, dms, datastream, mongodb, "
        "sqlserver-cdc or spanner. For others, see --config.",
        setting="debezium, maxwell, canal, dms, datastream, mongodb, sqlserver-cdc, spanner, or a table with after, "
        "before, op, payload, upserts, deletes, truncates, ignores, unavailable, copies and changes")]


class PolicyOptions(FieldOptions, DocumentOptions, total=False):
    """The policy of an ingestion."""


class KeyOptions(TypedDict, total=False):
    """How records change rows by key."""

    key: Annotated[Sequence[str] | None, Option(
        'The fields that identify a row, e.g. ``["id"]``: a record then replaces the row of its key. They are '
        "compared by kind and value. Records without a key go to the quarantine.",
        metavar="FIELD",
        help="A field that identifies a row: records replace the row of their key; can be repeated.")]
    sequence_by: Annotated[str | Sequence[str] | None, Option(
        "With ``key``, the field that says which record of a key is newest: a number, a time or a string. Older "
        "records change nothing, even if they arrive later. Several fields are compared one after the other: "
        '``["ts", "lsn"]``. Without it, the last batch wins, and a batch with two different records of a key is '
        "refused.",
        metavar="FIELD",
        help="The field that says which record of a --key is the newest; can be repeated, then the next field counts "
        "where the first is equal. By default the last batch wins.")]
    delete_when: Annotated[str | None, Option(
        "With ``key``, the condition for records that delete the row of their key, in Spark SQL over the columns "
        "of the table, e.g. ``\"op = 'd'\"``.",
        metavar="SQL",
        help="A condition for records that delete the row of their --key, e.g. \"op = 'd'\".")]
    missing: Annotated[str | None, Option(
        "With ``key``, what happens to the fields that a record lacks, or that are null in it: they become "
        "``null`` (the default), or ``keep`` the values of the row.",
        metavar="null|keep",
        help="With --key: fields that a record lacks become null (default), or keep the value of the row.")]
    history: Annotated[bool | None, Option(
        "With ``key`` and ``sequence_by``, whether to keep every version of a row, with the columns "
        "``_valid_from``, ``_valid_to`` and ``_is_current``. Late records are inserted between the versions, and a "
        "deletion closes the newest one.",
        flag="--history/--no-history",
        help="With --key and --sequence-by, keep every version of a row, with _valid_from, _valid_to and "
        "_is_current.")]
    history_columns: Annotated[Sequence[str] | None, Option(
        "With ``history``, the fields whose changes open a version. A record that changes none of them updates the "
        "version before it, whose values are then those of this record. By default every record is a version.",
        metavar="FIELD",
        help="With --history: a field whose changes open a version, while other changes update the current one; can "
        "be repeated.")]
    history_except: Annotated[Sequence[str] | None, Option(
        "Instead of ``history_columns``: the fields whose changes do not open a version, beside the key and the "
        "sequence.",
        metavar="FIELD",
        help="With --history: a field whose changes update the current version and open none; can be repeated.")]


class QuarantineOptions(TypedDict, total=False):
    """Where records go that do not fit."""

    quarantine: Annotated[str | PathLike[str] | None, Option(
        "The table for records that violate partition, NOT NULL or CHECK columns; by default next to the table, "
        "with the suffix ``_quarantine``.",
        metavar="TABLE",
        help="The table for records that do not fit partition, NOT NULL or CHECK columns; by default next to the "
        "table.")]


class TableOptions(PartitionOptions, BranchOptions, total=False):
    """The table."""


class RecordOptions(TableOptions, ReadOptions, PolicyOptions, QuarantineOptions, KeyOptions, total=False):
    """What `ingest`, `plan` and `ingest_stream` have in common."""

    partition_folders: Annotated[bool, Option(
        "Whether each folder ``key=value`` in the path of a file adds a string field to its records, also a folder "
        "above the given path. If records already have a field ``key``, the field of the folder gets another name.",
        default=True, flag="--partition-folders/--no-partition-folders",
        help="Read folders named KEY=VALUE above a file as fields of its records.")]
    source_columns: Annotated[bool, Option(
        "Whether to add the columns ``_source_file`` and ``_loaded_at``.",
        default=False,
        help="Add the columns _source_file and _loaded_at.")]
    skip_bad_files: Annotated[bool, Option(
        "Whether to leave out files that cannot be loaded (damaged Parquet, truncated gzip, a CSV file with "
        "another separator, keys that are data) and name them in the quarantine; otherwise such a file is an "
        "error.",
        default=False,
        help="Skip files that cannot be loaded, e.g. damaged ones, and name them in the quarantine, instead of "
        "failing.")]
    strict: Annotated[bool, Option(
        "Whether to refuse a batch if ``pins``, ``epoch_unit`` or ``detect_dates`` name a field that neither the "
        "table nor the batch has, or if a pin contradicts an existing column; otherwise the plan and an event "
        "report it. With ``strict``, ``allow_unmatched`` has no effect. With ``sequence_by``, also whether to "
        "refuse a batch if different records of a key have the same sequence, where that decides which is the "
        "newest.",
        default=False,
        help="Fail if an option names an unknown field, or if records of a key have equal sequences.")]
    layout_of: Annotated[str | PathLike[str] | None, Option(
        "A table whose columns a new table begins with, e.g. to build a table again: loading everything at once "
        "then gives the same layout as one batch after another. It has no effect on a table that exists.",
        metavar="TABLE",
        help="Create a new table with the columns of this one.")]


class VerifyOptions(TypedDict, total=False):
    """Whether values are compared after the commit."""

    verify: Annotated[bool | float, Option(
        "Whether to rebuild each record from the table after the commit and compare all its values; or the share "
        "of the records to verify, between 0 and 1. The rows of a DataFrame source are persisted for that.",
        default=False)]


class RefusalOptions(NewFileOptions, LimitOptions, total=False):
    """Which files are loaded, when a batch is refused, and what is loaded instead."""

    park_over_limit: Annotated[bool, Option(
        "With ``new``, whether to load the other files of a batch that would be refused, because it is over a "
        "limit, needs changes that the policy forbids, or has files that cannot be read. The quarantine and the "
        "record of loads name the files that are left out, and later loads with this argument skip them. To load "
        "them, ingest them by name, or with ``new`` and without this argument.",
        default=False,
        help="With --new: if a batch is refused, load its other files. The quarantine names the files that are "
        "left out, and later loads skip them; see `widen loads`.")]


class GateOptions(RefusalOptions, total=False):
    """Which files are loaded, and when a batch is refused."""

    plan_hash: Annotated[str | None, Option(
        "The hash of the expected plan; another plan is refused.",
        metavar="HASH",
        help="Fail unless the plan has this hash; see `widen plan`.")]


class MemoryOptions(TypedDict, total=False):
    """How data in memory is read."""

    nan: Annotated[str, Option(
        "What NaN in data in memory is: ``keep`` it as a value (the default), or ``null``: pandas writes missing "
        "values as NaN.",
        default="keep", choices=("keep", "null"))]


class LoadPlanOptions(RefusalOptions, RecordOptions, EngineOptions, MemoryOptions, total=False):
    """The arguments of a load that its plan depends on."""


class ReaderOptions(TypedDict, total=False):
    """What a plan tells beside its changes."""

    readers: Annotated[Iterable[str] | None, Option(
        'Other readers of the table, e.g. ``["polars", "duckdb"]``, or ``["all"]``: the plan says what each of them '
        "does with the table before and after the load. That is predicted, as by `Table.readers`; no reader runs.")]


class PlanOptions(ReaderOptions, LoadPlanOptions, total=False):
    """The arguments of `plan`."""


class RunPlanOptions(ReaderOptions, SessionOptions, total=False):
    """The arguments of `plan_run`."""


class BatchSizeOptions(TypedDict, total=False):
    """How many of the new files one load takes, the oldest first."""

    max_files: Annotated[int | None, Option(
        "The maximum number of new files in a load or an interval, the oldest first.",
        minimum=1,
        help="The maximum number of files in a micro-batch, or with --new in this load, the oldest first.")]
    max_bytes: Annotated[int | None, Option(
        "A load of new files, or an interval, is full at this size; it has at least one file.",
        minimum=1,
        help="Close a micro-batch, or with --new this load, at this size, in bytes; it has at least one file.")]


class IngestOptions(
    GateOptions, BatchSizeOptions, RecordOptions, VerifyOptions, EngineOptions, EventOptions, MemoryOptions, total=False
):
    """The arguments of `ingest`."""

    txn: Annotated[tuple[str, int] | None, Option(
        "The id of an application and the version of this batch, a number >= 0 that increases from batch to batch. "
        "A batch that the table already has is not written again.")]


class FollowOptions(BatchSizeOptions, total=False):
    """How a source is followed."""

    once: Annotated[bool, Option(
        "Whether to stop after all data that is available now.",
        default=False,
        help="Like --follow, but stop when the files that exist now are loaded.")]


class StreamOptions(
    FollowOptions, LimitOptions, RecordOptions, VerifyOptions, EngineOptions, EventOptions, total=False
):
    """The arguments of `ingest_stream`."""

    every_seconds: Annotated[float, Option(
        "The minimum time between two intervals.",
        default=0)]
    on_interval: Annotated["OnInterval | None", Option(
        "Called with the result of each interval.")]


class KeptTextOptions(NanOptions, DocumentOptions, total=False):
    """How the texts of a quarantine hold records."""

    config: _Config
    nanos: _Nanos


class ReplayOptions(BranchOptions, EngineOptions, PolicyOptions, total=False):
    """The arguments of `replay`."""

    nanos: _Nanos


class ContractOptions(
    ReadOptions, NumberOptions, NanOptions, DocumentOptions, EngineOptions, MemoryOptions, total=False
):
    """The arguments of `check_contract`."""
