"""What identifies a batch is checked before anything else."""

from __future__ import annotations

import pytest

import widen
from widen.errors import InvalidOption


@pytest.mark.parametrize(
    "txn",
    [("", 1), ("orders", -1), ("orders", 2**63), ("widen.loads", 1), ("widen-replay-0b5e", 1)],
    ids=["no id", "negative", "no long", "record of loads", "replay"],
)
def test_an_id_and_a_number_that_the_log_can_hold_are_required(txn: tuple[str, int]) -> None:
    with pytest.raises(InvalidOption, match=r"txn cannot be .*Must be an id that is not empty"):
        widen.ingest("nowhere.json", "nowhere", txn=txn)
