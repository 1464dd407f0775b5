"""Conditions in Spark SQL on the forms of records: whether a record deletes the row of its key, as the proof finds it.

It has a parser and an evaluation of its own, and shares nothing with the writer. Where two settings of Spark give
different results, or where the column may hold another value than the record says, it leaves the answer to Spark.

Source: Spark SQL, "NULL Semantics", "ANSI Compliance", "NaN Semantics"; docs/guide/keys.md
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

from msgspec.msgpack import Ext

from widen.model.column_path import Path, fold_path
from widen.model.types import STRING, DataType, DecimalType, Field, StructType, is_same_name
from widen.model.value_classes import dataclass
from widen.proof.canonical import EXACT_WHOLE, LONG_NUMBER, Form
from widen.proof.json_reader import Json, NumberToken
from widen.protocol.column_metadata import COLLATIONS
from widen.schema.source_metadata import FORM, role_of, source_key, source_keys

Condition: TypeAlias = Callable[[Form], "bool | None"]
"""Returns whether a condition is true, false or null for a form; raises `Undecided` where only Spark can tell."""


class Undecided(Exception):
    """A value is not one that the column of the condition holds as it is."""


class UnsupportedCondition(Exception):
    """Only Spark evaluates the condition."""


NO_KINDS: Mapping[Path, str | None] = MappingProxyType({})


def build_condition(text: str, schema: StructType, kinds: Mapping[Path, str | None] = NO_KINDS) -> Condition:
    """Return what evaluates a condition on the forms of records.

    Args:
        kinds: The kinds of the values of fields without a column, by their folded names, which a form has at
            `EXCLUDED` in this order; None for null.

    Raises:
        UnsupportedCondition: it has more than columns, constants, comparisons, LIKE, IN, BETWEEN, IS, AND, OR and NOT.

    Example:
        >>> from widen.model.types import INTEGER
        >>> build_condition("v = 5.5 OR v > 6", StructType((Field("v", INTEGER),)))({"v": 5})
        False
    """
    try:
        return _Parser(text, schema, kinds).parse()
    except RecursionError as error:
        raise UnsupportedCondition(_TOO_MUCH) from error


_TOO_MUCH = "the condition of deletions is not a comparison of columns with constants"


def _refuse() -> NoReturn:
    raise UnsupportedCondition(_TOO_MUCH)


# ---- values ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Operand:
    """A column or a constant.

    Args:
        kind: Its type; all integers, decimals and doubles have the kinds ``integer``, ``decimal`` and ``double``.
        size: The digits before and after the point, for exact numbers.
        bits: The bits of a value without its sign, for columns of integers.
        constant: The value of a constant; None for columns.
    """

    kind: str
    read: Callable[[Form], Any]
    size: tuple[int, int] = (0, 0)
    bits: int = 0
    constant: Any = None


def _constant(kind: str, value: Any, size: tuple[int, int] = (0, 0)) -> _Operand:
    return _Operand(kind, lambda _: value, size, constant=value)


_NULL = _constant("null", None)
_INTEGER_BITS: Mapping[str, int] = MappingProxyType({"byte": 7, "short": 15, "integer": 31, "long": 63})
_DIGITS: Mapping[str, int] = MappingProxyType({"byte": 3, "short": 5, "integer": 10, "long": 20})
_MAX_DIGITS = 38
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(Z|\+00:00)?", re.ASCII)
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_SHORT_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?", re.ASCII)


def _time(text: str, *, has_zone: bool) -> str | None:
    """Return a time as a text that sorts as times do; None if it is not a time, or if its zone depends on a session."""
    match = _TIME.fullmatch(text)
    if match is None or has_zone is not bool(match[4]):
        return None
    try:
        datetime.fromisoformat(f"{match[1]}T{match[2]}")
    except ValueError:
        return None
    return f"{match[1]}T{match[2]}.{(match[3] or '').rstrip('0')}"


def _day(text: str) -> str | None:
    try:
        return date.fromisoformat(text).isoformat() if _DAY.fullmatch(text) else None
    except ValueError:
        return None


def _read_string(form: Form) -> str:
    if not isinstance(form, str):
        raise Undecided
    return form


def _read_boolean(form: Form) -> bool:
    if not isinstance(form, bool):
        raise Undecided
    return form


def _read_double(form: Form) -> float:
    if isinstance(form, Ext) and form.code == LONG_NUMBER and bytes(form.data) in (b"NaN", b"Infinity", b"-Infinity"):
        return float(bytes(form.data))
    if type(form) is float or (type(form) is int and abs(form) <= EXACT_WHOLE):
        return float(form)
    raise Undecided


def _read_day(form: Form) -> str:
    day = _day(form) if isinstance(form, str) else None
    if day is None:
        raise Undecided
    return day


def _read_time(form: Form, *, has_zone: bool) -> str:
    time = _time(form, has_zone=has_zone) if isinstance(form, str) else None
    if time is None:
        raise Undecided
    return time


def _read_integer(form: Form, bits: int) -> int:
    if type(form) is not int or not -(2**bits) <= form < 2**bits:
        raise Undecided
    return form


def _read_decimal(form: Form, data_type: DecimalType) -> Decimal:
    if isinstance(form, Ext) and form.code == LONG_NUMBER:
        number = Decimal(bytes(form.data).decode())
    elif type(form) in (int, float):
        number = Decimal(repr(form))
    else:
        raise Undecided
    limit = Decimal(10) ** (data_type.precision - data_type.scale)
    if not number.is_finite() or abs(number) >= limit or number != number.quantize(Decimal(1).scaleb(-data_type.scale)):
        raise Undecided
    return number


_READERS: Mapping[str, Callable[[Form], Any]] = MappingProxyType(
    {
        "string": _read_string,
        "boolean": _read_boolean,
        "double": _read_double,
        "date": _read_day,
        "timestamp": lambda form: _read_time(form, has_zone=True),
        "timestamp_ntz": lambda form: _read_time(form, has_zone=False),
    }
)


def _column(names: Sequence[str], schema: StructType) -> _Operand:
    """Return a column, which is the only one of its field, or has only a column of texts beside it.

    A field that has no column yet is null.

    Raises:
        UnsupportedCondition: the field also has other columns, or its values are not scalars.
    """
    path: list[str] = []
    found: DataType = schema
    has_texts = False
    for at, name in enumerate(names):
        fields = found.fields if isinstance(found, StructType) else ()
        field = _named(fields, name)
        if field is None and isinstance(found, StructType) and name.upper() not in _VARIABLES:
            return _missing((*path, *names[at:]))
        others = [] if field is None else _beside(field, fields)
        if field is None or not all(map(_is_plain, (field, *others))):
            _refuse()
        has_texts = [each.type for each in others] == [STRING] and _is_number(field.type)
        if others and not has_texts:
            _refuse()
        path.append(source_key(field))
        found = field.type
    name = str(found)

    def read(form: Form) -> Any:
        for key in path:
            if form is not None and not isinstance(form, dict):
                raise Undecided
            form = None if form is None else form.get(key)
        # A text is in the column beside this one.
        return None if form is None or (has_texts and isinstance(form, str)) else convert(form)

    if isinstance(found, DecimalType):
        decimal, size = found, (found.precision - found.scale, found.scale)
        convert: Callable[[Form], Any] = lambda form: _read_decimal(form, decimal)  # noqa: E731
        return _Operand("decimal", read, size)
    if name in _INTEGER_BITS:
        bits = _INTEGER_BITS[name]
        convert = lambda form: _read_integer(form, bits)  # noqa: E731
        return _Operand("integer", read, (_DIGITS[name], 0), bits)
    if name not in _READERS:
        _refuse()
    convert = _READERS[name]
    return _Operand(name, read)


_VARIABLES = frozenset(
    {"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_CATALOG", "CURRENT_DATABASE"}
    | {"CURRENT_SCHEMA", "CURRENT_USER", "SESSION_USER", "USER", "GROUPING__ID"}
)
"""Functions of Spark that need no parentheses, unless a column has the name."""


EXCLUDED = "\0"
"""The key of a form for the values of fields that are excluded: no field of a source has this name."""


def _excluded(at: int, kind: str | None) -> _Operand:
    """Return an excluded field, whose value is of the kind that the record itself says."""
    if kind is None:
        return _NULL
    size, bits = ((_DIGITS["long"], 0), 63) if kind == "integer" else ((0, 0), 0)
    return _Operand(kind, lambda form: form[EXCLUDED][at], size, bits)


class ExcludedCondition:
    """Tells of records whether they delete, by a condition on fields that the load excludes."""

    def __init__(self, text: str, schema: StructType, excluded: Sequence[Path]) -> None:
        self._text, self._schema, self._excluded = text, schema, excluded
        self._conditions: dict[tuple[str | None, ...], Condition | None] = {}

    def test(self, record: Mapping[str, Json], form: Form) -> bool | None:
        """Return whether a record deletes; None if that cannot be told."""
        found = [_typed(_value_at(record, path)) for path in self._excluded]
        kinds = tuple(kind for kind, _ in found)
        if kinds not in self._conditions:
            self._conditions[kinds] = self._build(kinds)
        condition = self._conditions[kinds]
        if condition is None or not isinstance(form, dict):
            return None
        try:
            return bool(condition({**form, EXCLUDED: [value for _, value in found]}))
        except Undecided:
            return None

    def _build(self, kinds: Sequence[str | None]) -> Condition | None:
        if _NESTED in kinds:
            return None
        try:
            by_path = dict(zip(map(fold_path, self._excluded), kinds, strict=True))
            return build_condition(self._text, self._schema, by_path)
        except UnsupportedCondition:
            return None


_NESTED = "nested"


def _value_at(record: Json, path: Path) -> Json:
    value = record
    for name in path:
        if not isinstance(value, dict):
            return None
        found = value.get(name)
        in_any_case = (each for key, each in value.items() if each is not None and is_same_name(key, name))
        value = found if found is not None else next(in_any_case, None)
    return value


def _typed(value: Json) -> tuple[str | None, Any]:
    """Return the kind of a value, and the value as conditions compare it."""
    if isinstance(value, NumberToken):
        is_long = _ANY_WHOLE.fullmatch(value) and -(2**63) <= int(value) < 2**63
        return ("integer", int(value)) if is_long else ("double", float(value))
    if isinstance(value, bool):
        return "boolean", value
    if value is None or type(value) is str:
        return None if value is None else "string", value
    return _NESTED, None


_ANY_WHOLE = re.compile(r"-?\d+", re.ASCII)


def _missing(path: Sequence[str]) -> _Operand:
    def read(form: Form) -> None:
        for key in path:
            form = form.get(key) if isinstance(form, dict) else None
        if form is not None:
            raise Undecided

    return _Operand("null", read)


def _named(fields: Sequence[Field], name: str) -> Field | None:
    """Return the column of a field of the source, which may have another name, or else the column of that name."""
    ranks = [(rank, at) for at, each in enumerate(fields) if (rank := _rank(each, name)) is not None]
    return fields[min(ranks)[1]] if ranks else None


def _rank(field: Field, name: str) -> int | None:
    """Return how well a name stands for a field, the best first; None if it does not."""
    own, *others = source_keys(field)
    if name in (own, *others):
        return 0 if name == own else 1
    if is_same_name(field.name, name):
        return 2
    return 3 if any(is_same_name(key, name) for key in (own, *others)) else None


def _beside(field: Field, fields: Sequence[Field]) -> list[Field]:
    """Return the other columns of the same field."""
    return [each for each in fields if each is not field and is_same_name(source_key(each), source_key(field))]


def _is_plain(field: Field) -> bool:
    # A column of texts for all kinds has other texts than the record, and a collation compares otherwise.
    return role_of(field) is None and field.metadata.keys().isdisjoint((COLLATIONS, FORM))


def _is_number(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or str(data_type) in (*_INTEGER_BITS, "boolean", "double")


# ---- comparisons -----------------------------------------------------------------------------------

_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {"=": eq, "==": eq, "<>": ne, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
)
_NUMBERS = ("integer", "decimal", "double")

Convert: TypeAlias = Callable[[Any], Any]


def _keep(value: Any) -> Any:
    return value


def _order_of_double(value: Any) -> tuple[bool, float]:
    """Return what compares doubles: NaN equals itself, and nothing is greater; zero has no sign."""
    number = float(value)
    return (True, 0.0) if number != number else (False, number)


def _conversions(left: _Operand, right: _Operand) -> tuple[Convert, Convert]:
    """Return what brings the values of two sides to the type that Spark compares."""
    kinds = left.kind, right.kind
    if "string" in kinds and kinds != ("string", "string"):
        if left.kind == "string":
            return _from_string(left, right), _order_of_double if right.kind == "double" else _keep
        return _order_of_double if left.kind == "double" else _keep, _from_string(right, left)
    if set(kinds) <= {*_NUMBERS}:
        if "double" in kinds:
            return _order_of_double, _order_of_double
        # Spark takes a null integer for one that is within 64 bits, where it compares it with a longer constant.
        sides = {each.kind: each.constant for each in (left, right)}
        is_beyond = kinds[0] != kinds[1] and abs(sides["decimal"] or 0) >= 2**63
        # Beyond that, Spark compares in a type with fewer digits.
        if is_beyond or sum(map(max, left.size, right.size)) > _MAX_DIGITS:
            _refuse()
        return _keep, _keep
    if left.kind != right.kind or left.kind == "null":
        _refuse()
    return _keep, _keep


def _from_string(text: _Operand, other: _Operand) -> Convert:
    """Return what brings a text to the type of the other side; texts that settings of Spark read otherwise are left
    to it: a text that is not a number is an error for one, null for the other.
    """
    readers: dict[str, Callable[[str], Any]] = {
        "integer": lambda value: _whole(value, other.bits or 31),
        "double": _short_number,
        "date": _day,
        "timestamp": lambda value: _time(value, has_zone=True),
        "timestamp_ntz": lambda value: _time(value, has_zone=False),
    }
    read = readers.get(other.kind)
    if read is None or (text.constant is not None and read(text.constant) is None):
        _refuse()

    def convert(value: str) -> Any:
        converted = read(value)
        if converted is None:
            raise Undecided
        return converted

    return convert


def _whole(text: str, bits: int) -> int | None:
    number = int(text) if _WHOLE.fullmatch(text) else None
    return number if number is not None and -(2**bits) <= number < 2**bits else None


def _short_number(text: str) -> tuple[bool, float] | None:
    return _order_of_double(text) if _SHORT_NUMBER.fullmatch(text) else None


def _compare(sign: str, left: _Operand, right: _Operand) -> Condition:
    if "null" in (left.kind, right.kind):
        return _nothing([each for each in (left, right) if each.kind == "null"])
    compare, (convert_left, convert_right) = _SIGNS[sign], _conversions(left, right)

    def test(form: Form) -> bool | None:
        one, other = left.read(form), right.read(form)
        return None if one is None or other is None else compare(convert_left(one), convert_right(other))

    return test


def _nothing(operands: Sequence[_Operand]) -> Condition:
    """Return null for each form; operands without a column must have no value."""

    def test(form: Form) -> None:
        for each in operands:
            each.read(form)

    return test


def _is_same(left: _Operand, right: _Operand) -> Condition:
    """Return whether two values are equal, or both null."""
    is_equal = _compare("=", left, right)
    return lambda form: is_equal(form) is True or (left.read(form) is None and right.read(form) is None)


def _like(column: _Operand, pattern: str) -> Condition:
    if column.kind not in ("string", "null"):
        _refuse()
    parts = [{"%": ".*", "_": "."}.get(char) or re.escape(char) for char in pattern]
    matches = re.compile("".join(parts), re.DOTALL).fullmatch

    def test(form: Form) -> bool | None:
        value = column.read(form)
        return None if value is None else matches(value) is not None

    return test


def _not(test: Condition) -> Condition:
    def negated(form: Form) -> bool | None:
        result = test(form)
        return None if result is None else not result

    return negated


def _all(tests: Sequence[Condition]) -> Condition:
    def test(form: Form) -> bool | None:
        results = [each(form) for each in tests]
        return False if False in results else None if None in results else True

    return test


def _any(tests: Sequence[Condition]) -> Condition:
    def test(form: Form) -> bool | None:
        results = [each(form) for each in tests]
        return True if True in results else None if None in results else False

    return test


# ---- the parser ------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?P<suffix>[A-Za-z_]\w*)?
    |(?P<name>[^\W\d]\w*)
    |`(?P<quoted>[^`]+)`(?!`)
    |'(?P<text>[^'\\]*)'(?!')
    |"(?P<double>[^"\\]*)"(?!")
    |(?P<sign><=>|<=|>=|<>|!=|==|--|[=<>(),.!+-])
    |(?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class _Token:
    """A part of the text of a condition: its kind, which is the word itself for words and signs, and its text."""

    kind: str
    text: str
    suffix: str = ""


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while not tokens or tokens[-1].kind != "end":
        match = _TOKEN.match(text, at)
        if match is None:
            _refuse()
        at, group = match.end(), match.lastgroup
        if match["number"] is not None:
            tokens.append(_Token("number", match["number"], (match["suffix"] or "").upper()))
        elif group == "name":
            tokens.append(_Token(match["name"].upper(), match["name"]))
        elif group in ("text", "double"):
            tokens.append(_Token("text", match[group]))
        else:
            assert group is not None
            tokens.append(_Token(match["sign"] if group == "sign" else group, match[group]))
    return tokens


_RESERVED = frozenset(
    {"AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "TRUE", "FALSE", "DISTINCT", "FROM"}
    | {"LIKE", "ILIKE", "RLIKE", "REGEXP", "CASE", "CAST", "INTERVAL", "EXISTS"}
)


class _Parser:
    """Reads a condition from left to right: OR binds least, then AND, NOT, and comparisons."""

    def __init__(self, text: str, schema: StructType, kinds: Mapping[Path, str | None]) -> None:
        self._tokens, self._at, self._schema, self._kinds = _tokens(text), 0, schema, kinds

    def parse(self) -> Condition:
        condition = self._or()
        if not self._takes("end"):
            _refuse()
        return condition

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _takes(self, *kinds: str) -> bool:
        """Return whether the next tokens are of these kinds, and go past them if they are."""
        is_next = [token.kind for token in self._tokens[self._at : self._at + len(kinds)]] == [*kinds]
        self._at += len(kinds) if is_next else 0
        return is_next

    def _expect(self, kind: str) -> str:
        token = self._next
        if not self._takes(kind):
            _refuse()
        return token.text

    def _or(self) -> Condition:
        tests = [self._and()]
        while self._takes("OR"):
            tests.append(self._and())
        return tests[0] if len(tests) == 1 else _any(tests)

    def _and(self) -> Condition:
        tests = [self._negated()]
        while self._takes("AND"):
            tests.append(self._negated())
        return tests[0] if len(tests) == 1 else _all(tests)

    def _negated(self) -> Condition:
        if self._takes("NOT"):
            return _not(self._negated())
        start = self._at
        try:
            return self._comparison()
        except UnsupportedCondition:
            # What begins with a parenthesis is a condition in it, or a column or constant.
            self._at = start
            if not self._takes("("):
                raise
        inner = self._or()
        self._expect(")")
        if self._next.kind not in ("AND", "OR", ")", "end"):
            _refuse()
        return inner

    def _comparison(self) -> Condition:
        left = self._operand()
        if self._takes("IS"):
            return self._is(left)
        is_negated = self._takes("NOT")
        test = self._test(left)
        if test is None:
            if is_negated or left.kind not in ("boolean", "null"):
                _refuse()
            test = left.read
        return _not(test) if is_negated else test

    def _test(self, left: _Operand) -> Condition | None:
        """Return what follows the left side of a comparison, None if nothing does."""
        if self._takes("BETWEEN"):
            low = self._operand()
            self._expect("AND")
            return _all([_compare(">=", left, low), _compare("<=", left, self._operand())])
        if self._takes("IN", "("):
            items = [self._operand()]
            while self._takes(","):
                items.append(self._operand())
            self._expect(")")
            kinds = {each.kind for each in (left, *items)} - {"null"}
            # Spark compares all of them in one type, which for a text and a number depends on its settings.
            if len(kinds) > 1 and not (kinds <= {*_NUMBERS} or kinds == {"date", "string"}):
                _refuse()
            return _any([_compare("=", left, each) for each in items])
        if self._takes("LIKE"):
            return _like(left, self._expect("text"))
        sign = self._next.kind
        if self._takes("<=>"):
            return _is_same(left, self._operand())
        if sign in _SIGNS:
            self._at += 1
            return _compare(sign, left, self._operand())
        return None

    def _is(self, left: _Operand) -> Condition:
        is_negated = self._takes("NOT")
        if self._takes("NULL"):
            test: Condition = lambda form: left.read(form) is None  # noqa: E731
        elif self._takes("DISTINCT", "FROM"):
            test = _not(_is_same(left, self._operand()))
        elif self._next.kind in ("TRUE", "FALSE") and left.kind in ("boolean", "null"):
            wanted = self._next.kind == "TRUE"
            self._at += 1
            test = lambda form: left.read(form) is wanted  # noqa: E731
        else:
            _refuse()
        return _not(test) if is_negated else test

    def _operand(self) -> _Operand:
        token = self._next
        if self._takes("("):
            inner = self._operand()
            self._expect(")")
            return inner
        if self._takes("-"):
            return self._negative()
        if self._takes("number"):
            return _number(token)
        if self._takes("text"):
            return _constant("string", token.text)
        if self._takes("NULL"):
            return _NULL
        if self._takes("TRUE") or self._takes("FALSE"):
            return _constant("boolean", token.kind == "TRUE")
        for word, kind in _TYPED.items():
            if self._takes(word, "text"):
                value = _TYPED_READERS[kind](self._tokens[self._at - 1].text)
                return _refuse() if value is None else _constant(kind, value)
        names = self._names()
        if fold_path(tuple(names)) in self._kinds:
            return _excluded(list(self._kinds).index(fold_path(tuple(names))), self._kinds[fold_path(tuple(names))])
        return _column(names, self._schema)

    def _negative(self) -> _Operand:
        found = self._operand()
        if found.constant is None or found.kind not in _NUMBERS:
            _refuse()
        return _constant(found.kind, -found.constant, found.size)

    def _names(self) -> list[str]:
        names = [self._name()]
        while self._takes("."):
            names.append(self._name())
        if self._next.kind == "(":
            _refuse()  # a function
        return names

    def _name(self) -> str:
        token = self._next
        self._at += 1
        if token.kind != "quoted" and (token.kind in _RESERVED or token.kind != token.text.upper() or not token.text):
            _refuse()
        if token.kind != "quoted" and not (token.text[0].isalpha() or token.text[0] == "_"):
            _refuse()
        return token.text


_TYPED: Mapping[str, str] = MappingProxyType(
    {"DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMP_LTZ": "timestamp", "TIMESTAMP_NTZ": "timestamp_ntz"}
)
_TYPED_READERS: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {
        "date": _day,
        "timestamp": lambda text: _time(text, has_zone=True),
        "timestamp_ntz": lambda text: _time(text, has_zone=False),
    }
)
_SUFFIXES: Mapping[str, int] = MappingProxyType({"Y": 7, "S": 15, "L": 63})


def _number(token: _Token) -> _Operand:
    """Return a number: an integer or a decimal, or with an exponent a double."""
    text, suffix = token.text, token.suffix
    if suffix == "D" or ("e" in text.lower() and not suffix):
        return _constant("double", float(text))
    if suffix not in ("", "BD", *_SUFFIXES) or (suffix in _SUFFIXES and not text.isdecimal()) or "e" in text.lower():
        _refuse()
    before, _, after = text.partition(".")
    size = len(before.lstrip("0")), len(after)
    value = Decimal(text)
    if sum(size) > _MAX_DIGITS or value >= 2 ** _SUFFIXES.get(suffix, 200):
        _refuse()
    kind = "integer" if text.isdecimal() and suffix != "BD" and value < 2**63 else "decimal"
    return _constant(kind, int(value) if kind == "integer" else value, size)
