"""The ids that applications give their batches, so that a table takes each batch once.

Source: PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

from widen.errors import InvalidOption

REPLAY_PREFIX = "widen-replay-"
"""The first letters of the query that a commit names if it moved records from a quarantine to its table."""

DELETED_KEYS_APP_ID = "widen.keys"
"""The application whose transaction names the newest list of deleted keys of a Delta table."""

_OWN = ("widen.", REPLAY_PREFIX)
"""The prefixes of the ids that tables use to record loads and replays."""


def ensure_transaction(option: str, app_id: str, number: int) -> None:
    """Check the id that a caller gives an application, and the number of its batch.

    Raises:
        InvalidOption: the id is empty or one of Widen's own, or no table can hold the number.
    """
    # Applications that forgot to set their ids would take the batches of each other for their own. Delta Lake refuses
    # negative numbers, too, and nobody can read a larger one from the log.
    if not app_id or app_id.startswith(_OWN) or not 0 <= number < 2**63:
        expected = "Must be an id that is not empty and not one of Widen's own, and a number from 0 to 2^63 - 1."
        raise InvalidOption(option=option, value=(app_id, number), expected=expected)
