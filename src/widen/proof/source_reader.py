"""Texts of a source as the rows that the table must have for them.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from widen.model.types import StructType
from widen.planning.evolution.policy import Policy
from widen.proof.expected_values import ExpectedRecord, ValueCounts
from widen.proof.fast_reader import FastReader
from widen.proof.file_values import FileValues, add_file_values
from widen.proof.json_reader import read_records, split_file, split_lines
from widen.proof.proof_rules import CorruptTextRedactor
from widen.proof.record_digest import EncodedRecord, Form, count_form, to_corrupt_form
from widen.proof.record_layout import LayoutMatcher, RecordLayout

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ExpectedRow:
    """The row that the table must have for one record.

    Args:
        values: Number of values in the record; a text that is not a record counts as one.
        converted: Number of these values that the table has in another form than the source.
    """

    form: Form
    values: int
    converted: int = 0


class SourceReader:
    """Reads the texts of a source."""

    def __init__(self, schema: StructType, policy: Policy) -> None:
        self._expectation, self._redactor = ExpectedRecord(schema, policy), CorruptTextRedactor(policy)
        self._fast = FastReader(self._expectation)
        self.fields = self._expectation.fields

    def read(self, text: bytes, file_values: FileValues = ()) -> Iterator[ExpectedRow]:
        """Yield the row of each record in a text: of one record, of the records of an array, or of a corrupt text.

        A text of spaces has no row.
        """
        fast = self._fast.read(text, file_values)
        if fast is not None:
            yield _to_row(*fast)
        elif text.strip():
            yield from self.read_exactly(text, file_values)

    def read_exactly(self, text: bytes, file_values: FileValues = ()) -> Iterator[ExpectedRow]:
        """Yield the rows of a text without the fast path."""
        records = read_records(text)
        is_array = text.removeprefix(_BOM).lstrip().startswith(b"[")
        if records is None and not is_array and len(parts := list(split_file(text))) > 1:
            for part in parts:
                yield from self.read_exactly(part, file_values)
        elif records is None:
            yield from self.read_refused(text)
        else:
            completed = (add_file_values(record, file_values) if file_values else record for record in records)
            yield from (_to_row(*self._expectation.expect(record)) for record in completed)

    def read_refused(self, text: bytes) -> Iterator[ExpectedRow]:
        """Yield the row of a text that is not a record, whatever it looks like."""
        yield ExpectedRow(to_corrupt_form(self._redactor.redact(text)), 1, int(self._redactor.is_redacting))

    def read_kept_out(self, text: str) -> Form:
        """Return the form of a quarantined text: that of the row that its record would have, or of a corrupt text."""
        records = read_records(text.encode()) if text.lstrip()[:1] == "{" else None
        return to_corrupt_form(text) if records is None else self._expectation.expect(records[0])[0]


class SourceEncoder:
    """Encodes the texts of a source, most of them without parsing."""

    def __init__(self, schema: StructType, policy: Policy, layout: RecordLayout) -> None:
        self._reader, self._layout = SourceReader(schema, policy), layout
        self._match = LayoutMatcher(self._reader.fields, layout).match

    def encode(self, text: bytes, file_values: FileValues = ()) -> Iterable[EncodedRecord]:
        """Return the encoded row of each record in a text; see `SourceReader.read`.

        The values are those beyond the values of the row.
        """
        own_form = None if file_values else self._match(text)
        return self._encode_exactly(text, file_values) if own_form is None else ((own_form, 0, 0),)

    def encode_file(self, data: bytes, file_values: FileValues = ()) -> Iterator[EncodedRecord]:
        """Yield the encoded row of each record in a file; see `split_file`."""
        lines = split_lines(data) if not file_values else []
        # One line that is a record tells that the lines are the texts of the file.
        texts = lines if any(map(self._match, lines)) else split_file(data)
        yield from self.encode_texts(texts, file_values)

    def encode_texts(self, texts: Iterable[bytes], file_values: FileValues = ()) -> Iterator[EncodedRecord]:
        """Yield the encoded row of each record in texts."""
        for text in texts:
            yield from self.encode(text, file_values)

    def _encode_exactly(self, text: bytes, file_values: FileValues) -> Iterator[EncodedRecord]:
        for row in self._reader.read(text, file_values):
            yield self._layout.encode(row.form), row.values - count_form(row.form), row.converted

    def encode_refused(self, text: bytes) -> EncodedRecord:
        """Return the encoded row of a text that is not a record."""
        (row,) = self._reader.read_refused(text)
        return self._layout.encode(row.form), row.values - count_form(row.form), row.converted

    def encode_kept_out(self, text: str) -> EncodedRecord:
        """Return the encoded form of a quarantined text, like that of a row."""
        form = self._reader.read_kept_out(text)
        return self._layout.encode(form), count_form(form), 0


def _to_row(form: Form, counts: ValueCounts) -> ExpectedRow:
    return ExpectedRow(form, counts.values, counts.converted)
