"""The traits of a Delta table that matter to other readers, from its log; footers are read only where few can tell.

Source: docs/guide/readers.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from widen.evolution.plan import PlannedReader
from widen.log.exact_bounds import lack_bounds
from widen.log.snapshot import Snapshot
from widen.model.column_path import Path, fields, is_struct_path, leaves
from widen.model.lazy_module import import_lazily
from widen.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    TIMESTAMP,
    DataType,
    DecimalType,
    StructType,
)
from widen.model.value_classes import dataclass
from widen.protocol.column_mapping import FEATURE, NONE, physical_name, to_physical_path
from widen.protocol.file_statistics import MAX_VALUES, MIN_VALUES, NULL_COUNT, NUM_RECORDS
from widen.protocol.partition_values import UnknownValue, parse_partition_value
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import FEATURES, TABLE_FEATURES_READER, supported_features
from widen.protocol.type_widening import TypeChange, all_type_changes
from widen.report.reader_predictions import REWRITE, TRAITS, Trait, TraitChange, made_wrong, new_column_traits
from widen.report.statistics_texts import StatisticsTexts, try_decode

if TYPE_CHECKING:
    from widen.files import footers, statistics_repair
else:
    footers = import_lazily("widen.files.footers")
    statistics_repair = import_lazily("widen.files.statistics_repair")

pc, pq = map(import_lazily, ("pyarrow.compute", "pyarrow.parquet"))

FEW_FILES = 64
"""Up to this number of files, their footers are read."""
_FEW_ROWS = 1_000_000
_SHORT_DECIMALS = 18
_DELTALAKE = "delta-rs"
"""How deltalake, and polars with it, name themselves in Parquet files."""
_OLD_TYPES = {"float-became-double": "FLOAT", "date-became-timestamp": "INT32"}
"""The physical type of a column before it changed, by trait."""
_READER_FEATURES = frozenset(each.name for each in FEATURES if each.is_reader)


def delta_traits(snapshot: Snapshot) -> list[Trait]:
    """Return the traits of a version of a Delta table."""
    files = _FileTraits(snapshot)
    return [*filter(files.may_have, configuration_traits(snapshot.configuration)), *files]


def planned_traits(snapshot: Snapshot | None, configuration: TableConfiguration | None) -> TraitChange:
    """Return the traits of a Delta table before and after a plan.

    Args:
        snapshot: The version; None for a new table.
        configuration: Protocol and metadata after the plan; None if it changes neither.
    """
    before = None if snapshot is None else delta_traits(snapshot)
    after = list(before or ())
    if configuration is not None:
        old = set() if snapshot is None else set(configuration_traits(snapshot.configuration))
        new = [trait for trait in configuration_traits(configuration) if trait not in old]
        added = new_column_traits(configuration.schema, None if snapshot is None else snapshot.schema)
        after = list(dict.fromkeys([*new, *after, *added]))
    return TraitChange("delta", before, after)


def readers_made_wrong(snapshot: Snapshot, configuration: TableConfiguration) -> tuple[PlannedReader, ...]:
    """Return the readers that return something wrong once a version has another configuration, by the log alone."""
    if configuration == snapshot.configuration:
        return ()
    before, after = (tuple(configuration_traits(each)) for each in (snapshot.configuration, configuration))
    if not snapshot.count_files()[0]:  # no file has an old type
        after = tuple(trait for trait in after if TRAITS[trait.name].remedy != REWRITE)
    return made_wrong(TraitChange("delta", before, after))


def configuration_traits(configuration: TableConfiguration) -> Iterator[Trait]:
    """Yield the traits that protocol and metadata tell, which a plan knows before it is carried out."""
    protocol = configuration.protocol
    for name in sorted(supported_features(protocol) & _READER_FEATURES):
        is_old = name == FEATURE and protocol.min_reader_version < TABLE_FEATURES_READER
        known = name.removesuffix("-preview")
        yield Trait(f"{FEATURE}-2" if is_old else known if known in TRAITS else "other-feature")
    if configuration.mapping != NONE:
        yield from _mapped_columns(configuration)
    for path, change in all_type_changes(configuration.schema):
        yield Trait(type_change_trait(change), path)


def _mapped_columns(configuration: TableConfiguration) -> Iterator[Trait]:
    names = {field.name for field in configuration.schema.fields}
    for path, field in fields(configuration.schema):
        stored = physical_name(field, configuration.mapping)
        if stored == field.name:
            continue
        if len(path) == 1 and field.name in configuration.partition_columns:
            yield Trait("mapping-partition", path)
        else:
            yield Trait("mapping-swapped" if len(path) == 1 and stored in names else "mapping-name", path)


def type_change_trait(change: TypeChange) -> str:
    """Return the trait of a column whose type changed."""
    if change.old == FLOAT and change.new == DOUBLE:
        return "float-became-double"
    if isinstance(change.new, DecimalType):
        if not isinstance(change.old, DecimalType):
            return "integer-became-decimal"
        return "decimal-grew" if change.old.scale == change.new.scale else "decimal-rescaled"
    return "date-became-timestamp" if change.old == DATE else "type-changed"


@dataclass(frozen=True)
class _FileTraits:
    """The traits that the files of a version have."""

    snapshot: Snapshot

    def __iter__(self) -> Iterator[Trait]:
        if not self.files.num_rows:
            return
        if self.files["deletion_vector"].null_count < self.files.num_rows:
            yield Trait("deleted-rows")
        yield from self._partitions()
        yield from self._names()
        yield from self._inexact_bounds()
        schema = self.snapshot.schema
        for path, leaf in leaves(schema):
            physical = to_physical_path(schema, path, self.snapshot.configuration.mapping)
            if physical[0] in self.snapshot.partition_keys:
                continue
            if len(path) > 1:
                yield from self._nested(path, physical)
            if not is_struct_path(schema, path):
                continue
            if leaf == TIMESTAMP:
                yield from self._int96(path, physical)
            elif leaf == BOOLEAN:
                if any(pc.any(lack_bounds(rows, [physical])).as_py() for rows in self.texts.unbounded(physical)):
                    yield Trait("boolean", path)
            elif leaf in (FLOAT, DOUBLE):
                yield from self._special_floats(path, physical)

    @cached_property
    def files(self) -> pa.Table:
        """The files of the version."""
        return self.snapshot.files()

    @cached_property
    def footers(self) -> list[Any] | None:
        """The metadata of the Parquet files; None if these are many."""
        if self.files.num_rows > FEW_FILES:
            return None
        return [self._read_footer(path) for path in self.files["path"].to_pylist()]

    def _read_footer(self, path: str) -> Any:
        with footers.open_data_file(self.snapshot.store, self.snapshot.store.plain(path)) as file:
            return pq.read_metadata(file)

    @cached_property
    def texts(self) -> StatisticsTexts:
        return StatisticsTexts(self.files, self.snapshot.configuration.physical_schema)

    def may_have(self, trait: Trait) -> bool:
        """Return False if the footers show that no file has the old type of a column whose type changed."""
        old = _OLD_TYPES.get(trait.name)
        if old is None or trait.column is None or self.footers is None:
            return True
        physical = to_physical_path(self.snapshot.schema, trait.column, self.snapshot.configuration.mapping)
        return any(_column(metadata, physical, old) for metadata in self.footers)

    def _partitions(self) -> Iterator[Trait]:
        kinds = {field.name: field.type for field in self.snapshot.schema.fields}
        for name, key in zip(self.snapshot.partition_columns, self.snapshot.partition_keys, strict=True):
            texts = pc.unique(pc.map_lookup(self.files["partition_values"], pa.scalar(key), "first")).to_pylist()
            if any(isinstance(parse_partition_value(text, kinds[name]), UnknownValue) for text in texts):
                yield Trait("bad-partition", (name,))
            elif isinstance(kinds[name], DecimalType) and any((text or "").startswith("-") for text in texts):
                yield Trait("negative-partition", (name,))

    def _names(self) -> Iterator[Trait]:
        """Yield what files say of the names of mapped columns."""
        configuration = self.snapshot.configuration
        if configuration.mapping == NONE or self.footers is None:
            return
        arrow = [metadata.schema.to_arrow_schema() for metadata in self.footers]
        if any(not footers.field_id(column) for schema in arrow for column in schema):
            yield Trait("no-field-ids")
        for field in configuration.schema.fields:
            stored = physical_name(field, configuration.mapping)
            if any(field.name in schema.names and stored not in schema.names for schema in arrow):
                yield Trait("mapping-readded", (field.name,))

    def _inexact_bounds(self) -> Iterator[Trait]:
        """Yield the columns whose bounds in the log are not the values of the files."""
        snapshot = self.snapshot
        mode = snapshot.configuration.mapping
        logical = {to_physical_path(snapshot.schema, path, mode): path for path, _ in leaves(snapshot.schema)}
        for physical, kind in statistics_repair.doubtful_columns(snapshot).items():
            column = {physical: kind}
            rounded = self._first(partial(statistics_repair.rounded_files, columns=column))
            if isinstance(kind, DecimalType) and self._has_exponents(kind, column, rounded):
                yield Trait("exponent-bounds", logical[physical])
            if not rounded.num_rows:
                continue
            is_few = rounded.num_rows <= FEW_FILES
            if isinstance(kind, DecimalType) and kind.precision <= _SHORT_DECIMALS:
                yield Trait("long-decimals", logical[physical])
            if not is_few or statistics_repair.contradicts(snapshot, rounded, column):
                name = "rounded-decimals" if isinstance(kind, DecimalType) else "short-bounds"
                yield Trait(name, logical[physical], is_few)

    def _has_exponents(self, kind: DecimalType, column: Mapping[Path, DataType], rounded: pa.Table) -> bool:
        """Return whether a bound has an exponent. Without small fractions, only numbers of many digits have one."""
        choose = partial(statistics_repair.exponent_files, columns=column)
        found = self._first(choose) if kind.scale >= statistics_repair.EXPONENT_SCALE else choose(rounded)
        return bool(found.num_rows)

    def _first(self, choose: Callable[[pa.Table], pa.Table], parts: Iterable[pa.RecordBatch] | None = None) -> pa.Table:
        """Return the files that are chosen among some; where they are many, not all of them."""
        found = self.files.slice(0, 0)
        for part in self.texts.parts() if parts is None else parts:
            found = pa.concat_tables([found, choose(pa.Table.from_batches([part]))])
            if found.num_rows > FEW_FILES:
                break
        return found

    def _nested(self, path: Path, physical: Path) -> Iterator[Trait]:
        """Yield whether a struct, a list or a map may be null."""
        top = path[:1]
        column = next(field.type for field in self.snapshot.schema.fields if field.name == top[0])
        is_counted = isinstance(column, StructType) and is_struct_path(self.snapshot.schema, path)
        if is_counted and self.texts.counts_no_null(physical):
            return
        yield Trait("nested-null", top)

    def _special_floats(self, path: Path, physical: Path) -> Iterator[Trait]:
        """Yield whether a column has infinite values or NaN, where bounds or the footers of few files show it.

        Widen and deltalake leave bounds out for infinite values; Widen leaves out bounds and counts for NaN. Delta Lake
        for Spark writes both as text. deltalake leaves NaN out of the bounds, so that only the values show it.
        """
        found = [_float_facts(rows, physical) for rows in self.texts.unbounded(physical)]
        if any(each.is_infinite for each in found):
            yield Trait("infinity", path)
        if any(each.has_nan_bound for each in found):
            yield Trait("nan-beside", path)
        elif uncounted := list(chain.from_iterable(each.uncounted for each in found)):
            yield from self._nan_files(path, physical, uncounted)
        if self._has_hidden_nan(physical):
            yield Trait("nan-hidden", path)

    def _nan_files(self, path: Path, physical: Path, paths: Sequence[str]) -> Iterator[Trait]:
        if len(paths) > FEW_FILES:
            yield Trait("nan-beside", path, is_certain=False)
            return
        read = [pc.value_counts(is_nan).field("values").to_pylist() for is_nan in self._read_nan(paths, physical)]
        found = set().union(*read)
        if True in found:
            yield Trait("nan-beside" if False in found else "nan", path)

    def _has_hidden_nan(self, physical: Path) -> bool:
        """Return whether a file of deltalake has NaN, by reading the column of few and small files."""
        if self.footers is None:
            return False
        found = zip(self.files["path"].to_pylist(), self.footers, strict=True)
        mine = [(path, each) for path, each in found if (each.created_by or "").startswith(_DELTALAKE)]
        if sum(metadata.num_rows for _, metadata in mine) > _FEW_ROWS:
            return False
        return any(pc.any(is_nan).as_py() for is_nan in self._read_nan([path for path, _ in mine], physical))

    def _read_nan(self, paths: Sequence[str], physical: Path) -> Iterator[pa.ChunkedArray]:
        """Yield which values of a column are NaN, of each file that has it."""
        name = ".".join(physical)
        for path in paths:
            with footers.open_data_file(self.snapshot.store, self.snapshot.store.plain(path)) as file:
                parquet = pq.ParquetFile(file)
                if any(parquet.schema.column(at).path == name for at in range(len(parquet.schema))):
                    values = parquet.read(columns=[name]).column(0)
                    for part in physical[1:]:
                        values = pc.struct_field(values, part)
                    yield pc.is_nan(values)

    def _int96(self, path: Path, physical: Path) -> Iterator[Trait]:
        """Yield whether files have INT96 timestamps, and some that do not fit 64 bits of nanoseconds."""
        if self.footers is not None and any(_column(each, physical, "INT96") for each in self.footers):
            yield Trait("int96", path)
        far = partial(statistics_repair.far_timestamps, columns=[physical])
        chosen = self._first(far, self.texts.outside_centuries(physical))
        if chosen.num_rows > FEW_FILES:
            yield Trait("int96-far", path, is_certain=False)
        elif statistics_repair.with_int96(self.snapshot, chosen, [physical]).num_rows:
            yield Trait("int96-far", path)


@dataclass(frozen=True)
class _FloatFacts:
    """What the statistics of some files say of a column with floats.

    Args:
        uncounted: The paths of up to `FEW_FILES` + 1 files that have neither bounds nor counts.
    """

    is_infinite: bool = False
    has_nan_bound: bool = False
    uncounted: Sequence[str] = ()


def _float_facts(rows: pa.RecordBatch, physical: Path) -> _FloatFacts:
    statistics = try_decode(rows["stats"], physical, pa.float64())
    if statistics is None:  # a bound is a text
        texts = rows["stats"].filter(pc.fill_null(pc.match_substring(rows["stats"], '"NaN"'), False))
        greatest = [_greatest(text, physical) for text in texts.slice(0, FEW_FILES).to_pylist()]
        return _FloatFacts(has_nan_bound="NaN" in greatest)
    low, high = (pc.struct_field(statistics, [key, *physical]) for key in (MIN_VALUES, MAX_VALUES))
    nulls, counts = (pc.struct_field(statistics, keys) for keys in ([NULL_COUNT, *physical], [NUM_RECORDS]))
    unbounded = pc.and_(pc.and_(pc.is_null(low), pc.is_null(high)), pc.is_valid(counts))
    is_infinite = pc.any(pc.and_(unbounded, pc.fill_null(pc.less(nulls, counts), False))).as_py()
    uncounted = rows["path"].filter(pc.and_(unbounded, pc.is_null(nulls))).slice(0, FEW_FILES + 1)
    return _FloatFacts(bool(is_infinite), uncounted=uncounted.to_pylist())


def _column(metadata: Any, physical: Path, kind: str) -> bool:
    """Return whether a Parquet file has a column of a physical type."""
    columns = map(metadata.schema.column, range(len(metadata.schema)))
    return any(column.path == ".".join(physical) and column.physical_type == kind for column in columns)


def _greatest(text: str, physical: Path) -> Any:
    """Return the upper bound of a column in statistics."""
    value = msgspec.json.decode(text).get(MAX_VALUES, {})
    for name in physical:
        value = value.get(name) if isinstance(value, dict) else None
    return value
