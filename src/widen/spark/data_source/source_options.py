"""The options of the data source: what ``spark.read``, ``readStream``, ``write`` and ``writeStream`` may be given.

Source: Delta Lake's options of readers and writers, by the same names
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from widen.errors import InvalidOption
from widen.log.store.log_store import LogStore

_READS = ("versionAsOf", "timestampAsOf", "readChangeFeed", "startingVersion", "startingTimestamp")
_READS_BATCH = ("endingVersion", "endingTimestamp")
_READS_STREAM = ("maxFilesPerTrigger", "maxBytesPerTrigger", "ignoreDeletes", "skipChangeCommits")
_WRITES = ("mergeSchema", "widening", "partitionBy")
_SPARK = ("path", "checkpointLocation")
_NAMES = (*_READS, *_READS_BATCH, *_READS_STREAM, *_WRITES, *_SPARK)
_STORE = ("aws_", "google_", "azure_", "allow_http", "timeout", "connect_timeout", "proxy_url")
"""How the names of storage options begin."""

_PROPERTY = "delta."
"""How the names of table properties begin; they apply to a table that a write creates."""

_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class SourceOptions:
    """The options of one read or write. Names are not case-sensitive.

    Args:
        given: The options by their names in lower case.
    """

    given: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """Return an option; None if it is not given."""
        return self.given.get(name.lower())

    def flag(self, name: str) -> bool:
        """Return an option that is true or false, by default false.

        Raises:
            InvalidOption: it is neither.
        """
        text = self.text(name) or "false"
        if text.lower() not in _BOOLEANS:
            raise InvalidOption(option=name, value=text, expected="Must be true or false.")
        return _BOOLEANS[text.lower()]

    def number(self, name: str, least: int = 0) -> int | None:
        """Return an option that is an integer; None if it is not given.

        Raises:
            InvalidOption: it is not an integer, or too small.
        """
        text = self.text(name)
        if text is not None and (not text.isdecimal() or int(text) < least):
            raise InvalidOption(option=name, value=text, expected=f"Must be an integer >= {least}.")
        return None if text is None else int(text)

    @property
    def partition_by(self) -> list[str]:
        """The partition columns of a table that a write creates."""
        names = (self.text("partitionBy") or "").split(",")
        return [name.strip() for name in names if name.strip()]

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a table that a write creates."""
        return {name: value for name, value in self.given.items() if name.startswith(_PROPERTY)}

    def open_store(self) -> LogStore:
        """Return the store of the table.

        Raises:
            InvalidOption: no path is given, or its scheme is unknown.
        """
        path = self.text("path")
        if not path:
            raise InvalidOption(option="path", value=path, expected="Give the location of the table, e.g. in load().")
        return LogStore(path, {name: value for name, value in self.given.items() if name.startswith(_STORE)})


def parse_source_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the options of a read or write.

    Raises:
        InvalidOption: a name is unknown, or two options exclude each other.
    """
    options = SourceOptions({name.lower(): value for name, value in given.items()})
    valid_names = {name.lower() for name in _NAMES}
    for name in options.given:
        if name not in valid_names and not name.startswith((_PROPERTY, *_STORE)):
            expected = f"Must be one of {', '.join(_NAMES)}, a table property, or a storage option such as "
            raise InvalidOption(option="an option", value=name, expected=f"{expected}AWS_ACCESS_KEY_ID.")
    for kind in ("AsOf", "starting", "ending"):
        pair = ("versionAsOf", "timestampAsOf") if kind == "AsOf" else (f"{kind}Version", f"{kind}Timestamp")
        if all(options.text(name) is not None for name in pair):
            expected = f"Give {pair[0]} or {pair[1]}, not both."
            raise InvalidOption(option=pair[1], value=options.text(pair[1]), expected=expected)
    return options
