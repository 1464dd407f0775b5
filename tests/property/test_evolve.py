"""Laws of evolution: whatever the batches, nothing is lost, nothing is taken back, nothing is done twice."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from support.generate import batches, observed
from support.operation import operation_from_value
from widen.evolution.evolve import evolve
from widen.evolution.policy import Mode, Policy
from widen.json.kinds import Kind
from widen.json.observation import FieldObservation, KindObservation, Observation, RecordObservation, merge_records
from widen.model.column_path import leaves
from widen.model.types import ArrayType, DataType, DecimalType, StructType
from widen.protocol.type_widening import is_widening
from widen.rows.row import RecordRoute, build_routes, routes_kind
from widen.schema.alter import apply_operations
from widen.schema.field_names import find_field_names, match_observation
from widen.schema.operations import AddColumn

GROWING = (Mode.SPLIT, Mode.WIDEN)
intervals = st.lists(batches, min_size=1, max_size=3)
modes = st.sampled_from(GROWING)


def evolved(drawn: list[list[dict[str, object]]], policy: Policy) -> tuple[StructType | None, Observation, StructType]:
    """Return the schema before the last interval, the last interval, and the schema after it."""
    before: StructType | None = None
    for batch in drawn[:-1]:
        before = evolve(before, observed(batch), policy).schema
    last = observed(drawn[-1])
    return before, last, evolve(before, last, policy).schema


@given(intervals, modes)
def test_the_operations_make_the_schema_of_the_plan(drawn: list[list[dict[str, object]]], mode: Mode) -> None:
    before, last, _ = evolved(drawn, Policy(mode))
    plan = evolve(before, last, Policy(mode))
    assert apply_operations(before, plan.operations) == plan.schema
    assert _metadata(apply_operations(before, plan.operations)) == _metadata(plan.schema)


@given(intervals, modes)
def test_the_same_interval_again_changes_nothing(drawn: list[list[dict[str, object]]], mode: Mode) -> None:
    _, last, after = evolved(drawn, Policy(mode))
    again = evolve(after, last, Policy(mode))
    assert again.is_empty
    assert again.schema == after


@given(intervals, modes, st.randoms(use_true_random=False))
def test_the_order_of_the_batch_and_its_parts_do_not_matter(
    drawn: list[list[dict[str, object]]], mode: Mode, random: random.Random
) -> None:
    before, *_ = evolved(drawn, Policy(mode))
    records = [observed([record], f"f{number}") for number, record in enumerate(drawn[-1])]
    straight = _merged(records)
    random.shuffle(records)
    assert evolve(before, _merged(records), Policy(mode)) == evolve(before, straight, Policy(mode))
    root = dict(reversed(straight.root.items()))
    turned = Observation(straight.records, straight.corrupt, root, apart=straight.apart)
    assert evolve(before, turned, Policy(mode)) == evolve(before, straight, Policy(mode))


@given(intervals, modes)
def test_every_kind_has_a_column_that_holds_it_exactly(drawn: list[list[dict[str, object]]], mode: Mode) -> None:
    _, last, after = evolved(drawn, Policy(mode))
    root, _ = match_observation(last.root, find_field_names(after), {tuple(path) for path in last.apart})
    _check_record(root, build_routes(after, Policy(mode)))


@given(intervals, modes)
def test_no_column_is_renamed_dropped_or_narrowed(drawn: list[list[dict[str, object]]], mode: Mode) -> None:
    before, _, after = evolved(drawn, Policy(mode))
    _check_kept(before or StructType(), after, may_widen=mode is Mode.WIDEN)


@given(intervals, modes)
def test_names_in_a_struct_differ_by_more_than_case(drawn: list[list[dict[str, object]]], mode: Mode) -> None:
    *_, after = evolved(drawn, Policy(mode))
    for struct in _structs(after):
        assert len({name.casefold() for name in struct.names}) == len(struct)
        assert not any(set(" ,;{}()\n\t=") & set(name) or not name for name in struct.names)
        assert struct is after or struct.fields


@given(intervals, modes, st.integers(0, 4))
def test_max_columns_bounds_the_leaves(drawn: list[list[dict[str, object]]], mode: Mode, most: int) -> None:
    policy = Policy(mode, max_columns=most)
    *_, after = evolved(drawn, policy)
    held = [path for path, _ in leaves(after) if path and path[0] not in ("_rescued", "_corrupt_record")]
    assert len(held) <= most


@given(intervals)
def test_freeze_adds_the_rescue_column_only(drawn: list[list[dict[str, object]]]) -> None:
    before, last, _ = evolved(drawn, Policy())
    plan = evolve(before, last, Policy(Mode.FREEZE))
    added = [operation.field.name for operation in plan.operations if isinstance(operation, AddColumn)]
    assert set(added) <= {"_rescued"} if before else True
    assert plan.is_empty or plan.rescued


@given(intervals)
def test_fail_changes_nothing_and_refuses_what_widen_would_do(drawn: list[list[dict[str, object]]]) -> None:
    before, last, _ = evolved(drawn, Policy())
    plan, free = evolve(before, last, Policy(Mode.FAIL)), evolve(before, last, Policy())
    assert plan.operations == ()
    assert plan.schema == (before or StructType())
    assert bool(plan.refused) == bool(free.operations)
    if before is not None:
        assert set(map(str, plan.refused)) == set(map(str, free.operations))


@given(intervals, modes)
def test_operations_survive_json(drawn: list[list[dict[str, object]]], mode: Mode) -> None:
    before, last, _ = evolved(drawn, Policy(mode))
    plan = evolve(before, last, Policy(mode))
    assert tuple(operation_from_value(operation.to_value()) for operation in plan.operations) == plan.operations
    assert plan.hash == evolve(before, last, Policy(mode)).hash


def _check_record(seen: RecordObservation, route: RecordRoute) -> None:
    for key, field in seen.items():
        slots = route.get(key, ())
        for kind, values in field.kinds.items():
            if kind.word == "record":
                continue
            assert any(routes_kind(slot, kind) and _holds(slot.type, kind, values) for slot in slots), (key, kind)
        largest = [slot for slot in slots if slot.record is not None]
        if largest:
            inner: RecordObservation = {}
            for sub_fields in field.records.values():
                inner = merge_records(inner, sub_fields)
            biggest = max(largest, key=lambda slot: slot.dim)
            assert biggest.record is not None
            assert biggest.dim >= max((kind.dim for kind in field.kinds if _is_live(field, kind)), default=0)
            _check_record(inner, biggest.record)
        else:
            assert not any(_is_live(field, kind) for kind in field.kinds)


def _is_live(field: FieldObservation, kind: Kind) -> bool:
    return kind.word == "record" and any(
        inner.word != "record" or _is_live(sub_field, inner)
        for sub_field in field.records[kind.dim].values()
        for inner in sub_field.kinds
    )


def _holds(leaf: DataType, kind: Kind, values: KindObservation) -> bool:
    """Judge exactness from the digits alone, not by the table of the lattice."""
    name = "decimal" if isinstance(leaf, DecimalType) else str(leaf)
    if isinstance(leaf, DecimalType):
        if kind.word not in ("long", "double", "decimal"):
            return values.epoch_ms_exact and leaf.precision - leaf.scale >= 15
        whole = leaf.precision - leaf.scale
        return values.decimal_exact and values.integer_digits <= whole and values.scale <= leaf.scale
    if name == "string" or name == kind.word:
        return True
    return {
        ("long", "integer"): values.fits_int32,
        ("long", "double"): values.exact_double,
        ("decimal", "double"): values.exact_double,
        ("timestamp", "long"): values.epoch_ms_exact,
        ("timestamp", "double"): values.epoch_ms_exact,
        **{("boolean", to): True for to in ("integer", "long", "double")},
        **{("date", to): True for to in ("integer", "long", "double", "timestamp")},
    }.get((kind.word, name), False)


def _check_kept(before: DataType, after: DataType, *, may_widen: bool) -> None:
    match before, after:
        case StructType(), StructType():
            assert after.names[: len(before)] == before.names
            for old, new in zip(before, after, strict=False):
                assert old.metadata == new.metadata
                _check_kept(old.type, new.type, may_widen=may_widen)
        case ArrayType(old_element), ArrayType(new_element):
            _check_kept(old_element, new_element, may_widen=may_widen)
        case _:
            assert before == after or (may_widen and is_widening(before, after))


def _structs(data_type: DataType) -> list[StructType]:
    match data_type:
        case StructType(fields):
            return [data_type, *(struct for field in fields for struct in _structs(field.type))]
        case ArrayType(element):
            return _structs(element)
    return []


def _metadata(data_type: DataType) -> list[object]:
    return [field.metadata for struct in _structs(data_type) for field in struct]


def _merged(parts: list[Observation]) -> Observation:
    total = Observation()
    for part in parts:
        total = total.merged(part)
    return total
