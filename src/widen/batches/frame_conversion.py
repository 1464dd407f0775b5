"""Typed records of a DataFrame that tasks convert to rows, which they write, or give back where only Spark writes them.

Spark hands the records over in Arrow's form. To give rows back costs more than to convert them, so tasks write wherever
the table has a sink for them.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.batches.column_copy import CopiedRows, write_in_tasks, write_typed_rows
from widen.batches.column_values import QuarantinedRecord, RowConversion, fit, stored_form, task_schema
from widen.batches.corrupt_texts import ensure_utf8
from widen.batches.observed_kinds import FactsOfKind, FrameOrder, add_batch, facts_of, kinds
from widen.batches.typed_frames import (
    PLACE,
    TypedRecords,
    fill_voids,
    is_untouched,
    opaque_rule_paths,
    void_fields,
    without_voids,
)
from widen.errors import SourceContentError
from widen.evolution.policy import Policy, build_typed_field_rules
from widen.files.arrow_types import count_up, to_arrow_schema
from widen.files.data_writer import Sink
from widen.json.field_rules import MASK, FieldRule, FieldRules
from widen.json.observation import (
    Observation,
    RecordObservation,
    merge_observations,
    merge_records,
    observation_from_json,
    observe_schema,
    type_facts,
    unknown_types,
)
from widen.model.column_path import format_path, leaves
from widen.model.types import BOOLEAN, STRING, VARIANT, ArrayType, DataType, Field, MapType, StructType
from widen.model.value_classes import dataclass
from widen.rows.row import build_routes
from widen.sources.file_ranges import Typed, field_steps, fields_of
from widen.sources.listing import unusable_source
from widen.spark.errors import translate_spark_errors
from widen.spark.spark_types import Column, DataFrame, F, as_nullable, to_spark

REASON, TEXT, SOURCE_PLACE = "_widen_reason", "_widen_text", "_widen_place"
_PART, _FLAG, _MARK = "part", "_widen_misfit_", "_widen_missing_"
_SOURCE = "source"
"""What an error calls records that come from no file."""

_NO_FIELDS = StructType()


@dataclass(frozen=True, slots=True)
class PreparedRecords:
    """Records with the field rules applied.

    Args:
        pending: The fields of type void, and what they are in.
        is_untouched: Whether no rule changes a value, so that the fields are the columns of the source.
    """

    source: TypedRecords
    schema: StructType
    pending: StructType = _NO_FIELDS
    is_untouched: bool = False
    rules: FieldRules = field(default_factory=FieldRules)

    @property
    def types(self) -> Mapping[str, DataType]:
        """The type of each field."""
        return {each.name: each.type for each in self.schema}

    def observation(self, *, assume_exact: bool = False) -> RecordObservation:
        """Return what the types alone say about the records.

        Args:
            assume_exact: Whether to assume that values are exact where their type leaves it open.
        """
        return merge_records(observe_schema(self.pending), observe_schema(self.schema, assume_exact=assume_exact))


def prepare_records(
    records: TypedRecords, name: str, base: StructType | None, policy: Policy, schema: StructType | None = None
) -> PreparedRecords:
    """Return records with the field rules of a policy applied.

    Args:
        schema: The schema of the rows, for `fill_voids`; None if they are not written yet.
    """
    rules = build_typed_field_rules(base or StructType(), policy)
    pending = void_fields(records.schema, rules)
    if schema is not None and pending.fields:
        records = replace(records, schema=fill_voids(records.schema, build_routes(schema, policy)))
    opaque = next(opaque_rule_paths(records.schema, rules), None)
    if opaque is not None:
        reason = f"a field inside the variants of {format_path(opaque)} cannot be masked or excluded"
        raise unusable_source(name, reason, "Mask or exclude the whole variant, or cast it to a struct.")
    if is_untouched(records.schema, rules):
        _ensure_known(records.schema, name)
        return PreparedRecords(records, records.schema, pending, True, rules)
    source = task_source(records.schema, rules)
    _ensure_known(StructType(tuple(replace(each, type=stored_form(each.type)) for each in source)), name)
    prepared = RowConversion(source, rules, {}, StructType()).prepared
    return PreparedRecords(records, prepared, pending, False, rules)


def _ensure_known(schema: StructType, name: str) -> None:
    unsupported = next(unknown_types(schema), None)
    if unsupported is not None:
        path, data_type = unsupported
        fix = "Cast the column, e.g. to string. The keys of a map must be scalars."
        reason = f"the type {data_type.sql} of {format_path(path)} is not supported"
        raise SourceContentError(source=name, reason=reason, fix=fix)


# ---- how tasks get records --------------------------------------------------------------------------


def task_source(schema: StructType, rules: FieldRules) -> StructType:
    """Return the fields of records that tasks get: without those that the policy leaves out, and without voids."""
    kept = (each for each in schema if rules.at(each.name).take is not FieldRule.LEFT_OUT)
    return without_voids(
        StructType(
            tuple(
                each
                if _is_plain(each.type)
                else replace(each, type=_task_values(F.lit(None), each.type, rules.at(each.name))[1])
                for each in kept
            )
        )
    )


def _task_values(values: Column, data_type: DataType, rules: FieldRules) -> Typed:
    """Return values as tasks get them: variants as JSON, and a text for masked values that Arrow has no type for."""
    if _is_plain(data_type):
        return values, data_type
    if rules.take is FieldRule.MASKED:
        return F.when(values.isNotNull(), F.lit(MASK)), STRING
    match data_type:
        case StructType():
            inner = {
                name: _task_values(*typed, rules.at(name))
                for name, typed in fields_of(values, data_type).items()
                if rules.at(name).take is not FieldRule.LEFT_OUT
            }
            kind = StructType(tuple(Field(name, each) for name, (_, each) in inner.items()))
            parts = (column.alias(step) for (column, _), step in zip(inner.values(), field_steps(kind), strict=True))
            return F.when(values.isNotNull(), F.struct(*parts)), kind
        case ArrayType(element):
            _, item_type = _task_values(F.lit(None), element, rules)
            return F.transform(values, lambda item: _task_values(item, element, rules)[0]), ArrayType(item_type)
        case MapType(key, value):
            _, item_type = _task_values(F.lit(None), value, rules)
            items = F.transform_values(values, lambda _, item: _task_values(item, value, rules)[0])
            return items, MapType(key, item_type)
    return F.to_json(values) if data_type == VARIANT else values, data_type


def _is_plain(data_type: DataType) -> bool:
    """Return whether tasks get values of a type as they are."""
    own = without_voids(StructType((Field("", data_type),)))
    return all(leaf != VARIANT and type_facts(leaf) is not None for _, leaf in leaves(own) if own.fields)


def select_records(
    records: TypedRecords, frame: DataFrame, conversion: RowConversion, more: Sequence[Column] = ()
) -> DataFrame:
    """Return the fields of records that a conversion takes, and more columns. Tasks find them by position."""
    at, types, columns = {name: str(n) for n, name in enumerate(records.schema.names)}, records.types, []
    for each in conversion.source:
        values, data_type, rules = F.col(at[each.name]), types[each.name], conversion.rules.at(each.name)
        named = values if _is_plain(data_type) else records.columns[each.name]
        columns.append(_task_values(named, data_type, rules)[0])
    # Without a column, a batch would not know how many records it has.
    every = (*columns, *more) or (F.lit(True),)
    return frame.select(*(column.alias(f"c{number}") for number, column in enumerate(every)))


def _read_records(batch: pa.RecordBatch, source: StructType, *, is_utf8: bool) -> pa.RecordBatch:
    """Return the fields of records, the first columns of a batch of `select_records`."""
    if not is_utf8:
        ensure_utf8(batch.columns, _SOURCE)
    schema = task_schema(source)
    if not schema.names:
        return batch
    columns = batch.columns[: len(schema)]
    values = [fit(each, field.type, batch.num_rows) for each, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(values, schema=schema)


# ---- rows that tasks write -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FrameCopy:
    """Records of a DataFrame that become rows of a table. Picklable.

    Args:
        is_placed: Whether the last column is the location of each record; the others are the fields of the conversion.
        listed_bytes: How many bytes of quarantined records a task sends to the driver; of more, it only counts them.
    """

    conversion: RowConversion
    types: pa.Schema
    sink: Sink
    is_placed: bool
    is_utf8: bool
    listed_bytes: int

    def run(self, frame: DataFrame) -> CopiedRows:
        """Write the files of the table, and return them. If that fails, delete them where the store allows it."""
        return write_in_tasks(frame, self.write, self.sink)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[CopiedRows]:
        """Yield the files that a task has written."""
        yield write_typed_rows(self.sink, self.types, map(self._to_rows, batches), self.listed_bytes)

    def _to_rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, CopiedRows]:
        """Return the rows of records that fit the table, and the others."""
        records = _read_records(batch, self.conversion.source, is_utf8=self.is_utf8)
        rows, quarantined, counts = self.conversion.convert(records, self.types, "", 0)
        return rows, CopiedRows([], [self._placed(record, batch) for record in quarantined], counts)

    def _placed(self, record: QuarantinedRecord, batch: pa.RecordBatch) -> QuarantinedRecord:
        """Return a record with its own location in the place of its position in the batch."""
        place = batch.columns[-1][record.position - 1].as_py() if self.is_placed else {"file": "", "number": 0}
        return msgspec.structs.replace(record, file=place["file"] or "", position=place["number"] or 0)


# ---- rows that Spark writes ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Records of a DataFrame that become rows of a table, which Spark completes and writes. Picklable.

    Args:
        columns: The columns of the rows, without what Arrow has no type for.
        marks: The columns that the table fills where a record has no field for them. The columns after the fields say
            where that is so.
        is_judged: Whether the rows say why the table does not take them.
        has_text: Whether those rows also have the text and the location of their records.
    """

    conversion: RowConversion
    columns: StructType
    marks: tuple[str, ...]
    is_utf8: bool
    is_judged: bool = False
    has_text: bool = False

    def run(self, frame: DataFrame) -> DataFrame:
        """Return the rows, then the marks, see `mark_of`, and what `flag_of`, `REASON`, `TEXT` and `SOURCE_PLACE` name.

        Args:
            frame: The records, see `select_records`, with the marks, and their locations if the rows have texts.
        """
        fields = [Field(f"c{number}", each.type) for number, each in enumerate(self.columns)]
        fields += [Field(mark_of(name), BOOLEAN) for name in self.marks]
        if self.is_judged:
            fields += [Field(flag_of(number), BOOLEAN) for number in range(self.conversion.violations)]
            fields.append(Field(REASON, STRING))
        if self.has_text:
            fields += [Field(TEXT, STRING), Field(SOURCE_PLACE, PLACE)]
        return frame.mapInArrow(self.convert, to_spark(as_nullable(StructType(tuple(fields)))))

    def convert(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        types = to_arrow_schema(self.columns)
        first = len(self.conversion.source.fields)
        for batch in batches:
            marks = dict(zip(self.marks, batch.columns[first:], strict=False))
            records = _read_records(batch, self.conversion.source, is_utf8=self.is_utf8)
            judged = self.conversion.judge(records, types, marks)
            found = [*judged.rows.columns, *marks.values()]
            if self.is_judged:
                chosen = pc.indices_nonzero(judged.is_broken)
                reasons = pa.array(judged.reasons(chosen), pa.string())
                found += [*judged.flags, _spread(reasons, judged.is_broken)]
            if self.has_text:
                every = pa.array(range(batch.num_rows), pa.int64())
                found += [pa.array(judged.texts(every), pa.string()), batch.columns[-1]]
            yield pa.RecordBatch.from_arrays(found, names=[str(number) for number in range(len(found))])


def _spread(values: pa.Array, is_chosen: pa.Array) -> pa.Array:
    """Return one value after the other where a row is chosen, and null elsewhere."""
    at = pc.subtract(pc.cumulative_sum(is_chosen.cast(pa.int64())), 1)
    return values.take(pc.if_else(is_chosen, at, pa.scalar(None, pa.int64())))


def flag_of(number: int) -> str:
    """Return the column that says which records have a violation of a fixed column."""
    return f"{_FLAG}{number}"


def mark_of(name: str) -> str:
    """Return the column that says whether the records have no field for a column of the table."""
    return f"{_MARK}{name}"


def storable_columns(schema: StructType) -> StructType:
    """Return the columns of a table without what Arrow has no type for, which no record of a source fills."""
    kept = ((each, _storable(each.type)) for each in schema)
    return StructType(tuple(replace(each, type=kind) for each, kind in kept if kind is not None))


def _storable(data_type: DataType) -> DataType | None:
    match data_type:
        case StructType():
            return storable_columns(data_type)
        case ArrayType(element):
            kind = _storable(element)
            return None if kind is None else ArrayType(kind)
        case MapType(key, value):
            kind = _storable(value)
            return None if kind is None else MapType(key, kind)
    return None if type_facts(data_type) is None else data_type


# ---- what the values say ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ObserveKinds:
    """Observes the values of records in tasks. Picklable.

    Args:
        is_placed: Whether the last column is the location of each record.
    """

    conversion: RowConversion
    schema: StructType
    has_facts: bool
    is_placed: bool
    is_utf8: bool

    @staticmethod
    def of(part: PreparedRecords, names: Collection[str], *, has_facts: bool) -> ObserveKinds:
        """Return the observation of some fields."""
        every = task_source(part.source.schema, part.rules)
        source = StructType(tuple(each for each in every if each.name in names))
        conversion = RowConversion(source, part.rules, {}, StructType())
        return ObserveKinds(
            conversion, conversion.prepared, has_facts, part.source.place is not None, part.source.is_utf8
        )

    def run(self, records: TypedRecords, frame: DataFrame) -> Observation:
        """Return what the values of a frame of records say."""
        more = () if records.place is None else (records.place,)
        source = select_records(records, frame, self.conversion, more)
        with translate_spark_errors():
            notes = source.mapInArrow(self.observe, f"{_PART} binary").toArrow().column(_PART).to_pylist()
        seen = merge_observations([Observation(root=self._begin()[0]), *map(observation_from_json, notes)])
        if not self.is_placed:
            for each in self.schema:
                for kind, _ in kinds(seen.root[each.name], each.type):
                    kind.first = None
        return seen

    def observe(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the observation of the records of a task."""
        (root, facts), count = self._begin(), 0
        for batch in batches:
            records = _read_records(batch, self.conversion.source, is_utf8=self.is_utf8)
            fields = self.conversion.prepare(dict(zip(records.schema.names, records.columns, strict=False)))
            places = FrameOrder(batch.columns[-1] if self.is_placed else None)
            add_batch(root, fields, count_up(batch.num_rows), places, facts)
            count += batch.num_rows
        note = Observation(count, root=root).to_json()
        yield pa.RecordBatch.from_arrays([pa.array([note], pa.binary())], names=[_PART])

    def _begin(self) -> tuple[RecordObservation, list[FactsOfKind] | None]:
        """Return what the types say, and what the values are to fill in there."""
        root = observe_schema(self.schema)
        return root, facts_of(root, self.schema) if self.has_facts else None
