"""A flow cannot start, or cannot go on."""

from __future__ import annotations

from widen.errors.family import ContentionError, RequestError, TableError


class FlowChanged(RequestError):
    """The checkpoint of a flow belongs to another source, table, query or keys."""

    code = "WIDEN_FLOW_CHANGED"
    template = "The checkpoint {checkpoint} belongs to another flow: {reason}."
    hint = (
        "To compute the table again, use rebuild=True (--rebuild), which replaces all of its rows in one commit. To "
        "keep both, use another checkpoint and another table."
    )


class FlowKeyRefused(RequestError):
    """A key of a flow cannot tell which rows to replace."""

    code = "WIDEN_FLOW_KEY_REFUSED"
    template = "The key {key} of the flow into {into} cannot be used: {reason}."
    hint = "{fix}"


class FlowTaken(ContentionError):
    """Another process runs the same flow."""

    code = "WIDEN_FLOW_TAKEN"
    template = "Another process runs the flow into {location}: it has committed version {version} of the source."
    hint = (
        "Nothing of this batch is visible. Run each flow in one process only; it continues where the other one stopped."
    )


class SourceHistoryLost(TableError):
    """The source of a flow no longer has the changes that the flow has not read."""

    code = "WIDEN_SOURCE_HISTORY_LOST"
    template = "The changes of {location} cannot be read: {reason}."
    hint = (
        "Use rebuild=True (--rebuild) to compute the table again. To prevent this, run the flow more often than the "
        "source is vacuumed, or keep its log and its files longer."
    )


class SourceRowsRemoved(RequestError):
    """A flow without keys reads a source in which rows were updated or removed."""

    code = "WIDEN_SOURCE_ROWS_REMOVED"
    template = "The flow into {into} only appends rows, but rows of {location} were updated or removed in {versions}."
    hint = (
        "Give keys (--keys), so that rows with the same key are replaced; or use removed='skip' (--removed skip) to "
        "leave out these versions as a whole."
    )
