"""Iceberg catalogs: one of PyIceberg's configuration, one that the caller opened, or one embedded in a file.

Source: PyIceberg: ``Configuration``, ``SQL Catalog``.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import field
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from threading import RLock
from time import monotonic, time
from typing import TYPE_CHECKING, Any, TypeAlias

from widen.errors import (
    CatalogError,
    CatalogNotFound,
    CatalogRefused,
    DroppedColumnType,
    IcebergTableNotFound,
    IcebergUnavailable,
    InvalidOption,
    UnsupportedColumnType,
    UnsupportedFeatureForRead,
    WidenError,
)
from widen.errors.tables import first_line
from widen.iceberg.metadata_files import ensure_metadata_consistent, ensure_regular, translate_file_errors
from widen.iceberg.row_ids import with_row_id_metadata
from widen.log.local_files import absolute_path
from widen.log.log_store import LogStore, percent_encode
from widen.model.column_path import format_path
from widen.model.lazy_module import import_lazily
from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    import sqlite3

    import sqlalchemy as sql
    from pyiceberg import catalog as iceberg_catalog
    from pyiceberg import exceptions as iceberg_errors
    from pyiceberg.catalog import sql as sql_catalog
    from pyiceberg.io import FileIO as FileIO
    from pyiceberg.table import Table as Table
    from sqlalchemy import orm as sql_orm
    from sqlalchemy.engine import url as sql_urls
else:
    iceberg_catalog = import_lazily("pyiceberg.catalog")
    iceberg_errors = import_lazily("pyiceberg.exceptions")
    sql_catalog = import_lazily("pyiceberg.catalog.sql")
    sqlite3 = import_lazily("sqlite3")
    sql = import_lazily("sqlalchemy")
    sql_orm = import_lazily("sqlalchemy.orm")
    sql_urls = import_lazily("sqlalchemy.engine.url")


CatalogSource: TypeAlias = str | os.PathLike[str] | Any
"""The name of a catalog in PyIceberg's configuration, a file NAME.db, or an open PyIceberg catalog."""

EMBEDDED_SUFFIX = ".db"
"""The end of the file names of embedded catalogs."""

EMBEDDED_NAME = "default"
"""The name of an embedded catalog in its file, which is PyIceberg's default for a catalog."""

_WAREHOUSE = "_warehouse"
_NO_URI = "the configuration of PyIceberg has no URI for it"
_SQLITE_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class CatalogReference:
    """A catalog that is opened on first use. Picklable: the copy opens the catalog again.

    Args:
        source: The name of a catalog in PyIceberg's configuration, or the absolute path of an embedded catalog;
            None for a catalog that the caller opened.
        kind: The class of a catalog that the caller opened, else None.
    """

    source: str | None
    kind: type[Any] | None = None
    name: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    def __str__(self) -> str:
        return self.source or self.name

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_opened"}

    @property
    def is_embedded(self) -> bool:
        """Whether the catalog is embedded: a single file."""
        return self.source is not None and self.source.endswith(EMBEDDED_SUFFIX)

    @property
    def is_missing(self) -> bool:
        """Whether the catalog is embedded, and its file does not exist yet; to open it would create the file."""
        return self.is_embedded and "_opened" not in vars(self) and not os.path.exists(self.source or "")

    def open(self) -> iceberg_catalog.Catalog:
        """Return the catalog; an embedded one is created if it does not exist."""
        # The open catalog is not a field, so that it is neither compared nor pickled.
        opened = vars(self).get("_opened")
        if opened is None:
            opened = with_row_id_metadata(self._open())
            vars(self)["_opened"] = opened
        return opened

    def _open(self) -> iceberg_catalog.Catalog:
        if find_spec("pyiceberg") is None:
            raise IcebergUnavailable(reason="it is not installed")
        with translate_catalog_errors(str(self)):
            if self.kind is not None:
                return self.kind(self.name, **self.properties)  # type: ignore[no-any-return]
            assert self.source is not None
            if self.is_embedded:
                return _after_races(partial(_open_embedded, self.source))
            try:
                return _after_races(partial(iceberg_catalog.load_catalog, self.source))
            except ValueError as error:
                # PyIceberg's own text names an option of its command line.
                reason = _NO_URI if str(error).startswith("URI missing") else first_line(error)
                raise CatalogNotFound(catalog=self.source, reason=reason) from error


def _after_races(open_catalog: Callable[[], iceberg_catalog.Catalog]) -> iceberg_catalog.Catalog:
    """Return a catalog whose tables several processes may create at the same time, each in a transaction of its own."""
    for _ in range(_CREATED_TABLES):
        try:
            return open_catalog()
        except Exception as error:  # an error of any database driver
            if "already exists" not in str(error):
                raise
    return open_catalog()


_CREATED_TABLES = 2
"""How many tables PyIceberg creates for a catalog in a database."""


def to_catalog(source: CatalogSource) -> CatalogReference:
    """Return the reference to a catalog; nothing is opened yet.

    Args:
        source: The name of a catalog in PyIceberg's configuration; a path that ends in ``.db`` for an embedded
            catalog, which is created if it does not exist; or an open PyIceberg catalog.

    Raises:
        InvalidOption: it is not one of these.
        CatalogNotFound: the path is a directory, a pipe or a device.
    """
    if isinstance(source, CatalogReference):
        return source
    if isinstance(source, (str, os.PathLike)):
        text = os.fspath(source)
        if not text.endswith(EMBEDDED_SUFFIX):
            return CatalogReference(text)
        # SQLite would wait for ever for the other end of a pipe.
        if os.path.exists(text) and not os.path.isfile(text):
            raise CatalogNotFound(catalog=text, reason="it is not a regular file")
        return CatalogReference(absolute_path(text))
    # By its method: an instance check would import PyIceberg.
    if not hasattr(type(source), "load_table"):
        expected = "Must be the name of a catalog, a path that ends in .db, or a PyIceberg catalog."
        raise InvalidOption(option="catalog", value=source, expected=expected)
    reference = CatalogReference(None, type(source), source.name, dict(source.properties))
    vars(reference)["_opened"] = with_row_id_metadata(source)
    return reference


def _open_embedded(path: str) -> iceberg_catalog.Catalog:
    """Return the catalog in a SQLite file. Its warehouse is the folder beside it."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    warehouse = file.with_name(file.stem + _WAREHOUSE)
    uri = sql_urls.URL.create("sqlite", database=path, query={"timeout": str(_SQLITE_TIMEOUT_SECONDS)})
    # Iceberg's clients do not decode a location, but PyIceberg cuts a URL off at these characters.
    location = str(warehouse) if set("#?") & set(path) else f"file://{warehouse}"
    return sql_catalog.SqlCatalog(_embedded_name(path), uri=uri.render_as_string(), warehouse=location)


def _embedded_name(path: str) -> str:
    """Return the name of the catalog whose tables a SQLite file has: the only one in it, else the default."""
    if not os.path.exists(path):
        return EMBEDDED_NAME
    if not os.path.isfile(path):  # SQLite would wait for a pipe
        raise CatalogNotFound(catalog=path, reason="it is not a file")
    query = "SELECT catalog_name FROM iceberg_tables UNION SELECT catalog_name FROM iceberg_namespace_properties"
    try:
        with closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)) as connection:
            names = {name for (name,) in connection.execute(query)}
    except sqlite3.OperationalError:  # a file without these tables is a new catalog
        return EMBEDDED_NAME
    except UnicodeDecodeError as error:
        raise CatalogNotFound(catalog=path, reason="the name of a catalog in it is damaged") from error
    except sqlite3.DatabaseError as error:
        raise CatalogNotFound(catalog=path, reason=f"the file is not a SQLite database ({error})") from error
    if len(names) > 1 and EMBEDDED_NAME not in names:
        reason = f"the file has more than one catalog: {', '.join(sorted(names))}"
        raise CatalogNotFound(catalog=path, reason=reason)
    return EMBEDDED_NAME if EMBEDDED_NAME in names or not names else names.pop()


# ---- tables and namespaces ------------------------------------------------------------------------


@dataclass(frozen=True)
class TableName:
    """The name of a table in a catalog.

    Args:
        identifier: The parts of the namespace, and the name.
    """

    catalog: CatalogReference
    identifier: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.identifier)

    @property
    def namespace(self) -> tuple[str, ...]:
        """The parts of the namespace."""
        return self.identifier[:-1]

    def sibling(self, suffix: str) -> TableName:
        """Return the table in the same namespace with a suffix at its name."""
        return TableName(self.catalog, (*self.namespace, self.identifier[-1] + suffix))

    def load(self) -> Table:
        """Return the newest version of the table."""
        if self.catalog.is_missing:
            raise self.not_found()
        catalog = self.catalog.open()
        with translate_catalog_errors(str(self)):
            path = _metadata_file(catalog, self.identifier)
            read = None if path is None else partial(_read_json, catalog, path)
            try:
                with (
                    nullcontext() if path is None else _translate_metadata_errors(path),
                    _translate_type_errors(str(self), read),
                ):
                    if path is not None:
                        ensure_regular(path)
                    table = catalog.load_table(self.identifier)
            except (iceberg_errors.NoSuchTableError, iceberg_errors.NoSuchNamespaceError) as error:
                raise self.not_found() from error
            ensure_metadata_consistent(table.metadata, table.metadata_location, _METADATA_FIX)
            table.io = with_renewal(table.io, catalog.properties, self._load_io)
            return table

    def _load_io(self) -> FileIO:
        with translate_catalog_errors(str(self)):
            return self.catalog.open().load_table(self.identifier).io

    def not_found(self) -> IcebergTableNotFound:
        """Return the error for a table that the catalog does not have."""
        reason = "does not exist" if self.catalog.is_missing else "does not have it"
        return IcebergTableNotFound(location=str(self), reason=f"the catalog {self.catalog} {reason}")

    def find(self) -> Table | None:
        """Return the newest version of the table, or None if the catalog does not have it."""
        try:
            return self.load()
        except IcebergTableNotFound:
            return None

    def create_namespace(self) -> None:
        """Create the namespace of the table, with those above it, unless they exist.

        Raises:
            InvalidOption: a part of the namespace is a table.
        """
        catalog = self.catalog.open()
        with translate_catalog_errors(str(self)):
            if catalog.namespace_exists(self.namespace):
                return
            for length in range(1, len(self.namespace) + 1):
                part = self.namespace[:length]
                if length > 1 and catalog.table_exists(part):
                    expected = f"{'.'.join(part)} is a table, so it cannot hold tables. Choose another name."
                    raise InvalidOption(option="into", value=str(self), expected=expected)
                _create_namespace(catalog, part)


_METADATA_FIX = "Restore the file from a backup, or register an older metadata file of the table in the catalog."


def _metadata_file(catalog: iceberg_catalog.Catalog, identifier: tuple[str, ...]) -> str | None:
    """Return the location of the metadata of a table, if the catalog reads a file that an error can name."""
    if not isinstance(catalog, sql_catalog.SqlCatalog):
        return None
    tables = sql_catalog.IcebergTables
    query = sql.select(tables.metadata_location).where(
        tables.catalog_name == catalog.name,
        tables.table_namespace == ".".join(identifier[:-1]),
        tables.table_name == identifier[-1],
    )
    with sql_orm.Session(catalog.engine) as session:
        return session.scalar(query)


def _create_namespace(catalog: iceberg_catalog.Catalog, name: tuple[str, ...]) -> None:
    try:
        catalog.create_namespace_if_not_exists(name)
    except Exception:  # an error of any catalog, also if another process was first
        if not catalog.namespace_exists(name):
            raise


@contextmanager
def _translate_metadata_errors(path: str) -> Iterator[None]:
    """Translate what is wrong with a metadata file; errors of the catalog itself stay as they are."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith(("sqlalchemy", "sqlite3", "pyiceberg.exceptions")) and not isinstance(
            error, iceberg_errors.ValidationError
        ):
            raise
        with translate_file_errors(path, _METADATA_FIX):
            raise


@contextmanager
def _translate_type_errors(table: str, read: Callable[[], Any] | None) -> Iterator[None]:
    """Name the column of a type that PyIceberg does not know, e.g. variant; its own error has a position at most.

    Args:
        read: Reads the metadata as JSON; None if the catalog has sent it, and nobody has kept it.

    Raises:
        UnsupportedColumnType: a column has such a type, or a default that PyIceberg cannot read.
        UnsupportedFeatureForRead: the table is partitioned or sorted by a transform of several columns.
        DroppedColumnType: a column of an older schema has such a type.
    """
    try:
        yield
    except Exception as error:
        # PyIceberg raises an error of pydantic's, or one of its own with that as its cause.
        details: Any = next(
            filter(callable, (getattr(each, "errors", None) for each in (error, error.__cause__))), None
        )
        found = [] if details is None else details()
        types = [(str(each["input"]), each["loc"]) for each in found if _UNKNOWN_TYPE.search(str(each.get("msg")))]
        default, unparsed = _NO_DEFAULT.search(str(error)), _NOT_PARSED.search(str(error))
        if _SEVERAL_COLUMNS in str(error):
            features = "partitions or sort orders by a transform of several columns"
            raise UnsupportedFeatureForRead(verb="read", location=table, features=features) from error
        if not types and default is None and unparsed is None:
            raise
        metadata = None if read is None else read()
        if unparsed is not None:
            types += [(unparsed[1], place) for place in _places_of(metadata, unparsed[1])] or [(unparsed[1], ())]
        # The first schemas are the oldest ones: a column that the table still has is named before a dropped one.
        data_type, place = next((each for each in types if _is_current(metadata, each[1])), (None, ()))
        if data_type is not None:
            column, reason = _name_at(metadata, place), _NO_TYPE
        elif types:
            data_type, place = types[0]
            raise DroppedColumnType(location=table, column=_name_at(metadata, place), type=data_type) from error
        else:
            assert default is not None
            data_type, reason = default[1], _NO_TYPE_OF_DEFAULT
            column = _name_at(metadata, next(_places_with_default(metadata, data_type), ()))
        raise UnsupportedColumnType(column=column, type=data_type, reason=reason.format(table=table)) from error


_UNKNOWN_TYPE = re.compile("Unsupported field type|Type not recognized")
_NO_DEFAULT = re.compile(r"Cannot deserialize bytes, type (.+?) not supported: ")
_NOT_PARSED = re.compile(r"Could not parse (.+) into a Geo\w+Type")
_SEVERAL_COLUMNS = "Multi argument transforms are not yet supported"
_NO_TYPE = "PyIceberg, which reads the metadata of {table}, does not have it"
_NO_TYPE_OF_DEFAULT = "PyIceberg, which reads the metadata of {table}, cannot read the default of such a column"


def _is_current(metadata: Any, place: Sequence[str | int]) -> bool:
    """Return whether a place in table metadata is in the current schema."""
    numbers = [step for before, step in pairwise(place) if before == "schemas" and isinstance(step, int)]
    if not numbers or not isinstance(metadata, Mapping):
        return True
    return bool(metadata["schemas"][numbers[0]].get("schema-id") == metadata.get("current-schema-id"))


def _places_of(value: Any, data_type: str, place: tuple[str | int, ...] = ()) -> Iterator[Sequence[str | int]]:
    """Yield the locations of types with this text in table metadata."""
    if value == data_type:
        yield place
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in items:
        yield from _places_of(inner, data_type, (*place, step))


def _places_with_default(
    value: Any, data_type: str, place: tuple[str | int, ...] = ()
) -> Iterator[Sequence[str | int]]:
    """Yield the locations of fields that have a type and a default in table metadata."""
    if isinstance(value, Mapping):
        kind = value.get("type")
        # PyIceberg spells nested types in a way of its own, e.g. struct<2: x: optional int>.
        is_same = kind == data_type or (isinstance(kind, Mapping) and kind.get("type") == data_type.partition("<")[0])
        if is_same and not {"initial-default", "write-default"}.isdisjoint(value):
            yield place
        value = value.items()
    elif isinstance(value, list):
        value = enumerate(value)
    else:
        return
    for step, inner in value:
        yield from _places_with_default(inner, data_type, (*place, step))


def _read_json(catalog: iceberg_catalog.Catalog, path: str) -> Any:
    with catalog._load_file_io(location=path).new_input(path).open() as stream:
        content = stream.read()
    return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


def _name_at(metadata: Any, place: Sequence[str | int]) -> str:
    """Return the path of the column at a place in table metadata, or its position if the metadata are not known."""
    names, value = [], metadata
    for step in place:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
            if isinstance(value, Mapping) and "name" in value:
                names.append(str(value["name"]))
    positions = [f"number {step + 1}" for step in place[-2:] if isinstance(step, int)]
    return format_path(tuple(names)) if names else " ".join(positions) or "of an unknown name"


_UNUSABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters and halves of characters: some catalogs or stores of files refuse them only later."""


def to_table_name(name: str, catalog: CatalogSource) -> TableName:
    """Return a table in a catalog; nothing is opened yet.

    Raises:
        InvalidOption: the name lacks a namespace, has an empty part or unencodable characters, or `catalog` is not a
            catalog.
    """
    parts = tuple(name.split("."))
    if len(parts) < 2 or not all(part.strip() for part in parts) or _UNUSABLE.search(name):
        expected = "Must be a namespace and a name, e.g. shop.orders."
        raise InvalidOption(option="the table", value=name, expected=expected)
    return TableName(to_catalog(catalog), parts)


# ---- PyIceberg errors -----------------------------------------------------------------------------

_REFUSED = ("UnauthorizedError", "ForbiddenError", "OAuthError", "AuthorizationExpiredError", "BadRequestError")
_PERMISSION = "Check the credentials of the catalog and what they allow."
_CONNECTION = "Check the address and the state of the catalog, and repeat the call."


@contextmanager
def translate_catalog_errors(location: str) -> Iterator[None]:
    """Translate errors from PyIceberg and from the libraries that it uses.

    Conflicts and unknown outcomes of commits are handled in `widen.iceberg.table_commit`.

    Raises:
        IcebergUnavailable: a package that the catalog needs is not installed.
        CatalogRefused: the catalog refused the request.
        CatalogError: the catalog or its store reported another error.
    """
    try:
        yield
    except WidenError:
        raise
    except (ModuleNotFoundError, iceberg_errors.NotInstalledError) as error:
        raise IcebergUnavailable(reason=first_line(error)) from error
    except Exception as error:  # a catalog may raise errors of any library that it uses
        name = type(error).__name__
        reason = first_line(error) or name
        if "hierarchical namespaces" in reason:
            expected = "The namespaces of this catalog have one level: use a name like shop.orders."
            raise InvalidOption(option="the table", value=location, expected=expected) from error
        if name in _REFUSED or isinstance(error, PermissionError) or _is_access_denied(error) or _is_unknown(error):
            raise CatalogRefused(location=location, reason=reason, fix=_PERMISSION) from error
        raise CatalogError(location=location, reason=reason, fix=_CONNECTION) from error


def has_no_token(error: Exception) -> bool:
    """Return whether the server of tokens refused to give one, so that the request itself was not sent.

    PyIceberg translates the answers of the catalog, but not the answers of that server.
    """
    return type(error).__name__ == "HTTPError" and type(error).__module__ == "requests.exceptions"


def _is_unknown(error: Exception) -> bool:
    """Return whether the server of tokens does not know the credentials."""
    return has_no_token(error) and getattr(getattr(error, "response", None), "status_code", None) in (400, 401, 403)


def _is_access_denied(error: Exception) -> bool:
    """Return whether AWS denied access; its client raises one class for everything, with a code."""
    response = getattr(error, "response", None)  # None or an object in the errors of other HTTP clients
    code = response.get("Error", {}).get("Code", "") if isinstance(response, Mapping) else ""
    return code in ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")


# The store of the files of a table, with the settings of its PyIceberg FileIO: it needs no second configuration.
#
# Source: PyIceberg: ``FileIO``.


NAMES: Mapping[str, str] = {
    "s3.endpoint": "aws_endpoint",
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
    "client.access-key-id": "aws_access_key_id",
    "client.secret-access-key": "aws_secret_access_key",
    "client.session-token": "aws_session_token",
    "client.region": "aws_region",
    "gcs.oauth2.token": "google_bearer_token",
    "adls.account-name": "azure_storage_account_name",
    "adls.account-key": "azure_storage_account_key",
    "adls.sas-token": "azure_storage_sas_token",
    "adls.tenant-id": "azure_storage_tenant_id",
    "adls.client-id": "azure_storage_client_id",
    "adls.client-secret": "azure_storage_client_secret",
}
"""The setting of object_store for each setting of PyIceberg; the first one that is set wins."""


def open_store(location: str, access: FileIO | Mapping[str, str], given: Mapping[str, str] | None = None) -> LogStore:
    """Return the store below a location in Iceberg metadata.

    Args:
        location: The location. Iceberg's clients take it as it is, so ``%20`` does not stand for a space.
        access: The FileIO of the table, whose credentials the store renews as it does, or its properties.

    Raises:
        CatalogRefused: the catalog signs each request itself.
    """
    properties: Mapping[str, str] = access if isinstance(access, Mapping) else access.properties
    signs = properties.get("s3.signer") or properties.get("s3.remote-signing-enabled", "").lower() == "true"
    if signs and not any(name in properties for name in ("s3.access-key-id", "client.access-key-id")):
        raise CatalogRefused(location=location, reason=_REMOTE_SIGNING, fix=_VEND)
    place = percent_encode(location) if location.startswith("file:") else location
    if isinstance(access, Mapping):
        return LogStore(place, to_storage_options(properties, given))
    return LogStore(place, lambda: to_storage_options(access.properties, given))


_REMOTE_SIGNING = "the catalog signs each request to S3 itself (remote signing), which Widen does not support"
_VEND = (
    "Let the catalog vend credentials: header.X-Iceberg-Access-Delegation = vended-credentials in its configuration."
)


def to_storage_options(properties: Mapping[str, str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings of a store.

    Example:
        >>> to_storage_options({"s3.endpoint": "http://localhost:9000"})
        {'aws_endpoint': 'http://localhost:9000', 'aws_allow_http': 'true'}
        >>> to_storage_options({"s3.endpoint": "http://localhost:9000"}, {"AWS_ENDPOINT_URL": "https://s3.eu"})
        {'AWS_ENDPOINT_URL': 'https://s3.eu'}
    """
    options: dict[str, str] = {}
    for name, option in NAMES.items():
        if name in properties:
            options.setdefault(option, properties[name])
    given_settings = {_setting(name) for name in given or ()}
    options = {name: value for name, value in options.items() if _setting(name) not in given_settings}
    if options.get("aws_endpoint", "").startswith("http:") and "allow_http" not in given_settings:
        options["aws_allow_http"] = "true"
    return options | dict(given or {})


def _setting(name: str) -> str:
    """Return a name without its optional parts: object_store refuses two names of one setting."""
    return name.lower().removeprefix("aws_").removeprefix("default_").removesuffix("_url")


# ---- credentials that a catalog vends for a while --------------------------------------------------


def with_renewal(io: FileIO, own: Mapping[str, Any], load: Callable[[], FileIO]) -> FileIO:
    """Return the FileIO of a table; it asks the catalog again before the vended credentials expire.

    A job may take longer than they last. A copy, e.g. in a task, keeps the credentials that it was made with: it has no
    access to the catalog, and gets no credentials of the catalog itself.
    """
    is_vended = any(io.properties[name] != own.get(name) for name in NAMES.keys() & io.properties.keys())
    if not is_vended and _AUTH_MANAGER not in io.properties:
        return io
    return _renewed_io(type(io))(io, load if is_vended else None)  # type: ignore[no-any-return]


_AUTH_MANAGER = "auth.manager"
"""The property that PyIceberg uses to give a FileIO the client of the catalog's tokens."""


@cache
def _renewed_io(kind: type[Any]) -> type[Any]:
    """Return a subclass of a FileIO: PyIceberg asks for the class of a FileIO in its scans."""

    class Renewed(kind):  # type: ignore[misc]
        def __init__(self, io: Any, load: Callable[[], Any] | None) -> None:
            self._io, self._load, self._lock = io, load, RLock()
            self._lasts_seconds = _lasts_seconds(io.properties)
            self._given = monotonic()

        def __reduce__(self) -> tuple[Any, ...]:
            io = self._current()
            return type(io), ({name: value for name, value in io.properties.items() if name != _AUTH_MANAGER},)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._current(), name)

        @property
        def properties(self) -> Any:
            return self._current().properties

        def new_input(self, location: str) -> Any:
            return self._current().new_input(location)

        def new_output(self, location: str) -> Any:
            return self._current().new_output(location)

        def delete(self, location: Any) -> None:
            self._current().delete(location)

        def _current(self) -> Any:
            with self._lock:
                left = self._lasts_seconds - (monotonic() - self._given)
                if self._load is None or left >= min(_MARGIN_SECONDS, self._lasts_seconds / 2):
                    return self._io
                try:
                    self._io, self._given = self._load(), monotonic()
                    self._lasts_seconds = _lasts_seconds(self._io.properties)
                except WidenError:
                    if left <= 0:
                        raise
                return self._io

    return Renewed


def _lasts_seconds(properties: Mapping[str, Any]) -> float:
    """Return how long just vended credentials last; not all catalogs say it."""
    times = [value for key, value in properties.items() if _EXPIRES in key]
    known = [int(value) / 1000 - time() for value in times if str(value).isdecimal()]
    return min(known, default=_UNKNOWN_SECONDS)


_EXPIRES = "expires-at"
"""Part of the names of properties that hold the time when credentials expire, in ms:
``s3.session-token-expires-at-ms``, ``gcs.oauth2.token-expires-at``, ``adls.sas-token-expires-at-ms.ACCOUNT``."""

_MARGIN_SECONDS = 300
"""How long credentials still last when they are renewed; at most half of the time that they were vended for."""

_UNKNOWN_SECONDS = 900
"""How long credentials last that do not say it; AWS gives none for less."""
