"""MERGE on equal keys, without a join: the source is written once, and its keys are looked up in the table.

This is for merges that update and insert whole rows of the source, without conditions. Keys are looked up as in a load
by key; see `widen.changes.keyed_load`. Unlike a load, a merge inserts rows without a key and repeated new keys.

Source: Delta Lake's MERGE
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.changes.arrow_changes import record_images
from widen.changes.assignment import ChangeKind
from widen.changes.change_context import ChangeContext, ChangeFiles, ChangeResult, ensure_same_count
from widen.changes.key_columns import KeyColumns
from widen.changes.keyed_decision import KeyCodes, KeyPlan
from widen.changes.keyed_files import DeltaFiles, TooLarge, count_true, positions_by_file
from widen.changes.keyed_load import find_rows, to_bounds_predicate
from widen.changes.spark_changes import remove_positions
from widen.errors import AmbiguousMerge
from widen.evolution.key_rules import KeyRules, is_key_type
from widen.files.arrow_types import one_array
from widen.frames.scan import read_with_locations
from widen.limits import CHANGED_BYTES, KEYED_RECORDS
from widen.log.file_list import concat_files, from_adds
from widen.log.snapshot import select_files
from widen.model.types import DOUBLE, FLOAT, VOID, Field, StructType, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add, AddCdc
from widen.protocol.column_metadata import COLLATIONS, char_lengths, has_generated_values
from widen.protocol.file_statistics import count_written_rows
from widen.spark.engine import Unsupported
from widen.spark.spark_types import DataFrame, F, from_spark

Join: TypeAlias = Callable[[DataFrame], ChangeResult]
"""Merges a source by a join."""

# An example. The table has the rows (1, "a") and (2, "b"), and the source has (2, "B"), (3, "C") and (null, "D"):
#     written    the three rows of the source, as files of the table
#     found      the key 2 in the table: its row goes, and (2, "B") is an update
#     else       (3, "C") and (null, "D") are inserts
# Rows of the table that share a key would need a copy of the new row each. A join gives them, of the written rows.


def find_merge_keys(context: ChangeContext, source: DataFrame, pairs: Sequence[tuple[str, str]]) -> tuple[Field, ...]:
    """Return the key columns of a merge that `merge_by_key` can make; none if it takes a join."""
    schema = context.schema
    if not (pairs and context.has_arrow_layout) or char_lengths(schema):
        return ()
    given = from_spark(source.schema)
    if any(
        has_generated_values(field)
        or field.type == VOID
        or (column := given.find(field.name)) is None
        or column.type.sql != field.type.sql
        for field in schema
    ):
        return ()
    keys = [(schema.find(own), given.find(other)) for own, other in pairs]
    found = tuple(own for own, other in keys if own and other and own == schema.find(other.name) and _is_key(own))
    return found if len({field.name for field in found}) == len(pairs) else ()


def _is_key(field: Field) -> bool:
    # Spark compares -0.0 and NaN as a join does, and texts of a collation by its rules.
    return is_key_type(field.type) and field.type not in (FLOAT, DOUBLE) and COLLATIONS not in field.metadata


def merge_by_key(
    context: ChangeContext, source: DataFrame, kinds: Sequence[ChangeKind], keys: Sequence[Field], join: Join
) -> ChangeResult:
    """Update and insert whole rows of a source by their keys, and return the result; nothing is committed.

    Args:
        join: Merges the written rows where this process cannot look their keys up.
    """
    names = [quote_name(field.name) for field in context.schema]
    rows = source.select(*(F.col(name) for name in names)).hint("rebalance")
    with ChangeFiles(context) as files:
        written = files.rows(rows)
        try:
            return _KeyedMerge(files, kinds, plan_keys(context, keys), written).result()
        except (Unsupported, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # The source may say something else the next time, so the join reads what was written.
            adds = concat_files([from_adds(written)])
            rows = read_with_locations(context.spark, context.store, context.snapshot, adds)
            result = join(rows.select(*names))
        ChangeResult(folders=files.folders).discard(context.store)
        return result


def plan_keys(context: ChangeContext, keys: Sequence[Field]) -> KeyPlan:
    """Return how the keys of rows are read."""
    table = DeltaFiles(context.snapshot, context.snapshot)
    narrow = table.scan(StructType(tuple(keys)))
    columns = tuple(KeyColumns(((field.type, (field.name,)),)) for field in keys)
    rules = KeyRules(tuple((field.name,) for field in keys))
    return KeyPlan(context.schema, rules, narrow, columns, None, None, None, narrow, narrow)


@dataclass(frozen=True)
class _KeyedMerge:
    """A merge whose source is written."""

    files: ChangeFiles
    kinds: Sequence[ChangeKind]
    plan: KeyPlan
    written: Sequence[Add]

    def result(self) -> ChangeResult:
        """Return the result."""
        context, plan = self.files.context, self.plan
        count = count_written_rows(self.written)
        if not count:
            ChangeResult(folders=self.files.folders).discard(context.store)
            return ChangeResult(reads=context.reads)
        if count > KEYED_RECORDS:
            raise TooLarge("the source has many rows")
        records = self._read_records()
        with_key = records.filter(records["has_key"])
        codes, code = KeyCodes.of([one_array(with_key[f"k{at}"]) for at in range(len(plan.keys))])
        table = DeltaFiles(context.snapshot, context.snapshot)
        bounds = [key.bounds(one_array(with_key[f"k{at}"])) for at, key in enumerate(plan.keys)] if len(code) else []
        searched = to_bounds_predicate(table, bounds)
        candidates = list(table.find_files(searched)) if len(code) else []
        rows = find_rows(context.session, plan, codes, candidates, 0)
        selection = select_files(context.snapshot, searched)
        own = ChangeContext(context.session, context.snapshot, context.metadata, selection)
        found = one_array(rows["code"])
        is_matched = self._spread(records, pc.is_in(code, value_set=found))
        self._ensure_one_match(code, found)
        keys, every = [*map(table.key_of, candidates)], pa.repeat(pa.scalar(True), len(rows))
        marked = positions_by_file(one_array(rows["file"]), one_array(rows["position"]), every)
        return self._apply(own, records, is_matched, {keys[number]: each for number, each in marked.items()})

    def _read_records(self) -> pa.Table:
        """Return the keys of the written rows, and where they are."""
        plan, parts = self.plan, []
        for number, add in enumerate(self.written):
            for positions, rows in plan.scan.read_located(add):
                keys = plan.keys_of(rows)
                has_key = reduce(pc.and_, (values.is_valid() for values in keys.values()))
                file = pa.repeat(pa.scalar(number, pa.int32()), len(positions))
                parts.append(pa.table({"file": file, "position": positions, **keys, "has_key": has_key}))
        return pa.concat_tables(parts).combine_chunks()

    @staticmethod
    def _spread(records: pa.Table, of_keys: pa.Array) -> pa.Array:
        """Return a flag for every record, from flags of the records with a key; the others get False."""
        return pc.replace_with_mask(
            pa.repeat(pa.scalar(False), len(records)), one_array(records["has_key"]), one_array(of_keys)
        )

    @staticmethod
    def _ensure_one_match(code: pa.Array, found: pa.Array) -> None:
        """Check that each row of the table is matched once, and that the rows have different keys."""
        counts = pc.value_counts(code)
        repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        twice = count_true(pc.is_in(found, value_set=repeated))
        if twice:
            raise AmbiguousMerge(count=twice)
        if len(pc.unique(found)) < len(found):
            raise Unsupported("rows of the table share a key")

    def _apply(
        self, context: ChangeContext, records: pa.Table, is_matched: pa.Array, removed: Mapping[str, BitMap64]
    ) -> ChangeResult:
        ensure_same_count(len(records), count_written_rows(self.written))
        recorded: list[AddCdc] = []
        if removed and context.has("changeDataFeed"):
            recorded = record_images(self.files, self._images(context, records, is_matched, removed))
        removal = remove_positions(context, removed)
        updated = count_true(is_matched)
        counts = {ChangeKind.UPDATE: updated, ChangeKind.INSERT: len(records) - updated}
        return ChangeResult(
            removed=removal.removed,
            added=(*removal.added, *self.written),
            revised=removal.revised,
            recorded=tuple(recorded),
            rows=+Counter({number: counts[kind] for number, kind in enumerate(self.kinds)}),
            copied=removal.copied,
            folders=(*self.files.folders, *removal.folders),
            reads=context.reads,
        )

    def _images(
        self, context: ChangeContext, records: pa.Table, is_matched: pa.Array, removed: Mapping[str, BitMap64]
    ) -> Iterator[tuple[pa.Table, str]]:
        """Yield the rows of the change data, with what happened to them."""
        whole = DeltaFiles(context.snapshot, context.snapshot).scan(context.schema)
        changed = [context.adds[key] for key in removed]
        if sum(add.size for add in (*changed, *self.written)) > CHANGED_BYTES:
            raise TooLarge("the changed files are large")
        for key, marked in removed.items():
            for is_old, rows in whole.read_marked(context.adds[key], marked):
                yield rows.filter(is_old), "update_preimage"
        flags = records.select(["file", "position"]).append_column("matched", is_matched)
        for number, add in enumerate(self.written):
            own = flags.filter(pc.equal(flags["file"], number)).sort_by("position")
            for positions, rows in whole.read_located(add):
                at = pc.index_in(positions, value_set=one_array(own["position"]))
                is_update = one_array(own["matched"]).take(at)
                yield rows.filter(is_update), "update_postimage"
                yield rows.filter(pc.invert(is_update)), "insert"
