"""Times in any spelling: the writer, the kernel and the proof read the same, and what Python and Arrow read.

Source: docs/guide/times.md#spellings
"""

from __future__ import annotations

import random
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.time_texts import ZONES, local_text, time_text
from widen.evolution.policy import Policy, build_field_rules
from widen.files.arrow_types import to_arrow_schema
from widen.json.document import LocalTimeText, TimestampText
from widen.json.kinds import parse_instant, parse_local_time
from widen.json.time_spellings import TimeSpelling, read_time
from widen.model.native_kernel import find_kernel
from widen.model.types import TIMESTAMP, TIMESTAMP_NTZ, Field, StructType
from widen.proof import record_digests
from widen.proof.row_encoder import RecordLayout
from widen.proof.rules import LocalTimeString, TimestampString, build_proof_rules
from widen.proof.time_texts import read_time_text
from widen.rows.native_decoder import DATE, LOCAL_TIME, ColumnPlan, FieldPlan, RecordPlan
from widen.rows.native_decoder import TIMESTAMP as INSTANT

TEXTS = 30_000
FIRST = datetime(1, 1, 1)


def in_iso(moment: datetime) -> str:
    """Return a time without trailing zeros, as forms of the proof have it."""
    text = moment.isoformat()
    return text.rstrip("0") if "." in text else text


def texts(seed: int) -> list[str]:
    chance = random.Random(seed)
    return [time_text(chance) for _ in range(TEXTS)]


def read_by_writer(text: str, policy: Policy) -> str:
    value = build_field_rules(StructType(()), policy).parse_temporal(text)
    if isinstance(value, TimestampText):
        return f"{in_iso(parse_instant(value).replace(tzinfo=None))}Z"
    return in_iso(parse_local_time(value)) if isinstance(value, LocalTimeText) else ""


def read_by_proof(text: str, policy: Policy) -> str:
    value = build_proof_rules(StructType(()), policy).to_temporal(text)
    if not isinstance(value, (TimestampString, LocalTimeString)):
        return ""
    # What is ISO 8601 in UTC has no form of its own: that is another part of the proof.
    return getattr(value, "form", None) or read_by_writer(text, policy)


def test_the_proof_reads_what_the_writer_reads() -> None:
    for seed, zone in enumerate(("", "Europe/Berlin", "Australia/Lord_Howe")):
        policy = Policy(date_fields=frozenset([()]), spelling=TimeSpelling(is_any=True, zone=zone))
        read = [(text, read_by_writer(text, policy), read_by_proof(text, policy)) for text in texts(seed)]
        assert [each for each in read if each[1] != each[2]] == []
        # Most of them are times, and many are not.
        assert TEXTS * 0.3 < sum(bool(found) for _, found, _ in read) < TEXTS * 0.9


def test_the_proof_reads_the_same_local_times() -> None:
    policy = Policy(local_time_fields=frozenset([()]), spelling=TimeSpelling(is_any=True))
    for text in texts(7):
        assert read_by_writer(text, policy) == read_by_proof(text, policy), text


@pytest.mark.parametrize("zone", ZONES)
def test_times_of_a_zone_are_those_of_arrow_and_of_the_proof(zone: str) -> None:
    chance = random.Random(zone)
    policy = Policy(date_fields=frozenset([()]), spelling=TimeSpelling(is_any=True, zone=zone))
    found = {text: read_by_writer(text, policy) for text in {local_text(chance) for _ in range(3_000)}}
    assert {text: read_by_proof(text, policy) for text in found} == found
    certain = [text for text, each in found.items() if each and 1900 < int(text[:4]) < 2037]
    local = pa.array(certain).cast(pa.timestamp("us"))
    # Arrow raises for a time that the zone does not have, or has twice.
    instants = pc.assume_timezone(local, zone, ambiguous="raise", nonexistent="raise").cast(pa.timestamp("us"))
    assert [f"{in_iso(each)}Z" for each in instants.to_pylist()] == [found[text] for text in certain]
    for text in (text for text, each in found.items() if not each and 1900 < int(text[:4]) < 2037):
        with pytest.raises(pa.ArrowInvalid):
            pc.assume_timezone(pa.array([text]).cast(pa.timestamp("us")), zone)


def test_times_are_those_that_python_and_arrow_read() -> None:
    compared = {"fromisoformat": 0, "email": 0, "arrow": 0}
    for text in texts(11):
        found = read_time(text)
        if found is None:
            continue
        local, offset = found
        assert read_time_text(text) is not None
        for name, read in (("fromisoformat", from_iso_format), ("email", from_email), ("arrow", from_arrow)):
            other = read(text)
            if other is not None:
                compared[name] += 1
                assert other == (local if offset is None else local - offset), (name, text)
    assert min(compared.values()) > TEXTS // 30, compared


def to_utc(moment: datetime) -> datetime | None:
    try:
        return moment if moment.tzinfo is None else moment.astimezone(timezone.utc).replace(tzinfo=None)
    except OverflowError:
        return None


def from_iso_format(text: str) -> datetime | None:
    try:
        return to_utc(datetime.fromisoformat(text.replace(",", ".")))
    except ValueError:  # Python 3.10 knows few spellings
        return None


def from_email(text: str) -> datetime | None:
    # Python takes the years 0001 to 0099 for short ones.
    if not any(each.isalpha() for each in text[:8]) or " 00" in text:
        return None
    try:
        return to_utc(parsedate_to_datetime(text))
    except (TypeError, ValueError):
        return None


def from_arrow(text: str) -> datetime | None:
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            micros: datetime = pa.array([text]).cast(kind).cast(pa.timestamp("us"))[0].as_py()
        except (pa.ArrowInvalid, OverflowError, ValueError):
            continue
        return micros
    return None


@pytest.mark.skipif(find_kernel() is None, reason="the kernel is not installed; see docs/kernel.md")
def test_the_kernel_reads_what_the_writer_reads() -> None:
    schema = StructType((Field("t", TIMESTAMP), Field("n", TIMESTAMP_NTZ)))
    columns = [ColumnPlan("t", INSTANT), ColumnPlan("n", LOCAL_TIME)]
    plan = FieldPlan("t", columns, has_instants=True, has_local_times=True, spells_any=True)
    decoder = find_kernel().Decoder(to_arrow_schema(schema), RecordPlan([plan]))
    spelling = TimeSpelling(is_any=True)
    policy = Policy(date_fields=frozenset([()]), local_time_fields=frozenset([()]), spelling=spelling)
    given = texts(13)
    refused = set(decoder.add([f'{{"t":"{text}"}}'.encode() for text in given]))
    rows = decoder.take()
    kept = [text for at, text in enumerate(given) if at not in refused]
    assert rows.num_rows == len(kept)
    instants, local_times = (column.cast(pa.timestamp("us")).to_pylist() for column in rows.columns)
    for text, instant, local_time in zip(kept, instants, local_times, strict=True):
        wanted = read_by_writer(text, policy)
        assert wanted == ("" if instant is None else f"{in_iso(instant)}Z") + (
            "" if local_time is None else in_iso(local_time)
        ), text
    # A text has no column here, so the kernel refuses what is not a time.
    assert all(not read_by_writer(given[at], policy) for at in refused)


@pytest.mark.skipif(find_kernel() is None, reason="the kernel is not installed; see docs/kernel.md")
def test_the_kernel_leaves_times_of_a_zone_to_python() -> None:
    plan = FieldPlan("t", [ColumnPlan("t", INSTANT | DATE)], has_instants=True, has_zone=True)
    decoder = find_kernel().Decoder(to_arrow_schema(StructType((Field("t", TIMESTAMP),))), RecordPlan([plan]))
    assert decoder.add([b'{"t":"2024-01-02T03:04:05"}', b'{"t":"2024-01-02T03:04:05Z"}']) == [0]


@pytest.mark.skipif(find_kernel() is None, reason="the kernel is not installed; see docs/kernel.md")
def test_the_native_proof_reads_what_the_proof_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = StructType((Field("t", TIMESTAMP), Field("n", TIMESTAMP_NTZ)))
    given = [f'{{"t":"{text}","n":"{text}"}}'.encode() for text in texts(17)]
    rule = {"date_fields": frozenset([("t",)]), "local_time_fields": frozenset([("n",)])}
    policy = Policy(**rule, spelling=TimeSpelling(is_any=True))  # type: ignore[arg-type]

    def digest() -> record_digests.DigestSum:
        digester = record_digests.SourceDigester(schema, policy, RecordLayout())
        digester.add_texts(given)
        return digester.sum()

    native = digest()
    monkeypatch.setattr(record_digests, "find_native_readers", lambda: None)
    assert digest() == native
    assert native.converted > TEXTS * 0.3
