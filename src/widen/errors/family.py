"""The root of the tree, and its families: each says who must act.

Source: house rule: the error type says who must act, the message shows how.
"""

from __future__ import annotations

from typing import ClassVar


class WidenError(Exception):
    """The base of every error of this library.

    A subclass declares its ``code``, a ``template`` for the message and a ``hint``; its fields are given
    as keywords, fill both texts and stay readable on the exception.

    Args:
        fields: The values for the placeholders of ``template`` and ``hint``.

    Source: house rule: the error type says who must act, the message shows how.
    """

    code: ClassVar[str] = "WIDEN_ERROR"
    template: ClassVar[str] = "{reason}"
    hint: ClassVar[str] = ""

    def __init__(self, **fields: object) -> None:
        self.fields = fields
        super().__init__(self.template.format(**fields))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.fields)

    @property
    def message(self) -> str:
        """What happened, without code and hint."""
        return str(self.args[0])

    @property
    def advice(self) -> str:
        """What to do about it; empty if the message says it all."""
        return self.hint.format(**self.fields)

    def __str__(self) -> str:
        text = f"[{self.code}] {self.message}"
        return f"{text} {self.advice}" if self.hint else text


def _rebuild(kind: type[WidenError], fields: dict[str, object]) -> WidenError:
    return kind(**fields)


class RequestError(WidenError):
    """The caller asked for what the protocol or the policy forbids."""


class TableError(WidenError):
    """What is on disk breaks the protocol, or needs a feature that we lack."""


class ContentionError(WidenError):
    """Nobody is wrong: somebody else committed first."""

    template = "Version {version} of {location} was committed meanwhile: {reason}."
    hint = "Nothing of this attempt is visible. Open the table again and repeat the call."


class InternalError(WidenError):
    """Widen is wrong. Please report it."""

    code = "WIDEN_INTERNAL"
    template = "{reason}"
    hint = "This is a defect of Widen; please report it with the text above."
