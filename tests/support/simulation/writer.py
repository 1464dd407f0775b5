"""A writer: it makes commits of every kind with the real log code, and remembers what it was told."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from support.simulation.oracle import (
    ACKNOWLEDGED,
    REFUSED,
    Content,
    Operation,
    Oracle,
    Row,
    Wish,
    observed,
)
from support.simulation.world import HOUR_MS, Crashed, Interrupted, World
from widen.errors import FileMissing, PostCommitFailed, WidenError
from widen.log.checkpoint_writer import MAX_PAUSE_MS, clean_up, write_checkpoint
from widen.log.commit import Committed, Conflicted, ReadSet, StagedFiles, commit
from widen.log.commit_files import current_ms
from widen.log.file_list import to_adds, to_remove
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.types import LONG, Field, StructType
from widen.protocol.actions import Action, Add, DeletionVector, DomainMetadata, Txn
from widen.protocol.data_skipping import Compare, FileSelection
from widen.schema.alter import plan_alter
from widen.schema.operations import AddColumn
from widen.schema.table_definition import plan_create_table, plan_set_properties
from widen.schema.table_state import to_table_state
from widen.table.maintenance import plan_restore

SCHEMA = StructType((Field("key", LONG), Field("part", LONG), Field("count", LONG)))
PARTS = 3
STREAM = "stream"
"""The application whose progress all writers share: each batch of it must land exactly once."""
RETENTION_MS = {"cleanup": 2 * HOUR_MS}
LOG_RETENTION_MS = 24 * HOUR_MS
_SETTINGS = (
    ("delta.checkpointInterval", ("1", "2", "3", "7")),
    ("delta.logRetentionDuration", ("interval 1 days",)),
    ("delta.deletedFileRetentionDuration", ("interval 1 days",)),
    ("delta.enableRowTracking", (None, "true")),
    ("delta.enableInCommitTimestamps", (None, "true")),
    ("delta.checkpointPolicy", (None, "v2")),
    ("delta.columnMapping.mode", (None, None, "name")),
)


class Writer:
    """One of those that write to the table.

    Args:
        name: Its own.
        world: Where it lives.
        oracle: Whom it tells what it does.
        count: How many operations it makes.
    """

    def __init__(self, name: str, world: World, oracle: Oracle, count: int) -> None:
        self.name = name
        self.world = world
        self.oracle = oracle
        self.rng: random.Random = world.rng
        self._count = count
        self._number = 0
        self._base: Snapshot | None = None
        self._held: Snapshot | None = None
        self._store = world.store(name)
        world.join(name)

    def create(self) -> None:
        """Make the table, without any fault."""
        drawn = {key: self.rng.choice(values) for key, values in _SETTINGS}
        properties = {key: value for key, value in drawn.items() if value is not None}
        change = plan_create_table(SCHEMA, ("part",), properties, current_ms())
        names = tuple(column.name for column in SCHEMA)
        self._commit("create", lambda _, __: Content({}, names), None, change.actions, ReadSet.NOTHING, ())

    def run(self) -> None:
        """Make all operations, one after the other; after a crash, as a new process."""
        for _ in range(self._count):
            kind, began_ms = self.rng.choice(_KINDS), current_ms()
            try:
                getattr(self, f"_{kind}")()
                self.world.note(self.name, kind, "done")
            except Crashed:
                self._store, self._base, self._held = self.world.store(self.name), None, None
                self.world.note(self.name, kind, "crashed")
            except (Interrupted, WidenError) as error:
                self.world.note(self.name, kind, type(error).__name__)
                self._ensure_excused(kind, error, current_ms() - began_ms)
            self._expire(RETENTION_MS.get(kind, LOG_RETENTION_MS))

    def _ensure_excused(self, kind: str, error: BaseException, duration_ms: int) -> None:
        """Check that an operation fails only because of a fault, a cleanup, or a pause in a checkpoint."""
        is_paused = kind == "checkpoint" and duration_ms > MAX_PAUSE_MS
        if not self.world.faults and not self.world.has_cleaned and not is_paused:
            self.world.violate(f"{kind} by {self.name} failed: {error!r}")

    def _expire(self, retention_ms: int) -> None:
        self.world.expired_ms = max(self.world.expired_ms, current_ms() - retention_ms)

    # ---- operations ------------------------------------------------------------------------------

    def _append(self) -> None:
        base = self._opened()
        rows, name = self._new_rows(), self._new_name()
        add = self._written(name, base, rows)
        self._commit("append", lambda now, _: with_rows(now, rows), base, [add], ReadSet.NOTHING, [add], name=name)

    def _stream(self) -> None:
        """Write the next batch of an application, which others may be writing too."""
        base = self._opened()
        known = base.transactions.get(STREAM)
        txn = Txn(app_id=STREAM, version=0 if known is None else known.version + 1)
        keys = [1_000_000 + 10 * txn.version + number for number in range(2)]
        rows = [(key - key % PARTS, 0) for key in keys][:1]
        name = self._new_name()
        add = self._written(name, base, rows)
        reads = ReadSet(app_ids=frozenset({STREAM}))
        self._commit("stream", lambda now, _: with_rows(now, rows), base, [txn, add], reads, [add], name=name)

    def _delete(self) -> None:
        self._edit("delete", lambda row: None)

    def _update(self) -> None:
        self._edit("update", lambda row: (row[0], row[1] + 1))

    def _edit(self, kind: str, change: Callable[[Row], Row | None]) -> None:
        """Change the rows of one part, or those with certain keys wherever they are."""
        base = self._opened()
        part = self.rng.choice((None, *range(PARTS)))
        rest = self.rng.randrange(3)

        def is_meant(row: Row) -> bool:
            return row[0] % PARTS == part if part is not None else row[0] // PARTS % 3 == rest

        adds = to_adds(base.files())
        reads = ReadSet.EVERYTHING
        if part is not None:
            adds = [add for add in adds if next(iter(add.partition_values.values())) == str(part)]
            predicate = Compare(("part",), LONG, "=", part)
            selection = FileSelection(predicate, base.schema, "none", ("part",))
            if base.properties.get("delta.columnMapping.mode"):
                selection = replace(selection, mode=base.properties["delta.columnMapping.mode"])
            reads = ReadSet(selection=selection, paths=frozenset(add.path for add in adds))
        name = self._new_name()
        marks = kind == "delete" and self.rng.random() < 0.5
        actions: list[Action] = []
        made: list[Add] = []
        for add in sorted(adds, key=lambda add: add.path):
            rows = self._rows_of(add)
            if not any(map(is_meant, rows)):
                continue
            left = [new for row in rows if (new := change(row) if is_meant(row) else row) is not None]
            actions.append(to_remove(add, current_ms(), data_change=True))
            if left and marks:
                actions.append(self._marked(add, [row[0] for row in rows if is_meant(row)]))
            elif left:
                new = self._written(f"{name}-{len(made)}", base, left)
                made.append(new)
                actions.append(new)
        if actions:
            self._commit(kind, lambda now, _: edited(now, is_meant, change), base, actions, reads, made, name=name)

    def _compact(self) -> None:
        """Write two files of a part as one, which changes no row."""
        base = self._opened()
        part = str(self.rng.randrange(PARTS))
        adds = [add for add in to_adds(base.files()) if part in add.partition_values.values()]
        chosen = sorted(adds, key=lambda add: add.path)[:2]
        if len(chosen) < 2:
            return
        name = self._new_name()
        rows = [row for add in chosen for row in self._rows_of(add)]
        if not rows:
            return
        new = msgspec.structs.replace(self._written(name, base, rows), data_change=False)
        removes = [to_remove(add, current_ms(), data_change=False) for add in chosen]
        self._commit("compact", lambda now, _: now, base, [*removes, new], ReadSet.NOTHING, [new], name=name)

    def _alter(self) -> None:
        base, name = self._opened(), self._new_name()
        column = f"c{name}".replace("-", "_")
        change = plan_alter(to_table_state(base), [AddColumn((), Field(column, LONG))])
        assert change is not None

        def wish(now: Content, _: list[Content]) -> Content:
            return replace(now, columns=(*now.columns, column))

        self._commit("alter", wish, base, change.actions, ReadSet.NOTHING, (), name=name)

    def _set_property(self) -> None:
        base, name = self._opened(), self._new_name()
        change = plan_set_properties(to_table_state(base), {"simulation.note": name})
        assert change is not None
        wish = lambda now, _: replace(now, note=name)  # noqa: E731
        self._commit("set property", wish, base, change.actions, ReadSet.NOTHING, (), name=name)

    def _set_domain(self) -> None:
        base, name = self._opened(), self._new_name()
        actions = [DomainMetadata(domain="simulation", configuration=name, removed=False)]
        wish = lambda now, _: replace(now, domain=name)  # noqa: E731
        self._commit("set domain", wish, base, actions, ReadSet.NOTHING, (), name=name)

    def _restore(self) -> None:
        base = self._opened()
        version = self.rng.randint(max(0, base.version - 4), base.version)
        back = plan_restore(base, open_snapshot(self._store, version))
        if back is None:
            return

        def wish(now: Content, earlier: list[Content]) -> Content:
            then = earlier[version]
            return replace(then, domain=now.domain)

        self._commit("restore", wish, base, back.actions, ReadSet.EVERYTHING, (), metrics=back.metrics)

    def _checkpoint(self) -> None:
        newest = open_snapshot(self._store).version
        write_checkpoint(open_snapshot(self._store, self.rng.randint(max(0, newest - 3), newest)))

    def _cleanup(self) -> None:
        clean_up(open_snapshot(self._store), RETENTION_MS["cleanup"], unit_ms=1)

    def _read(self) -> None:
        """Read a version, new or old, or one that was opened long ago; hold it for later."""
        if self._held is None or self.rng.random() < 0.4:
            self._held = self._newest()
            if self.rng.random() < 0.5:
                self._held = open_snapshot(self._store, self.rng.randint(0, self._held.version))
            if self.rng.random() < 0.5:
                return
        held, self._held = self._held, None
        self.oracle.seen.append((self.name, observed(held)))

    # ---- what they are made of -------------------------------------------------------------------

    def _opened(self) -> Snapshot:
        """The version that a change begins with: the newest one, or one that was opened some time ago."""
        if self._base is None or self.rng.random() < (0.3 if self.world.climate.stall_rate else 0.7):
            self._base = self._newest()
        return self._base

    def _newest(self) -> Snapshot:
        """Open the newest version; it must not be older than what anybody was told of."""
        told = self.world.acknowledged
        snapshot = open_snapshot(self._store)
        if snapshot.version < told:
            self.world.violate(f"{self.name} opened version {snapshot.version} after {told} was acknowledged")
        return snapshot

    def _new_name(self) -> str:
        self._number += 1
        return f"{self.name}-{self._number}"

    def _new_rows(self) -> list[Row]:
        self._number += 1
        first = int(self.name[1:]) * 100_000 + self._number * 100
        part = self.rng.randrange(PARTS)
        keys = [first + PARTS * number for number in range(self.rng.randint(1, 4))]
        return [(key - key % PARTS + part, 0) for key in keys]

    def _written(self, name: str, base: Snapshot, rows: Sequence[Row]) -> Add:
        data = json.dumps(rows).encode()
        path = f"{name}/part.parquet"
        self.oracle.rows[path] = tuple(rows)
        self._store.put(path, data)
        return Add(
            path=path,
            partition_values={base.partition_keys[0]: str(rows[0][0] % PARTS)},
            size=len(data),
            modification_time=current_ms(),
            data_change=True,
            stats=f'{{"numRecords":{len(rows)}}}',
        )

    def _marked(self, add: Add, keys: Iterable[int]) -> Add:
        """The same file with more of its rows marked as deleted."""
        before = self._hidden(add)
        self._number += 1
        name = f"vector-{self.name}-{self._number}"
        self.oracle.marked[name] = before | frozenset(keys)
        vector = DeletionVector(storage_type="i", path_or_inline_dv=name, size_in_bytes=1, cardinality=1)
        return msgspec.structs.replace(add, deletion_vector=vector)

    def _hidden(self, add: Add) -> frozenset[int]:
        vector = add.deletion_vector
        return self.oracle.marked[vector.path_or_inline_dv] if vector else frozenset()

    def _rows_of(self, add: Add) -> list[Row]:
        try:
            rows = json.loads(self._store.read(add.path))
        except FileMissing:
            self.world.violate(f"{add.path} is live and gone")
            raise
        hidden = self._hidden(add)
        return [(key, count) for key, count in rows if key not in hidden]

    def _commit(
        self,
        kind: str,
        wish: Wish,
        base: Snapshot | None,
        actions: Sequence[Action],
        reads: ReadSet,
        made: Sequence[Add],
        *,
        name: str | None = None,
        metrics: dict[str, int] | None = None,
    ) -> None:
        """Commit, as every change of a table does, and remember what was told."""
        one = Operation(name or self._new_name(), kind, wish)
        self.oracle.operations.append(one)
        said = {"name": one.name}
        with StagedFiles() as staged:
            staged.add_files(self._store, made)
            try:
                outcome = commit(self._store, base, actions, kind, said, reads=reads, metrics=metrics, staged=staged)
            except PostCommitFailed as error:
                self._acknowledge(one, int(str(error.fields["version"])))
                raise
            except WidenError:
                one.status = REFUSED
                raise
        if isinstance(outcome, Committed):
            self._acknowledge(one, outcome.version)
            if self.rng.random() < 0.5:
                self._base = outcome.snapshot
        elif isinstance(outcome, Conflicted):
            one.status = REFUSED
            self.world.note(one.name, type(outcome.error).__name__)

    def _acknowledge(self, one: Operation, version: int) -> None:
        one.status, one.version = ACKNOWLEDGED, version
        self.world.acknowledged = max(self.world.acknowledged, version)
        self.world.note(one.name, version)


_KINDS = (
    *["append"] * 4,
    *["stream"] * 3,
    *["delete"] * 3,
    *["update"] * 3,
    *["compact"] * 2,
    *["read"] * 4,
    "alter",
    "set_property",
    "set_domain",
    "set_domain",
    "restore",
    "checkpoint",
    "cleanup",
)


def with_rows(now: Content, rows: Iterable[Row]) -> Content:
    """The content with some more rows."""
    return replace(now, rows=dict(sorted({**now.rows, **dict(rows)}.items())))


def edited(now: Content, is_meant: Callable[[Row], bool], change: Callable[[Row], Row | None]) -> Content:
    """The content with every row changed that is meant."""
    rows = [change(row) if is_meant(row) else row for row in now.rows.items()]
    return replace(now, rows=dict(sorted(row for row in rows if row is not None)))
