"""The plan: the schema changes that a batch needs, as one value that is explained, checked and executed.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from difflib import get_close_matches
from enum import Enum
from hashlib import sha256
from types import MappingProxyType
from typing import Any

import msgspec

from widen.evolution.map_detection import MapCandidate
from widen.evolution.policy import ANY_MAP, ANYWHERE, NAMES, Mode, Names, Policy, TextForm
from widen.json.envelope import UNCHANGED, UPDATE_DESCRIPTION
from widen.json.field_rules import SIGN
from widen.json.kinds import leaf_and_dim
from widen.json.observation import (
    Observation,
    RecordObservation,
    RecordPosition,
    position_text,
    records_in,
)
from widen.model.column_path import Path, fold_path, format_path, leaves
from widen.model.display import html_table, list_lines, shorten
from widen.model.schema_json import type_to_value
from widen.model.types import STRING, VOID, DataType, Field, MapType, StructType, is_same_name, name_keys
from widen.model.value_classes import dataclass
from widen.protocol.file_statistics import HIDDEN_FIELDS, NO_STATS, join_paths, split_paths
from widen.protocol.table_features import TYPE_WIDENING
from widen.schema.feature_removal import feature_refusal, readers_without
from widen.schema.operations import AddColumn, CreateTable, Operation
from widen.schema.source_metadata import FORM, SOURCE, role_of, sanitize_name, source_key

QUARANTINED = "numQuarantinedRecords"
"""The metric for the number of records that an interval quarantined."""

BAD_FILES = "numBadFiles"
"""The metric for the number of files that an interval skipped, because they cannot be read."""

ROUNDED = "numRoundedValues"
"""The metric for the number of values that an interval rounded to doubles."""

CORRUPT_TEXTS = "numCorruptTexts"
"""The metric for the number of texts in an interval that are not records. File statistics do not replace it: they exist
only if the column for these texts is among the first ones of the table."""


CORRUPT_REASON = "firstCorrupt"
"""The parameter of a commit with the reason why the first of these texts is corrupt."""


class Grade(str, Enum):
    """How much a change affects readers of the table."""

    ADDITIVE = "additive"
    """A new field."""
    WIDENING = "widening"
    """A column gets a wider type; its values stay equal."""
    CONFLICT = "conflict"
    """A field has values of types that no single column holds."""
    STRUCTURAL = "structural"
    """A field changes between scalars, arrays and records."""


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One change of the plan, with the values in the batch that require it.

    Args:
        rules: The rules that require it, e.g. ``("U8",)``.
        source: The path of the source field; empty for texts that are not records.
        kinds: The kinds that it is for, e.g. ``("long[]",)``.
        column: The path of the column, with steps into arrays.
        count: The number of values of these kinds in the batch.
        first: The file and position of the first of them.
        sample: The beginning of that value.
        grade: How much it affects readers.
        at_least: Whether there may be more values: a large batch is not counted to its end.
        dropped_in: What dropped a column of this name before, e.g. ``version 7``; empty if nothing did.
    """

    rules: tuple[str, ...]
    source: Path
    kinds: tuple[str, ...]
    column: Path
    count: int
    first: RecordPosition | None
    sample: str
    grade: Grade
    at_least: bool = False
    dropped_in: str = ""

    def to_value(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        if not self.dropped_in:
            del value["dropped_in"]
        return value


@dataclass(frozen=True, slots=True)
class RescuedField:
    """Values that go to the rescue column, since no column may be added for them.

    Args:
        source: The path of the source field.
        kinds: Their kinds.
        count: The number of values.
        first: The file and position of the first of them.
        sample: The beginning of that value.
        reason: The mode ``freeze``, ``max_columns``, or ``max_levels`` for what is nested too deeply.
        at_least: See `PlanEvent`.
    """

    source: Path
    kinds: tuple[str, ...]
    count: int
    first: RecordPosition | None
    sample: str
    reason: str
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class PlannedReader:
    """What another reader of the table does, before and after a plan.

    Args:
        reader: Its name, e.g. ``polars``.
        title: What it is, e.g. ``polars, scan_delta``.
        version: The version that was tested.
        before: ``reads``, ``refuses`` or ``wrong``; empty for a new table.
        after: The same, once the batch is loaded.
        when: What is wrong then, e.g. ``filters for a range``; empty if nothing is.
        reasons: What of the table it does not handle then, e.g. ``the table feature typeWidening``.
    """

    reader: str
    title: str
    version: str
    before: str
    after: str
    when: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def change(self) -> str:
        """What becomes of it, e.g. ``reads → wrong: filters for a range``."""
        after = f"{self.after}: {self.when}" if self.when else self.after
        return after if self.before in ("", self.after) else f"{self.before} → {after}"

    def __str__(self) -> str:
        because = f" ({', '.join(fold_reasons(self.reasons, _SHOWN_REASONS))})" if self.reasons else ""
        return f"{self.title} {self.version}: {self.change}{because}"


_SHOWN_REASONS = 3
"""How many reasons a line about a reader has; a wide table may have one for each column."""


def fold_reasons(reasons: tuple[str, ...], most: int) -> list[str]:
    """Return the first reasons, and how many more there are."""
    more = len(reasons) - most
    return [*reasons[:most], f"… and {more:,} more"] if more > 0 else [*reasons]


@dataclass(frozen=True, slots=True)
class RoundedField:
    """Numbers that are rounded to doubles, since the policy asks for that."""

    source: Path
    count: int


@dataclass(frozen=True, slots=True)
class MatchedName:
    """A name in the batch that stands for a field of another name.

    Args:
        name: The path with that name.
        source: The path of the field.
    """

    name: Path
    source: Path

    @property
    def is_in_another_case(self) -> bool:
        """Whether the two names differ in case only."""
        return is_same_name(self.name[-1], self.source[-1])

    def __str__(self) -> str:
        return f"{format_path(self.name)} is {format_path(self.source)}"


@dataclass(frozen=True, slots=True)
class QuarantinedField:
    """Values that do not fit a fixed column, so that their records are quarantined.

    Args:
        source: The path of the source field.
        column: Why the column is fixed, e.g. ``a partition column``.
        kinds: The kinds of the values; ``null`` for a missing value of a NOT NULL column.
        count: The number of values.
        first: The file and position of the first of them.
        sample: The beginning of that value.
    """

    source: Path
    column: str
    kinds: tuple[str, ...]
    count: int
    first: RecordPosition | None
    sample: str


@dataclass(frozen=True, slots=True)
class PendingField:
    """A field with only nulls and empties in the batch, so that no column can be created for it yet.

    Args:
        source: The path of the source field.
        nulls: The number of nulls, including nulls in arrays.
        empty: The number of ``[]`` that no column of the field holds.
        empty_records: The number of ``{}`` that no column of the field holds.
    """

    source: Path
    nulls: int
    empty: int
    empty_records: int


@dataclass(frozen=True, slots=True)
class ReadAs:
    """How files are read, as their first lines say.

    Args:
        form: The form in a few words, e.g. ``; with header``.
        options: The options that would say the same, e.g. ``{"sep": ";"}``.
    """

    form: str
    options: Mapping[str, str]
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file of the source that cannot be read or is parked; the quarantine names it.

    Args:
        modified_ms: The time of its last modification, in ms since 1970 UTC.
        content: A hash of its content; empty if it was not computed.
        is_parked: Whether the file can be read, but a batch with it is over a limit.
    """

    path: str
    reason: str
    size_bytes: int = 0
    modified_ms: int = 0
    content: str = ""
    is_parked: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class PlanOutcome(str, Enum):
    """What a load with a plan would do."""

    NOTHING = "nothing"
    """The schema stays as it is."""
    CHANGES = "changes"
    """The schema changes, and the mode accepts it."""
    REFUSED = "refused"
    """The mode refuses changes, values or records are kept out, or the batch is over a limit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The schema changes that a batch needs, and what happens to values without a column.

    Args:
        operations: The changes of the schema, in the order to apply them.
        schema: The schema after the operations.
        events: The reasons for the operations.
        pending: The fields that wait for their first value.
        rescued: The values for the rescue column.
        refused: The changes that the policy forbids. If there are any, nothing may be written.
        quarantined: The values whose records are quarantined.
        unmatched: The rules of the policy that have no effect.
        bad_files: The files that cannot be read and are skipped.
        maps: The fields whose objects look like maps, but become records.
        rounded: The fields with numbers that are rounded to doubles.
        matched: The names that stand for a field of another name.
        source_table: The version of a table that was read as the source; empty for other sources.
        read_as: How files are read that are not written as options and defaults say.
        keyed_by: How rows change by key; empty if the batch only adds rows.
        enables_widening: Whether the commit turns on type widening, which the table does not have yet.
        widenable: The type changes that the batch would get if type widening were on.
        over_limits: Which limits of the load the batch is over; only a plan that was asked for says it.
        readers: What other readers do with the table before and after; only of those that the caller asked for.
        lost_sources: What was done about the columns of the table, if another client had removed from its schema which
            fields they hold; empty if they have that.
    """

    operations: tuple[Operation, ...]
    schema: StructType
    events: tuple[PlanEvent, ...] = ()
    pending: tuple[PendingField, ...] = ()
    rescued: tuple[RescuedField, ...] = ()
    refused: tuple[Operation, ...] = ()
    quarantined: tuple[QuarantinedField, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()
    bad_files: tuple[BadFile, ...] = ()
    maps: tuple[MapCandidate, ...] = ()
    rounded: tuple[RoundedField, ...] = ()
    matched: tuple[MatchedName, ...] = ()
    source_table: str = ""
    read_as: tuple[ReadAs, ...] = ()
    keyed_by: str = ""
    enables_widening: bool = False
    widenable: tuple[Operation, ...] = ()
    lost_sources: str = ""
    over_limits: tuple[str, ...] = ()
    readers: tuple[PlannedReader, ...] = ()

    @property
    def rounded_values(self) -> int:
        """How many numbers of the batch are rounded to doubles."""
        return sum(each.count for each in self.rounded)

    @property
    def in_another_case(self) -> tuple[MatchedName, ...]:
        """The names that stand for a field because they differ in case only."""
        return tuple(each for each in self.matched if each.is_in_another_case)

    @property
    def renamed(self) -> tuple[MatchedName, ...]:
        """The names that stand for a field because somebody has said so."""
        return tuple(each for each in self.matched if not each.is_in_another_case)

    @property
    def creates_table(self) -> bool:
        """Whether the table does not exist yet."""
        return any(isinstance(operation, CreateTable) for operation in self.operations)

    @property
    def is_empty(self) -> bool:
        """Whether neither the schema nor a table feature changes, and nothing is refused."""
        return not (self.operations or self.refused or self.enables_widening)

    @property
    def keeps_values_out(self) -> bool:
        """Whether the policy refuses changes, or values go to the rescue column or their records to the quarantine."""
        return bool(self.refused or self.rescued or self.quarantined)

    @property
    def outcome(self) -> PlanOutcome:
        """What a load with this plan would do."""
        if self.keeps_values_out or self.over_limits:
            return PlanOutcome.REFUSED
        return PlanOutcome.NOTHING if self.is_empty else PlanOutcome.CHANGES

    @property
    def hash(self) -> str:
        """A hash of the decisions. It is the same on every machine, and does not depend on counts and samples."""
        items: tuple[RescuedField | QuarantinedField, ...] = (*self.rescued, *self.quarantined)
        remaining = [(*item.source, "", *item.kinds) for item in items]
        decided = {key: self.to_value()[key] for key in ("operations", "refused", "schema")} | {
            "left": sorted(remaining)
        }
        # Only if it is so: the hash of every other plan stays what it was.
        decided |= {"enablesTypeWidening": True} if self.enables_widening else {}
        return sha256(msgspec.json.encode(decided, order="deterministic")).hexdigest()

    def __repr__(self) -> str:
        refused = f", {len(self.refused)} refused" if self.refused else ""
        head = f"Plan({len(self.operations)} operations{refused}, hash={self.hash[:12]})"
        return list_lines(head, (shorten(str(operation), 98) for operation in (*self.operations, *self.refused)))

    def _repr_html_(self) -> str:
        kinds = [(each, "") for each in self.operations] + [(each, "refused") for each in self.refused]
        rows = ((type(each).__name__, shorten(str(each)), note) for each, note in kinds)
        return html_table(f"Plan {self.hash[:12]}", ("operation", "details", ""), rows)

    def logged_events(self) -> list[Mapping[str, Any]]:
        """Return the events for the log of the table.

        A field inside a column that the plan adds has no separate event, unless it brings a conflict: a record
        with thousands of fields must not fill the log.
        """
        columns = {event.column for event in self.events}
        return [
            event.to_value()
            for event in self.events
            if event.grade is not Grade.ADDITIVE
            or not any(event.column[:length] in columns for length in range(1, len(event.column)))
        ]

    def to_value(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        return {
            "operations": [operation.to_value() for operation in self.operations],
            "refused": [operation.to_value() for operation in self.refused],
            "schema": type_to_value(self.schema),
            "events": [event.to_value() for event in self.events],
            "pending": [_value(pending) for pending in self.pending],
            "rescued": [_value(rescued) for rescued in self.rescued],
            "quarantined": [_value(quarantined) for quarantined in self.quarantined],
            "unmatched": [_value(unmatched) for unmatched in self.unmatched],
            "badFiles": [_value(file) for file in self.bad_files],
            "maps": [_value(candidate) for candidate in self.maps],
            "rounded": [_value(each) for each in self.rounded],
            **({"matched": [_value(each) for each in self.matched]} if self.matched else {}),
            **({"readAs": [_value(each) for each in self.read_as]} if self.read_as else {}),
            **({"keyedBy": self.keyed_by} if self.keyed_by else {}),
            **({"enablesTypeWidening": True, "readersLost": list(READERS_LOST)} if self.enables_widening else {}),
            **({"widenable": [each.to_value() for each in self.widenable]} if self.widenable else {}),
            **({"lostSources": self.lost_sources} if self.lost_sources else {}),
            **({"overLimits": list(self.over_limits)} if self.over_limits else {}),
            **({"readers": [_value(each) for each in self.readers]} if self.readers else {}),
        }


def mark_returning(plan: Plan, find_dropped: Callable[[], Mapping[Path, str]]) -> Plan:
    """Return the plan after marking events that add a column again which the table once had.

    Args:
        find_dropped: Returns the columns that were dropped, and by what; called only if the plan adds a column.
    """
    added = {operation.path for operation in plan.operations if isinstance(operation, AddColumn)}
    if not added:
        return plan
    dropped = {fold_path(path): what for path, what in find_dropped().items()}
    events = [
        replace(event, dropped_in=dropped.get(fold_path(event.column), "")) if event.column in added else event
        for event in plan.events
    ]
    return replace(plan, events=tuple(events))


def _value(item: object) -> Mapping[str, Any]:
    value: Mapping[str, Any] = msgspec.to_builtins(item)
    return value


# Plans as plain text.
#
# Source: docs/evolution-rules.md#dry-run


NOTHING = "Nothing to change."

TURNED_ON = "Type widening is turned on with the commit"
READERS_LOST = readers_without(TYPE_WIDENING)
"""The tested readers that refuse a table with type widening."""
OLDER_READERS = feature_refusal(TYPE_WIDENING)
WOULD_WIDEN = "Type widening is off for this table. If it were on, columns would widen in place"
HOW_TO_TURN_ON = (
    "To turn it on with the commit: --enable-type-widening (enable_type_widening=True).",
    "Clients that do not support the table feature typeWidening then refuse the table.",
)

LOST_SOURCES = "The schema of the table has lost which fields its columns hold"

MAX_LINES = 40
"""The maximum number of lines of each list."""


def explain_plan(plan: Plan) -> tuple[str, ...]:
    """Return the lines that explain a plan.

    The operations come first, then the reasons, then rescued, quarantined and pending values.
    """
    return tuple(_lines(plan)) or (NOTHING,)


def explain_operations(operations: tuple[Operation, ...]) -> str:
    """Return the operations as text, one per line."""
    return "\n".join(_fold_lines([str(operation) for operation in operations]))


OVER_LIMITS = "Over a limit, so that the load would stop"
"""The heading of the limits that a batch is over."""

IN_ANOTHER_CASE = 'Names that differ in case only are one field (names = "exact" keeps them apart)'
RENAMED_FIELDS = "Fields that have another name here, as the columns say (widen alter --source)"
"""The headings of the names that stand for fields of other names."""
READERS = "What other readers do with the table then"
"""The heading of the readers that the caller asked for."""


def _lines(plan: Plan) -> Iterator[str]:
    for title, items in (
        ("Changes:", plan.operations),
        ("Refused by the policy:", plan.refused),
        (f"{TURNED_ON}:", (OLDER_READERS,) if plan.enables_widening else ()),
        (f"{WOULD_WIDEN}:", (*plan.widenable, *HOW_TO_TURN_ON) if plan.widenable else ()),
        (f"{LOST_SOURCES}:", (plan.lost_sources,) if plan.lost_sources else ()),
        ("Rows change:", (plan.keyed_by,) if plan.keyed_by else ()),
        (f"{OVER_LIMITS}:", plan.over_limits),
        ("Because:", tuple(map(_explain_event, plan.events))),
        ("Stored in the rescue column:", tuple(map(_explain_rescued, plan.rescued))),
        ("Quarantined:", tuple(map(_explain_quarantined, plan.quarantined))),
        ("Rounded to double:", tuple(map(_explain_rounded, plan.rounded))),
        ("Waiting for a first value:", tuple(map(_explain_pending, plan.pending))),
        ("Options without effect:", tuple(map(str, plan.unmatched))),
        ("Skipped, because they cannot be read or are over a limit:", tuple(map(str, plan.bad_files))),
        (f"{IN_ANOTHER_CASE}:", plan.in_another_case),
        (f"{RENAMED_FIELDS}:", plan.renamed),
        (f"{READERS}:", plan.readers),
        ("Objects that look like maps:", tuple(f"{format_path(each.source)}: {each}" for each in plan.maps)),
    ):
        if items:
            yield title
            yield from (f"  {item}" for item in _fold_lines([str(item) for item in items]))


def _fold_lines(lines: list[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    more = len(lines) - MAX_LINES
    return lines if more <= 0 else [*lines[:MAX_LINES], f"… and {more} more"]


def _explain_event(event: PlanEvent) -> str:
    rules, values = ", ".join(event.rules), f"{_lower_bound_text(event)}{event.count} {_kind_text(event.kinds)}"
    first = _first_seen_text(event.first, event.sample)
    back = f"; {event.dropped_in} dropped a column of this name, whose values stay away" if event.dropped_in else ""
    return f"{rules} {event.grade.value}: {format_path(event.column)}, for {values}{first}{back}"


def _lower_bound_text(counted: PlanEvent | RescuedField) -> str:
    return "at least " if counted.at_least else ""


def _kind_text(kinds: tuple[str, ...]) -> str:
    return " and ".join(kinds) or "records"


def _explain_rescued(rescued: RescuedField) -> str:
    values = f"{_lower_bound_text(rescued)}{rescued.count} {_kind_text(rescued.kinds)}"
    return (
        f"{format_path(rescued.source)}: {values} ({rescued.reason}){_first_seen_text(rescued.first, rescued.sample)}"
    )


def _explain_quarantined(quarantined: QuarantinedField) -> str:
    values = f"{quarantined.count} {_kind_text(quarantined.kinds)}, but the column is {quarantined.column}"
    return f"{format_path(quarantined.source)}: {values}{_first_seen_text(quarantined.first, quarantined.sample)}"


def _explain_rounded(rounded: RoundedField) -> str:
    return f"{format_path(rounded.source)}: {rounded.count} {'number' if rounded.count == 1 else 'numbers'}"


def _explain_pending(pending: PendingField) -> str:
    counts = ((pending.nulls, "null"), (pending.empty, "[]"), (pending.empty_records, "{}"))
    return f"{format_path(pending.source)}: {', '.join(f'{count} {what}' for count, what in counts if count)}"


def _first_seen_text(first: RecordPosition | None, sample: str) -> str:
    value = f" {sample!r}" if sample else ""
    return f"; first{value} at {position_text(first)}" if first else ""


# Rules of a policy without effect: for fields that do not exist, and pins that contradict an existing column.
#
# A misspelled name in `mask` or `exclude` would hide nothing, so such a batch is refused.
#
# Source: docs/evolution-rules.md#d13


_NEAREST = 3
_COUNTS_AS_NULL = "neither the table nor the batch has this field, so it is null in the condition"
_MASK, _EXCLUDE, _INCLUDE = "mask", "exclude", "include"


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A rule of a policy that has no effect.

    Args:
        option: The option: ``mask``, ``exclude``, ``include``, ``pin``, ``epoch_unit``, ``detect_dates``,
            ``delete_when``, ``history_columns`` or ``history_except``.
        nearest: The existing fields with the most similar names.
    """

    option: str
    source: Path
    reason: str
    nearest: tuple[str, ...] = ()

    @property
    def hides(self) -> bool:
        """Whether the rule is to hide values."""
        return self.option in (_MASK, _EXCLUDE, _INCLUDE)

    def __str__(self) -> str:
        nearest = f" Did you mean {' or '.join(self.nearest)}?" if self.nearest else ""
        return f"{self.option} {format_path(self.source)}: {self.reason}.{nearest}"


def find_unmatched(
    policy: Policy,
    base: StructType | None,
    planned: StructType,
    observed: Observation,
    *,
    deletes_by: Iterable[Path] = (),
    tracked: Mapping[str, Iterable[Path]] = MappingProxyType({}),
) -> tuple[Unmatched, ...]:
    """Return the rules of a policy without effect, sorted by option and field.

    Args:
        base: The columns of the table before the batch; None if it does not exist yet.
        planned: The columns after the batch.
        deletes_by: The fields of the condition of deletions that have no column.
        tracked: The fields that the options say are tracked for history, or not.
    """
    found = _find_fields(planned, observed)
    found.existing |= {(name,) for name in policy.file_fields}
    names = sorted(map(format_path, found.existing))
    folded = found.folded(policy)
    unmatched = []
    for option, source in _rules(policy):
        in_any_case = option in (_MASK, _EXCLUDE, _INCLUDE)
        if not (folded.hides(fold_path(source)) if in_any_case else found.has(source)):
            nearest = tuple(get_close_matches(format_path(source), names, _NEAREST))
            unmatched.append(Unmatched(option, source, "neither the table nor the batch has this field", nearest))
    for source in dict.fromkeys(deletes_by):
        if fold_path(source) not in folded.existing:
            nearest = tuple(get_close_matches(format_path(source), names, _NEAREST))
            unmatched.append(Unmatched("delete_when", source, _COUNTS_AS_NULL, nearest))
    for option, sources in tracked.items():
        for source in sources:
            if fold_path(source) not in folded.existing:
                nearest = tuple(get_close_matches(format_path(source), names, _NEAREST))
                unmatched.append(Unmatched(option, source, "neither the table nor the batch has this field", nearest))
    unmatched += _contradictions(policy, base or StructType())
    return tuple(sorted(unmatched, key=lambda each: (each.option, each.source)))


def _rules(policy: Policy) -> Iterator[tuple[str, Path]]:
    """Yield the option and the field of every rule, without those derived for file fields and envelopes."""
    again = (
        frozenset[Path]()
        if policy.envelope is None
        else frozenset(policy.envelope.again(policy.masked | policy.excluded))
    )
    for option, sources in (
        (_MASK, policy.masked),
        (_EXCLUDE, policy.excluded),
        (_INCLUDE, policy.included or ()),
        ("pin", policy.pins),
        ("epoch_unit", policy.epoch_units),
        ("detect_dates", policy.date_fields),
    ):
        for source in sources:
            is_of_file = len(source) == 1 and source[0].rstrip(SIGN) in policy.file_fields
            if source not in (ANYWHERE, (UNCHANGED,), (UPDATE_DESCRIPTION,), *again) and not is_of_file:
                yield option, source


@dataclass(slots=True)
class _Fields:
    """The fields of a table and a batch.

    Args:
        texts: Fields with strings: such a string may hold fields, and a mask below it covers the whole string.
        forms: Fields that are kept as text, regardless of their values.
        maps: Fields whose keys are data.
        records: Fields with records, whose fields are known.
        hidden: Those that the policy masks or excludes.
    """

    existing: set[Path] = field(default_factory=set)
    texts: set[Path] = field(default_factory=set)
    forms: set[Path] = field(default_factory=set)
    maps: set[Path] = field(default_factory=set)
    records: set[Path] = field(default_factory=set)
    hidden: set[Path] = field(default_factory=set)

    def folded(self, policy: Policy) -> _Fields:
        """Return the fields by their folded names, with those that earlier loads have hidden."""
        parts = (self.existing | policy.known_fields, self.texts, self.forms, self.maps, self.records)
        return _Fields(*(set(map(fold_path, each)) for each in (*parts, policy.masked | policy.excluded)))

    def has(self, source: Path) -> bool:
        """Return whether a field exists, or may exist inside a map or a text."""
        closed = self.texts | self.forms | self.maps
        is_inside = any(source[:length] in closed for length in range(1, len(source)))
        return is_inside or source in self.existing or (*source[:-1], source[-1] + SIGN) in self.existing

    def hides(self, source: Path) -> bool:
        """Return whether a mask or an exclusion is known to hide something, given folded names."""
        above = [source[:length] for length in range(1, len(source))]
        if source in self.existing or (*source[:-1], source[-1] + SIGN) in self.existing:
            return True
        # All values of a field above are masked or excluded: itself, or as strings that may hold any field.
        seen_inside = self.records | self.maps | self.forms
        return any(path in self.hidden or (path in self.texts and path not in seen_inside) for path in above)


def _find_fields(planned: StructType, observed: Observation) -> _Fields:
    found = _Fields({tuple(path) for path in observed.excluded_seen})
    _add_columns(planned, (), found)
    for records in (observed.root, observed.quarantined_records):
        _add_observed(records, (), found)
    return found


def _add_columns(struct: StructType, parent: Path, found: _Fields) -> None:
    for column in struct:
        if parent or role_of(column) is None:
            source = (*parent, source_key(column))
            found.existing.add(source)
            leaf, _ = leaf_and_dim(column.type)
            if FORM in column.metadata:
                found.forms.add(source)
            while isinstance(leaf, MapType):
                found.maps.add(source)
                leaf, _ = leaf_and_dim(leaf.value)
            if isinstance(leaf, StructType):
                found.records.add(source)
                _add_columns(leaf, source, found)
            elif leaf == STRING:
                found.texts.add(source)


def _add_observed(records: RecordObservation, parent: Path, found: _Fields) -> None:
    for key, seen in records.items():
        source = (*parent, key)
        found.existing.add(source)
        for below in records_in(seen):
            found.records.add(source)
            _add_observed(below, source, found)


def _contradictions(policy: Policy, base: StructType) -> Iterator[Unmatched]:
    for source, pin in policy.pins.items():
        types = list(_types_of(base, source))
        pinned = None if isinstance(pin, Mode) else STRING if isinstance(pin, TextForm) else pin
        if pinned is not None and types and not any(_is_like(existing, pinned) for existing in types):
            pin_text = "map" if pinned == ANY_MAP else pinned.sql
            existing_types = " and ".join(each.sql for each in types)
            yield Unmatched("pin", source, f"the pin is {pin_text}, but the table has this field as {existing_types}")


def _types_of(struct: StructType, source: Path) -> Iterator[DataType]:
    for column in struct:
        if source_key(column) == source[0] and role_of(column) is None:
            leaf, _ = leaf_and_dim(column.type)
            if len(source) == 1:
                yield column.type
            elif isinstance(leaf, StructType):
                yield from _types_of(leaf, source[1:])


def _is_like(data_type: DataType, pinned: DataType) -> bool:
    """Return whether a column has a type, ignoring the fields of its records."""
    (leaf, dim), (pinned_leaf, pinned_dim) = leaf_and_dim(data_type), leaf_and_dim(pinned)
    kinds: Collection[type] = (StructType, MapType)
    is_same = any(isinstance(leaf, kind) and isinstance(pinned_leaf, kind) for kind in kinds)
    return dim == pinned_dim and (is_same or str(leaf) == str(pinned_leaf))


def pending_columns(plan: Plan, known: StructType, policy: Policy) -> list[AddColumn]:
    """Return columns without a type for fields that have only been null, in formats that have such columns.

    Fields in lists and maps, and fields whose name another column has, stay pending.

    Args:
        known: The columns of the table, including those without a type.

    Source: docs/evolution-rules.md#d7
    """
    parents: dict[Path, Path] = dict(_structs(plan.schema, (), ()))
    room = policy.max_columns - sum(1 for _ in leaves(StructType((*plan.schema, *known))))
    taken = {*_name_places(plan.schema, ()), *_name_places(known, ())}
    taken |= {((), key) for name in policy.reserved_names for key in name_keys(name)}
    added: list[AddColumn] = []
    for each in plan.pending:
        parent, name = parents.get(each.source[:-1]), sanitize_name(each.source[-1], policy.table_format)
        if parent is None or each.empty or each.empty_records or len(added) >= room:
            continue
        places = {(parent, key) for key in name_keys(name)}
        if taken.isdisjoint(places):
            taken |= places
            added.append(AddColumn(parent, Field(name, VOID)))
    return added


def _structs(struct: StructType, path: Path, source: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the paths of the source fields of structs, each with the path of its column."""
    yield source, path
    for each in struct:
        if isinstance(each.type, StructType):
            own = tuple(each.metadata.get(SOURCE) or (*source, each.name))
            yield from _structs(each.type, (*path, each.name), own)


def _name_places(struct: StructType, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the keys of the names in a struct and the structs in it, each with the path of its struct."""
    for each in struct:
        yield from ((path, key) for key in name_keys(each.name))
        if isinstance(each.type, StructType):
            yield from _name_places(each.type, (*path, each.name))


def policy_properties(policy: Policy, plan: Plan, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the table properties that record which fields are hidden or have no statistics, and when names are equal.

    A later load knows these fields, also if it does not have them, and later writers write no statistics of them.

    Args:
        plan: The plan of the batch; a field that it does not match is not recorded.
        properties: The properties of the table.
    """
    unmatched = {each.source for each in plan.unmatched}
    hidden = (policy.masked | policy.excluded) - unmatched
    recorded = {}
    for key, sources in ((HIDDEN_FIELDS, hidden), (NO_STATS, policy.no_stats)):
        old = split_paths(properties.get(key, ""))
        known = set(map(fold_path, old))
        new = [source for source in sources if fold_path(source) not in known]
        if new:
            recorded[key] = join_paths((*old, *new))
    names = properties.get(NAMES, Names.ANY_CASE.value)
    return recorded | ({NAMES: policy.names.value} if policy.names is not None and policy.names.value != names else {})
