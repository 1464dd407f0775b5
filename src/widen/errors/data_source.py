"""Spark's data source of Widen cannot read or write a table, or a stream of it must be started again."""

from __future__ import annotations

from widen.errors.family import RequestError


class DataSourceRefused(RequestError):
    """The data source cannot read or write a table; a method of Table can."""

    code = "WIDEN_DATA_SOURCE_REFUSED"
    template = "The data source widen cannot {verb} {location}: {reason}."
    hint = "{fix}"


class StreamRowsChanged(RequestError):
    """A version updated or deleted rows, which a stream of new rows cannot show."""

    code = "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
    template = "Version {version} of {location} updated or deleted rows, which a stream of new rows cannot show."
    hint = (
        "Read the changes with readChangeFeed. Or skip such versions, with all their rows, with skipChangeCommits; "
        "ignoreDeletes skips only versions that deleted rows and wrote none."
    )


class StreamColumnsChanged(RequestError):
    """The columns of the table changed while a stream was reading it."""

    code = "DELTA_SCHEMA_CHANGED_WITH_VERSION"
    template = "Version {version} of {location} changed the columns that the stream reads, {old}, to {new}."
    hint = (
        "Start the stream again with the same checkpoint. It continues at version {version}, in the new columns and "
        "types; all earlier rows were processed."
    )
