"""What a batch without records is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from widen.errors import SourceError
from widen.ingestion.commit_batch import ensure_has_records
from widen.json.observation import Observation
from widen.model.types import StructType


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (
            Observation(corrupt=3, first_corrupt=("a.csv", 1), corrupt_reason="not a CSV record: 1 field"),
            "a.csv: none of its lines is a record; the first is not a CSV record: 1 field.",
        ),
        (
            Observation(
                corrupt=3, first_corrupt=("a.csv", 1), corrupt_reason="not an Avro record: a text is not UTF-8"
            ),
            "a.csv: none of its records could be read; the first is not an Avro record: a text is not UTF-8.",
        ),
        (Observation(), "a.csv: it has no records"),
        (Observation(records=1), "a.csv: no field of its records has a value yet"),
    ],
)
def test_a_batch_without_records_says_what_to_check(seen: Observation, message: str) -> None:
    batch: Any = SimpleNamespace(name="a.csv", bad_files=(), files=())
    plan = SimpleNamespace(schema=StructType(), refused=())
    written = SimpleNamespace(result=SimpleNamespace(seen=seen), plan=plan)
    with pytest.raises(SourceError) as caught:
        ensure_has_records(batch, cast(Any, written))
    assert message in str(caught.value)
    assert ("encoding" in caught.value.advice) is bool(seen.corrupt)
