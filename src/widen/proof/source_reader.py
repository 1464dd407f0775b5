"""What the texts of a source say, as the rows of a table must have it.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from widen.model.types import StructType
from widen.planning.evolution.policy import Policy
from widen.proof.expected_values import Counts, ExpectedRecord
from widen.proof.fast_reader import FastReader
from widen.proof.file_values import Told as OfFile
from widen.proof.file_values import with_told
from widen.proof.json_reader import read_records
from widen.proof.proof_rules import Hiding
from widen.proof.record_digest import Form, corrupt_form


@dataclass(frozen=True, slots=True)
class Told:
    """What one record says.

    Args:
        form: The form that its row must have.
        values: How many values it has; a text that is not a record is one.
        converted: How many of them the table has in another form than the source.
    """

    form: Form
    values: int
    converted: int = 0


class SourceReader:
    """Reads the texts of a source.

    Args:
        schema: Of the table that holds the records.
        policy: What was said about single fields.
    """

    def __init__(self, schema: StructType, policy: Policy) -> None:
        self._expectation, self._hiding = ExpectedRecord(schema, policy), Hiding(policy)
        self._quick = FastReader(self._expectation)

    def read(self, text: bytes, of_file: OfFile = ()) -> Iterator[Told]:
        """Yield what a text says: a record, the records of an array, or that it is not a record; nothing of space.

        Args:
            text: The text.
            of_file: The fields that records get from their file.
        """
        found = self._quick.read(text, of_file)
        if found is not None:
            yield _told(*found)
        elif text.strip():
            yield from self.read_exactly(text, of_file)

    def read_exactly(self, text: bytes, of_file: OfFile = ()) -> Iterator[Told]:
        """Yield what a text says, told the exact way."""
        records = read_records(text)
        if records is None:
            yield Told(corrupt_form(self._hiding.corrupt(text)), 1, int(self._hiding.hides))
        else:
            whole = (with_told(record, of_file) if of_file else record for record in records)
            yield from (_told(*self._expectation.of(record)) for record in whole)

    def read_kept_out(self, text: str) -> Form:
        """Return what a text in the quarantine says: a record, in the form that its row would have, or the text."""
        records = read_records(text.encode()) if text.lstrip()[:1] == "{" else None
        return corrupt_form(text) if records is None else self._expectation.of(records[0])[0]


def _told(form: Form, counts: Counts) -> Told:
    return Told(form, counts.values, counts.converted)
