"""Records below a path: the documents of a source hold their records in a list, such as ``Records[*]``.

The path names fields from the document down, ``[*]`` the items of a list. The text of each record is cut from its
document byte by byte, so that every number stays as the source spells it. A document may be larger than memory: the
scan holds one record, and what it keeps of the levels above.

Source: docs/guide/nested-records.md
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import BinaryIO, NamedTuple, NoReturn

import msgspec

from widen.errors import CorruptFile, InvalidOption
from widen.json.document import BOM, MAX_RECORD_BYTES, RAISE_RECORD_SIZE, not_a_document, not_a_record
from widen.model.value_classes import dataclass

PARENT = "_parent_"
"""Stands before the names of fields that records keep from the levels above."""

HELD_BYTES = 8 * 2**20
"""The maximum size of a document that is read as a whole: one that is damaged, or without the path, is then corrupt
text. A larger one makes the file unreadable."""

ALL = "all"
"""The value of `keep` for all fields of the levels above."""

_STEP = re.compile(r"(?:`((?:[^`]|``)+)`|([^.`\[\]]+))(\[\*\])?")


class PathStep(NamedTuple):
    """One step down.

    Args:
        name: The field.
        is_list: Whether the next level, or the record, is each item of its list; else it is the object in the field.
    """

    name: str
    is_list: bool


@dataclass(frozen=True)
class RecordPath:
    """Where documents have their records.

    Args:
        keep: The names of fields that records keep from the levels above; None for all of them.
    """

    steps: tuple[PathStep, ...]
    keep: frozenset[str] | None = frozenset()

    def __str__(self) -> str:
        return format_steps(self.steps)

    @property
    def keeps_fields(self) -> bool:
        """Whether records get fields of the levels above."""
        return self.keep is None or bool(self.keep)

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """What stands before the names of the fields that each level gives, from the document down.

        It depends on the path alone, so that a column never has the fields of two levels.
        """
        names = [step.name for step in self.steps[:-1]]
        labels = [name if names.count(name) == 1 else "_".join(names[: at + 1]) for at, name in enumerate(names)]
        return (PARENT, *(f"{PARENT}{label}_" for label in labels))


def parse_record_path(text: str, keep: frozenset[str] | None = frozenset(), option: str = "records") -> RecordPath:
    """Return a path from its text: fields with dots between them, ``[*]`` after a list; backticks quote a name.

    Args:
        keep: See `RecordPath`.

    Raises:
        InvalidOption: the text is not a path.

    Example:
        >>> parse_record_path("resourceLogs[*].scopeLogs[*].`log.records`[*]").steps[2]
        PathStep(name='log.records', is_list=True)
    """
    steps, at = [], 0
    while match := _STEP.match(text, at):
        name = match[1].replace("``", "`") if match[1] else match[2]
        steps.append(PathStep(name, match[3] is not None))
        at = match.end()
        if at == len(text):
            return RecordPath(tuple(steps), keep)
        if text[at] != ".":
            break
        at += 1
    raise InvalidOption(option=option, value=text, expected=_EXPECTED)


_EXPECTED = "Must be field names with dots between them, and [*] after each list, e.g. Records[*] or data.items[*]."


def format_steps(steps: tuple[PathStep, ...]) -> str:
    """Return the text of steps, in the syntax of `parse_record_path`."""
    return ".".join(_quote(step.name) + ("[*]" if step.is_list else "") for step in steps)


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`" if set(name) & set(".`[]") else name


class FoundTexts(NamedTuple):
    """Adjacent texts below a path.

    Args:
        texts: Records, or the object where the path ends.
        reason: Why they are not records; empty for records.
    """

    texts: list[bytes]
    reason: str = ""


class _PathBatch(msgspec.Struct, array_like=True):
    """Adjacent texts; fields are still added to them.

    Args:
        kept: The kept fields that are known so far, each after a comma.
    """

    texts: list[bytes]
    kept: bytes = b""
    reason: str = ""

    def to_texts(self) -> FoundTexts:
        if self.reason or not self.kept:
            return FoundTexts(self.texts, self.reason)
        end, alone = self.kept + b"}", b"{" + self.kept[1:] + b"}"
        return FoundTexts(
            [text if text[:1] != b"{" else alone if _EMPTY_OBJECT(text) else text[:-1] + end for text in self.texts]
        )


class _DamagedError(Exception):
    """A document that cannot be cut into records.

    Args:
        reason: What is wrong.
        offset: The byte.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason, self.offset = reason, offset


class _EndedError(Exception):
    """The text ends inside of a value."""


class RecordFinder:
    """Finds the records below a path."""

    def __init__(self, path: RecordPath, limit: int = MAX_RECORD_BYTES) -> None:
        self._path, self._limit = path, limit

    def find(self, text: bytes) -> list[FoundTexts]:
        """Return the records of the documents in a text: one document, several, or an array of documents.

        A text that is not JSON down to the end of the path is returned as it is, with the reason.
        """
        cursor = _Cursor(text.removeprefix(BOM))
        found: list[FoundTexts] = []
        try:
            while cursor.find_document():
                found += [batch.to_texts() for batch in _Scan(cursor, self._path).object(0)]
        except _EndedError:
            return [FoundTexts([text], not_a_document("it ends inside of a value"))]
        except _DamagedError as error:
            return [FoundTexts([text], not_a_document(f"{error.reason} at byte {error.offset + 1:,}"))]
        return found

    def stream(self, file: BinaryIO, name: str) -> Iterator[FoundTexts]:
        """Yield the records of the documents of a file of any size, as `find` does.

        Raises:
            CorruptFile: the file is damaged; a record is longer than the limit; or a document of more than `HELD_BYTES`
                lacks the path.
        """
        cursor = _Cursor(b"", file.read, self._limit)
        scan = _Scan(cursor, self._path)
        try:
            cursor.skip_mark()
            while cursor.find_document():
                for batch in scan.stream(0):
                    if max(map(len, batch.texts), default=0) > self._limit:
                        raise _DamagedError(_TOO_LONG, cursor.offset)
                    yield batch.to_texts()
        except _EndedError:
            reason = f"the file ends inside of the document that begins before byte {cursor.offset + 1:,}"
            raise CorruptFile(path=name, reason=reason, fix=_REPAIR) from None
        except _DamagedError as error:
            reason = f"{error.reason} at byte {error.offset + 1:,}"
            fix = RAISE_RECORD_SIZE if error.reason == _TOO_LONG else _REPAIR
            raise CorruptFile(path=name, reason=reason, fix=fix) from None


_REPAIR = "Repair the file, or load the others with skip_bad_files (--skip-bad-files)."
_TOO_LONG = "a record or a kept field is longer than max_record_size"


class _Scan:
    """Finds the records of one document after the other."""

    def __init__(self, cursor: _Cursor, path: RecordPath) -> None:
        self._cursor, self._path = cursor, path
        self._names = [json.dumps(each, ensure_ascii=False)[1:-1].encode() for each in path.prefixes]

    def stream(self, level: int) -> Iterator[_PathBatch]:
        """Yield what an object has below the path: all at once if it is small, else while it is read."""
        cursor = self._cursor
        while True:
            start = cursor.at
            try:
                with cursor.without_refills():
                    found = list(self.object(level))
            except _EndedError:
                cursor.go_back(start)
                if cursor.waiting >= HELD_BYTES:
                    break
                if not cursor.refill(start):
                    raise
                continue
            if any(batch.reason and len(batch.texts[0]) > HELD_BYTES for batch in found):
                cursor.go_back(start)
                break
            yield from found
            return
        yield from self.object(level, is_large=True)

    def object(self, level: int, *, is_large: bool = False) -> Iterator[_PathBatch]:
        """Yield what an object has below the path; the cursor is at its brace.

        Args:
            is_large: Whether the object may be larger than memory.
        """
        fields = self._fields(level, is_large=is_large)
        if not self._path.keeps_fields:
            yield from fields
            return
        # Fields after the records belong to them too. So records wait for the end of the object.
        with closing(_Waiting(is_large=is_large)) as waiting:
            kept = waiting.add_all(fields)
            for batch in waiting:
                yield batch if batch.reason else _PathBatch(batch.texts, batch.kept + kept)

    def _fields(self, level: int, *, is_large: bool) -> Generator[_PathBatch, None, bytes]:
        """Yield what is below the next step; return the kept fields of the object."""
        cursor, step, keep = self._cursor, self._path.steps[level], self._path.keep
        start, kept, reason = cursor.at, [], f"it has no {format_steps(self._path.steps[: level + 1])}"
        is_first = is_missing = True
        while (key := cursor.next_key(is_first=is_first)) is not None:
            is_first, name = False, _to_name(key, cursor)
            if name == step.name:
                fault = yield from self._below(level, is_large=is_large)
                reason = fault if is_missing else reason or fault
                is_missing = False
                continue
            is_kept = keep is None or name in keep
            text = cursor.value(is_held=is_kept)
            if is_kept:
                kept.append(b',"%b%b:%b' % (self._names[level], key[1:], text))
        if reason:
            if is_large:
                raise _DamagedError(f"{reason}, in the document that ends", cursor.offset)
            cursor.go_back(start)
            yield _PathBatch([cursor.value()], reason=not_a_document(reason))
        return b"".join(kept)

    def _below(self, level: int, *, is_large: bool) -> Generator[_PathBatch, None, str]:
        """Yield what is in the field of a step; return why it cannot be, or nothing."""
        cursor, steps = self._cursor, self._path.steps
        step, is_last, sign = steps[level], level + 1 == len(steps), cursor.peek()
        if step.is_list and sign == b"[":
            if is_last:
                for texts in cursor.items():
                    yield _PathBatch(texts)
                return ""
            is_first = True
            while cursor.next_item(is_first=is_first):
                is_first = False
                yield from self._container(level + 1, is_large=is_large)
            return ""
        if not step.is_list and sign == b"{":
            if is_last:
                yield _PathBatch([cursor.value()])
            else:
                yield from self.object(level + 1, is_large=is_large)
            return ""
        if cursor.value(is_held=False) == b"null":
            return ""
        expected = "a list" if step.is_list else "an object"
        return f"{format_steps(steps[: level + 1]).removesuffix('[*]')} is not {expected}"

    def _container(self, level: int, *, is_large: bool) -> Iterator[_PathBatch]:
        """Yield what an item of a list has below the path."""
        if self._cursor.peek() != b"{":
            text = self._cursor.value()
            if text != b"null":
                reason = f"an item of {format_steps(self._path.steps[:level])} is not an object"
                yield _PathBatch([text], reason=not_a_record("JSON", reason))
        elif is_large:
            yield from self.stream(level)
        else:
            yield from self.object(level)


def _to_name(key: bytes, cursor: _Cursor) -> str:
    if b"\\" not in key:
        return key[1:-1].decode(errors="replace")
    try:
        return str(json.loads(key))
    except ValueError:
        raise _DamagedError("a field has a name that is not JSON", cursor.offset) from None


class _Waiting:
    """Records that wait for fields: in memory, or in a temporary file if there may be many."""

    def __init__(self, *, is_large: bool) -> None:
        self._batches: list[_PathBatch] = []
        self._file: BinaryIO | None = tempfile.TemporaryFile() if is_large else None  # noqa: SIM115

    def add_all(self, batches: Generator[_PathBatch, None, bytes]) -> bytes:
        while True:
            try:
                batch = next(batches)
            except StopIteration as end:
                return bytes(end.value)
            if self._file is None:
                self._batches.append(batch)
                continue
            data = msgspec.msgpack.encode(batch)
            self._file.write(len(data).to_bytes(8, "big") + data)

    def __iter__(self) -> Iterator[_PathBatch]:
        yield from self._batches
        if self._file is not None:
            self._file.seek(0)
            while size := self._file.read(8):
                yield msgspec.msgpack.decode(self._file.read(int.from_bytes(size, "big")), type=_PathBatch)

    def close(self) -> None:
        """Remove the temporary file."""
        if self._file is not None:
            self._file.close()


_SPACES, _BETWEEN = re.compile(rb"[ \t\r\n]*"), re.compile(rb"[ \t\r\n,\[\]]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SCALAR = re.compile(rb'[^ \t\r\n,:"{}\[\]]*')
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("?)|[\[\]{}]', re.DOTALL)
_HEAD = re.compile(rb'\{[ \t\r\n]*"[^"\\]*"')
_EMPTY_OBJECT = re.compile(rb"\{[ \t\r\n]*\}").fullmatch
_OPENING = {b"]": b"[", b"}": b"{"}

_items = msgspec.json.Decoder(list[msgspec.Raw])

_BLOCK_BYTES, _GUESSES = 2**20, 4


class _Cursor:
    """A place in a text. Only a window of the text is in memory.

    Args:
        limit: The maximum size of a value in memory.
    """

    def __init__(self, data: bytes, read: Callable[[int], bytes] | None = None, limit: int = MAX_RECORD_BYTES) -> None:
        self._data, self.at = data, 0
        self._read, self._limit, self._passed = read, limit, 0
        self._mark, self._skip = b"", 0  # the end of a record with the beginning of the next, and where that is
        self._slow_until = 0

    @property
    def offset(self) -> int:
        """The byte of the text."""
        return self._passed + self.at

    @property
    def waiting(self) -> int:
        """How many bytes are in memory from here on."""
        return len(self._data) - self.at

    @contextmanager
    def without_refills(self) -> Iterator[None]:
        """Read nothing while this is open: the end of the window is the end of the text."""
        read, self._read = self._read, None
        try:
            yield
        finally:
            self._read = read

    def go_back(self, start: int) -> None:
        """Go to a place before this one."""
        self.at, self._slow_until = start, 0

    def refill(self, start: int) -> int:
        """Read more, and forget what is before a place; return whether there was more."""
        if self._read is None:
            return False
        held = len(self._data) - start
        # As much again as there is, so that a long value is not copied for each block.
        block = self._read(max(_BLOCK_BYTES, held))
        if not block:
            return False
        self._data = self._data[start:] + block
        self.at -= start
        self._passed += start
        return True

    def _require(self, start: int) -> None:
        """Read more of the value that begins at a place."""
        if self._read is not None and len(self._data) - start > self._limit:
            raise _DamagedError(_TOO_LONG, self._passed + start)
        if not self.refill(start):
            raise _EndedError

    def fail(self, reason: str) -> NoReturn:
        """Raise the error for a text that is not JSON here."""
        raise _DamagedError(reason, self.offset)

    def skip_mark(self) -> None:
        """Skip a byte order mark."""
        self.refill(0)
        self.at = len(BOM) if self._data.startswith(BOM) else 0

    def find_document(self) -> bool:
        """Go to the next document; return whether there is one. Between documents are spaces, commas and brackets."""
        while True:
            self.at = _end(_BETWEEN, self._data, self.at)
            if self.at < len(self._data):
                if self._data[self.at : self.at + 1] != b"{":
                    self.fail("a document is not an object")
                return True
            if not self.refill(self.at):
                return False

    def peek(self) -> bytes:
        """Return the next sign that is not a space."""
        while True:
            self.at = _end(_SPACES, self._data, self.at)
            if self.at < len(self._data):
                return self._data[self.at : self.at + 1]
            self._require(self.at)

    def next_key(self, *, is_first: bool) -> bytes | None:
        """Return the next key of an object, with its quotes; None at its end. The cursor is then at its value."""
        if not self._next(b"}", is_first=is_first):
            return None
        if self.peek() != b'"':
            self.fail("a name is missing")
        key = self._string()
        if self.peek() != b":":
            self.fail("a colon is missing")
        self.at += 1
        return key

    def next_item(self, *, is_first: bool) -> bool:
        """Go to the next item of a list; return whether there is one."""
        return self._next(b"]", is_first=is_first)

    def _next(self, end: bytes, *, is_first: bool) -> bool:
        if is_first:
            self.at += 1  # its bracket
            if self.peek() != end:
                return True
        elif (sign := self.peek()) == b",":
            self.at += 1
            return True
        elif sign != end:
            self.fail("a comma is missing")
        self.at += 1
        return False

    def value(self, *, is_held: bool = True) -> bytes:
        """Return the text of the next value, and go to its end.

        Args:
            is_held: Whether the text is needed; else it may be of any size.
        """
        sign = self.peek()
        if sign == b'"':
            return self._string()
        if sign in b"{[":
            return self._nested(is_held=is_held)
        while True:
            end = _end(_SCALAR, self._data, self.at)
            if end < len(self._data) or not self.refill(self.at):
                break
        if end == self.at:
            self.fail("a value is missing")
        text, self.at = self._data[self.at : end], end
        return text

    def _string(self) -> bytes:
        while (match := _STRING.match(self._data, self.at)) is None:
            self._require(self.at)
        self.at = match.end()
        return match[0]

    def _nested(self, *, is_held: bool) -> bytes:
        brackets: list[bytes] = []
        place = self.at
        while True:
            for token in _TOKEN.finditer(self._data, place):
                sign = token[0]
                if sign in _OPENING:
                    if brackets.pop() != _OPENING[sign]:
                        self.at = token.start()
                        self.fail("a bracket does not match")
                    if not brackets:
                        text, self.at = self._data[self.at : token.end()], token.end()
                        return text
                elif len(sign) == 1 and sign != b'"':
                    brackets.append(sign)
                elif not token[1]:
                    place = token.start()
                    break
            else:
                place = len(self._data)
            before = place - self.at
            if not is_held:
                self.at, before = place, 0
            self._require(self.at)
            place = self.at + before

    def items(self) -> Iterator[list[bytes]]:
        """Yield the texts of the items of a list, and go to its end."""
        is_first = True
        while self.next_item(is_first=is_first):
            is_first = False
            while some := self._many_items():
                yield some
            item = self.value()
            self._learn(item)
            yield [item]

    def _learn(self, item: bytes) -> None:
        """Remember what is between this item, which ends here, and the next one."""
        between = _BETWEEN_ITEMS.match(self._data, self.at)
        head = _HEAD.match(self._data, between.end()) if between and item[:1] == b"{" else None
        if between is not None and head is not None:
            self._mark = b"}" + between[0] + head[0]
            self._skip = len(between[0]) + 1

    def _many_items(self) -> list[bytes]:
        """Return the items up to one of the last in memory, and go to the item after them.

        Where the text between two items is last found, items probably end. They do if what is before is JSON: a text
        that is cut anywhere else has a bracket or a string that is not closed.
        """
        if not self._mark or self._passed + len(self._data) <= self._slow_until:
            return []
        end = len(self._data)
        for _ in range(_GUESSES):
            end = self._data.rfind(self._mark, self.at, end)
            if end < 0:
                break
            try:
                found = _items.decode(b"[" + self._data[self.at : end + 1] + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self.at = end + self._skip
            return list(map(bytes, found))
        self._slow_until = self._passed + len(self._data)
        return []


_BETWEEN_ITEMS = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")


def _end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    match = pattern.match(data, at)
    assert match is not None
    return match.end()
