"""After an interval every record is in the table: by the proof, and by a check that knows nothing of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.drift import batches
from support.leaf import lost
from support.settle import records_of, settle
from support.treat import modes, policies
from widen.model.type import StructType
from widen.planning.policy import Mode, Policy
from widen.planning.treatment import reading_of
from widen.routing.proof import Proof, digest

bounds = st.sampled_from(
    [Policy(Mode.WIDEN), Policy(Mode.SPLIT), Policy(Mode.FREEZE), Policy(Mode.WIDEN, max_columns=3)]
)


@given(st.lists(batches, max_size=2), st.sampled_from([Mode.WIDEN, Mode.SPLIT]), batches, bounds)
def test_every_record_is_in_its_row(history: list[list[bytes]], mode: Mode, batch: list[bytes], policy: Policy) -> None:
    base: StructType | None = None
    for earlier in history:
        base = settle(base, earlier, Policy(mode)).plan.schema
    done = settle(base, batch, policy)
    proof = Proof(done.plan.schema, policy)
    for text, rows in zip(batch, done.rows, strict=True):
        records = records_of(text)
        if records is None:
            assert [proof.of_row(row) for row in rows] == [proof.of_corrupt(text)]
            continue
        for record, row in zip(records, rows, strict=True):
            assert lost(done.plan.schema, row, record) == []
            assert proof.of_row(row) == proof.of_record(record)
            assert digest(proof.of_row(row)) == digest(proof.of_record(record))


@given(batches, batches, st.data())
def test_every_record_is_in_its_row_however_values_are_taken(
    history: list[bytes], batch: list[bytes], data: st.DataObject
) -> None:
    mode = data.draw(modes)
    base = settle(None, history, data.draw(policies(mode))).plan.schema
    policy = data.draw(policies(mode))
    done = settle(base, batch, policy)
    proof, reading = Proof(done.plan.schema, policy), reading_of(done.plan.schema, policy)
    for text, rows in zip(batch, done.rows, strict=True):
        for record, row in zip(records_of(text) or (), rows, strict=False):
            assert lost(done.plan.schema, row, reading.record(record)) == []
            assert proof.of_row(row) == proof.of_record(record)
