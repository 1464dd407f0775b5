"""The quarantined records of a load, which must have a reason to be there.

Source: docs/evolution-rules.md#proof, #d12
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from widen.proof.quarantine_reasons import QuarantineReasons
from widen.spark.engine import Rows
from widen.spark.errors import translate_spark_errors
from widen.verification.records import Verification

_COUNT = "records"
_SCHEMA = pa.schema({_COUNT: pa.int64()})


def with_unfounded(found: Verification, texts: Rows | None, reasons: QuarantineReasons) -> Verification:
    """Return the result of the proof, which is not clean if a quarantined record has no reason to be there.

    Args:
        texts: The texts of the quarantined records, in one column; None without such records.
    """
    if texts is None or not reasons.can_judge:
        return found
    with translate_spark_errors():
        counts = texts.mapInArrow(partial(_count_unfounded, reasons), f"{_COUNT} bigint").toArrow()
    count = pc.sum(counts[_COUNT]).as_py() if counts.num_columns else 0
    place = f"{count} records are in the quarantine without a reason"
    return replace(found, places=(*found.places, place)) if count else found


def _count_unfounded(reasons: QuarantineReasons, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        count = sum(not reasons.may_refuse(text) for text in batch.column(0).to_pylist() if text is not None)
        yield pa.RecordBatch.from_pylist([{_COUNT: count}], schema=_SCHEMA)
