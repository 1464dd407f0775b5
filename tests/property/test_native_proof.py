"""The native readers of the proof against its exact path, form by form: of records and of rows.

``WIDEN_PROOF_RECORDS`` is the number of records.
"""

from __future__ import annotations

import csv
import io
import os
import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from support.drift import BAD
from support.generated_records import FILE, SETTINGS, Setting, mutated, plan_of
from support.stable_interval import ingest_texts
from widen.batches.text_tasks import drain_arrow_batches
from widen.evolution.policy import Mode, Policy
from widen.files.arrow_types import to_arrow_schema
from widen.model.types import StructType
from widen.proof import record_digests
from widen.proof.canonical import count_form, encode_form
from widen.proof.csv_reader import CsvForm, read_csv_file
from widen.proof.record_digests import build_plan, find_native_readers
from widen.proof.row_encoder import RecordLayout
from widen.proof.row_reader import RowReader
from widen.proof.rules import build_proof_rules, source_columns_by_key
from widen.proof.source_reader import SourceReader
from widen.rows.row_builder import RowBuilder
from widen.schema.source_metadata import CORRUPT, RESCUED, role_field, role_of
from widen.sources.csv_dialect import EXACT_VALUES, WRITTEN_VALUES

RECORDS = int(os.environ.get("WIDEN_PROOF_RECORDS", "60000"))
ROUND = 500

pytestmark = pytest.mark.skipif(find_native_readers() is None, reason="the kernel is not installed; see docs/kernel.md")


@dataclass
class Share:
    """How many records and rows the native readers have read."""

    read: int = 0
    records: int = 0
    read_rows: int = 0
    rows: int = 0


def native_source(schema: StructType, policy: Policy) -> Any:
    plan = build_plan(source_columns_by_key(schema, policy), build_proof_rules(schema, policy))
    return find_native_readers().SourceReader(plan, role_field(schema, RESCUED) is not None, 2**32)


def native_rows(schema: StructType, policy: Policy) -> Any:
    plan = build_plan(source_columns_by_key(schema, policy), build_proof_rules(schema, policy))
    special = [position for position, field in enumerate(schema) if role_of(field) in (RESCUED, CORRUPT)]
    return find_native_readers().RowReader(plan, special, 2**32)


def check_records(schema: StructType, policy: Policy, texts: list[bytes], share: Share) -> None:
    native, exact = native_source(schema, policy), SourceReader(schema, policy)
    for text in texts:
        found = native.encode(text)
        share.records += 1
        if found is not None:
            share.read += 1
            (row,) = exact.read_exactly(text)
            assert found == (encode_form(row.form), row.values - count_form(row.form), row.converted), text


def check_rows(schema: StructType, policy: Policy, batch: pa.RecordBatch, share: Share) -> None:
    exact = RowReader(schema, policy).forms(pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)))
    for number, (found, form) in enumerate(zip(native_rows(schema, policy).encode(batch), exact, strict=True)):
        share.rows += 1
        if found is not None:
            share.read_rows += 1
            assert found == (encode_form(form), count_form(form)), (batch.slice(number, 1).to_pylist(), schema.sql)


def with_swapped_values(chance: random.Random, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of which one column has the values of other rows, so that the columns of a field may disagree."""
    at, rows = chance.randrange(batch.num_columns), list(range(batch.num_rows))
    chance.shuffle(rows)
    return batch.set_column(at, batch.schema.field(at), batch.column(at).take(pa.array(rows, pa.int64())))


def check_round(setting: Setting, seed: int, share: Share, *, changes_bytes: bool = False) -> None:
    chance = random.Random(seed)
    base, schema, _ = plan_of(setting, [setting.text(chance, 0.0) for _ in range(120)])
    nasty = chance.choice([0.0, 0.05, 0.2])
    texts = [setting.text(chance, nasty) for _ in range(ROUND)]
    if changes_bytes:
        texts = [mutated(chance, text) for text in texts]
    else:
        texts[:: ROUND // 5] = chance.choices(BAD, k=5)
    if setting.file_fields is None:
        check_records(schema, setting.policy, texts, share)
    builder = RowBuilder(schema, setting.policy, base, None, setting.file_fields)
    builder.add(texts, [(FILE, at) for at in range(ROUND)])
    for batch in drain_arrow_batches(builder, to_arrow_schema(schema)):
        check_rows(schema, setting.policy, batch, share)
        for _ in range(3):
            # Python has to look at columns that disagree.
            check_rows(schema, setting.policy, with_swapped_values(chance, batch), Share())


def check_rounds(name: str, records: int, **how: Any) -> Share:
    share = Share()
    for seed in range(max(1, records // len(SETTINGS) // ROUND)):
        check_round(SETTINGS[name], seed, share, **how)
    return share


LEAST_SHARES = {
    "texts": 0.02,
    "hollow, hidden": 0.0,
    "hidden": 0.1,
    "epochs": 0.0,
    "rescued": 0.3,
    "included": 0.01,
} | {
    "spellings": 0.3,
    "spellings, new": 0.1,
    "integral doubles": 0.0,
}
"""The share of records that the native reader reads at least, where it is not half of them."""

LEAST_ROW_SHARES = {
    "several columns": 0.2,
    "several columns, new": 0.2,
    "several columns, widened": 0.25,
    "epochs": 0.05,
    "dates": 0.15,
    "dates, new": 0.35,
    "epochs, pinned": 0.05,
    "spellings": 0.03,
    "spellings, new": 0.04,
    "integral doubles": 0.05,
}
"""The share of rows, likewise: columns with records of two depths, and times beside texts or numbers, are for Python,
which looks whether each value is in its own column."""


@pytest.mark.parametrize("name", SETTINGS)
def test_native_forms_are_those_of_the_exact_path(name: str) -> None:
    share = check_rounds(name, RECORDS)
    # A reader that refuses all records would never be wrong.
    assert share.read >= share.records * LEAST_SHARES.get(name, 0.5), share
    assert share.read_rows >= share.rows * LEAST_ROW_SHARES.get(name, 0.5), share


@pytest.mark.parametrize("name", SETTINGS)
def test_native_forms_are_those_of_the_exact_path_of_records_with_changed_bytes(name: str) -> None:
    assert check_rounds(name, RECORDS // 5, changes_bytes=True).rows


CSV_FIELDS = (
    *("1", "0", "-0", "007", "12.5", "12.50", "1e5", "1.5e5", "-3.25", "12345678901.5", "1.5e99999", "9" * 39, "true"),
    *("text", "", " ", "NULL", "a,b", 'say "yes"', '"', "é😀", "2024-05-01", "2024-05-01T10:00:00Z", "\x01", "a\\"),
)
SPELLINGS = {"": "", "exact": EXACT_VALUES, "written": WRITTEN_VALUES}


def csv_file(chance: random.Random) -> bytes:
    """Return a file with a header; some of its rows are quoted, or no rows."""
    out = io.StringIO()
    quoting = chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    rows = csv.writer(out, lineterminator=chance.choice(["\n", "\r\n"]), quoting=quoting)
    rows.writerow(["a", "b", "a", "day"])
    for _ in range(60):
        width = 4 if chance.random() < 0.97 else chance.randrange(1, 6)
        rows.writerow(chance.choices(CSV_FIELDS, k=width))
        if chance.random() < 0.03:
            out.write(chance.choice(["\n", '"x"y,1,2,3\n', 'a"b,c,d,e\n']))
    if chance.random() < 0.2:
        out.write(chance.choice(['"two\nlines",1,2,3\n', 'open,"\n', "a,b,c,d\re,f,g,h"]))
    data = out.getvalue().encode()
    return data.replace(b"text", b"te\xffxt", 1) if chance.random() < 0.1 else data


@pytest.mark.parametrize("has_native", [True, False])
def test_csv_in_blocks_has_the_sum_of_the_whole_file(has_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_native:
        monkeypatch.setattr(record_digests, "find_native_readers", lambda: None)
    in_blocks = 0
    for seed in range(60):
        chance = random.Random(seed)
        data = csv_file(chance).replace(b"\n", chance.choice([b"\n", b"\n", b"\r\n", b"\r"]))
        data = chance.choice([b"", b"", b"\xef\xbb\xbf", b"\n\n"]) + data
        form = CsvForm(is_multi_line=chance.choice([None, True, False]), has_header=chance.random() < 0.8)
        schema = ingest_texts(None, [row.text for row in read_csv_file(data, form)], Policy()).plan.schema
        found = []
        for whole_bytes in (2**23, 64):
            monkeypatch.setattr(record_digests, "WHOLE_BYTES", whole_bytes)
            monkeypatch.setattr(record_digests, "BLOCK_BYTES", chance.choice([7, 50, 400]))
            digester = record_digests.SourceDigester(schema, Policy(), RecordLayout())
            digester.add_csv(io.BytesIO(data), form)
            found.append(digester.sum())
        in_blocks += len(data) > 64
        assert found[0] == found[1], (data, form)
    assert in_blocks > 40


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_rows_of_csv_have_the_sum_of_the_exact_path(spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    native_rows = 0
    for seed in range(30):
        chance = random.Random(seed)
        data, form = csv_file(chance), CsvForm(values=SPELLINGS[spelling], spelling=spelling)
        texts = [row.text for row in read_csv_file(data, form)]
        policy = chance.choice([Policy(), Policy(Mode.SPLIT), Policy(date_fields=frozenset([("day",)]))])
        schema = ingest_texts(None, texts, policy).plan.schema
        found = []
        for readers in (find_native_readers(), None):
            monkeypatch.setattr(record_digests, "find_native_readers", lambda readers=readers: readers)
            digester = record_digests.SourceDigester(schema, policy, RecordLayout())
            digester.add_csv(io.BytesIO(data), form)
            if digester._native is not None:
                native_rows += digester._native.sums()[1]
            found.append(digester.sum())
        assert found[0] == found[1], (data, schema.sql)
    assert native_rows > 30 * 60 / 2
