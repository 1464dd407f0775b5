"""The tokens of a statement, read from left to right; texts are cut from the statement as they stand.

A statement about rows has conditions and queries of Spark SQL in it. They go to Spark unchanged, so they are found by
their tokens and never written again.

Source: Spark SQL's grammar, as sqlglot reads its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import Dialect
from sqlglot.errors import SqlglotError

from widen.model.types import name_key, quote_name
from widen.sql_commands.grammar import refused_message
from widen.sql_commands.statements import TableReference

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
    """Return the tokens of a text, without comments and without semicolons at its end.

    Raises:
        InvalidStatement: a quote is not closed.
    """
    try:
        parsed = Dialect.get_or_raise("spark").tokenize(text)
    except SqlglotError as error:
        raise refused_message(text, 0, "a quote or a comment is not closed") from error
    tokens = [Token(each.token_type.name, each.text, each.start, each.end + 1) for each in parsed]
    while tokens and tokens[-1].word == ";":
        tokens.pop()
    return tokens


def split_statements(text: str) -> list[str]:
    """Return the statements of a text, which are divided by semicolons.

    Raises:
        InvalidStatement: a quote is not closed.
    """
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
        tokens: The tokens of the part; by default all of the statement.
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
        """Read these words.

        Raises:
            InvalidStatement: something else comes next.
        """
        for number, word in enumerate(words):
            if not self.accept(word):
                other = "" if self.is_done else f", not {self.token.text!r}"
                raise self.refuse(f"expected {' '.join(words[number:])}{other}")

    def next(self) -> Token:
        """Read a token.

        Raises:
            InvalidStatement: none is left.
        """
        if self.is_done:
            raise self.refuse("the statement ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def name(self) -> str:
        """Read a name.

        Raises:
            InvalidStatement: something else comes next.
        """
        if not self.token.is_name:
            raise self.refuse(f"expected a name, not {self.token.text!r}")
        return self.next().text

    def table(self) -> TableReference:
        """Read the name of a table.

        Raises:
            InvalidStatement: something else comes next.
        """
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
        """Read up to a stop word or the end, and return the text; words inside parentheses and CASE do not count.

        Raises:
            InvalidStatement: there is nothing in between.
        """
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
        """Read a group in parentheses, and return what is inside.

        Raises:
            InvalidStatement: something else comes next, or the group is not closed.
        """
        self.expect("(")
        inside = self.until(")")
        self.expect(")")
        return inside

    def group(self) -> TokenReader:
        """Read a group in parentheses, and return a reader of what is inside.

        Raises:
            InvalidStatement: something else comes next, or the group is empty or not closed.
        """
        self.expect("(")
        inside = self._part(")")
        self.expect(")")
        return inside

    def items(self, *stops: str) -> list[TokenReader]:
        """Read a list up to a stop word or the end, and return a reader of each item.

        Raises:
            InvalidStatement: an item is empty.
        """
        items = [self._part(",", *stops)]
        while self.accept(","):
            items.append(self._part(",", *stops))
        return items

    def _part(self, *stops: str) -> TokenReader:
        start = self._at
        self.until(*stops)
        return TokenReader(self.text, self._tokens[start : self._at], self.last_end)

    def find_subquery(self) -> Token | None:
        """Return the first word of a query in parentheses in what is left; None if there is none."""
        left = self._tokens[self._at :]
        return next(
            (word for before, word in pairwise(left) if before.word == "(" and word.word in ("SELECT", "WITH")), None
        )

    def rest(self) -> str:
        """Read and return everything that is left.

        Raises:
            InvalidStatement: nothing is left.
        """
        return self.until()

    def end(self) -> None:
        """Check that nothing is left.

        Raises:
            InvalidStatement: a token is left.
        """
        if not self.is_done:
            raise self.refuse(f"expected the end, not {self.token.text!r}")

    def peek_after_group(self) -> str:
        """Return the first word after the group in parentheses that comes next; empty if there is none."""
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
    """Return the items of a list; commas inside parentheses do not count.

    Raises:
        InvalidStatement: an item is empty.
    """
    return [item.rest() for item in TokenReader(text).items()]


def table_qualifiers(parts: tuple[str, ...], alias: str = "") -> dict[tuple[str, ...], str]:
    """Return what replaces the names of a table, for `replace_qualifiers`: an alias, or nothing.

    Args:
        parts: The parts of its name. Expressions may leave out the first ones, as in `path`.column for delta.`path`.
    """
    name = tuple(name_key(part) for part in parts)
    return {name[start:]: f"{quote_name(alias)}." if alias else "" for start in range(len(name))}


def replace_qualifiers(text: str, qualifiers: Mapping[tuple[str, ...], str]) -> str:
    """Return an expression with the names of tables replaced where they qualify columns.

    Args:
        qualifiers: What replaces each name, as from `table_qualifiers`.

    Raises:
        InvalidStatement: a quote is not closed.
    """
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
