"""Records held against a contract in a task: places, counts in full, a bounded list; and reports that merge."""

from __future__ import annotations

from functools import partial

import msgspec
import pyarrow as pa

from widen.batches.text_batch import MAX_COUNTED, MAX_LISTED, ContractReport, _breaches_of_text, _check_batches
from widen.batches.text_tasks import NOTE
from widen.evolution.policy import Policy
from widen.sources.json_frames import FILE, PART, TEXT, WHOLE

CONTRACT = {"properties": {"n": {"type": "integer"}}, "additionalProperties": False}


def checked(*texts: str, is_whole: bool = False) -> ContractReport:
    count = len(texts)
    columns = [
        pa.array([text.encode() for text in texts], pa.binary()),
        pa.array(["file:/f.jsonl"] * count, pa.string()),
        pa.array([0] * count, pa.int64()),
        pa.array([is_whole] * count, pa.bool_()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=[TEXT, FILE, PART, WHOLE])
    (note,) = _check_batches(partial(_breaches_of_text, CONTRACT), Policy(), [batch])
    return msgspec.json.decode(note.column(NOTE)[0].as_py(), type=ContractReport)


def test_lines_have_their_numbers() -> None:
    report = checked('{"n": 1}', "", '{"n": "x"}', "nonsense", "7")
    assert (report.records, report.breaches) == (4, 3)
    assert report.listed[0] == ("file:/f.jsonl", 3, "n", "is a string, not an integer")
    assert [(line, field) for _, line, field, _ in report.listed[1:]] == [(4, "the record"), (5, "the record")]


def test_a_whole_file_is_split_into_records() -> None:
    report = checked('{"n": 1}\n{"n": 2.5}\n[{"m": 1}, {"n": 3}]', is_whole=True)
    assert report.records == 4
    assert [(line, field) for _, line, field, _ in report.listed] == [(2, "n"), (3, "m")]


def test_all_breaches_are_counted_and_the_first_are_listed() -> None:
    report = checked(*['{"n": "x"}'] * 300)
    assert (report.breaches, len(report.listed)) == (300, MAX_LISTED)
    assert report.counts == [("n", "is a string, not an integer", 300)]
    both = report.merged(report)
    assert (both.records, both.breaches, len(both.listed)) == (600, 600, MAX_LISTED)
    assert both.counts == [("n", "is a string, not an integer", 600)]


def test_very_many_fields_are_counted_together() -> None:
    report = checked(*(f'{{"f{number}": 1}}' for number in range(MAX_COUNTED + 500)))
    assert report.breaches == MAX_COUNTED + 500
    assert len(report.counts) == MAX_COUNTED + 1
    assert ("", "", 500) in report.counts
