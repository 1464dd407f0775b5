"""Aggregates over typed values: the count of each kind, its first value, and facts that its type leaves open.

Source: docs/evolution-rules.md#one-interval, #d2, #d16
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from operator import and_
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.json.kinds import LONG_WORD, MAP_WORD, RECORD_WORD, Kind
from widen.json.observation import (
    SAMPLE_CHARS,
    FieldObservation,
    KindObservation,
    RecordObservation,
    TemporalString,
    type_facts,
)
from widen.model.column_path import ELEMENT, VALUE, Path
from widen.model.types import (
    BINARY,
    DOUBLE,
    STRING,
    TIMESTAMP,
    VOID,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
)
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import join_columns
from widen.spark.ingest.text_tasks import MIN_COUNTED_RECORDS
from widen.spark.source.file_ranges import Typed, field_steps
from widen.spark.source.source_files import SourceFile
from widen.spark.spark_types import Column, DataFrame, F
from widen.spark.typed.column_copy import SourceFooter, read_first_rows, read_source_footers
from widen.spark.typed.column_expressions import convert_exactly, is_exact_double, is_whole_ms, read_temporal
from widen.spark.typed.typed_records import HEAD_RECORDS, PLACE, TypedRecords

PER_PASS = 200
"""The most kinds that one pass over the records aggregates."""

_NO_SAMPLE = "{…}"


@dataclass(frozen=True, slots=True)
class _KindAggregate:
    """The aggregates of one kind, over all values of the kind in a record at once.

    Args:
        values: The value of a record, or an array of its values.
        type: The type of scalars; None for records and maps.
        optional: The field and the kind, if values of the type may be of another kind; without a value it is removed.
    """

    observation: KindObservation
    values: Column
    is_array: bool
    type: DataType | None
    optional: tuple[FieldObservation, Kind] | None = None

    def counts(self, location: Column) -> list[Column]:
        """Return the count, and the first value with its location as JSON."""
        if self.is_array:
            present = F.filter(self.values, F.isnotnull)
            count, value = F.coalesce(F.sum(F.size(present)), F.lit(0)), F.try_element_at(present, F.lit(1))
        else:
            count, value = F.count(self.values), self.values
        shown = F.lit(None) if self.type is None else value
        # The least place, not the first that Spark happens to read: the same batch must always give the same plan.
        first = F.min(F.when(value.isNotNull(), F.struct(location.alias("place"), shown.alias("value"))))
        # Only the value that is the first becomes a text.
        return [count, F.to_json(F.struct(first.getField("place").alias("place"), self._text(first).alias("sample")))]

    def facts(self) -> list[Column]:
        """Return the facts that the type leaves open."""
        return ([self._is_exact()] if self._is_open else []) + ([self._digits()] if self._is_whole else [])

    def fill_counts(self, values: Iterator[Any]) -> None:
        """Fill in the observation with the next results of `counts`."""
        self.observation.count, first = next(values), msgspec.json.decode(next(values))
        location, self.observation.sample = first.get("place"), first.get("sample", "")
        self.observation.first = (location["file"], location["number"]) if location else None

    def fill_facts(self, values: Iterator[Any]) -> None:
        """Fill in the observation with the next results of `facts`."""
        is_exact = next(values) if self._is_open else None
        if self._is_whole:
            self.observation.integer_digits = next(values) or 0
        if self.type == TIMESTAMP:
            self.observation.epoch_ms_exact = is_exact is not False
        elif self.type is not None and not self.observation.exact_double:
            self.observation.exact_double = is_exact is not False

    def fill_values(self, values: pa.Array, rows: pa.Array, uri: str) -> bool:
        """Fill in the observation with values of a file; return False if only Spark writes the first one as text.

        Args:
            rows: The index of the record of each value.
        """
        count = len(values) - values.null_count
        if not count:
            return True
        first = pc.index(values.is_valid(), True).as_py()
        text = _NO_SAMPLE if self.type is None else _to_text(values[first], self.type)
        if text is None:
            return False
        self.observation.count, self.observation.sample = count, text[:SAMPLE_CHARS]
        self.observation.first = (uri, rows[first].as_py() + 1)
        return True

    def remove_absent(self) -> None:
        """Remove the kind from the observation if the type only says that there may be values of it."""
        if self.optional is not None and not self.observation.count:
            field, kind = self.optional
            del field.kinds[kind]
            field.nulls.update({} if field.kinds else {kind.dim: 1})

    @property
    def _is_open(self) -> bool:
        """Whether the type leaves open if a wider column holds all values exactly."""
        return self.type == TIMESTAMP or not (self.type is None or self.observation.exact_double)

    @property
    def _is_whole(self) -> bool:
        facts = None if self.type is None else type_facts(self.type)
        return facts is not None and facts[0] == LONG_WORD

    def _digits(self) -> Column:
        bounds = (F.array_min(self.values), F.array_max(self.values)) if self.is_array else (self.values, self.values)
        return F.greatest(_digits(F.min(bounds[0])), _digits(F.max(bounds[1])))

    def _is_exact(self) -> Column:
        if self.type == TIMESTAMP:
            return F.every(self._each(is_whole_ms))
        data_type = self.type
        assert data_type is not None
        return F.every(self._each(lambda value: is_exact_double(value, data_type)))

    def _each(self, test: Callable[[Column], Column]) -> Column:
        if not self.is_array:
            return test(self.values)
        return F.forall(self.values, lambda value: value.isNull() | test(value))

    def _text(self, first: Column) -> Column:
        if self.type is None:
            return F.when(first.isNotNull(), F.lit(_NO_SAMPLE))
        value = first.getField("value")
        text = F.base64(value) if self.type == BINARY else convert_exactly(value, self.type, STRING)
        assert text is not None
        return text.substr(1, SAMPLE_CHARS)


class KindAggregates:
    """The aggregates over records.

    Args:
        observation: What the schema of the records says; the results are filled in.
        files: The files whose columns are these fields, to count without Spark where Arrow reads them as Spark does.
    """

    def __init__(
        self,
        records: TypedRecords,
        fields: Mapping[str, Typed],
        observation: RecordObservation,
        files: Sequence[SourceFile] = (),
    ) -> None:
        self._records, self._files = records, files
        self._schema = StructType(tuple(Field(name, data_type) for name, (_, data_type) in fields.items()))
        self._paths: dict[int, Path] = {}
        self._location = F.lit(None).cast(PLACE) if records.place is None else records.place
        self._aggregates = [
            each
            for key, (values, kind) in fields.items()
            for each in _kind_aggregates(observation[key], values, kind, 0)
        ]

    def observe(self) -> int:
        """Aggregate all that the types leave open over all records, and return how many records there are."""
        records = self._run(self._records.frame, self._aggregates, has_facts=True)
        for each in self._aggregates:
            each.remove_absent()
        return records

    def count(self) -> None:
        """Count the kinds, and find their first values. The counts of large batches are lower bounds, as for texts.

        The first records of the first file have most kinds. Only the others are searched for in all records.
        """
        footers = read_source_footers(self._files, self._schema) or []
        head = self._count_head(footers)
        if head is None:
            head = self._run(self._records.head(), self._aggregates) if self._records.head is not None else 0
        is_large = head >= MIN_COUNTED_RECORDS
        rest = [each for each in self._aggregates if not (is_large and each.observation.count)]
        rest = [each for each in rest if not self._is_absent(each, footers)]
        if rest:
            self._run(self._records.frame, rest)
        for each in rest:
            each.remove_absent()

    def _count_head(self, footers: Sequence[SourceFooter]) -> int | None:
        """Count in the first records of the first file, and return how many these are; None if Spark has to do it."""
        if not footers:
            return None
        footer, file = min(zip(footers, self._files, strict=True), key=lambda pair: pair[1].path)
        if footer.rows < MIN_COUNTED_RECORDS:
            return None  # the counts of a small batch are exact, and Spark counts all of it
        head = read_first_rows(file, self._schema, HEAD_RECORDS)
        rows = pa.array(range(len(head)), pa.int64())
        kinds = [
            kind
            for values, field in zip(head.columns, self._schema, strict=True)
            for kind in _kinds_of(values, rows, field.type, (field.name,))
        ]
        pairs = list(zip(self._aggregates, kinds, strict=True))
        self._paths = {id(each): path for each, (path, _, _) in pairs if each.type is not None}
        left = [each for each, (_, values, rows) in pairs if not each.fill_values(values, rows, file.uri)]
        if left and self._records.head is not None:
            self._run(self._records.head(), left)
        return len(head)

    def _is_absent(self, aggregate: _KindAggregate, footers: Sequence[SourceFooter]) -> bool:
        """Return whether the footers say that no record has a scalar of a kind."""
        path = self._paths.get(id(aggregate))
        return path is not None and all(footer.values.get(path, 0) == 0 for footer in footers)

    def _run(self, frame: DataFrame, aggregates: Sequence[_KindAggregate], *, has_facts: bool = False) -> int:
        records = 0
        for start in range(0, max(len(aggregates), 1), PER_PASS):
            kinds = aggregates[start : start + PER_PASS]
            columns = [F.count(F.lit(1)), *(column for each in kinds for column in each.counts(self._location))]
            columns += [column for each in kinds for column in (each.facts() if has_facts else ())]
            with translate_spark_errors():
                row = frame.agg(*(column.alias(str(at)) for at, column in enumerate(columns))).collect()[0]
            values = iter(row)
            records = next(values)
            for each in kinds:
                each.fill_counts(values)
            for each in kinds if has_facts else ():
                each.fill_facts(values)
        return records


def _kinds_of(
    values: pa.Array, rows: pa.Array, data_type: DataType, path: Path
) -> Iterator[tuple[Path, pa.Array, pa.Array]]:
    """Yield the path, the values and their records of each kind, in the order of `_kind_aggregates`."""
    match data_type:
        case ArrayType(element):
            parents = rows.take(pc.list_parent_indices(values))
            yield from _kinds_of(values.flatten(), parents, element, (*path, ELEMENT))
        case StructType(fields):
            yield path, values, rows
            for inner, field in zip(values.flatten(), fields, strict=True):
                yield from _kinds_of(inner, rows, field.type, (*path, field.name))
        case MapType(_, value):
            yield path, values, rows
            lists = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
            parents = rows.take(pc.list_parent_indices(lists))
            yield from _kinds_of(lists.flatten().flatten()[1], parents, value, (*path, VALUE))
        case _ if type_facts(data_type) is not None:
            yield path, values, rows


def _to_text(value: pa.Scalar, data_type: DataType) -> str | None:
    """Return a value as Spark writes it as text; None if only Spark knows."""
    try:
        plain = value.as_py()
    except (OverflowError, ValueError):  # years that datetime does not support
        return None
    match plain:
        case bool():
            return "true" if plain else "false"
        case int() | str():
            return str(plain)
        case bytes():
            return base64.b64encode(plain).decode()
        case float() if data_type == DOUBLE and (plain == 0 or _PLAIN_DOUBLES[0] <= abs(plain) < _PLAIN_DOUBLES[1]):
            return repr(plain)
        case Decimal():
            return f"{plain:f}"
        case datetime():
            text = plain.replace(tzinfo=None).isoformat()
            text = text.rstrip("0") if "." in text else text
            return text + "Z" if data_type == TIMESTAMP else text
        case date():
            return plain.isoformat()
    return None


_PLAIN_DOUBLES = 1e-3, 1e7
"""The sizes between which Java writes a double without an exponent."""


def _kind_aggregates(
    observation: FieldObservation, values: Column, data_type: DataType, dim: int, *, is_array: bool = False
) -> Iterator[_KindAggregate]:
    match data_type:
        case ArrayType(element):
            inner = F.flatten(F.filter(values, F.isnotnull)) if is_array else values
            yield from _kind_aggregates(observation, inner, element, dim + 1, is_array=True)
        case StructType(fields):
            yield _KindAggregate(observation.kinds[Kind(RECORD_WORD, dim)], values, is_array, None)
            for name, field in zip(field_steps(data_type), fields, strict=True):
                inner = _in_each(values, _getter(name), is_array=is_array)
                yield from _kind_aggregates(
                    observation.records[dim][field.name], inner, field.type, 0, is_array=is_array
                )
        case MapType(_, value):
            yield _KindAggregate(observation.kinds[Kind(MAP_WORD, dim)], values, is_array, None)
            inner = _in_each(values, F.map_values, is_array=is_array)
            yield from _kind_aggregates(observation.maps[dim], inner, ArrayType(value), -1, is_array=is_array)
        case TemporalString():
            yield from _temporal_aggregates(observation, values, data_type, dim, is_array=is_array)
        case _ if data_type != VOID:
            facts = type_facts(data_type)
            if facts is not None:
                yield _KindAggregate(observation.kinds[Kind(facts[0], dim)], values, is_array, data_type)


def _temporal_aggregates(
    observation: FieldObservation, texts: Column, data_type: TemporalString, dim: int, *, is_array: bool
) -> Iterator[_KindAggregate]:
    def read(each: DataType) -> Callable[[Column], Column]:
        return lambda text: read_temporal(text, each)

    def other(text: Column) -> Column:
        return F.when(join_columns(and_, [read(each)(text).isNull() for each in data_type.types]), text)

    for each in (*data_type.types, STRING):
        facts = type_facts(each)
        assert facts is not None
        kind = Kind(facts[0], dim)
        values = _in_each(texts, other if each == STRING else read(each), is_array=is_array)
        yield _KindAggregate(observation.kinds[kind], values, is_array, each, (observation, kind))


def _digits(number: Column) -> Column:
    # The absolute value of the least long is not a long.
    return F.length(F.abs(number.cast("decimal(20,0)")).cast("string"))


def _in_each(values: Column, inner: Callable[[Column], Column], *, is_array: bool) -> Column:
    return F.transform(values, inner) if is_array else inner(values)


def _getter(name: str) -> Callable[[Column], Column]:
    return lambda value: value.getField(name)
