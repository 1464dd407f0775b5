"""What a key must have after a load, and what it has: the judgement of the proof of an ingestion by key.

Source: docs/guide/keys.md; docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, islice, pairwise, permutations, product
from typing import Any, NamedTuple

import msgspec

from widen.proof.canonical import Form, digest
from widen.verification.key_reader import BROKEN, KeyReader, without_origin
from widen.verification.records import CONVERTED, DIGEST, FORM, PLACE, VALUES

RECORD, QUARANTINED, BEFORE, AFTER, DELETED, LISTED, OTHERS, UNCHOSEN = range(8)
"""What a row of the proof is about; keys are `DELETED` in the version before, and `LISTED` as such in the new one."""

KEY, SEQUENCE, KIND, IS_DELETE = "key", "sequence", "kind", "is_delete"

CONTENT, ORIGINS = "content", "origins"
"""The digest of a record or a row without the fields that say where and when it was loaded, and how many these are."""

SINCE, TRACKED = "since", "tracked"
"""Where only changes of tracked fields open versions: when a version starts, and the values of the tracked fields."""

MISPLACED = "misplaced"
"""The fields of a row with a column that lacks the value, or has one without a reason, with NUL between them."""

UNTIL = "until"
"""When a version of a row ends, as a sequence; empty for the current version; `BROKEN` for an invalid one."""


TOTALS = ("records", "values", "exact", "converted", "lost", "extra")


class _RowsOfKey(NamedTuple):
    """What the judgement of a key looks at: records of the batch, rows of both versions, and remembered deletions."""

    records: Sequence[Mapping[str, Any]]
    before: Sequence[Mapping[str, Any]]
    after: Sequence[Mapping[str, Any]]
    deleted: Sequence[Mapping[str, Any]]


def judge_key(reader: KeyReader, key: bytes | None, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare what a key must have with what it has.

    Args:
        key: None for records without a key, which must be quarantined.
    """
    found: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row[KIND], []).append(row)
    records, before, after = (found.get(kind, []) for kind in (RECORD, BEFORE, AFTER))
    totals = dict.fromkeys(TOTALS, 0)
    totals["records"] = len(records)
    waiting = Counter(row[DIGEST] for row in found.get(QUARANTINED, []))
    staying, lost = [], []
    for row in records:
        if waiting[row[DIGEST]]:
            waiting[row[DIGEST]] -= 1
            _count_kept(totals, row)
        elif key is None or (reader.family and row[SEQUENCE] is None):
            lost.append(row)
        else:
            staying.append(row)
    totals["extra"] += sum(waiting.values())
    is_right = True
    if key is not None:
        deleted = found.get(DELETED, [])
        is_right = _has_newest(reader, _RowsOfKey(staying, before, after, deleted), totals, lost)
        # Rows may keep fields of rows from before a column, but a load puts no further ones into the wrong columns.
        fields, known = (
            {each for row in rows for each in (row[MISPLACED] or "").split("\0")} for rows in (after, before)
        )
        is_right &= fields <= known | {""}
        is_right &= _are_listed(
            reader, [*(row for row in staying if row[IS_DELETE]), *deleted], after, found.get(LISTED, [])
        )
    for row in lost:
        totals["values"] += row[VALUES]
        totals["lost"] += row[VALUES]
    at = min((str(row[PLACE]) for row in lost), default=None)
    if at is None and not is_right:
        at = f"the key {(key or b'').decode()[1:-1]}"
    return {**totals, "place": at}


def _are_listed(
    reader: KeyReader,
    gone: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    listed: Sequence[Mapping[str, Any]],
) -> bool:
    """Return whether the new version lists the deletions of a key, so that no late record brings its row back.

    It must not list others: they would keep late records out that nothing has deleted.

    With history it lists each of them, else at least the newest if the key has no newer row.

    Args:
        gone: The records of the batch that delete the key, and its deletions before.
    """
    if not reader.family:
        return True
    times, known, rows = ({reader.order(row[SEQUENCE]) for row in each} for each in (gone, listed, after))
    if not known <= times:
        return False
    if reader.rules.history:
        return times <= known
    last = max(times, default=())
    return bool(last <= max(known, default=()) or last < max(rows, default=()))


def _count_kept(totals: dict[str, int], row: Mapping[str, Any], others: int = 0) -> None:
    values, converted = row[VALUES] - others, row[CONVERTED] or 0
    totals["values"] += values
    totals["converted"] += converted
    totals["exact"] += values - converted


def _has_newest(reader: KeyReader, given: _RowsOfKey, totals: dict[str, int], lost: list[Mapping[str, Any]]) -> bool:
    """Return whether a key has the row that it must have, or no row if it must have no row."""
    records, before, after, deleted = given
    if reader.rules.history:
        return _has_versions(reader, given, totals, lost)
    was, now = Counter(row[DIGEST] for row in before), Counter(row[DIGEST] for row in after)
    if not records:
        return was == now
    forms = (msgspec.msgpack.decode(row[FORM]) for row in records if reader.rules.has_unchanged)
    if reader.rules.keeps_missing or any(map(reader.depends_on_rows, forms)):
        return _has_merged(reader, given, totals)
    if reader.family:
        events = [*records, *before, *deleted]
        top = max(reader.order(row[SEQUENCE]) for row in events)
        newest = [row for row in records if reader.order(row[SEQUENCE]) == top]
        is_gone = any(reader.order(row[SEQUENCE]) == top for row in deleted)
        was_newest = any(reader.order(row[SEQUENCE]) == top for row in before)
    else:
        newest, is_gone, was_newest = list(records), False, False
    if is_gone and not was_newest:
        # A remembered deletion is the newest: nothing comes back, and nothing else goes.
        is_right = was == now
    elif any(row[IS_DELETE] for row in newest):
        is_right = not now
    elif not newest or (was_newest and was == now):
        is_right = was == now
    else:
        winners = {row[DIGEST]: row for row in newest}
        is_left = was == now and bool(before) and not reader.family
        same = [row for row in newest if is_left and row[CONTENT] == before[0][CONTENT]]
        is_right = sum(now.values()) == 1 and (next(iter(now)) in winners or bool(same))
        if is_right:
            winner = winners.get(next(iter(now)))
            _count_kept(totals, *((same[0], same[0][ORIGINS]) if winner is None else (winner,)))
        elif not any(each in winners for each in now):
            lost.append(newest[0])
    if not is_right:
        totals["extra"] += max(0, sum(now.values()) - 1) if newest else sum((now - was).values())
    return is_right


def _has_versions(reader: KeyReader, given: _RowsOfKey, totals: dict[str, int], lost: list[Mapping[str, Any]]) -> bool:
    """Return whether a key has the versions that its events lead to, each until the next event."""
    records, before, after, deleted = given
    if not records:
        was, now = (Counter((row[DIGEST], row[UNTIL], row[SINCE]) for row in rows) for rows in (before, after))
        return was == now
    events: dict[Any, list[Mapping[str, Any]]] = {}
    found = {reader.order(row[SEQUENCE]): row for row in after}
    for row in (*before, *records, *deleted):
        events.setdefault(reader.order(row[SEQUENCE]), []).append(row)
    if reader.rules.has_unchanged:
        events = _resolved(reader, events, found)
    times = sorted(events)
    validity = _find_validity(reader, events, found)
    expected = {
        time: {row[DIGEST]: row for row in events[time]}
        for time in times
        if not any(row[IS_DELETE] for row in events[time])
    }
    is_right = len(found) == len(after) and found.keys() == expected.keys()
    for time, rows in expected.items():
        version = found.get(time)
        if version is None or version[DIGEST] not in rows:
            is_right = False
            lost += [each for each in rows.values() if each[KIND] == RECORD]
            continue
        if rows[version[DIGEST]][KIND] == RECORD:
            _count_kept(totals, rows[version[DIGEST]])
        since = None if version[SINCE] is None else reader.order(version[SINCE])  # which may be an empty text
        until = None if version[UNTIL] in (None, "", BROKEN) else reader.order(version[UNTIL])
        is_right &= version[UNTIL] != BROKEN and (since, until) == validity[time]
    totals["extra"] += len(after) - len(found) + len(found.keys() - expected.keys())
    return is_right


def _find_validity(
    reader: KeyReader, events: Mapping[Any, Sequence[Mapping[str, Any]]], found: Mapping[Any, Mapping[str, Any]]
) -> dict[Any, tuple[Any, Any]]:
    """Return from when until when the row of each event must be valid; None for no end.

    Args:
        found: The rows of the new version by their sequence. They say which of several events with one sequence counts.
    """
    times = sorted(events)
    ends: dict[Any, Any] = dict(pairwise(times))
    if not reader.rules.is_tracking:
        return {time: (time, ends.get(time)) for time in times}
    values = {time: _tracked_at(events[time], found.get(time)) for time in times}
    validity, start = {}, None
    for before, time in pairwise([None, *times]):
        goes_on = before is not None and values[before] is not None and values[before] == values[time]
        if goes_on:
            validity[before] = (before, before)
        start = start if goes_on else time
        validity[time] = (start, ends.get(time))
    return validity


def _tracked_at(events: Sequence[Mapping[str, Any]], row: Mapping[str, Any] | None) -> bytes | None:
    """Return the tracked values of the event that counts among some; None for a deletion, or if its row is missing."""
    if row is None or any(event[IS_DELETE] for event in events):
        return None
    return next((event[TRACKED] for event in events if event[DIGEST] == row[DIGEST]), None)


def _resolved(
    reader: KeyReader, events: Mapping[Any, Sequence[Mapping[str, Any]]], found: Mapping[Any, Mapping[str, Any]]
) -> dict[Any, list[Mapping[str, Any]]]:
    """Return events with the digests of the versions that they lead to, after the version that the table has before."""
    resolved: dict[Any, list[Mapping[str, Any]]] = {}
    last: Form = None
    for time in sorted(events):
        forms: dict[bytes, Form] = {}
        resolved[time] = []
        for row in events[time]:
            if row[IS_DELETE]:
                resolved[time].append(row)
                continue
            form = reader.put_on(last, msgspec.msgpack.decode(row[FORM]))
            forms[digest(form)] = form
            resolved[time].append({**row, DIGEST: digest(form), TRACKED: reader.tracked(form)})
        is_gone = any(row[IS_DELETE] for row in events[time])
        version = found.get(time)
        last = None if is_gone or version is None else forms.get(version[DIGEST])
    return resolved


_MAX_TRIES = 1_000
"""The maximum number of orders that are tried for records of one sequence."""


def _has_merged(reader: KeyReader, given: _RowsOfKey, totals: dict[str, int]) -> bool:
    """Return whether a key has the row that its partial records lead to, on top of the row before."""
    records, before, after, deleted = given
    start = max((reader.order(row[SEQUENCE]) for row in (*before, *deleted)), default=None)
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for row in records:
        order = reader.order(row[SEQUENCE])
        if start is None or order >= start or not reader.family:
            groups.setdefault(order, []).append(row)
    was, now = (sorted(row[DIGEST] for row in rows) for rows in (before, after))
    if was == now and (not groups or (reader.family and groups.keys() == {start})):
        return True
    ties = [
        _orders(rows, may_be_late=bool(reader.family) and order == start)
        for order, rows in sorted(groups.items(), key=lambda item: item[0])
    ]
    oldest = max(before, key=lambda row: reader.order(row[SEQUENCE]), default=None)
    is_gone = any(reader.order(row[SEQUENCE]) == start for row in deleted) and bool(reader.family)
    base = None if oldest is None or is_gone else msgspec.msgpack.decode(oldest[FORM])
    for order in islice(product(*ties), _MAX_TRIES):
        form = base
        for row in chain.from_iterable(order):
            form = None if row[IS_DELETE] else reader.put_on(form, msgspec.msgpack.decode(row[FORM]))
        is_same = form is not None and now == was and len(was) == 1 and not reader.family
        is_same = is_same and digest(without_origin(form)) == before[0][CONTENT]
        if is_same or now == ([] if form is None else [digest(form)]):
            for row in records[:1] if now else ():
                _count_kept(totals, row)
            return True
    totals["extra"] += max(0, len(now) - 1)
    return False


def _orders(rows: Sequence[Mapping[str, Any]], *, may_be_late: bool) -> list[tuple[Mapping[str, Any], ...]]:
    """Return the possible orders of records with one sequence: a deletion comes last."""
    deletes = [row for row in rows if row[IS_DELETE]]
    orders = permutations(row for row in rows if not row[IS_DELETE])
    found = [(*each, *deletes) for each in islice(orders, _MAX_TRIES)]
    return [*found, ()] if may_be_late else found
