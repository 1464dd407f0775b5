"""The policy of an ingestion from what people say: arguments, and a file of TOML. What is said wins over the file.

Source: docs/evolution-rules.md#d1; TOML 1.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import msgspec

from widen.errors import InvalidConfig, InvalidOption
from widen.model.column_path import Path, format_path
from widen.planning.evolution.policy import ANYWHERE, Policy
from widen.planning.evolution.policy_parser import parse_mode, parse_pin, parse_source, parse_unit
from widen.planning.evolution.samples import Samples

_Value = TypeVar("_Value")

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[^=#"'])+?)\s*=""")

SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "evolve": "widen, split, freeze or fail",
        "max_columns": "a whole number",
        "detect_dates": "true, or the fields that hold dates",
        "exclude": "fields to leave out",
        "mask": "fields whose values nobody is to see",
        "pins": "a table of fields, each with a mode, a form or a type",
        "samples": "masked, none or raw",
        "epoch_unit": "a table of fields, each with s, ms, us or ns",
    }
)
"""What a file can say, and how."""

_NO_FIELDS: frozenset[Path] = frozenset()


@dataclass(frozen=True, slots=True)
class _PolicySource:
    """What somebody says, by the keys of `SETTINGS`.

    Args:
        values: What they say.
        place: Where a key stands, for errors; keys of tables are the second.
    """

    values: Mapping[str, Any]
    place: Callable[..., str] = field(default=lambda *keys: ".".join(keys))


def parse_policy(
    evolve: str | None = None,
    *,
    pins: Mapping[str, str] | None = None,
    config: str | PathLike[str] | None = None,
    exclude: Iterable[str] | None = None,
    mask: Iterable[str] | None = None,
    detect_dates: bool | Iterable[str] | None = None,
    epoch_unit: Mapping[str, str] | None = None,
    max_columns: int | None = None,
    samples: str | None = None,
) -> Policy:
    """Return the policy that arguments and a file describe together; of what neither says, the default.

    Args:
        evolve: ``widen``, ``split``, ``freeze`` or ``fail``.
        pins: For fields by their path: a mode, ``text``, ``json`` or a type.
        config: A file of TOML with the same words as keys.
        exclude: Fields to leave out.
        mask: Fields whose values are replaced by ``***``.
        detect_dates: Whether texts that are dates or instants are taken as such; or the fields in which they are.
        epoch_unit: For fields by their path: ``s``, ``ms``, ``us`` or ``ns``.
        max_columns: How many leaves ingestion may bring the schema to.
        samples: How plans, events and commits show values of records: ``masked``, ``none`` or ``raw``.

    Raises:
        InvalidOption: something said cannot be used; the error names where it stands.
        InvalidConfig: the file cannot be read, is no TOML, or says what nobody asks for.
    """
    said = {
        "evolve": evolve,
        "max_columns": max_columns,
        "detect_dates": detect_dates,
        "exclude": exclude,
        "mask": mask,
        "pins": pins,
        "epoch_unit": epoch_unit,
        "samples": samples,
    }
    sources = [] if config is None else [_read(fspath(config))]
    sources.append(_PolicySource({key: value for key, value in said.items() if value is not None}))
    policy = Policy()
    for each in sources:
        policy = _override(policy, each)
    _ensure_one_treatment(policy)
    return policy


def _override(policy: Policy, said: _PolicySource) -> Policy:
    """Return a policy with what is said on top of it."""
    return Policy(
        mode=_scalar(said, "evolve", policy.mode, parse_mode),
        pins={**policy.pins, **_table(said, "pins", parse_pin)},
        max_columns=_scalar(said, "max_columns", policy.max_columns, _parse_integer),
        dated=_scalar(said, "detect_dates", policy.dated, _parse_date_fields),
        epoch_units={**policy.epoch_units, **_table(said, "epoch_unit", parse_unit)},
        left_out=policy.left_out | _scalar(said, "exclude", _NO_FIELDS, _sources),
        masked=policy.masked | _scalar(said, "mask", _NO_FIELDS, _sources),
        samples=_scalar(said, "samples", policy.samples, _samples),
    )


def _scalar(said: _PolicySource, key: str, default: _Value, parse: Callable[[str, Any], _Value]) -> _Value:
    return parse(said.place(key), said.values[key]) if key in said.values else default


def _table(said: _PolicySource, key: str, parse: Callable[[str, Any], _Value]) -> dict[Path, _Value]:
    entries = _entries(said, key, said.values.get(key, {}))
    return {path: parse(said.place(key, *keys), value) for path, keys, value in entries}


def _entries(said: _PolicySource, *keys_and_table: Any) -> Iterator[tuple[Path, tuple[str, ...], Any]]:
    """Yield the entries of a table, those of tables in it with the longer path, with the keys they stand at."""
    *above, table = keys_and_table
    if not isinstance(table, Mapping):
        raise InvalidOption(option=said.place(*above), value=table, expected=f"It is {SETTINGS[above[0]]}.")
    for key, value in table.items():
        path = parse_source(said.place(*above, key), key)
        if isinstance(value, Mapping):
            inner = _entries(said, *above, key, value)
            yield from (((*path, *rest), (key, *keys), leaf) for rest, keys, leaf in inner)
        else:
            yield path, (key,), value


def _parse_integer(place: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(option=place, value=value, expected="It is a whole number from 1.")
    return value


def _parse_date_fields(place: str, value: object) -> frozenset[Path]:
    return (frozenset([ANYWHERE]) if value else frozenset()) if isinstance(value, bool) else _sources(place, value)


def _samples(place: str, value: object) -> Samples:
    try:
        return Samples(value)
    except ValueError:
        raise InvalidOption(option=place, value=value, expected=f"Must be {SETTINGS['samples']}.") from None


def _sources(place: str, value: Any) -> frozenset[Path]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise InvalidOption(option=place, value=value, expected="It is a list of fields.")
    return frozenset(parse_source(place, each) for each in value)


def _ensure_one_treatment(policy: Policy) -> None:
    for path in sorted(policy.left_out & policy.masked):
        expected = "A field is left out or masked, not both."
        raise InvalidOption(option="mask", value=format_path(path), expected=expected)


# ---- the file --------------------------------------------------------------------------------------


def _read(name: str) -> _PolicySource:
    try:
        text = FilePath(name).read_text(encoding="utf-8")
        values = msgspec.toml.decode(text)
    except OSError as error:
        raise InvalidConfig(place=name, reason=error.strerror or str(error), expected="Name a file of TOML.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        expected = "See https://toml.io for how TOML is written."
        raise InvalidConfig(place=name, reason=str(error).rstrip("."), expected=expected) from error
    said = _PolicySource(values, lambda *keys: _place(name, text, keys))
    for key in values:
        if key not in SETTINGS:
            known = "; ".join(f"{known} ({how})" for known, how in SETTINGS.items())
            raise InvalidConfig(place=said.place(key), reason="nobody asks for it", expected=f"Known: {known}.")
    return said


_Keys: TypeAlias = tuple[str, ...]


def _place(name: str, text: str, keys: _Keys) -> str:
    """Return where a key stands in a file of TOML: the name of the file, the line if it is found, and the key."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        header, entry = _HEADER.match(line), _KEY.match(line)
        if header:
            section = _bare(header[1]) + "."
        found = section[:-1] if header else section + _bare(entry[1]) if entry else None
        if found == _bare(".".join(keys)):
            return f"{name}, line {number}: {'.'.join(keys)}"
    return f"{name}: {'.'.join(keys)}"


def _bare(keys: str) -> str:
    return re.sub(r"""["'\s]""", "", keys)
