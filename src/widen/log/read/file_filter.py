"""Filter a list of files by a condition on rows, thousands of files at a time.

Arrow decodes the statistics and compares the bounds. It gives an error where it could not decode a value exactly;
`FileSelection` then decides file by file.

Source: PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import ceil, floor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from widen.model.column_path import Path
from widen.model.types import DataType
from widen.protocol.partition_values import Scalar
from widen.protocol.skipping.file_selection import FileSelection
from widen.protocol.skipping.file_statistics import MAX_VALUES, MIN_VALUES, NULL_COUNT, NUM_RECORDS, TICK
from widen.protocol.skipping.predicate import NEGATED, And, Compare, IsNull, Not, Or, Predicate, UnknownPredicate

_ROWS = 4096
"""How many texts Arrow decodes at once; more of them would not stay in the cache of the processor."""

_INTEGER, _FLOAT, _TEXT = (pa.int64(), None), (pa.float64(), None), (pa.string(), None)
_FORMS: Mapping[str, tuple[pa.DataType, pa.DataType | None]] = (
    dict.fromkeys(("byte", "short", "integer", "long"), _INTEGER)
    | dict.fromkeys(("float", "double"), _FLOAT)
    | {
        "string": _TEXT,
        "date": (pa.string(), pa.date32()),
        "timestamp": (pa.string(), pa.timestamp("us", "UTC")),
        "timestamp_ntz": (pa.string(), pa.timestamp("us")),
    }
)
"""By the name of a type: what its bounds are in JSON, and the type to which the texts are then cast."""

_NEAREST, _LEAST = 2.0**-22, 2.0**-148
"""A bound of a float is moved by this part of it, and by this much at least; see `file_statistics`."""


def filter_files(files: pa.Table, selection: FileSelection) -> pa.Table:
    """Return the files that may have a matching row.

    Args:
        files: Rows of `widen.log.read.file_list.FILES`.
    """
    if selection.is_everything:
        return files
    masks = [_mask(rows, selection) for rows in files.to_batches(max_chunksize=_ROWS)]
    return files.filter(pa.chunked_array(masks, pa.bool_()))


def _mask(rows: pa.RecordBatch, selection: FileSelection) -> pa.Array:
    conditions = list(selection.conditions)
    if all(str(each.type) in _FORMS or _is_partition(each, selection) for each in conditions):
        try:
            return _Evaluation(rows, selection, conditions).can_be(selection.predicate, truth=True)
        except (pa.ArrowException, UnicodeError):
            # Statistics that Arrow cannot decode exactly are compared file by file.
            pass
    values = [dict(entries or ()) for entries in rows["partition_values"].to_pylist()]
    pairs = zip(values, rows["stats"].to_pylist(), strict=True)
    return pa.array([selection.can_match(*pair) for pair in pairs], pa.bool_())


def _is_partition(condition: Compare | IsNull, selection: FileSelection) -> bool:
    return condition.path[0] in selection.partition_by


class _Evaluation:
    """The conditions of a predicate on some files.

    Raises:
        pa.ArrowException: the statistics of a file are not what Arrow decodes exactly.
    """

    def __init__(self, rows: pa.RecordBatch, selection: FileSelection, conditions: Iterable[Compare | IsNull]) -> None:
        self._rows, self._selection = rows, selection
        stored = [each for each in conditions if not _is_partition(each, selection)]
        types = {selection.to_physical(each.path): _FORMS[str(each.type)][0] for each in stored}
        self._stats = _decode(rows["stats"], types) if types else None

    def can_be(self, predicate: Predicate, *, truth: bool) -> pa.Array:
        """Return for each file whether the predicate may be ``truth`` for some row."""
        match predicate:
            case And(left, right) | Or(left, right):
                join = pc.and_ if truth is isinstance(predicate, And) else pc.or_
                return join(self.can_be(left, truth=truth), self.can_be(right, truth=truth))
            case Not(inner):
                return self.can_be(inner, truth=not truth)
            case UnknownPredicate():
                return pa.repeat(True, self._rows.num_rows)
            case _ if _is_partition(predicate, self._selection):
                return self._in_partitions(predicate, truth=truth)
            case IsNull(path):
                other = 0 if truth else self._column(NUM_RECORDS)
                return _unless(pc.not_equal(self._column(NULL_COUNT, *self._selection.to_physical(path)), other))
            case Compare():
                return self._compare(predicate, predicate.operator if truth else NEGATED[predicate.operator])

    def _in_partitions(self, condition: Compare | IsNull, *, truth: bool) -> pa.Array:
        key = self._selection.to_physical(condition.path)[0]
        texts = pc.map_lookup(self._rows["partition_values"], pa.scalar(key), "first").dictionary_encode("encode")
        matches = [self._selection.can_be(condition, {key: text}, truth=truth) for text in texts.dictionary.to_pylist()]
        return pa.array(matches, pa.bool_()).take(texts.indices)

    def _compare(self, condition: Compare, operator: str) -> pa.Array:
        path = self._selection.to_physical(condition.path)
        has_value = self.can_be(IsNull(condition.path, condition.type), truth=False)
        if _FORMS[str(condition.type)] is _FLOAT and operator in (">", ">=", "<>"):  # a NaN is above every number
            return has_value
        low, high = (self._bound(key, path, condition.type) for key in (MIN_VALUES, MAX_VALUES))
        return pc.and_(has_value, _OPERATORS[operator](low, high, *_as_scalars(condition.value, low.type)))

    def _bound(self, key: str, path: Path, data_type: DataType) -> pa.Array:
        array, (_, cast) = self._column(key, *path), _FORMS[str(data_type)]
        array = array if cast is None else array.cast(cast)
        is_high = key == MAX_VALUES
        if pa.types.is_timestamp(array.type) and is_high:
            return pc.add(array, pa.scalar(TICK, pa.duration("us")))
        if pa.types.is_floating(array.type):
            step = pc.max_element_wise(pc.multiply(pc.abs(array), _NEAREST), _LEAST, skip_nulls=False)
            return pc.add(array, step) if is_high else pc.subtract(array, step)
        return array

    def _column(self, *path: str) -> pa.Array:
        assert self._stats is not None
        return pc.struct_field(self._stats, list(path))


def _as_scalars(value: Scalar, data_type: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    """Return a constant in the type of the bounds: the largest one that is at most it, and the smallest at least it."""
    if pa.types.is_integer(data_type):
        return pa.scalar(floor(value), data_type), pa.scalar(ceil(value), data_type)  # type: ignore[arg-type]
    return (pa.scalar(value, data_type),) * 2


def _unless(array: pa.Array) -> pa.Array:
    """Return the array with true for null: what is unknown is possible."""
    return pc.fill_null(array, True)


def _less(low: pa.Array, high: pa.Array, below: pa.Scalar, above: pa.Scalar) -> pa.Array:
    return _unless(pc.less(low, above))


def _at_most(low: pa.Array, high: pa.Array, below: pa.Scalar, above: pa.Scalar) -> pa.Array:
    return _unless(pc.less_equal(low, below))


def _greater(low: pa.Array, high: pa.Array, below: pa.Scalar, above: pa.Scalar) -> pa.Array:
    return _unless(pc.greater(high, below))


def _differs(low: pa.Array, high: pa.Array, below: pa.Scalar, above: pa.Scalar) -> pa.Array:
    return pc.or_(_less(low, high, below, above), _greater(low, high, below, above))


def _equals(low: pa.Array, high: pa.Array, below: pa.Scalar, above: pa.Scalar) -> pa.Array:
    return pc.and_(_at_most(low, high, below, above), _at_least(low, high, below, above))


def _at_least(low: pa.Array, high: pa.Array, below: pa.Scalar, above: pa.Scalar) -> pa.Array:
    return _unless(pc.greater_equal(high, above))


_OPERATORS: Mapping[str, Callable[[pa.Array, pa.Array, pa.Scalar, pa.Scalar], pa.Array]] = {
    "=": _equals,
    "<>": _differs,
    "<": _less,
    "<=": _at_most,
    ">": _greater,
    ">=": _at_least,
}
"""By operator: whether a value between two bounds may fulfil it."""


def _decode(texts: pa.Array, types: Mapping[Path, pa.DataType]) -> pa.StructArray:
    """Return statistics as structs with the leaves of some columns.

    Args:
        texts: The JSON texts; null for a file without statistics.
        types: The type of the bounds of each column, by physical path.
    """
    if not _are_objects(texts):
        texts = pc.if_else(pc.equal(texts, ""), "{}", texts).fill_null("{}")
        if not _are_objects(texts):
            raise pa.ArrowInvalid("statistics are not a JSON object")
    bounds, counts = _struct(types), _struct(dict.fromkeys(types, pa.int64()))
    leaves = {NUM_RECORDS: pa.int64(), MIN_VALUES: bounds, MAX_VALUES: bounds, NULL_COUNT: counts}
    # No string goes on over the end of a line, and no object over "}", a line end and "{". So each text has at least
    # one object; if there are as many objects as texts, each has exactly one.
    data = pc.binary_join_element_wise(texts, "\n", "").buffers()[2]
    table = pyarrow.json.read_json(
        pa.BufferReader(data),
        # One block, since Arrow refuses a line that is longer than a block.
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(leaves.items()), unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != len(texts):
        raise pa.ArrowInvalid("statistics are not one JSON object for each file")
    return pa.concat_arrays(table.to_struct_array().chunks)


def _are_objects(texts: pa.Array) -> bool:
    is_object = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    return bool(pc.all(is_object, skip_nulls=False).as_py())


def _struct(types: Mapping[Path, pa.DataType]) -> pa.StructType:
    """Return a struct with these leaves."""
    names = dict.fromkeys(path[0] for path in types)
    below = {name: {path[1:]: kind for path, kind in types.items() if path[0] == name} for name in names}
    return pa.struct([(name, leaves.get(()) or _struct(leaves)) for name, leaves in below.items()])
