"""Records below a path, as the proof finds them: a walk of its own over the documents of a source.

It goes through a document once and cuts out what the path leads to. Python's parser says where a value ends; where a
value is not JSON, its brackets do. What the end of an object still adds to its records is known only there, so that
they wait for it.

Source: docs/guide/nested-records.md
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Generator, Iterable, Iterator, Sequence
from io import BytesIO
from itertools import accumulate, chain, islice
from tempfile import SpooledTemporaryFile
from typing import Any, NamedTuple, TypeAlias

from widen.errors import CorruptFile
from widen.json.record_path import RecordPath
from widen.proof.json_reader import split_into_parts

LARGE = 2**23
"""A document of more bytes must be undamaged, and have the path."""

_BLOCK, _HEAD, _WAITING, _MANY = 2**20, 2**20, 2**22, 500
_MARK = "\ufeff".encode()
_BLANK = " \t\r\n"
_ENDS = frozenset(',:"{}[]' + _BLANK)
_CLOSES = {"{": "}", "[": "]"}


class NestedText(NamedTuple):
    """A text below a path.

    Args:
        is_record: Whether it stands where a record does; otherwise the path does not lead on from it.
    """

    text: bytes
    is_record: bool


class _BrokenError(Exception):
    """A text is not JSON down to the end of the path."""


def nested_texts(text: bytes, path: RecordPath) -> list[NestedText]:
    """Return what the documents in a text have below a path; the text itself if it is damaged."""
    try:
        return list(_walk(BytesIO(text), path))
    except _BrokenError:
        return [NestedText(text, False)]


def all_nested_texts(texts: Iterable[bytes], path: RecordPath | None) -> Iterator[NestedText]:
    """Yield what texts have below a path; without a path, the texts."""
    return chain.from_iterable([NestedText(text, True)] if path is None else nested_texts(text, path) for text in texts)


def read_nested_file(file: Any, path: RecordPath, name: str = "a file") -> Iterator[NestedText]:
    """Yield what the documents of a file have below a path: a file of any size, and in any form.

    Raises:
        CorruptFile: a large file is damaged, or a large document lacks the path.

    Source: docs/guide/json.md#large
    """
    begin = file.read(LARGE + 1)
    if len(begin) <= LARGE:
        yield from all_nested_texts(split_into_parts(begin), path)
        return
    if _is_lined(begin[:_HEAD].removeprefix(_MARK).lstrip()):
        rest = begin.removeprefix(_MARK)
        while rest:
            block = file.read(_BLOCK)
            lines = (rest + block).splitlines(keepends=True)
            # The end of a line may be cut in two.
            rest = lines.pop() if block else b""
            yield from all_nested_texts((line.rstrip(b"\r\n") for line in lines), path)
        return
    try:
        yield from _walk(file, path, begin)
    except _BrokenError as error:
        raise CorruptFile(path=name, reason=str(error), fix="Repair the file, and load it again.") from error


def _is_lined(head: bytes) -> bool:
    line, end, _ = head.partition(b"\n")
    try:
        return bool(end) and line[:1] != b"[" and json.loads(line) is not ...
    except (ValueError, RecursionError):
        return False


def _walk(file: Any, path: RecordPath, begin: bytes = b"") -> Iterator[NestedText]:
    page = _Page(file, begin)
    if page.text.startswith(_MARK.decode("latin-1")):
        page.at = len(_MARK)
    while True:
        page.skip(_BLANK + ",[]")
        if page.is_end():
            return
        if page.char() != "{":
            raise _BrokenError("a document is not an object")
        yield from (NestedText(text.encode("latin-1"), fits) for text, fits in _object(page, path, 0))


_Found: TypeAlias = "tuple[str, bool]"


def _object(page: _Page, path: RecordPath, level: int) -> Iterator[_Found]:
    """Yield what is below the object at the place of a page."""
    if path.keep == frozenset():
        yield from _members(page, path, level, [])
        return
    added: list[str] = []
    members = _members(page, path, level, added)
    with SpooledTemporaryFile(_WAITING) as waiting:
        while some := list(islice(members, _MANY)):
            pickle.dump(some, waiting)
        end = waiting.tell()
        waiting.seek(0)
        while waiting.tell() < end:
            yield from ((_complete(text, added) if fits else text, fits) for text, fits in pickle.load(waiting))


def _complete(text: str, added: Sequence[str]) -> str:
    if not added or not text.startswith("{"):
        return text
    is_empty = text[1] in _BLANK + "}" and not text[1:-1].strip(_BLANK)
    return (text[:1] if is_empty else text[:-1] + ",") + ",".join(added) + "}"


def _members(page: _Page, path: RecordPath, level: int, added: list[str]) -> Iterator[_Found]:
    """Yield what is below the members of an object, and add those that its records keep to a list."""
    step, keep, begin = path.steps[level], path.keep, page.mark()
    met, leads = False, True
    page.at += 1
    if page.skip() != "}":
        while True:
            key = page.cut() if page.skip() == '"' else ""
            page.skip()
            page.expect(":")
            page.skip()
            name = _name(key)
            if name == step.name:
                has_led = yield from _follow(page, path, level)
                leads, met = (leads or not met) and has_led, True
            elif keep is None or name in keep:
                added.append(f"{_prefixed(path, level, key)}:{page.cut()}")
            else:
                page.pass_by()
            if page.skip() == "}":
                break
            page.expect(",")
    page.at += 1
    text = page.release(begin)
    if met and leads:
        return
    if text is None:
        raise _BrokenError(f"a document of more than {LARGE:,} bytes does not have the path")
    yield text, False


def _prefixed(path: RecordPath, level: int, key: str) -> str:
    """Return the key of a kept field, with its quotes, in a record."""
    names = [step.name for step in path.steps[: len(path.steps) - 1]]
    if not level:
        label = ""
    else:
        own = names[level - 1]
        label = (own if names.count(own) < 2 else [*accumulate(names[:level], "{}_{}".format)][-1]) + "_"
    return json.dumps(f"_parent_{label}", ensure_ascii=False)[:-1].encode().decode("latin-1") + key[1:]


def _name(key: str) -> str:
    """Return the name that a key spells, from its text with quotes."""
    if len(key) < 2:
        raise _BrokenError("a name is missing")
    data = key.encode("latin-1")
    if "\\" not in key:
        return data[1:-1].decode(errors="replace")
    try:
        return str(json.loads(data))
    except ValueError:
        raise _BrokenError("a name is not JSON") from None


def _follow(page: _Page, path: RecordPath, level: int) -> Generator[_Found, None, bool]:
    """Yield what is below the value of a step; return whether the path leads there."""
    is_list, is_last = path.steps[level].is_list, level == len(path.steps) - 1
    if page.char() != ("[" if is_list else "{"):
        return page.cut_short() == "null"
    if not is_list:
        if is_last:
            yield page.cut(), True
        else:
            yield from _object(page, path, level + 1)
        return True
    page.at += 1
    if page.skip() == "]":
        page.at += 1
        return True
    while True:
        if is_last:
            yield page.cut(), True
        elif page.skip() == "{":
            yield from _object(page, path, level + 1)
        elif (text := page.cut()) != "null":
            yield text, False
        if page.skip() == "]":
            page.at += 1
            return True
        page.expect(",")
        page.skip()


class _Page:
    """The part of a text that is in memory, with one character for each byte.

    Args:
        at: The place in the part.
    """

    def __init__(self, file: Any, begin: bytes) -> None:
        self._file = file
        self.text, self.at, self._before = begin.decode("latin-1"), 0, 0
        self._marks: list[int] = []  # where the objects begin whose text may be needed, in the whole text

    def _turn(self) -> bool:
        """Read on; forget what is before this place, but for the objects whose text may be needed."""
        here = self._before + self.at
        kept = min([here, *(mark for mark in self._marks if here - mark <= LARGE)])
        cut = max(kept - self._before, 0)
        block = self._file.read(max(_BLOCK, len(self.text) - self.at)).decode("latin-1")
        if not block:
            return False
        self.text = self.text[cut:] + block
        self.at -= cut
        self._before += cut
        return True

    def mark(self) -> int:
        """Remember where an object begins."""
        self._marks.append(self._before + self.at)
        return self._marks[-1]

    def release(self, mark: int) -> str | None:
        """Return the text since a mark; None if it is too long to be held."""
        self._marks.remove(mark)
        here = self._before + self.at
        return self.text[mark - self._before : self.at] if mark >= self._before and here - mark <= LARGE else None

    def is_end(self) -> bool:
        return self.at >= len(self.text) and not self._turn()

    def char(self) -> str:
        if self.is_end():
            raise _BrokenError("the text ends inside of a document")
        return self.text[self.at]

    def skip(self, chars: str = _BLANK) -> str:
        """Skip characters, and return the one after them, or nothing."""
        while not self.is_end():
            char = self.text[self.at]
            if char not in chars:
                return char
            self.at += 1
        return ""

    def expect(self, char: str) -> None:
        if self.char() != char:
            raise _BrokenError(f"{char} is missing")
        self.at += 1

    def cut(self) -> str:
        """Return the text of the value at this place, and go to its end."""
        end = self._end_by_parser()
        if end is not None:
            text, self.at = self.text[self.at : end], end
            return text
        begin = self._before + self.at
        self._pass_by_brackets(is_cut=True)
        return self.text[begin - self._before : self.at]

    def cut_short(self) -> str:
        """Return the text of a value that is not a list or an object; another one is only passed."""
        if self.char() in "[{":
            self.pass_by()
            return ""
        return self.cut()

    def pass_by(self) -> None:
        """Go to the end of the value at this place, which may be longer than memory."""
        end = self._end_by_parser()
        if end is None:
            self._pass_by_brackets(is_cut=False)
        else:
            self.at = end

    def _end_by_parser(self) -> int | None:
        """Return where a value ends by JSON; None if it is not JSON, or not whole yet."""
        try:
            _, end = _PARSER.raw_decode(self.text, self.at)
        except (ValueError, RecursionError):
            return None
        # What looks like a number may go on, also beyond the part in memory.
        is_done = self.text[end - 1] in '"]}' or (end < len(self.text) and self.text[end] in _ENDS)
        return end if is_done else None

    def _pass_by_brackets(self, *, is_cut: bool) -> None:
        """Go to the end of a value: where its last bracket closes, its string ends, or another sign comes."""
        begin, at, open_ = self._before + self.at, self.at, ""
        while True:
            while at < len(self.text):
                char = self.text[at]
                if char == '"':
                    end = self._end_of_string(at)
                    if end is None:
                        break
                    at = end
                elif char in "{[":
                    open_ += _CLOSES[char]
                elif char in "}]":
                    if open_[-1:] != char:
                        if open_:
                            raise _BrokenError(f"{char} closes another bracket")
                        at -= 1
                    open_ = open_[:-1]
                elif not open_:
                    end = next((place for place in range(at, len(self.text)) if self.text[place] in _ENDS), None)
                    if end is None:
                        at = len(self.text)
                        break
                    at = end - 1
                at += 1
                if not open_:
                    self._end_value(begin, at)
                    return
            here = self._before + at
            if not is_cut:
                self.at = at
            if not self._turn():
                is_scalar = not open_ and here > begin and self.text[begin - self._before] != '"'
                if not is_scalar:
                    raise _BrokenError("the text ends inside of a value")
                self.at = len(self.text)
                return
            at = here - self._before

    def _end_value(self, begin: int, at: int) -> None:
        if self._before + at <= begin:
            raise _BrokenError("a value is missing")
        self.at = at

    def _end_of_string(self, at: int) -> int | None:
        """Return where the quote is that ends the string that begins at a place; None if it is not here yet."""
        end = self.text.find('"', at + 1)
        while end >= 0:
            before = end - 1
            while self.text[before] == "\\":
                before -= 1
            if (end - before) % 2:
                return end
            end = self.text.find('"', end + 1)
        return None


_PARSER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
