"""The locations of a source, before their files are listed: they exist, and they are files and not tables.

A table is never read as files: its folder also has the files of old versions and deleted rows. What an ingestion reads
as a table, and what it refuses, is listed in the guide.

Source: docs/guide/files.md#tables
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from urllib.parse import unquote, urlsplit

from widen.errors import InvalidOption, SourceError, StorageRefused
from widen.log.local_files import absolute_path
from widen.log.log_store import LogStore
from widen.model.value_classes import dataclass
from widen.sources.remote_files import find_folders, matches_part
from widen.spark.engine import Session, find_started, is_local
from widen.spark.errors import environment_error
from widen.spark.session import is_driver, will_run_here
from widen.spark.spark_types import SparkSession, spark_errors

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_LOCAL_URL = re.compile(r"file:/+", re.IGNORECASE)
_PATTERN, _ONLY_SPARK = frozenset("*?["), frozenset("{}\\")
"""Characters of patterns, and characters of patterns that only Spark expands."""

_IS_NO_FILE = (
    (stat.S_ISFIFO, "it is a pipe"),
    (stat.S_ISSOCK, "it is a socket"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
)
_CHECK_PATH = "Check the path and the permission to read it."
_READ_AGAIN = "A source is read more than once: write what it gives to a file and name that, or pipe it to -."
_FOLDERS_AT_ONCE, _MAX_REMOTE_FOLDERS = 100, 1_000
DELTA, ICEBERG, HUDI = "Delta", "Iceberg", "Hudi"
_ICEBERG_METADATA = (".metadata.json", ".metadata.json.gz")
_REMOTE_MARKS = (("_delta_log/*.json", DELTA), ("metadata/*.metadata.json", ICEBERG), (".hoodie/*", HUDI))

_ONLY_WHOLE = "Name the folder of one table alone, to read its current version: {root}"
_FLOW = (
    "Use `widen flow {root} --into TABLE --checkpoint DIR` (widen.flow): it reads what has changed since its last run."
)
_WITHOUT_CATALOG = (
    "Only its catalog knows the current version: use `widen flow NAME --source-catalog CATALOG`, or ingest the "
    "DataFrame widen.IcebergTable(NAME, CATALOG).read()."
)


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table where a source was expected.

    Args:
        root: Its folder, as a path or URL.
    """

    root: str
    format: str


def check_source(
    paths: Sequence[str],
    own: Mapping[str, str],
    *,
    spark: SparkSession | None = None,
    is_new: bool = False,
    follows: bool = False,
) -> None:
    """Check as much of a source as this process sees without a session, so that a mistake does not start Spark.

    Args:
        paths: Absolute paths, URLs and patterns.
        own: What the ingestion writes, by the name of the option: the table, its quarantine, a checkpoint.
        follows: Whether a stream follows the source.
    """
    if will_run_here(spark):
        for path in paths:
            _ensure_files(path, may_be_elsewhere=spark is not None and not is_local(spark))
        table = find_table_source(None, paths, is_new=is_new, follows=follows)
        if table is not None:
            ensure_other_table(table, own)
            return
        if follows:
            ensure_distinct(paths)
    ensure_separate(paths, own)


def _ensure_files(path: str, *, may_be_elsewhere: bool) -> None:
    named = expand_local(path)
    if named is None:
        return
    if not named and not may_be_elsewhere and not is_elsewhere(path):
        raise SourceError(source=path, reason="the path does not exist", fix=_CHECK_PATH)
    for each in named:
        mode = 0
        with looking_at(each):
            mode = os.stat(each).st_mode
        if not mode:
            reason = "the link leads to nothing" if os.path.islink(each) else "the path does not exist"
            raise SourceError(source=each, reason=reason, fix=_CHECK_PATH)
        for is_kind, reason in _IS_NO_FILE:
            if is_kind(mode):
                raise SourceError(source=each, reason=reason, fix=_READ_AGAIN)


def is_elsewhere(path: str) -> bool:
    """Return whether a path without a scheme may be in another file system: Hadoop's configuration has a default."""
    return not _LOCAL_URL.match(path) and any(
        os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
    )


def to_local(path: str) -> str | None:
    """Return a path of the local disk without its scheme; None for another store."""
    if _LOCAL_URL.match(path):
        return "/" + _LOCAL_URL.sub("", path, count=1)
    return None if _URL.match(path) else path


def expand_local(path: str) -> list[str] | None:
    """Return the local paths that a path or a pattern names; None if only Spark can tell."""
    plain = to_local(path)
    if plain is None or "\0" in plain:
        return None if plain is None else []
    if os.path.lexists(plain):
        return [plain]
    if _ONLY_SPARK & set(plain):
        return None
    found = ["/"]
    for part in plain.split("/") if _PATTERN & set(plain) else ():
        found = [each for folder in found for each in _matches(folder, part)]
    return [] if found == ["/"] else found


def _matches(folder: str, part: str) -> list[str]:
    if not _PATTERN & set(part):
        path = os.path.join(folder, part)
        return [path] if os.path.lexists(path) else []
    names = sorted(entry.name for entry in _list_folder(folder))
    return [os.path.join(folder, name) for name in names if matches_part(name, part)]


def ensure_place_writable(place: str) -> None:
    """Check that this process may write at a local place, which need not exist; other stores say so when asked.

    Raises:
        StorageRefused: it may not.
    """
    plain = to_local(place)
    if plain is None:
        return
    above = absolute_path(plain)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        reason = f"{above} is a file, not a folder" if os.path.exists(above) else f"the link {above} leads to nothing"
    elif os.access(above, os.W_OK | os.X_OK):
        return
    else:
        reason = f"{above} cannot be written"
    fix = "Nothing was written. Choose another location, or run as a user who may write there."
    raise StorageRefused(location=place, reason=reason, fix=fix)


# ---- tables ----------------------------------------------------------------------------------------


def find_table_source(
    spark: Session | None, paths: Sequence[str], *, is_new: bool = False, follows: bool = False
) -> FoundTable | None:
    """Return the Delta table that a source is; None if no path of it is a table or part of one.

    Args:
        spark: The session, for places that this process does not see; None to look at the local disk alone.
    """
    for path in paths:
        for named in _named_places(spark, path):
            found = _table_above(spark, named)
            if found is None:
                continue
            is_root = len(paths) == 1 and named in (path, to_local(path)) and _is_same_place(named, found.root)
            if found.format != DELTA or not is_root or is_new or follows:
                raise _refused(path, found, is_root=is_root, is_new=is_new or follows)
            return found
    return None


def ensure_no_table(spark: Session | None, source: str, files: Collection[str], checked: Collection[str] = ()) -> None:
    """Check that no file of a listing is part of a table.

    Args:
        spark: The session, which takes requests for other stores; None to look at the local disk alone.
        checked: Folders of other stores that are known not to be in a table, so that they take no request again.
    """
    folders = sorted({path.rpartition("/")[0] for path in files})
    is_here = spark is None or is_driver(spark)
    local = [plain for folder in folders if is_here and (plain := to_local(folder)) is not None]
    found = next(_local_tables(local), None)
    if found is None and spark is not None:
        remote = [folder for folder in folders if not (is_here and to_local(folder) is not None)]
        found = _remote_table(spark, remote, checked)
    if found is not None:
        raise _refused(source, found, is_root=False, is_new=False)


def ensure_other_table(table: FoundTable, own: Mapping[str, str]) -> None:
    """Check that an ingestion does not read the table that it writes.

    Raises:
        InvalidOption: the source is also an output.
    """
    for option, place in own.items():
        if _is_same_place(table.root, place):
            expected = "A table cannot be ingested into itself."
            if option == "quarantine":
                expected = "It is the quarantine of the table: use `widen replay` (widen.replay)."
            raise InvalidOption(option="source", value=table.root, expected=expected)


def ensure_separate(paths: Sequence[str], own: Mapping[str, str]) -> None:
    """Check that an ingestion does not read what it writes.

    Raises:
        InvalidOption: something of it is below a path of the source.
    """
    for path in paths:
        for option, place in own.items():
            root = f"{_real(path)}/"
            below = f"{_real(place)}/".removeprefix(root)
            # Spark ignores files and folders whose names begin with a dot or an underscore.
            if f"{_real(place)}/".startswith(root) and not below.startswith((".", "_")):
                raise InvalidOption(option=option, value=place, expected=f"Must not be below the source {path}.")


def ensure_outlives_vacuum(
    checkpoint: str, tables: Iterable[str | None], storage_options: Mapping[str, str] | None
) -> None:
    """Check that a new checkpoint is not where the vacuum of a table would delete it.

    Vacuums leave hidden folders alone, such as `TABLE/_checkpoint`, except for those that belong to the table. A
    checkpoint that exists may stay, and our own vacuum leaves it alone.

    Args:
        tables: The folders of tables; None, or the name of a table in a catalog, for one that is not known.

    Raises:
        InvalidOption: it is there.
    """
    from widen.log.vacuum import has_progress

    store = LogStore(to_local(checkpoint) or checkpoint, storage_options)
    for table in (each for each in tables if each and "/" in each):
        if not _may_vacuum(table, checkpoint):
            continue
        if not has_progress(entry.path for entry in store.list("")):
            expected = (
                f"Must not be in the folder of the table {table}: a vacuum deletes what no version of it needs. Choose "
                f"a folder beside it, e.g. {table.rstrip('/')}_checkpoint."
            )
            raise InvalidOption(option="checkpoint", value=checkpoint, expected=expected)


def ensure_file_outlives_vacuum(option: str, file: str, tables: Iterable[str | None]) -> None:
    """Check that a file of events is not where the vacuum of a table would delete it.

    Args:
        tables: The folders of tables; None for one that is not known.

    Raises:
        InvalidOption: it is there.
    """
    for table in tables:
        if table and _may_vacuum(table, file):
            expected = f"Must not be in the folder of the table {table}: a vacuum deletes what no version of it needs."
            raise InvalidOption(option=option, value=file, expected=f"{expected} Choose a file beside it.")


def _may_vacuum(table: str, place: str) -> bool:
    """Return whether a place is in the folder of a table, and not in a hidden folder that is not its own."""
    root, inner = f"{_real(table)}/", f"{_real(place)}/"
    below = inner.removeprefix(root).strip("/").split("/")
    is_hidden = any(part.startswith((".", "_")) and "=" not in part for part in below)
    return inner.startswith(root) and (not is_hidden or below[0] in _OF_TABLE)


_OF_TABLE = frozenset({"_delta_log", "_change_data", "_delta_index", "_widen"})
"""The hidden folders that belong to a table."""


def _real(place: str) -> str:
    """Return one text for all spellings of a location."""
    plain = to_local(place)
    return place.rstrip("/").replace("s3a://", "s3://") if plain is None else os.path.realpath(plain).rstrip("/")


def _is_same_place(one: str, other: str) -> bool:
    return _real(one) == _real(other)


def _named_places(spark: Session | None, path: str) -> list[str]:
    plain = to_local(path)
    if plain is not None and (spark is None or is_driver(spark)):
        # A pattern without matches may also be in a table: the folder before the pattern tells.
        return expand_local(path) or [before_pattern(plain).rpartition("/")[0] or "/"]
    return [] if spark is None else [before_pattern(path)]


def before_pattern(path: str) -> str:
    """Return a path up to its first character that may be of a pattern."""
    return path[: _first_special(path)]


def _first_special(path: str) -> int:
    return next((at for at, char in enumerate(path) if char in _PATTERN | _ONLY_SPARK), len(path))


def _table_above(spark: Session | None, place: str) -> FoundTable | None:
    """Return the table that a place is, or is below."""
    plain = to_local(place)
    if plain is not None and (spark is None or is_driver(spark)):
        return next(_local_tables([plain]), None)
    return None if spark is None else _remote_table(spark, [place.rstrip("/")])


def _local_tables(folders: Iterable[str]) -> Iterator[FoundTable]:
    """Yield the tables at or above local folders, by their given paths and by resolved links."""
    seen: set[str] = set()
    for folder in folders:
        for start in (os.path.realpath(folder), os.path.abspath(folder)):
            place = start
            while place not in seen:
                seen.add(place)
                table_format = _local_format(place)
                if table_format is not None:
                    yield FoundTable(place, table_format)
                place = os.path.dirname(place)


def _local_format(folder: str) -> str | None:
    if os.path.isdir(os.path.join(folder, "_delta_log")):
        return DELTA
    try:
        if any(map(is_iceberg_metadata, os.listdir(os.path.join(folder, "metadata")))):
            return ICEBERG
    except OSError:
        pass
    return HUDI if os.path.isdir(os.path.join(folder, ".hoodie")) else None


def is_iceberg_metadata(name: str) -> bool:
    """Return whether a file in the folder ``metadata`` of a table describes a version of an Iceberg table."""
    return name.endswith(_ICEBERG_METADATA)


LISTS = "only its file systems find the source"
"""Why the files of a source are listed by Spark."""


def _remote_table(spark: Session, folders: Sequence[str], checked: Collection[str] = ()) -> FoundTable | None:
    """Return a table at or above folders of another store; Spark finds it by patterns.

    A folder ``key=value`` is a partition, and not a table. Each folder takes requests, so that their number is limited.
    """
    known = set(_folders_above(checked))
    pending = islice((each for each in _folders_above(folders) if each not in known), _MAX_REMOTE_FOLDERS)
    started = find_started(spark)
    if started is None:
        return _find_marked(["/".join(filter(None, each)) for each in pending])
    while some := list(islice(pending, _FOLDERS_AT_ONCE)):
        for mark, table_format in _REMOTE_MARKS:
            for pattern in _patterns(some, mark):
                root = _first_match(started, pattern, mark)
                if root is not None:
                    return FoundTable(root, table_format)
    return None


def _folders_above(folders: Iterable[str]) -> Mapping[tuple[str, str], None]:
    """Return the store and the path of folders and of those above them, in order."""
    above: dict[tuple[str, str], None] = {}
    for folder in folders:
        parts = urlsplit(folder)
        store = f"{parts.scheme}://{parts.netloc}" if parts.scheme else ""
        names = parts.path.strip("/").split("/")
        for length in range(len(names) + 1):
            if length == 0 or "=" not in names[length - 1]:
                above[store, "/".join(names[:length])] = None
    return above


def _find_marked(folders: Sequence[str]) -> FoundTable | None:
    for mark, table_format in _REMOTE_MARKS:
        folder, _, name = mark.partition("/")
        found = find_folders([f"{each}/{folder}" for each in folders], name.lstrip("*"))
        if found:
            return FoundTable(found[0].removesuffix(f"/{folder}"), table_format)
    return None


def _patterns(folders: Sequence[tuple[str, str]], mark: str) -> Iterator[str]:
    """Yield a pattern for the folders of each store, and one for its root, which has no name in a brace."""
    for store in dict(folders):
        paths = [path for each, path in folders if each == store]
        if "" in paths:
            yield f"{store}/{mark}"
        named = ",".join(_escaped(path) for path in paths if path)
        if named:
            yield f"{store}/{{{named}}}/{mark}"


def _escaped(path: str) -> str:
    return "".join("\\" + char if char in "*?[]{}\\," else char for char in path)


def _first_match(spark: SparkSession, pattern: str, mark: str) -> str | None:
    """Return the folder above the first file that matches a pattern which ends in a mark."""
    try:
        files = spark.read.format("binaryFile").load(pattern).inputFiles()
    except spark_errors():  # nothing matches; a store that cannot be read fails when its files are listed
        return None
    return unquote(files[0]).rsplit("/", mark.count("/") + 1)[0] if files else None


def _refused(source: str, table: FoundTable, *, is_root: bool, is_new: bool) -> SourceError:
    article = "an" if table.format == ICEBERG else "a"
    reason = f"it is {article} {table.format} table" if is_root else f"{table.root} is {article} {table.format} table"
    reason += ", whose files also contain deleted rows and old versions"
    fix = "Read it with Spark, and pass the DataFrame."
    if table.format == ICEBERG:
        fix = _WITHOUT_CATALOG
    elif table.format == DELTA:
        fix = (_FLOW if is_new and is_root else _ONLY_WHOLE).format(root=table.root)
    return SourceError(source=source, reason=reason, fix=fix)


# ---- links -----------------------------------------------------------------------------------------


def has_linked_folder(place: str) -> bool:
    """Return whether a local folder, or one below it, has a link to a folder."""
    return next(_linked_folders(place), None) is not None


def _linked_folders(place: str) -> Iterator[str]:
    for folder, folders, _ in os.walk(place, onerror=_refuse):
        folders[:] = [name for name in folders if not is_hidden(name)]
        yield from (path for name in folders if os.path.islink(path := os.path.join(folder, name)))


def _refuse(error: OSError) -> None:
    with looking_at(error.filename):
        raise error


def ensure_distinct(paths: Sequence[str]) -> None:
    """Check that a stream finds each folder under one path: Spark identifies its files by their paths.

    Raises:
        SourceError: two paths, or a link, name the same folder, or one that is below the other.
    """
    named = [each for path in paths for each in expand_local(path) or ()]
    seen: dict[str, str] = {}
    for place in [*named, *(link for each in named for link in _linked_folders(each))]:
        real = f"{os.path.realpath(place)}/"
        for other, first in seen.items():
            if real.startswith(other) or other.startswith(real):
                reason = f"{first} and {place} name the same files, which would be loaded twice"
                raise SourceError(
                    source=", ".join(paths), reason=reason, fix="Name each folder once, without the link."
                )
        seen[real] = place


def _list_folder(place: str) -> list[os.DirEntry[str]]:
    """Return the entries of a local folder; none if it is not there, or no longer."""
    with looking_at(place), os.scandir(place) as entries:
        return list(entries)
    return []


@contextmanager
def looking_at(place: str) -> Iterator[None]:
    """Translate the errors of looking at a local place; what is not there, or no longer, is passed over."""
    try:
        yield
    except OSError as error:
        failure = environment_error(f"file:{place}", error)
        if failure is not None:
            raise failure from error


def is_hidden(name: str) -> bool:
    """Return whether Spark ignores a file or folder.

    Source: Spark's HadoopFSUtils.shouldFilterOutPathName
    """
    is_private = name.startswith(".") or (name.startswith("_") and "=" not in name)
    is_summary = name.startswith(("_common_metadata", "_metadata"))
    return (is_private and not is_summary) or name.endswith("._COPYING_")
