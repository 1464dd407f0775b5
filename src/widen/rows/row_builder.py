"""Texts of one batch as rows of one table, with an observation of what did not fit.

Records that fit the columns take the fast path. All others are read exactly, observed and routed. So the observation
holds only what the columns do not say already, and an interval without anything new costs little more than decoding.

Source: docs/evolution-rules.md#one-interval, #d11, #d12
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol

import msgspec

from widen.evolution.policy import (
    Policy,
    build_field_rules,
    field_names,
    respell_all,
    unseen_hidden_fields,
    with_declared_times,
)
from widen.json.document import (
    BOM,
    InvalidJson,
    JsonDocument,
    document_to_json,
    not_a_record,
    parse_document,
    split_text,
)
from widen.json.field_rules import (
    IS_CURRENT,
    VALID_FROM,
    VALID_TO,
    VERSION_FIELDS,
    FieldRule,
    FieldRules,
    FileFields,
    merge_file_fields,
)
from widen.json.kinds import DOUBLE_WORD, INT_WORD, LONG_WORD, RECORD_WORD, Kind
from widen.json.observation import (
    FieldObservation,
    KindObservation,
    Observation,
    RecordObservation,
    RecordPosition,
    merge_records,
    observe_record,
    position_text,
)
from widen.model.column_path import Path
from widen.model.native_kernel import find_kernel
from widen.model.types import StructType, is_same_name
from widen.model.value_classes import dataclass
from widen.protocol.partition_values import has_no_partition
from widen.rows.column_assembler import ColumnAssembler, RecordDecoder
from widen.rows.native_decoder import NativeBatch, NativeDecoder, build_record_plan
from widen.rows.row import (
    ColumnSlot,
    RecordRoute,
    Redactor,
    Row,
    build_routes,
    find_violations,
    fixed_column_route,
    rescue,
    to_row,
)
from widen.rows.shape import BatchProfile, RecordShape, ScalarField, SourcePath, build_record_shape, build_scalar_field
from widen.schema.field_names import (
    FieldNames,
    NameUse,
    Spellings,
    find_sample_spellings,
    match_observation,
    respell,
    respell_path,
    with_apart_names,
)
from widen.schema.source_metadata import CORRUPT, CORRUPT_AT, RESCUED, ROLES, role_field

MAX_SEARCHED_TEXTS = 10_000
"""Maximum number of texts with the key of a hidden field that a task searches for that field."""

ORIGIN_FIELDS = ("text", "file", "position", "reason")
"""Fields of the origin column: the text, its file, its number in the file, and the reason if the record is
quarantined."""

REASON = ORIGIN_FIELDS[-1]


class RowCondition(Protocol):
    """A condition that every row must fulfil."""

    def find_broken(self, rows: Any) -> Any:
        """Return which rows of an Arrow batch do not, as an array of booleans."""

    def explain(self, row: Mapping[str, Any]) -> str:
        """Return why a row is refused."""


@dataclass(frozen=True, slots=True)
class OriginColumn:
    """The column with the source text of each row.

    Args:
        is_for_all: Whether every row has it; else only quarantined records, and rows that no partition holds or that
            break a rule.
        rules: The conditions on rows, which are evaluated on columns.
    """

    column: str
    is_for_all: bool = False
    partition_by: Sequence[str] = ()
    rules: Sequence[RowCondition] = ()

    def is_for(self, row: Row) -> bool:
        """Return whether a row of the table may need it."""
        return self.is_for_all or bool(self.rules) or any(has_no_partition(row.get(name)) for name in self.partition_by)


@dataclass(frozen=True, slots=True)
class MissingColumn:
    """The column that lists, of some columns of the table, those whose field a record does not have.

    A null in a record is not a missing field, but both are null in the columns of the table.
    """

    column: str
    names: frozenset[str]

    def names_by_key(self, route: RecordRoute, rules: FieldRules) -> dict[str, frozenset[str]]:
        """Return which of the columns each field of a record is for; an excluded field counts as missing."""
        found = {
            key: self.names.intersection(slot.name for slot in slots)
            for key, slots in route.items()
            if rules.at(key).take is not FieldRule.LEFT_OUT
        }
        return {key: names for key, names in found.items() if names}


EXCLUDED = "_widen_excluded"
"""The column of rows that lists the values of the excluded fields by which a record deletes, each as JSON. Only the
memory of a task has it; see `Policy.deletes_by`."""


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """Natively decoded records of one shape."""

    shape: RecordShape
    records: list[Any]
    texts: list[bytes]
    positions: list[RecordPosition]

    def without(self, rejected: Collection[int]) -> DecodedChunk:
        """Return the chunk without the records at some indexes."""
        kept = [index for index in range(len(self.records)) if index not in rejected]
        records, texts = [self.records[index] for index in kept], [self.texts[index] for index in kept]
        return DecodedChunk(self.shape, records, texts, [self.positions[index] for index in kept])


def record_digest(text: str, at: RecordPosition) -> bytes:
    """Return the digest of a record of a batch: of its text, as a quarantine keeps it, and of its position."""
    return blake2b(f"{at[0]}\0{at[1]}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


class RowBuilder:
    """Makes rows from texts and observes what does not fit.

    A text is decoded natively, or read exactly and made a row. Decoded records become columns elsewhere; those that
    turn out not to fit come back and are read exactly.

    Args:
        schema: Schema of the table to write; it says where each key goes.
        base: Schema before the interval; None if the table does not exist yet.
        refused: The records that a rule of the table refuses; see `record_digest`. Their rows are made, because another
            step finds out which of them to keep in the quarantine, but they are not observed: no column is for them.
        origin: Column for the source text of each row; None for no such column, and no rows of quarantined records.
        apart: The paths of names that are known to be fields of their own; see `widen.schema.field_names`.
    """

    def __init__(
        self,
        schema: StructType,
        policy: Policy | None = None,
        base: StructType | None = None,
        origin: OriginColumn | None = None,
        file_fields: FileFields | None = None,
        missing: MissingColumn | None = None,
        refused: Collection[bytes] = frozenset(),
        apart: Sequence[Path] = (),
    ) -> None:
        policy = with_declared_times(policy or Policy(), schema)
        self.schema, self._policy, self._base_schema, self.missing = schema, policy, base, missing
        self.observation, self.origin, self._file_fields = Observation(), origin, file_fields
        self._refused = refused
        self._file_prefixes: dict[str, bytes] = {}  # by file
        self._route, self._rules = build_routes(schema, policy), build_field_rules(schema, policy)
        self._missing_names = {} if missing is None else missing.names_by_key(self._route, self._rules)
        self._names, self._name_use, self._apart = field_names(schema, policy), NameUse(), apart
        self._observed_names = self._names and with_apart_names(self._names, apart)
        self._spellings: Spellings = {}
        self._noted = (0, 0)  # how many names the observation has
        self._fixed_route, self._refuses_nulls = fixed_column_route(self._route), policy.refuses_nulls
        # A load by key quarantines them where the rows carry their texts, which takes longer.
        self._quarantines_corrupt = self._refuses_nulls or not (policy.keeps_corrupt or origin is None)
        self._redactor = Redactor(policy, schema)
        self._roles = {role: field.name for role in ROLES if (field := role_field(schema, role)) is not None}
        self._base = self._route if base == schema else build_routes(base or StructType(), policy)
        self._rows: list[Row] = []
        searched = unseen_hidden_fields(policy, schema)
        self._search_budgets = dict.fromkeys(searched, MAX_SEARCHED_TEXTS)
        self._use(BatchProfile(RESCUED in self._roles))

    def with_date_fields(self, fields: Collection[Path]) -> RowBuilder:
        """Return a builder that reads texts in more fields as times, see `with_schema`."""
        dated = self._policy.date_fields.union(fields)
        return self if dated == self._policy.date_fields else self.with_schema(self.schema, dated)

    def with_schema(self, schema: StructType, dated: frozenset[Path] | None = None) -> RowBuilder:
        """Return a builder of the rows of another schema, which goes on with the same observation.

        Call it only when no texts are waiting.

        Args:
            dated: The fields that have texts to read as times; None for those so far.
        """
        builder = RowBuilder(
            schema,
            self._policy if dated is None else replace(self._policy, date_fields=dated),
            self._base_schema,
            self.origin,
            self._file_fields,
            self.missing,
            self._refused,
            self._apart,
        )
        builder.observation, builder._search_budgets = self.observation, self._search_budgets
        builder.adapt()
        return builder

    @property
    def takes_columns(self) -> bool:
        """Whether records of scalars may become columns without their texts."""
        is_plain = not self.has_own_columns and not self._policy.history
        return is_plain and not (self._search_budgets or self._refused)

    @property
    def has_own_columns(self) -> bool:
        """Whether rows have columns that the table lacks."""
        return self.origin is not None or self.missing is not None or self.reads_excluded

    @property
    def reads_excluded(self) -> bool:
        """Whether rows have the column `EXCLUDED`."""
        return bool(self._policy.deletes_by)

    def match_names(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return the fields that the keys of records of scalars stand for, where these have other names."""
        if self._names is None:
            return {}
        matched = self._names.match(keys, self._name_use)
        self._note_names()
        return matched

    def scalar_field(self, key: str) -> ScalarField:
        """Return a field of records of scalars."""
        field = self._scalar_fields.get(key)
        if field is None:
            field = build_scalar_field(key, self._route, self._base, self._rules, self._profile)
            self._scalar_fields[key] = field
        return field

    def file_fields(self, file: str) -> Mapping[str, str | None]:
        """Return the fields that the records of a file get from it."""
        return {} if self._file_fields is None else self._file_fields.of(file)

    def _use(self, profile: BatchProfile) -> None:
        self._scalar_fields: dict[str, ScalarField] = {}
        self._profile = profile
        route, base, rules = self._route, self._base, self._rules
        if self._spellings:
            # The decoders know each field by one name. If the first records write it in another case, they get that
            # one, and records with the name of the column take the exact path.
            schema, policy = respell_all(self.schema, self._policy, self._spellings)
            route, rules = build_routes(schema, policy), build_field_rules(schema, policy)
            base = build_routes(respell(self._base_schema or StructType(), self._spellings), policy)
        kernel = find_kernel()
        self.native: NativeDecoder | None = None
        if kernel is not None:
            self.native = NativeDecoder(partial(build_record_plan, route, profile, base, rules), kernel)
            return
        shape = build_record_shape(route, profile, base, rules)
        self._decoder, self._chunk = RecordDecoder(shape), DecodedChunk(shape, [], [], [])

    def add(self, texts: Sequence[bytes], positions: Sequence[RecordPosition]) -> None:
        """Add texts, each a record, an array of records, or only space.

        Args:
            texts: JSON values as UTF-8. A text that is not a record makes a row that keeps the text.
        """
        if self._search_budgets:
            self._search_hidden(texts)
        complete_texts = self._with_version_prefixes(self._with_file_prefixes(texts, positions))
        if not self._profile.key_orders:
            orders = find_key_orders(complete_texts)
            if self._names is not None:
                self._spellings = find_sample_spellings(self._names, orders, self._name_use)
                self._note_names()
            self._use(replace(self._profile, key_orders=orders))
        if self.native is not None:
            self.native.add(texts, complete_texts, positions)
            return
        records = self._decoder.decode(complete_texts)
        # Refused texts go on without the fields of their file, which the exact path adds to the parsed record, so that
        # a corrupt text is kept as it is in the source.
        exact = {at for at, record in enumerate(records) if record is None}
        for at in sorted(exact):
            self._rows.extend(self._exact_rows(texts[at], positions[at]))
        chunk = DecodedChunk(self._chunk.shape, records, list(texts), list(positions))
        chunk = chunk.without(exact) if exact else chunk
        self._chunk.records.extend(chunk.records)
        self._chunk.texts.extend(chunk.texts)
        self._chunk.positions.extend(chunk.positions)

    def add_refused(self, texts: Sequence[bytes], positions: Sequence[RecordPosition], reasons: Sequence[str]) -> None:
        """Add texts that are not records, even if they look like records.

        Args:
            reasons: Why each is corrupt, as `not_a_record` says it.
        """
        for text, at, reason in zip(texts, positions, reasons, strict=True):
            self._rows.extend(self._corrupt_row(text, at, reason))

    def _search_hidden(self, texts: Sequence[bytes]) -> None:
        """Look for each hidden field until it is found once, if no column can show that the source has it."""
        for text in texts:
            if not self._search_budgets:
                break
            # A search for the bytes of the key spares parsing most texts.
            lower = text.lower()
            keys = {path: path[-1].lower().encode() for path in self._search_budgets}
            likely = [path for path, key in keys.items() if key in lower or not key.isascii()]
            found = self._find_hidden(text) if likely else frozenset()
            for path in likely:
                self._search_budgets[path] -= 1
            self.observation.excluded_seen += [[*path] for path in sorted(found) if path in self._search_budgets]
            self._search_budgets = {
                path: budget for path, budget in self._search_budgets.items() if budget and path not in found
            }

    def _find_hidden(self, text: bytes) -> frozenset[Path]:
        """Return the masked and excluded fields that the records of a text have."""
        parts = split_text(text, allows_nan=self._policy.allows_nan)
        documents = [parse_document(part, allows_nan=self._policy.allows_nan) for part in parts]
        items = [item for document in documents for item in (document if isinstance(document, list) else [document])]
        return frozenset(path for item in items if isinstance(item, dict) for path in self._rules.find_hidden(item))

    def _with_file_prefixes(self, texts: Sequence[bytes], positions: Sequence[RecordPosition]) -> Sequence[bytes]:
        """Return texts whose records begin with the fields of their file; the decoder refuses a duplicate key."""
        if self._file_fields is None:
            return texts
        return [_with_prefix(text, self._file_prefix(file)) for text, (file, _) in zip(texts, positions, strict=True)]

    def _with_version_prefixes(self, texts: Sequence[bytes]) -> Sequence[bytes]:
        """Return texts whose records begin with the fields of a version; the merge by key fills them."""
        order = self._policy.history
        return [_with_prefix(text, _version_prefix(text, order)) for text in texts] if order else texts

    def _file_prefix(self, file: str) -> bytes:
        assert self._file_fields is not None
        prefix = self._file_prefixes.get(file)
        if prefix is None:
            prefix = self._file_prefixes[file] = msgspec.json.encode(self._file_fields.of(file))[1:-1]
        return prefix

    def _with_file_fields(self, record: dict[str, JsonDocument], at: RecordPosition) -> dict[str, JsonDocument]:
        return record if self._file_fields is None else merge_file_fields(record, self._file_fields.of(at[0]))

    def pop_chunk(self) -> DecodedChunk:
        """Return the records decoded since the last call."""
        chunk, self._chunk = self._chunk, DecodedChunk(self._chunk.shape, [], [], [])
        return chunk

    def finish_chunk(self, chunk: DecodedChunk, assembler: ColumnAssembler) -> DecodedChunk:
        """Return what is left of a chunk after its assembly: nothing, unless the assembler rejected records.

        Rejected records are read exactly; the others have to be assembled again without them.
        """
        rejected = sorted(assembler.rejected)
        # Only a complete assembly counts. After a rejection, the rest is assembled again by a new assembler, and this
        # one's observation would count those records twice.
        if not rejected:
            self.observation.records += len(chunk.records)
            self.observation.root = merge_records(self.observation.root, assembler.observation)
            return DecodedChunk(chunk.shape, [], [], [])
        for at in rejected:
            self._rows.extend(self._exact_rows(chunk.texts[at], chunk.positions[at]))
        return chunk.without(assembler.rejected)

    def finish_native(self, batch: NativeBatch) -> None:
        """Count the records that the kernel has decoded, and read those that it refused exactly."""
        self.observation.records += len(batch.texts) - len(batch.refused)
        for at in batch.refused:
            self._rows.extend(self._exact_rows(batch.texts[at], batch.positions[at]))

    def pop_rows(self) -> list[Row]:
        """Return the rows, since the last call, of records read exactly and of corrupt texts."""
        rows, self._rows = self._rows, []
        return rows

    def adapt(self) -> None:
        """Use what was observed so far: fields with several kinds are routed from now on.

        Call it only when no decoded records are waiting.
        """
        profile = self._adapt_profile()
        if profile != self._profile:
            self._use(profile)

    def _adapt_profile(self) -> BatchProfile:
        root = self.observation.root
        if not self._spellings or self._names is None:
            return adapt_profile(self._profile, self._route, root)
        # Decoded records are observed by the names that they have, and others by the names of the fields.
        root, _ = match_observation(root, self._names, {tuple(path) for path in self.observation.apart})
        found = adapt_profile(self._profile, self._route, root)
        spell = partial(respell_path, spellings=self._spellings)
        return replace(
            found,
            mixed_fields=frozenset(map(spell, found.mixed_fields)),
            mixed_integers=frozenset(map(spell, found.mixed_integers)),
            mixed_doubles=frozenset(map(spell, found.mixed_doubles)),
            empty_fields={spell(path): form for path, form in found.empty_fields.items()},
        )

    def _note_names(self) -> None:
        """Add to the observation how names have been used, if that is new."""
        use = self._name_use
        counts = len(use.matched), len(use.apart)
        if counts != self._noted:
            self._noted = counts
            noted = Observation(matched=[[*path] for path in use.matched], apart=[[*path] for path in use.apart])
            merged = self.observation.merged(noted)
            self.observation.matched, self.observation.apart = merged.matched, merged.apart

    def _exact_rows(self, text: bytes, at: RecordPosition) -> Iterator[Row]:
        if not text.strip():
            return
        allows_nan = self._policy.allows_nan
        document = parse_document(text, allows_nan=allows_nan)
        match document:
            case dict() if self._policy.history and not document.keys().isdisjoint(VERSION_FIELDS):
                name = min(document.keys() & {*VERSION_FIELDS})
                yield from self._corrupt_row(text, at, f"it has a field {name}, which the history needs")
            case dict():
                # The quarantine and the origin column keep the source's own bytes where a text is exactly one record.
                whole = text if self._file_fields is None else None
                yield from self._exact_row(self._with_file_fields(document, at), at, whole)
            case [*records] if all(isinstance(record, dict) for record in records):
                for record in records:
                    yield from self._exact_row(self._with_file_fields(record, at), at)
            # Some sources write several records on one line, which is not one JSON value. Of an array, each element is
            # a text of its own if one of them is a record.
            case InvalidJson() | list() if (parts := split_text(text, allows_nan=allows_nan)) != [text]:
                for part in parts:
                    yield from self._exact_rows(part, at)
            case InvalidJson():
                if not self._refuses_nulls and _BEGINS_RECORD.match(text):
                    self.observation.unclosed = min(at, self.observation.unclosed or at)
                yield from self._corrupt_row(text, at, not_a_record("JSON", self._redactor.redact_reason(document)))
            case _:
                self.observation.not_objects += not self._refuses_nulls
                why = "it is neither an object nor an array of objects"
                yield from self._corrupt_row(text, at, not_a_record("JSON", why))

    def _corrupt_row(self, text: bytes, at: RecordPosition, reason: str) -> Iterator[Row]:
        kept = self._redactor.redact_corrupt(text)
        # The row of a corrupt text is null in all other columns, and a NOT NULL column refuses it.
        if self._quarantines_corrupt:
            yield from self._quarantined_records(kept, at, reason)
            return
        self.observation.corrupt += 1
        if self.observation.first_corrupt is None or at < self.observation.first_corrupt:
            self.observation.first_corrupt, self.observation.corrupt_reason = at, reason
        fields = {} if self._file_fields is None else self._file_fields.origin_of(at[0])
        row = self._origin_row(fields, kept, at) if fields else {}
        values = {CORRUPT: kept, CORRUPT_AT: f"{position_text(at)} ({reason})"}
        row |= {self._roles[role]: value for role, value in values.items() if role in self._roles}
        row |= self._missing_cell(fields)
        yield row | self._origin_cell(kept, at) if self._has_origin(row) else row

    def _origin_row(self, fields: Mapping[str, str | None], text: str, at: RecordPosition) -> Row:
        """Return the cells of a corrupt text's file and time, which have columns as for records."""
        ruled = self._rules.record(self._with_field_names(dict(fields), self._names))
        if not (self._refused and record_digest(text, at) in self._refused):
            observe_record(self.observation.root, ruled, at)
        row = to_row(self._route, ruled)
        if RESCUED in self._roles:
            row[self._roles[RESCUED]] = rescue(self._route, ruled)
        return row

    def _quarantined_records(self, text: str, at: RecordPosition, reason: str) -> Iterator[Row]:
        """Count a quarantined record or text; yield the row with its text if there is an origin column."""
        self.observation.quarantined += 1
        if self.origin:
            yield self._origin_cell(text, at, reason)

    def _exact_row(
        self, record: dict[str, JsonDocument], at: RecordPosition, text: bytes | None = None
    ) -> Iterator[Row]:
        """Yield the row of a record. For a quarantined record, yield its text if there is an origin column."""
        versioned = _with_version(record, self._policy.history)
        ruled = self._rules.record(self._with_field_names(versioned, self._names))
        # Fixed columns come before everything else: a quarantined record must not be observed, or the plan would add
        # columns for values that the table never gets.
        violations = list(find_violations(self._fixed_route, ruled))
        is_refused = bool(self._refused) and (
            record_digest(self._redactor.redact_record(record, text), at) in self._refused
        )
        if violations:
            for violation in () if is_refused else violations:
                violation.observe(self.observation.quarantined_records, at)
            # The quarantine keeps the record as the source has it, not as the field rules read it, so that a replay
            # under other rules gets the same input.
            reason = "; ".join(violation.reason(self._policy.samples) for violation in violations)
            yield from self._quarantined_records(self._redactor.redact_record(record, text), at, reason)
            return
        self.observation.records += 1
        # A field that was found to be separate has no column yet, so its row may still differ from the table's row.
        if not is_refused:
            others = self._with_field_names(versioned, self._observed_names) if self._apart else None
            observe_record(self.observation.root, ruled if others is None else self._rules.record(others), at)
        row = to_row(self._route, ruled)
        if RESCUED in self._roles:
            row[self._roles[RESCUED]] = rescue(self._route, ruled)
        row |= self._missing_cell(record) | self._excluded_cell(record)
        has_origin = self._has_origin(row)
        yield row | self._origin_cell(self._redactor.redact_record(record, text), at) if has_origin else row

    def _missing_cell(self, keys: Iterable[str]) -> Row:
        if self.missing is None:
            return {}
        found = frozenset().union(*(self._missing_names.get(key, frozenset()) for key in keys))
        return {self.missing.column: sorted(self.missing.names - found)}

    def missing_cells(self, texts: Sequence[bytes], positions: Sequence[RecordPosition]) -> list[list[str]]:
        """Return the column of missing fields for decoded records."""
        cells: list[list[str]] = []
        for text, (file, _) in zip(texts, positions, strict=True):
            keys = [*_fields(text.removeprefix(BOM)), *self.file_fields(file)]
            names = self.match_names(keys)
            cells += self._missing_cell(names.get(key, key) for key in keys).values()
        return cells

    def _excluded_cell(self, record: dict[str, JsonDocument]) -> Row:
        if not self.reads_excluded:
            return {}
        found: list[JsonDocument] = [_find(record, path) for path in self._policy.deletes_by]
        return {EXCLUDED: [None if value is None else document_to_json(value) for value in found]}

    def excluded_cells(self, texts: Sequence[bytes]) -> list[list[str | None]]:
        """Return the column `EXCLUDED` for decoded records."""
        return [[_find_raw(text.removeprefix(BOM), path) for path in self._policy.deletes_by] for text in texts]

    def _with_field_names(self, record: dict[str, JsonDocument], names: FieldNames | None) -> dict[str, JsonDocument]:
        if names is None:
            return record
        named = names.record(record, self._name_use)
        self._note_names()
        return named

    def _has_origin(self, row: Row) -> bool:
        return self.origin is not None and self.origin.is_for(row)

    def _origin_cell(self, text: str, at: RecordPosition, reason: str | None = None) -> Row:
        assert self.origin is not None
        return {self.origin.column: _origin(text, at, reason)}

    def origin_cells(
        self, texts: Sequence[bytes], positions: Sequence[RecordPosition], is_wanted: Sequence[bool]
    ) -> list[Any]:
        """Return the origin column of decoded records; None for those that are not wanted."""
        records = zip(texts, positions, is_wanted, strict=True)
        return [_origin(self._kept_text(text, at), at) if wanted else None for text, at, wanted in records]

    def _kept_text(self, text: bytes, at: RecordPosition) -> str:
        """Return the text of a record as the table may keep it, with the fields of its file."""
        record = None if self._file_fields is None else parse_document(text, allows_nan=self._policy.allows_nan)
        if not isinstance(record, dict):
            return self._redactor.redact_text(text)
        return self._redactor.redact_record(self._with_file_fields(record, at), None)


_BEGINS_RECORD = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{(?:\s*"[^"\\]*"\s*:.*[,{\[])?\s*\Z', re.DOTALL)
"""The first line of a record over several lines: it ends where a field, an object or an array goes on."""


def _origin(text: str, at: RecordPosition, reason: str | None = None) -> Row:
    return dict(zip(ORIGIN_FIELDS, (text, *at, reason), strict=True))


def _with_prefix(text: bytes, prefix: bytes) -> bytes:
    rest = text.removeprefix(BOM).lstrip()[1:]
    if not prefix or not text.removeprefix(BOM).lstrip().startswith(b"{"):
        return text
    return b"{" + prefix + (b"" if rest.lstrip().startswith(b"}") else b",") + rest


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _version_prefix(text: bytes, order: Sequence[Path]) -> bytes:
    """Return the fields of a version, which get the kinds of values that the order has; empty without one."""
    found: list[msgspec.Raw] = []
    for path in order:
        value: bytes | msgspec.Raw | None = text.removeprefix(BOM)
        for name in path:
            try:
                value = _at(_fields(value or b"null"), name)
            except msgspec.DecodeError:
                return b""
        raw = bytes(value or b"null")
        if raw == b"null" or raw[:1] in (b"{", b"["):
            return b""
        found.append(msgspec.Raw(raw))
    at = _nest(order, found)
    return msgspec.json.encode({VALID_FROM: at, VALID_TO: at, IS_CURRENT: True})[1:-1]


def _with_version(record: dict[str, JsonDocument], order: Sequence[Path]) -> dict[str, JsonDocument]:
    found: list[JsonDocument] = []
    for path in order:
        value: JsonDocument = record
        for name in path:
            value = _at(value, name) if isinstance(value, dict) else None
        if value is None or isinstance(value, (dict, list)):
            return record
        found.append(value)
    at = _nest(order, found)
    return {**record, VALID_FROM: at, VALID_TO: at, IS_CURRENT: True} if order else record


def _nest(order: Sequence[Path], values: Sequence[Any]) -> Any:
    """Return one value as it is, and several as a record with their paths."""
    if len(order) == 1:
        return values[0]
    nested: dict[str, Any] = {}
    for (*above, name), value in zip(order, values, strict=True):
        level = nested
        for each in above:
            level = level.setdefault(each, {})
        level[name] = value
    return nested


def _find(record: JsonDocument, path: Path) -> JsonDocument:
    """Return a value of a record, which may be inside of records; None without one."""
    value = record
    for name in path:
        found = value if isinstance(value, dict) else {}
        value = next((each for each in _named(found, name) if each is not None), None)
    return value


def _find_raw(text: bytes, path: Path) -> str | None:
    """Return the same as JSON."""
    value: bytes | msgspec.Raw = text
    for name in path:
        try:
            named = _named(_fields(value), name)
        except msgspec.DecodeError:
            return None
        value = next((each for each in named if bytes(each) != b"null"), b"null")
    return None if value == b"null" else bytes(value).decode()


def _named(fields: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Yield the values of a name, and of those that differ from it in case only."""
    if name in fields:
        yield fields[name]
    yield from (value for key, value in fields.items() if is_same_name(key, name))


def _at(fields: Mapping[str, Any], name: str) -> Any:
    found = fields.get(name)
    if found is None:
        found = next((value for key, value in fields.items() if is_same_name(key, name)), None)
    return found


# What a batch shows of its fields beyond the schema: kinds that no column takes natively, and the order of keys.
#
# Source: docs/evolution-rules.md#one-interval


MAX_ORDERED_TEXTS = 50
"""Maximum number of texts whose keys are looked at for their order."""

_decode = msgspec.json.Decoder().decode


def find_key_orders(texts: Sequence[bytes]) -> dict[SourcePath, list[str]]:
    """Return the keys of the records at each path, in the order that texts have them."""
    orders: dict[SourcePath, list[str]] = {(): []}
    for text in texts[:: max(1, len(texts) // MAX_ORDERED_TEXTS)]:
        try:
            _collect_orders(_decode(text), (), orders)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # `_collect_orders` needs more of the stack than decoding, so it can fail for what was decoded.
            continue
    return orders


def _collect_orders(value: Any, path: SourcePath, orders: dict[SourcePath, list[str]]) -> None:
    if isinstance(value, list):
        for item in value:
            _collect_orders(item, path, orders)
    elif isinstance(value, dict):
        _merge_order(orders.setdefault(path, []), value)
        for key, inner in value.items():
            _collect_orders(inner, (*path, key), orders)


def _merge_order(order: list[str], keys: Iterable[str]) -> None:
    """Insert new keys, in position, each after the key that it follows."""
    existing = set(order)
    if existing.issuperset(keys):
        return
    position = 0
    for key in keys:
        if key in existing:
            position = order.index(key) + 1
        else:
            order.insert(position, key)
            position += 1


def adapt_profile(profile: BatchProfile, route: RecordRoute, observed: RecordObservation) -> BatchProfile:
    """Return a profile with what was observed so far."""
    mixed: dict[SourcePath, Collection[Kind]] = {}
    empty: dict[SourcePath, FieldObservation] = {}
    _classify_fields(route, observed, (), mixed, empty)
    # With a rescue column, a field without a column is in its text even if it is empty; only the exact path writes it.
    return replace(
        profile,
        mixed_fields=frozenset(mixed),
        mixed_integers=frozenset(path for path, kinds in mixed.items() if Kind(LONG_WORD) in kinds),
        mixed_doubles=frozenset(path for path, kinds in mixed.items() if Kind(DOUBLE_WORD) in kinds),
        empty_fields={} if profile.rescues else empty,
    )


def _classify_fields(
    route: RecordRoute,
    observed: RecordObservation,
    parent: SourcePath,
    mixed: dict[SourcePath, Collection[Kind]],
    empty: dict[SourcePath, FieldObservation],
) -> None:
    for key, seen in observed.items():
        slots, path = route.get(key, ()), (*parent, key)
        hollow = None if slots else _hollow_form(seen)
        if hollow is not None:
            empty[path] = hollow
        elif slots and not all(
            any(_is_native(slot, kind, values, is_alone=len(slots) == 1) for slot in slots)
            for kind, values in seen.kinds.items()
        ):
            mixed[path] = seen.kinds.keys()
        for slot in slots:
            if slot.record is not None:
                _classify_fields(slot.record, seen.records.get(slot.dim, {}), path, mixed, empty)


def _hollow_form(seen: FieldObservation) -> FieldObservation | None:
    """Return what a field without a value was, each count as 1: null, ``[]``, ``{}`` or records of such fields.

    Returns:
        None if it had a value, or an array of anything.
    """
    below = {key: _hollow_form(inner) for key, inner in seen.records.get(0, {}).items()}
    forms = {key: form for key, form in below.items() if form is not None}
    if seen.kinds and (seen.kinds.keys() != {Kind(RECORD_WORD, 0)} or not below or len(forms) < len(below)):
        return None
    return FieldObservation(
        dict.fromkeys(seen.nulls, 1),
        dict.fromkeys(seen.empty, 1),
        dict.fromkeys(seen.empty_records, 1),
        records={0: forms} if seen.kinds else {},
    )


def _is_native(slot: ColumnSlot, kind: Kind, values: KindObservation, *, is_alone: bool) -> bool:
    """Return whether a column takes the values of a kind natively.

    Args:
        is_alone: Whether the field has no other column. Beside one, an integer in a column of doubles is routed.
    """
    word = INT_WORD if kind.word == LONG_WORD and values.fits_int32 and slot.word == INT_WORD else kind.word
    whole_double = kind.word == LONG_WORD and slot.word == DOUBLE_WORD and is_alone
    return kind.dim == slot.dim and (word == slot.word or whole_double)
