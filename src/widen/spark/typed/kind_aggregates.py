"""A look at typed values: how many there are of each kind, the first of them, and what their types do not tell.

Source: docs/evolution-rules.md#one-interval, #d2, #d16
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.types import BINARY, STRING, TIMESTAMP, VOID, ArrayType, DataType, MapType, StructType
from widen.observe.kind import LONG_WORD, MAP_WORD, RECORD_WORD, Kind
from widen.observe.observation import SAMPLE_CHARS, FieldObservation, KindObservation, RecordObservation
from widen.observe.observe_schema import type_facts
from widen.spark.source.field_names import Typed, field_steps
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.typed.exact_cast import convert_exactly, is_exact_double, is_whole_ms

PER_PASS = 200
"""How many kinds are looked at in one pass over the records."""

_NO_SAMPLE = "{…}"


@dataclass(frozen=True, slots=True)
class _KindAggregate:
    """What is looked at: the values of one kind, all those of a record at once.

    Args:
        seen: What is known of them; it is filled in.
        values: They, or an array of them.
        is_many: Whether it is an array.
        type: Their type, if they have no parts.
    """

    seen: KindObservation
    values: Column
    is_many: bool
    type: DataType | None

    def aggregates(self, place: Column) -> list[Column]:
        """Return how many there are, the first with its place as JSON, and what their type does not tell of them."""
        if self.is_many:
            there = F.filter(self.values, F.isnotnull)
            count, sample = F.coalesce(F.size(there), F.lit(0)), self._text(F.try_element_at(there, F.lit(1)))
        else:
            count, sample = self.values.isNotNull().cast("int"), self._text(self.values)
        first = F.min(F.when(count > 0, F.struct(place.alias("place"), sample.alias("sample"))))
        told = [F.coalesce(F.sum(count), F.lit(0)), F.to_json(first)]
        told += [self._is_exact()] if self._is_open else []
        return told + ([self._digits()] if self._is_whole else [])

    def fill(self, values: Iterator[Any]) -> None:
        """Take what the aggregates said, and no more of the values."""
        count, first = next(values), next(values)
        is_exact = next(values) if self._is_open else None
        digits = next(values) if self._is_whole else None
        self.seen.count = count
        if first is not None:
            told = msgspec.json.decode(first)
            place, self.seen.sample = told.get("place"), told.get("sample", "")
            self.seen.first = (place["file"], place["number"]) if place else None
        if self._is_whole:
            self.seen.integer_digits = digits or 0
        if self.type == TIMESTAMP:
            self.seen.epoch_ms_exact = is_exact is not False
        elif self.type is not None and not self.seen.exact_double:
            self.seen.exact_double = is_exact is not False

    @property
    def _is_open(self) -> bool:
        """Whether the type leaves open if all of them are exact in a wider column."""
        return self.type == TIMESTAMP or not (self.type is None or self.seen.exact_double)

    @property
    def _is_whole(self) -> bool:
        told = None if self.type is None else type_facts(self.type)
        return told is not None and told[0] == LONG_WORD

    def _digits(self) -> Column:
        if self.is_many:
            return F.max(F.array_max(F.transform(self.values, _digits)))
        return F.max(_digits(self.values))

    def _is_exact(self) -> Column:
        if self.type == TIMESTAMP:
            return F.every(self._each(is_whole_ms))
        data_type = self.type
        assert data_type is not None
        return F.every(self._each(lambda value: is_exact_double(value, data_type)))

    def _each(self, test: Callable[[Column], Column]) -> Column:
        if not self.is_many:
            return test(self.values)
        return F.forall(self.values, lambda value: value.isNull() | test(value))

    def _text(self, value: Column) -> Column:
        if self.type is None:
            return F.lit(_NO_SAMPLE)
        text = F.base64(value) if self.type == BINARY else convert_exactly(value, self.type, STRING)
        assert text is not None
        return text.substr(1, SAMPLE_CHARS)


class KindAggregates:
    """What is looked at of some records.

    Args:
        fields: What stands at each key of them, with its type.
        seen: What their schema tells; it is filled in.
        place: The file and the number of each, as a struct; None where nobody knows.
    """

    def __init__(self, fields: Mapping[str, Typed], seen: RecordObservation, place: Column | None) -> None:
        self._place = F.lit(None).cast(PLACE) if place is None else place
        self._looks = [
            each for key, (values, kind) in fields.items() for each in _kind_aggregates(seen[key], values, kind, 0)
        ]

    def __len__(self) -> int:
        return len(self._looks)

    def aggregates(self, start: int = 0) -> list[Column]:
        """Return the aggregates for the kinds from a place on, at most `PER_PASS` of them."""
        return [column for each in self._looks[start : start + PER_PASS] for column in each.aggregates(self._place)]

    def fill(self, values: Sequence[Any], start: int = 0) -> None:
        """Take the values of the aggregates for the kinds from a place on."""
        said = iter(values)
        for each in self._looks[start : start + PER_PASS]:
            each.fill(said)

    def take(self, frame: DataFrame) -> int:
        """Look at records, and return how many there are.

        Raises:
            CorruptFile: a file cannot be read.
        """
        records = 0
        for start in range(0, max(len(self), 1), PER_PASS):
            aggregates = [F.count(F.lit(1)), *self.aggregates(start)]
            with translate_spark_errors():
                row = frame.agg(*(column.alias(str(at)) for at, column in enumerate(aggregates))).collect()[0]
            records = row[0]
            self.fill(row[1:], start)
        return records


PLACE = "struct<file: string, number: bigint>"
"""Where a record stands."""


def _kind_aggregates(
    seen: FieldObservation, values: Column, data_type: DataType, dim: int, *, is_many: bool = False
) -> Iterator[_KindAggregate]:
    match data_type:
        case ArrayType(element):
            inner = F.flatten(F.filter(values, F.isnotnull)) if is_many else values
            yield from _kind_aggregates(seen, inner, element, dim + 1, is_many=True)
        case StructType(fields):
            yield _KindAggregate(seen.kinds[Kind(RECORD_WORD, dim)], values, is_many, None)
            for name, field in zip(field_steps(data_type), fields, strict=True):
                inner = _in_each(values, _getter(name), is_many=is_many)
                yield from _kind_aggregates(seen.records[dim][field.name], inner, field.type, 0, is_many=is_many)
        case MapType(_, value):
            yield _KindAggregate(seen.kinds[Kind(MAP_WORD, dim)], values, is_many, None)
            inner = _in_each(values, F.map_values, is_many=is_many)
            yield from _kind_aggregates(seen.maps[dim], inner, ArrayType(value), -1, is_many=is_many)
        case _ if data_type != VOID:
            told = type_facts(data_type)
            if told is not None:
                yield _KindAggregate(seen.kinds[Kind(told[0], dim)], values, is_many, data_type)


def _digits(number: Column) -> Column:
    return F.length(F.abs(number.cast("decimal(20,0)")).cast("string"))


def _in_each(values: Column, way: Callable[[Column], Column], *, is_many: bool) -> Column:
    return F.transform(values, way) if is_many else way(values)


def _getter(name: str) -> Callable[[Column], Column]:
    return lambda value: value.getField(name)
