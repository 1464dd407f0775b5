"""Why the changes between versions cannot be told.

Source: Delta Spark's change data feed, whose classes of errors these are.
"""

from __future__ import annotations

from widen.errors.family import RequestError


class ChangesRefused(RequestError):
    """The changes between these versions cannot be told, or not in these types."""

    template = "The changes from version {first} to {last} cannot be told: {reason}."
    hint = "{fix}"


class ChangesNotRecorded(ChangesRefused):
    """The table did not record its changes in one of the versions."""

    code = "DELTA_MISSING_CHANGE_DATA"
    template = "The changes from version {first} to {last} cannot be told: version {version} did not record any."
    hint = "Ask for later ones; set_properties({{'delta.enableChangeDataFeed': 'true'}}) lets the table record them."


class ChangesInOtherTypes(ChangesRefused):
    """The first of the versions has other columns or types than the table as it is shown."""

    code = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"
    template = (
        "The changes from version {first} to {last} cannot be told in the columns of version {shown}, {schema}: "
        "version {version} has others."
    )
    hint = "Open the table at one of these versions, and ask again."


class ColumnsChangedBetween(ChangesRefused):
    """The columns or their types changed between the versions."""

    code = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE"
    template = (
        "The changes from version {first} to {last} cannot be told in the columns of version {shown}, {schema}: "
        "version {version} changed them."
    )
    hint = "Ask for those before version {version} and for those from it on, each in their own columns."
