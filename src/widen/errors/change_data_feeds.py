"""Reading the changes between two versions failed.

Source: the error classes of Delta Spark's change data feed.
"""

from __future__ import annotations

from widen.errors.family import RequestError


class ChangeFeedRefused(RequestError):
    """The changes between two versions cannot be read, or not with the requested columns."""

    template = "Cannot read the changes from version {first} to {last}: {reason}."
    hint = "{fix}"


class ChangeFeedNotRecorded(ChangeFeedRefused):
    """The change data feed was disabled in one of the versions."""

    code = "DELTA_MISSING_CHANGE_DATA"
    template = "Cannot read the changes from version {first} to {last}: version {version} did not record its changes."
    hint = (
        "Start after version {version}. To record changes from now on, call "
        "set_properties({{'delta.enableChangeDataFeed': 'true'}})."
    )


class ChangeFeedSchemaMismatch(ChangeFeedRefused):
    """The first version of the range has other columns or types than the opened version of the table."""

    code = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"
    template = (
        "Cannot read the changes from version {first} to {last} with the columns of version {shown}, {schema}: "
        "version {version} has other columns or types."
    )
    hint = (
        "Read them with the columns of one of these versions: "
        'spark.read.format("widen").option("readChangeFeed", "true").option("startingVersion", {first})'
        '.option("endingVersion", {last}).option("versionAsOf", {last})'
    )


class ChangeFeedSchemaChanged(ChangeFeedRefused):
    """The columns or their types changed within the range of versions."""

    code = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE"
    template = (
        "Cannot read the changes from version {first} to {last} with the columns of version {shown}, {schema}: "
        "version {version} changed the columns."
    )
    hint = "Read the changes before version {version} and those from version {version} on separately."
