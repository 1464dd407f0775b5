"""Arguments and options that several commands share, and the options of keyword arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial, wraps
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import typer

from widen.errors import InvalidOption, OptionMissing, WidenError
from widen.model.keyword_options import Option, declared
from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    from widen.ingestion.result import OnEvent


class Shown(str, Enum):
    """How values are shown: the values of `widen.evolution.policy.Samples`."""

    NONE = "none"
    MASKED = "masked"
    RAW = "raw"


Table: TypeAlias = Annotated[str, typer.Argument(help="The table: a local path or a URL of an object store.")]
Sources: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="SOURCE...", help="Files, directories or glob patterns; or - for standard input.")
]
Into: TypeAlias = Annotated[
    str,
    typer.Option(
        "--into", metavar="TABLE", help="The table: a local path or a URL; with a catalog its name, e.g. shop.orders."
    ),
]
Catalog: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME|FILE.db",
        help="The catalog of an Iceberg table: a name in PyIceberg's configuration, or a file for an embedded one.",
    ),
]
PlannedSources: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...|FILE.toml",
        help="Files, directories or glob patterns; - for standard input; or a file of loads, as for `widen run`.",
    ),
]
PlannedInto: TypeAlias = Annotated[
    str | None, typer.Option("--into", metavar="TABLE", help="The table; not needed with --contract or FILE.toml.")
]
ContractFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--contract",
        metavar="FILE",
        help="Check the records against a JSON Schema or an .odcs.yaml file; see `widen contract`.",
    ),
]


class ContractForm(str, Enum):
    """The forms of a contract."""

    JSON_SCHEMA = "json-schema"
    ODCS = "odcs"


ContractFormat: TypeAlias = Annotated[
    ContractForm, typer.Option("--format", help="json-schema, or odcs: YAML of the Open Data Contract Standard 3.1.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
Version: TypeAlias = Annotated[int | None, typer.Option("--version", min=0, help="The version; by default the newest.")]
Limit: TypeAlias = Annotated[int | None, typer.Option("--limit", min=1, help="The maximum number; by default all.")]


StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", metavar="KEY=VALUE", help="A setting of the object store of the table; can be repeated."
    ),
]


class EngineChoice(str, Enum):
    """The values of ``--engine``; see `widen.spark.engine.Engine`."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


Engine: TypeAlias = Annotated[
    EngineChoice | None,
    typer.Option(
        "--engine",
        help="Where to do the work. auto: in this process if it can, otherwise on Spark (default); local: in this "
        "process; spark: on Spark.",
    ),
]


class EventGrade(str, Enum):
    """The minimum grade of changes that are sent to a URL: keys of `widen.ingestion.event_sinks.GRADES`."""

    ALL = "all"
    ADDITIVE = "additive"
    WIDENING = "widening"
    CONFLICT = "conflict"
    STRUCTURAL = "structural"


@dataclass(frozen=True, slots=True)
class EventSinkOptions:
    """Where the events of a load go."""

    events: Annotated[
        list[str] | None,
        typer.Option(
            "--events",
            metavar="FILE|URL",
            help="Append each event to a file, as a line of JSON, or send it to a URL as a CloudEvent; can be "
            "repeated.",
        ),
    ] = None
    events_from: Annotated[
        EventGrade,
        typer.Option(
            "--events-from",
            help="Send only changes of this grade or worse to a URL. Failures, unreadable files and stopped fields are "
            "always sent; all sends every event.",
        ),
    ] = EventGrade.STRUCTURAL
    dead_letter: Annotated[
        Path | None,
        typer.Option("--dead-letter", metavar="FILE", help="Append the events that a URL does not accept to a file."),
    ] = None
    events_required: Annotated[
        bool, typer.Option("--events-required", help="Fail after the commit if an event cannot be delivered to a URL.")
    ] = False
    openlineage: Annotated[
        bool,
        typer.Option(
            "--openlineage", help="Send each load to OpenLineage, as its client is configured (OPENLINEAGE_URL)."
        ),
    ] = False

    def listener(
        self, inputs: Sequence[str] = (), tables: Iterable[tuple[str | None, str | None]] = ()
    ) -> OnEvent | None:
        """Return what gets the events of a load: files, webhooks, OpenLineage; None if nothing does.

        Raises:
            InvalidOption: an option needs a URL and has no URL, the URL cannot be used, or a vacuum of a table would
                delete a file.
        """
        events, urls = self.events or [], [each for each in self.events or () if _is_url(each)]
        for event in events:
            if "://" in event and event not in urls:
                expected = "Must be a file, or a URL with http or https."
                raise InvalidOption(option="--events", value=event, expected=expected)
        for option, value in {"--dead-letter": self.dead_letter, "--events-required": self.events_required}.items():
            if value and not urls:
                raise OptionMissing(option="--events with a URL", expected=f"{option} needs it.")
        if not events and not self.openlineage:
            return None
        from widen.ingestion.event_sinks import EventFile, EventSinks, OpenLineage, Webhook
        from widen.sources.places import ensure_file_outlives_vacuum

        files = [("--events", event) for event in events if event not in urls]
        files += [] if self.dead_letter is None else [("--dead-letter", str(self.dead_letter))]
        folders = [_folder_of(into, catalog) for into, catalog in tables if into is not None] if files else []
        for option, file in files:
            ensure_file_outlives_vacuum(option, file, folders)
        to_url = partial(
            Webhook, grade=self.events_from.value, dead_letter=self.dead_letter, must_deliver=self.events_required
        )
        sinks: list[OnEvent] = [to_url(url=each) if each in urls else EventFile(Path(each)) for each in events]
        if self.openlineage:
            sinks.append(OpenLineage(inputs=list(inputs), must_deliver=self.events_required))
        return sinks[0] if len(sinks) == 1 else EventSinks(sinks)


def _is_url(event: str) -> bool:
    return event.partition("://")[0].lower() in ("http", "https")


def _folder_of(into: str, catalog: str | None) -> str | None:
    """Return the folder of a table; None if it is not known yet."""
    if catalog is None:
        return into
    from widen.targets import find_table

    with suppress(WidenError):  # the load itself says it
        return find_table(into, None, catalog=catalog).folder()
    return None


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The store of the table of a command, and how it shows its result."""

    json: Json = False
    storage_option: StorageOptions = None

    @property
    def storage(self) -> dict[str, str]:
        """The settings of the object store."""
        return storage(self.storage_option)


@dataclass(frozen=True, slots=True)
class CallOptions(OutputOptions):
    """Where a command works, and how it shows its result."""

    engine: Engine = None

    @property
    def engine_name(self) -> str | None:
        """The engine that was asked for."""
        return self.engine and self.engine.value


Acknowledge: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--acknowledge",
        metavar="SUBJECT",
        help="Record in the table that a decision of the report has been made, e.g. tags; can be repeated.",
    ),
]
OtherReaders: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--readers",
        metavar="NAMES",
        help="Say what other readers do with the table, e.g. polars,duckdb, or all; see `widen readers`.",
    ),
]
Samples: TypeAlias = Annotated[
    Shown, typer.Option("--samples", help="How values are shown. masked: letters as x, digits as 9.")
]


def pairs(words: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return values of the form KEY=VALUE as a mapping.

    Raises:
        typer.BadParameter: one does not have that form.
    """
    result = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{word!r} must have the form KEY=VALUE.", param_hint=option)
        result[key] = value
    return result


def storage(words: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of an object store.

    Raises:
        typer.BadParameter: one does not have the form KEY=VALUE.
    """
    return pairs(words, "--storage-option")


# Groups of options: a parameter of a command that stands for several options.


_NAME = re.compile(r"[a-z_]*\.?[A-Z]\w*")


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of its groups.

    A group is a parameter whose type is a dataclass or a class of keyword arguments. Those get the values as arguments.
    """
    named = [each for each in command.__annotations__.values() if _NAME.fullmatch(str(each))]
    if not any(_members(eval(each, command.__globals__)) for each in named):  # cheaper than to evaluate all of them
        return command
    own: list[inspect.Parameter] = []
    last: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for each in inspect.signature(command, eval_str=True).parameters.values():
        members = _members(each.annotation)
        if members is None:
            own.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[each.name] = each.annotation, [member.name for member in members]
        (last if each.annotation in (OutputOptions, CallOptions) else own).extend(members)
    own += last

    @wraps(command)
    def wrapper(**given: Any) -> None:
        made = {}
        for group, (kind, names) in groups.items():
            values = {name: given.pop(name) for name in names}
            made[group] = kind(**(values if is_dataclass(kind) else _to_arguments(kind, values)))
        command(**given, **made)

    wrapper.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in own}
    return wrapper


@cache
def _members(group: Any) -> list[inspect.Parameter] | None:
    """Return the options of a group; None if it is not one."""
    if is_dataclass(group):
        hints = get_type_hints(group, include_extras=True)
        defaults = {each.name: each.default for each in fields(group)}
    elif is_typeddict(group):
        options = {name: option for name, (_, option) in declared(group).items() if option.help is not None}
        hints = {name: _option_type(name, declared(group)[name][0], option) for name, option in options.items()}
        defaults = {name: option.default for name, option in options.items()}
    else:
        return None
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, kind, default=defaults[name], annotation=hints[name]) for name in hints]


def _option_type(name: str, kind: Any, option: Option) -> Any:
    """Return the type of an option of the command line, from the type of the argument."""
    kinds = get_args(kind) or (kind,)
    other: Any = str if isinstance(kind, ForwardRef) else list[str]
    scalar = next((each for each in (str, bool, int, float) if each in kinds), other)
    value = list[str] if any(get_origin(each) is Sequence for each in kinds) else scalar
    if option.choices:
        value = _EnumType(name, {each.upper(): each for each in option.choices}, type=str)
    is_shown = option.default not in (None, False)
    details: dict[str, Any] = {"metavar": option.metavar, "min": option.minimum, "help": option.help}
    return Annotated[
        value | None if option.default is None else value,
        typer.Option(_flag(name, option), show_default=is_shown, **details),
    ]


_EnumType: Any = Enum  # its values are not known to a type checker


def _to_arguments(group: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _to_argument(name, *declared(group)[name], value) for name, value in values.items()}


def _to_argument(name: str, kind: Any, option: Option, value: Any) -> Any:
    if isinstance(value, list) and get_origin(get_args(kind)[0]) is Mapping:
        return pairs(value, _flag(name, option)) or None
    return value.value if isinstance(value, Enum) else value or None if isinstance(value, list) else value


def _flag(name: str, option: Option) -> str:
    return option.flag or f"--{name.replace('_', '-')}"
