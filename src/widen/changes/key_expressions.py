"""Keys and sequences of rows as Spark expressions, and what each key of a batch becomes.

Source: docs/guide/keys.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from widen.batches.text_batch import BatchResult
from widen.errors import KeyRepeated, SequenceRepeated
from widen.evolution.key_rules import (
    CONTENT,
    DELETE,
    DELETE_UNKNOWN,
    INSERT,
    INTEGERS,
    IS_DELETE,
    KEY_TEXT,
    LATE,
    NUMBER,
    TEXT,
    UPDATE,
    KeyCounts,
    KeyRules,
    beside_texts,
    content_fields,
    explain_no_key,
    explain_no_order,
    find_order,
    find_places,
    format_paths,
    order_family,
)
from widen.evolution.unify import EXACT_JSON
from widen.frames.table_writers import WrittenFile
from widen.model.column_path import Path
from widen.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructType,
    quote_name,
)
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import ensure_deterministic_condition, join_columns
from widen.spark.spark_types import Column, DataFrame, F, Window

_RANK, _RECORDS, _ACTION = "__widen_rank", "__widen_records", "__widen_action"
_OLD, _DELETED = "__widen_old", "__widen_deleted"


# The rules, and what a batch did by them.


# Keys and sequences as values that are independent of the column that holds them.


def find_columns(schema: StructType, path: Path) -> list[tuple[Column, DataType, Path]]:
    """Return the columns that hold values of a field, with their types and their places, the first one first."""
    return [(_column_at(place), data_type, place) for data_type, place in find_places(schema, path)]


def _column_at(place: Path) -> Column:
    return reduce(lambda above, name: above.getField(name), place[1:], F.col(quote_name(place[0])))


_SCALE = 18
_WIDE = f"decimal(38,{_SCALE})"


def _scalar_text(column: Column, data_type: DataType) -> Column | None:
    """Return a value as a text with its kind before it; None for types that cannot be keys."""
    if data_type in INTEGERS:
        return F.concat(F.lit("n:"), column.cast("string"))
    if data_type in (FLOAT, DOUBLE):
        # A decimal column may hold the same number; very large and very small ones only doubles hold.
        double = column.cast("double")
        decimal = _try_decimal(double)
        is_exact = decimal.cast("double") == double
        return F.concat(F.lit("n:"), F.when(is_exact, _plain(decimal, _SCALE)).otherwise(double.cast("string")))
    if isinstance(data_type, DecimalType):
        return F.concat(F.lit("n:"), _plain(column, data_type.scale))
    if data_type == STRING:
        return F.concat(F.lit("s:"), column)
    if data_type == BOOLEAN:
        return F.concat(F.lit("b:"), column.cast("string"))
    if data_type == BINARY:
        return F.concat(F.lit("x:"), F.hex(column))
    if data_type in (DATE, TIMESTAMP_NTZ):
        # A date column may widen to timestamps without a time zone; midnight is then the same value.
        return F.concat(F.lit("d:"), F.regexp_replace(column.cast("string"), " 00:00:00$", ""))
    if data_type == TIMESTAMP:
        return F.concat(F.lit("t:"), F.unix_micros(column).cast("string"))
    return None


def _try_decimal(double: Column) -> Column:
    """Return a double as a decimal with the digits that it is written with; null if it is too large or NaN."""
    return F.when(F.abs(double) < 1e19, double.cast("string").try_cast(_WIDE))


def _plain(decimal: Column, scale: int) -> Column:
    """Return a decimal as a text without an exponent and without zeros at its end."""
    text = decimal.cast("string")
    # Without the rules of ANSI, small numbers have an exponent. Only they are formatted, which takes longer.
    text = F.when(text.contains("E"), F.replace(F.format_number(decimal, scale), F.lit(","))).otherwise(text)
    text = F.when(text.contains("."), F.regexp_replace(text, r"\.?0+$", "")).otherwise(text)
    # Compared with a decimal, the smallest ones would be rounded to zero.
    return F.when(decimal.cast("double") == 0, "0").otherwise(text)


def key_text(schema: StructType, rules: KeyRules) -> Column | None:
    """Return the key of a row as one text, null if one of its fields has no scalar value.

    Args:
        schema: The columns of the rows.

    Returns:
        None if the rows have no column for a field.
    """
    texts = []
    for path in rules.key:
        columns = find_columns(schema, path)
        # A column of texts also has the text of every value that other columns hold, so it comes last.
        columns.sort(key=lambda each: each[1] == STRING)
        scalars = [text for column, data_type, _ in columns if (text := _scalar_text(column, data_type)) is not None]
        if not scalars:
            return None
        texts.append(F.coalesce(*scalars))
    if len(texts) == 1:
        return texts[0]
    any_null = join_columns(lambda one, two: one | two, [text.isNull() for text in texts])
    # Escaped, so that two keys with the separator in their texts stay apart.
    return F.when(~any_null, F.to_json(F.array(*texts)))


def sequence(schema: StructType, paths: Sequence[Path]) -> tuple[Column, Column]:
    """Return the sequence of a row as a number, or as a text; both null if the row has no sequence.

    Numbers and times are ordered by value, texts by their bytes; `find_order` says which it is. The values of several
    fields are one text that sorts like them; see `widen.changes.key_columns.CombinedOrder`.

    Args:
        paths: The fields of the sequence.
    """
    nothing = F.lit(None).cast(_WIDE), F.lit(None).cast("string")
    if len(paths) > 1:
        return nothing[0], F.concat(*(_part_text(schema, path) for path in paths))
    if not paths:
        return nothing
    family, places = find_order(schema, paths[0])
    same = [(_column_at(place), data_type) for data_type, place in places if order_family(data_type) == family]
    if family == "text":
        others = [_column_at(place).isNull() for place in beside_texts(places)]
        return nothing[0], F.when(join_columns(lambda one, two: one & two, others), same[0][0]) if others else same[0][
            0
        ]
    if family is None:
        return nothing
    return F.coalesce(*(order_number(column, data_type) for column, data_type in same)), nothing[1]


_ZERO, _ESCAPED, _END = "\0", "\0\1", "\0\0"
_TO_NINE = ("0123456789", "9876543210")


def _part_text(schema: StructType, path: Path) -> Column:
    """Return the value of a field as a part of the text of a sequence."""
    number, text = sequence(schema, (path,))
    if find_order(schema, path)[0] == "text":
        return F.concat(F.replace(text, F.lit(_ZERO), F.lit(_ESCAPED)), F.lit(_END))
    digits = F.regexp_replace(F.format_number(F.abs(number), _SCALE), "[,.]", "")
    digits = F.lpad(digits, 38, "0")
    # Compared with a decimal, the smallest ones would be rounded to zero.
    is_negative = number.cast("double") < 0
    return F.when(is_negative, F.concat(F.lit("0"), F.translate(digits, *_TO_NINE))).otherwise(
        F.concat(F.lit("1"), digits)
    )


def split_sequence(text: Column, families: Sequence[str | None]) -> list[tuple[Column, Column]]:
    """Return the number and the text of each field of the text of a sequence.

    Args:
        families: Whether the fields are ordered as numbers, times or texts.
    """
    parts: list[tuple[Column, Column]] = []
    for family in families:
        if family == "text":
            end = F.instr(text, _END)
            part = F.replace(F.substring(text, F.lit(1), end - 1), F.lit(_ESCAPED), F.lit(_ZERO))
            parts.append((F.lit(None).cast(_WIDE), part))
            text = F.substring(text, end + 2, F.length(text))
            continue
        digits, is_negative = F.substring(text, 2, 38), F.substring(text, 1, 1) == "0"
        digits = F.when(is_negative, F.translate(digits, *_TO_NINE)).otherwise(digits)
        sign, point = F.when(is_negative, "-").otherwise(""), F.lit(".")
        number = F.concat(sign, F.substring(digits, 1, 20), point, F.substring(digits, 21, _SCALE))
        parts.append((number.cast(_WIDE), F.lit(None).cast("string")))
        text = F.substring(text, F.lit(40), F.length(text))
    return parts


def order_number(column: Column, data_type: DataType) -> Column:
    """Return a number or a time as what orders it."""
    if data_type in (FLOAT, DOUBLE):
        return _try_decimal(column.cast("double"))
    if data_type == DATE:
        return (F.unix_date(column).cast("bigint") * 86_400_000_000).cast(_WIDE)
    if data_type == TIMESTAMP:
        return F.unix_micros(column).cast(_WIDE)
    if data_type == TIMESTAMP_NTZ:
        epoch = F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'")
        return F.timestamp_diff("MICROSECOND", epoch, column).cast(_WIDE)
    return column.try_cast(_WIDE)


def broken_rule(schema: StructType, rules: KeyRules) -> Column | None:
    """Return why the ingestion cannot find a record's row; null if it can.

    Returns:
        None if the rows have no column for a key yet.
    """
    text = key_text(schema, rules)
    if text is None:
        return None
    reason = F.when(text.isNull(), explain_no_key(rules.key))
    if not rules.sequence_by:
        return reason
    number, words = sequence(schema, rules.sequence_by)
    return reason.when(number.isNull() & words.isNull(), explain_no_order(rules.sequence_by))


# What each key of a batch becomes.


def with_order(rows: DataFrame, schema: StructType, rules: KeyRules, *, deletes: bool = False) -> DataFrame:
    """Return rows with their key, their sequence, whether they delete, and their content as a text.

    The content breaks ties, so that the newest record does not depend on the order of files and tasks. The caller has
    checked that the condition of deletions is deterministic.

    Args:
        deletes: Whether all of the rows delete, where columns do not say so; see `KeyRules.excluded`.
    """
    text = key_text(schema, rules)
    assert text is not None
    number, words = sequence(schema, rules.sequence_by)
    is_delete, condition = F.lit(deletes), rules.deletes(schema)
    if condition is not None:
        is_delete = F.coalesce(F.expr(condition).cast("boolean"), F.lit(False))
    return rows.select(
        "*",
        text.alias(KEY_TEXT),
        number.alias(NUMBER),
        words.alias(TEXT),
        is_delete.alias(IS_DELETE),
        _content(schema, rules).alias(CONTENT),
    )


def order_batch(
    read: Callable[[BatchResult], DataFrame], result: BatchResult, schema: StructType, rules: KeyRules
) -> DataFrame:
    """Return the records of a batch as `with_order` does.

    Args:
        read: Returns the rows of the files of a result.
    """
    if not result.deleting:
        return with_order(read(result), schema, rules)
    groups: dict[bool, list[WrittenFile]] = {}
    for file in result.files:
        groups.setdefault(file.path in result.deleting, []).append(file)
    frames = (
        with_order(read(replace(result, files=files)), schema, rules, deletes=deletes)
        for deletes, files in groups.items()
    )
    return reduce(DataFrame.unionAll, frames)


def _content(schema: StructType, rules: KeyRules) -> Column:
    """Return the values of a row as one text."""
    names = sorted(field.name for field in content_fields(schema, rules))
    # Without nulls, so that a row stays the same if the table gets another column.
    options = {**EXACT_JSON, "ignoreNullFields": "true"}
    return F.to_json(F.struct(*(F.col(quote_name(name)) for name in names)), options)


_ORDER = (NUMBER, TEXT, IS_DELETE, CONTENT)


def ensure_deletes_deterministic(rows: DataFrame, schema: StructType, rules: KeyRules) -> None:
    """Check that the condition of deletions can be evaluated on rows and is deterministic."""
    condition = rules.deletes(schema)
    # A condition that is only a field without a column is NULL, which Spark does not take for a boolean.
    if condition is not None and condition.strip(" ()\n\t").upper() != "NULL":
        ensure_deterministic_condition(rows, condition)


def newest_by_key(rows: DataFrame) -> DataFrame:
    """Return the newest of the records of each key, with the number of its records.

    Args:
        rows: The result of `with_order`.
    """
    by_key = Window.partitionBy(KEY_TEXT)
    newest = by_key.orderBy(*(F.col(name).desc_nulls_last() for name in _ORDER))
    ranked = rows.withColumns({_RANK: F.row_number().over(newest), _RECORDS: F.count(F.lit(1)).over(by_key)})
    return ranked.where(F.col(_RANK) == 1).drop(_RANK)


def ensure_one_record(rows: DataFrame) -> None:
    """Check that a batch without a sequence has no two different records of a key.

    Raises:
        KeyRepeated: two records have the same key.
    """
    record = F.struct(IS_DELETE, CONTENT)
    repeated = rows.groupBy(KEY_TEXT).agg(F.min(record).alias("first"), F.max(record).alias("last"))
    with translate_spark_errors():
        count = repeated.where(F.col("first") != F.col("last")).count()
    if count:
        raise KeyRepeated(count=count)


def ensure_no_equal_sequences(
    rows: DataFrame, old: DataFrame | None, deleted: DataFrame | None, rules: KeyRules
) -> None:
    """Check that the winner among different records with one sequence does not change the result.

    For rows that are replaced as a whole, check the newest record of a key; for versions and partial records, every
    record. A row merged from partial records is not a record itself, so compare only records of the same batch.

    Args:
        rows: The records of the batch, the result of `with_order`.
        old: The rows of the table that may have one of the keys, likewise.
        deleted: The keys that were deleted, with their sequence.

    Raises:
        SequenceRepeated: the result depends on it.
    """
    order = F.struct(NUMBER, TEXT).alias("order")
    # All deletions are the same, regardless of the rest of their records.
    record = F.struct(IS_DELETE, F.when(~F.col(IS_DELETE), F.col(CONTENT)).alias(CONTENT)).alias("record")
    events = [rows.select(KEY_TEXT, order, record, F.lit(True).alias("is_new"))]
    if old is not None and not rules.keeps_missing:
        is_delete = F.lit(False).alias(IS_DELETE)
        events.append(old.select(KEY_TEXT, order, F.struct(is_delete, CONTENT), F.lit(False)))
    if deleted is not None:
        deletion = F.struct(F.lit(True).alias(IS_DELETE), F.lit(None).cast("string").alias(CONTENT))
        events.append(deleted.select(KEY_TEXT, order, deletion, F.lit(False)))
    first, last, is_new = F.min("record").alias("first"), F.max("record").alias("last"), F.max("is_new").alias("is_new")
    moments = reduce(DataFrame.unionAll, events).groupBy(KEY_TEXT, "order").agg(first, last, is_new)
    is_tie = (F.col("is_new") & ~F.col("first").eqNullSafe(F.col("last"))).alias("is_tie")
    ties = moments.select(KEY_TEXT, "order", is_tie)
    by_key = ties.groupBy(KEY_TEXT).agg(
        (F.max_by("is_tie", "order") if rules.is_plain else F.max("is_tie")).alias("tie")
    )
    with translate_spark_errors():
        count = by_key.where("tie").count()
    if count:
        raise SequenceRepeated(count=count, sequence_by=format_paths(rules.sequence_by))


def decide(newest: DataFrame, old: DataFrame | None, deleted: DataFrame | None, rules: KeyRules) -> DataFrame:
    """Return what the newest record of each key does, with its sequence.

    Args:
        newest: The result of `newest_by_key`.
        old: The rows of the table that may have one of the keys; the result of `with_order`.
        deleted: The keys that were deleted, with their sequence; see `widen.changes.deleted_keys`.
    """
    nothing = F.lit(None)
    decided = newest.select(KEY_TEXT, *_ORDER, _RECORDS)
    if old is None:
        decided = decided.withColumn(_OLD, nothing)
    else:
        # An older table may have several rows of a key; all of them are replaced.
        row = F.max(F.struct(NUMBER, TEXT, F.lit(False).alias(IS_DELETE), CONTENT)).alias(_OLD)
        decided = decided.join(old.groupBy(KEY_TEXT).agg(row), KEY_TEXT, "left")
    if deleted is None:
        decided = decided.withColumn(_DELETED, nothing)
    else:
        decided = decided.join(deleted.select(KEY_TEXT, F.struct(NUMBER, TEXT).alias(_DELETED)), KEY_TEXT, "left")
    is_known = F.col(_OLD).isNotNull()
    late: list[Column] = []
    if old is not None:
        new_order = F.struct(*_ORDER)
        is_late = new_order <= F.col(_OLD) if rules.sequence_by else _is_same(F.col(_OLD))
        late.append(is_known & is_late)
    if deleted is not None:
        late.append(F.col(_DELETED).isNotNull() & (F.struct(NUMBER, TEXT) <= F.col(_DELETED)))
    action = F.when(join_columns(lambda one, two: one | two, late), LATE) if late else None
    is_delete = F.col(IS_DELETE)
    for condition, value in (
        (is_known & is_delete, DELETE),
        (is_known, UPDATE),
        (is_delete, DELETE_UNKNOWN),
    ):
        action = F.when(condition, value) if action is None else action.when(condition, value)
    assert action is not None
    return decided.select(KEY_TEXT, NUMBER, TEXT, _RECORDS, action.otherwise(INSERT).alias(_ACTION))


def _is_same(old: Column) -> Column:
    return ~F.col(IS_DELETE) & (F.col(CONTENT) == old.getField(CONTENT))


def count_actions(decided: DataFrame) -> tuple[KeyCounts, int]:
    """Return what a batch does, and the number of its records.

    Args:
        decided: The result of `decide`.
    """
    with translate_spark_errors():
        rows = decided.groupBy(_ACTION).agg(F.count(F.lit(1)), F.sum(_RECORDS)).collect()
    keys: Mapping[str, int] = {action: count for action, count, _ in rows}
    records = sum(count for _, _, count in rows)
    inserted, updated, deleted, unknown = (keys.get(action, 0) for action in (INSERT, UPDATE, DELETE, DELETE_UNKNOWN))
    return KeyCounts(inserted, updated, deleted, unknown, records - inserted - updated - deleted - unknown), records


def with_action(decided: DataFrame, *actions: str) -> DataFrame:
    """Return the keys that have one of some actions."""
    return decided.where(F.col(_ACTION).isin(*actions))


def rows_of_keys(rows: DataFrame, keys: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the columns of the rows that have some keys."""
    return rows.join(keys.select(KEY_TEXT), KEY_TEXT, "left_semi").select(*map(quote_name, names))
