"""An interval from texts to Arrow rows without Spark: passes until the plan is confirmed, as the engine makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from widen.batches.text_tasks import drain_arrow_batches
from widen.evolution.evolve import evolve, merge_pass
from widen.evolution.plan import Plan
from widen.evolution.policy import Policy
from widen.files.arrow_types import to_arrow_schema
from widen.json.document import parse_document
from widen.json.observation import Observation, observation_from_json
from widen.model.types import StructType
from widen.rows.row_builder import RowBuilder
from widen.schema.field_names import find_field_names


@dataclass(frozen=True)
class StableInterval:
    """The plan of an interval, and the rows of each text after a trip through Arrow."""

    plan: Plan
    rows: list[list[dict[str, Any]]]
    passes: int


def ingest_texts(
    base: StructType | None, texts: Sequence[bytes], policy: Policy, adapt_every: int = 1
) -> StableInterval:
    """Return what an interval comes to; every observation travels as JSON, as it does between executors."""
    observed = Observation()
    for number in range(1, 9):
        plan = evolve(base, observed, policy)
        maker = RowBuilder(plan.schema, policy, base, apart=[tuple(path) for path in observed.apart])
        rows = list(_transcribed(maker, plan.schema, texts, adapt_every))
        seen = observation_from_json(maker.observation.to_json())
        observed, is_mixed = merge_pass(observed, seen, plan.schema, policy)
        confirmed = evolve(base, observed, policy)
        if confirmed.schema == plan.schema and not is_mixed:
            return StableInterval(confirmed, rows, number)
    raise AssertionError(f"the plan still changed after {number} passes")


def _transcribed(
    maker: RowBuilder, schema: StructType, texts: Iterable[bytes], adapt_every: int
) -> Iterator[list[dict[str, Any]]]:
    for number, text in enumerate(texts, 1):
        yield rows_of_text(maker, schema, text, ("f", number))
        if number % adapt_every == 0:
            maker.adapt()


def rows_of_text(
    maker: RowBuilder, schema: StructType, text: bytes, at: tuple[str, int] = ("f", 1)
) -> list[dict[str, Any]]:
    """Return the rows of one text as Arrow gives them back."""
    before = maker.observation.records + maker.observation.corrupt
    maker.add([text], [at])
    rows = [row for batch in drain_arrow_batches(maker, to_arrow_schema(schema)) for row in batch.to_pylist()]
    number = maker.observation.records + maker.observation.corrupt - before
    return rows if schema.fields else [{}] * number


def through_arrow(schema: StructType, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as Arrow gives them back."""
    if not schema.fields:
        return [{} for _ in rows]
    back: list[dict[str, Any]] = pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(schema)).to_pylist()
    return back


def named_records(schema: StructType, text: bytes) -> list[Any] | None:
    """Return the records that a text stands for, with the names of the fields of a table."""
    records = records_of(text)
    return None if records is None else [find_field_names(schema).record(record) for record in records]


def records_of(text: bytes) -> list[Any] | None:
    """Return the records that a text stands for; None for a text that is kept whole."""
    document = parse_document(text)
    if isinstance(document, dict):
        return [document]
    if isinstance(document, list) and all(isinstance(item, dict) for item in document):
        return document
    return None
