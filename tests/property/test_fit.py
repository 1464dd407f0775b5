"""A record is in the table, or it is quarantined and its text with it: both paths decide alike, and nothing evolves."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from support.drift import batches
from support.leaf import lost
from support.stable_interval import records_of, rows_of_text
from widen.evolution.evolve import evolve
from widen.evolution.policy import FixedColumn, Mode, Policy, build_field_rules
from widen.json.document import corrupt_text_to_bytes
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.proof.canonical import digest
from widen.proof.source_reader import SourceReader
from widen.rows.row_builder import OriginColumn, RowBuilder

TYPES = ("int", "bigint", "string", "double", "decimal(10,2)", "boolean", "date", "array<int>", "map<string,int>")
ORIGIN = parse_type("struct<text: string, file: string, position: bigint, reason: string>")


@example([b'[{"a":1},{"a":1,"a":"x"}]'], "boolean", False, False, False, False)
@example([b'{"a":9223372036854775808}'], "int", True, True, False, False)  # a text column beside could hold it
@given(batches, st.sampled_from(TYPES), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_what_does_not_fit_is_quarantined_whole(
    batch: list[bytes], kind: str, required: bool, has_sibling: bool, dated: bool, adapts: bool
) -> None:
    sibling = [Field("a_string", parse_type("string"), metadata={"widen.source": ["a"]})] if has_sibling else []
    table = StructType((Field("a", parse_type(kind)), *sibling, Field("_corrupt_record", parse_type("string"))))
    guard = FixedColumn("a", "NOT NULL", is_required=required)
    policy = Policy(Mode.SPLIT, fixed_columns={("a",): guard}, date_fields=frozenset([()] if dated else []))
    schema, reading = StructType((*table.fields, Field("origin", ORIGIN))), build_field_rules(table, policy)
    maker, proof = RowBuilder(table, policy, table, OriginColumn("origin")), SourceReader(table, policy)
    for number, text in enumerate(batch, 1):
        rows = rows_of_text(maker, schema, text, ("f", number))
        if adapts:
            maker.adapt()
        quarantined_records = [row["origin"] for row in rows if row["origin"] is not None]
        fitting = [row for row in rows if row["origin"] is None]
        records = records_of(text)
        if records is None:
            kept = [corrupt_text_to_bytes(each["text"]) for each in quarantined_records]
            # Of an array, the elements that are records are taken, or quarantined, each for itself.
            assert kept == [text] * required or (text.lstrip().startswith(b"[") and all(each in text for each in kept))
            continue
        assert len(quarantined_records) + len(fitting) == len(records)
        assert all(each["reason"] and (each["file"], each["position"]) == ("f", number) for each in quarantined_records)
        kept_forms = [digest(proof.read_quarantined_records(each["text"])) for each in quarantined_records]
        forms = [digest(each.form) for each in proof.read(text)]
        assert sorted(form for form in forms if form in kept_forms) == sorted(kept_forms)
        assert all(row["a"] is not None for row in fitting) or not required
        there = [record for record, form in zip(records, forms, strict=True) if form not in kept_forms]
        assert len(there) == len(fitting)
        for record, row in zip(there, fitting, strict=True):
            a = {key: value for key, value in reading.record(record).items() if key == "a"}
            assert lost(StructType(table.fields[:1]), row, a) == [], (a, row)
    for plan in (evolve(table, maker.observation, policy), evolve(table, maker.observation, Policy(Mode.FREEZE))):
        assert all(event.source != ("a",) for event in plan.events)
