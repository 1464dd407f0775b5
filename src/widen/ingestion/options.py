"""The options that all ingestions share: how to read records, and how the table may evolve.

Source: docs/evolution-rules.md#d1, #d5, #d6, #d10, #d13, #d16
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from fractions import Fraction
from functools import partial
from os import PathLike, fspath
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from widen.batches.open_source import AnySource, BatchReader
from widen.batches.record_stages import find_message_dialect
from widen.errors import InvalidConfig, InvalidOption, LimitExceeded, OptionMissing, WidenError
from widen.evolution.key_rules import KeyRules, parse_key_rules
from widen.evolution.plan import Grade, Plan
from widen.evolution.policy import (
    ANYWHERE,
    Mode,
    Numbers,
    Policy,
    Samples,
    TextForm,
    parse_mode,
    parse_names,
    parse_pin,
    parse_source,
    parse_unit,
)
from widen.ingestion.ingest_options import KeyOptions, PolicyOptions, TableOptions
from widen.ingestion.toml_files import read_toml
from widen.json.dialect import DIALECTS, Dialect, build_dialect
from widen.json.document import corrupt_words
from widen.json.envelope import ENVELOPES, POSITION, UNCHANGED, UPDATE_DESCRIPTION, Envelope, EventForm, Operation
from widen.json.observation import Observation, RecordPosition, position_text
from widen.json.record_path import ALL, RecordPath, parse_record_path
from widen.json.time_spellings import TimeSpelling, parse_zone
from widen.model.argument_types import has_type, parse_choice
from widen.model.column_path import Path, fold_path, format_path
from widen.model.display import did_you_mean
from widen.model.keyword_options import Option, Unpack, declared
from widen.model.types import StructType, quote_name, similarity_key
from widen.model.value_classes import dataclass
from widen.schema.source_metadata import to_layout
from widen.sources.arrow_columns import ColumnRules, IntegralDoubles, Nanos
from widen.sources.csv_dialect import EXACT_VALUES, WRITTEN_VALUES
from widen.sources.listing import parse_format, to_paths
from widen.sources.memory_source import STDIN, is_files
from widen.sources.places import check_source, ensure_outlives_vacuum, ensure_place_writable
from widen.targets import find_table
from widen.targets.table_format import TableLocation

# The policy of an ingestion, from arguments and a TOML file. An argument overrides the file.
#
# Source: docs/evolution-rules.md#d1; TOML 1.0.


_Value = TypeVar("_Value")

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[^=#"'])+?)\s*=""")


def _values_text(kind: Any, option: Option) -> str:
    """Return which values a setting has."""
    *most, last = option.choices or ("",)
    words = f"{', '.join(most)} or {last}" if most else ""
    return option.setting or words or ("an integer >= 1" if has_type(1, kind) else "true or false")


SETTINGS: Mapping[str, str] = {
    **{name: _values_text(*each) for name, each in declared(PolicyOptions).items() if name != "config"},
    "keys": "a table with key (a list of fields), sequence_by (a field or a list), delete_when, missing (null or "
    "keep), history, history_columns and history_except (lists of fields)",
}
"""The settings of a file, and their values."""

_NO_FIELDS: frozenset[Path] = frozenset()


@dataclass(frozen=True, slots=True)
class _PolicySource:
    """Settings from one origin, by the keys of `SETTINGS`.

    Args:
        place: Returns the place of a key for errors; inside a table, also the place of its key.
    """

    values: Mapping[str, Any]
    place: Callable[..., str] = field(default=lambda *keys: ".".join(keys))


def parse_policy(**options: Unpack[PolicyOptions]) -> Policy:
    """Return the policy from arguments of `ingest` and the file ``config``; what neither sets has its default."""
    config = options.get("config")
    sources = [] if config is None else [_read(fspath(config))]
    sources.append(_PolicySource({key: value for key, value in options.items() if value is not None}))
    policy = Policy()
    for each in sources:
        policy = _override(policy, each)
    _ensure_one_rule(policy)
    if policy.record_path is not None and policy.dialect is not None and policy.dialect.has_messages:
        expected = "Messages are decoded to records, and records below a path are found in documents. Leave it out."
        raise InvalidOption(option="records", value=str(policy.record_path), expected=expected)
    if policy.dialect is None and policy.envelope is not None and policy.envelope.has_schemas:
        policy = replace(policy, dialect=DIALECTS["connect"])
    if policy.dialect is not None and not any("allow_nan" in each.values for each in sources):
        policy = replace(policy, allows_nan=True)  # a dialect has words for NaN and Infinity
    if policy.envelope is not None and policy.envelope.has_unchanged and policy.mode in (Mode.FREEZE, Mode.FAIL):
        # What a row keeps must not depend on whether the mode allows columns.
        policy = replace(policy, pins={(UNCHANGED,): Mode.WIDEN, **policy.pins})
    if policy.envelope is not None and policy.envelope.form is EventForm.MONGODB:
        policy = replace(policy, pins={(UPDATE_DESCRIPTION,): TextForm.JSON, **policy.pins})
    if policy.envelope is not None:
        of_rows = {path for path in policy.excluded | policy.masked if path[0] != policy.envelope.op_column[0]}
        if of_rows and not policy.envelope.says_copies:
            raise InvalidOption(option="envelope", value=policy.envelope.name, expected=_SAY_COPIES)
        excluded = policy.excluded.union(policy.envelope.again(policy.excluded))
        masked = policy.masked.union(policy.envelope.again(policy.masked)) - excluded
        policy = replace(policy, masked=masked, excluded=excluded)
    return policy


def _override(policy: Policy, given: _PolicySource) -> Policy:
    """Return a policy with settings on top of it."""
    return Policy(
        mode=_parse_scalar(given, "evolve", policy.mode, parse_mode),
        pins={**policy.pins, **_parse_table(given, "pins", parse_pin)},
        max_columns=_parse_scalar(given, "max_columns", policy.max_columns, _parse_integer),
        max_keys=_parse_scalar(given, "max_keys", policy.max_keys, _parse_integer),
        date_fields=_parse_scalar(given, "detect_dates", policy.date_fields, _parse_date_fields),
        spelling=TimeSpelling(
            _parse_scalar(given, "date_spellings", policy.spelling.is_any, _parse_date_spellings),
            _parse_scalar(given, "time_zone", policy.spelling.zone, parse_zone),
        ),
        epoch_units={**policy.epoch_units, **_parse_table(given, "epoch_unit", parse_unit)},
        excluded=policy.excluded | _parse_scalar(given, "exclude", _NO_FIELDS, _parse_sources),
        masked=policy.masked | _parse_scalar(given, "mask", _NO_FIELDS, _parse_sources),
        included=_parse_scalar(given, "include", policy.included, _parse_included),
        allows_unmatched=_parse_scalar(given, "allow_unmatched", policy.allows_unmatched, _parse_boolean),
        no_stats=policy.no_stats | _parse_scalar(given, "no_stats", _NO_FIELDS, _parse_sources),
        samples=_parse_scalar(given, "samples", policy.samples, _parse_samples),
        numbers=_parse_scalar(given, "numbers", policy.numbers, _parse_numbers),
        names=_parse_scalar(given, "names", policy.names, parse_names),
        allows_nan=_parse_scalar(given, "allow_nan", policy.allows_nan, _parse_boolean),
        max_record_bytes=_parse_scalar(given, "max_record_size", policy.max_record_bytes, _parse_size),
        detects_maps=_parse_scalar(given, "detect_maps", policy.detects_maps, _parse_boolean),
        enables_widening=_parse_scalar(given, "enable_type_widening", policy.enables_widening, _parse_boolean),
        record_path=_parse_records(given, policy.record_path),
        dialect=_parse_scalar(given, "dialect", policy.dialect, _parse_dialect),
        envelope=_parse_scalar(given, "envelope", policy.envelope, _parse_envelope),
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
"""A column of texts in an Arrow batch holds 2 GB."""


def _parse_boolean(place: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(option=place, value=value, expected="Must be true or false.")
    return value


def _parse_date_fields(place: str, value: object) -> frozenset[Path]:
    return (
        (frozenset([ANYWHERE]) if value else frozenset()) if isinstance(value, bool) else _parse_sources(place, value)
    )


def _parse_date_spellings(place: str, value: object) -> bool:
    if value not in ("exact", "any"):
        raise InvalidOption(option=place, value=value, expected=f"Must be {SETTINGS['date_spellings']}.")
    return value == "any"


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


def _parse_records(given: _PolicySource, known: RecordPath | None) -> RecordPath | None:
    if (text := given.values.get("records")) is not None:
        place = given.place("records")
        if not isinstance(text, str):
            raise InvalidOption(option=place, value=text, expected=f"Must be {SETTINGS['records']}.")
        known = parse_record_path(text, frozenset() if known is None else known.keep, option=place)
    if (keep := given.values.get("keep")) is None:
        return known
    place = given.place("keep")
    if known is None:
        raise InvalidOption(option=place, value=keep, expected="Needs records, the path below which fields are kept.")
    names = [keep] if isinstance(keep, str) else list(keep)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidOption(option=place, value=keep, expected=f"Must be {SETTINGS['keep']}.")
    return replace(known, keep=None if names == [ALL] else frozenset(names))


def _parse_dialect(place: str, value: Any) -> Dialect:
    if isinstance(value, str) and value in DIALECTS:
        return DIALECTS[value]
    if isinstance(value, str) and (found := find_message_dialect(place, value)) is not None:
        return found
    names = value.get("values") if isinstance(value, Mapping) and value.keys() <= {"values", "root"} else None
    root = value.get("root", "") if names else None
    is_table = isinstance(names, Mapping) and all(isinstance(each, str) for each in names.values())
    if not names or not is_table or not isinstance(root, str):
        raise InvalidOption(option=place, value=value, expected=f"Must be {SETTINGS['dialect']}.")
    return build_dialect(", ".join(names), names, root, place)


def _parse_envelope(place: str, value: Any) -> Envelope:
    if isinstance(value, str) and value in ENVELOPES:
        return ENVELOPES[value]
    if isinstance(value, Mapping) and value.get("name") in ENVELOPES and value.keys() <= {"name", "unavailable"}:
        known = ENVELOPES[value["name"]]
        return replace(known, unavailable=_parse_placeholders(place, value.get("unavailable", known.unavailable)))
    if not isinstance(value, Mapping) or not {"after", "op", "deletes"} <= value.keys() <= _ENVELOPE_KEYS:
        expected = f"Must be {SETTINGS['envelope']}; after, op and deletes are required."
        raise InvalidOption(option=place, value=value, expected=expected)
    rows = [_parse_name(f"{place}.{name}", value.get(name, value["after"])) for name in ("after", "before")]
    operations = {name: _parse_operations(f"{place}.{name}", value.get(name, [])) for name in _OPERATIONS}
    if len({type(each) for listed in operations.values() for each in listed}) > 1:
        raise InvalidOption(option=place, value=value, expected="Operations must be all texts, or all integers.")
    op = parse_source(f"{place}.op", value["op"])
    payload = parse_source(f"{place}.payload", value["payload"]) if "payload" in value else ()
    unavailable = _parse_placeholders(place, value.get("unavailable", ()))
    shape = Envelope(format_path(op), payload, rows[1], rows[0], op, unavailable=unavailable)
    copies = tuple(_parse_name(f"{place}.copies", each) for each in _parse_list(f"{place}.copies", value))
    changes = tuple(parse_source(f"{place}.changes", each) for each in _parse_list(f"{place}.changes", value))
    says_copies = not value.keys().isdisjoint(("copies", "changes"))
    return replace(shape, copies=copies, changes=changes, says_copies=says_copies, **operations)  # type: ignore[arg-type]


def _parse_list(place: str, values: Mapping[str, Any]) -> Iterable[object]:
    found = values.get(place.rpartition(".")[2], ())
    if not isinstance(found, (list, tuple)):
        raise InvalidOption(option=place, value=found, expected="Must be a list of fields of the envelope.")
    return found


def _parse_placeholders(place: str, value: Any) -> tuple[str, ...]:
    """Return the texts that stand for a value that a change left as it was; Debezium also writes one as ``hex:``."""
    values = (value,) if isinstance(value, str) else value
    expected = "Must be a text, or a list of texts, each with a character; after hex: two hexadecimal digits a byte."
    error = InvalidOption(option=f"{place}.unavailable", value=value, expected=expected)
    if not isinstance(values, (list, tuple)) or not all(isinstance(each, str) and each for each in values):
        raise error
    try:
        return tuple(
            bytes.fromhex(each.removeprefix("hex:")).decode() if each.startswith("hex:") else each for each in values
        )
    except ValueError:
        raise error from None


_SAY_COPIES = (
    "With mask or exclude, copies must list the fields of an event that have its row again, e.g. old, and changes "
    "those with values of the row in texts, e.g. a statement. An empty list says that there are none."
)
_OPERATIONS = ("upserts", "deletes", "truncates", "ignores")
_ENVELOPE_KEYS = frozenset({"payload", "before", "after", "op", "unavailable", "copies", "changes", *_OPERATIONS})


def _parse_name(place: str, value: object) -> str:
    path = parse_source(place, value)
    if len(path) > 1:
        expected = "Must be a field of the envelope itself; use payload for the objects around it."
        raise InvalidOption(option=place, value=value, expected=expected)
    return path[0]


def _parse_operations(place: str, value: object) -> frozenset[Operation]:
    if not isinstance(value, (list, tuple)) or not all(map(_is_operation, value)):
        raise InvalidOption(option=place, value=value, expected="Must be a list of operations: texts, or integers.")
    return frozenset(value)


def _is_operation(value: object) -> bool:
    return isinstance(value, str) or (type(value) is int and abs(value) < 10**18)


def _parse_sources(place: str, value: Any) -> frozenset[Path]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise InvalidOption(option=place, value=value, expected="Must be a list of fields.")
    return frozenset(parse_source(place, each) for each in value)


def _parse_included(place: str, value: Any) -> frozenset[Path]:
    paths = _parse_sources(place, value)
    nested = [path for path in sorted(paths) if len(path) > 1]
    if nested or not paths:
        expected = "Must name at least one field of records; leave out fields inside of a field with exclude."
        raise InvalidOption(option=place, value=format_path(nested[0]) if nested else [], expected=expected)
    return paths | {(UNCHANGED,)}


def _ensure_one_rule(policy: Policy) -> None:
    names = policy.included_names
    for option, paths in (("exclude", policy.excluded), ("mask", policy.masked)):
        for path in sorted(paths):
            if names is not None and similarity_key(path[0]) not in names:
                expected = "include does not list the field, so it is left out already: list it, or drop this rule."
                raise InvalidOption(option=option, value=format_path(path), expected=expected)
    masked = set(map(fold_path, policy.masked))
    for path in sorted(path for path in policy.excluded if fold_path(path) in masked):
        expected = "A field cannot be both excluded and masked."
        raise InvalidOption(option="mask", value=format_path(path), expected=expected)


# ---- the file --------------------------------------------------------------------------------------


def _read(name: str) -> _PolicySource:
    text, values = read_toml(name, "Must be valid TOML; see https://toml.io.", partial(_place, name))
    given = _PolicySource(values, lambda *keys: _place(name, text, keys))
    valid = "; ".join(f"{name} ({accepted})" for name, accepted in SETTINGS.items())
    ensure_known(values, SETTINGS, given.place, f"Valid settings: {valid}.")
    return given


def ensure_known(keys: Iterable[str], known: Collection[str], place: Callable[[str], str], valid: str = "") -> None:
    """Check the names of settings in a file.

    Raises:
        InvalidConfig: a name is unknown.
    """
    valid = valid or f"Valid settings: {', '.join(sorted(known))}."
    for key in keys:
        if key not in known:
            expected = f"{did_you_mean(key, known)}{valid}"
            raise InvalidConfig(place=place(key), reason="unknown setting", expected=expected)


@contextmanager
def at_place(place: str) -> Iterator[None]:
    """Name the place in a file whose settings are checked in errors.

    Raises:
        InvalidConfig: a setting is invalid.
    """
    try:
        yield
    except InvalidConfig:
        raise
    except WidenError as error:
        raise InvalidConfig(place=place, reason=error.message.rstrip("."), expected=error.advice or "") from error


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


_READER_SWITCHES = MappingProxyType(
    {
        "partition_folders": "has_folders",
        "source_columns": "has_source_columns",
        "skip_bad_files": "skips_bad_files",
    }
)


def to_quarantine(location: str | PathLike[str] | None, table: TableLocation) -> str | None:
    """Return the location of the quarantine table as every process can use it, or None for the default."""
    return None if location is None else table.quarantine(table.resolve(fspath(location))).location


@dataclass(frozen=True, slots=True)
class CheckedOptions:
    """What the arguments of an ingestion say, and where it reads and writes."""

    reader: BatchReader
    policy: Policy
    keys: KeyRules | None
    table: TableLocation
    quarantine: str | None
    places: Mapping[str, str]


def check_options(
    source: AnySource | None,
    into: str | PathLike[str],
    options: Mapping[str, Any],
    *,
    checkpoint: str | None = None,
    writes: bool = True,
) -> CheckedOptions:
    """Check the arguments and the locations of an ingestion before Spark starts, which takes seconds.

    Args:
        source: The source; None for rows that Spark hands to a sink.
    """
    reader, policy = parse_options(options)
    keys = parse_keys(options, policy)
    of_table = {name: options.get(name) for name in declared(TableOptions)}
    table = find_table(into, options.get("storage_options"), **of_table)
    quarantine = to_quarantine(options.get("quarantine"), table)
    own = check_places(source, table, options, quarantine=quarantine, checkpoint=checkpoint, writes=writes)
    return CheckedOptions(reader, policy, keys, table, quarantine, own)


def check_places(
    source: AnySource | None,
    table: TableLocation | None,
    options: Mapping[str, Any],
    *,
    quarantine: str | None = None,
    checkpoint: str | None = None,
    writes: bool = True,
) -> dict[str, str]:
    """Check the locations of an ingestion before Spark starts, and return its outputs by their options.

    Args:
        table: The table; None if the source is only read.
    """
    places = {"checkpoint": checkpoint}
    if table is not None:
        places |= {"into": table.location, "quarantine": table.quarantine(quarantine).location}
    # The name of a table in a catalog is not a path.
    own = {option: place for option, place in places.items() if place and "/" in place}
    if checkpoint is not None and source in (STDIN, [STDIN]):
        expected = "Standard input cannot be followed. Load it once, without --follow and --once."
        raise InvalidOption(option="source", value=STDIN, expected=expected)
    if source is not None and is_files(source):
        is_new, follows = options.get("new", False), checkpoint is not None
        check_source(to_paths(source), own, spark=options.get("spark"), is_new=is_new, follows=follows)
    if checkpoint is not None and table is not None:
        folders = [table.folder(), own.get("quarantine")]
        ensure_outlives_vacuum(checkpoint, folders, options.get("storage_options"))
    if writes:
        for option in own.keys() - {"quarantine"}:
            ensure_place_writable(own[option])
    return own


def parse_options(arguments: Mapping[str, Any]) -> tuple[BatchReader, Policy]:
    """Return the reader of the records and the evolution policy."""
    storage_options = arguments.get("storage_options")
    switches = {switch: arguments[name] for name, switch in _READER_SWITCHES.items() if name in arguments}
    settings: Any = {name: arguments[name] for name in declared(PolicyOptions) if name in arguments}
    policy = parse_policy(**settings)
    column_rules = _parse_column_rules(arguments)
    if column_rules.integral_doubles is IntegralDoubles.CONVERT:
        if policy.numbers is Numbers.DECIMAL:
            expected = "Must be keep with numbers = decimal, which keeps the digits as they are written."
            raise InvalidOption(option="integral_doubles", value="convert", expected=expected)
        policy = replace(policy, takes_integral=True)
    detects = _value_pattern(policy.numbers) if arguments.get("detect_types") else ""
    if policy.dialect is not None:
        policy = replace(policy, dialect=replace(policy.dialect, nanos=column_rules.nanos.value))
    read_as, reader_options = parse_format(arguments.get("format")), dict(arguments.get("options") or {})
    reader = BatchReader(
        read_as,
        reader_options,
        detects,
        **switches,
        storage_options=dict(storage_options or {}),
        max_record_bytes=policy.max_record_bytes,
        record_path=policy.record_path,
        json_option=_find_json_option(policy),
        column_rules=column_rules,
    )
    layout_of = arguments.get("layout_of")
    return reader, policy if layout_of is None else replace(policy, layout=_read_layout(layout_of, storage_options))


def _parse_column_rules(arguments: Mapping[str, Any]) -> ColumnRules:
    return ColumnRules(
        nanos=parse_choice(Nanos, "nanos", arguments.get("nanos", Nanos.ERROR)),
        integral_doubles=parse_choice(
            IntegralDoubles, "integral_doubles", arguments.get("integral_doubles", IntegralDoubles.KEEP)
        ),
    )


def _find_json_option(policy: Policy) -> tuple[str, object, str] | None:
    """Return an option that is for JSON alone, with its value, and what it says."""
    if policy.record_path is not None:
        return "records", str(policy.record_path), "Records below a path are"
    if policy.envelope is not None:
        return "envelope", policy.envelope.name, "Envelopes are"
    return None if policy.dialect is None else ("dialect", policy.dialect.name, "Dialects are")


def parse_keys(arguments: Mapping[str, Any], policy: Policy) -> KeyRules | None:
    """Return the rules of an ingestion by key; None if it only adds rows.

    Raises:
        InvalidOption: one of them cannot be used.
    """
    config = arguments.get("config")
    given = {} if config is None else _parse_key_table(_read(fspath(config)))
    given |= {name: value for name in _KEY_OPTIONS if (value := arguments.get(name)) is not None}
    if not given:
        return None
    if "key" not in given:
        raise OptionMissing(
            option="key", expected=f"{next(iter(given))} applies to an ingestion by key: name its keys."
        )
    if policy.envelope is not None:
        given = {**_rules_of(policy.envelope), **given}
    rules = parse_key_rules(given["key"], *map(given.get, _KEY_OPTIONS[1:]))
    has_unchanged = policy.envelope is not None and policy.envelope.has_unchanged
    rules = replace(rules, has_unchanged=has_unchanged)
    ensure_keys_loaded(rules, policy)
    masked = set(map(fold_path, policy.masked))
    of_condition = rules.missing_fields(StructType())
    for path in of_condition:
        if _is_in(path, masked):
            expected = (
                f"The load masks {format_path(path)}, and a condition on its values would show them. Exclude the field "
                f"instead (--exclude {format_path(path)}): then only whether a record deletes is kept."
            )
            raise InvalidOption(option="delete_when", value=rules.delete_when, expected=expected)
    rules = replace(rules, excluded=tuple(dict.fromkeys(path for path in of_condition if not policy.loads(path))))
    if rules.has_unchanged and fold_path((UNCHANGED,)) in set(map(fold_path, policy.excluded | policy.masked)):
        expected = f"The field {UNCHANGED} says which values a row keeps: it must not be masked or excluded."
        raise InvalidOption(option="exclude", value=UNCHANGED, expected=expected)
    return replace(rules, is_strict=bool(arguments.get("strict")))


def ensure_keys_loaded(rules: KeyRules, policy: Policy) -> None:
    """Check that the values of keys, of the sequence and of tracked fields are stored as they are."""
    hidden = set(map(fold_path, policy.excluded | policy.masked))
    for path in (*rules.fields, *rules.history_columns):
        option = "key" if path in rules.key else "sequence_by" if path in rules.sequence_by else "history_columns"
        if _is_in(path, hidden):
            raise InvalidOption(option=option, value=format_path(path), expected="Must not be masked or excluded.")
        if not policy.loads(path):
            expected = f"Must be loaded: add {format_path(path[:1])} to include."
            raise InvalidOption(option=option, value=format_path(path), expected=expected)


def _is_in(path: Path, fields: Collection[Path]) -> bool:
    """Return whether a field is one of some folded ones, or is below one."""
    return any(fold_path(path[:length]) in fields for length in range(1, len(path) + 1))


def _rules_of(envelope: Envelope) -> dict[str, str]:
    """Return the rules that an envelope itself gives: which record deletes, and which one is newer."""
    column = ".".join(map(quote_name, envelope.op_column))
    deletes = ", ".join(map(_to_sql, sorted(envelope.deletes, key=str)))
    rules = {"delete_when": f"{column} IN ({deletes})"} if deletes else {}
    return {**rules, "sequence_by": POSITION} if envelope.has_position else rules


def _to_sql(operation: Operation) -> str:
    if isinstance(operation, int):
        return str(operation)
    if "'" in operation and not {'"', "\\"} & {*operation}:
        return f'"{operation}"'  # an escape needs Spark
    return "'" + operation.replace("\\", "\\\\").replace("'", "\\'") + "'"


_KEY_OPTIONS = tuple(declared(KeyOptions))
_KEY_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("key", "history_columns", "history_except"), list),
    "sequence_by": (str, list),
    "history": bool,
}


def _parse_key_table(given: _PolicySource) -> dict[str, Any]:
    table = given.values.get("keys", {})
    if not isinstance(table, Mapping):
        raise InvalidOption(option=given.place("keys"), value=table, expected=f"Must be {SETTINGS['keys']}.")
    valid = f"Valid settings of keys: {', '.join(_KEY_OPTIONS)}."
    ensure_known(table, _KEY_OPTIONS, partial(given.place, "keys"), valid)
    for name, value in table.items():
        place = given.place("keys", name)
        if _KEY_TYPES.get(name) is list and isinstance(value, str):
            raise InvalidOption(option=place, value=value, expected=f'Must be a list of fields: {name} = ["{value}"]')
        if not isinstance(value, _KEY_TYPES.get(name, str)):
            raise InvalidOption(option=place, value=value, expected=f"Must be in {SETTINGS['keys']}.")
    return dict(table)


def _value_pattern(numbers: Numbers) -> str:
    """Return which texts become numbers and booleans: 12.50 does where a decimal keeps it, or doubles are asked for."""
    return EXACT_VALUES if numbers is Numbers.EXACT else WRITTEN_VALUES


def _read_layout(layout_of: str | PathLike[str], storage_options: Mapping[str, str] | None) -> StructType:
    """Return the columns of a table, for a new table with the same layout."""
    schema = find_table(layout_of, storage_options).open(Policy()).schema
    if schema is None:
        raise InvalidOption(option="layout_of", value=str(layout_of), expected="Must be a table.")
    return to_layout(schema)


# Limits of a batch: how many records may be corrupt or quarantined, and which changes are too severe. The gate for CI.
#
# Source: docs/guide/gate.md


_SEVERE = (Grade.CONFLICT, Grade.STRUCTURAL)
"""The grades that a batch can fail on, least severe first."""

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*%|(\d+)")
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Limit:
    """A maximum number of records.

    Args:
        share: The share of all records, from 0 to 1.
    """

    text: str
    count: int | None = None
    share: Fraction = Fraction(0)

    def is_exceeded(self, count: int, total: int) -> bool:
        """Return whether a number of records is too large."""
        return count > (self.share * total if self.count is None else self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """What a batch must fulfil to be committed.

    Args:
        fail_on: The least severe grade of changes that is refused: conflict or structural.
    """

    max_corrupt: Limit | None = None
    max_quarantined: Limit | None = None
    fail_on: Grade | None = None

    def ensure_fulfilled(self, plan: Plan, seen: Observation) -> None:
        """Check a batch.

        Raises:
            LimitExceeded: the batch is over a limit.
        """
        reasons = self.find_excess(plan, seen)
        if reasons:
            raise LimitExceeded(reasons="; ".join(reasons))

    def find_excess(self, plan: Plan, seen: Observation) -> tuple[str, ...]:
        """Return which limits a batch is over, each in a few words."""
        return (*self._counts(seen), *self._changes(plan))

    def _counts(self, seen: Observation) -> Iterator[str]:
        total, why = seen.records + seen.corrupt + seen.quarantined, seen.corrupt_reason
        for limit, count, words, first, reason in (
            (self.max_corrupt, seen.corrupt, " ".join(corrupt_words(2, why)), seen.first_corrupt, why),
            (self.max_quarantined, seen.quarantined, "records do not fit fixed columns", None, ""),
        ):
            if limit is not None and limit.is_exceeded(count, total):
                reason = f" ({reason})" if reason else ""
                yield f"{count} of {total} {words}{_first_text(first)}{reason}, the limit is {limit.text}"

    def _changes(self, plan: Plan) -> Iterator[str]:
        if self.fail_on is None:
            return
        refused = _SEVERE[_SEVERE.index(self.fail_on) :]
        events = [event for event in plan.events if event.grade in refused]
        named = ", ".join(
            f"{format_path(event.column)} ({event.grade.value}{_first_text(event.first)})" for event in events[:_NAMED]
        )
        if events:
            more = f" and {len(events) - _NAMED} more" if len(events) > _NAMED else ""
            yield f"the plan has changes of the grade {self.fail_on.value} or worse: {named}{more}"


def _first_text(first: RecordPosition | None) -> str:
    return f", the first at {position_text(first)}" if first else ""


NO_LIMITS = BatchLimits()


def parse_limits(
    max_corrupt: int | str | None = None, max_quarantined: int | str | None = None, fail_on: str | None = None
) -> BatchLimits:
    """Return limits from a caller's arguments.

    Raises:
        InvalidOption: a value cannot be used.
    """
    if fail_on is not None and fail_on not in {grade.value for grade in _SEVERE}:
        raise InvalidOption(option="fail_on", value=fail_on, expected="Must be conflict or structural.")
    return BatchLimits(
        max_corrupt=_parse_limit("max_corrupt", max_corrupt),
        max_quarantined=_parse_limit("max_quarantined", max_quarantined),
        fail_on=None if fail_on is None else Grade(fail_on),
    )


def _parse_limit(option: str, value: int | str | None) -> Limit | None:
    if value is None:
        return None
    match = _NUMBER.fullmatch(str(value).strip())
    share = Fraction(match[1]) / 100 if match and match[1] else Fraction(0)
    if match is None or share > 1:
        expected = "Must be a whole number >= 0, or a share from 0% to 100%"
        is_share = _NUMBER.fullmatch(f"{str(value).strip()}%") is not None
        expected += f"; a share has its sign: {str(value).strip()}%." if is_share else "."
        raise InvalidOption(option=option, value=value, expected=expected)
    return Limit(str(value).strip(), int(match[2]) if match[2] else None, share)
