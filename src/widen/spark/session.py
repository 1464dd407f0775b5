"""The Spark session to work in: the caller's, the active one, or a new local one."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from hashlib import sha256
from subprocess import Popen
from threading import Event, Thread
from traceback import walk_tb
from typing import Any
from urllib.parse import urlsplit

from widen.errors import EngineUnsuitable, InvalidOption, SparkUnavailable, UnsupportedSpark
from widen.errors.tables import first_line
from widen.log.local_files import absolute_path
from widen.log.log_store import LogStore
from widen.model.value_classes import dataclass
from widen.protocol.table_properties import FEATURE_PREFIX, canonical_key, is_property
from widen.schema.source_metadata import AutomaticWidening, parse_automatic_widening
from widen.spark.errors import ignore_failed_cleanup
from widen.spark.spark_types import SparkSession, spark_errors

_SETTINGS = {
    "spark.app.name": "widen",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    "spark.log.level": "ERROR",
    # By default each call of a column or a frame sends its line of code to Java, in six more round trips.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""The settings of a session that Widen starts itself, unless the user's ``spark-defaults.conf`` has them."""


MINIMUM_VERSION = (4, 0)
"""The oldest version of Spark that Widen works with."""


def ensure_supported(version: str) -> None:
    """Check the version of Spark.

    Args:
        version: The version as Spark writes it, e.g. ``4.0.1`` or ``4.2.0-SNAPSHOT``.

    Raises:
        UnsupportedSpark: the version is too old.
    """
    if _major_minor(version) < MINIMUM_VERSION:
        raise UnsupportedSpark(needed=".".join(map(str, MINIMUM_VERSION)), found=version)


def _major_minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


ENGINE_VARIABLE = "WIDEN_ENGINE"
"""The environment variable with the engine where the caller names none."""

_asked: list[str] = []


@contextmanager
def asking_for(engine: str | None) -> Iterator[None]:
    """Let an engine be the default of all that runs in the block, in any thread. It wins over the environment."""
    if engine is None:
        yield
        return
    _asked.append(engine)
    try:
        yield
    finally:
        _asked.pop()


class Engine(str, Enum):
    """Where an ingestion runs."""

    AUTO = "auto"
    """By the rule of `widen.spark.engine`."""
    LOCAL = "local"
    """In this process, for any size; work that needs Spark is an error."""
    SPARK = "spark"


def parse_engine(text: str | None) -> Engine:
    """Return the engine that a caller names; by default the engine of `asking_for`, the environment, or `Engine.AUTO`.

    Raises:
        InvalidOption: it is not one of auto, local or spark.
    """
    asked = text or next(reversed(_asked), None)
    value = asked or os.environ.get(ENGINE_VARIABLE) or Engine.AUTO.value
    if value not in set(Engine):
        option = "engine" if asked else ENGINE_VARIABLE
        raise InvalidOption(option=option, value=value, expected="Must be auto, local or spark.")
    return Engine(value)


def ensure_spark_wanted(reason: str) -> None:
    """Check that Spark may start.

    Args:
        reason: Why it must; the end of a sentence that begins with "This call needs Spark, because".

    Raises:
        EngineUnsuitable: the engine of the command or of the environment is local.
    """
    if parse_engine(None) is Engine.LOCAL:
        raise EngineUnsuitable(reason=reason)


def start_spark(existing: SparkSession | None = None) -> SparkSession:
    """Return a session, by default a new local one, whose version is supported.

    The environment variables ``SPARK_REMOTE`` and ``MASTER`` override where a new session runs. Its executors use the
    Python interpreter of this process, so that they find the same packages.

    Raises:
        SparkUnavailable: Spark or Java does not start.
    """
    import pyspark

    # Older versions give wrong results instead of errors, so check before any job runs.
    ensure_supported(pyspark.__version__)
    try:
        session = existing or _start_session()
        version = session.version
    except spark_errors() as error:
        raise SparkUnavailable(reason=first_line(error), fix=_FIX) from error
    ensure_supported(version)
    return session


_MANAGERS: Mapping[tuple[int, ...], str] = {
    (4, 0): "streaming",
    (4, 1): "streaming.checkpointing",
    (4, 2): "streaming.checkpointing",
    (4, 3): "streaming.checkpointing",
}
"""The package of Spark's classes that keep checkpoints, in the versions where we have seen it."""


def stream_settings(version: str) -> Mapping[str, str]:
    """Return settings that let a stream keep its progress on a local disk in half of the time.

    Spark's default starts 30 processes in each interval, to read links and to change permissions, where Hadoop has no
    native library. This manager starts six, and renames files in the same way.

    Args:
        version: The version of Spark. One that we do not know keeps its default, since the class may have moved.

    Source: Spark's configuration, spark.sql.streaming.checkpointFileManagerClass
    """
    package = _MANAGERS.get(_major_minor(version))
    if package is None:
        return {}
    manager = f"org.apache.spark.sql.execution.{package}.FileSystemBasedCheckpointFileManager"
    return {"spark.sql.streaming.checkpointFileManagerClass": manager}


def is_driver(spark: object) -> bool:
    """Return whether this process is the driver, which sees the files that Spark lists; a Connect client does not."""
    return getattr(spark, "is_driver", False) or getattr(spark, "sparkContext", None) is not None


def find_active() -> SparkSession | None:
    """Return the active session of this thread; None if there is no such session or Spark is not loaded."""
    if sys.modules.get("pyspark.sql") is None:
        return None
    return SparkSession.getActiveSession()


def will_run_here(given: object = None) -> bool:
    """Return whether the session that `find_session` returns sees the files of this process; nothing is started."""
    existing = given or find_active()
    return "SPARK_REMOTE" not in os.environ if existing is None else is_driver(existing)


_FIX = "Install Java 17 or later and set JAVA_HOME to it. Set WIDEN_DEBUG=1 to see the whole output of Java."


def activate_session(spark: SparkSession) -> None:
    """Make a session the active one of this thread: without one, tables do not get the defaults of the session."""
    spark.createDataFrame([], "nothing int")


def _ensure_java_home() -> None:
    """Check the variable that Spark uses to find Java; Spark itself only says that a port number is missing.

    Raises:
        SparkUnavailable: it names no Java.
    """
    home = os.environ.get("JAVA_HOME")
    if home and not any(os.path.isfile(os.path.join(home, "bin", name)) for name in ("java", "java.exe")):
        fix = (
            "Set JAVA_HOME to the folder of Java 17 or later, the one above bin/java, or unset it to use java of PATH."
        )
        raise SparkUnavailable(reason=f"JAVA_HOME is {home}, where there is no bin/java", fix=fix)


def _start_session() -> SparkSession:
    import pyspark

    absolute_path(os.curdir)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    if "SPARK_REMOTE" in os.environ:
        return builder.getOrCreate()
    _ensure_java_home()
    master = os.environ.get("MASTER", "local[*]")
    builder = builder.master(master)
    on_local_disk = stream_settings(pyspark.__version__) if master.startswith("local") else {}
    chosen = _names_in_defaults_file()
    for key, value in {**_SETTINGS, **on_local_disk}.items():
        if key not in chosen:
            builder = builder.config(key, value)
    with without_usual_lines():
        try:
            return builder.getOrCreate()
        except BaseException as error:
            _end_java(error)
            raise


def _end_java(error: BaseException) -> None:
    """End a process that the raising functions have started, if it still belongs to them alone.

    An interrupted PySpark deletes the folder where Java is to write its port. Java then fails to, and does not look
    at its standard input, whose end would tell it to exit: the thread of its server keeps it alive for ever.

    Source: Spark's PythonGatewayServer, and its launch_gateway in Python, which has the process in a local variable
    """
    for frame, _ in walk_tb(error.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, Popen) and value.pid:  # none before the fork
                value.kill()
                value.wait()


def _names_in_defaults_file() -> set[str]:
    """Return the settings in the user's ``spark-defaults.conf``. Spark would prefer the settings of the builder."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf")
    try:
        with open(os.path.join(folder, "spark-defaults.conf"), encoding="utf-8") as file:
            return {match[1] for line in file if (match := _SETTING.match(line))}
    except OSError:
        return set()


_SETTING = re.compile(r"\s*(spark\.[^\s=:]+)")
"""A line of a Java properties file; comments begin with # or !."""


# What Java writes to stderr while Widen starts Spark: without the lines that every start has.
#
# The lines come before Spark reads any setting, so that none turns them off. Everything else goes on to stderr,
# during the start and afterwards, as long as Java runs.


_STDERR = 2

_USUAL = re.compile(
    rb"WARNING: Using incubator modules: .*"
    rb"|Using Spark's default log4j profile: .*"
    rb'|Setting (?:default|Spark) log level to "\w+"\.'
    rb"|To adjust logging level use .*"
    rb"|[\d/]+ [\d:]+ WARN NativeCodeLoader: .*"
)
"""The lines of every start of a Spark that has no logging configuration of its own."""

_END_SECONDS = 2.0
"""How long to wait for the last lines of a Java that did not start."""


@contextmanager
def without_usual_lines() -> Iterator[None]:
    """Leave out the usual lines of the Java process that the block starts.

    Java keeps the stderr that it gets here; this process has its own again after the block.
    """
    try:
        shown = os.dup(_STDERR)
    except OSError:  # a process without stderr
        yield
        return
    read_end, write_end = os.pipe()
    os.dup2(write_end, _STDERR)
    os.close(write_end)
    reader = Thread(target=_forward, args=(read_end, shown), name="widen-java-stderr", daemon=True)
    reader.start()
    has_started = False
    try:
        yield
        has_started = True
    finally:
        os.dup2(shown, _STDERR)
        if not has_started:
            reader.join(_END_SECONDS)


def _forward(read_end: int, shown: int) -> None:
    with open(read_end, "rb") as lines, open(shown, "wb", buffering=0) as stderr:
        for line in lines:
            if not _USUAL.fullmatch(line.rstrip(b"\r\n")):
                stderr.write(line)


# How far the running jobs of a session are, from what Spark offers in public: a status tracker, or progress events.
#
# A classic session has its context's status tracker, which knows tasks. A Spark Connect session reports tasks and bytes
# to registered handlers. If neither works, nothing is reported and the work goes on.
#
# Source: Spark's status tracker, and the progress handlers of Spark Connect


POLL_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The tasks of the running jobs: how many are done, and how many there are."""

    done_tasks: int
    tasks: int


@contextmanager
def watch_jobs(spark: SparkSession, report: Callable[[JobProgress], object]) -> Iterator[None]:
    """Report the progress of the jobs that run while this is open.

    Args:
        report: Called from another thread.
    """
    tracker = _status_tracker(spark)
    if tracker is None:
        with _handle_progress(spark, report):
            yield
        return
    stop = Event()
    thread = Thread(target=_poll, args=(tracker, report, stop), name="widen-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _status_tracker(spark: SparkSession) -> Any:
    try:
        return spark.sparkContext.statusTracker()
    except _unavailable():
        return None


def _unavailable() -> tuple[type[Exception], ...]:
    """Return what a session raises that lacks a function, or has ended."""
    return *spark_errors(), AttributeError, OSError


def _poll(tracker: Any, report: Callable[[JobProgress], object], stop: Event) -> None:
    while not stop.wait(POLL_SECONDS):
        try:
            counts = list(_task_counts(tracker))
        except _unavailable():  # only the display ends
            return
        _report_sum(counts, report)


def _task_counts(tracker: Any) -> Iterator[tuple[int, int]]:
    """Yield the done tasks and all tasks of each stage of the running jobs that has started."""
    for job in tracker.getActiveJobsIds():
        info = tracker.getJobInfo(job)
        for stage in (tracker.getStageInfo(number) for number in (info.stageIds if info else ())):
            if stage is not None:
                yield stage.numCompletedTasks, stage.numTasks


def _report_sum(counts: Iterable[tuple[int, int]], report: Callable[[JobProgress], object]) -> None:
    sums = [sum(numbers) for numbers in zip(*counts, strict=True)]
    if sums and sums[1]:
        report(JobProgress(sums[0], sums[1]))


@contextmanager
def _handle_progress(spark: Any, report: Callable[[JobProgress], object]) -> Iterator[None]:
    def handle(stages: Any, **_: Any) -> None:
        if stages:
            _report_sum([(stage.num_completed_tasks, stage.num_tasks) for stage in stages], report)

    try:
        spark.registerProgressHandler(handle)
    except _unavailable():
        yield
        return
    try:
        yield
    finally:
        with ignore_failed_cleanup():
            spark.removeProgressHandler(handle)


# The settings of a session that Delta Lake defines for writes and new tables.
#
# Source: Delta Spark's configuration of schema evolution


AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"
"""Whether writes may add columns to tables."""

AUTOMATIC_WIDENING = "spark.databricks.delta.typeWidening.allowAutomaticWidening"
"""Which types such writes may widen."""

FAST_DROP = "spark.databricks.delta.tableFeatures.fastDropFeature.enabled"
"""Whether a feature may be dropped while older versions still use it."""

RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
"""Whether a vacuum refuses a shorter retention than the table's."""

PROPERTY_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""The prefix of the settings for the default properties of new tables."""

_NOT_FROM_SETTINGS = frozenset({"delta.minReaderVersion", "delta.minWriterVersion"})
"""The properties that follow from the features of a new table; settings do not change them."""


def default_properties(spark: SparkSession | None) -> dict[str, str]:
    """Return the default properties of new tables, which the commands that create them may override.

    Settings for unknown properties are ignored, as in Delta Lake.

    Args:
        spark: The session; without one, there are no defaults.

    Source: Delta Lake's settings of that name
    """
    settings = {} if spark is None else dict(spark.conf.getAll)
    defaults = {
        canonical_key("delta." + key.removeprefix(PROPERTY_DEFAULTS)): str(value)
        for key, value in settings.items()
        if key.startswith(PROPERTY_DEFAULTS)
    }
    return {key: value for key, value in defaults.items() if _is_default(key)}


def _is_default(key: str) -> bool:
    return key not in _NOT_FROM_SETTINGS and (is_property(key) or key.startswith(FEATURE_PREFIX))


def schema_evolution_settings(
    spark: SparkSession, merge_schema: bool | None, widening: str | None
) -> tuple[bool, AutomaticWidening]:
    """Return whether a write may add columns to the table, and which types it may widen.

    Args:
        merge_schema: Whether the write may add columns; by default the session decides.
        widening: The name of the widening mode; by default the session decides.
    """
    can_add_columns = (
        str(spark.conf.get(AUTO_MERGE, "false")).lower() == "true" if merge_schema is None else merge_schema
    )
    mode = str(spark.conf.get(AUTOMATIC_WIDENING, "always")) if widening is None else widening
    return can_add_columns, parse_automatic_widening(mode)


def is_setting_on(spark: SparkSession | None, setting: str) -> bool:
    """Return whether a setting that is true by default is true in a session, or in the active one; starts none."""
    active = spark or find_active()
    return active is None or str(active.conf.get(setting, "true")).lower() != "false"


# The storage options of a table as options of Spark's readers and writers, which pass them on to Hadoop.
#
# So one set of options serves the log and the data files, and the session needs no credentials. They are set for
# the bucket of the table alone, and win over settings of the session.
#
# Source: docs/guide/cluster.md#object-stores


_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
_PREFIX = "aws_"


def _flag(text: str) -> bool:
    return text.lower() in ("true", "1", "yes", "on", "y")


_TEXTS: Mapping[str, str] = {
    "access_key_id": "access.key",
    "secret_access_key": "secret.key",
    "session_token": "session.token",
    "token": "session.token",
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "region": "endpoint.region",
    "default_region": "endpoint.region",
}
"""Options of object_store, without the prefix, with the settings of S3A that have the same values."""

_FLAGS: Mapping[str, tuple[str, Callable[[bool], str | None]]] = {
    "virtual_hosted_style_request": ("path.style.access", lambda is_on: "false" if is_on else "true"),
    "skip_signature": ("aws.credentials.provider", lambda is_on: _ANONYMOUS if is_on else None),
}
"""Switches of object_store with the settings of S3A and their values."""


def hadoop_options(store: LogStore) -> dict[str, str]:
    """Return the options that Spark needs to read and write the files of a table.

    Args:
        store: The store of the table. Only S3 has such options; Azure and Google need settings of the session.
    """
    parts = urlsplit(store.location)
    if parts.scheme != "s3" or not store.storage_options:
        return {}
    settings: dict[str, str] = {}
    for key, value in store.storage_options.items():
        name = key.lower().removeprefix(_PREFIX)
        if name in _TEXTS:
            settings[_TEXTS[name]] = str(value)
        elif name in _FLAGS:
            setting, to_value = _FLAGS[name]
            mapped = to_value(_flag(str(value)))
            settings |= {} if mapped is None else {setting: mapped}
    if "endpoint" in settings:  # object_store addresses buckets of other servers by path
        settings.setdefault("path.style.access", "true")
        settings["connection.ssl.enabled"] = "false" if settings["endpoint"].startswith("http://") else "true"
    if "access.key" in settings:  # without this, S3A would look for credentials elsewhere first
        kind = "Temporary" if "session.token" in settings else "Simple"
        settings["aws.credentials.provider"] = f"org.apache.hadoop.fs.s3a.{kind}AWSCredentialsProvider"
    return {f"fs.s3a.bucket.{parts.netloc}.{name}": value for name, value in settings.items()}


def options_of_files(uris: Iterable[str], properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options that Spark needs to read files of an Iceberg table, which may be in several buckets."""
    from widen.iceberg.catalog import open_store

    buckets = {f"s3://{parts.netloc}" for uri in uris if (parts := urlsplit(uri)).scheme in _S3}
    stores = (open_store(bucket, properties) for bucket in sorted(buckets))
    return {name: value for store in stores for name, value in hadoop_options(store).items()}


def with_own_client(uris: Sequence[str], options: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return locations and options that make Spark use these options and no others.

    Hadoop keeps a client for each scheme and bucket, with the credentials that it got first. So locations have a scheme
    of their own if the credentials expire: the client would go on with expired ones, or with another table's.
    """
    if not any(name.endswith(".session.token") for name in options):
        return list(uris), dict(options)
    scheme = f"s3a{sha256(repr(sorted(options.items())).encode()).hexdigest()[:16]}"
    own = [f"{scheme}:{uri.partition(':')[2]}" if uri.partition(":")[0] in _S3 else uri for uri in uris]
    return own, {**options, f"fs.{scheme}.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}


def with_store_settings(
    spark: SparkSession, places: Iterable[str], storage_options: Mapping[str, str] | None
) -> SparkSession:
    """Return a session that opens places in S3 with storage options, which a checkpoint takes from its session alone.

    The session is a new one with the settings of the given one, which is left as it is. With Spark Connect, and
    without a place in S3, the given one is returned.
    """
    store_settings: dict[str, str] = {}
    for place in places:
        if storage_options and urlsplit(place).scheme in _S3:
            store_settings |= hadoop_options(LogStore(place, storage_options))
    if not store_settings or not is_driver(spark):
        return spark
    session = spark.newSession()
    given = {key: value for key, value in spark.conf.getAll.items() if spark.conf.isModifiable(key)}
    for key, value in {**given, **store_settings, "fs.s3.impl": _S3A}.items():
        session.conf.set(key, value)
    return session


_S3 = ("s3", "s3a")
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
"""Hadoop itself knows ``s3a`` only."""


# Session settings that jobs of Widen need, regardless of the user's settings.
#
# Data files are read and written in Parquet's calendar, and a file that cannot be read is an error.
#
# Source: Spark's settings of datetimeRebaseMode, int96RebaseMode, ignoreMissingFiles and ignoreCorruptFiles


class PinnedSettings:
    """Settings that Spark reads only from the session, not from options of a job.

    Counts the jobs of each session that need them, so that the last one to end restores what the user has set.

    Args:
        values: The values that the jobs need.
        defaults: Spark's values where they are not set.
    """

    def __init__(self, values: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        self._values = values
        self._defaults = defaults
        self._lock = threading.Lock()
        self._open: dict[int, tuple[int, dict[str, str]]] = {}

    @contextmanager
    def pin(self, spark: SparkSession) -> Iterator[None]:
        """Override the settings of a session while this is open."""
        self._begin(spark)
        try:
            yield
        finally:
            with ignore_failed_cleanup():
                self._end(spark)

    def _begin(self, spark: SparkSession) -> None:
        with self._lock:
            count, overridden = self._open.get(id(spark), (0, {}))
            for key, needed in () if count else self._values.items():
                value = spark.conf.get(key, self._defaults[key])
                if value and value.upper() != needed.upper():
                    overridden[key] = value
                    spark.conf.set(key, needed)
            self._open[id(spark)] = (count + 1, overridden)

    def _end(self, spark: SparkSession) -> None:
        with self._lock:
            count, overridden = self._open.pop(id(spark))
            if count > 1:
                self._open[id(spark)] = (count - 1, overridden)
                return
            for key, value in overridden.items():
                spark.conf.set(key, value)


_PLAN_CACHE = "spark.connect.session.planCache.enabled"
_uncached = PinnedSettings({_PLAN_CACHE: "false"}, {_PLAN_CACHE: "true"})


def observable_jobs(spark: SparkSession) -> AbstractContextManager[None]:
    """Make jobs return their observations while this is open.

    A server of Spark Connect 4.0 returns none for a frame whose columns a client has asked for: it runs the plan that
    it has analyzed for that and cached.
    """
    return nullcontext() if is_driver(spark) or not spark.version.startswith("4.0.") else _uncached.pin(spark)


SKIP_NO_FILE: Mapping[str, str] = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # Nearly all writers of Parquet store a checksum of each page, and few readers look at it by default: a flipped bit
    # in an integer is another integer.
    "parquet.page.verify-checksum.enabled": "true",
}
"""Options of Spark's readers that make a missing or damaged file an error, regardless of the session.

An ingestion that skipped a file would record it as loaded, and a change of a table would commit the loss of its rows.
"""

READ_OPTIONS: Mapping[str, str] = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    **SKIP_NO_FILE,
}
"""The options of Spark's reader for data files. A footer that names another calendar takes precedence."""

_WRITE_SETTINGS = {f"spark.sql.parquet.{kind}RebaseModeInWrite": "CORRECTED" for kind in ("datetime", "int96")}
_proleptic = PinnedSettings(_WRITE_SETTINGS, _WRITE_SETTINGS)


def proleptic_writes(spark: SparkSession) -> AbstractContextManager[None]:
    """Make Spark write files in Parquet's calendar while this is open."""
    return _proleptic.pin(spark)
