"""The grammar of the statements, as data, and their tokens. The parser and the error messages use the same forms.

Uppercase words are keywords, lowercase words are rules; the notation is Lark's. sqlglot, which supports the Spark
dialect, parses most forms of ALTER TABLE as one opaque string; therefore Widen has its own grammar.

Source: Spark's ALTER TABLE, CREATE TABLE and DESCRIBE; Delta Lake's constraints, features, DETAIL, HISTORY, RESTORE,
    VACUUM and OPTIMIZE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from itertools import pairwise

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from sqlglot import Dialect
from sqlglot.errors import SqlglotError

from widen.errors import InvalidStatement
from widen.model.schema_json import LITERAL
from widen.model.types import name_key, quote_name
from widen.model.value_classes import dataclass
from widen.sql_commands.statements import ROW_FORMS, TableReference

FORMS: Mapping[str, str] = {
    "alter_columns": 'ALTER TABLE table (ALTER | CHANGE) [COLUMN] change ("," change)*',
    "change_column": "ALTER TABLE table CHANGE [COLUMN] column name type (comment | first | after)*",
    "sync_identity": "ALTER TABLE table (ALTER | CHANGE) [COLUMN] column SYNC IDENTITY",
    "rename_column": "ALTER TABLE table RENAME COLUMN column TO name",
    "add_columns": 'ALTER TABLE table ADD (COLUMN | COLUMNS) (additions | "(" additions ")")',
    "drop_columns": 'ALTER TABLE table DROP (COLUMN | COLUMNS) [if_exists] (columns | "(" columns ")")',
    "replace_columns": 'ALTER TABLE table REPLACE COLUMNS "(" replacement ("," replacement)* ")"',
    "set_properties": "ALTER TABLE table SET TBLPROPERTIES properties",
    "unset_properties": 'ALTER TABLE table UNSET TBLPROPERTIES [if_exists] "(" key ("," key)* ")"',
    "cluster_by": 'ALTER TABLE table CLUSTER BY "(" columns ")"',
    "cluster_by_none": "ALTER TABLE table CLUSTER BY NONE",
    "add_constraint": 'ALTER TABLE table ADD CONSTRAINT name CHECK "(" condition ")"',
    "drop_constraint": "ALTER TABLE table DROP CONSTRAINT [if_exists] name",
    "drop_feature": "ALTER TABLE table DROP FEATURE feature [truncate_history]",
    "add_partition_field": "ALTER TABLE table ADD PARTITION FIELD partition_field",
    "drop_partition_field": "ALTER TABLE table DROP PARTITION FIELD partition_field",
    "replace_partition_field": "ALTER TABLE table REPLACE PARTITION FIELD partition_field WITH partition_field",
    "write_ordered": 'ALTER TABLE table WRITE ORDERED BY sort_key ("," sort_key)*',
    "write_unordered": "ALTER TABLE table WRITE UNORDERED",
    "create_branch": "ALTER TABLE table CREATE BRANCH name [at_version] [retain_days]",
    "create_tag": "ALTER TABLE table CREATE TAG name [at_version] [retain_days]",
    "drop_branch": "ALTER TABLE table DROP BRANCH name",
    "drop_tag": "ALTER TABLE table DROP TAG name",
    "fast_forward": "ALTER TABLE table FAST FORWARD name TO name",
    "rewrite": "REWRITE place",
    "comment_on_table": "COMMENT ON TABLE table IS (text | NULL)",
    "create_table": "CREATE TABLE [if_not_exists] table definitions [using] clause*",
    "restore": "RESTORE [TABLE] table [TO] [FOR] (version | timestamp)",
    "create_table_as": "CREATE TABLE [if_not_exists] table [using] clause* AS QUERY",
    "vacuum": "VACUUM place [FULL] [RETAIN hours HOURS] [dry_run]",
    "optimize": "OPTIMIZE place [WHERE predicate] [ZORDER BY zorder]",
    "describe_detail": "(DESCRIBE | DESC) DETAIL place",
    "describe_history": "(DESCRIBE | DESC) HISTORY place [LIMIT number]",
    "describe_table": "(DESCRIBE | DESC) [TABLE] [extended] table",
    "show_properties": 'SHOW TBLPROPERTIES table ["(" key ")"]',
}
"""The form of every supported statement."""

PARTS: Mapping[str, str] = {
    "change": "column action+",
    "?action": "set_type | comment | set_not_null | drop_not_null | first | after | set_default | drop_default"
    " | set_source | drop_source",
    "set_type": "TYPE type",
    "comment": "COMMENT text",
    "set_not_null": "SET NOT NULL",
    "drop_not_null": "DROP NOT NULL",
    "first": "FIRST",
    "after": "AFTER name",
    "set_default": "SET DEFAULT expression",
    "drop_default": "DROP DEFAULT",
    "set_source": "SET SOURCE source",
    "drop_source": "DROP SOURCE source",
    "?source": "name | text",
    "additions": 'addition ("," addition)*',
    "addition": "column type (not_null | comment | default | first | after)*",
    "not_null": "NOT NULL",
    "default": "DEFAULT expression",
    "columns": 'column ("," column)*',
    "replacement": "name type (not_null | comment)*",
    "properties": '"(" property ("," property)* ")"',
    "property": 'key ["="] value',
    "?feature": "name | text",
    "definitions": '"(" definition ("," definition)* ")"',
    "definition": "name type (not_null | comment | default | generated | identity | explicit_identity)*",
    "generated": 'GENERATED ALWAYS AS "(" enclosed ")"',
    "identity": "GENERATED ALWAYS AS IDENTITY [sequence]",
    "explicit_identity": "GENERATED BY DEFAULT AS IDENTITY [sequence]",
    "sequence": '"(" (start_with | increment_by)* ")"',
    "start_with": "START WITH integer",
    "increment_by": "INCREMENT BY integer",
    "?clause": "partitioned_by | clustered_by | location | comment | table_properties",
    "using": "USING (delta | iceberg)",
    "delta": "DELTA",
    "iceberg": "ICEBERG",
    "partitioned_by": 'PARTITIONED BY "(" partition_field ("," partition_field)* ")"',
    "clustered_by": 'CLUSTER BY "(" columns ")"',
    "at_version": "AS OF VERSION number",
    "retain_days": "RETAIN number DAYS",
    "?direction": "ascending | descending",
    "ascending": "ASC",
    "descending": "DESC",
    "?nulls": "nulls_first | nulls_last",
    "nulls_first": "NULLS FIRST",
    "nulls_last": "NULLS LAST",
    "sort_key": "column [direction] [nulls]",
    "location": "LOCATION text",
    "table_properties": "TBLPROPERTIES properties",
    "version": "VERSION AS OF number",
    "timestamp": "TIMESTAMP AS OF text",
    "?place": "table | path",
    "path": "text",
    "?zorder": 'columns | "(" columns ")"',
    "dry_run": "DRY RUN",
    "if_exists": "IF EXISTS",
    "if_not_exists": "IF NOT EXISTS",
    "truncate_history": "TRUNCATE HISTORY",
    "extended": "EXTENDED | FORMATTED",
}
"""The rules that the forms refer to; a rule with a question mark is inlined in the tree."""

QUOTED = r"`(?:[^`]|``)+`"
REMARK = r"--[^\r\n]*|\/\*[\s\S]*?\*\/"

# The contextual lexer accepts every keyword that can follow a rule anywhere in the grammar. So the name of a table and
# other names have separate rules, and words in parentheses are never keywords.
_LEAVES = r"""
partition_field: column | name "(" [INTEGER ","] column ")"
table: _table_name ("." _table_name)*
column: name ("." name)*
key: name ("." name)* | LITERAL
value: text | INTEGER | DECIMAL | NAME
text: LITERAL+
number: INTEGER
hours: INTEGER | DECIMAL
predicate: _inside+
integer: [MINUS] INTEGER
name: NAME | QUOTED
_table_name: NAME | QUOTED
type: NAME ["(" INTEGER ("," INTEGER)* ")"] | NAME "<" [_parameter ("," _parameter)*] ">"
_parameter: type | name [":"] type [_NOT _NULL] [_COMMENT text]
expression: _token+
enclosed: _inside+
condition: _inside+
_token: NAME | QUOTED | LITERAL | INTEGER | DECIMAL | OPERATOR | MINUS | IS_NOT | LEFT _inside* RIGHT
_inside: NAME | QUOTED | LITERAL | INTEGER | DECIMAL | OPERATOR | MINUS | COMMA | LEFT _inside* RIGHT

NAME: /(?!\d+\b)\w+/
INTEGER: /\d+\b/
DECIMAL.1: /(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?\w*|\d+[eE][+-]\d+\w*/
MINUS: "-"
IS_NOT.3: /IS\s+NOT\b/i
OPERATOR: /<=>|<>|!=|<=|>=|==|\|\||->|=>|::|[^\w\s'"`(),;-]/
LEFT: "("
RIGHT: ")"
COMMA: ","
SPACE: /\s+/
%ignore SPACE
%ignore REMARK
"""

_WORD = re.compile(r"\b[A-Z]{2,}\b")
_NAME = re.compile(r"\b[a-z_]+\b")
_LIST = re.compile(r' \("," \w+\)\*')


def grammar() -> str:
    """Return the grammar in the syntax of Lark; the tree does not contain keywords."""
    rules = {"?statement": " | ".join(FORMS), **FORMS, **PARTS}
    words = sorted({word for form in rules.values() for word in _WORD.findall(form)})
    return "\n".join(
        (
            'start: statement ";"*',
            *(f"{name}: {_WORD.sub(lambda word: f'_{word[0]}', form)}" for name, form in rules.items()),
            _LEAVES,
            f"LITERAL.1: /{LITERAL}/",
            f"QUOTED: /{QUOTED}/",
            f"REMARK.3: /{REMARK}/",
            *(rf"_{word}.2: /{word}\b/i" for word in words),
        )
    )


# ---- for messages ----------------------------------------------------------------------------------


def format_form(form: str) -> str:
    """Return a form for messages, followed by the forms of its parts that have alternatives."""
    lines, listed = [_readable(form)], set[str]()
    for line in lines:
        for name in _NAME.findall(line):
            if name not in listed and _part(name):
                listed.add(name)
                lines.append(f"    {name}: {_readable(_part(name))}")
    return "\n".join(lines)


def _readable(form: str) -> str:
    """Return a form with parts without alternatives inlined, and lists as ``item, ...``."""
    return _NAME.sub(_in_place, _LIST.sub(", ...", form)).replace('"', "")


def _in_place(match: re.Match[str]) -> str:
    form = _part(match[0])
    return _readable(form) if form and not _offers_choice(form) else match[0]


def _part(name: str) -> str:
    return PARTS.get(name) or PARTS.get(f"?{name}", "")


def _offers_choice(form: str) -> bool:
    return "|" in form and _NAME.search(form) is not None


UNDERSTOOD: Mapping[str, str] = {name: format_form(form) for name, form in FORMS.items()}
"""Every form, formatted for messages."""


# Syntax errors: the position, the expected tokens, and the nearest form.


_LEFT, _RIGHT = 60, 40
"""The number of characters before and after the position in the excerpt."""

_CALLED: Mapping[str, str] = {
    "NAME": "a name",
    "QUOTED": "a name",
    "LITERAL": "a string in quotes",
    "INTEGER": "a number",
    "DECIMAL": "a number",
    "EXPRESSION": "an expression",
    "$END": "the end",
}
_EXPRESSION = frozenset(
    {"NAME", "QUOTED", "LITERAL", "INTEGER", "DECIMAL", "OPERATOR", "MINUS", "IS_NOT", "LEFT", "COMMA"}
)
_FIRST_WORDS = {"_ALTER", "_CREATE"}
"""Terminals that can come next only at the beginning of a statement."""

_OVER = {"$END", "SEMICOLON"}
_QUOTES = ("'", '"', "`")


def unexpected_token_message(text: str, error: UnexpectedInput, parser: Lark) -> InvalidStatement:
    """Return the error for an unexpected token."""
    token = error.token if isinstance(error, UnexpectedToken) else None
    is_end = token is not None and token.type == "$END"
    at = len(text.rstrip()) if is_end else error.pos_in_stream or 0
    word = text[at] if token is None else str(token)
    if token is None and word in _QUOTES:
        return refused_message(text, at, "this quote is not closed")
    expected = _expected_terminals(error)
    if expected <= _OVER and text[:at].rstrip().endswith(";"):
        return refused_message(text, at, "only one statement is allowed, and a second one begins here")
    first_words = {form[0] for form in _KEYWORDS.values()} if expected >= _FIRST_WORDS else set()
    choices = _list_words({_terminal_text(name, parser) for name in _join_expressions(expected)} | first_words)
    return refused_message(text, at, f"expected {choices}{'' if is_end else f', not {word!r}'}")


def refused_message(text: str, at: int, reason: str) -> InvalidStatement:
    """Return the error for a position, in characters from the start of the text."""
    start = text.rfind("\n", 0, at) + 1
    line, column = text.count("\n", 0, at) + 1, at - start + 1
    return InvalidStatement(
        reason=reason, line=line, column=column, excerpt=_excerpt(text, start, at), nearest=nearest_form(text)
    )


def nearest_form(text: str) -> str:
    """Return what to do instead of a text: a method for what SQL does not do here, else the nearest form.

    Only forms of the same statement are near: those that begin with the same word.
    """
    words = _ANY_WORD.findall(text.upper())
    method = next((method for first, method in METHODS.items() if words[: len(first)] == [*first]), None)
    option = (advice for (first, word), advice in OPTIONS.items() if words[:1] == [first] and word in words)
    if method is not None or (method := next(option, None)) is not None:
        return method
    near = [keyword for word in words for keyword in get_close_matches(word, _ALL_KEYWORDS, 1, 0.8)]
    firsts = get_close_matches(words[0], {form[0] for form in _KEYWORDS.values()}, 1, 0.7) if words else []
    matched = {name: _count_matches(near, form) for name, form in _KEYWORDS.items() if form[0] in firsts}
    best = max(matched, key=lambda name: matched[name], default="")
    if best:
        return f"The nearest form is:\n  {ALL_FORMS[best]}"
    return "\n  ".join(("Supported statements:", *(form.partition("\n")[0] for form in ALL_FORMS.values())))


ALL_FORMS: Mapping[str, str] = {**UNDERSTOOD, **ROW_FORMS}
"""Every form, formatted for messages."""

METHODS: Mapping[tuple[str, ...], str] = {
    ("REORG",): "Use Table.rewrite or widen rewrite for old types, and OPTIMIZE for deleted rows.",
    ("COPY", "INTO"): "Use widen.ingest or widen ingest --new.",
    ("CREATE", "VIEW"): "Use Table.view_sql or widen view, and run its statement in a session with Delta Lake.",
    ("CREATE", "OR", "REPLACE", "TABLE"): "Use Table.overwrite(rows, overwrite_schema=True) for an existing table.",
    ("REPLACE", "TABLE"): "Use Table.overwrite(rows, overwrite_schema=True).",
    ("DROP", "TABLE"): "Remove the directory of the table; Widen does not delete tables.",
    ("REFRESH",): "Use Table.refresh; SQL statements always read the newest version.",
    ("SHOW", "HISTORY"): "Use DESCRIBE HISTORY table.",
    ("SHOW", "COLUMNS"): "Use DESCRIBE TABLE table.",
    ("EXPLAIN",): "Use DataFrame.explain on the result of a query.",
}
"""What to do for statements that are not supported, by their first words."""

OPTIONS: Mapping[tuple[str, str], str] = {
    ("VACUUM", "LITE"): "Omit LITE: VACUUM deletes every file that no version within the retention needs.",
    (
        "CREATE",
        "CLONE",
    ): "Use CREATE TABLE … AS SELECT; Widen reads clones, but only Delta Lake creates them.",
    ("OPTIMIZE", "FULL"): "Omit FULL: it is for clustered tables. To write all files again in an order, use ZORDER BY.",
}
"""What to do for options of other engines, by the first word of the statement and the option."""


def _count_matches(words: list[str], keywords: list[str]) -> int:
    return sum(block.size for block in SequenceMatcher(None, words, keywords, autojunk=False).get_matching_blocks())


_ANY_WORD = re.compile(r"\w+")
_KEYWORDS: Mapping[str, list[str]] = {name: re.findall(r"\b[A-Z]{2,}\b", form) for name, form in ALL_FORMS.items()}
_ALL_KEYWORDS = sorted({word for keywords in _KEYWORDS.values() for word in keywords})


def _excerpt(text: str, start: int, at: int) -> str:
    """Return the part of a line around a position, with a caret below it."""
    first = max(start, at - _LEFT)
    shown = text[first : at + _RIGHT].splitlines()[:1]
    line = "".join(char if char.isprintable() else " " for char in (shown or [""])[0])
    return f"  {line}\n  {' ' * (at - first)}^"


def _expected_terminals(error: UnexpectedInput) -> set[str]:
    if isinstance(error, UnexpectedToken):
        return set(error.accepts if error.interactive_parser is not None else error.expected)
    return set(error.allowed) if isinstance(error, UnexpectedCharacters) else set()


def _join_expressions(expected: set[str]) -> set[str]:
    """Return the terminals, with EXPRESSION for all that an expression can begin with."""
    return (expected - _EXPRESSION) | {"EXPRESSION"} if "OPERATOR" in expected else expected


def _terminal_text(name: str, parser: Lark) -> str:
    if name.startswith("_"):
        return name[1:]
    return _CALLED.get(name) or repr(parser.get_terminal(name).pattern.value)


def _list_words(words: set[str]) -> str:
    """Return the words as a list in prose, keywords first."""
    *others, last = sorted(words, key=lambda word: (not word.isupper(), word))
    return f"{', '.join(others)} or {last}" if others else last


# The tokens of a statement, read from left to right; texts are cut from the statement as they stand.
#
# A statement about rows contains conditions and queries in Spark SQL. They go to Spark unchanged, so they are found by
# their tokens and never written again.
#
# Source: Spark SQL's grammar, as sqlglot reads its tokens.


_QUOTED = frozenset({"IDENTIFIER", "STRING", "RAW_STRING", "HEX_STRING", "NATIONAL_STRING"})
_OPEN = {"(": ")", "[": "]"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a statement.

    Args:
        kind: Its type, by the names of sqlglot.
        text: Its text, without quotes.
        end: The position after it.
    """

    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The token in upper case; empty for names and strings in quotes."""
        return "" if self.kind in _QUOTED else self.text.upper()

    @property
    def is_name(self) -> bool:
        """Whether it can be a name: a word, or a name in backticks."""
        return self.kind == "IDENTIFIER" or (bool(self.word) and (self.text[0].isalpha() or self.text[0] == "_"))


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text, without comments and without semicolons at its end."""
    try:
        parsed = Dialect.get_or_raise("spark").tokenize(text)
    except SqlglotError as error:
        raise refused_message(text, 0, "a quote or a comment is not closed") from error
    tokens = [Token(each.token_type.name, each.text, each.start, each.end + 1) for each in parsed]
    while tokens and tokens[-1].word == ";":
        tokens.pop()
    return tokens


def split_statements(text: str) -> list[str]:
    """Return the statements of a text, which are divided by semicolons."""
    statements, start = [], 0
    ends = [token.start for token in tokenize(text) if token.word == ";"]
    for end in [*ends, len(text)]:
        if tokenize(text[start:end]):
            statements.append(text[start:end].strip())
        start = end + 1
    return statements


class TokenReader:
    """A position in the tokens of a statement, or of a part of one.

    Args:
        end: The position where the part ends; by default the end of the statement.
    """

    def __init__(self, text: str, tokens: Sequence[Token] | None = None, end: int | None = None) -> None:
        self.text = text
        self._tokens = tokenize(text) if tokens is None else tokens
        self._end = len(text.rstrip()) if end is None else end
        self._at = 0

    @property
    def token(self) -> Token:
        """The next token; an empty one at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else Token("", "", self._end, self._end)

    @property
    def is_done(self) -> bool:
        """Whether no token is left."""
        return self._at >= len(self._tokens)

    @property
    def last_end(self) -> int:
        """The position after the token that was read last."""
        return self._tokens[self._at - 1].end if self._at else 0

    def refuse(self, reason: str, at: Token | None = None) -> Exception:
        """Return the error for a token, by default the next one."""
        return refused_message(self.text, (at or self.token).start, reason)

    def accept(self, *words: str) -> bool:
        """Read these words if they come next, and tell whether they did."""
        following = [token.word for token in self._tokens[self._at : self._at + len(words)]]
        if following != list(words):
            return False
        self._at += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Read these words."""
        for number, word in enumerate(words):
            if not self.accept(word):
                other = "" if self.is_done else f", not {self.token.text!r}"
                raise self.refuse(f"expected {' '.join(words[number:])}{other}")

    def next(self) -> Token:
        if self.is_done:
            raise self.refuse("the statement ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def name(self) -> str:
        if not self.token.is_name:
            raise self.refuse(f"expected a name, not {self.token.text!r}")
        return self.next().text

    def table(self) -> TableReference:
        """Read the name of a table."""
        parts = [self.name()]
        while self.accept("."):
            parts.append(self.name())
        return to_table_reference(tuple(parts))

    def alias(self, *stops: str) -> str | None:
        """Read an alias, with or without AS, unless one of the stop words comes next."""
        if self.accept("AS"):
            return self.name()
        return self.name() if self.token.is_name and self.token.word not in stops else None

    def until(self, *stops: str) -> str:
        """Read up to a stop word or the end, and return the text; words inside parentheses and CASE do not count."""
        start, depth, cases = self._at, 0, 0
        while not self.is_done:
            word = self.token.word
            if not depth and not cases and word in stops:
                break
            depth += (word in _OPEN) - (word in _OPEN.values())
            cases += (word == "CASE") - (word == "END" and cases > 0)
            self._at += 1
        if start == self._at:
            raise self.refuse("expected an expression")
        return self.text[self._tokens[start].start : self._tokens[self._at - 1].end]

    def enclosed(self) -> str:
        """Read a group in parentheses, and return what is inside."""
        self.expect("(")
        inside = self.until(")")
        self.expect(")")
        return inside

    def group(self) -> TokenReader:
        """Read a group in parentheses, and return a reader of what is inside."""
        self.expect("(")
        inside = self._part(")")
        self.expect(")")
        return inside

    def items(self, *stops: str) -> list[TokenReader]:
        """Read a list up to a stop word or the end, and return a reader of each item."""
        items = [self._part(",", *stops)]
        while self.accept(","):
            items.append(self._part(",", *stops))
        return items

    def _part(self, *stops: str) -> TokenReader:
        start = self._at
        self.until(*stops)
        return TokenReader(self.text, self._tokens[start : self._at], self.last_end)

    def find_subquery(self) -> Token | None:
        """Return the first word of a query in parentheses in what is left; None without such a query."""
        left = self._tokens[self._at :]
        return next(
            (word for before, word in pairwise(left) if before.word == "(" and word.word in ("SELECT", "WITH")), None
        )

    def rest(self) -> str:
        """Read and return everything that is left."""
        return self.until()

    def end(self) -> None:
        """Check that nothing is left."""
        if not self.is_done:
            raise self.refuse(f"expected the end, not {self.token.text!r}")

    def peek_after_group(self) -> str:
        """Return the first word after the group in parentheses that comes next; empty without such a word."""
        at = self._at
        self.enclosed()
        word = self.token.word
        self._at = at
        return word


def to_table_reference(parts: tuple[str, ...]) -> TableReference:
    """Return the name of a table from its parts."""
    is_path = len(parts) == 2 and parts[0].lower() == TableReference.DELTA
    return TableReference((TableReference.DELTA, parts[1]) if is_path else parts)


def split_list(text: str) -> list[str]:
    """Return the items of a list; commas inside parentheses do not count."""
    return [item.rest() for item in TokenReader(text).items()]


def table_qualifiers(parts: tuple[str, ...], alias: str = "") -> dict[tuple[str, ...], str]:
    """Return what replaces the names of a table, for `replace_qualifiers`: an alias, or nothing."""
    name = tuple(name_key(part) for part in parts)
    return {name[start:]: f"{quote_name(alias)}." if alias else "" for start in range(len(name))}


def replace_qualifiers(text: str, qualifiers: Mapping[tuple[str, ...], str]) -> str:
    """Return an expression with the names of tables replaced where they qualify columns."""
    tokens, changed, at = tokenize(text), "", 0
    for index, token in enumerate(tokens):
        if index and tokens[index - 1].word == ".":
            continue
        for name, qualifier in sorted(qualifiers.items(), key=lambda item: -len(item[0])):
            found = tokens[index : index + 2 * len(name)]
            if _are_name(found, name) and index + len(found) < len(tokens):
                changed, at = changed + text[at : token.start] + qualifier, found[-1].end
                break
    return changed + text[at:]


def _are_name(tokens: Sequence[Token], name: tuple[str, ...]) -> bool:
    """Return whether tokens are the parts of a name, each with a dot after it."""
    parts, dots = tokens[::2], tokens[1::2]
    is_named = all(part.is_name for part in parts) and tuple(name_key(part.text) for part in parts) == name
    return is_named and len(dots) == len(name) and all(dot.word == "." for dot in dots)
