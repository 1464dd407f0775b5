"""Which columns one field gets, and which are widened, for the kinds of an interval.

Source: docs/evolution-rules.md#algorithm, #d1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, reduce
from operator import attrgetter
from typing import TypeAlias

from widen.evolution.policy import Mode
from widen.evolution.type_lattice import (
    NUMERIC_WORDS,
    RECORD,
    WIDER,
    ValueSpan,
    column_sort_key,
    common_leaf,
    covers_kind,
    decimal_for,
    holds_exactly,
    is_boolean_as_number,
    number_types,
)
from widen.json.kinds import (
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    NTZ_WORD,
    NUMBER_WORDS,
    TIMESTAMP_WORD,
    TYPE_OF_WORD,
    Kind,
    leaf_and_dim,
    word_of,
)
from widen.json.observation import KindObservation
from widen.model.column_path import ELEMENT, VALUE, Path
from widen.model.types import BOOLEAN, FLOAT, STRING, TIMESTAMP_NTZ, DataType, DecimalType, MapType
from widen.model.value_classes import dataclass
from widen.schema.source_metadata import TableFormat, can_widen

# An example. The column total is an int, and a batch brings these numbers and texts for it, in the mode widen:
#     12              nothing: an int holds it
#     3000000000      total becomes a bigint, in place, since the table can widen it
#     "12.5 EUR"      a string column beside total; a text never goes into a number, though it may look like one
#     12.5            total becomes a double, which holds every int exactly; a bigint would get a double beside it
# Widening comes first, because a kind that the wider column covers does not need a column. In the mode split nothing is
# widened, so 3000000000 gets a bigint column beside total. A double column does not take 9007199254740993, which it
# would round: that number gets a bigint column.

_TOGETHER: tuple[frozenset[str], ...] = (
    frozenset({LONG_WORD, DECIMAL_WORD, DOUBLE_WORD}),
    frozenset({LONG_WORD, DOUBLE_WORD}),
    frozenset({LONG_WORD, DECIMAL_WORD}),
    frozenset({DECIMAL_WORD, DOUBLE_WORD}),
    frozenset({LONG_WORD}),
    frozenset({DECIMAL_WORD}),
    frozenset({DOUBLE_WORD}),
    frozenset({NTZ_WORD}),
)
"""Which kinds to widen one column for, in the order to try. Larger groups come first: one column for longs and doubles
is better than one for each. The last group is for dates that become timestamps without a time zone."""

_GROWING = NUMBER_WORDS | {NTZ_WORD}


def uncovered_kinds(columns: Iterable[FieldColumn], kinds: Kinds, *, keeps_booleans: bool = False) -> tuple[Kind, ...]:
    """Return the kinds that no single column holds exactly, in the order of kinds.

    Source: docs/evolution-rules.md#u7, #d2, #d18
    """
    all_columns = tuple(columns)
    return tuple(
        kind
        for kind, observed in sorted(kinds.items())
        if not any(
            covers_kind(column.leaf, column.dim, kind, observed)
            and not (keeps_booleans and is_boolean_as_number(column.leaf, kind.word))
            for column in all_columns
        )
    )


def choose_columns(
    columns: tuple[FieldColumn, ...],
    kinds: Kinds,
    mode: Mode,
    table_format: TableFormat,
    *,
    keeps_booleans: bool = False,
) -> ColumnChoice:
    """Choose changes that give every kind a column that holds it exactly.

    Args:
        columns: The existing columns of the field; empty at first sight.

    Source: docs/evolution-rules.md#u4 to #u9, #u15 to #u17, #d1, #d2, #d15, #d18
    """
    if not kinds:
        return ColumnChoice()
    if not columns:
        return _first_sight(_without_counts(kinds), mode, keeps_booleans=keeps_booleans)
    # Widening comes before adding (D1): a kind that a widened column covers does not need its own column.
    widened = _plan_widenings(columns, kinds, table_format) if mode is Mode.WIDEN else ()
    columns = apply_widenings(columns, widened)
    missing = {kind: kinds[kind] for kind in uncovered_kinds(columns, kinds, keeps_booleans=keeps_booleans)}
    has_timestamp = any(_is_timestamp(word_of(column.leaf)) for column in columns)
    requests = _deduplicate(
        _with_room(_number_columns(missing, mode, has_timestamp), columns) + _non_number_columns(missing)
    )
    choice = ColumnChoice(widened, tuple(sorted(requests, key=_request_sort_key)))
    widens = table_format if mode is Mode.WIDEN else None
    return _with_common(choice, columns, kinds, widens, keeps_booleans=keeps_booleans)


_Facts: TypeAlias = tuple[int, int, bool, bool, bool, bool, int, str]


def _without_counts(kinds: Kinds) -> tuple[tuple[Kind, _Facts], ...]:
    """Return what the choice of columns depends on. Where keys are data, thousands of fields have the same."""
    return tuple((kind, _to_facts(observed)) for kind, observed in kinds.items())


_to_facts = attrgetter(
    *("integer_digits", "scale", "fits_int32", "exact_double", "decimal_exact", "epoch_ms_exact"),
    *("written_scale", "type"),
)


@lru_cache(maxsize=1024)
def _first_sight(facts: tuple[tuple[Kind, _Facts], ...], mode: Mode, *, keeps_booleans: bool) -> ColumnChoice:
    kinds = {kind: KindObservation(1, *each) for kind, each in facts}
    # Mode widen needs no such rule: it looks for one type for all numbers of a dim anyway.
    numbers = _number_columns(kinds if mode is Mode.WIDEN else _without_long_twins(kinds), mode)
    requests = _deduplicate(replace(request, rule="U6") for request in numbers + _non_number_columns(kinds))
    # A record takes the plain name from primitives (U11), and has no common column with them (D15).
    records = [request for request in requests if request.leaf == RECORD]
    primitives = [request for request in requests if _is_primitive(request)]
    if not records:
        # Only bytes are neither records nor primitives, and they have no common type.
        largest = max(requests, key=lambda request: request.dim)
        comparable, _ = _without_incomparable_booleans(primitives, (), kinds) if keeps_booleans else (primitives, ())
        main = replace(_common_column(comparable, kinds) if primitives else largest, rule="U4", is_plain=True)
        rest = [
            # By word and not by type: beside a wide decimal, a narrower one of the same dim would hold nothing more.
            request
            for request in requests
            if (word_of(request.leaf), request.dim) != (word_of(main.leaf), main.dim)
        ]
        return ColumnChoice(requests=(main, *sorted(rest, key=_request_sort_key)))
    largest = max(records, key=lambda request: request.dim)
    smaller = [replace(request, rule="U17") for request in records if request is not largest]
    others = sorted((request for request in requests if request.leaf != RECORD), key=_request_sort_key)
    rest_of_choice = _with_common(ColumnChoice(requests=tuple(others)), (), kinds, None, keeps_booleans=keeps_booleans)
    return ColumnChoice(requests=(replace(largest, rule="U4", is_plain=True), *smaller, *rest_of_choice.requests))


def _without_long_twins(kinds: Kinds) -> Kinds:
    """Return the kinds without the longs that a double of the same dim holds exactly.

    JSON writers print the double 2.0 as 2, so a mix of both is usually one field of doubles (U15). It holds only if
    every long is exact as a double (D2): 9007199254740993 is not.

    Source: docs/evolution-rules.md#u15, #d2
    """
    return {
        kind: observed
        for kind, observed in kinds.items()
        if not (kind.word == LONG_WORD and Kind(DOUBLE_WORD, kind.dim) in kinds and observed.exact_double)
    }


def _number_columns(kinds: Kinds, mode: Mode, has_timestamp: bool = False) -> list[ColumnRequest]:
    """Return a column for each numeric kind; in mode widen one for all kinds of a dim, if one type holds them."""
    has_timestamp = has_timestamp or any(_is_timestamp(kind.word) for kind in kinds)
    numbers = {kind: observed for kind, observed in sorted(kinds.items()) if kind.word in NUMBER_WORDS}
    if mode is not Mode.WIDEN:
        return [_request_for_kind(kind, observed) for kind, observed in numbers.items()]
    requests: list[ColumnRequest] = []
    for dim in sorted({kind.dim for kind in numbers}):
        same_dim = {kind: observed for kind, observed in numbers.items() if kind.dim == dim}
        leaf = _narrowest(same_dim, has_timestamp)
        together = [ColumnRequest(leaf, dim, "U8", tuple(same_dim))] if leaf else []
        requests += together or [_request_for_kind(kind, observed) for kind, observed in same_dim.items()]
    return requests


def _non_number_columns(kinds: Kinds) -> list[ColumnRequest]:
    rest = (kind for kind in sorted(kinds) if kind.word not in NUMBER_WORDS)
    return [ColumnRequest(TYPE_OF_WORD.get(kind.word, RECORD), kind.dim, "U8", (kind,)) for kind in rest]


def _deduplicate(requests: Iterable[ColumnRequest]) -> list[ColumnRequest]:
    """Merge requests of the same type and dim. There may be two strings: a decimal past 38 digits becomes one."""
    merged: dict[tuple[DataType, int], ColumnRequest] = {}
    for request in requests:
        same = merged.get((request.leaf, request.dim))
        merged[request.leaf, request.dim] = replace(same, kinds=(*same.kinds, *request.kinds)) if same else request
    return list(merged.values())


def _request_for_kind(kind: Kind, observed: KindObservation) -> ColumnRequest:
    return ColumnRequest(_leaf(kind.word, observed), kind.dim, "U8", (kind,))


def _leaf(word: str, observed: KindObservation) -> DataType:
    if word != DECIMAL_WORD:
        return TYPE_OF_WORD[word]
    return decimal_for([_decimal_span(observed)]) or STRING


def _decimal_span(observed: KindObservation) -> ValueSpan:
    return ValueSpan(_ANY_DECIMAL, observed)


_ANY_DECIMAL = DecimalType(1, 0)


def _narrowest(kinds: Kinds, has_timestamp: bool) -> DataType | None:
    """Return the narrowest type that holds all these numbers; None without such a type.

    Beside timestamps it is at least long: timestamps are routed there too, as epoch milliseconds, which an int cannot
    hold (U16).

    Source: docs/evolution-rules.md#u15, #d1
    """
    types = number_types((kind.word for kind in kinds), (_decimal_span(observed) for observed in kinds.values()))
    for leaf in types[1:] if has_timestamp else types:
        if all(holds_exactly(leaf, kind.word, observed) for kind, observed in kinds.items()):
            return leaf
    return None


def _with_room(requests: list[ColumnRequest], columns: tuple[FieldColumn, ...]) -> list[ColumnRequest]:
    """Return the requests with every new decimal wide enough for the numbers in the existing columns as well.

    Values of narrower columns are routed to wider ones (U14). A decimal without room for them would be full of nulls,
    and the field would need one more column as the common denominator. A field with a decimal that is too small gets no
    second decimal but a string, which holds all its values (U9).
    """
    decimals = {column.dim for column in columns if isinstance(column.leaf, DecimalType)}
    numbers = [ValueSpan(column.leaf) for column in columns if word_of(column.leaf) in _WHOLE_OR_DECIMAL]
    result = []
    for request in requests:
        if isinstance(request.leaf, DecimalType):
            wide = STRING if request.dim in decimals else decimal_for([ValueSpan(request.leaf), *numbers])
            request = replace(request, leaf=wide or request.leaf)
        result.append(request)
    return result


_WHOLE_OR_DECIMAL = frozenset({INT_WORD, LONG_WORD, DECIMAL_WORD})


def _common_column(
    requests: Iterable[ColumnRequest], kinds: Kinds, columns: Iterable[FieldColumn] = ()
) -> ColumnRequest:
    """Return the common denominator: the widest type and the largest dim of requests and existing columns (U9)."""
    wanted, existing = list(requests), [column for column in columns if word_of(column.leaf) in WIDER]
    spans = [*(ValueSpan(column.leaf) for column in existing), *(_span(request, kinds) for request in wanted)]
    dim = max([*(column.dim for column in existing), *(request.dim for request in wanted)])
    return ColumnRequest(common_leaf(spans), dim, "U9", tuple(kind for request in wanted for kind in request.kinds))


def _without_incomparable_booleans(
    requests: list[ColumnRequest], columns: tuple[FieldColumn, ...], kinds: Kinds
) -> tuple[list[ColumnRequest], tuple[FieldColumn, ...]]:
    """Return the requests and columns without booleans, if their common denominator would be a number.

    Source: docs/evolution-rules.md#d18
    """
    if not requests or word_of(_common_column(requests, kinds, columns).leaf) not in NUMERIC_WORDS:
        return requests, columns
    rest = tuple(column for column in columns if column.leaf != BOOLEAN)
    return [request for request in requests if request.leaf != BOOLEAN], rest


def _span(request: ColumnRequest, kinds: Kinds) -> ValueSpan:
    return ValueSpan(request.leaf, reduce(KindObservation.merged, (kinds[kind] for kind in request.kinds)))


def _with_common(
    choice: ColumnChoice,
    columns: tuple[FieldColumn, ...],
    kinds: Kinds,
    widens: TableFormat | None,
    *,
    keeps_booleans: bool,
) -> ColumnChoice:
    """Return the choice, extended so that one column takes all primitives if it adds a primitive.

    Source: docs/evolution-rules.md#u9, #d15, #d18
    """
    added = [request for request in choice.requests if _is_primitive(request)]
    have = [*((column.leaf, column.dim) for column in columns), *((request.leaf, request.dim) for request in added)]
    if keeps_booleans:
        added, columns = _without_incomparable_booleans(added, columns, kinds)
    if not added:
        return choice
    common = _common_column(added, kinds, columns)
    if any(dim == common.dim and _is_as_wide(leaf, common.leaf) for leaf, dim in have):
        return choice
    # An existing column that becomes the common one spares a new column.
    for column in columns:
        if widens and column.dim == common.dim and can_widen(widens, column.leaf, common.leaf):
            wide = ColumnWidening(column, common.leaf, common.kinds)
            return replace(choice, widened=_merge_widening(choice.widened, wide))
    # The common decimal holds everything that a narrower new one of its dim would.
    kept = [request for request in choice.requests if not (_are_decimal(request, common) and request.dim == common.dim)]
    return replace(choice, requests=(*kept, common))


def _is_primitive(request: ColumnRequest) -> bool:
    """Return whether the type is ordered by `WIDER`. Records and bytes are not."""
    return word_of(request.leaf) in WIDER


def _is_as_wide(leaf: DataType, other: DataType) -> bool:
    if isinstance(leaf, DecimalType) and isinstance(other, DecimalType):
        return decimal_for([ValueSpan(leaf), ValueSpan(other)]) == leaf
    return leaf == other


def _are_decimal(*requests: ColumnRequest) -> bool:
    return all(isinstance(request.leaf, DecimalType) for request in requests)


def _plan_widenings(
    columns: tuple[FieldColumn, ...], kinds: Kinds, table_format: TableFormat
) -> tuple[ColumnWidening, ...]:
    """Return the columns to widen in place, where the format can, for kinds that no column covers yet.

    One step may cover several kinds, and may make another step possible or superfluous, so the missing kinds are
    computed again after each step. It ends, since every step makes a type strictly wider.

    Source: docs/evolution-rules.md#d1
    """
    widened: tuple[ColumnWidening, ...] = ()
    while True:
        now = apply_widenings(columns, widened)
        missing = {kind: kinds[kind] for kind in uncovered_kinds(now, kinds) if kind.word in _GROWING}
        step = next(_steps(now, missing, table_format), None)
        if step is None:
            return widened
        widened = _merge_widening(widened, step)


def _steps(columns: tuple[FieldColumn, ...], missing: Kinds, table_format: TableFormat) -> Iterator[ColumnWidening]:
    words = {kind.word for kind in missing}
    for together in _TOGETHER:
        # Fewest arrays first: scalars stay in the scalar column, although a wider array column would also hold them.
        for column in sorted(columns, key=lambda column: column.dim) if together <= words else ():
            fitting = {k: observed for k, observed in missing.items() if k.word in together and k.dim <= column.dim}
            leaf = _wider(column.leaf, fitting, table_format) if fitting else None
            if leaf is not None:
                yield ColumnWidening(column, leaf, tuple(fitting))


def _wider(leaf: DataType, kinds: Kinds, table_format: TableFormat) -> DataType | None:
    """Return the narrowest type that the format can widen the leaf to and that holds all these values."""
    # A float column can become only a double, even if the new values are all integers.
    words = [kind.word for kind in kinds] + [DOUBLE_WORD] * (leaf == FLOAT)
    numbers = number_types(words, [ValueSpan(leaf), *(_decimal_span(observed) for observed in kinds.values())])
    for new in (TIMESTAMP_NTZ,) if NTZ_WORD in words else numbers:
        holds = all(holds_exactly(new, kind.word, observed) for kind, observed in kinds.items())
        if holds and can_widen(table_format, leaf, new):
            return new
    return None


def apply_widenings(columns: tuple[FieldColumn, ...], widened: tuple[ColumnWidening, ...]) -> tuple[FieldColumn, ...]:
    """Return the columns after the widenings."""
    new = {each.column.name: each.leaf for each in widened}
    return tuple(replace(column, leaf=new.get(column.name, column.leaf)) for column in columns)


def _merge_widening(widened: tuple[ColumnWidening, ...], later: ColumnWidening) -> tuple[ColumnWidening, ...]:
    """Add a widening. A column that is widened twice gets one step, from its first type to its last."""
    first = next((each for each in widened if each.column.name == later.column.name), None)
    if first is None:
        return (*widened, later)
    both = ColumnWidening(first.column, later.leaf, tuple(sorted({*first.kinds, *later.kinds})))
    return tuple(both if each is first else each for each in widened)


def _is_timestamp(word: str | None) -> bool:
    return word == TIMESTAMP_WORD


def _request_sort_key(request: ColumnRequest) -> tuple[bool, int, int]:
    return column_sort_key(request.leaf, request.dim)


# The columns of one field: existing ones, requested ones, and those to widen.
#
# Source: docs/evolution-rules.md#algorithm, #d1


Kinds: TypeAlias = Mapping[Kind, KindObservation]
"""The kinds of one field in an interval, with what is known of their values."""


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """An existing column of a field, or the values of its maps.

    Args:
        leaf: The type inside its arrays.
        dim: The number of nested arrays.
        above: The steps from the column to the arrays; empty unless it is a column of maps.
    """

    name: str
    leaf: DataType
    dim: int
    above: Path = ()

    @property
    def path(self) -> Path:
        """The steps from the struct to the leaf."""
        return (self.name, *self.above, *[ELEMENT] * self.dim)

    def values(self) -> FieldColumn | None:
        """Return the values of its maps as a column; None if it is not a map with string keys."""
        if not isinstance(self.leaf, MapType) or self.leaf.key != STRING:
            return None
        return FieldColumn(self.name, *leaf_and_dim(self.leaf.value), (*self.path[1:], VALUE))


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """A column to add for a field.

    Args:
        leaf: The type inside its arrays; `RECORD` for records.
        is_plain: Whether it gets the plain name of the field.
    """

    leaf: DataType
    dim: int
    rule: str
    kinds: tuple[Kind, ...]
    is_plain: bool = False


@dataclass(frozen=True, slots=True)
class ColumnWidening:
    """A column to widen in place."""

    column: FieldColumn
    leaf: DataType
    kinds: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The changes for one field.

    Args:
        requests: The columns to add, the one with the plain name first.
    """

    widened: tuple[ColumnWidening, ...] = ()
    requests: tuple[ColumnRequest, ...] = ()
