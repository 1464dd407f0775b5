"""The TOML files of policies, chains and pipelines, with variables of the environment in their texts.

``${NAME}`` stands for a variable of the environment, ``${NAME:-text}`` for the variable or a text where it is not set,
and ``$${`` for the characters ``${``.

Source: docs/guide/policy.md#variables; TOML 1.0
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from widen.errors import InvalidConfig
from widen.errors.tables import open_failure

Keys: TypeAlias = tuple[str, ...]

_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_WORDING = "Write ${NAME}, or ${NAME:-text} for a text where it is not set; $${ stands for the characters ${."


def read_toml(file: str, expected: str, place: Callable[[str, Keys], str] | None = None) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, and its content with the variables replaced.

    Args:
        place: Returns the place of a value for errors, from the text of the file and the keys that lead to it.

    Raises:
        InvalidConfig: the file cannot be read, is not TOML, or names a variable that is not set.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
        content: dict[str, Any] = msgspec.toml.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(place=file, reason=str(error).rstrip("."), expected=expected) from error
    except (OSError, ValueError) as error:
        fix = "Check the path of the file; a relative one starts at the current directory."
        raise InvalidConfig(place=file, reason=open_failure(error), expected=fix) from error

    def place_of(keys: Keys) -> str:
        return ", ".join((file, *keys)) if place is None else place(text, keys)

    return text, _replace(content, (), place_of)


def _replace(value: Any, keys: Keys, place: Callable[[Keys], str]) -> Any:
    if isinstance(value, dict):
        return {name: _replace(inner, (*keys, name), place) for name, inner in value.items()}
    if isinstance(value, list):
        numbered = [(*keys[:-1], f"[[{keys[-1]}]] {number}") for number in range(1, len(value) + 1)]
        tables = all(isinstance(inner, dict) for inner in value)
        return [_replace(inner, at if tables else keys, place) for inner, at in zip(value, numbered, strict=True)]
    if not isinstance(value, str) or "${" not in value:
        return value
    return _VARIABLE.sub(lambda found: _value_of(found, place(keys)), value)


def _value_of(found: re.Match[str], place: str) -> str:
    if found[0] == "$${":
        return "${"
    name = _NAME.fullmatch(found[1])
    if name is None or not found[2]:
        raise InvalidConfig(place=place, reason=f"{found[0]} does not name a variable", expected=_WORDING)
    value = os.environ.get(name[1], name[2])
    if value is None:
        expected = f"Set it, or write ${{{name[1]}:-text}} for a text where it is not set."
        raise InvalidConfig(place=place, reason=f"the variable {name[1]} is not set", expected=expected)
    return value
