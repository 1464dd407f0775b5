"""The two sides of the proof for typed records: the records of a source, and the rows of the table, read in tasks.

Files are read by tasks themselves, and what only Spark reads comes to tasks in Arrow's form. They send back sums, and
only if these differ the digests of all records, which Spark compares.

Source: docs/evolution-rules.md#proof, #d16
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import cast

from widen.evolution.policy import Policy
from widen.frames.table_writers import TableRows
from widen.model.column_path import leaves, map_children
from widen.model.types import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
    quote_name,
)
from widen.model.value_classes import dataclass
from widen.proof.proof_files import FileValueReader
from widen.proof.rules import ColumnsByKey, build_proof_rules
from widen.schema.source_metadata import RESCUED, role_field
from widen.sources.file_ranges import fields_of, with_field_steps
from widen.sources.listing import SourceFile
from widen.spark.engine import LocalFrame, Rows, Session
from widen.spark.spark_types import Column, DataFrame, F, type_to_spark
from widen.verification.record_texts import with_text_keys
from widen.verification.records import (
    ROW,
    ColumnFiles,
    Digester,
    Side,
    build_column_reader,
    build_row_side,
    digest_records,
    to_structs,
)
from widen.verification.restored_values import VariantText
from widen.verification.typed_records import (
    RebuiltFiles,
    RecordProof,
    build_rebuilt_reader,
    has_own_kinds,
    read_quarantined_texts,
    read_rebuilt_rows,
    read_records_with_places,
    sum_quarantined_texts,
    sum_rebuilt_rows,
    sum_records,
    without_roles,
)


@dataclass(frozen=True, slots=True)
class RecordPart:
    """The records of a source that share a schema.

    Args:
        files: The Parquet files of the records, if tasks can read them.
        fields: Reader of the fields that records get from their files; None if they get none.
        frame: The records as `select_records_for_proof` returns them; None if this process reads the files.
    """

    proof: RecordProof
    files: Sequence[SourceFile] = ()
    fields: FileValueReader | None = None
    frame: DataFrame | None = None


def build_source_side(spark: Session, parts: Sequence[RecordPart]) -> Side:
    """Return the records of a source."""
    is_columnar = _are_columnar(parts)
    files = [_to_column_files(part, is_columnar=is_columnar) for part in parts if part.files]
    frames = [(part.frame, part.proof) for part in parts if part.frame is not None]

    def digests() -> DataFrame:
        found = [digest_records(frame, partial(read_records_with_places, proof)) for frame, proof in frames]
        return reduce(DataFrame.unionAll, found)

    sums = tuple(
        (part.frame, partial(sum_records, part.proof)) for part in parts if part.frame is not None and not part.files
    )
    return Side(digests, sums, build_column_reader(spark, files) if files else None)


def build_table_side(
    spark: Session,
    parts: Sequence[RecordPart],
    table: TableRows,
    paths: Sequence[Sequence[str]],
    quarantined_records: Callable[[], Rows] | None,
) -> Side:
    """Return the rows of a table, and the quarantined records."""
    proofs = [part.proof for part in parts]

    def digests() -> DataFrame:
        found = [
            digest_records(_read_rows(spark, proof, table, own), partial(read_rebuilt_rows, proof))
            for proof, own in zip(proofs, paths, strict=True)
        ]
        if quarantined_records is not None:
            found.append(digest_records(quarantined_records(), partial(read_quarantined_texts, proofs)))
        return reduce(DataFrame.unionAll, found)

    if quarantined_records is None and _are_columnar(parts):
        every = [path for own in paths for path in own]
        files = table.task_files(spark, every)
        side = build_row_side(spark, partial(table.read, spark, every), proofs[0].schema, proofs[0].policy, None, files)
        return Side(digests, side.parts, side.reader)
    sums: list[tuple[Rows, Digester]] = []
    rebuilt = []
    for proof, own in zip(proofs, paths, strict=True):
        files = table.task_files(spark, own)
        if files is not None:
            rebuilt.append(RebuiltFiles(proof, files))
        elif own:
            sums.append((_read_rows(spark, proof, table, own), partial(sum_rebuilt_rows, proof)))
    if quarantined_records is not None:
        sums.append((quarantined_records(), partial(sum_quarantined_texts, proofs)))
    return Side(digests, tuple(sums), build_rebuilt_reader(spark, rebuilt) if rebuilt or not sums else None)


def _are_columnar(parts: Sequence[RecordPart]) -> bool:
    """Return whether the columns of the table are digested like the columns of the source: nothing is rebuilt."""
    return all(
        part.files
        # A mask leaves texts the type that they have.
        and not part.proof.policy.hides
        and part.proof.records == part.proof.source == with_text_keys(part.proof.source)
        and has_own_kinds(part.proof.source, part.proof.columns)
        # Of several columns, types decide which has a value, and not its spelling.
        and not _has_siblings(part.proof.columns)
        # The rescue column has numbers and times as texts, which get the types of the source.
        and role_field(part.proof.schema, RESCUED) is None
        and (part.proof.schema, part.proof.policy) == (parts[0].proof.schema, parts[0].proof.policy)
        for part in parts
    )


def _has_siblings(fields: ColumnsByKey) -> bool:
    return any(len(each) > 1 or any(_has_siblings(one.fields or {}) for one in each) for each in fields.values())


def _to_column_files(part: RecordPart, *, is_columnar: bool) -> ColumnFiles:
    files = ColumnFiles(part.files, without_roles(part.proof.source), part.fields)
    if not is_columnar:
        return replace(files, prepare=part.proof.prepare, digested=part.proof.digested)
    # A float means its exact value, also in a column of doubles, and a double the number of its shortest text.
    has_floats = any(data_type == FLOAT for _, data_type in leaves(part.proof.schema))
    return files if has_floats else replace(files, schema=cast(StructType, _floats_as_doubles(files.schema)))


def _floats_as_doubles(data_type: DataType) -> DataType:
    return DOUBLE if data_type == FLOAT else map_children(data_type, lambda _, child: _floats_as_doubles(child))


# ---- what tasks can read ---------------------------------------------------------------------------


def build_record_proof(source: StructType, schema: StructType, policy: Policy) -> RecordProof:
    """Return the proof for the records of a part of a source.

    Args:
        source: The fields of the records. Tasks read none that the policy excludes, and Arrow has no type for some of
            the others, which the policy masks.
    """
    rule = build_proof_rules(schema, policy)
    kept = StructType(tuple(field for field in source if not rule.rule_of(field.name).is_excluded))
    return RecordProof(cast(StructType, _readable(kept)), cast(StructType, _readable(schema)), policy)


def _readable(data_type: DataType) -> DataType:
    """Return a type as tasks get its values: variants as JSON, and of values without a type in Arrow that they are."""
    match data_type:
        case StructType(fields):
            return StructType(tuple(replace(each, type=_readable(each.type)) for each in fields if _is_read(each.type)))
        case ArrayType() | MapType():
            return map_children(data_type, lambda _, child: _readable(child))
    if data_type == VARIANT:
        return VariantText()
    return data_type if _has_arrow_type(data_type) else BOOLEAN


def _is_read(data_type: DataType) -> bool:
    match data_type:
        case ArrayType(inner) | MapType(_, inner):
            return _is_read(inner)
        case StructType(fields):
            return any(_is_read(field.type) for field in fields)
    return data_type != VOID


def _has_arrow_type(data_type: DataType) -> bool:
    return isinstance(data_type, (DecimalType, VariantText)) or str(data_type) in _WITH_ARROW_TYPES


_WITH_ARROW_TYPES = frozenset(
    ("boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz")
    + ("string", "binary")
)


def select_records_for_proof(
    frame: DataFrame, fields: StructType, proof: RecordProof, place: Column | None
) -> DataFrame:
    """Return the fields of records that a proof reads, by position, and the location of each as text."""
    at = {field.name: number for number, field in enumerate(fields)}
    types = {field.name: field.type for field in fields}
    columns = [_read_values(F.col(str(at[name])), types[name]) for name in proof.source.names]
    where = F.lit("") if place is None else F.concat_ws(":", place.getField("file"), place.getField("number"))
    return frame.select(*(column.alias(f"c{number}") for number, column in enumerate((*columns, where))))


def _read_rows(spark: Session, proof: RecordProof, table: TableRows, paths: Sequence[str]) -> Rows:
    rows = table.read(spark, paths)
    if isinstance(rows, LocalFrame):
        return to_structs(rows)
    types: Mapping[str, DataType] = {field.name: field.type for field in table.schema}
    columns = (_read_values(F.col(quote_name(name)), types[name]).alias(name) for name in proof.schema.names)
    return rows.select(F.struct(*columns).alias(ROW))


def _read_values(values: Column, data_type: DataType) -> Column:
    if all(_has_arrow_type(leaf) or leaf == VOID for _, leaf in leaves(data_type)):
        return values
    return _take_apart(values.cast(type_to_spark(with_field_steps(data_type))), data_type)


def _take_apart(values: Column, data_type: DataType) -> Column:
    """Return values as tasks read them; see `_readable`."""
    match data_type:
        case StructType():
            inner = fields_of(values, data_type)
            parts = (_take_apart(*typed).alias(name) for name, typed in inner.items() if _is_read(typed[1]))
            return F.when(values.isNotNull(), F.struct(*parts))
        case ArrayType(element):
            return F.transform(values, lambda item: _take_apart(item, element))
        case MapType(_, value):
            return F.transform_values(values, lambda _, item: _take_apart(item, value))
    if data_type == VARIANT:
        return F.to_json(values)
    return values if _has_arrow_type(data_type) else F.when(values.isNotNull(), F.lit(True))
