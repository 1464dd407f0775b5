"""The proof of typed records: Arrow rebuilds each from the rows of the table, in the types of the source.

Every column of a field is converted back to the type of the source, and all of them must hold the same value. The proof
itself reads masks and exclusions from the policy. So nothing here is shared with `widen.batches.column_values`, which
makes the rows. It runs in this process and in Spark's tasks, which give back sums, or digests if the sums differ.

Source: docs/evolution-rules.md#one-interval, #u1, #u2, #d16
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import WidenError
from widen.evolution.policy import Policy, TextForm
from widen.files.arrow_types import to_arrow, to_arrow_schema
from widen.frames.table_writers import TaskFiles, cast_array, read_file
from widen.model.column_path import leaves
from widen.model.types import (
    BINARY,
    BOOLEAN,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    similarity_key,
)
from widen.model.value_classes import dataclass
from widen.proof.canonical import CONTRADICTION, Form, count_form
from widen.proof.record_digests import DigestSum, RowDigester
from widen.proof.row_encoder import RecordLayout
from widen.proof.row_reader import RowReader
from widen.proof.rules import (
    MASK,
    ColumnsByKey,
    FieldColumns,
    ProofRule,
    SourceColumn,
    build_proof_rules,
    computed_keys,
    source_columns_by_key,
    widest_record_column,
)
from widen.protocol.column_metadata import SOURCE
from widen.schema.source_metadata import RESCUED, role_of
from widen.spark.engine import Session
from widen.verification.arrow_lists import (
    common_lengths,
    entries_of,
    expand_items,
    filter_entries,
    lengths_of,
    new_lists,
    new_maps,
    nulls_of,
    replace_entries,
    replace_items,
    sum_items,
)
from widen.verification.record_texts import (
    PinnedText,
    keys_as_text,
    parse_texts,
    pinned_texts,
    read_pinned_texts,
    unpin,
    with_text_keys,
)
from widen.verification.records import MAX_TASKS, UNREADABLE, RecordForm, TaskReader, TaskShare
from widen.verification.restored_values import (
    TIMES_FIRST,
    Contradiction,
    TimeText,
    VariantText,
    are_epochs,
    are_same_times,
    ensure,
    family_of,
    restore_values,
    times_as_stored,
    to_counts,
)

# An example. The source has an integer n, and the table the columns n (int) and n_string, since other files have texts
# there. The row (7, "7") is rebuilt as {n: 7}, and counts no converted value, because n has the kind of the source. The
# row (null, "7") is also rebuilt as {n: 7}, with one converted value. The row (7, "8") is a contradiction.

_NO_FIELDS = StructType((Field("", BOOLEAN),))
"""The type of records that the policy leaves without fields; Arrow cannot count such records."""


@dataclass(frozen=True)
class RecordProof:
    """Compares records of a source with rows of a table. Picklable.

    Args:
        source: The fields of the records as they are read, with those that they get from their files.
        schema: The schema of the table; the rows have its columns in its order.
        forms: The types that are used to digest the values; by default the types of the records.
    """

    source: StructType
    schema: StructType
    policy: Policy
    forms: StructType | None = None

    @cached_property
    def _rule(self) -> ProofRule:
        return build_proof_rules(self.schema, self.policy)

    @cached_property
    def columns(self) -> ColumnsByKey:
        """The columns of each field."""
        return source_columns_by_key(self.schema, self.policy)

    @cached_property
    def _left(self) -> StructType:
        return _apply_to_record(pa.array([], to_arrow(self.source)), self.source, self._rule)[1]

    @property
    def records(self) -> StructType:
        """The fields of the records without what the policy hides."""
        return self._left if self._left.fields else _NO_FIELDS

    @cached_property
    def digested(self) -> StructType:
        """The types that are used to digest values: keys of maps are texts."""
        types = with_text_keys(self.records if self.forms is None else self.forms)
        assert isinstance(types, StructType)
        return without_roles(types)

    @cached_property
    def _own_columns(self) -> ColumnsByKey | None:
        """The columns that store values as they are, by field; None if all columns do."""
        columns = {field.name: self.columns.get(field.name, ()) for field in self.records}
        own = own_fields(self.records, columns)
        return None if own == columns else own

    @cached_property
    def _reader(self) -> RowReader:
        return RowReader(self.digested, Policy())

    def prepare(self, records: pa.StructArray) -> pa.StructArray:
        """Return records of the source as they are digested: without what the policy hides."""
        if not self._left.fields:
            return pa.StructArray.from_arrays([pa.nulls(len(records), pa.bool_())], names=[""])
        found, _ = _apply_to_record(records, self.source, self._rule)
        return self._to_forms(self._as_stored(found))

    def digester(self, layout: RecordLayout, limit: int) -> RowDigester:
        """Return what sums the digests of records."""
        return RowDigester(self.digested, Policy(), layout, limit)

    def add_rows(self, digester: RowDigester, rows: pa.StructArray) -> None:
        """Add rows of the table to a sum, as the records that they stand for."""
        try:
            digester.add(*self._rebuild(rows))
        except (Contradiction, pa.ArrowException):
            digester.add_encoded(UNREADABLE)

    def read_rows(self, rows: pa.StructArray) -> Iterator[RecordForm]:
        """Yield the records that rows of the table stand for."""
        try:
            records, converted = self._rebuild(rows)
        except (Contradiction, pa.ArrowException):
            # Arrow converts whole columns, and does not tell which row it refused.
            if len(rows) == 1:
                yield RecordForm(CONTRADICTION)
            else:
                half = len(rows) // 2
                yield from self.read_rows(rows[:half])
                yield from self.read_rows(rows[half:])
            return
        counts = [0] * len(rows) if converted is None else converted.to_pylist()
        for form, count in zip(self.read_forms(records), counts, strict=True):
            yield RecordForm(form, converted=count)

    def read_forms(self, records: pa.StructArray) -> list[Form]:
        """Return the forms of records that are digested."""
        return self._reader.forms(records)

    def read_texts(self, texts: Sequence[str]) -> tuple[pa.StructArray, list[str]]:
        """Return quarantined records as they are digested, and the texts that are not of a record of this source."""
        # The table computes some fields itself, and only the quarantine has their values.
        records, known = parse_texts(texts, self.records, computed_keys(self.schema))
        try:
            found = self._to_forms(self._as_stored(unpin(records, self.records)))
        except Contradiction:
            if len(texts) == 1:
                return pa.array([], to_arrow(self.digested)), list(texts)
            half = len(texts) // 2
            (one, left), (other, more) = self.read_texts(texts[:half]), self.read_texts(texts[half:])
            return pa.concat_arrays([one, other]), left + more
        is_left = set(range(len(texts))).difference(known)
        return found, [texts[at] for at in sorted(is_left)]

    def _rebuild(self, rows: pa.StructArray) -> tuple[pa.StructArray, pa.Array | None]:
        """Return the records of rows as they are digested, and how many values of each are converted, if any are."""
        stored = dict(zip(self.schema.names, rows.flatten(), strict=True))
        rest = None
        for field in self.schema:
            if role_of(field) == RESCUED:
                rest = self._parse_rest(stored[field.name])
            elif role_of(field) is not None:
                _ensure_null(stored[field.name])
        records = _rebuild_record(self.records, self.columns, stored, rest, len(rows))
        converted = None
        if self._own_columns is not None:
            left = _rebuild_record(self.records, self._own_columns, stored, rest, len(rows), is_checked=False)
            converted = pc.subtract(_count_leaves(records, self.records), _count_leaves(left, self.records))
        return self._to_forms(records), converted

    def _parse_rest(self, values: pa.Array) -> pa.StructArray | None:
        """Return what a table keeps of records in its rescue column; None if it keeps nothing of them."""
        texts = values.drop_null()
        if not len(texts):
            return None
        records, known = parse_texts(texts.to_pylist(), self.records, computed_keys(self.schema))
        ensure(len(known) == len(texts))
        place = pc.subtract(pc.cumulative_sum(values.is_valid().cast(pa.int64())), 1)
        found = self._as_stored(unpin(records, self.records))
        return found.take(pc.if_else(values.is_valid(), place, pa.scalar(None, pa.int64())))

    def _as_stored(self, records: pa.StructArray) -> pa.StructArray:
        return _compare_times_of_record(records, self.records, self.columns)

    def _to_forms(self, records: pa.StructArray) -> pa.StructArray:
        return cast_array(keys_as_text(records, self.records), to_arrow(self.digested))


def without_roles(source: StructType) -> StructType:
    """Return the fields of records, without the roles that columns of the same names have in a table."""
    named = (
        replace(each, metadata={**each.metadata, SOURCE: [each.name]}) if role_of(each) is not None else each
        for each in source
    )
    return StructType(tuple(named))


# ---- sums ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RebuiltFiles:
    """Files of a table with the records of some files of a source that share a schema."""

    proof: RecordProof
    files: TaskFiles

    def add_file(self, digester: RowDigester, path: str, types: pa.Schema) -> None:
        """Add the records of a file; of one that cannot be read, what no record equals."""
        try:
            for rows in read_file(self.files, path, types):
                self.proof.add_rows(digester, rows.to_struct_array())
        except (WidenError, KeyError, OSError, pa.ArrowException):
            digester.add_encoded(UNREADABLE)


def build_rebuilt_reader(spark: Session, parts: Sequence[RebuiltFiles]) -> TaskReader:
    """Return a reader of the sums of the records that files of a table hold."""
    count = sum(len(part.files.paths) for part in parts)
    return TaskReader(spark, max(1, min(count, MAX_TASKS)), partial(_sum_rebuilt_files, tuple(parts)))


def _sum_rebuilt_files(parts: Sequence[RebuiltFiles], share: TaskShare) -> DigestSum:
    total, first = DigestSum(share.limit), 0
    for part in parts:
        digester, types = part.proof.digester(share.layout, share.limit), to_arrow_schema(part.proof.schema)
        for number, path in enumerate(part.files.paths, first):
            if number % share.count == share.number:
                part.add_file(digester, path, types)
        first += len(part.files.paths)
        _merge(total, digester.sum())
    return total


def sum_rebuilt_rows(
    proof: RecordProof, layout: RecordLayout, limit: int, batches: Iterable[pa.RecordBatch]
) -> DigestSum:
    """Return the sum of the records that rows of a table hold, which come as structs."""
    digester = proof.digester(layout, limit)
    for batch in batches:
        proof.add_rows(digester, _to_rows(proof, batch))
    return digester.sum()


def read_rebuilt_rows(proof: RecordProof, batches: Iterable[pa.RecordBatch]) -> Iterator[RecordForm]:
    """Yield the records that rows of a table hold, which come as structs."""
    for batch in batches:
        yield from proof.read_rows(_to_rows(proof, batch)) if batch.num_rows else ()


def _to_rows(proof: RecordProof, batch: pa.RecordBatch) -> pa.StructArray:
    return _fit(batch.column(0), to_arrow(proof.schema))


def sum_quarantined_texts(
    proofs: Sequence[RecordProof], layout: RecordLayout, limit: int, batches: Iterable[pa.RecordBatch]
) -> DigestSum:
    """Return the sum of quarantined records, whose texts are in a column.

    Args:
        proofs: The proofs of the parts of a source: a record belongs to the first part whose types its text has.
    """
    digesters = [proof.digester(layout, limit) for proof in proofs]
    for batch in batches:
        texts: list[str] = batch.column(0).to_pylist()
        for proof, digester in zip(proofs, digesters, strict=True):
            if texts:
                records, texts = proof.read_texts(texts)
                digester.add(records)
        for _ in texts:
            digesters[0].add_encoded(UNREADABLE)
    total = DigestSum(limit)
    for digester in digesters:
        _merge(total, digester.sum())
    return total


def read_quarantined_texts(proofs: Sequence[RecordProof], batches: Iterable[pa.RecordBatch]) -> Iterator[RecordForm]:
    """Yield quarantined records; see `sum_quarantined_texts`."""
    for batch in batches:
        texts: list[str] = batch.column(0).to_pylist()
        for proof in proofs:
            if texts:
                records, texts = proof.read_texts(texts)
                yield from map(RecordForm, proof.read_forms(records))
        yield from (RecordForm(CONTRADICTION) for _ in texts)


def sum_records(proof: RecordProof, layout: RecordLayout, limit: int, batches: Iterable[pa.RecordBatch]) -> DigestSum:
    """Return the sum of records of a source, whose fields come as columns; the sum of the rows has their values."""
    digester = proof.digester(layout, limit)
    for batch in batches:
        digester.add(proof.prepare(_to_records(proof, batch)))
    found = digester.sum()
    return replace(found, values=0, converted=0)


def read_records_with_places(proof: RecordProof, batches: Iterable[pa.RecordBatch]) -> Iterator[RecordForm]:
    """Yield records of a source, whose fields come as columns; the last column is where each is."""
    for batch in batches:
        forms = proof.read_forms(proof.prepare(_to_records(proof, batch)))
        for form, place in zip(forms, batch.columns[-1].to_pylist(), strict=True):
            yield RecordForm(form, count_form(form), place=place)


def _to_records(proof: RecordProof, batch: pa.RecordBatch) -> pa.StructArray:
    if not proof.source.fields:
        return pa.nulls(batch.num_rows, pa.struct([]))
    pairs = zip(batch.columns, to_arrow(proof.source), strict=False)
    columns = [_fit(values, field.type) for values, field in pairs]
    return pa.StructArray.from_arrays(columns, fields=list(to_arrow(proof.source)))


def _fit(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values of Spark; records in them may have more fields, without a value."""
    if values.type == wanted:
        return values
    if pa.types.is_struct(wanted):
        found = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
        parts = [_fit(found[field.name], field.type) for field in wanted]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=nulls_of(values))
    if pa.types.is_list(wanted):
        return replace_items(values, _fit(values.flatten(), wanted.value_type))
    if pa.types.is_map(wanted):
        keys, items = entries_of(values)
        return replace_entries(values, _fit(keys, wanted.key_type), _fit(items, wanted.item_type))
    return values.cast(wanted)


def _merge(total: DigestSum, found: DigestSum) -> None:
    total.merge(found.digest, found.records, found.values, found.converted)


# ---- what the policy hides -------------------------------------------------------------------------


def _apply_to_record(
    records: pa.StructArray, data_type: StructType, rule: ProofRule
) -> tuple[pa.StructArray, StructType]:
    """Return records without what the policy hides, and their type."""
    parts, kept = [], []
    for field, values in zip(data_type, records.flatten(), strict=True):
        below = rule.rule_of(field.name)
        if below.is_excluded:
            continue
        found, kind = _apply(values, field.type, below)
        if not _is_empty(kind):
            parts.append(found)
            kept.append(Field(field.name, kind))
    result = StructType(tuple(kept))
    if not kept:
        return records, result
    return pa.StructArray.from_arrays(parts, fields=list(to_arrow_schema(result)), mask=nulls_of(records)), result


def _apply(values: pa.Array, data_type: DataType, rule: ProofRule) -> tuple[pa.Array, DataType]:
    if rule.is_masked:
        return _mask(values), STRING
    # A variant is JSON already.
    is_json = rule.text_form is TextForm.JSON or (rule.text_form is not None and _is_nested(data_type))
    found, kind = _apply_inside(values, data_type, rule)
    if is_json and not isinstance(data_type, VariantText):
        return pinned_texts(found, kind), PinnedText(inner=kind)
    return found, kind


def _apply_inside(
    values: pa.Array, data_type: DataType, rule: ProofRule, *, is_entry: bool = False
) -> tuple[pa.Array, DataType]:
    """Return values without what the policy hides in them, and their type.

    Args:
        is_entry: Whether they are the values of a map, whose keys hide values already.
    """
    match data_type:
        case StructType():
            return _apply_to_record(values, data_type, rule)
        case ArrayType(element):
            items, kind = _apply_inside(values.flatten(), element, rule, is_entry=is_entry)
            return replace_items(values, items), ArrayType(kind)
        case MapType():
            return _apply_to_map(values, data_type, rule)
        case VariantText():
            return values, STRING
        case _ if data_type == STRING and rule.hidden and is_entry:
            return pc.if_else(pc.match_substring_regex(values, _JSON), pa.scalar(MASK), values), STRING
        case _ if data_type in (BINARY, STRING) and rule.hidden:
            # A text where the policy expects a record may spell out that record.
            return _mask(values), STRING
        case _ if data_type == STRING and rule.reads_times:
            return values, TimeText()
    return values, data_type


_JSON = r'^\s*[{\["]'
"""How a text begins that may be JSON of a record, a list or a text."""


def _apply_to_map(values: pa.Array, data_type: MapType, rule: ProofRule) -> tuple[pa.Array, DataType]:
    keys, items = entries_of(values)
    items, kind = _apply_inside(items, data_type.value, rule, is_entry=True)
    if not rule.hidden:
        return replace_entries(values, keys, items), MapType(data_type.key, kind)
    rules = [rule.hidden.get(similarity_key(name)) for name in cast_array(keys, pa.string()).to_pylist()]
    # An entry with a hidden field is hidden as a whole. Only a text can be masked; another value becomes null.
    is_masked = pc.and_(pa.array([each is not None for each in rules], pa.bool_()), items.is_valid())
    items = pc.if_else(is_masked, pa.scalar(MASK if kind == STRING else None, items.type), items)
    is_kept = pa.array([each is None or not each.is_excluded for each in rules], pa.bool_())
    return filter_entries(values, keys, items, is_kept), MapType(data_type.key, kind)


def _mask(values: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), pa.scalar(MASK), pa.scalar(None, pa.string()))


def _is_nested(data_type: DataType) -> bool:
    return isinstance(data_type, (ArrayType, MapType, StructType))


def _is_empty(data_type: DataType) -> bool:
    """Return whether a type is a record without fields, which has no values."""
    match data_type:
        case ArrayType(inner) | MapType(_, inner):
            return _is_empty(inner)
        case StructType(fields):
            return all(_is_empty(field.type) for field in fields)
    return False


# ---- strings that are read as dates ----------------------------------------------------------------


def _compare_times_of_record(records: pa.StructArray, data_type: StructType, columns: ColumnsByKey) -> pa.StructArray:
    """Return records with strings that are read as dates as their columns give them back."""
    if not _has_times(data_type):
        return records
    parts = [
        _compare_times(part, field.type, columns.get(field.name, ()), 0)
        for part, field in zip(records.flatten(), data_type, strict=True)
    ]
    return pa.StructArray.from_arrays(parts, fields=list(records.type), mask=nulls_of(records))


def _compare_times(values: pa.Array, data_type: DataType, columns: FieldColumns, dim: int) -> pa.Array:
    if not _has_times(data_type):
        return values
    match data_type:
        case StructType():
            record = widest_record_column(columns)
            return _compare_times_of_record(values, data_type, (record and record.fields) or {})
        case ArrayType(element):
            return replace_items(values, _compare_times(values.flatten(), element, columns, dim + 1))
        case MapType(_, value):
            keys, items = entries_of(values)
            inner = tuple(column.value for column in columns if column.value is not None and column.dim >= dim)
            return replace_entries(values, keys, _compare_times(items, value, inner, 0))
    return times_as_stored(values, columns, dim)


def _has_times(data_type: DataType) -> bool:
    return any(isinstance(leaf, TimeText) for _, leaf in leaves(data_type))


# ---- columns back to fields ------------------------------------------------------------------------


def _rebuild_record(
    source: StructType,
    columns: ColumnsByKey,
    stored: Mapping[str, pa.Array],
    rest: pa.StructArray | None,
    rows: int,
    *,
    is_checked: bool = True,
) -> pa.StructArray:
    """Return the fields of records, rebuilt from columns.

    Args:
        rest: What the rescue column has of the records; None if it has nothing.
        is_checked: Whether all columns of a field must hold its value, and the columns of other fields no value.
    """
    if is_checked:
        for key in columns.keys() - set(source.names):
            for slot in columns[key]:
                _ensure_null(stored[slot.name])
    rests = [None] * len(source.fields) if rest is None else rest.flatten()
    fields = [
        _rebuild_field(each.type, columns.get(each.name, ()), stored, more, rows, is_checked)
        for each, more in zip(source, rests, strict=True)
    ]
    return pa.StructArray.from_arrays(fields, fields=list(to_arrow_schema(source)))


def _rebuild_field(
    data_type: DataType,
    slots: FieldColumns,
    stored: Mapping[str, pa.Array],
    rest: pa.Array | None,
    rows: int,
    is_checked: bool,
) -> pa.Array:
    """Return the values of a field from its columns; records come from the column with the most arrays (U17)."""
    if rest is not None and rest.null_count == len(rest):
        rest = None
    given = []
    for slot in slots:
        values = stored[slot.name]
        is_null = values.null_count == len(values)
        back = None if is_null else _unwrap(values, data_type, slot, slot.dim, rest, is_checked)
        if back is not None:
            given.append((slot, back))
        elif is_checked:
            _ensure_null(values)
    kind, widest = to_arrow(data_type), widest_record_column(slots)
    leaf = _leaf(data_type)
    # A timestamp alone does not say which integer it was.
    usable = [
        (slot, back)
        for slot, back in given
        if back.type == kind and not (isinstance(leaf, StructType) and slot is not widest)
    ]
    if _has_times(data_type):
        usable.sort(key=lambda pair: TIMES_FIRST.get(_leaf_name(pair[0]), len(TIMES_FIRST)))
    chosen = [back for _, back in usable]
    has_rest = rest is not None and not (isinstance(data_type, StructType) and chosen)
    if has_rest:
        chosen.insert(0, rest)
    values = reduce(partial(_either, data_type=data_type), chosen) if chosen else pa.nulls(rows, kind)
    if is_checked and (has_rest or len(given) > len(chosen[:1])):
        for slot, back in given:
            _ensure_agrees(back, values, data_type, slot, has_rest=has_rest)
    if is_checked and not has_rest and values.null_count < len(values):
        found = [slot for slot, _ in given]
        ensure(not any(_must_hold(slot, data_type) for slot in slots if slot not in found))
    return values


def _leaf(data_type: DataType) -> DataType:
    while isinstance(data_type, ArrayType):
        data_type = data_type.element
    return data_type


def _leaf_name(slot: SourceColumn) -> str:
    """Return the name of the type inside the arrays and maps of a column."""
    return slot.type_name if slot.value is None else _leaf_name(slot.value)


def _unwrap(
    values: pa.Array, data_type: DataType, slot: SourceColumn, dim: int, rest: pa.Array | None, is_checked: bool
) -> pa.Array | None:
    """Return values of a type from a column; None if the column cannot hold any.

    A column of timestamps gives them back instead of integers, whose size decides their unit.
    """
    if isinstance(data_type, ArrayType):
        items = _unwrap(values.flatten(), data_type.element, slot, dim - 1, None, is_checked) if dim else None
        return None if items is None else replace_items(values, items)
    if dim:
        return _unwrap(_only_items(values), data_type, slot, dim - 1, rest, is_checked)
    if isinstance(data_type, MapType):
        return None if slot.value is None else _unwrap_map(values, data_type, slot.value, is_checked)
    if isinstance(data_type, StructType):
        if slot.fields is None:
            return None
        parts = dict(zip((each.name for each in values.type), values.flatten(), strict=True))
        record = _rebuild_record(data_type, slot.fields, parts, rest, len(values), is_checked=is_checked)
        is_null = values.is_null() if rest is None else pc.and_(values.is_null(), rest.is_null())
        return pa.StructArray.from_arrays(record.flatten(), fields=list(record.type), mask=is_null)
    if slot.fields is not None or slot.value is not None:
        return None
    if isinstance(data_type, PinnedText):
        return read_pinned_texts(values, data_type.inner) if slot.type == STRING else None
    if slot.type == TIMESTAMP and pa.types.is_integer(to_arrow(data_type)):
        return to_counts(values, slot.epoch_unit, data_type) if slot.has_epochs and slot.epoch_unit else values
    return restore_values(values, slot.type, data_type)


def _only_items(values: pa.Array) -> pa.Array:
    """Return the only item of each array, null for a null."""
    lengths, items = values.value_lengths(), values.flatten()
    if items.null_count or pc.any(pc.not_equal(lengths, 1)).as_py():
        raise Contradiction
    if not values.null_count:
        return items
    place = pc.subtract(pc.cumulative_sum(values.is_valid().cast(pa.int64())), 1)
    return items.take(pc.if_else(values.is_valid(), place, pa.scalar(None, pa.int64())))


def _unwrap_map(values: pa.Array, data_type: MapType, slot: SourceColumn, is_checked: bool) -> pa.Array | None:
    keys, items = entries_of(values)
    back = _unwrap(items, data_type.value, slot, slot.dim, None, is_checked)
    keys = restore_values(keys, STRING, data_type.key)
    return None if back is None or keys is None else replace_entries(values, keys, back)


def _either(first: pa.Array, second: pa.Array, data_type: DataType) -> pa.Array:
    """Return the values of either of two columns, item by item; records come from the first that has them."""
    if second.null_count == len(second) or not (first.null_count or _is_nested(data_type)):
        return first
    if first.null_count == len(first):
        return second
    match data_type:
        case ArrayType(element):
            lengths = common_lengths(first, second)
            items = _either(
                expand_items(first, first.flatten(), lengths),
                expand_items(second, second.flatten(), lengths),
                data_type=element,
            )
            return new_lists(lengths, items)
        case MapType(key, value):
            lengths = common_lengths(first, second)
            (keys, items), (other_keys, others) = entries_of(first), entries_of(second)
            keys = _either(expand_items(first, keys, lengths), expand_items(second, other_keys, lengths), data_type=key)
            items = _either(expand_items(first, items, lengths), expand_items(second, others, lengths), data_type=value)
            return new_maps(lengths, keys, items)
    return pc.if_else(first.is_valid(), first, second)


def _must_hold(slot: SourceColumn, data_type: DataType) -> bool:
    """Return whether a column holds all values of a type: it is of this type, or of texts, also inside of arrays.

    Source: docs/evolution-rules.md#u14
    """
    leaf, dim = data_type, 0
    while isinstance(leaf, ArrayType):
        leaf, dim = leaf.element, dim + 1
    if slot.dim < dim or _is_nested(leaf) or _is_nested(slot.type):
        return False
    return slot.type == leaf or (slot.type == STRING and leaf != BINARY)


def _ensure_agrees(
    given: pa.Array, values: pa.Array, data_type: DataType, slot: SourceColumn, *, has_rest: bool
) -> None:
    """Check that the values that a column gives back are the values of their field, or null.

    Args:
        has_rest: Whether the rescue column may hold values instead of the column; else a column that can hold all
            values of the type has them.
    """
    if given.null_count:
        is_given = given.is_valid()
        is_whole = has_rest or not _must_hold(slot, data_type)
        ensure(is_whole or values.filter(pc.invert(is_given)).null_count == len(values) - pc.sum(is_given).as_py())
        given, values = given.filter(is_given), values.filter(is_given)
    ensure(not values.null_count)
    match data_type:
        case ArrayType(element):
            ensure(given.value_lengths().equals(values.value_lengths()))
            _ensure_agrees(given.flatten(), values.flatten(), element, slot, has_rest=has_rest)
        case MapType(_, value):
            (keys, items), (wanted, others) = entries_of(given), entries_of(values)
            ensure(lengths_of(given).equals(lengths_of(values)) and keys.equals(wanted))
            inner_slot = slot if slot.value is None else slot.value
            _ensure_agrees(items, others, value, inner_slot, has_rest=has_rest)
        case StructType(inner):
            for field, one, other in zip(inner, given.flatten(), values.flatten(), strict=True):
                _ensure_agrees(one, other, field.type, slot, has_rest=has_rest)
        case TimeText():
            ensure(bool(pc.all(are_same_times(given, values), min_count=0).as_py()))
        case _:
            ensure(_is_same(given, values, slot))


def _is_same(given: pa.Array, values: pa.Array, slot: SourceColumn) -> bool:
    if given.type == values.type:
        if given.equals(values):
            return True
        # NaN is not equal to itself.
        is_number = pa.types.is_floating(given.type)
        same = pc.equal(given, values)
        same = pc.or_(same, pc.and_(pc.is_nan(given), pc.is_nan(values))) if is_number else same
    else:
        same = are_epochs(given.cast(pa.int64()), values.cast(pa.int64()), slot.epoch_unit)
    return bool(pc.all(same, min_count=0).as_py())


def _ensure_null(values: pa.Array) -> None:
    ensure(values.null_count == len(values))


# ---- columns of the kinds of the source ------------------------------------------------------------


def has_own_kinds(source: StructType, cells: ColumnsByKey) -> bool:
    """Return whether the columns of all fields of the source have their kinds; records may have more fields there."""
    return all(_is_own_kind(field.type, cell, cell.dim) for field in source for cell in cells.get(field.name, ()))


def _is_own_kind(data_type: DataType, cell: SourceColumn, dim: int) -> bool:
    if isinstance(data_type, ArrayType):
        return dim > 0 and _is_own_kind(data_type.element, cell, dim - 1)
    if dim:
        return False
    if isinstance(data_type, StructType):
        return cell.fields is not None and has_own_kinds(data_type, cell.fields)
    if isinstance(data_type, MapType):
        return cell.value is not None and _is_own_kind(data_type.value, cell.value, cell.value.dim)
    return cell.fields is None and cell.value is None and _is_own_type(cell.type, data_type)


def own_fields(source: StructType, cells: ColumnsByKey) -> ColumnsByKey:
    """Return the columns that store values of the fields of a source unchanged."""
    return {field.name: tuple(_own_cells(field.type, cells.get(field.name, ()))) for field in source}


def _own_cells(data_type: DataType, cells: FieldColumns) -> Iterator[SourceColumn]:
    """Yield the columns that store values of a type unchanged: of the same kind, with the same levels of arrays."""
    leaf, dim = data_type, 0
    while isinstance(leaf, ArrayType):
        leaf, dim = leaf.element, dim + 1
    for cell in cells:
        if cell.fields is not None and isinstance(leaf, StructType):
            if cell.dim == dim or cell is widest_record_column(cells):
                yield replace(cell, fields=own_fields(leaf, cell.fields))
        elif cell.value is not None and isinstance(leaf, MapType):
            inner = _own_cells(leaf.value, (cell.value,)) if cell.dim == dim else ()
            yield from (replace(cell, value=value) for value in inner)
        elif cell.fields is None and cell.value is None and cell.dim == dim and _is_own_type(cell.type, leaf):
            yield cell


def _is_own_type(stored: DataType, original: DataType) -> bool:
    return family_of(stored) == (str(STRING) if isinstance(original, TimeText) else family_of(original))


# ---- numbers of values -----------------------------------------------------------------------------


def _count_leaves(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return the number of scalars in each value."""
    match data_type:
        case StructType(fields):
            counts = [_count_leaves(part, field.type) for part, field in zip(values.flatten(), fields, strict=True)]
            return reduce(pc.add, counts, pa.repeat(pa.scalar(0, pa.int64()), len(values)))
        case ArrayType(element):
            return sum_items(_count_leaves(values.flatten(), element), values)
        case MapType(_, value):
            return sum_items(_count_leaves(entries_of(values)[1], value), values)
    return values.is_valid().cast(pa.int64())
