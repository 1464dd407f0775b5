"""What a table must be, found from its commits alone: nothing here calls the code under test but to compare with it.

Two judges: the actions of the commits, replayed one by one; and the wishes of the writers, applied one after another
in the order of the versions, which is what a log of serializable commits promises.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from support.simulation.world import World
from widen.errors import WidenError
from widen.log.log_segment import LogListing, LogSegment, list_log
from widen.log.snapshot import Snapshot, open_snapshot

Row = tuple[int, int]
"""A key, and how often it was updated."""
UNKNOWN, ACKNOWLEDGED, REFUSED = "unknown", "acknowledged", "refused"


@dataclass(frozen=True)
class Content:
    """What a table holds after a version, as the writers mean it."""

    rows: dict[int, int]
    columns: tuple[str, ...]
    note: str | None = None
    domain: str | None = None


Wish = Callable[[Content, "list[Content]"], Content]


@dataclass
class Operation:
    """What a writer wants, and what it was told of it.

    Args:
        name: Its own.
        kind: For messages.
        wish: What it makes of a table, whatever is in there by then.
    """

    name: str
    kind: str
    wish: Wish
    status: str = UNKNOWN
    version: int | None = None


Files = dict[tuple[str, str], dict[str, Any]]


@dataclass(frozen=True)
class Truth:
    """What the commits up to a version say."""

    files: Files
    metadata: dict[str, Any]
    protocol: dict[str, Any]
    transactions: dict[str, int]
    domains: dict[str, str]


@dataclass
class Oracle:
    """Knows what the writers want and what the files hold, and judges the table.

    Args:
        world: The run.
    """

    world: World
    operations: list[Operation] = field(default_factory=list)
    rows: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    """The rows of each data file."""
    marked: dict[str, frozenset[int]] = field(default_factory=dict)
    """The keys that each deletion vector marks, by its id."""
    seen: list[tuple[str, Observation]] = field(default_factory=list)

    def judge(self) -> None:
        """Check everything that must hold when all writers have ended."""
        world = self.world
        world.land_all()
        if sorted(world.commits) != list(range(len(world.commits))):
            world.violate(f"the versions are {sorted(world.commits)}")
            return
        lines = {v: [json.loads(text) for text in data.splitlines()] for v, (data, _) in world.commits.items()}
        truths = replayed(lines)
        self._judge_answers(lines)
        self._judge_contents(lines, truths)
        self._judge_row_ids(lines)
        self._judge_times(lines)
        for who, one in self.seen:
            self._compare(who, one, truths)
        self._judge_checksums(truths)
        self._judge_retention()
        self._judge_reading(truths)

    def _judge_answers(self, lines: dict[int, list[dict[str, Any]]]) -> None:
        written = Counter(name_of(each) for each in lines.values())
        at = {name_of(each): version for version, each in lines.items()}
        for one in self.operations:
            count = written[one.name]
            if count > 1:
                self.world.violate(f"{one.kind} {one.name} was committed {count} times")
            if one.status == ACKNOWLEDGED and at.get(one.name) != one.version:
                self.world.violate(f"{one.kind} {one.name} was acknowledged as {one.version}: {at.get(one.name)}")
            if one.status == REFUSED and count:
                self.world.violate(f"{one.kind} {one.name} was refused, and is version {at[one.name]}")

    def _judge_contents(self, lines: dict[int, list[dict[str, Any]]], truths: list[Truth]) -> None:
        known = {one.name: one for one in self.operations}
        contents: list[Content] = []
        for version, truth in enumerate(truths):
            one = known[name_of(lines[version])]
            before = contents[-1] if contents else Content({}, ())
            contents.append(one.wish(before, contents))
            found = self.content(truth)
            if found != contents[-1]:
                self.world.violate(f"version {version} ({one.kind}) is {found}, not {contents[-1]}")
                return
        for path, _ in truths[-1].files:
            if path not in self.world.stored:
                self.world.violate(f"the file {path} is live and gone")

    def content(self, truth: Truth) -> Content:
        """What the files of a version hold; a row that is there twice is a violation of its own."""
        rows: list[Row] = []
        for path, vector in truth.files:
            hidden = self.marked.get(vector, frozenset())
            rows += [row for row in self.rows[path] if row[0] not in hidden]
        if len({key for key, _ in rows}) != len(rows):
            self.world.violate(f"rows are there twice: {sorted(rows)}")
        columns = tuple(column["name"] for column in json.loads(truth.metadata["schemaString"])["fields"])
        note = truth.metadata["configuration"].get("simulation.note")
        return Content(dict(sorted(rows)), columns, note, truth.domains.get("simulation"))

    def _judge_row_ids(self, lines: dict[int, list[dict[str, Any]]]) -> None:
        given: dict[str, tuple[int, int]] = {}
        mark = -1
        for version in sorted(lines):
            for line in lines[version]:
                add, domain = line.get("add"), line.get("domainMetadata")
                if add and "baseRowId" in add:
                    rows = json.loads(add["stats"])["numRecords"]
                    given.setdefault(add["path"], (add["baseRowId"], add["baseRowId"] + rows))
                if domain and domain["domain"] == "delta.rowTracking":
                    new = json.loads(domain["configuration"])["rowIdHighWaterMark"]
                    if new < mark:
                        self.world.violate(f"the high-water mark of row ids goes back from {mark} to {new}")
                    mark = new
        ends = sorted(given.values())
        if any(one[1] > other[0] for one, other in pairwise(ends)):
            self.world.violate(f"row ids were given twice: {ends}")
        if ends and mark != ends[-1][1] - 1:
            self.world.violate(f"the high-water mark of row ids is {mark}: {ends}")

    def _judge_times(self, lines: dict[int, list[dict[str, Any]]]) -> None:
        times = [lines[version][0]["commitInfo"].get("inCommitTimestamp") for version in sorted(lines)]
        told = [time for time in times if time is not None]
        if any(one >= other for one, other in pairwise(told)) or (None in times[1:] and told):
            self.world.violate(f"the times of versions do not rise: {times}")

    def _judge_checksums(self, truths: list[Truth]) -> None:
        for path, (data, _) in self.world.stored.items():
            if found := re.fullmatch(r"_delta_log/(\d{20})\.crc", path):
                truth, told = truths[int(found[1])], json.loads(data)
                mine = {
                    "numFiles": len(truth.files),
                    "tableSizeBytes": sum(add["size"] for add in truth.files.values()),
                    "metadata": truth.metadata,
                    "protocol": truth.protocol,
                }
                theirs = {key: told[key] for key in mine}
                if "setTransactions" in told:
                    mine["setTransactions"] = truth.transactions
                    theirs["setTransactions"] = {txn["appId"]: txn["version"] for txn in told["setTransactions"]}
                if "domainMetadata" in told:
                    mine["domainMetadata"] = truth.domains
                    theirs["domainMetadata"] = {one["domain"]: one["configuration"] for one in told["domainMetadata"]}
                if mine != theirs:
                    self.world.violate(f"the checksum {path} says {theirs}, not {mine}")

    def _judge_retention(self) -> None:
        """Check that every version that has not expired can be made from what is there."""
        listing = list_log(self.world.store())
        for version, (_, modified_ms) in self.world.commits.items():
            if modified_ms > self.world.expired_ms:
                checkpoint = max((v for v in listing.checkpoints if v <= version), default=-1)
                lacking = set(range(checkpoint + 1, version + 1)) - set(listing.commits)
                if lacking:
                    self.world.violate(f"version {version} has not expired, and lacks {sorted(lacking)}")

    def _judge_reading(self, truths: list[Truth]) -> None:
        store = self.world.store()
        try:
            newest = observed(open_snapshot(store))
        except WidenError as error:
            self.world.violate(f"the table cannot be opened: {error}")
            return
        if newest.version != len(truths) - 1:
            self.world.violate(f"the newest version is {newest.version}, not {len(truths) - 1}")
        self._compare("newest", newest, truths)
        listing = list_log(store)
        for version in sorted(listing.checkpoints):
            for last in {version, newest.version}:
                if set(range(version + 1, last + 1)) <= set(listing.commits):
                    for has_checksums in (True, False):
                        snapshot = Snapshot(store, self._from_checkpoint(listing, version, last, has_checksums))
                        self._compare(f"from checkpoint {version}", observed(snapshot), truths)

    @staticmethod
    def _from_checkpoint(listing: LogListing, version: int, last: int, has_checksums: bool) -> LogSegment:
        tail = tuple(listing.commits[v] for v in range(version + 1, last + 1))
        whole = listing.segment(None, last)  # type: ignore[arg-type]
        checksums = frozenset(v for v in whole.checksums if v >= version) if has_checksums else frozenset()
        return replace(whole, checkpoint=listing.checkpoints[version], tail=tail, checksums=checksums)

    def _compare(self, who: str, one: Observation, truths: list[Truth]) -> None:
        if one.version >= len(truths):
            self.world.violate(f"{who} read version {one.version}, which is not there")
            return
        truth = truths[one.version]
        expected = Observation(
            version=one.version,
            files=tuple(sorted(truth.files)),
            schema=truth.metadata["schemaString"],
            properties=truth.metadata["configuration"],
            transactions=truth.transactions,
            domains=truth.domains,
        )
        if one != expected:
            self.world.violate(f"{who} read {one}, not {expected}")


@dataclass(frozen=True)
class Observation:
    """What a version is by the code under test."""

    version: int
    files: tuple[tuple[str, str], ...]
    schema: str
    properties: dict[str, str]
    transactions: dict[str, int]
    domains: dict[str, str]


def observed(snapshot: Snapshot) -> Observation:
    """Read everything that a version holds."""
    rows = snapshot.files().select(["path", "deletion_vector"]).to_pylist()
    return Observation(
        version=snapshot.version,
        files=tuple(sorted((row["path"], _vector(row["deletion_vector"])) for row in rows)),
        schema=snapshot.metadata.schema_string,
        properties=dict(snapshot.properties),
        transactions={app_id: txn.version for app_id, txn in snapshot.transactions.items()},
        domains={name: domain.configuration for name, domain in snapshot.domains.items()},
    )


def _vector(vector: dict[str, Any] | None) -> str:
    return vector["path_or_inline_dv"] if vector else ""


def name_of(lines: list[dict[str, Any]]) -> str:
    """The name of the operation that a commit is of."""
    return lines[0]["commitInfo"]["operationParameters"]["name"]  # type: ignore[no-any-return]


def replayed(lines: dict[int, list[dict[str, Any]]]) -> list[Truth]:
    """Replay all commits, and return what holds after each."""
    truths: list[Truth] = []
    now = Truth({}, {}, {}, {}, {})
    for version in sorted(lines):
        files, transactions, domains = dict(now.files), dict(now.transactions), dict(now.domains)
        metadata, protocol = now.metadata, now.protocol
        for line in lines[version]:
            if "add" in line:
                files[_key(line["add"])] = line["add"]
            elif "remove" in line:
                files.pop(_key(line["remove"]), None)
            elif "txn" in line:
                transactions[line["txn"]["appId"]] = line["txn"]["version"]
            elif "domainMetadata" in line:
                domains[line["domainMetadata"]["domain"]] = line["domainMetadata"]["configuration"]
            metadata, protocol = line.get("metaData", metadata), line.get("protocol", protocol)
        now = Truth(files, metadata, protocol, transactions, domains)
        truths.append(now)
    return truths


def _key(action: dict[str, Any]) -> tuple[str, str]:
    return action["path"], action.get("deletionVector", {}).get("pathOrInlineDv", "")
