"""The base error and its four families: each family says who must act.

A caller who catches one family knows whether to change the call, to repair the table, to try again or to report a
defect, without reading the message.
"""

from __future__ import annotations

import re
from string import Formatter
from typing import Any, ClassVar

_LONGEST_VALUE = 300


class _ValueFormatter(Formatter):
    """Formats as `str.format` does, but cuts the representation of a value, which may be a whole data set."""

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        """Return the value as the conversion asks for."""
        text = super().convert_field(value, conversion)
        if conversion == "r" and len(text) > _LONGEST_VALUE:
            return f"{text[:_LONGEST_VALUE]}… ({len(text):,} characters)"
        return text


_FORMATTER = _ValueFormatter()


class WidenError(Exception):
    """The base of every error of this library.

    A subclass declares its ``code``, a ``template`` for the message and a ``hint``. The fields are passed as
    keywords; they fill both texts and stay readable on the exception.

    ``committed`` is the location and the version of the last commit, if the call that failed has several steps that
    commit on their own.

    Args:
        fields: The values for the placeholders of ``template`` and ``hint``.
    """

    code: ClassVar[str] = "WIDEN_ERROR"
    template: ClassVar[str] = "{reason}"
    hint: ClassVar[str] = ""

    def __init__(self, **fields: object) -> None:
        self.fields = fields
        self.committed: tuple[str, int] | None = None
        super().__init__(mask_credentials(_FORMATTER.format(self.template, **fields)))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.fields), {"committed": self.committed}

    @property
    def message(self) -> str:
        """What is wrong and where, without code and hint."""
        if self.committed is None:
            return str(self.args[0])
        location, version = self.committed
        return f"{self.args[0]} Version {version} of {location}, from an earlier step of the call, is committed."

    @property
    def advice(self) -> str:
        """What to do about it; empty if the message is enough."""
        text = mask_credentials(_FORMATTER.format(self.hint, **self.fields))
        if self.committed is not None:
            for untrue in _NOTHING_COMMITTED:
                text = text.replace(untrue, "")
        return text

    def __str__(self) -> str:
        text = f"[{self.code}] {self.message}"
        # Names and values in the text come from data; a traceback in a terminal must not run their escape sequences.
        return printable_lines(f"{text} {self.advice}" if self.hint else text)


# An exception with keyword-only fields cannot be pickled by default, but Spark pickles errors in Python workers.
def _rebuild(kind: type[WidenError], fields: dict[str, object]) -> WidenError:
    return kind(**fields)


class RequestError(WidenError):
    """The call asks for something that the protocol, the table or the policy does not allow: change the call."""


class TableError(WidenError):
    """The table or its storage is at fault, or the table needs a feature that this version does not support."""


class ContentionError(WidenError):
    """Another writer committed first: try again."""

    template = "Version {version} of {location} was committed by another writer in the meantime: {reason}."
    hint = "Nothing of this attempt is visible. Open the table again and repeat the call."


_NOTHING_COMMITTED = ("Nothing of this attempt is visible. ", "Nothing was committed. ", "Nothing was written. ")
"""The parts of hints that are not true of a call whose earlier steps are committed."""


class InternalError(WidenError):
    """A defect of Widen: report it."""

    code = "WIDEN_INTERNAL"
    template = "{reason}"
    hint = "This is a defect of Widen; please report it with the text above."


# Credentials in addresses. Messages, events and records of loads end up in tickets and chats.


_ADDRESS = re.compile(r"(?!file:)\b[a-z][a-z0-9+.-]+:/[^\s'\"`<>]*[^\s'\"`<>:;,.]", re.IGNORECASE)
_PASSWORD = re.compile(r"(:/+)[^/?#]*:[^/?#]*@")  # up to the last @, since a password may contain one
_SECRET_PARAMETER = re.compile(
    r"([?&;][^=&]*(?:sig|signature|token|secret|password|passwd|pwd|credential|key|keyid|auth)=)[^&#;]+", re.IGNORECASE
)


def mask_credentials(text: str) -> str:
    """Return a text with the credentials in its addresses replaced by ``***``.

    These are a user name with a password, and the parameters that sign a request or name a secret. A user name alone
    stays: in ``abfss://container@account`` it is the container.

    Example:
        >>> mask_credentials("s3://KEY:SECRET@bucket/t: denied, see https://h/f?sv=1&sig=a%2Bb")
        's3://***@bucket/t: denied, see https://h/f?sv=1&sig=***'
    """
    return _ADDRESS.sub(_mask_address, text) if ":/" in text else text


def has_credentials(address: str) -> bool:
    """Return whether an address contains what `mask_credentials` would mask."""
    return mask_credentials(address) != address


def _mask_address(match: re.Match[str]) -> str:
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1***@", match[0]))


# Escaping of text for terminals: names and values in the data could otherwise move the cursor or reverse the text.
#
# Source: Unicode, general categories Cc, Cf, Zl, Zp.


_UNSAFE_IN_JSON = re.compile(r"[^\n -~]")


def printable(text: str) -> str:
    r"""Return the text with every character escaped that does not print or that changes the direction of writing.

    Example:
        >>> printable("a\tb")
        'a\\tb'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def printable_lines(text: str) -> str:
    """Return the text with every character escaped that does not print, except line feeds."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_json(text: str, *, only_ascii: bool = False) -> str:
    r"""Return the same JSON with every character that does not print as a JSON escape.

    Args:
        text: JSON, on one line or several.
        only_ascii: Escape every character beyond ASCII.

    Example:
        >>> printable_json('"\u202e \xe9"')
        '"\\u202e \xe9"'
    """
    if text.isprintable() and (text.isascii() or not only_ascii):
        return text
    return _UNSAFE_IN_JSON.sub(lambda match: _json_escape(match[0], only_ascii), text)


def _json_escape(char: str, only_ascii: bool) -> str:
    if char.isprintable() and not only_ascii:
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
