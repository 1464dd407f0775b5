"""Rows of a DataFrame in the physical layout of a table's files.

Source: PROTOCOL.md#column-mapping, #partition-value-serialization
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import TypeAlias

import pyarrow as pa

from widen.errors import InvalidOption
from widen.files.expressions import evaluate_constants
from widen.iceberg.schema_conversion import fixed_lengths
from widen.model.column_path import (
    ELEMENT,
    KEY,
    VALUE,
    Path,
    as_nullable,
    children,
    fields,
    find_field,
    format_path,
    resolve,
)
from widen.model.types import VOID, ArrayType, DataType, Field, MapType, StructType, quote_name
from widen.protocol.actions import Protocol
from widen.protocol.column_mapping import NONE, to_physical
from widen.protocol.column_metadata import (
    Identity,
    find_default,
    find_generation,
    find_identity,
    is_computed,
    text_limits,
)
from widen.protocol.parquet_files import without_void
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import default_columns, is_supported, supported_features
from widen.protocol.type_widening import is_widening
from widen.schema.table_state import referenced_columns, row_conditions
from widen.spark.engine import as_unsupported
from widen.spark.errors import SHOWN_CHARACTERS, raise_expression, refusal_text, show_values
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, from_spark, type_to_spark, with_field_ids


def to_physical_layout(frame: DataFrame, table: TableConfiguration) -> DataFrame:
    """Return rows in the layout of files: physical names, the types of the table, partition columns as text.

    Missing columns are filled in. A row that violates a rule of the table fails the job.
    """
    schema, mode = table.schema, table.mapping
    rows = to_checked_rows(frame, table)
    kept = without_void(schema)
    physical = as_nullable(with_field_ids(to_physical(kept, mode)))
    types = {field.name: field.type for field in schema}
    columns = []
    for field, stored in zip(kept, physical, strict=True):
        column = cast_to_table_type(F.col(quote_name(field.name)), types[field.name], field.type, (field.name,))
        if field.name in table.partition_columns:
            column = partition_text(column, field.type)
        elif mode != NONE:
            column = column.cast(type_to_spark(stored.type))
        columns.append(column.alias(stored.name, metadata=dict(stored.metadata)))
    return rows.select(*columns)


ICEBERG = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("allowColumnDefaults",))
"""The rules of columns that apply to rows of Iceberg tables: defaults, and no other feature of Delta Lake."""


def to_checked_rows(frame: DataFrame, table: TableConfiguration) -> DataFrame:
    """Return rows in the names and types of the table, with missing columns filled in and all rules checked.

    The arguments are the same as for `to_physical_layout`.
    """
    rows = fill_missing_columns(frame, table.schema, table.protocol)
    return check_rows(rows, table.schema, table.protocol, table.properties)


def partition_text(column: Column, data_type: DataType) -> Column:
    """Return the values of a partition column as texts for the log; timestamps in UTC, independent of time zones.

    Source: PROTOCOL.md#partition-value-serialization
    """
    if str(data_type) != "timestamp":
        return column.cast("string")
    # Spark would write the time in the time zone of the session. Decimals, because doubles lose microseconds.
    micros = F.unix_micros(column).cast("decimal(20,0)") / F.lit(1_000_000).cast("decimal(7,0)")
    moment = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + F.make_dt_interval(secs=micros.cast("decimal(18,6)"))
    return F.concat(F.replace(moment.cast("string"), F.lit(" "), F.lit("T")), F.lit("Z"))


# Rows in the shape and the types of a table, with missing columns filled in.
#
# Source: PROTOCOL.md#default-columns, #generated-columns, #identity-columns; Spark's ANSI store assignment


LANES = "spark.sql.shuffle.partitions"
"""The setting for the number of lanes of identity values, one for each task."""

_EARLIER_TASK = "__widen_earlier_task"
"""The column with the task that a row was in before it got a lane, a number >= 0."""

_ROW_BITS = 33
"""The bits of Spark's monotonically increasing ids that count the rows of one task."""


def fill_missing_columns(frame: DataFrame, schema: StructType, protocol: Protocol) -> DataFrame:
    """Return rows with all columns of a table, in its types, names and order.

    A missing column gets its default, the result of its generation expression, its next identity value, or null. A
    value that is out of range for its column fails the job.

    Args:
        protocol: The protocol of the table: a rule of a column applies only if its feature is supported.

    Source: PROTOCOL.md#default-columns, #generated-columns, #identity-columns
    """
    incoming = from_spark(frame.schema)
    filler = _ColumnFiller(protocol, frame.sparkSession)
    columns, generated = [], {}
    for field in schema:
        source = incoming.find(field.name)
        if source is not None:
            column = cast_to_table_type(F.col(quote_name(source.name)), source.type, field.type, (field.name,))
        else:
            column = filler.fill(field)
            generated.update(filler.generation(field))
        columns.append(column.alias(field.name))
    rows = filler.in_lanes(frame).select(*columns)
    return _with_generated(rows, schema, generated) if generated else rows


def constant_defaults(schema: StructType, protocol: Protocol) -> dict[str, pa.Array]:
    """Return the defaults of the columns that have one, each as an array of one value.

    Raises:
        Unsupported: only Spark evaluates one of them.
    """
    names = default_columns(schema, protocol)
    texts = {field.name: (find_default(field) or "", field.type) for field in schema if field.name in names}
    with as_unsupported(InvalidOption):
        return evaluate_constants(texts)


def default_values_of(schema: StructType, protocol: Protocol) -> dict[str, Column]:
    """Return the defaults of the columns that have one."""
    supported = supported_features(protocol)
    names = default_columns(schema, protocol)
    return {field.name: default_value(field, supported) for field in schema if field.name in names}


def fill_computed_columns(
    rows: DataFrame, schema: StructType, protocol: Protocol, is_missing: Callable[[str], Column]
) -> DataFrame:
    """Return rows with a value where a field is missing, and where an identity or a generated column is null.

    A null that a record says stays in a column with a default. An identity column has no null, and in a generated
    column it would contradict the expression.

    Args:
        rows: All columns of the table, and maybe others.
        protocol: The protocol of the table: a rule of a column applies only if its feature is supported.
        is_missing: Returns of a column with a default whether a record has no field for it.

    Source: PROTOCOL.md#default-columns, #generated-columns, #identity-columns
    """
    filler = _ColumnFiller(protocol, rows.sparkSession)
    computed = [field for field in schema if is_computed(field)]
    with_default = default_columns(schema, protocol)
    values = {
        field.name: F.when(is_missing(field.name), filler.fill(field))
        if field.name in with_default
        else filler.fill(field)
        for field in computed
    }
    expressions = [filler.generation(field) for field in computed]
    generated = {
        field.name: F.expr(text).cast(type_to_spark(field.type))
        for field, texts in zip(computed, expressions, strict=True)
        for text in texts.values()
    }
    rows = filler.in_lanes(rows)
    # Two steps, because the expression of a generated column may read a column that has got its default.
    for step in filter(None, (values, generated)):  # Spark Connect refuses an empty step
        rows = rows.withColumns({name: F.coalesce(F.col(quote_name(name)), value) for name, value in step.items()})
    return rows.drop(_EARLIER_TASK)


def next_identity_values(
    rows: DataFrame, schema: StructType, protocol: Protocol, names: Collection[str]
) -> tuple[DataFrame, dict[str, Column]]:
    """Return the next values of some identity columns, unique for each row, and the rows to select them from.

    Source: PROTOCOL.md#identity-columns
    """
    filler = _ColumnFiller(protocol, rows.sparkSession)
    values = {field.name: filler.fill(field) for field in schema if field.name in names}
    return filler.in_lanes(rows), values


def missing_identities(frame: DataFrame, schema: StructType) -> list[Field]:
    """Return the identity columns that rows lack, so that the table generates their values."""
    incoming = from_spark(frame.schema)
    return [field for field in schema if find_identity(field) and incoming.find(field.name) is None]


class _ColumnFiller:
    """Fills the columns of a table that the data lacks."""

    def __init__(self, protocol: Protocol, spark: SparkSession) -> None:
        self._supported = supported_features(protocol)
        self.lanes = int(str(spark.conf.get(LANES, "200")))
        self._has_identities = False

    def in_lanes(self, rows: DataFrame) -> DataFrame:
        """Limit the number of tasks to the number of lanes, if the rows have new identity values."""
        if not self._has_identities:
            return rows
        # Without a shuffle. Spark replaces one coalesce that follows another, so that rows which the caller has brought
        # into one task would get several again; a column between them that the values need prevents that.
        return rows.withColumn(_EARLIER_TASK, F.spark_partition_id()).coalesce(self.lanes)

    def generation(self, field: Field) -> dict[str, str]:
        text = find_generation(field) if "generatedColumns" in self._supported else None
        return {} if text is None else {field.name: text}

    def identity(self, field: Field) -> Identity | None:
        return find_identity(field) if "identityColumns" in self._supported else None

    def fill(self, field: Field) -> Column:
        identity = self.identity(field)
        if identity is not None:
            self._has_identities = True
            return _identity_values(field, identity, self.lanes)
        return default_value(field, self._supported)


def default_value(field: Field, supported: Collection[str]) -> Column:
    """Return the value of a missing column: its default, or null.

    Source: PROTOCOL.md#default-columns
    """
    default = find_default(field) if "allowColumnDefaults" in supported else None
    value = F.lit(None) if default is None else F.expr(default)
    return value.cast(type_to_spark(field.type))


def _identity_values(field: Field, identity: Identity, lanes: int) -> Column:
    """Return identity values, unique for each row.

    Tasks know nothing of each other, so every task takes the values of its own lane, interleaved with the other lanes
    to leave few gaps. There must not be more tasks than lanes: see `_ColumnFiller.in_lanes`.
    """
    task, number = F.spark_partition_id(), F.monotonically_increasing_id()
    row = number.bitwiseAND(F.lit((1 << _ROW_BITS) - 1))
    # With 200 lanes, the rows of task 3 have the positions 3, 203, 403 and so on.
    position = row * lanes + task + F.least(F.col(_EARLIER_TASK), F.lit(0))
    high_water_mark = identity.high_water_mark
    last, steps = (identity.start, position) if high_water_mark is None else (high_water_mark, position + 1)
    # An overflow must not wrap around to values that are used already.
    value = F.try_add(F.try_multiply(steps, F.lit(identity.step).cast("bigint")), F.lit(last).cast("bigint"))
    return F.coalesce(value, raise_expression("IDENTITY", {"column": field.name}).cast("bigint"))


def _with_generated(rows: DataFrame, schema: StructType, expressions: Mapping[str, str]) -> DataFrame:
    columns = [
        F.expr(expressions[field.name]).cast(type_to_spark(field.type)).alias(field.name)
        if field.name in expressions
        else F.col(quote_name(field.name))
        for field in schema
    ]
    return rows.select(*columns)


# ---- shape and type --------------------------------------------------------------------------------


def cast_to_table_type(column: Column, have: DataType, want: DataType, path: Path) -> Column:
    """Return a column cast to the type of a table column: struct fields by name, missing fields as null.

    Args:
        want: The type of the table column; a value that it cannot hold fails the job.

    Source: Delta Lake's INSERT, which casts in ANSI mode
    """
    if _is_same(have, want):
        return column
    match have, want:
        case StructType(), StructType():
            return _reshape_struct(column, have, want, path)
        case ArrayType(), ArrayType():
            return F.transform(
                column, lambda item: cast_to_table_type(item, have.element, want.element, (*path, ELEMENT))
            )
        case MapType(), MapType():
            keyed = column
            if not _is_same(have.key, want.key):
                keyed = F.transform_keys(
                    column, lambda key, _: cast_to_table_type(key, have.key, want.key, (*path, KEY))
                )
            return F.transform_values(
                keyed, lambda _, value: cast_to_table_type(value, have.value, want.value, (*path, VALUE))
            )
    if have == VOID or is_widening(have, want):
        return column.cast(type_to_spark(want))
    return _cast_with_check(column, have, want, path)


def _reshape_struct(column: Column, have: StructType, want: StructType, path: Path) -> Column:
    parts = []
    for field in want:
        source = have.find(field.name)
        if source is None:
            part = F.lit(None).cast(type_to_spark(field.type))
        else:
            part = cast_to_table_type(column.getField(source.name), source.type, field.type, (*path, field.name))
        parts.append(part.alias(field.name))
    # A null stays null: a struct whose fields are null is another value.
    return F.when(column.isNotNull(), F.struct(*parts))


def _cast_with_check(column: Column, have: DataType, want: DataType, path: Path) -> Column:
    """Return a column cast to another type; a value that it cannot hold fails the job."""
    spark_type = type_to_spark(want)
    # The error of a cast that fails by itself does not name the column.
    result = column.try_cast(spark_type)
    facts = {"column": format_path(path), "old": have.sql, "new": want.sql}
    overflow = raise_expression("CAST", facts, show_values(column, have).cast("string"))
    return F.when(column.isNotNull() & result.isNull(), overflow.cast(spark_type)).otherwise(result)


def _is_same(have: DataType, want: DataType) -> bool:
    """Return whether two types are equal except for nullability and metadata."""
    return str(have) == str(want)


# The rules that a table sets for rows, checked while rows are written: a row that violates one fails the job.
#
# Source: PROTOCOL.md#column-invariants, #check-constraints, #generated-columns


Check: TypeAlias = Callable[[Column], Column]
RowRefusal: TypeAlias = tuple[str, Mapping[str, str], Column | None]
"""The arguments of `widen.spark.errors.raise_expression`."""

RuleBreach: TypeAlias = tuple[Column, RowRefusal]
"""The condition that violates a rule, and the error of the violation."""

NO_LIMITS: Mapping[str, str] = {}


def check_rows(
    rows: DataFrame,
    schema: StructType,
    protocol: Protocol,
    properties: Mapping[str, str],
    other: Sequence[Column] = (),
    limits: Mapping[str, str] = NO_LIMITS,
) -> DataFrame:
    """Return rows of a table; a row that violates a rule of the table fails the job that writes them.

    Rules are NOT NULL columns and fields, lengths of strings, invariants, CHECK constraints, and generated columns,
    whose given values must equal the value of the expression.

    Args:
        limits: More conditions in SQL that every row must fulfil, by their names.

    Source: PROTOCOL.md#column-invariants (a null condition is a violation), #check-constraints
    """
    stored = [field for field in schema if field.type != VOID]
    columns = []
    for field in schema:
        breaches = [*_column_breaches(field, protocol)]
        # A void column is not written, so Spark would drop a check that it carries.
        if stored and field is stored[-1]:
            breaches += _row_breaches(schema, protocol, properties, limits)
        columns.append(_fail_on_breach(field, breaches).alias(field.name))
    return rows.select(*columns, *other)


def _fail_on_breach(field: Field, breaches: Sequence[RuleBreach]) -> Column:
    """Return a column that fails the job with the first violated rule."""
    column, spark_type = F.col(quote_name(field.name)), type_to_spark(field.type)
    for is_violated, refusal in reversed(breaches):
        column = F.when(is_violated, raise_expression(*refusal).cast(spark_type)).otherwise(column)
    return column


def first_violated_rule(
    schema: StructType, protocol: Protocol, properties: Mapping[str, str], limits: Mapping[str, str] = NO_LIMITS
) -> Column | None:
    """Return the message of the first rule that a row violates, or null; None if there are no rules.

    NOT NULL columns and struct fields are not included: the fixed columns of an ingestion cover them.

    Args:
        limits: More conditions in SQL that every row must fulfil, by their names.
    """
    breaches = [breach for field in schema for breach in (*_item_breaches(field), *_length_breaches(field))]
    breaches += _row_breaches(schema, protocol, properties, limits)
    if not breaches:
        return None
    message = F.lit(None).cast("string")
    for is_violated, refusal in reversed(breaches):
        message = F.when(is_violated, refusal_text(*refusal)).otherwise(message)
    return message


def breaks_a_rule(
    schema: StructType, protocol: Protocol, properties: Mapping[str, str], limits: Mapping[str, str] = NO_LIMITS
) -> Column | None:
    """Return the condition that a row violates one of the rules of `check_rows`; None without rules."""
    breaches = [breach for field in schema for breach in _column_breaches(field, protocol)]
    breaches += _row_breaches(schema, protocol, properties, limits)
    return reduce(or_, (is_violated for is_violated, _ in breaches)) if breaches else None


# ---- rules of a row --------------------------------------------------------------------------------


def _row_breaches(
    schema: StructType, protocol: Protocol, properties: Mapping[str, str], limits: Mapping[str, str]
) -> Iterator[RuleBreach]:
    """Yield the breaches of rules on whole rows. The last column carries them, after all column rules."""
    for name, text, holds in _conditions(schema, protocol, properties, limits):
        refusal = ("CHECK", {"name": name, "expression": text}, _row_excerpt(text, schema))
        yield ~F.coalesce(holds, F.lit(False)), refusal


def _conditions(
    schema: StructType, protocol: Protocol, properties: Mapping[str, str], limits: Mapping[str, str]
) -> Iterator[tuple[str, str, Column]]:
    """Yield the name, the text and the condition of every rule on rows."""
    for name, condition in (*row_conditions(schema, protocol, properties), *limits.items()):
        yield f"The {name}", condition, F.expr(condition)
    for field in schema if is_supported(protocol, "generatedColumns") else ():
        text = find_generation(field)
        if text is not None:
            generated = F.expr(text).cast(type_to_spark(field.type))
            label = f"The generated column {field.name}"
            yield label, f"{quote_name(field.name)} <=> ({text})", F.col(quote_name(field.name)).eqNullSafe(generated)


def _row_excerpt(text: str, schema: StructType) -> Column:
    """Return the excerpt of a row for an error: the columns that a rule uses."""
    names = {path[0] for path in referenced_columns(text, schema)}
    used = [field for field in schema if field.name in names]
    if not used:
        return F.lit("")
    shown = [show_values(F.col(quote_name(field.name)), field.type).alias(field.name) for field in used]
    return F.left(F.to_json(F.struct(*shown), {"ignoreNullFields": "false"}), F.lit(SHOWN_CHARACTERS))


# ---- rules of a column -----------------------------------------------------------------------------


def _column_breaches(field: Field, protocol: Protocol) -> Iterator[RuleBreach]:
    """Yield the breaches of rules on one column: nulls that the schema forbids, and values of a wrong length.

    Delta Lake refuses a null struct with a NOT NULL field, which Iceberg allows.
    """
    column = F.col(quote_name(field.name))
    if not field.nullable:
        yield column.isNull(), _null_refusal((field.name,))
    for path, is_null in _nulls(field.type, allows_null_structs=protocol == ICEBERG):
        yield _anywhere(field.type, path[:-1], is_null)(column), _null_refusal((field.name, *path))
    yield from _length_breaches(field)


def _item_breaches(field: Field) -> Iterator[RuleBreach]:
    """Yield the breaches of elements and map values that are null although the schema forbids it."""
    for path, is_null in _item_nulls(field):
        is_violated = _anywhere(field.type, path[:-1], is_null)(F.col(quote_name(field.name)))
        yield is_violated, _null_refusal((field.name, *path))


def _item_nulls(field: Field) -> Iterator[tuple[Path, Check]]:
    for path, is_null in _nulls(field.type):
        if find_field(StructType((field,)), (field.name, *path)) is None:
            yield path, is_null


def has_value_rules(schema: StructType) -> bool:
    """Return whether there are rules for elements of arrays, values of maps, and the length of texts and bytes."""
    return any(True for field in schema for _ in _item_nulls(field)) or has_length_rules(schema)


def has_length_rules(schema: StructType) -> bool:
    """Return whether a column has texts of a limited length, or binary values of a fixed one."""
    items = [field for _, field in fields(schema)]
    return any(text_limits(field) for field in schema) or any(True for item in items for _ in fixed_lengths(item))


def _length_breaches(field: Field) -> Iterator[RuleBreach]:
    # Make no column where there is no rule, because a column needs a Spark session.
    for path, limit in text_limits(field).items():
        is_long = _anywhere(field.type, path, partial(_is_longer, limit))
        yield is_long(F.col(quote_name(field.name))), _length_refusal((field.name, *path), limit, field)
    for parent, item in fields(StructType((field,))):
        for path, _, size in fixed_lengths(item):
            whole = (*parent[1:], *path)
            has_other_length = _anywhere(field.type, whole, partial(_has_other_length, size))
            facts = {"column": format_path((field.name, *whole)), "size": str(size)}
            yield has_other_length(F.col(quote_name(field.name))), ("BYTES", facts, None)


def _null_refusal(path: Path) -> RowRefusal:
    return "NULL", {"column": format_path(path)}, None


def _length_refusal(path: Path, limit: int, field: Field) -> RowRefusal:
    facts = {"column": format_path(path), "limit": f"of {limit} characters at most"}
    shown = show_values(F.col(quote_name(field.name)), field.type)
    if len(path) > 1:
        return "TEXT", facts, F.left(F.to_json(F.struct(shown.alias(field.name))), F.lit(SHOWN_CHARACTERS))
    # Spark writes no JSON of a text alone, so the brackets of an array are cut off.
    array = F.to_json(F.array(F.left(shown, F.lit(SHOWN_CHARACTERS))))
    return "TEXT", facts, array.substr(F.lit(2), F.length(array) - 2)


def _is_longer(limit: int, column: Column) -> Column:
    return F.length(column) > limit


def _has_other_length(size: int, column: Column) -> Column:
    return F.octet_length(column) != size


def _nulls(data_type: DataType, path: Path = (), *, allows_null_structs: bool = True) -> Iterator[tuple[Path, Check]]:
    """Yield the path of everything inside a type that must not be null, with a check of its parent for nulls.

    Args:
        allows_null_structs: Whether a struct with such a field may be null; one in a list or a map always may.
    """
    match data_type:
        case StructType(items):
            check = _lacks if allows_null_structs else _is_field_null
            yield from (((*path, f.name), partial(check, f.name)) for f in items if not f.nullable)
        case ArrayType(_, False):
            yield (*path, ELEMENT), lambda column: F.exists(column, F.isnull)
        case MapType(_, _, False):
            yield (*path, VALUE), lambda column: F.exists(F.map_values(column), F.isnull)
    for step, child in children(data_type):
        allows = allows_null_structs or not isinstance(data_type, StructType)
        yield from _nulls(child, (*path, step), allows_null_structs=allows)


def _is_field_null(name: str, column: Column) -> Column:
    return column.getField(name).isNull()


def _lacks(name: str, column: Column) -> Column:
    return column.isNotNull() & column.getField(name).isNull()


def _anywhere(data_type: DataType, path: Path, check: Check) -> Check:
    """Return a check of a column that is true if a check is true for any value at a path in the column."""
    if not path:
        return check
    below = _anywhere(resolve(StructType((Field("only", data_type),)), ("only", path[0]))[1], path[1:], check)
    return partial(_STEPS.get((type(data_type), path[0]), partial(_in_struct, path[0])), below)


def _in_struct(name: str, below: Check, column: Column) -> Column:
    return below(column.getField(name))


def _in_array(below: Check, column: Column) -> Column:
    return F.exists(column, lambda item: below(item))


def _in_keys(below: Check, column: Column) -> Column:
    return _in_array(below, F.map_keys(column))


def _in_values(below: Check, column: Column) -> Column:
    return _in_array(below, F.map_values(column))


_STEPS: Mapping[tuple[type[object], str], Callable[[Check, Column], Column]] = {
    (ArrayType, ELEMENT): _in_array,
    (MapType, KEY): _in_keys,
    (MapType, VALUE): _in_values,
}
