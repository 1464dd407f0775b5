"""What decodes messages that are not JSON: schemas of a registry, and functions that a caller names.

Source: docs/guide/typed-json.md#messages; the REST API of Confluent's Schema Registry
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from widen.errors import InvalidOption, SourceError
from widen.errors.tables import first_line, open_failure

AVRO, JSON = "AVRO", "JSON"
"""The kinds of schemas whose messages are read."""

Decoder: TypeAlias = Callable[[bytes], "str | bytes | None"]
"""Returns the JSON of a message, or None if it has no record; raises ValueError for a message that it does not know."""

_FILES = {".avsc": AVRO, ".json": JSON}
_TIMEOUT_S, _MAX_BYTES, _MAX_REFERENCES = 20, 16 * 2**20, 100


class RegisteredSchema(NamedTuple):
    """A schema of a registry.

    Args:
        kind: `AVRO` or `JSON`.
        definitions: The schemas that it refers to, each after those that it refers to itself, and the schema. Those of
            JSON are left out: their messages have names and values.
    """

    kind: str
    definitions: Sequence[Any] = ()


class UnknownSchema(Exception):
    """A registry does not have a schema."""


def ensure_registry(option: str, place: str) -> None:
    """Check that a place is a URL or a folder.

    Raises:
        InvalidOption: it is neither.
    """
    if not (_is_url(place) or os.path.isdir(place)):
        expected = (
            "Must be registry: and the URL of a schema registry, such as registry:https://host:8081, or registry: and "
            "a folder with a file for each schema: NUMBER.avsc, or NUMBER.json for JSON."
        )
        raise InvalidOption(option=option, value=f"registry:{without_password(place)}", expected=expected)


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://")) and bool(urlsplit(place).hostname)


def without_password(place: str) -> str:
    """Return the place of a registry as errors show it."""
    return re.sub(r"(?<=://)[^/@]*@", "", place)


@lru_cache(256)
def fetch_schema(place: str, number: int) -> RegisteredSchema:
    """Return a schema; the schema with a number never changes, so this process asks for it once.

    Args:
        place: A URL, which may have a user and a password, or a folder.

    Raises:
        UnknownSchema: the registry does not have it.
        SourceError: the registry cannot be asked, or the schema is not one of Avro or JSON.
    """
    if not _is_url(place):
        return _read_schema(place, number)
    answer = _ask(place, f"/schemas/ids/{number}")
    kind = answer.get("schemaType", AVRO)
    if kind not in (AVRO, JSON):
        reason = f"schema {number} is of the type {kind}, which Widen does not decode"
        raise SourceError(source=without_password(place), reason=reason, fix=_NAME_FUNCTION)
    if kind == JSON:
        return RegisteredSchema(JSON)
    found: dict[tuple[str, str], Any] = {}
    _add_references(place, answer, found)
    return RegisteredSchema(AVRO, (*found.values(), _parse(place, answer.get("schema"))))


_NAME_FUNCTION = "Name a function that decodes it: dialect=MODULE:FUNCTION."


def _read_schema(folder: str, number: int) -> RegisteredSchema:
    for ending, kind in _FILES.items():
        path = os.path.join(folder, f"{number}{ending}")
        try:
            with open(path, encoding="utf-8") as file:
                return RegisteredSchema(kind, () if kind == JSON else (_parse(path, file.read()),))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            reason = open_failure(error) if isinstance(error, OSError) else "it is not UTF-8"
            raise SourceError(source=path, reason=reason, fix="Make the schema readable.") from error
    raise UnknownSchema


def _parse(place: str, text: object) -> Any:
    try:
        return json.loads(text if isinstance(text, str) else "")
    except ValueError:
        # The schema of a primitive type may be its name alone.
        if isinstance(text, str) and re.fullmatch(r"[\w.]+", text):
            return text
        fix = "Look at the schema in the registry."
        raise SourceError(source=without_password(place), reason="a schema is not JSON", fix=fix) from None


def _add_references(place: str, answer: Any, found: dict[tuple[str, str], Any]) -> None:
    """Add the schemas that a schema refers to, each after its own."""
    for each in answer.get("references") or ():
        key = str(each.get("subject")), str(each.get("version"))
        if key not in found and len(found) < _MAX_REFERENCES:
            found[key] = None  # schemas that refer to each other end here
            inner = _ask(place, f"/subjects/{quote(key[0], safe='')}/versions/{quote(key[1], safe='')}")
            _add_references(place, inner, found)
            del found[key]
            found[key] = _parse(place, inner.get("schema"))


def _ask(place: str, path: str) -> Any:
    from urllib.error import HTTPError, URLError  # they take longer to import than a small load
    from urllib.request import Request, urlopen

    shown, parts = without_password(place).rstrip("/"), urlsplit(place)
    request = Request(shown + path, headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"})
    if parts.username is not None:
        both = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_unredirected_header("Authorization", f"Basic {b64encode(both.encode()).decode()}")
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as response:
            answer = json.loads(response.read(_MAX_BYTES))
    except HTTPError as error:
        if error.code == 404:
            raise UnknownSchema from error
        raise SourceError(source=shown, reason=f"it answers {path} with status {error.code}", fix=_CHECK) from error
    except (URLError, OSError, ValueError) as error:
        reason = f"it cannot be asked for {path}: {first_line(error)}"
        raise SourceError(source=shown, reason=reason, fix=_CHECK) from error
    if not isinstance(answer, dict):
        raise SourceError(source=shown, reason=f"it does not answer {path} with an object", fix=_CHECK)
    return answer


_CHECK = "Check the address, the user and the password, and that the schema registry can be reached. Then load again."


def find_function(option: str, name: str) -> Decoder:
    """Return a function.

    Raises:
        InvalidOption: it cannot be imported.
    """
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function, None)
    except ImportError as error:
        expected = (
            f"The module cannot be imported: {first_line(error)}. Python must find it here and in the tasks, for "
            f"instance with PYTHONPATH=. for a file of this folder."
        )
        raise InvalidOption(option=option, value=name, expected=expected) from error
    if not callable(found):
        raise InvalidOption(option=option, value=name, expected=f"The module {module} has no function {function}.")
    return found  # type: ignore[no-any-return]
