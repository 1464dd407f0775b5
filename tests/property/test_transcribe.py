"""The native path and the exact path give one row, and what has no column is seen."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.drift import batches
from support.field_rule_policies import policies
from support.leaf import lost
from support.stable_interval import ingest_texts, named_records, records_of, rows_of_text, through_arrow
from widen.batches.text_tasks import drain_arrow_batches, observe_chunk
from widen.evolution.evolve import evolve
from widen.evolution.policy import Mode, Policy, build_field_rules
from widen.files.arrow_types import to_arrow_schema
from widen.json.document import corrupt_text_to_bytes, parse_document
from widen.json.kinds import leaf_and_dim
from widen.model.types import DataType, Field, MapType, StructType
from widen.rows.row import build_routes, rescue, to_row
from widen.rows.row_builder import RowBuilder
from widen.schema.source_metadata import CORRUPT, RESCUED, role_field, role_of

modes = st.sampled_from([Mode.WIDEN, Mode.SPLIT])


FORMS = (
    *(b"1", b"-0", b"2147483648", b"9007199254740993", b"2.5", b"1.50", b"true", b'"x"', b'"2024-05-01"', b"null"),
    *(b"[]", b"[[]]", b"{}", b"[{}]", b"[null]", b"[null,1]", b"[[null]]", b"[1]", b"[2,-3]", b"[-0]", b"[2147483648]"),
    *(
        b"[9007199254740993]",
        b"[9223372036854775808]",
        b"[1.50]",
        b"[1e3]",
        b"[true,false]",
        b'["x","1"]',
        b'["\\u0041"]',
    ),
    *(b'["2024-05-01"]', b'[1,"x"]', b"[true,1]", b"[[1],[2]]", b'[["x"]]', b"[[1],2]", b'{"b":1}', b'{"b":"x"}'),
    *(b'[{"b":1}]', b'[{"b":1},{"c":2}]', b'[{"b":1},1]', b"[ 1 , 2 ]"),
)
"""Values of one field, in every form that has a column of its own, and at the edges of what the fast path takes."""


@given(st.lists(st.sampled_from(FORMS), min_size=2, max_size=14), st.integers(1, 12), modes, st.booleans())
def test_both_paths_give_one_row_of_a_field_of_many_forms(
    forms: list[bytes], length: int, mode: Mode, adapts: bool
) -> None:
    batch = [b'{"a":%s,"other":1}' % form for form in forms]  # a batch without columns would lose its rows
    _check_both_paths(batch, length, mode, frozen=False, adapts=adapts)
    policy = Policy(mode)
    schema = ingest_texts(None, batch, policy).plan.schema
    maker, observed = RowBuilder(schema, policy, schema), RowBuilder(schema, policy, schema)
    for builder in (maker, observed):
        builder.add(batch, [("f", number) for number in range(len(batch))])
    observe_chunk(observed)
    rows = [row for part in drain_arrow_batches(maker, to_arrow_schema(schema)) for row in part.to_pylist()]
    exact = [
        to_row(build_routes(schema, policy), record) for text in batch for record in named_records(schema, text) or ()
    ]
    assert sorted(map(repr, rows)) == sorted(map(repr, through_arrow(schema, exact)))
    assert observed.observation == maker.observation


@given(batches, st.integers(0, 4), modes, st.booleans(), st.booleans())
def test_both_paths_give_one_row_and_nothing_is_dropped_unseen(
    batch: list[bytes], length: int, mode: Mode, frozen: bool, adapts: bool
) -> None:
    _check_both_paths(batch, length, mode, frozen=frozen, adapts=adapts)


def _check_both_paths(batch: list[bytes], length: int, mode: Mode, *, frozen: bool, adapts: bool) -> None:
    base = ingest_texts(None, batch[:length], Policy(mode)).plan.schema
    policy = Policy(Mode.FREEZE if frozen else mode)
    schema = ingest_texts(base, batch, policy).plan.schema if frozen else base
    rescued = role_field(schema, RESCUED)
    maker = RowBuilder(schema, policy, base)
    for number, text in enumerate(batch):
        before = maker.observation.corrupt
        rows = rows_of_text(maker, schema, text, ("f", number))
        records = named_records(schema, text)
        if adapts:
            maker.adapt()
        if records is None:
            found = maker.observation.corrupt - before
            corrupt = role_field(schema, CORRUPT)
            if corrupt:
                kept = [corrupt_text_to_bytes(row[corrupt.name]) for row in rows if row[corrupt.name] is not None]
                # Of an array, only the elements that are no records are corrupt.
                assert kept == [text] or (text.lstrip().startswith(b"[") and all(part in text for part in kept))
                assert len(kept) == found
            assert found
            continue
        exact = [to_row(build_routes(schema, policy), record) for record in records]
        for row, record in zip(exact, records, strict=True):
            if rescued:
                row[rescued.name] = rescue(build_routes(schema, policy), record)
        assert repr(rows) == repr(through_arrow(schema, exact)), text
        if any(lost(schema, row, record) for row, record in zip(rows, records, strict=True)):
            plan = evolve(base, maker.observation, policy)
            assert plan.schema != schema, text


@given(batches, st.integers(0, 4), st.data(), st.booleans())
def test_both_paths_give_one_row_however_values_are_taken(
    batch: list[bytes], length: int, data: st.DataObject, adapts: bool
) -> None:
    policy = data.draw(policies(data.draw(modes)))
    base = ingest_texts(None, batch[:length], policy).plan.schema
    schema = ingest_texts(base, batch, policy).plan.schema if data.draw(st.booleans()) else base
    reading = build_field_rules(schema, policy)
    maker = RowBuilder(schema, policy, base)
    for number, text in enumerate(batch):
        rows = rows_of_text(maker, schema, text, ("f", number))
        records = named_records(schema, text)
        if adapts:
            maker.adapt()
        if records is not None:
            read = [reading.record(record) for record in records]
            exact = [to_row(build_routes(schema, policy), record) for record in read]
            assert repr(rows) == repr(through_arrow(schema, exact)), text
            if any(lost(schema, row, record) for row, record in zip(rows, read, strict=True)):
                assert evolve(base, maker.observation, policy).schema != schema, text


@given(batches, st.integers(0, 4), st.data())
def test_texts_that_are_read_at_once_give_what_each_gives_alone(
    batch: list[bytes], length: int, data: st.DataObject
) -> None:
    policy = data.draw(policies(data.draw(modes)))
    base = ingest_texts(None, batch[:length], policy).plan.schema
    schema = ingest_texts(base, batch, policy).plan.schema if data.draw(st.booleans()) else base
    at_once, alone, observed = (RowBuilder(schema, policy, base) for _ in range(3))
    for texts in (batch, data.draw(st.permutations(batch))):
        positions = [("f", number) for number in range(1, len(texts) + 1)]
        at_once.add(texts, positions)
        arrow = to_arrow_schema(schema)
        rows = [row for rows in drain_arrow_batches(at_once, arrow) for row in rows.to_pylist()]
        each = [row for text, at in zip(texts, positions, strict=True) for row in rows_of_text(alone, schema, text, at)]
        if schema.fields:
            assert sorted(map(repr, rows)) == sorted(map(repr, each))
        observed.add(texts, positions)
        observe_chunk(observed)
        known = alone.observation
        for builder in (at_once, observed):
            if known.matched:
                # Which of two names is read exactly, and so counted, depends on the first texts.
                assert builder.observation.matched == known.matched
                assert evolve(schema, builder.observation, policy).schema == evolve(schema, known, policy).schema
            else:
                assert builder.observation == known
        for builder in (at_once, alone, observed):
            builder.adapt()


@given(batches, batches, modes, st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_order_of_the_batch_does_not_change_the_plan(
    history: list[bytes], batch: list[bytes], mode: Mode, adapt_every: int, shuffler: random.Random
) -> None:
    policy = Policy(mode)
    base = ingest_texts(None, history, policy).plan.schema
    straight = ingest_texts(base, batch, policy, adapt_every).plan.schema
    mixed = list(batch)
    shuffler.shuffle(mixed)
    assert ingest_texts(base, mixed, policy).plan.schema == straight


@given(batches, st.integers(0, 4), modes)
def test_columns_and_rescued_text_give_back_every_null_and_empty_container(
    batch: list[bytes], length: int, mode: Mode
) -> None:
    """Source: docs/evolution-rules.md#d10"""
    base = ingest_texts(None, batch[:length], Policy(mode)).plan.schema
    schema = ingest_texts(base, batch, Policy(Mode.FREEZE)).plan.schema
    if role_field(schema, RESCUED) is None:
        return
    for text in batch:
        for record in records_of(text) or ():
            route = build_routes(schema, Policy(Mode.FREEZE))
            rest = rescue(route, record)
            kept = {} if rest is None else parse_document(rest.encode())
            assert isinstance(kept, dict)
            assert _without_place(schema, record, kept) == [], text


def _without_place(schema: StructType, record: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """Return the fields of a record with an empty part that neither a column nor the text has."""
    missing = []
    for key, value in record.items():
        types = [each.type for each in schema if _source_key(each) == key and role_of(each) is None]
        records = [leaf for leaf, _ in map(leaf_and_dim, types) if isinstance(leaf, StructType)]
        if key in kept and (kept[key] == value or (isinstance(value, dict) and records)):
            continue
        if not _has_place([leaf_and_dim(each) for each in types], value):
            missing.append(key)
    return missing


def _source_key(field: Field) -> str:
    return str(field.metadata.get("widen.source", [field.name])[-1])


def _has_place(types: list[tuple[DataType, int]], value: Any) -> bool:
    if value is None:
        return bool(types)
    if isinstance(value, list):
        inner = [(leaf, dim - 1) for leaf, dim in types if dim]
        return bool(inner) and all(_has_place(inner, item) for item in value)
    if value == {}:
        return any(isinstance(leaf, (StructType, MapType)) for leaf, _ in types)
    return True
