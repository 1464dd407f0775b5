"""The policy of an ingestion, from arguments and a TOML file. An argument overrides the file.

Source: docs/evolution-rules.md#d1; TOML 1.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path as FilePath
from typing import Any, TypeAlias, TypeVar

import msgspec

from widen.errors import InvalidConfig, InvalidOption
from widen.errors.foreign import open_failure
from widen.model.column_path import Path, fold_path, format_path
from widen.planning.evolution.policy import ANYWHERE, Numbers, Policy
from widen.planning.evolution.policy_parser import parse_mode, parse_pin, parse_source, parse_unit
from widen.planning.evolution.samples import Samples

_Value = TypeVar("_Value")

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[^=#"'])+?)\s*=""")

SETTINGS: Mapping[str, str] = {
    "evolve": "widen, split, freeze or fail",
    "max_columns": "an integer >= 1",
    "max_record_size": "bytes, or a size such as 64MB",
    "max_keys": "an integer >= 1",
    "detect_dates": "true, false or a list of fields",
    "detect_maps": "true or false",
    "exclude": "fields to ignore",
    "mask": "fields whose values become ***",
    "allow_unmatched": "true or false",
    "no_stats": "fields without minimum and maximum in the log",
    "pins": "a table of fields, each with a mode, text, json or a type",
    "numbers": "exact, decimal or double",
    "samples": "masked, none or raw",
    "epoch_unit": "a table of fields, each with s, ms, us or ns",
}
"""The settings of a file, and their values."""

_NO_FIELDS: frozenset[Path] = frozenset()


@dataclass(frozen=True, slots=True)
class _PolicySource:
    """Settings from one origin, by the keys of `SETTINGS`.

    Args:
        place: Returns the place of a key for errors; inside a table, that of its key too.
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
    allow_unmatched: bool | None = None,
    no_stats: Iterable[str] | None = None,
    detect_dates: bool | Iterable[str] | None = None,
    detect_maps: bool | None = None,
    epoch_unit: Mapping[str, str] | None = None,
    max_columns: int | None = None,
    max_keys: int | None = None,
    numbers: str | None = None,
    samples: str | None = None,
    max_record_size: int | str | None = None,
) -> Policy:
    """Return the policy from arguments of `ingest` and the file ``config``; what neither sets has its default.

    Raises:
        InvalidOption: a value cannot be used; the error names its place.
        InvalidConfig: the file cannot be read, is not TOML, or has an unknown setting.
    """
    arguments = {key: value for key, value in locals().items() if key != "config" and value is not None}
    sources = [] if config is None else [_read(fspath(config))]
    sources.append(_PolicySource(arguments))
    policy = Policy()
    for each in sources:
        policy = _override(policy, each)
    _ensure_one_rule(policy)
    return policy


def _override(policy: Policy, given: _PolicySource) -> Policy:
    """Return a policy with settings on top of it."""
    return Policy(
        mode=_parse_scalar(given, "evolve", policy.mode, parse_mode),
        pins={**policy.pins, **_parse_table(given, "pins", parse_pin)},
        max_columns=_parse_scalar(given, "max_columns", policy.max_columns, _parse_integer),
        max_keys=_parse_scalar(given, "max_keys", policy.max_keys, _parse_integer),
        date_fields=_parse_scalar(given, "detect_dates", policy.date_fields, _parse_date_fields),
        epoch_units={**policy.epoch_units, **_parse_table(given, "epoch_unit", parse_unit)},
        excluded=policy.excluded | _parse_scalar(given, "exclude", _NO_FIELDS, _parse_sources),
        masked=policy.masked | _parse_scalar(given, "mask", _NO_FIELDS, _parse_sources),
        allows_unmatched=_parse_scalar(given, "allow_unmatched", policy.allows_unmatched, _parse_boolean),
        no_stats=policy.no_stats | _parse_scalar(given, "no_stats", _NO_FIELDS, _parse_sources),
        samples=_parse_scalar(given, "samples", policy.samples, _parse_samples),
        numbers=_parse_scalar(given, "numbers", policy.numbers, _parse_numbers),
        max_record_bytes=_parse_scalar(given, "max_record_size", policy.max_record_bytes, _parse_size),
        detects_maps=_parse_scalar(given, "detect_maps", policy.detects_maps, _parse_boolean),
    )


def _parse_scalar(given: _PolicySource, key: str, default: _Value, parse: Callable[[str, Any], _Value]) -> _Value:
    return parse(given.place(key), given.values[key]) if key in given.values else default


def _parse_table(given: _PolicySource, key: str, parse: Callable[[str, Any], _Value]) -> dict[Path, _Value]:
    entries = _entries(given, key, given.values.get(key, {}))
    return {path: parse(given.place(key, *keys), value) for path, keys, value in entries}


def _entries(given: _PolicySource, *keys_and_table: Any) -> Iterator[tuple[Path, tuple[str, ...], Any]]:
    """Yield the entries of a table and of the tables in it: the path of the field, the keys and the value."""
    *above, table = keys_and_table
    if not isinstance(table, Mapping):
        raise InvalidOption(option=given.place(*above), value=table, expected=f"Must be {SETTINGS[above[0]]}.")
    for key, value in table.items():
        path = parse_source(given.place(*above, key), key)
        if isinstance(value, Mapping):
            inner = _entries(given, *above, key, value)
            yield from (((*path, *rest), (key, *keys), leaf) for rest, keys, leaf in inner)
        else:
            yield path, (key,), value


def _parse_integer(place: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(option=place, value=value, expected="Must be an integer >= 1.")
    return value


_SIZE = re.compile(r"([0-9]+)\s*([kmg]?)b?", re.IGNORECASE)


def _parse_size(place: str, value: object) -> int:
    match = (
        None if isinstance(value, bool) or not isinstance(value, (int, str)) else _SIZE.fullmatch(str(value).strip())
    )
    size = int(match[1]) * 1024 ** "bkmg".index((match[2] or "b").lower()) if match else 0
    if not 0 < size <= _MAX_SIZE:
        raise InvalidOption(option=place, value=value, expected="Must be bytes, or a size such as 64MB, up to 1GB.")
    return size


_MAX_SIZE = 2**30
"""A column of texts in a batch of Arrow holds 2 GB."""


def _parse_boolean(place: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(option=place, value=value, expected="Must be true or false.")
    return value


def _parse_date_fields(place: str, value: object) -> frozenset[Path]:
    return (
        (frozenset([ANYWHERE]) if value else frozenset()) if isinstance(value, bool) else _parse_sources(place, value)
    )


def _parse_samples(place: str, value: object) -> Samples:
    try:
        return Samples(value)
    except ValueError:
        raise InvalidOption(option=place, value=value, expected=f"Must be {SETTINGS['samples']}.") from None


def _parse_numbers(place: str, value: object) -> Numbers:
    try:
        return Numbers(value)
    except ValueError:
        raise InvalidOption(option=place, value=value, expected=f"Must be {SETTINGS['numbers']}.") from None


def _parse_sources(place: str, value: Any) -> frozenset[Path]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise InvalidOption(option=place, value=value, expected="Must be a list of fields.")
    return frozenset(parse_source(place, each) for each in value)


def _ensure_one_rule(policy: Policy) -> None:
    masked = set(map(fold_path, policy.masked))
    for path in sorted(path for path in policy.excluded if fold_path(path) in masked):
        expected = "A field cannot be both excluded and masked."
        raise InvalidOption(option="mask", value=format_path(path), expected=expected)


# ---- the file --------------------------------------------------------------------------------------


_CHECK_FILE = "Check the path of the configuration file; a relative one starts at the current directory."


def _read(name: str) -> _PolicySource:
    try:
        text = FilePath(name).read_text(encoding="utf-8")
        values = msgspec.toml.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        expected = "Must be valid TOML; see https://toml.io."
        raise InvalidConfig(place=name, reason=str(error).rstrip("."), expected=expected) from error
    except (OSError, ValueError) as error:
        raise InvalidConfig(place=name, reason=open_failure(error), expected=_CHECK_FILE) from error
    given = _PolicySource(values, lambda *keys: _place(name, text, keys))
    for key in values:
        if key not in SETTINGS:
            valid = "; ".join(f"{name} ({accepted})" for name, accepted in SETTINGS.items())
            raise InvalidConfig(place=given.place(key), reason="unknown setting", expected=f"Valid settings: {valid}.")
    return given


_Keys: TypeAlias = tuple[str, ...]


def _place(name: str, text: str, keys: _Keys) -> str:
    """Return the place of a key in a TOML file: the file, the line if it is found, and the key."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        header, entry = _HEADER.match(line), _KEY.match(line)
        if header:
            section = _bare(header[1]) + "."
        path = section[:-1] if header else section + _bare(entry[1]) if entry else None
        if path == _bare(".".join(keys)):
            return f"{name}, line {number}: {'.'.join(keys)}"
    return f"{name}: {'.'.join(keys)}"


def _bare(keys: str) -> str:
    return re.sub(r"""["'\s]""", "", keys)
