"""The sums of the digests of source records and of table rows: natively where the process can, else in Python.

The native readers digest what they are sure of. Python reads what they refuse, and all of it where they are missing.
The digests are the same. The readers are the module ``widen._kernel.proof``: a crate of its own with a parser of its
own, made from the columns and rules of the proof, which shares nothing with the decoder of the writer but the wheel.

Source: docs/evolution-rules.md#proof; docs/kernel.md
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.json import encode

from widen.evolution.policy import Policy
from widen.model.native_kernel import find_kernel
from widen.model.types import DecimalType, StructType
from widen.model.value_classes import dataclass
from widen.proof.canonical import EncodedRecord, digest_text
from widen.proof.csv_reader import CsvForm, CsvHead, CsvReader, CsvText, read_csv_file, read_csv_head, recode
from widen.proof.expected_values import BITS, has_marks
from widen.proof.field_places import stands_alone
from widen.proof.json_reader import split_into_parts
from widen.proof.known_names import KnownNames, learn_names
from widen.proof.message_reader import typed_json_of
from widen.proof.nested_records import NestedText, all_nested_texts, read_nested_file
from widen.proof.proof_files import BLOCK_BYTES, FileValues
from widen.proof.row_encoder import RecordLayout, RowEncoder
from widen.proof.rules import (
    RECORD,
    ColumnsByKey,
    FieldColumns,
    ProofRule,
    SourceColumn,
    build_proof_rules,
    read_defaults,
    source_columns_by_key,
    with_times_of_columns,
)
from widen.proof.source_reader import SourceEncoder
from widen.schema.source_metadata import CORRUPT, RESCUED, role_field, role_of

_VERSION = 6
"""The version of the interface that this module needs."""


def find_native_readers() -> Any:
    """Return the module ``widen._kernel.proof``; None if this process does not have it, or must not use it."""
    # The folder of the sources may have a kernel of another day, which would take other arguments.
    readers = getattr(find_kernel(), "proof", None)
    return readers if getattr(readers, "VERSION", 0) == _VERSION else None


@dataclass(frozen=True, slots=True)
class ProofColumn:
    """A `SourceColumn` as the native readers take it; see ``kernel/proof/src/plan.rs``.

    Args:
        entries: The values of a map, as the only field.
        stands_alone: Whether no other column of the field may hold a value of this one.
    """

    position: int
    dim: int
    type_name: str
    precision: int
    scale: int
    has_epochs: bool
    unit_nanos: int
    has_booleans_as_numbers: bool
    rounds: bool
    stands_alone: bool
    record: ProofRecord | None
    entries: Sequence[ProofField]


@dataclass(frozen=True, slots=True)
class ProofField:
    """The columns of a field, and what its `ProofRule` says.

    Args:
        is_refused: Whether only Python knows what becomes of a value.
        refuses_strings: Whether a string may spell out something that the policy hides.
        checks_places: Whether each column must hold a value that it can hold.
        has_marks: Whether some columns take an integer, and not the same number with a point.
    """

    key: str
    columns: Sequence[ProofColumn]
    is_excluded: bool
    is_masked: bool
    is_map: bool
    is_refused: bool
    refuses_strings: bool
    has_dates: bool
    has_local_times: bool
    spells_any: bool
    has_zone: bool
    checks_places: bool
    has_marks: bool


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """The fields of a record.

    Args:
        refuses_unknown: Whether a key without a field may be one that the policy hides.
        in_any_case: Keys in lower case that may stand for a field of another name.
    """

    fields: Sequence[ProofField]
    refuses_unknown: bool
    in_any_case: Sequence[str]


@dataclass(frozen=True, slots=True)
class ProofCsv:
    """How the rows of a file are written: the parts of a `CsvForm` that the native reader supports."""

    names: Sequence[str]
    separator: int
    quote: int | None
    null: str
    values: str


def build_csv_plan(form: CsvForm, names: Sequence[str]) -> ProofCsv | None:
    """Return the plan for the rows of a file; None if Python has to read them."""
    is_plain = len(form.separator) == 1 and len(form.quote) <= 1 and not form.escape
    # A pattern without a spelling is one that the native reader does not know.
    if not names or not is_plain or bool(form.values) != bool(form.spelling):
        return None
    return ProofCsv(names, form.separator[0], form.quote[0] if form.quote else None, form.null.decode(), form.spelling)


def build_plan(
    fields: ColumnsByKey, rule: ProofRule, known: KnownNames | None = None, unchecked: Collection[str] = ()
) -> ProofRecord:
    """Return the plan for records.

    Args:
        known: The names of the fields; None if a key never stands for a field of another name.
        unchecked: The fields whose columns need not all hold the value.
    """
    keys = fields.keys() | {key for key, below in rule.below.items() if below.is_excluded}
    inside = {} if known is None else known.inside
    plans = [
        _field_plan(key, fields.get(key, ()), rule.rule_of(key), 0, inside.get(key), unchecked) for key in sorted(keys)
    ]
    is_hiding = bool(rule.hidden) or rule.included is not None
    return ProofRecord(plans, is_hiding, [] if known is None else sorted({*known.known_keys()}))


def _field_plan(
    key: str,
    columns: FieldColumns,
    rule: ProofRule,
    maps_above: int,
    known: KnownNames | None,
    unchecked: Collection[str] = (),
) -> ProofField:
    map_levels = rule.map_levels - maps_above
    return ProofField(
        key,
        [_column_plan(column, columns, rule, maps_above, known) for column in columns],
        is_excluded=rule.is_excluded,
        is_masked=rule.is_masked,
        is_map=map_levels > 0,
        is_refused=rule.text_form is not None or (map_levels > 0 and bool(rule.hidden)) or _may_be_integral(columns),
        refuses_strings=bool(rule.hidden),
        has_dates=rule.has_dates,
        has_local_times=rule.has_local_times,
        spells_any=rule.spelling.is_any,
        has_zone=bool(rule.spelling.zone),
        checks_places=key not in unchecked,
        has_marks=has_marks(columns),
    )


def _may_be_integral(columns: FieldColumns) -> bool:
    """Return whether a number such as 1.0 is an integer of a field that also has texts, which have its spelling."""
    is_taken = any(column.takes_integral and column.type_name in BITS for column in columns)
    return is_taken and any(column.type_name == "string" for column in columns)


def _column_plan(
    column: SourceColumn, columns: FieldColumns, rule: ProofRule, maps_above: int, known: KnownNames | None
) -> ProofColumn:
    others = [(each, each.dim) for each in columns]
    precision, scale = (column.type.precision, column.type.scale) if isinstance(column.type, DecimalType) else (0, 0)
    return ProofColumn(
        column.position,
        column.dim,
        column.type_name,
        precision=precision,
        scale=scale,
        has_epochs=column.has_epochs,
        unit_nanos=0 if column.epoch_unit is None else column.epoch_unit.nanos,
        has_booleans_as_numbers=column.has_booleans_as_numbers,
        rounds=bool(column.rounds),
        stands_alone=stands_alone(column, column.dim, others, rule),
        record=build_plan(column.fields or {}, rule, known) if column.type_name == RECORD else None,
        entries=[] if column.value is None else [_field_plan("", (column.value,), rule, maps_above + 1, known)],
    )


MODULUS = 2**128
"""The sum of the digests is taken modulo this number."""

ALL = 2**32
"""The limit of `DigestSum` that leaves out no digest."""


_ROWS = 10_000

WHOLE_BYTES = 2**23
"""CSV files of this size or larger are read in blocks."""


@dataclass(slots=True)
class DigestSum:
    """The sum of digests, which does not depend on their order, with the counts.

    Args:
        limit: Digests whose checksum is not below this limit are left out, on both sides.
        values: Values of rows, and of records, beyond the values in the form of their row.
    """

    limit: int = ALL
    digest: int = 0
    records: int = 0
    values: int = 0
    converted: int = 0

    def add(self, encoded: Iterable[EncodedRecord]) -> None:
        """Add encoded records or rows."""
        is_whole, to_int = self.limit >= ALL, int.from_bytes
        digests = records = values = converted = 0
        for text, more_values, more_converted in encoded:
            each = digest_text(text)
            if is_whole or crc32(each) < self.limit:
                # A sum instead of an exclusive or, because two equal records would cancel out.
                digests += to_int(each, "big")
                records += 1
                values += more_values
                converted += more_converted
        self.merge(digests, records, values, converted)

    def merge(self, digest: int, records: int, values: int, converted: int) -> None:
        """Add another sum."""
        self.digest = (self.digest + digest) % MODULUS
        self.records += records
        self.values += values
        self.converted += converted


class SourceDigester:
    """Sums the digests of the texts of a source.

    Args:
        layout: How forms are encoded; the native reader knows only the plain layout.
        limit: See `DigestSum`.
    """

    def __init__(self, schema: StructType, policy: Policy, layout: RecordLayout, limit: int = ALL) -> None:
        self._copy = partial(SourceDigester, schema, policy, layout, limit)
        self._path, self._typed = policy.record_path, typed_json_of(policy.dialect)
        # The readers get plain JSON.
        left = None if policy.dialect is None else policy.dialect.of_plain
        policy = replace(with_times_of_columns(schema, policy), dialect=left)
        self._make_encoder, self._sum = partial(SourceEncoder, schema, policy, layout), DigestSum(limit)
        # Python reads what the native reader does not know: a sample of the fields, envelopes, and defaults.
        is_plain = not layout.has_sample and policy.envelope is None and not read_defaults(schema)
        readers = find_native_readers() if is_plain else None
        self._native = readers and readers.SourceReader(
            build_plan(
                source_columns_by_key(schema, policy),
                build_proof_rules(schema, policy),
                learn_names(schema, policy),
            ),
            role_field(schema, RESCUED) is not None,
            limit,
        )

    @cached_property
    def _encoder(self) -> SourceEncoder:
        # Where the native reader refuses nothing, thousands of columns need no encoder in Python.
        return self._make_encoder()

    def add_lines(self, block: bytes, file_values: FileValues = ()) -> None:
        if self._path is not None or self._typed is not None:
            self.add_texts(block.splitlines(), file_values)
            return
        spans = [(0, len(block))]
        if self._native is not None:
            spans = self._native.add(block, _to_json_fields(file_values))
        self._add_lines(block, spans, file_values)

    def add_file(self, data: bytes, file_values: FileValues = ()) -> None:
        """Add the records of a file in any form."""
        if self._path is not None:
            self._add_nested(read_nested_file(BytesIO(data), self._path), file_values)
            return
        if self._typed is not None:
            self.add_texts(list(split_into_parts(data)), file_values)
            return
        spans = None if self._native is None else self._native.add_file(data, _to_json_fields(file_values))
        if spans is None:
            self._sum.add(self._encoder.encode_file(data, file_values))
        else:
            self._add_lines(data, spans, file_values)

    def add_open_file(self, file: BinaryIO, name: str, file_values: FileValues = ()) -> None:
        """Add the records of a file in any form: below a path, of a document that may be larger than memory."""
        if self._path is None:
            self.add_file(file.read(), file_values)
        else:
            self._add_nested(read_nested_file(file, self._path, name), file_values)

    def _add_nested(self, texts: Iterator[NestedText], file_values: FileValues) -> None:
        while some := list(islice(texts, _ROWS)):
            self._add_records([text for text, is_record in some if is_record], file_values)
            self.add_refused((text for text, is_record in some if not is_record), file_values)

    def add_csv(self, file: BinaryIO, form: CsvForm, file_values: FileValues = ()) -> None:
        """Add the rows of a CSV file. A large one is read in blocks, so that it needs little memory."""
        data = file.read(WHOLE_BYTES)
        if len(data) < WHOLE_BYTES or not form.is_utf8:
            self._add_csv_text(data + file.read(), form, file_values)
            return
        head = read_csv_head(data, form)
        plan = None if self._native is None else build_csv_plan(form, head.names)
        if plan is not None and (lines := self._copy()._add_csv_lines(file, form, head, plan, file_values)):
            self._sum.merge(lines.digest, lines.records, lines.values, lines.converted)
            return
        self._add_rows(_read_large_csv(file, form, head), file_values)

    def _add_csv_lines(
        self, file: BinaryIO, form: CsvForm, head: CsvHead, plan: ProofCsv, file_values: FileValues
    ) -> DigestSum | None:
        """Add the rows of a file that has each on a line, and return their sum; None if one takes several lines."""
        assert self._native is not None
        reader, fields = CsvReader(form, head), _to_json_fields(file_values)
        for block in _read_blocks(file, head.size):
            spans = self._native.add_csv(block, plan, fields)
            if spans is None:
                return None
            for start, end in spans:
                self._add_rows(reader.read([block[start:end]]), file_values)
        return self.sum()

    def _add_csv_text(self, data: bytes, form: CsvForm, file_values: FileValues) -> None:
        text = recode(data, form)
        if text is None:
            self.add_refused([data], file_values)
            return
        head = read_csv_head(text, form)
        rows, spans = text[head.size :], None
        plan = build_csv_plan(form, head.names)
        if self._native is not None and plan is not None:
            spans = self._native.add_csv(rows, plan, _to_json_fields(file_values))
        reader = CsvReader(form, head)
        if spans is None:
            self._add_rows(reader.read(rows.splitlines(keepends=True), is_end=True), file_values)
            return
        for start, end in spans:
            self._add_rows(reader.read([rows[start:end]]), file_values)

    def _add_rows(self, rows: Iterable[CsvText], file_values: FileValues) -> None:
        iterator = iter(rows)
        # In parts, so that a file of any size needs little memory.
        while some := list(islice(iterator, _ROWS)):
            self.add_texts([row.text for row in some if row.is_record], file_values)
            self.add_refused((row.text for row in some if not row.is_record), file_values)

    def add_texts(self, texts: Sequence[bytes], file_values: FileValues = ()) -> None:
        """Add the records in texts; each text is a record, records, or corrupt, or has records below a path."""
        if self._path is not None:
            self._add_nested(all_nested_texts(texts, self._path), file_values)
        else:
            self._add_records(texts, file_values)

    def _add_records(self, texts: Sequence[bytes], file_values: FileValues) -> None:
        texts = texts if self._typed is None else self._typed.plain_texts(texts)
        if self._native is not None:
            texts = [texts[index] for index in self._native.add_texts(texts, _to_json_fields(file_values))]
        self._sum.add(self._encoder.encode_texts(texts, file_values))

    def add_refused(self, texts: Iterable[bytes], file_values: FileValues = ()) -> None:
        """Add texts that are not records, even if they look like records."""
        self._sum.add(self._encoder.encode_refused(text, file_values) for text in texts)

    def add_quarantined(self, texts: Iterable[str]) -> None:
        """Add the forms of quarantined texts in the same way as the forms of rows."""
        self._sum.add(map(self._encoder.encode_quarantined_records, texts))

    def _add_lines(self, block: bytes, spans: Sequence[tuple[int, int]], file_values: FileValues) -> None:
        for start, end in spans:
            self._sum.add(self._encoder.encode_texts(block[start:end].splitlines(), file_values))

    def sum(self) -> DigestSum:
        """Return the sum. Nothing can be added afterwards."""
        return _with_native(self._sum, self._native)


def read_csv_texts(file: BinaryIO, form: CsvForm) -> Iterator[CsvText]:
    """Yield the texts of a CSV file. A large one is read in blocks, so that it needs little memory."""
    data = file.read(WHOLE_BYTES)
    if len(data) < WHOLE_BYTES or not form.is_utf8:
        return read_csv_file(data + file.read(), form)
    return _read_large_csv(file, form, read_csv_head(data, form))


def _read_large_csv(file: BinaryIO, form: CsvForm, head: CsvHead) -> Iterator[CsvText]:
    reader = CsvReader(form, head)
    for block in _read_blocks(file, head.size):
        yield from reader.read(block.splitlines(keepends=True))
    yield from reader.read([], is_end=True)


def _read_blocks(file: BinaryIO, start: int) -> Iterator[bytes]:
    """Yield a file from a byte on in blocks of whole lines."""
    file.seek(start)
    rest = b""
    while data := file.read(BLOCK_BYTES):
        data = rest + data
        # A carriage return at the end may belong to a line feed.
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        if end:
            yield data[:end]
        rest = data[end:]
    if rest:
        yield rest


class RowDigester:
    """Sums the digests of the rows of a table; see `SourceDigester`."""

    def __init__(self, schema: StructType, policy: Policy, layout: RecordLayout, limit: int = ALL) -> None:
        self._make_encoder, self._sum = partial(RowEncoder, schema, policy, layout), DigestSum(limit)
        special = [position for position, field in enumerate(schema) if role_of(field) in (RESCUED, CORRUPT)]
        readers = None if layout.has_sample else find_native_readers()
        self._native = readers and readers.RowReader(
            build_plan(
                source_columns_by_key(schema, policy),
                build_proof_rules(schema, policy),
                unchecked=read_defaults(schema).keys(),
            ),
            special,
            limit,
        )

    @cached_property
    def _encoder(self) -> RowEncoder:
        return self._make_encoder()

    def add(self, rows: pa.StructArray, converted: pa.Array | None = None) -> None:
        """Add rows.

        Args:
            converted: How many values of each row the table has in another form than the source; by default none.
        """
        if converted is not None and self._sum.limit < ALL:
            # Which rows count depends on their digests, which the native reader does not return.
            counts = converted.to_pylist()
            encoded = zip(self._encoder.encode(rows), counts, strict=True)
            self._sum.add((text, values, count) for (text, values, _), count in encoded)
            return
        if converted is not None:
            self._sum.merge(0, 0, 0, pc.sum(converted, min_count=0).as_py())
        if self._native is not None:
            refused = self._native.add(pa.RecordBatch.from_struct_array(rows))
            if not refused:
                return
            # It refuses rows whose columns do not plainly agree; what they mean is decided in one place.
            rows = rows.take(pa.array(refused, pa.int64()))
        self._sum.add(self._encoder.encode(rows))

    def add_encoded(self, row: EncodedRecord) -> None:
        self._sum.add([row])

    def sum(self) -> DigestSum:
        """Return the sum. Nothing can be added afterwards."""
        return _with_native(self._sum, self._native)


def _with_native(total: DigestSum, native: Any) -> DigestSum:
    if native is not None:
        digest, *counts = native.sums()
        total.merge(int.from_bytes(digest, "big"), *counts)
    return total


def _to_json_fields(file_values: FileValues) -> list[tuple[str, str | None]]:
    return [(key, None if value is None else encode(value).decode()) for key, value in file_values]
