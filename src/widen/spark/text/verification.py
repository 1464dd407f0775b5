"""The proof, on the executors: every record of the source is looked for among the rows of the table.

Both sides are brought to one form and digested. The sums of the digests are compared first, which takes no exchange of
rows; only where they differ is every digest compared, and only the records that differ are told value by value.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any, TypeAlias
from zlib import crc32

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from widen.model.types import StructType
from widen.planning.evolution.policy import Policy
from widen.proof.file_values import FileReader, Told
from widen.proof.json_reader import split_file
from widen.proof.record_digest import Form, count_values, differences, digest
from widen.proof.row_reader import RowReader
from widen.proof.source_reader import SourceReader
from widen.spark.source.json_texts import FILE, PART, TEXT, WHOLE
from widen.spark.spark_errors import translate_spark_errors

DIGEST, VALUES, CONVERTED, PLACE, FORM = "digest", "values", "converted", "place", "form"
"""The columns of what is compared: the digest of a record or row, its values, how many of them are converted, where it
stands, and its form, where that is asked for."""

ROW = "row"
"""Rows travel as one column, since ``mapInArrow`` takes a dot in the name of a column for a step into it."""

SHOWN = 10
"""How many lost records are named."""

_CANDIDATES = 200
"""Among how many of the rows that no record accounts for a lost record is looked for."""

_SIDE, _RECORDS = "side", "records"
_DDL = f"{DIGEST} binary, {VALUES} bigint, {CONVERTED} bigint, {PLACE} string, {FORM} binary"
_SCHEMA = pa.schema(
    [(DIGEST, pa.binary()), (VALUES, pa.int64()), (CONVERTED, pa.int64()), (PLACE, pa.string()), (FORM, pa.binary())]
)
_SUMS_DDL = f"{DIGEST} binary, {_RECORDS} bigint, {VALUES} bigint, {CONVERTED} bigint"
_SUMS_SCHEMA = pa.schema([(DIGEST, pa.binary()), (_RECORDS, pa.int64()), (VALUES, pa.int64()), (CONVERTED, pa.int64())])
_MODULUS = 2**128
"""Digests are added up modulo this."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a record or a row says.

    Args:
        form: The form in which both are compared.
        values: How many values it has.
        converted: How many of them the table has in another form than the source; None if this side does not tell.
        place: Where it stands.
    """

    form: Form
    values: int = 0
    converted: int | None = None
    place: str | None = None


Reader: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[Said]]


@dataclass(frozen=True, slots=True)
class Side:
    """The records of a source, or the rows of a table, for the proof.

    Args:
        digests: A row for each: `DIGEST`, `VALUES`, `CONVERTED`, `PLACE` and `FORM`.
        parts: What the digests are made of: rows, and what reads them; none where Spark itself makes the digests.
    """

    digests: DataFrame
    parts: tuple[tuple[DataFrame, Reader], ...] = ()


@dataclass(frozen=True, slots=True)
class Verification:
    """What the proof says. The values of the source are exact, converted or lost.

    Args:
        records: The records of the source; a text that is not a record counts as one.
        leaves: The values in them: scalars that are not null, and empty arrays and objects.
        exact: How many of those values come back from the table as they were.
        converted: How many come back as the mode says: of another kind, spelled otherwise, masked, or null for empty.
        lost: How many do not come back. It must be 0.
        places: Where some of the records stand of which a value is lost, and the paths of the values.
        extra: The rows that no record accounts for. It must be 0.
        share: What share of the records and rows was compared; 1 for all of them.
    """

    records: int
    leaves: int
    exact: int
    converted: int = 0
    lost: int = 0
    places: tuple[str, ...] = ()
    extra: int = 0
    share: float = 1.0

    @property
    def is_clean(self) -> bool:
        """Whether everything came through, and nothing else."""
        return not (self.lost or self.places or self.extra)

    def __str__(self) -> str:
        sample = "" if self.share >= 1 else f" in a sample of {self.share:.2%} of the records"
        converted = f", {self.converted} converted as the mode says" if self.converted else ""
        lost = f", {self.lost} LOST" if self.lost else ""
        extra = f", {self.extra} rows that no record accounts for" if self.extra else ""
        return f"{self.exact} of {self.leaves} leaves exact{converted}{lost}{extra}{sample}"

    def to_value(self) -> dict[str, Any]:
        """Return the proof as a JSON object."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value


def verify(source: Side, there: Side, share: float = 1.0) -> Verification:
    """Compare what records say with what rows say of them.

    Args:
        source: The records.
        there: The rows of the table, and the records that are kept out of it.
        share: What share of the records is compared, with their rows. What they say chooses them: they are always the
            same.

    Raises:
        CorruptFile: a file cannot be read.
        StorageError: the store refused.

    Source: docs/evolution-rules.md#one-interval, #d20
    """
    limit = int(share * 2**32)
    with translate_spark_errors():
        if source.parts and there.parts:
            told, found = _summed(source, limit), _summed(there, limit)
            if (told.digest, told.records) == (found.digest, found.records):
                exact = told.values - told.converted
                return Verification(told.records, told.values, exact, told.converted, share=share)
        return _compared(source, there, limit, share)


# ---- sums ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sum:
    """The sum of digests modulo 2**128, which does not depend on their order; with what was counted."""

    digest: int = 0
    records: int = 0
    values: int = 0
    converted: int = 0


def _summed(side: Side, limit: int) -> _Sum:
    total = _Sum()
    for rows, read in side.parts:
        for row in rows.mapInArrow(partial(_sums, read, limit), _SUMS_DDL).collect():
            total.digest = (total.digest + int.from_bytes(row[DIGEST], "big")) % _MODULUS
            total.records += row[_RECORDS]
            total.values += row[VALUES]
            total.converted += row[CONVERTED]
    return total


def _sums(read: Reader, limit: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    total, is_whole = _Sum(), limit >= 2**32
    with _uncollected():
        for said in read(batches):
            each = digest(said.form)
            if is_whole or crc32(each) < limit:
                total.digest += int.from_bytes(each, "big")
                total.records += 1
                total.values += said.values
                total.converted += said.converted or 0
    summed = (total.digest % _MODULUS).to_bytes(16, "big")
    row = {DIGEST: summed, _RECORDS: total.records, VALUES: total.values, CONVERTED: total.converted}
    yield pa.RecordBatch.from_pylist([row], schema=_SUMS_SCHEMA)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Forms hold no cycles, and looking for some among them takes longer than making them."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# ---- every digest ----------------------------------------------------------------------------------

_TOTALS = ("records", "values", "exact", "converted", "missing", "extra")


def _compared(source: Side, there: Side, limit: int, share: float) -> Verification:
    sides = _of_side(source, 1).unionAll(_of_side(there, -1))
    found = _by_digest(sides if limit >= 2**32 else sides.where(F.crc32(DIGEST) < limit))
    sums = found.agg(*(F.coalesce(F.sum(name), F.lit(0)).cast("bigint") for name in _TOTALS)).collect()[0]
    records, values, exact, converted, missing, extra = sums
    if not missing:
        return Verification(records, values, exact, converted, values - exact - converted, (), extra, share)
    lost = found.where(F.col("missing") > 0).select(DIGEST, PLACE).orderBy(PLACE).limit(SHOWN).collect()
    more = found.where(F.col("extra") > 0).select(DIGEST).limit(_CANDIDATES).collect() if extra else []
    at = {bytes(row[DIGEST]): row[PLACE] for row in lost}
    places, saved = _explained(source, there, at, [row[DIGEST] for row in more])
    exact += saved
    return Verification(records, values, exact, converted, values - exact - converted, places, extra, share)


def _of_side(side: Side, sign: int) -> DataFrame:
    return side.digests.select(DIGEST, VALUES, CONVERTED, PLACE, F.lit(sign).alias(_SIDE))


def _by_digest(sides: DataFrame) -> DataFrame:
    """Return for each form that occurs: the records, their values, and how many rows are missing or extra."""
    is_source = F.col(_SIDE) == 1
    grouped = sides.groupBy(DIGEST).agg(
        F.count_if(is_source).alias("records"),
        F.count_if(~is_source).alias("rows"),
        F.coalesce(F.sum(F.when(is_source, F.col(VALUES))), F.lit(0)).alias("values"),
        F.coalesce(F.avg(CONVERTED), F.lit(0)).alias("each"),
        F.min(PLACE).alias(PLACE),
    )
    records, rows = F.col("records"), F.col("rows")
    matched = F.least(records, rows)
    held = F.when(matched == 0, 0).otherwise(F.col("values") * matched / records)
    converted = F.round(F.col("each") * matched)
    return grouped.select(
        *(DIGEST, "records", "values", PLACE),
        (F.round(held) - converted).alias("exact"),
        converted.alias("converted"),
        F.greatest(records - rows, F.lit(0)).alias("missing"),
        F.greatest(rows - records, F.lit(0)).alias("extra"),
    )


# ---- what differs, value by value ------------------------------------------------------------------


def _explained(
    source: Side, there: Side, lost: dict[bytes, str], extra: Collection[bytes]
) -> tuple[tuple[str, ...], int]:
    """Return where values of lost records stand and their paths, and how many other values of them are there.

    Args:
        source: The records.
        there: The rows.
        lost: Some of the records without a row: their digests, and where they stand.
        extra: The digests of some of the rows without a record.
    """
    records, rows = _forms(source, lost), list(_forms(there, extra).values())
    places, saved = [], 0
    for each, place in sorted(lost.items(), key=lambda item: item[1] or ""):
        paths, kept = _closest(records.get(each), rows)
        saved += kept
        places.append(f"{place}: {', '.join(paths)}" if paths else str(place))
    return tuple(places), saved


def _closest(form: Form, rows: list[Form]) -> tuple[list[str], int]:
    """Return where the row that says most of a record differs from it, and how many values that row says."""
    best: tuple[list[str], int] = [], 0
    if not isinstance(form, dict):
        return best
    values = count_values(form)
    for row in rows:
        found = list(differences(form, row)) if isinstance(row, dict) else []
        kept = values - sum(count for _, count in found) if found else 0
        if kept > best[1]:
            best = [path for path, _ in found], kept
    return best


def _forms(side: Side, digests: Collection[bytes]) -> dict[bytes, Form]:
    """Return the forms that have some digests, by these; none where Spark has made the digests."""
    if not digests or not side.parts:
        return {}
    found = side.digests.where(F.col(DIGEST).isin(list(digests))).select(DIGEST, FORM).collect()
    return {bytes(row[DIGEST]): msgspec.msgpack.decode(row[FORM]) for row in found}


# ---- texts and rows --------------------------------------------------------------------------------


def text_side(texts: DataFrame, schema: StructType, policy: Policy, files: FileReader | None = None) -> Side:
    """Return the records of a raw batch.

    Args:
        texts: The raw batch.
        schema: Of the table that holds the records.
        policy: What was said about single fields.
        files: Which fields the records get from their files.
    """
    return _side((texts, partial(_read_texts, schema, policy, files)))


def row_side(rows: DataFrame, schema: StructType, policy: Policy, kept_out: DataFrame | None = None) -> Side:
    """Return the rows of a table, and what is kept out of it, of records that came as texts.

    Args:
        rows: The rows.
        schema: Of the table.
        policy: What was said about single fields.
        kept_out: The texts of what is kept out, in a column `TEXT`.
    """
    parts = [(rows.select(F.struct("*").alias(ROW)), partial(_read_rows, schema, policy))]
    if kept_out is not None:
        parts.append((kept_out.select(TEXT), partial(_read_kept_out, schema, policy)))
    return _side(*parts)


def _side(*parts: tuple[DataFrame, Reader]) -> Side:
    first, *others = (rows.mapInArrow(partial(_digests, read), _DDL) for rows, read in parts)
    for other in others:
        first = first.unionAll(other)
    return Side(first, parts)


def _digests(read: Reader, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with _uncollected():
        for batch in batches:
            rows = [_row(said) for said in read([batch])]
            yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def _row(said: Said) -> dict[str, Any]:
    each, form = digest(said.form), msgspec.msgpack.encode(said.form)
    return {DIGEST: each, VALUES: said.values, CONVERTED: said.converted, PLACE: said.place, FORM: form}


def _read_texts(
    schema: StructType, policy: Policy, files: FileReader | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[Said]:
    reader, numbers = SourceReader(schema, policy), _Numbers()
    told_by = cache(files.of) if files else _nothing
    for batch in batches:
        for text, file, place in numbers.texts(batch):
            for told in reader.read(text, told_by(file)):
                yield Said(told.form, told.values, told.converted, place)


def _nothing(file: str) -> Told:
    return ()


class _Numbers:
    """Tells where texts stand: the file, and the number of the text in it."""

    def __init__(self) -> None:
        self._of: tuple[str, int] = ("", 0)
        self._number = 0

    def texts(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes, str, str]]:
        """Yield the texts of a part of a raw batch, each with its file and with where it stands."""
        columns = (batch.column(name).to_pylist() for name in (TEXT, FILE, PART, WHOLE))
        for text, file, part, is_whole in zip(*columns, strict=True):
            if is_whole:
                yield from ((each, file, f"{file}:{number}") for number, each in enumerate(split_file(text), 1))
                continue
            self._number = self._number + 1 if self._of == (file, part) else 1
            self._of = file, part
            yield text, file, f"{file} from byte {part}:{self._number}" if part else f"{file}:{self._number}"


def _read_rows(schema: StructType, policy: Policy, batches: Iterable[pa.RecordBatch]) -> Iterator[Said]:
    reader = RowReader(schema, policy)
    return map(Said, chain.from_iterable(reader.forms(batch.column(0)) for batch in batches))


def _read_kept_out(schema: StructType, policy: Policy, batches: Iterable[pa.RecordBatch]) -> Iterator[Said]:
    reader = SourceReader(schema, policy)
    texts = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
    return (Said(reader.read_kept_out(text)) for text in texts)
