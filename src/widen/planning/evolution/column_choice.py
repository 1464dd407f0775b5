"""The choice for one field: which columns it gets, and which are widened, for the kinds that an interval brings.

Source: docs/evolution-rules.md#algorithm, #d1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce

from widen.model.types import BOOLEAN, FLOAT, STRING, TIMESTAMP_NTZ, DataType, DecimalType
from widen.observe.kind import (
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    NTZ_WORD,
    NUMBER_WORDS,
    TIMESTAMP_WORD,
    TYPE_OF_WORD,
    Kind,
    word_of,
)
from widen.observe.observation import KindObservation
from widen.planning.evolution.field_columns import ColumnChoice, ColumnRequest, ColumnWidening, FieldColumn, Kinds
from widen.planning.evolution.format_capability import TableFormat, can_widen
from widen.planning.evolution.policy import Mode
from widen.planning.evolution.type_lattice import (
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
"""Which kinds to widen one column for, in the order to try: numbers, and days that become points in time."""

_GROWING = NUMBER_WORDS | {NTZ_WORD}


def uncovered_kinds(columns: Iterable[FieldColumn], kinds: Kinds, *, keeps_booleans: bool = False) -> tuple[Kind, ...]:
    """Return the kinds that no single column holds exactly, in the order of kinds.

    Args:
        columns: The columns of the field.
        kinds: What the interval brings.
        keeps_booleans: Whether columns of numbers do not hold booleans.

    Source: docs/evolution-rules.md#u7, #d2, #d18
    """
    known = tuple(columns)
    return tuple(
        kind
        for kind, seen in sorted(kinds.items())
        if not any(
            covers_kind(column.leaf, column.dim, kind, seen)
            and not (keeps_booleans and is_boolean_as_number(column.leaf, kind.word))
            for column in known
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
    """Return what a field needs so that every kind has a column that holds it exactly.

    Args:
        columns: The columns it has; none if this is its first sight.
        kinds: What the interval brings; not empty.
        mode: Widen or split.
        table_format: What can be widened in place.
        keeps_booleans: Whether booleans never go to columns of numbers.

    Source: docs/evolution-rules.md#u4 to #u9, #u15 to #u17, #d1, #d2, #d15, #d18
    """
    if not columns:
        return _first_sight(kinds, mode, keeps_booleans=keeps_booleans)
    widened = _plan_widenings(columns, kinds, table_format) if mode is Mode.WIDEN else ()
    columns = apply_widenings(columns, widened)
    missing = {kind: kinds[kind] for kind in uncovered_kinds(columns, kinds, keeps_booleans=keeps_booleans)}
    has_timestamp = any(_is_timestamp(word_of(column.leaf)) for column in columns)
    wants = _deduplicate(
        _with_room(_number_columns(missing, mode, has_timestamp), columns) + _non_number_columns(missing)
    )
    choice = ColumnChoice(widened, tuple(sorted(wants, key=_order)))
    widens = table_format if mode is Mode.WIDEN else None
    return _with_common(choice, columns, kinds, widens, keeps_booleans=keeps_booleans)


def _first_sight(kinds: Kinds, mode: Mode, *, keeps_booleans: bool) -> ColumnChoice:
    numbers = _number_columns(kinds if mode is Mode.WIDEN else _without_long_twins(kinds), mode)
    wants = _deduplicate(replace(want, rule="U6") for want in numbers + _non_number_columns(kinds))
    records = [want for want in wants if want.leaf == RECORD]
    primitives = [want for want in wants if _is_primitive(want)]
    if not records:
        largest = max(wants, key=lambda want: want.dim)
        comparable, _ = _comparable(primitives, (), kinds) if keeps_booleans else (primitives, ())
        main = replace(_common_column(comparable, kinds) if primitives else largest, rule="U4", is_plain=True)
        rest = [want for want in wants if (word_of(want.leaf), want.dim) != (word_of(main.leaf), main.dim)]
        return ColumnChoice(wants=(main, *sorted(rest, key=_order)))
    largest = max(records, key=lambda want: want.dim)
    smaller = [replace(want, rule="U17") for want in records if want is not largest]
    others = sorted((want for want in wants if want.leaf != RECORD), key=_order)
    rest_of_choice = _with_common(ColumnChoice(wants=tuple(others)), (), kinds, None, keeps_booleans=keeps_booleans)
    return ColumnChoice(wants=(replace(largest, rule="U4", is_plain=True), *smaller, *rest_of_choice.wants))


def _without_long_twins(kinds: Kinds) -> Kinds:
    """Return the kinds without the longs that a double of the same dim holds exactly.

    Source: docs/evolution-rules.md#u15, #d2
    """
    return {
        kind: seen
        for kind, seen in kinds.items()
        if not (kind.word == LONG_WORD and Kind(DOUBLE_WORD, kind.dim) in kinds and seen.exact_double)
    }


def _number_columns(kinds: Kinds, mode: Mode, has_timestamp: bool = False) -> list[ColumnRequest]:
    """Return one column for each kind of number; in mode widen one for all of a dim where one type holds them."""
    has_timestamp = has_timestamp or any(_is_timestamp(kind.word) for kind in kinds)
    numbers = {kind: seen for kind, seen in sorted(kinds.items()) if kind.word in NUMBER_WORDS}
    if mode is not Mode.WIDEN:
        return [_own(kind, seen) for kind, seen in numbers.items()]
    wants: list[ColumnRequest] = []
    for dim in sorted({kind.dim for kind in numbers}):
        same_dim = {kind: seen for kind, seen in numbers.items() if kind.dim == dim}
        leaf = _narrowest(same_dim, has_timestamp)
        together = [ColumnRequest(leaf, dim, "U8", tuple(same_dim))] if leaf else []
        wants += together or [_own(kind, seen) for kind, seen in same_dim.items()]
    return wants


def _non_number_columns(kinds: Kinds) -> list[ColumnRequest]:
    rest = (kind for kind in sorted(kinds) if kind.word not in NUMBER_WORDS)
    return [ColumnRequest(TYPE_OF_WORD.get(kind.word, RECORD), kind.dim, "U8", (kind,)) for kind in rest]


def _deduplicate(wants: Iterable[ColumnRequest]) -> list[ColumnRequest]:
    """Return the columns, those of one type and dim as one: a decimal past 38 digits is a string too."""
    found: dict[tuple[DataType, int], ColumnRequest] = {}
    for want in wants:
        same = found.get((want.leaf, want.dim))
        found[want.leaf, want.dim] = replace(same, kinds=(*same.kinds, *want.kinds)) if same else want
    return list(found.values())


def _own(kind: Kind, seen: KindObservation) -> ColumnRequest:
    return ColumnRequest(_leaf(kind.word, seen), kind.dim, "U8", (kind,))


def _leaf(word: str, seen: KindObservation) -> DataType:
    if word != DECIMAL_WORD:
        return TYPE_OF_WORD[word]
    return decimal_for([_decimal_span(seen)]) or STRING


def _decimal_span(seen: KindObservation) -> ValueSpan:
    return ValueSpan(_SOME_DECIMAL, seen)


_SOME_DECIMAL = DecimalType(1, 0)


def _narrowest(kinds: Kinds, has_timestamp: bool) -> DataType | None:
    """Return the narrowest type that holds all these numbers.

    Beside timestamps whole numbers are longs, since a timestamp is one too (U16).

    Source: docs/evolution-rules.md#u15, #d1
    """
    types = number_types((kind.word for kind in kinds), (_decimal_span(seen) for seen in kinds.values()))
    for leaf in types[1:] if has_timestamp else types:
        if all(holds_exactly(leaf, kind.word, seen) for kind, seen in kinds.items()):
            return leaf
    return None


def _with_room(wants: list[ColumnRequest], columns: tuple[FieldColumn, ...]) -> list[ColumnRequest]:
    """Return the columns with every decimal wide enough for the numbers that stand in the columns of the field.

    Beside a decimal that is too small no second one is put: what follows is the string that holds all (U9).
    """
    decimals = {column.dim for column in columns if isinstance(column.leaf, DecimalType)}
    numbers = [ValueSpan(column.leaf) for column in columns if word_of(column.leaf) in _WHOLE_OR_DECIMAL]
    result = []
    for want in wants:
        if isinstance(want.leaf, DecimalType):
            wide = STRING if want.dim in decimals else decimal_for([ValueSpan(want.leaf), *numbers])
            want = replace(want, leaf=wide or want.leaf)
        result.append(want)
    return result


_WHOLE_OR_DECIMAL = frozenset({INT_WORD, LONG_WORD, DECIMAL_WORD})


def _common_column(wants: Iterable[ColumnRequest], kinds: Kinds, columns: Iterable[FieldColumn] = ()) -> ColumnRequest:
    """Return the column that every value of these columns goes into: the widest type, the largest dim."""
    wanted, known = list(wants), [column for column in columns if word_of(column.leaf) in WIDER]
    leaf = common_leaf([*(ValueSpan(column.leaf) for column in known), *(_span(want, kinds) for want in wanted)])
    dim = max([*(column.dim for column in known), *(want.dim for want in wanted)])
    return ColumnRequest(leaf, dim, "U9", tuple(kind for want in wanted for kind in want.kinds))


def _comparable(
    wants: list[ColumnRequest], columns: tuple[FieldColumn, ...], kinds: Kinds
) -> tuple[list[ColumnRequest], tuple[FieldColumn, ...]]:
    """Return the columns without those of booleans if what holds all of them together would be a number.

    Source: docs/evolution-rules.md#d18
    """
    if not wants or word_of(_common_column(wants, kinds, columns).leaf) not in NUMERIC_WORDS:
        return wants, columns
    rest = tuple(column for column in columns if column.leaf != BOOLEAN)
    return [want for want in wants if want.leaf != BOOLEAN], rest


def _span(want: ColumnRequest, kinds: Kinds) -> ValueSpan:
    return ValueSpan(want.leaf, reduce(KindObservation.merged, (kinds[kind] for kind in want.kinds)))


def _with_common(
    choice: ColumnChoice,
    columns: tuple[FieldColumn, ...],
    kinds: Kinds,
    widens: TableFormat | None,
    *,
    keeps_booleans: bool,
) -> ColumnChoice:
    """Return the choice so that, where it adds a primitive, one column takes all primitives of the field.

    Args:
        choice: What the field gets otherwise.
        columns: What it has, already widened.
        kinds: What the interval brings.
        widens: The format, if a column may be widened to be that one.
        keeps_booleans: Whether booleans never go to columns of numbers.

    Source: docs/evolution-rules.md#u9, #d15, #d18
    """
    added = [want for want in choice.wants if _is_primitive(want)]
    have = [*((column.leaf, column.dim) for column in columns), *((want.leaf, want.dim) for want in added)]
    if keeps_booleans:
        added, columns = _comparable(added, columns, kinds)
    if not added:
        return choice
    common = _common_column(added, kinds, columns)
    if any(dim == common.dim and _is_as_wide(leaf, common.leaf) for leaf, dim in have):
        return choice
    for column in columns:
        if widens and column.dim == common.dim and can_widen(widens, column.leaf, common.leaf):
            wide = ColumnWidening(column, common.leaf, common.kinds)
            return replace(choice, widened=_merge_widening(choice.widened, wide))
    kept = [want for want in choice.wants if not (_are_decimal(want, common) and want.dim == common.dim)]
    return replace(choice, wants=(*kept, common))


def _is_primitive(want: ColumnRequest) -> bool:
    """Tell whether the column is in an order with others, so that one can be wider than all of them."""
    return word_of(want.leaf) in WIDER


def _is_as_wide(leaf: DataType, other: DataType) -> bool:
    if isinstance(leaf, DecimalType) and isinstance(other, DecimalType):
        return decimal_for([ValueSpan(leaf), ValueSpan(other)]) == leaf
    return leaf == other


def _are_decimal(*wants: ColumnRequest) -> bool:
    return all(isinstance(want.leaf, DecimalType) for want in wants)


def _plan_widenings(
    columns: tuple[FieldColumn, ...], kinds: Kinds, table_format: TableFormat
) -> tuple[ColumnWidening, ...]:
    """Return the columns to widen in place, each as far as the format lets it, for values no column holds yet.

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
        for column in sorted(columns, key=lambda column: column.dim) if together <= words else ():
            fitting = {k: seen for k, seen in missing.items() if k.word in together and k.dim <= column.dim}
            leaf = _wider(column.leaf, fitting, table_format) if fitting else None
            if leaf is not None:
                yield ColumnWidening(column, leaf, tuple(fitting))


def _wider(leaf: DataType, kinds: Kinds, table_format: TableFormat) -> DataType | None:
    """Return the narrowest type that holds all these values and that the format can widen the leaf to."""
    words = [kind.word for kind in kinds] + [DOUBLE_WORD] * (leaf == FLOAT)
    numbers = number_types(words, [ValueSpan(leaf), *(_decimal_span(seen) for seen in kinds.values())])
    for new in (TIMESTAMP_NTZ,) if NTZ_WORD in words else numbers:
        holds = all(holds_exactly(new, kind.word, seen) for kind, seen in kinds.items())
        if holds and can_widen(table_format, leaf, new):
            return new
    return None


def apply_widenings(columns: tuple[FieldColumn, ...], widened: tuple[ColumnWidening, ...]) -> tuple[FieldColumn, ...]:
    """Return columns as they are once some of them are widened."""
    new = {each.column.name: each.leaf for each in widened}
    return tuple(replace(column, leaf=new.get(column.name, column.leaf)) for column in columns)


def _merge_widening(widened: tuple[ColumnWidening, ...], later: ColumnWidening) -> tuple[ColumnWidening, ...]:
    """Return the columns with a later one; of one that is widened twice, one step from its first type to its last."""
    first = next((each for each in widened if each.column.name == later.column.name), None)
    if first is None:
        return (*widened, later)
    both = ColumnWidening(first.column, later.leaf, tuple(sorted({*first.kinds, *later.kinds})))
    return tuple(both if each is first else each for each in widened)


def _is_timestamp(word: str | None) -> bool:
    return word == TIMESTAMP_WORD


def _order(want: ColumnRequest) -> tuple[bool, int, int]:
    return column_sort_key(want.leaf, want.dim)
