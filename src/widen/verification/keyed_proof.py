"""The proof of an ingestion by key in this process: what `widen.verification.keyed_proof_frames` proves, with Arrow.

Tasks read the source with the readers of the proof. Arrow sorts the records of each key, and decides the simple cases:
whether a key has the row that it must have. `judge_key` decides all other keys. If both versions have a file, it is
only searched for rows of the keys, because its other rows are the same in both.

Whether a record deletes is read off its form, by an evaluation of the condition that the writer does not share.

Source: docs/guide/keys.md; docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial, reduce
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import InvalidOption
from widen.evolution.key_rules import KeyRules
from widen.evolution.policy import Policy
from widen.files.arrow_types import count_up, one_array
from widen.files.data_reader import FileScan, find_leaf
from widen.model.column_path import Path, find_field, fold_path
from widen.model.types import BYTE, INTEGER, LONG, SHORT, STRING, DataType, StructType
from widen.model.value_classes import dataclass
from widen.proof.canonical import digest
from widen.proof.column_digests import hash_values
from widen.proof.conditions import UnsupportedCondition, build_condition
from widen.proof.deletion_lists import Deletion, DeletionListing, are_kept, read_deletions
from widen.protocol.actions import Add
from widen.schema.source_metadata import FORM as TEXT_FORM
from widen.schema.source_metadata import RESCUED, role_field
from widen.spark.engine import LocalFrame, Unsupported, as_unsupported
from widen.verification.key_judgement import (
    AFTER,
    BEFORE,
    CONTENT,
    DELETED,
    IS_DELETE,
    KEY,
    KIND,
    LISTED,
    MISPLACED,
    ORIGINS,
    QUARANTINED,
    RECORD,
    SEQUENCE,
    SINCE,
    TOTALS,
    TRACKED,
    UNTIL,
    judge_key,
)
from widen.verification.key_reader import (
    BROKEN,
    UNDECIDED,
    KeyReader,
    delete_flags,
    ensure_decided,
    find_field_columns,
    is_chosen,
    listed_key,
)
from widen.verification.keyed_proof_frames import (
    OTHERS_CHANGED,
    OTHERS_LISTED,
    KeyedRowReader,
    quarantined_rows,
)
from widen.verification.records import CONVERTED, DIGEST, FORM, MAX_SHOWN, PLACE, VALUES, RecordForm, Side, Verification

_BATCH_ROWS = 10_000
_DEPENDS = "depends"
"""Whether the row of a record's key depends on the row before."""

_CODE, _RANK, _AT = "code", "rank", "at"
_RECORDS = pa.schema(
    {
        KEY: pa.binary(),
        SEQUENCE: pa.string(),
        DIGEST: pa.binary(),
        VALUES: pa.int64(),
        CONVERTED: pa.int64(),
        PLACE: pa.string(),
        IS_DELETE: pa.int8(),
        FORM: pa.binary(),
        _DEPENDS: pa.bool_(),
        CONTENT: pa.binary(),
        ORIGINS: pa.int64(),
        TRACKED: pa.binary(),
    }
)
_ROWS = pa.schema(
    {
        _CODE: pa.int64(),
        SEQUENCE: pa.string(),
        DIGEST: pa.binary(),
        VALUES: pa.int64(),
        FORM: pa.binary(),
        UNTIL: pa.string(),
        CONTENT: pa.binary(),
        SINCE: pa.string(),
        TRACKED: pa.binary(),
        MISPLACED: pa.string(),
    }
)


_FACTS = _ROWS.names[1:]


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """A version of the table, as this process reads it.

    Args:
        deleted: Returns what says which rows of a file are deleted; equal in two versions if these are the same.
    """

    files: Sequence[Add]
    scan: Callable[[StructType], FileScan]
    deleted: Callable[[Add], object] = attrgetter("deletion_vector")


@dataclass(frozen=True, slots=True)
class TableVersions:
    """The versions before and after the commit."""

    before: VersionFiles | None
    after: VersionFiles


@dataclass(frozen=True, slots=True)
class LocalKeyedProof:
    """What the proof compares; see `widen.verification.keyed_proof_frames.KeyedProof`.

    Args:
        deleted: Where to find the keys that were deleted before; None without such keys, or if they do not count.
        listed: The same for the version that the commit made.
        quarantined: The texts of quarantined records; None without quarantined records.
    """

    rules: KeyRules
    schema: StructType
    policy: Policy
    versions: TableVersions
    deleted: DeletionListing | None = None
    listed: DeletionListing | None = None
    quarantined: LocalFrame | None = None

    def verify(self, source: Side, share: float = 1.0) -> Verification:
        """Return the result of the proof.

        Raises:
            Unsupported: only Spark can prove it.
        """
        reason = find_proof_obstacle(self.rules, self.schema)
        if reason is not None:
            raise Unsupported(reason)
        assert source.map_records is not None
        reader, limit = KeyReader.of(self.rules, self.schema, self.policy), int(share * 2**32)
        records = source.map_records(partial(_record_batches, reader, self.schema))
        with as_unsupported(InvalidOption):
            return self._compare(reader, _RECORDS.empty_table() if not len(records) else records, limit, share)

    def _compare(self, reader: KeyReader, records: pa.Table, limit: int, share: float) -> Verification:
        if pc.any(pc.equal(records[IS_DELETE], UNDECIDED)).as_py():
            ensure_decided(self.rules)
            raise Unsupported("only it says of some records whether they delete")
        keys = pc.unique(records[KEY]).drop_null()
        table = _TableReader(reader, self.schema, self.policy, keys)
        before, after = table.read(self.versions)
        (deleted, others), (listed, other_listed) = (
            _deletions(each, reader, table) for each in (self.deleted, self.listed)
        )
        judge = _Judge(reader, keys, records, before, after, deleted, listed, limit)
        totals, places = judge.judge(self._quarantined(reader, limit))
        if self.versions.before is None:
            totals["extra"] += table.others_after
        elif table.has_other_changes:
            places.append(OTHERS_CHANGED)
        if not are_kept(others, other_listed, every=self.rules.history):
            places.append(OTHERS_LISTED)
        count, values, exact, converted, lost, extra = (totals[name] for name in TOTALS)
        return Verification(count, values, exact, converted, lost, tuple(places), extra, share)

    def _quarantined(self, reader: KeyReader, limit: int) -> list[dict[str, Any]]:
        if self.quarantined is None:
            return []
        task = partial(quarantined_rows, reader, self.schema, self.policy, limit)
        return cast("list[dict[str, Any]]", self.quarantined.mapInArrow(task, None).toArrow().to_pylist())


def _deletions(
    listing: DeletionListing | None, reader: KeyReader, table: _TableReader
) -> tuple[pa.Table, set[Deletion]]:
    """Return the deletions of the keys of a batch, and the deletions of other keys."""
    columns: dict[str, list[Any]] = {_CODE: [], SEQUENCE: []}
    others: set[Deletion] = set()
    found = read_deletions(listing)
    if found is None:
        raise Unsupported("so many keys were deleted")
    for each in found:
        code = table.code_of(listed_key(each.key, len(reader.rules.key)))
        if code is None:
            others.add(each)
        else:
            columns[_CODE].append(code)
            columns[SEQUENCE].append(reader.listed_sequence(each))
    return pa.table(columns, schema=pa.schema([_ROWS.field(_CODE), _ROWS.field(SEQUENCE)])), others


def prove_here(build: Callable[[], LocalKeyedProof], read_source: Callable[[], Side], share: float) -> Verification:
    """Return the result of a proof in this process."""
    try:
        return build().verify(read_source(), share)
    except Unsupported as error:
        raise Unsupported(f"it verifies rows that change by key, and {error}") from error


def find_proof_obstacle(rules: KeyRules, schema: StructType) -> str | None:
    """Return why only Spark proves an ingestion by key, as the end of a sentence; None if this process can."""
    if rules.delete_when is not None:
        try:
            build_condition(rules.delete_when, schema, dict.fromkeys(map(fold_path, rules.excluded)))
        except UnsupportedCondition as error:
            ensure_decided(rules)
            return str(error)
    return None


# ---- records, in tasks -----------------------------------------------------------------------------


def _record_batches(reader: KeyReader, schema: StructType, records: Iterable[RecordForm]) -> Iterator[pa.RecordBatch]:
    flag_of = delete_flags(reader.rules, schema)
    rest = iter(records)
    while some := list(islice(rest, _BATCH_ROWS)):
        forms = [reader.form_of(record.form) for record in some]
        digests = list(map(digest, forms))
        columns = [
            list(map(reader.key, forms)),
            list(map(reader.sequence, forms)),
            digests,
            [record.values for record in some],
            [record.converted for record in some],
            [record.place for record in some],
            [flag_of(record.form, record.deletes) for record in some],
            list(map(reader.kept_form, forms)),
            list(map(reader.depends_on_rows, forms)),
            *zip(*map(reader.content, forms, digests), strict=True),
            list(map(reader.tracked, forms)),
        ]
        arrays = [pa.array(values, each.type) for values, each in zip(columns, _RECORDS, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_RECORDS)


# ---- rows of both versions -------------------------------------------------------------------------


@dataclass
class _TableReader:
    """Reads the rows of the keys of a batch, and sums up all others.

    Args:
        keys: The keys of the batch, each once.
    """

    reader: KeyReader
    schema: StructType
    policy: Policy
    keys: pa.Array
    others_after: int = 0
    _sums: dict[int, int] = field(default_factory=lambda: {BEFORE: 0, AFTER: 0})
    _counts: dict[int, int] = field(default_factory=lambda: {BEFORE: 0, AFTER: 0})

    def __post_init__(self) -> None:
        self._codes = {key: code for code, key in enumerate(self.keys.to_pylist())}
        self._keyed = KeyedRowReader(self.reader, self.schema, self.policy)
        self._wanted = _wanted_values(self.keys, self.reader.rules.key, self.schema)

    @property
    def has_other_changes(self) -> bool:
        """Whether rows of other keys differ between the versions."""
        return (self._sums[BEFORE], self._counts[BEFORE]) != (self._sums[AFTER], self._counts[AFTER])

    def code_of(self, key: bytes | None) -> int | None:
        """Return the number of a key; None if the batch does not have it."""
        return None if key is None else self._codes.get(key)

    def read(self, versions: TableVersions) -> tuple[pa.Table, pa.Table]:
        """Return the rows of the keys before and after, and sum up the others."""
        sides = {BEFORE: versions.before or replace(versions.after, files=()), AFTER: versions.after}
        files = {kind: {add.path: add for add in side.files} for kind, side in sides.items()}
        found: dict[int, list[pa.Table]] = {kind: [_ROWS.empty_table()] for kind in sides}
        narrow, whole = (
            {kind: side.scan(columns) for kind, side in sides.items()}
            for columns in (self._keyed.key_columns, self.schema)
        )
        for path in {**files[BEFORE], **files[AFTER]}:
            here = [kind for kind in sides if path in files[kind]]
            adds = [files[kind][path] for kind in here]
            gone = [sides[kind].deleted(add) for kind, add in zip(here, adds, strict=True)]
            if len(here) == 2 and gone[0] == gone[1]:
                rows = self._search(narrow[AFTER], whole[AFTER], adds[1])
                for kind in here:
                    found[kind] += rows
                continue
            live = [_positions(narrow[kind], files[kind][path]) for kind in here] if len(here) == 2 else []
            for at, (kind, add) in enumerate(zip(here, adds, strict=True)):
                # For one file in two versions, the rows that both have are the same.
                found[kind] += self._read_all(whole[kind], add, kind, live[1 - at] if live else None)
        self.others_after = self._counts[AFTER]
        return pa.concat_tables(found[BEFORE]), pa.concat_tables(found[AFTER])

    def _search(self, narrow: FileScan, whole: FileScan, add: Add) -> list[pa.Table]:
        """Return the rows of the keys of a file."""
        places = []
        for positions, rows in narrow.read_located(add):
            is_ours, _ = self._find(rows, range(len(self._keyed.places)))
            if is_ours.true_count:
                places.append(positions.filter(is_ours))
        if not places:
            return []
        wanted, found = pa.concat_arrays(places), []
        for positions, rows in whole.read_located(add):
            ours = rows.filter(pc.is_in(positions, value_set=wanted))
            if len(ours):
                _, codes = self._find(ours, self._keyed.places)
                found.append(self._to_rows(ours, codes))
        return found

    def _read_all(self, whole: FileScan, add: Add, kind: int, same: pa.Array | None) -> list[pa.Table]:
        """Return the rows of the keys of a file, and add the others to the sums.

        Args:
            same: The positions of rows that the file also has in the other version.
        """
        found = []
        for positions, rows in whole.read_located(add):
            is_ours, codes = self._find(rows, self._keyed.places)
            if codes:
                found.append(self._to_rows(rows.filter(is_ours), codes))
            is_other = pc.invert(is_ours)
            if same is not None:
                is_other = pc.and_(is_other, pc.invert(pc.is_in(positions, value_set=same)))
            others = rows.filter(is_other)
            self._counts[kind] += len(others)
            for batch in others.to_batches(_BATCH_ROWS):
                words = pc.sum(hash_values(batch.to_struct_array()), min_count=0).as_py()
                self._sums[kind] = (self._sums[kind] + words) % 2**64
        return found

    def _find(self, rows: pa.Table, places: Sequence[int]) -> tuple[pa.Array, list[int]]:
        """Return which rows have one of the keys, and the numbers of these keys."""
        may_be_ours = self._may_have_key(rows)
        some = rows.select(list(places)) if may_be_ours is None else rows.filter(may_be_ours).select(list(places))
        found: list[int | None] = []
        for batch in some.to_batches(_BATCH_ROWS):
            found += map(self.code_of, self._keyed.keys(batch.to_struct_array()))
        is_found = pa.array([code is not None for code in found], pa.bool_())
        if may_be_ours is not None:
            is_found = pc.replace_with_mask(may_be_ours, may_be_ours, is_found)
        return is_found, [code for code in found if code is not None]

    def _may_have_key(self, rows: pa.Table) -> pa.Array | None:
        """Return which rows may have one of the keys; None if all may."""
        result = None
        for columns in self._wanted:
            found = [(find_leaf(rows, place), values) for place, values in columns]
            if any(column.type != values.type for column, values in found):
                continue
            flags = [one_array(pc.is_in(column, value_set=values)) for column, values in found]
            is_known = reduce(pc.or_, flags)
            result = is_known if result is None else pc.and_(result, is_known)
        return result

    def _to_rows(self, rows: pa.Table, codes: Sequence[int]) -> pa.Table:
        facts = [self._keyed.facts(batch.to_struct_array()) for batch in rows.to_batches(_BATCH_ROWS)]
        columns = {_CODE: codes, **{name: [*chain.from_iterable(each[name] for each in facts)] for name in _FACTS}}
        return pa.table([pa.array(columns[each.name], each.type) for each in _ROWS], schema=_ROWS)


def _positions(scan: FileScan, add: Add) -> pa.Array:
    """Return the positions of the rows of a file that are not deleted."""
    return pa.concat_arrays([pa.array([], pa.uint64()), *(positions for positions, _ in scan.read_located(add))])


def _wanted_values(keys: pa.Array, paths: Sequence[Path], schema: StructType) -> list[list[tuple[Path, pa.Array]]]:
    """Return the column values, by place, that a row with one of the keys may have.

    Only for fields whose columns and values are all integers and strings.
    """
    if role_field(schema, RESCUED) is not None or not len(keys):
        return []
    try:
        decoded = msgspec.json.decode(b"[" + b",".join(keys.to_pylist()) + b"]")
    except msgspec.DecodeError:  # a number that is not one of JSON
        return []
    wanted = []
    for path, values in zip(paths, zip(*decoded, strict=True), strict=True):
        columns = [(_KEY_TYPES.get(data_type), place) for data_type, place in find_field_columns(schema, path)]
        fields = [find_field(schema, place) for _, place in columns]
        if any(each is None or TEXT_FORM in each.metadata for each in fields):
            continue
        kinds = {kind[0] for kind, _ in columns if kind is not None}
        if any(kind is None for kind, _ in columns) or not all(type(value) in kinds for value in values):
            continue
        wanted.append([(place, _of_type(values, *kind)) for kind, place in columns if kind is not None])
    return wanted


def _of_type(values: Iterable[Any], kind: type, data_type: pa.DataType) -> pa.Array:
    """Return the values that a column may have."""
    own = {value for value in values if type(value) is kind}
    if kind is int:
        limit = 2 ** (data_type.bit_width - 1)
        own = {value for value in own if -limit <= value < limit}
    return pa.array(own, data_type)


_KEY_TYPES: Mapping[DataType, tuple[type, pa.DataType]] = {
    BYTE: (int, pa.int8()),
    SHORT: (int, pa.int16()),
    INTEGER: (int, pa.int32()),
    LONG: (int, pa.int64()),
    STRING: (str, pa.string()),
}


# ---- the judgement ---------------------------------------------------------------------------------


@dataclass
class _Judge:
    """Compares what the keys of a batch must have with what they have.

    Args:
        before: The rows of the keys in the version before, with the numbers of their keys; `after` likewise.
        deleted: The keys that the version before lists as deleted, with their order; `listed` has the new version's.
        limit: The limit of the sample of keys.
    """

    reader: KeyReader
    keys: pa.Array
    records: pa.Table
    before: pa.Table
    after: pa.Table
    deleted: pa.Table
    listed: pa.Table
    limit: int

    def judge(self, quarantined: Sequence[Mapping[str, Any]]) -> tuple[dict[str, int], list[str]]:
        """Return the totals, and where records are lost or wrong."""
        code = pc.index_in(self.records[KEY], value_set=self.keys, skip_nulls=True).cast(pa.int64())
        self.records = self.records.append_column(_CODE, code)
        chosen = pa.array([is_chosen(key, self.limit) for key in self.keys.to_pylist()], pa.bool_())
        is_kept = pa.repeat(pa.scalar(False), len(self.keys))
        totals, places = dict.fromkeys(TOTALS, 0), list[str]()
        if len(self.keys):
            is_right, *found = self._find_right(quarantined)
            is_right = pc.and_(pc.and_(is_right, self._are_listed()), chosen)
            winners, same = (
                each.filter(is_right.take(one_array(self.records[_CODE]).take(each)))
                for each in (numbers.drop_null().cast(pa.int64()) for numbers in found)
            )
            is_kept = is_right
            records = self.records.filter(pc.fill_null(is_right.take(one_array(self.records[_CODE])), False))
            values, converted = (self._sum(name, winners) + self._sum(name, same) for name in (VALUES, CONVERTED))
            values -= self._sum(ORIGINS, same)
            totals |= {"records": len(records), "values": values, "converted": converted, "exact": values - converted}
        for key, rows in self._doubtful(pc.and_(chosen, pc.invert(is_kept)), quarantined):
            judged = judge_key(self.reader, key, rows)
            places += [] if judged["place"] is None else [judged["place"]]
            totals = {name: total + judged[name] for name, total in totals.items()}
        return totals, sorted(places)[:MAX_SHOWN]

    def _sum(self, name: str, records: pa.Array) -> int:
        return int(pc.sum(self.records[name].take(records), min_count=0).as_py())

    def _find_right(self, quarantined: Sequence[Mapping[str, Any]]) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return which keys are known to have what they must have, and the records that made their rows, by number.

        Also of those that only differ from their row in where and when they were loaded.

        A key is left to `judge_key` if it has not, or if more than the order of its records decides.
        """
        if self.reader.rules.history:
            is_right, winners = self._find_right_versions()
            return self._without_exceptions(is_right, quarantined), winners, pa.nulls(0)
        count, reader = len(self.keys), self.reader
        sides = (self.records, self.before, self.deleted)
        ranks = _rank(reader, [one_array(each[SEQUENCE]) for each in sides])
        codes = [one_array(each[_CODE]) for each in sides]
        events = pa.table({_CODE: pa.concat_arrays(codes), _RANK: pa.concat_arrays(ranks)})
        top = _by_code(events, count, _RANK, "max")
        is_top = [pc.fill_null(pc.equal(rank, top.take(code)), False) for rank, code in zip(ranks, codes, strict=True)]
        numbered = self.records.append_column(_AT, count_up(len(self.records))).select([_CODE, IS_DELETE, _AT])
        newest = numbered.filter(is_top[0])
        new, winner = _count_by(newest[_CODE], count), _by_code(newest, count, _AT, "max")
        deletes = pc.fill_null(pc.equal(_by_code(newest, count, IS_DELETE, "max"), 1), False)
        was_newest = pc.greater(_count_by(self.before[_CODE].filter(is_top[1]), count), 0)
        if not reader.family:  # without a sequence, the batch comes after its rows
            was_newest = pa.repeat(pa.scalar(False), count)
        is_gone = pc.greater(_count_by(self.deleted[_CODE].filter(is_top[2]), count), 0)
        rows = [each.append_column(_AT, count_up(len(each))) for each in (self.before, self.after)]
        counts = [_count_by(each[_CODE], count) for each in rows]
        digests = [one_array(each[DIGEST]).take(_by_code(each, count, _AT, "max")) for each in rows]
        has_none, has_one = (pc.equal(counts[1], number) for number in (0, 1))
        is_single = pc.and_(has_one, pc.equal(counts[0], 1))
        is_same = pc.or_(pc.and_(has_none, pc.equal(counts[0], 0)), pc.and_(is_single, _are_equal(*digests)))
        is_winner = pc.and_(has_one, _are_equal(digests[1], one_array(self.records[DIGEST]).take(winner)))
        has_new, is_alone = pc.greater(new, 0), pc.equal(new, 1)
        contents = [
            one_array(each[CONTENT]).take(at)
            for each, at in ((self.records, winner), (self.before, _by_code(rows[0], count, _AT, "max")))
        ]
        is_left = pc.and_(pc.and_(is_single, _are_equal(*digests)), _are_equal(*contents))
        is_left = pc.and_(is_left, pc.invert(is_winner))
        if reader.rules.keeps_missing:
            plain = pc.and_(is_alone, pc.equal(_count_by(events[_CODE], count), 1))
            stays = pa.repeat(pa.scalar(False), count)
        else:
            plain = pc.and_(has_new, pc.invert(pc.and_(is_gone, pc.invert(was_newest))))
            stays = pc.and_(is_same, pc.or_(pc.invert(has_new), pc.and_(pc.invert(deletes), was_newest)))
        goes = pc.and_(plain, pc.and_(deletes, has_none))
        comes = pc.and_(pc.and_(plain, is_alone), pc.and_(pc.invert(deletes), is_winner))
        comes = pc.and_(comes, pc.invert(stays))
        same = pc.and_(pc.and_(pc.and_(plain, is_alone), pc.invert(deletes)), is_left)
        is_right = pc.or_(pc.or_(stays, same), pc.or_(goes, comes))
        found = (pc.if_else(flags, winner, None) for flags in (comes, same))
        return self._without_exceptions(is_right, quarantined), *found

    def _find_right_versions(self) -> tuple[pa.Array, pa.Array]:
        """Return the same for keys that keep every version, each until the next event of its key."""
        count, records, before, after = len(self.keys), self.records, self.before, self.after
        until = one_array(after[UNTIL])
        is_open, is_sound = pc.equal(until, ""), pc.not_equal(until, BROKEN)
        until = pc.if_else(pc.and_(is_sound, pc.invert(is_open)), until, pa.scalar(None, pa.string()))
        sides = (records, before, self.deleted)
        times = [*(one_array(each[SEQUENCE]) for each in (*sides, after)), until, one_array(after[SINCE])]
        *ranks, own, ends, since = _rank(self.reader, times)
        contents = _number([one_array(each[DIGEST]) for each in (records, before, after)])
        tracked = _number([one_array(each[TRACKED]) for each in (records, before)])
        no_row = pa.nulls(len(before) + len(self.deleted), pa.int64())
        flags = [
            pc.equal(one_array(records[IS_DELETE]), 1),
            *(pa.repeat(pa.scalar(at > 0), len(sides[at + 1])) for at in range(2)),
        ]
        events = pa.table(
            {
                _CODE: pa.concat_arrays([one_array(each[_CODE]) for each in sides]),
                _RANK: pa.concat_arrays(ranks),
                IS_DELETE: pa.concat_arrays(flags).cast(pa.int8()),
                DIGEST: pa.concat_arrays([*contents[:2], pa.nulls(len(self.deleted), pa.int32())]),
                TRACKED: pa.concat_arrays([*tracked, pa.nulls(len(self.deleted), pa.int32())]),
                _AT: pa.concat_arrays([count_up(len(records)), no_row]),
            }
        )
        wanted = [(IS_DELETE, "max"), (DIGEST, "min"), (DIGEST, "max"), (_AT, "max"), (TRACKED, "max")]
        moments = events.filter(events[_CODE].is_valid()).group_by([_CODE, _RANK]).aggregate(wanted)
        moments = moments.sort_by([(_CODE, "ascending"), (_RANK, "ascending")])
        code, rank, deletes, low, high, winner, value = (
            one_array(moments[name]) for name in (_CODE, _RANK, *(f"{name}_{which}" for name, which in wanted))
        )
        has_next = pc.equal(code[1:], code[:-1])
        until = pa.concat_arrays([pc.if_else(has_next, rank[1:], _NEVER), pa.repeat(_NEVER, min(1, len(code)))])
        is_version, start = pc.equal(deletes, 0), rank
        if self.reader.rules.is_tracking:
            is_pair = pc.and_(has_next, pc.and_(is_version[1:], is_version[:-1]))
            start, until = _merge_updates(rank, until, pc.and_(is_pair, _are_equal(value[1:], value[:-1])))
        width = (pc.max(pa.concat_arrays([rank, own])).as_py() or 0) + 1
        place, found = (
            pc.add(pc.multiply(each, width), at) for each, at in ((code, rank), (one_array(after[_CODE]), own))
        )
        at = pc.index_in(place, value_set=found)
        now = pc.if_else(is_open, _NEVER, pc.if_else(is_sound, ends, pa.scalar(-2, pa.int64())))
        is_same = pc.and_(_are_equal(contents[2].take(at), low), _are_equal(now.take(at), until))
        is_same = pc.and_(is_same, _are_equal(since.take(at), start))
        is_wrong = pc.and_(is_version, pc.invert(pc.and_(is_same, _are_equal(low, high))))
        is_right = pc.invert(pc.is_in(count_up(count), value_set=code.filter(is_wrong)))
        same_count = pc.equal(_count_by(code.filter(is_version), count), _count_by(after[_CODE], count))
        return pc.and_(is_right, same_count), winner.filter(is_version)

    def _are_listed(self) -> pa.Array:
        """Return which keys have their deletions in the list of the new version, and no others; see `judge_key`."""
        count, reader = len(self.keys), self.reader
        if not reader.family:
            return pa.repeat(pa.scalar(True), count)
        records = self.records.filter(pc.equal(self.records[IS_DELETE], 1))
        sides = (records, self.deleted, self.listed, self.after)
        ranks = _rank(reader, [one_array(each[SEQUENCE]) for each in sides])
        tables = [
            pa.table({_CODE: one_array(each[_CODE]), _RANK: rank}).filter(pc.greater(rank, 0))
            for each, rank in zip(sides, ranks, strict=True)
        ]
        gone, in_list = pa.concat_tables(tables[:2]), tables[2]
        width = max((pc.max(rank).as_py() or 0 for rank in ranks), default=0) + 1
        wanted, found = (one_array(pc.add(pc.multiply(each[_CODE], width), each[_RANK])) for each in (gone, in_list))
        wrong = [in_list[_CODE].filter(pc.invert(pc.is_in(found, value_set=wanted)))]
        if reader.rules.history:
            wrong.append(gone[_CODE].filter(pc.invert(pc.is_in(wanted, value_set=found))))
        else:
            last, listed, row = (_by_code(each, count, _RANK, "max") for each in (gone, *tables[2:]))
            is_listed = pc.or_(pc.greater_equal(pc.fill_null(listed, 0), last), pc.greater(pc.fill_null(row, 0), last))
            wrong.append(count_up(count).filter(pc.invert(pc.fill_null(is_listed, True))))
        found_wrong = pa.concat_arrays([one_array(each) for each in wrong])
        return pc.invert(pc.is_in(count_up(count), value_set=found_wrong))

    def _without_exceptions(self, is_right: pa.Array, quarantined: Sequence[Mapping[str, Any]]) -> pa.Array:
        """Return the flags without keys that have records without a sequence, or records in the quarantine."""
        doubtful = [pa.array([row[KEY] for row in quarantined], pa.binary())]
        doubtful.append(one_array(self.records[KEY].filter(self.records[_DEPENDS])))
        is_misplaced = pc.not_equal(self.after[MISPLACED], "")
        doubtful.append(self.keys.take(one_array(self.after[_CODE].filter(is_misplaced))))
        if self.reader.family:
            doubtful.append(one_array(self.records[KEY].filter(pc.is_null(self.records[SEQUENCE]))))
        return pc.and_(is_right, pc.invert(pc.is_in(self.keys, value_set=pa.concat_arrays(doubtful))))

    def _doubtful(
        self, doubtful: pa.Array, quarantined: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[bytes | None, list[Mapping[str, Any]]]]:
        """Yield keys with what `judge_key` needs of them; also the records without a key."""
        names = self.keys.to_pylist()
        rows: list[dict[str, Any]] = []
        tables = {BEFORE: self.before, AFTER: self.after, DELETED: self.deleted, LISTED: self.listed}
        for kind, table in tables.items():
            some = table.filter(doubtful.take(one_array(table[_CODE]))) if len(names) else table
            facts = {**_NO_ROW, KIND: kind, IS_DELETE: kind == DELETED}
            rows += [{**facts, **row, KEY: names[row[_CODE]]} for row in some.to_pylist()]
        is_asked = pc.fill_null(doubtful.take(one_array(self.records[_CODE])), True) if len(names) else None
        records = self.records if is_asked is None else self.records.filter(is_asked)
        rows += [
            {**_NO_ROW, **row, KIND: RECORD, IS_DELETE: row[IS_DELETE] == 1}
            for row in records.to_pylist()
            if is_chosen(row[KEY], self.limit)
        ]
        asked = {row[KEY] for row in rows}
        rows += [{**_NO_ROW, **row} for row in quarantined if row[KEY] in asked or row[KEY] not in set(names)]
        rows.sort(key=lambda row: (row[KEY] is not None, row[KEY] or b""))
        for key, of_key in groupby(rows, lambda row: row[KEY]):
            yield key, list(of_key)


_NO_ROW: Mapping[str, Any] = {
    SEQUENCE: None,
    CONVERTED: None,
    PLACE: None,
    IS_DELETE: False,
    FORM: None,
    UNTIL: None,
    SINCE: None,
    TRACKED: None,
    MISPLACED: None,
    KIND: QUARANTINED,
}


_NEVER = pa.scalar(-1, pa.int64())
"""The rank of the end of a key's newest version."""


def _rank(reader: KeyReader, texts: Sequence[pa.Array]) -> list[pa.Array]:
    """Return the sequences of several sides as comparable numbers; 0 for no sequence, which is older than all."""
    sizes = list(map(len, texts))
    whole = pa.concat_arrays(texts)
    values = whole
    if reader.parts or reader.family != "text":
        try:
            values = whole.cast(pa.decimal128(38, 18))
        except pa.ArrowInvalid:  # Python compares numbers of any size
            distinct = sorted((text for text in pc.unique(whole).to_pylist() if text is not None), key=reader.order)
            orders = [reader.order(text) for text in distinct]
            numbers: dict[str, int] = {}
            for at, text in enumerate(distinct):
                is_next = not at or orders[at] != orders[at - 1]
                numbers[text] = (numbers[distinct[at - 1]] if at else 0) + is_next
            values = pa.array([None if text is None else numbers[text] for text in whole.to_pylist()], pa.int64())
    distinct = pc.unique(values).drop_null()
    ranks = pc.index_in(values, value_set=distinct.take(pc.sort_indices(distinct)), skip_nulls=True)
    ranks = pc.add(pc.fill_null(ranks, -1).cast(pa.int64()), 1)
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    return [ranks.slice(start, size) for start, size in zip(starts, sizes, strict=True)]


def _number(sides: Sequence[pa.Array]) -> list[pa.Array]:
    """Return the values of several arrays as numbers, the same for equal values."""
    unique = pc.unique(pa.concat_arrays(sides))
    return [pc.index_in(each, value_set=unique) for each in sides]


def _merge_updates(rank: pa.Array, until: pa.Array, is_same: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return from when until when events are valid if some of them only update the version before.

    Args:
        rank: The sequences of the events of each key, in their order, and `until` the sequences of the next events.
        is_same: Whether each event but the first agrees with the one before it on the tracked fields.
    """
    if not len(rank):
        return rank, until
    opens = pa.concat_arrays([pa.array([True]), pc.invert(is_same)])
    start = rank.filter(opens).take(pc.subtract(pc.cumulative_sum(opens.cast(pa.int64())), 1))
    is_updated = pa.concat_arrays([is_same, pa.array([False])])
    return pc.if_else(is_updated, rank, start), pc.if_else(is_updated, rank, until)


def _by_code(rows: pa.Table, count: int, name: str, function: str) -> pa.Array:
    """Return an aggregate of a column for each key; null for keys without a row."""
    found = rows.select([_CODE, name]).filter(pc.is_valid(rows[_CODE])).group_by(_CODE).aggregate([(name, function)])
    at = pc.index_in(count_up(count), value_set=one_array(found[_CODE]))
    return one_array(found[f"{name}_{function}"]).take(at)


def _count_by(code: pa.ChunkedArray, count: int) -> pa.Array:
    found = pc.value_counts(one_array(code).drop_null())
    at = pc.index_in(count_up(count), value_set=found.field("values"))
    return pc.fill_null(found.field("counts").take(at), 0)


def _are_equal(left: pa.Array, right: pa.Array) -> pa.Array:
    return pc.fill_null(pc.equal(left, right), False)
