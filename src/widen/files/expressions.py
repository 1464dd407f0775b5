"""What `widen read` asks for, evaluated in this process: a condition, columns and expressions of a caller.

Only what gives the same as Spark is done here; all else is `Unsupported`, and Spark does it. That includes all that
may fail in a session with the rules of ANSI, such as an overflow: Spark says what is wrong.

Source: Spark's ANSI type coercion, Arithmetic and Cast; docs/evolution-rules.md#one-logical-field
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import InvalidCondition, InvalidOption, InvalidType
from widen.evolution.unify import unify_schema
from widen.files.arrow_types import one_array, to_arrow, to_arrow_schema
from widen.files.conversions import convert_values
from widen.files.data_reader import RowSlice, find_leaf, plan_local_scan
from widen.files.predicates import OPERATORS, PredicateScope, bind_condition, parse_like
from widen.files.row_tests import COMPARE, RowTest, leave_to_spark, plan_test
from widen.limits import QUERY_BYTES
from widen.log.file_list import to_adds
from widen.log.snapshot import Snapshot, select_files
from widen.model.display import did_you_mean
from widen.model.lazy_module import import_lazily
from widen.model.schema_json import LITERAL, from_literal, parse_type
from widen.model.types import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    StructType,
    name_key,
    plain_name,
)
from widen.model.value_classes import dataclass
from widen.protocol.data_skipping import Predicate
from widen.schema.literals import read_literal
from widen.spark.engine import Unsupported, as_unsupported, ensure_at_most
from widen.spark.expression import Expression

if TYPE_CHECKING:
    from sqlglot import errors
    from sqlglot import expressions as sql
else:
    errors, sql = map(import_lazily, ("sqlglot.errors", "sqlglot.expressions"))


@dataclass(frozen=True)
class QueriedFiles:
    """The files of a version that a query reads.

    Args:
        rows: The rows, some at a time and without the deleted ones; a file is opened when its first rows are asked for.
    """

    schema: pa.Schema
    size_bytes: int
    rows: Iterable[pa.Table]


def query_locally(
    snapshot: Snapshot,
    where: str | None = None,
    select: Sequence[str] = (),
    limit: int | None = None,
    *,
    unified: bool = False,
) -> tuple[StructType, pa.Table]:
    """Return rows of a version of a Delta table; see `query_files`."""
    return query_files(snapshot.schema, partial(_open_files, snapshot), where, select, limit, unified=unified)


def _open_files(snapshot: Snapshot, predicate: Predicate | None) -> QueriedFiles:
    files, scan = to_adds(snapshot.files()), plan_local_scan(snapshot)
    if predicate is not None:
        selected = select_files(snapshot, predicate)
        files = [add for add in files if selected.can_match(add.partition_values, add.stats)]
    rows = (part for add in files for part in scan.read(RowSlice(add)))
    return QueriedFiles(scan.arrow_schema, sum(add.size for add in files), rows)


def query_files(
    table_schema: StructType,
    open_files: Callable[[Predicate | None], QueriedFiles],
    where: str | None = None,
    select: Sequence[str] = (),
    limit: int | None = None,
    *,
    unified: bool = False,
) -> tuple[StructType, pa.Table]:
    """Return rows of a table that fulfil a condition, and their columns.

    Args:
        unified: Whether to return one column for each source field; the condition refers to the table's columns.

    Raises:
        Unsupported: only Spark can read the table, or evaluate the condition or the selected columns, exactly.
    """
    if where is not None:
        ensure_names_exist([where], {each.name: each.type for each in table_schema})
    scope = _unify(table_schema) if unified else _table_scope(table_schema)
    ensure_names_exist(select, {each.name: each.type for each in scope.columns.values()})
    chosen = [_parse_selected(text) for text in select]
    counts = [isinstance(node, sql.Count) for _, node in chosen]
    if any(counts) and not all(counts):
        raise Unsupported("it counts beside other columns")
    names = [name for name, _ in chosen] or [each.name for each in scope.columns.values()]
    # Thousands of columns as they are need no expression each.
    evaluate = partial(_take_columns, scope)
    if chosen or unified:
        evaluate = partial(_evaluate_all, scope, chosen or [(name, _column_of(name)) for name in names])
    if len({*map(name_key, names)}) < len(names):
        raise Unsupported("it selects a column twice")
    predicate = None if where is None else bind_condition(where, table_schema)
    test = None if predicate is None else _test_rows(predicate, table_schema)
    files = open_files(predicate)
    reads_all = predicate is not None or limit is None or any(counts)
    if reads_all:
        ensure_at_most(files.size_bytes, QUERY_BYTES)
    empty = evaluate(files.schema.empty_table())
    schema = StructType(tuple(Field(name, value.type) for name, value in zip(names, empty, strict=True)))
    arrow = pa.schema([pa.field(field.name, value.values.type) for field, value in zip(schema, empty, strict=True)])
    parts, rows = [arrow.empty_table()], 0
    for part in files.rows:
        kept = part if test is None else part.filter(test(part))
        values = [each.values for each in evaluate(kept)]
        parts.append(pa.Table.from_arrays(values, schema=arrow))
        rows += kept.num_rows
        if limit is not None and rows >= limit and not any(counts):
            break
    whole = pa.concat_tables(parts)
    if any(counts):
        totals = [pa.array([pc.sum(column).as_py() or 0], pa.int64()) for column in whole.columns]
        whole = pa.Table.from_arrays(totals, schema=arrow)
    return schema, whole if limit is None else whole.slice(0, limit)


def plain_sql(expression: Expression) -> str:
    """Return an expression in SQL whose meaning does not depend on the session.

    Raises:
        Unsupported: it is a column, or has a name or a text in double quotes, or is a whole statement.
    """
    # sqlglot allows a semicolon at the end, as after a statement; Spark refuses it in a condition.
    if isinstance(expression, str) and '"' not in expression and not expression.rstrip().endswith(";"):
        return expression
    raise Unsupported("it is not plain SQL")


def plan_condition(where: str, schema: StructType) -> RowTest:
    """Return the test of a condition on rows with columns of a table, named as there; Spark has accepted the condition,
    or will not see it.
    """
    return _test_rows(bind_condition(where, schema), schema)


def _test_rows(condition: Predicate, schema: StructType) -> RowTest:
    return plan_test(condition, partial(_test_part, schema))


def _test_part(schema: StructType, part: Any) -> RowTest:
    """Return the test of a part of a condition that is not bound: LIKE, or a comparison of computed integers."""
    like = parse_like(part, PredicateScope(schema))
    if like is not None:
        path, pattern, is_negated = like
        return lambda rows: pc.xor(pc.match_like(find_leaf(rows, path), pattern), is_negated)
    if type(part).__name__ not in OPERATORS:
        return leave_to_spark(part)
    test = partial(_compare_rows, _table_scope(schema), part)
    test(_no_rows(schema))
    return test


def _compare_rows(scope: _Scope, node: Any, rows: pa.Table) -> pa.Array:
    return _evaluate_all(scope, [("", node)], rows)[0].values


RowValues: TypeAlias = Callable[[pa.Table], Mapping[str, pa.Array]]
"""Returns the values of columns, by their names, for rows of a table."""


def plan_values(schema: StructType, expressions: Mapping[str, tuple[str, DataType]]) -> RowValues:
    """Return how columns get values, which refer to columns of the same table.

    Raises:
        Unsupported: only Spark evaluates one of them, or assigns its values to the column.
    """
    types = {field.name: field.type for field in schema}
    nodes = [(name, _parse(text)) for name, (text, _) in expressions.items()]
    scope, empty = _table_scope(schema), _no_rows(schema)
    found = _evaluate_assigned(scope, nodes, empty)
    if any(str(each.type) != str(kind) for each, (_, kind) in zip(found, expressions.values(), strict=True)):
        raise Unsupported("Spark gives an expression a different type")
    values = partial(_assign_values, scope, nodes, types)
    values(empty)
    return values


def evaluate_constants(constants: Mapping[str, tuple[str, DataType]]) -> dict[str, pa.Array]:
    """Return the values of constants in the types of their columns, each as an array of one value.

    Args:
        constants: The SQL of each constant, e.g. the default of a column, and the type of the column, by its name.

    Raises:
        Unsupported: only Spark evaluates one of them, or casts its value.
    """
    return {name: _evaluate_constant(text.strip(), data_type) for name, (text, data_type) in constants.items()}


def _evaluate_constant(text: str, data_type: DataType) -> pa.Array:
    arrow = to_arrow(data_type)
    if "${" in text:
        raise Unsupported("Spark puts variables into the text")
    if data_type == STRING and re.fullmatch(LITERAL, text):
        return pa.array([from_literal(text)], arrow)  # sqlglot reads escapes differently than Spark
    if data_type == BINARY and (digits := _HEX.fullmatch(text)):
        return pa.array([bytes.fromhex(digits[1])], arrow)
    node = _parse(plain_sql(text))
    literal = read_literal(node)
    if literal is not None and literal.value is None:
        return pa.nulls(1, arrow)
    if literal is None:
        value = _Evaluator(_table_scope(StructType()), pa.table({"one": [1]})).value(node)
    elif isinstance(literal.value, Decimal) and data_type in (FLOAT, DOUBLE):
        return pa.array([format(literal.value, "f")]).cast(arrow)  # the digits are rounded once
    else:
        value = _Computed(pa.array([literal.value], to_arrow(literal.type)), literal.type)
    return _cast(_widen_decimal(value, data_type), data_type, node).values


def _widen_decimal(value: _Computed, data_type: DataType) -> _Computed:
    """Return a decimal with more digits, if the type has them."""
    if not (isinstance(value.type, DecimalType) and isinstance(data_type, DecimalType)):
        return value
    try:
        return _Computed(value.values.cast(to_arrow(data_type)), data_type)
    except pa.ArrowInvalid as error:
        raise Unsupported(f"a value does not fit {data_type.sql}") from error


_HEX = re.compile(r"[xX]'((?:[0-9a-fA-F]{2})*)'")


def find_types(schema: StructType, expressions: Mapping[str, str]) -> dict[str, DataType]:
    """Return the types of expressions over the columns of a table, by their keys."""
    nodes = [(name, _parse(text)) for name, text in expressions.items()]
    found = _evaluate_assigned(_table_scope(schema), nodes, _no_rows(schema))
    return {name: each.type for (name, _), each in zip(nodes, found, strict=True)}


def _evaluate_assigned(scope: _Scope, nodes: Sequence[tuple[str, Any]], rows: pa.Table) -> list[_Computed]:
    """Return the values of expressions, which may be NULL."""
    found = iter(_evaluate_all(scope, [pair for pair in nodes if not isinstance(pair[1], sql.Null)], rows))
    nothing = _Computed(pa.nulls(rows.num_rows), VOID)
    return [nothing if isinstance(node, sql.Null) else next(found) for _, node in nodes]


def _assign_values(
    scope: _Scope, nodes: Sequence[tuple[str, Any]], types: Mapping[str, DataType], rows: pa.Table
) -> dict[str, pa.Array]:
    found = zip(nodes, _evaluate_assigned(scope, nodes, rows), strict=True)
    return {
        name: pa.nulls(rows.num_rows, to_arrow(types[name]))
        if value.type == VOID
        else _cast(value, types[name], node).values
        for (name, node), value in found
    }


def _no_rows(schema: StructType) -> pa.Table:
    with as_unsupported(InvalidOption):
        return to_arrow_schema(schema).empty_table()


def _table_scope(schema: StructType) -> _Scope:
    return _Scope({name_key(each.name): each for each in schema})


def _column_of(name: str) -> Any:
    return sql.Column(this=sql.Identifier(this=name, quoted=True))


@dataclass(frozen=True)
class _Computed:
    values: pa.Array
    type: DataType


@dataclass(frozen=True)
class _Scope:
    """The columns that expressions may use.

    Args:
        columns: The columns by their names, ignoring case, with their types.
        combined: The expressions of columns that combine several columns of the table.
    """

    columns: Mapping[str, Field]
    combined: Mapping[str, Any] | None = None
    table: _Scope | None = None


def _unify(schema: StructType) -> _Scope:
    """Return one column for each source field.

    Raises:
        Unsupported: an expression that combines columns cannot be parsed here.
    """
    table = _table_scope(schema)
    unified = unify_schema(schema)
    columns = {name_key(each.name): Field(each.name, each.type) for each in unified}
    if len(columns) < len(unified):
        raise Unsupported("two fields of the source have names that differ in case only")
    return _Scope(columns, {name_key(each.name): _parse(each.sql) for each in unified}, table)


# ---- parsing ---------------------------------------------------------------------------------------


def _parse(text: str) -> Any:
    """Return one expression, perhaps with an alias.

    Raises:
        Unsupported: it is not one, or sqlglot may read it in another way than Spark.
    """
    from sqlglot import parse

    if "\\" not in text and text.lower().split()[-1:] != ["as"]:  # sqlglot lets the alias be missing
        with as_unsupported(errors.SqlglotError, RecursionError, ValueError, reason=f"it evaluates {text}"):
            [parsed] = parse(f"SELECT {text}", dialect="spark")
        if isinstance(parsed, sql.Select) and {key for key, value in parsed.args.items() if value} == {"expressions"}:
            found = parsed.expressions
            if len(found) == 1:
                return found[0]
    raise Unsupported(f"it evaluates {text}")


def ensure_names_exist(texts: Iterable[str], columns: Mapping[str, DataType]) -> None:
    """Check that expressions have no obvious typo, so that nobody waits until Spark has started to learn of it.

    Args:
        texts: The expressions; one may use the aliases of those before it.

    Raises:
        InvalidCondition: one ends too early, or uses a column or a field of a struct that does not exist.
    """
    known: dict[str, DataType | None] = {name_key(name): data_type for name, data_type in columns.items()}
    for text in texts:
        if _ENDS_EARLY.search(_WORDS_IN_QUOTES.sub(" q ", text)):
            raise InvalidCondition(condition=text, reason="it ends in the middle of an expression")
        try:
            node = _parse(text)
        except Unsupported:
            continue
        for column in node.find_all(sql.Column):
            reason = None if _may_be_no_column(column) else _missing_name(column, known, columns)
            if reason is not None:
                raise InvalidCondition(condition=text, reason=reason)
        if isinstance(node, sql.Alias):
            known[name_key(node.alias)] = None


_WORDS_IN_QUOTES = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", re.DOTALL)
_ENDS_EARLY = re.compile(r"(?:\b(?:and|or|not|in|between|like)|[=<>+/(,-])\s*$|['\"`]", re.IGNORECASE)
_UNITS = re.compile(r"(?:year|quarter|month|week|day|dayofyear|hour|minute|second|millisecond|microsecond)s?", re.I)
_OF_SESSION = re.compile(r"_.*|current_.*|localtime.*|user|session_user", re.IGNORECASE)


def _may_be_no_column(column: Any) -> bool:
    """Return whether a name may be a unit of time, a function without parentheses, or from a query or a lambda."""
    name = column.parts[0].name
    inside = column.find_ancestor(sql.Lambda, sql.Subquery, sql.Query, sql.Exists)
    is_unit = _UNITS.fullmatch(name) and isinstance(column.parent, (sql.Func, sql.IntervalSpan, sql.Interval))
    return bool(is_unit or _OF_SESSION.fullmatch(name)) or (inside is not None and inside is not column.root())


def _missing_name(column: Any, known: Mapping[str, DataType | None], columns: Mapping[str, DataType]) -> str | None:
    """Return which part of the name of a column does not exist; None if all do."""
    first, *steps = (part.name for part in column.parts)
    if name_key(first) not in known:
        if any(name_key(step) in known for step in steps):  # the name of the table before its column
            return None
        return f"there is no column {first}{_question(first, columns)}"
    place, at = known[name_key(first)], first
    for step in steps:
        if not isinstance(place, StructType):
            return None
        field = place.find(step)
        if field is None:
            return f"{at} has no field {step}{_question(step, place.names)}"
        place, at = field.type, f"{at}.{step}"
    return None


def _question(word: str, known: Iterable[str]) -> str:
    question = did_you_mean(word, known).strip()
    return f" ({question[0].lower()}{question[1:]})" if question else ""


def _parse_selected(text: str) -> tuple[str, Any]:
    """Return the name of a selected column, and its expression."""
    node = _parse(text)
    if isinstance(node, sql.Alias):
        return node.alias, node.this
    return _name_of(node, text), node


def _name_of(node: Any, text: str) -> str:
    """Return the name that Spark gives an expression without an alias."""
    match node:
        case sql.Column():
            return str(node.parts[-1].name)
        case sql.Dot() if isinstance(node.expression, sql.Identifier):
            return str(node.expression.name)
        case sql.Count() if isinstance(node.this, sql.Star):
            return "count(1)"
        case sql.AggFunc():
            raise _unknown(node)
    raise Unsupported(f"{text} has no name; add one with AS")


# ---- evaluation ------------------------------------------------------------------------------------


def _evaluate_all(scope: _Scope, columns: Sequence[tuple[str, Any]], rows: pa.Table) -> list[_Computed]:
    evaluator = _Evaluator(scope, rows)
    # An error is most likely an overflow; Spark has a message for it.
    reason = "a value does not fit the type of an expression"
    with as_unsupported(pa.ArrowException, InvalidOption, InvalidType, reason=reason):
        return [evaluator.count(node) if isinstance(node, sql.Count) else evaluator.value(node) for _, node in columns]


def _take_columns(scope: _Scope, rows: pa.Table) -> list[_Computed]:
    return [_Computed(one_array(rows.column(each.name)), each.type) for each in scope.columns.values()]


class _Evaluator:
    """Evaluates expressions for some rows."""

    def __init__(self, scope: _Scope, rows: pa.Table) -> None:
        self._scope, self._rows = scope, rows
        self._known: dict[str, _Computed] = {}

    def count(self, node: Any) -> _Computed:
        """Return a count of these rows, to be summed."""
        if node.args.get("distinct") or node.expressions or isinstance(node.this, sql.Distinct):
            raise _unknown(node)
        if isinstance(node.this, sql.Star):
            return _Computed(pa.array([self._rows.num_rows], pa.int64()), LONG)
        values = self.value(node.this).values
        return _Computed(pa.array([len(values) - values.null_count], pa.int64()), LONG)

    def value(self, node: Any) -> _Computed:
        """Return the values of an expression."""
        match node:
            case sql.Paren():
                return self.value(node.this)
            case sql.Column():
                return self._path([part.name for part in node.parts], node)
            case sql.Dot() if isinstance(node.expression, sql.Identifier):
                return _field_of(self.value(node.this), node.expression.name, node)
            case sql.Bracket() if not node.args.get("offset") and len(node.expressions) == 1:
                return self._element(node)
            case sql.Literal() | sql.Boolean() | sql.Neg(this=sql.Literal()) | sql.Cast(this=sql.Literal()):
                return self._constant(node)
            case sql.Cast():
                return _cast(self.value(node.this), parse_type(node.to.sql("spark")), node)
            case sql.Neg():
                return _negate(self.value(node.this), node)
            case sql.Add() | sql.Sub() | sql.Mul() | sql.Div():
                return _calculate(self.value(node.this), self.value(node.expression), node)
            case sql.Mod():
                return _remainder(self.value(node.this), self.value(node.expression), node)
            case sql.EQ() | sql.NEQ() | sql.LT() | sql.LTE() | sql.GT() | sql.GTE():
                return _compare(self.value(node.this), self.value(node.expression), node)
            case sql.Coalesce():
                return self._coalesce(node)
            case sql.Is() if isinstance(node.expression, sql.Null):
                return _Computed(self.value(node.this).values.is_null(), BOOLEAN)
            case sql.Not() | sql.And() | sql.Or():
                return self._logic(node)
            case sql.Case() if node.this is None and len(node.args["ifs"]) == 1 and not node.args.get("default"):
                return self._case(node.args["ifs"][0], node)
            case sql.Struct():
                return self._struct(node)
        return self._function(node)

    def _repeat(self, value: Any, data_type: DataType) -> _Computed:
        return _Computed(pa.repeat(pa.scalar(value, to_arrow(data_type)), self._rows.num_rows), data_type)

    def _path(self, names: Sequence[str], node: Any) -> _Computed:
        value = self._column(names[0], node)
        for name in names[1:]:
            value = _field_of(value, name, node)
        return value

    def _column(self, name: str, node: Any) -> _Computed:
        key = name_key(name)
        field = self._scope.columns.get(key)
        if field is None:
            raise _unknown(node)
        if key in self._known:
            return self._known[key]
        if self._scope.combined is not None and self._scope.table is not None:
            reason = f"it combines the columns of {field.name}"
            with as_unsupported(Unsupported, reason=reason):  # it names an expression that the user has not written
                found = _Evaluator(self._scope.table, self._rows).value(self._scope.combined[key])
            if found.type != field.type:
                raise Unsupported(reason)
        else:
            found = _Computed(one_array(self._rows.column(field.name)), field.type)
        self._known[key] = found
        return found

    def _element(self, node: Any) -> _Computed:
        """Return the elements of arrays at an index. One that an array does not have is an error."""
        value, index = self.value(node.this), node.expressions[0]
        is_index = isinstance(index, sql.Literal) and not index.is_string and index.name.isdecimal()
        if not isinstance(value.type, ArrayType) or not is_index:
            raise _unknown(node)
        at = int(index.name)
        lengths = pc.list_value_length(value.values)
        if pc.any(pc.less_equal(lengths, at)).as_py():
            raise Unsupported("an array has no element with an index")
        empty = pa.nulls(len(lengths), pa.int64())
        starts = value.values.offsets[:-1].cast(pa.int64())
        places = pc.if_else(lengths.is_valid(), pc.add(starts, at), empty)
        return _Computed(value.values.values.take(places), value.type.element)

    def _constant(self, node: Any) -> _Computed:
        literal = read_literal(node)
        if literal is None or not (literal.type in _PLAIN or isinstance(literal.value, Decimal)):
            raise _unknown(node)
        return self._repeat(literal.value, literal.type)

    def _coalesce(self, node: Any) -> _Computed:
        parts = [self.value(each) for each in (node.this, *node.expressions)]
        if len({str(part.type) for part in parts}) > 1:
            if not all(plain_name(part.type) in _INTEGERS for part in parts):
                raise _unknown(node)
            widest = max((part.type for part in parts), key=lambda kind: _INTEGERS.index(plain_name(kind)))
            parts = [_Computed(part.values.cast(to_arrow(widest)), widest) for part in parts]
        if isinstance(parts[0].type, (ArrayType, StructType)):
            raise _unknown(node)
        return _Computed(pc.coalesce(*(part.values for part in parts)), parts[0].type)

    def _logic(self, node: Any) -> _Computed:
        parts = [self.value(each) for each in (node.this, node.args.get("expression")) if each is not None]
        if any(part.type != BOOLEAN for part in parts):
            raise _unknown(node)
        function = {sql.Not: pc.invert, sql.And: pc.and_kleene, sql.Or: pc.or_kleene}[type(node)]
        return _Computed(function(*(part.values for part in parts)), BOOLEAN)

    def _case(self, branch: Any, node: Any) -> _Computed:
        condition, value = self.value(branch.this), self.value(branch.args["true"])
        if condition.type != BOOLEAN:
            raise _unknown(node)
        empty = pa.nulls(len(condition.values), value.values.type)
        return _Computed(pc.if_else(pc.fill_null(condition.values, False), value.values, empty), value.type)

    def _struct(self, node: Any) -> _Computed:
        if not all(isinstance(each, sql.PropertyEQ) for each in node.expressions) or not node.expressions:
            raise _unknown(node)
        parts = [(each.this.name, self.value(each.expression)) for each in node.expressions]
        schema = StructType(tuple(Field(name, part.type) for name, part in parts))
        arrays = [part.values for _, part in parts]
        return _Computed(pa.StructArray.from_arrays(arrays, fields=list(to_arrow(schema))), schema)

    def _function(self, node: Any) -> _Computed:
        name = node.name.lower() if isinstance(node, sql.Anonymous) else type(node).__name__
        function = _FUNCTIONS.get(name)
        if function is None:
            raise _unknown(node)
        return function(self, node)


def _unknown(node: Any) -> Unsupported:
    return Unsupported(f"it evaluates {node.sql('spark')}")


def _field_of(value: _Computed, name: str, node: Any) -> _Computed:
    if not isinstance(value.type, StructType):
        raise _unknown(node)
    place = next((at for at, each in enumerate(value.type) if name_key(each.name) == name_key(name)), None)
    if place is None:
        raise _unknown(node)
    return _Computed(value.values.flatten()[place], value.type.fields[place].type)


_PLAIN = frozenset({INTEGER, LONG, STRING, BOOLEAN})
"""The types of constants in expressions, beside decimals."""


# ---- arithmetic ------------------------------------------------------------------------------------

_INTEGERS = ("byte", "short", "integer", "long")
_DIGITS: Mapping[str, int] = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_MOST_DIGITS = 38


def _negate(value: _Computed, node: Any) -> _Computed:
    name = plain_name(value.type)
    if name not in (*_INTEGERS, "float", "double", "decimal"):
        raise _unknown(node)
    return _Computed(pc.negate_checked(value.values).cast(value.values.type), value.type)


def _calculate(left: _Computed, right: _Computed, node: Any) -> _Computed:
    """Return sums, differences, products or quotients of numbers, as Spark does in ANSI mode.

    Raises:
        Unsupported: Spark has another rule for the types, or there is an overflow or a division by zero.
    """
    names = plain_name(left.type), plain_name(right.type)
    integers = all(name in _INTEGERS for name in names)
    if isinstance(node, sql.Div):
        if not (integers or all(name in (*_INTEGERS, "double") for name in names)):
            raise _unknown(node)
        divisor = right.values.cast(pa.float64(), safe=False)
        if pc.any(pc.and_(pc.equal(divisor, 0.0), left.values.is_valid())).as_py():
            raise Unsupported("a number is divided by zero")
        return _Computed(pc.divide(left.values.cast(pa.float64(), safe=False), divisor), DOUBLE)
    function = _ARITHMETIC[type(node).__name__]
    if integers:
        kind = _wider_integer(left, right, node)
        arrow = to_arrow(kind)
        return _Computed(function(left.values.cast(arrow), right.values.cast(arrow)), kind)
    if all(name in (*_INTEGERS, "double") for name in names) or names == ("float", "float"):
        kind = FLOAT if names == ("float", "float") else DOUBLE
        arrow = to_arrow(kind)
        return _Computed(function(left.values.cast(arrow, safe=False), right.values.cast(arrow, safe=False)), kind)
    if all(name in (*_INTEGERS, "decimal") for name in names):
        return _calculate_decimals(_to_decimal(left, node.this), _to_decimal(right, node.expression), node)
    raise _unknown(node)


def _remainder(left: _Computed, right: _Computed, node: Any) -> _Computed:
    """Return remainders of integers, which have the sign of the dividend.

    Raises:
        Unsupported: of other types, or a divisor is not positive: by zero it is an error.
    """
    kind = _wider_integer(left, right, node)
    one, other = (side.values.cast(to_arrow(kind)) for side in (left, right))
    if pc.any(pc.less_equal(other, 0)).as_py():
        raise Unsupported("a number is divided by one that is not positive")
    return _Computed(pc.subtract(one, pc.multiply(pc.divide(one, other), other)), kind)


def _compare(left: _Computed, right: _Computed, node: Any) -> _Computed:
    """Return whether integers are equal, or less, and so on; null where one of them is."""
    arrow = to_arrow(_wider_integer(left, right, node))
    return _Computed(
        COMPARE[OPERATORS[type(node).__name__]](left.values.cast(arrow), right.values.cast(arrow)), BOOLEAN
    )


def _wider_integer(left: _Computed, right: _Computed, node: Any) -> DataType:
    if not all(plain_name(side.type) in _INTEGERS for side in (left, right)):
        raise _unknown(node)
    return max((left.type, right.type), key=lambda each: _INTEGERS.index(plain_name(each)))


_ARITHMETIC: Mapping[str, Callable[[pa.Array, pa.Array], pa.Array]] = {
    "Add": pc.add_checked,
    "Sub": pc.subtract_checked,
    "Mul": pc.multiply_checked,
}


def _to_decimal(value: _Computed, node: Any) -> _Computed:
    """Return integers as decimals; a literal has as many digits as it shows."""
    if isinstance(value.type, DecimalType):
        return value
    while isinstance(node, sql.Paren):
        node = node.this
    if isinstance(node, (sql.Neg, sql.Cast)) and isinstance(node.this, sql.Literal):
        raise _unknown(node)
    digits = len(str(int(node.name))) if isinstance(node, sql.Literal) else _DIGITS[plain_name(value.type)]
    wide = value.values.cast(pa.int64()).cast(pa.decimal128(19, 0))
    return _Computed(wide.cast(pa.decimal128(max(digits, 1), 0)), DecimalType(max(digits, 1), 0))


def _calculate_decimals(left: _Computed, right: _Computed, node: Any) -> _Computed:
    one, other = left.type, right.type
    assert isinstance(one, DecimalType)
    assert isinstance(other, DecimalType)
    if isinstance(node, sql.Mul):
        kind = one.precision + other.precision + 1, one.scale + other.scale
    else:
        scale = max(one.scale, other.scale)
        kind = max(one.precision - one.scale, other.precision - other.scale) + scale + 1, scale
    if kind[0] > _MOST_DIGITS:
        raise _unknown(node)  # Spark gives up digits of the fraction
    result = _ARITHMETIC[type(node).__name__](left.values, right.values)
    return _Computed(result.cast(pa.decimal128(*kind)), DecimalType(*kind))


# ---- casts and functions ---------------------------------------------------------------------------


def _cast(value: _Computed, new: DataType, node: Any) -> _Computed:
    """Return values of another type; null only where the value is.

    Raises:
        Unsupported: Spark casts the types differently, or a value does not fit.
    """
    old = value.type
    if old == new:
        return value
    names = plain_name(old), plain_name(new)
    if names not in _CASTS and not (names[0] in _INTEGERS and names[1] in (*_INTEGERS, "decimal")):
        raise _unknown(node)
    if names[0] in _INTEGERS and names[1] in ("float", "double"):
        return _Computed(value.values.cast(to_arrow(new), safe=False), new)
    if names == ("double", "float"):
        return _Computed(value.values.cast(pa.float32(), safe=False), new)
    if names == ("timestamp_ntz", "string"):
        text = convert_values(value.values, old, new)
        assert text is not None
        return _Computed(pc.replace_substring(text, "T", " "), new)
    found = convert_values(value.values, old, new)
    if found is None or found.null_count > value.values.null_count:
        raise Unsupported(f"a value does not fit {new.sql}")
    return _Computed(found, new)


_CASTS = frozenset(
    [(name, "string") for name in (*_INTEGERS, "float", "double", "decimal", "boolean", "date", "timestamp_ntz")]
    + [(name, kind) for name in (*_INTEGERS, "boolean") for kind in ("float", "double")]
    + [("boolean", name) for name in _INTEGERS]
    + [("float", "double"), ("double", "float"), ("decimal", "double"), ("date", "timestamp_ntz")]
)
"""The casts besides those between integers and from integers to decimals."""


def _concat(evaluator: _Evaluator, node: Any) -> _Computed:
    parts = [evaluator.value(each) for each in node.expressions]
    if any(part.type != STRING for part in parts):
        raise _unknown(node)
    return _Computed(pc.binary_join_element_wise(*(part.values for part in parts), ""), STRING)


def _replace(evaluator: _Evaluator, node: Any) -> _Computed:
    value, words = evaluator.value(node.this), (node.expression, node.args.get("replacement"))
    if value.type != STRING or not all(
        isinstance(each, sql.Literal) and each.is_string and each.name for each in words
    ):
        raise _unknown(node)
    return _Computed(pc.replace_substring(value.values, *(each.name for each in words)), STRING)


def _unix_micros(evaluator: _Evaluator, node: Any) -> _Computed:
    value = evaluator.value(node.this)
    if plain_name(value.type) != "timestamp":
        raise _unknown(node)
    return _Computed(value.values.cast(pa.int64()), LONG)


def _unix_date(evaluator: _Evaluator, node: Any) -> _Computed:
    value = evaluator.value(node.this)
    if plain_name(value.type) != "date":
        raise _unknown(node)
    return _Computed(value.values.cast(pa.int32()), INTEGER)


def _timestamp_add(evaluator: _Evaluator, node: Any) -> _Computed:
    """Return microseconds since 1970 as times without a zone: only this form is known."""
    start, value = node.this, evaluator.value(node.expression)
    is_epoch = isinstance(start, sql.Cast) and start.this.name == "1970-01-01 00:00:00"
    is_epoch = is_epoch and start.to.this is sql.DataType.Type.TIMESTAMPNTZ
    if not is_epoch or value.type != LONG or str(node.args.get("unit")).upper() != "MICROSECOND":
        raise _unknown(node)
    return _Computed(value.values.cast(pa.timestamp("us")), TIMESTAMP_NTZ)


def _timestamp_seconds(evaluator: _Evaluator, node: Any) -> _Computed:
    [argument] = node.expressions
    value = evaluator.value(argument)
    if value.type != LONG:
        raise _unknown(node)
    timestamp = parse_type("timestamp")
    return _Computed(pc.multiply_checked(value.values, 1_000_000).cast(to_arrow(timestamp)), timestamp)


def _base64(evaluator: _Evaluator, node: Any) -> _Computed:
    value = evaluator.value(node.this)
    if plain_name(value.type) != "binary":
        raise _unknown(node)
    texts = [None if each is None else b64encode(each).decode() for each in value.values.to_pylist()]
    if any(each is not None and len(each) > _LINE for each in texts):
        raise _unknown(node)  # some versions of Spark break such lines
    return _Computed(pa.array(texts, pa.string()), STRING)


_LINE = 76

_FUNCTIONS: Mapping[str, Callable[[_Evaluator, Any], _Computed]] = {
    "Concat": _concat,
    "Replace": _replace,
    "UnixMicros": _unix_micros,
    "UnixDate": _unix_date,
    "TimestampAdd": _timestamp_add,
    "timestamp_seconds": _timestamp_seconds,
    "ToBase64": _base64,
}
"""The functions by the names of sqlglot's classes, or as they are written."""
