"""The command line: its commands and exit codes.

Exit codes: 0, success (for ``plan``: nothing to change); 1, an error, usage errors included; 2, ``plan`` found changes;
3, ``plan`` found what the mode refuses or keeps out, or ``ingest``, ``flow`` or ``run`` a batch over a limit; 130,
interrupted; 141, the reader of the output closed it. An error is a message with a hint and never a traceback.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial, wraps
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from widen.cli import (
    alter_commands,
    flow_commands,
    iceberg_commands,
    ingest_commands,
    maintenance_commands,
    output,
    reader_commands,
    shared_options,
    show_commands,
)
from widen.cli.output import STDOUT, discard_output, note, prepare_streams, quiet_output, show_error, show_line
from widen.errors import (
    InternalError,
    LimitExceeded,
    NotForIceberg,
    PostCommitFailed,
    StorageError,
    TableNotFound,
    WidenError,
)
from widen.errors.tables import notes_of
from widen.model.display import READERS_LOG, recorded_commits
from widen.model.lazy_module import import_lazily, spark_required

# Examples in the help of each command; a test parses every one of them.


EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "ingest": (
        "widen ingest orders/monday/ --into shop/orders --verify",
        "widen ingest landing/ --into shop/orders --new",
        "widen ingest landing/ --into shop/orders --follow --checkpoint cp",
        "widen ingest orders/monday/ --into shop.orders --catalog shop/catalog.db",
    ),
    "plan": (
        "widen plan orders/tuesday/ --into shop/orders",
        "widen plan orders/tuesday/ --into shop/orders --pin total=text --json",
        "widen plan pipelines.toml --markdown",
        "widen plan orders/tuesday/ --contract orders.json",
    ),
    "flow": ("widen flow shop/orders --into shop/days --keys day --checkpoint cp --once", "widen flow chain.toml"),
    "init": ("widen init landing/", "widen init landing/ --lake s3://lake --file loads.toml"),
    "run": ("widen run pipelines.toml", "widen run pipelines.toml --only orders --only days --json"),
    "show": ("widen show shop/orders", "widen show shop/orders --version 3 --json"),
    "history": ("widen history shop/orders --limit 10",),
    "contract": ("widen contract shop/orders",),
    "diff": ("widen diff shop/orders --from 3 --to 9",),
    "loads": ("widen loads shop/orders",),
    "report": (
        "widen report shop/orders",
        "widen report shop/orders --html report.html",
        "widen report shop/orders --scan --samples raw --json",
    ),
    "readers": ("widen readers shop/orders", "widen readers shop/orders --readers polars,duckdb --json"),
    "read": (
        "widen read shop/orders --where 'total > 100' --select id --select total",
        "widen read shop/orders --unified --limit 5 --json",
        "widen read shop/orders --where 'id > 5' --format csv",
    ),
    "explain": ("widen explain U8", "widen explain"),
    "alter": (
        "widen alter shop/orders customer.id --type bigint",
        "widen alter shop/orders total --comment 'in euro' --first --dry-run",
    ),
    "properties": ("widen properties shop/orders", "widen properties shop/orders --set delta.appendOnly=true"),
    "rewrite": ("widen rewrite shop/orders",),
    "optimize": ("widen optimize shop/orders --dry-run",),
    "vacuum": ("widen vacuum shop/orders --dry-run",),
    "forget": ("widen forget shop/customers --key id=7 --dry-run",),
    "branch": (
        "widen branch shop.orders --catalog lake.db",
        "widen branch shop.orders --catalog lake.db --create audit --keep-hours 48",
        "widen branch shop.orders --catalog lake.db --fast-forward main --to audit",
    ),
    "layout": (
        "widen layout shop.orders --catalog lake.db --add 'day(placed_at)'",
        "widen layout shop.orders --catalog lake.db --sort-by 'placed_at DESC'",
    ),
    "restore": (
        "widen restore shop/orders --version 3",
        "widen restore shop/orders --timestamp '2024-01-31 12:00:00Z'",
    ),
    "drop-feature": ("widen drop-feature shop/orders typeWidening",),
    "handover": ("widen handover shop/orders --to deltalake --dry-run", "widen handover shop/orders --to polars"),
    "mirror": ("widen mirror shop/orders --catalog lake.db --identifier shop.orders",),
    "sql": (
        "widen sql 'DESCRIBE DETAIL delta.`shop/orders`'",
        "widen sql 'SELECT * FROM shop.orders' --catalog lake.db",
    ),
    "view": ("widen view shop/orders --name orders_by_field", "widen view shop/orders --data-source"),
    "fold": ("widen fold shop/orders total_string --dry-run",),
    "replay": ("widen replay shop/orders_quarantine --into shop/orders",),
}
"""The examples by command."""

_KEEP_LINES = "\b\n"
"""The mark before a paragraph whose lines click must not join."""


def examples_text(command: str) -> str | None:
    """Return the examples of a command for the end of its help; None without examples."""
    lines = EXAMPLES.get(command)
    return None if lines is None else _KEEP_LINES + "\n".join(("Examples:", *(f"  {line}" for line in lines)))


# Commands for both table formats: with ``--catalog`` the table is an Iceberg table, else it is a Delta table.
#
# Here, and nowhere else, the command line decides between the two.


def for_both_formats(delta: Callable[..., None], iceberg: Callable[..., None]) -> Callable[..., None]:
    """Return a command for Delta tables with the option ``--catalog``, which then calls a function for Iceberg tables.

    Args:
        iceberg: Has the parameters ``table`` and ``catalog``, the parameters of options that Iceberg tables have as
            well, and, with annotations, the parameters of options that only Iceberg tables have.
    """
    before = inspect.signature(delta, eval_str=True).parameters
    after = inspect.signature(iceberg, eval_str=True).parameters
    only = [each for name, each in after.items() if name not in before and name != "catalog"]
    catalog = inspect.Parameter(
        "catalog", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=shared_options.Catalog
    )

    @wraps(delta)
    def wrapper(**given: Any) -> None:
        name = given.pop("catalog")
        if name is None:
            for each in only:
                if given.pop(each.name) != each.default:
                    raise typer.BadParameter(f"{_option(each.name)} is for Iceberg tables; name their --catalog.")
            delta(**given)
            return
        for option, value in given.items():
            if option not in after and value != before[option].default:
                raise typer.BadParameter(f"{_option(option)} does not apply to Iceberg tables.")
        try:
            iceberg(catalog=name, **{option: value for option, value in given.items() if option in after})
        except WidenError:
            from widen.sql_commands.iceberg_statements import iceberg_codes

            with iceberg_codes():
                raise

    every = (*before.values(), *only)
    parameters = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in every), catalog]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
    return wrapper


def for_delta_only(delta: Callable[..., None], command: str, reason: str) -> Callable[..., None]:
    """Return a command that says in a line why it does not take an Iceberg table."""
    parameters = inspect.signature(delta, eval_str=True).parameters
    error = NotForIceberg(name=f"widen {command}", reason=reason)
    if "catalog" not in parameters:

        def refuse(**_: Any) -> None:
            raise error

        refuse.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
        return for_both_formats(delta, refuse)

    @wraps(delta)
    def wrapper(**given: Any) -> None:
        try:
            delta(**given)
        except TableNotFound:
            if _is_in_catalog(given["table"], given["catalog"]):
                raise error from None
            raise

    return wrapper


def _is_in_catalog(table: str, catalog: str | None) -> bool:
    from widen.iceberg.catalog import to_table_name

    with suppress(WidenError):
        return catalog is not None and to_table_name(table, catalog).find() is not None
    return False


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


OVER_LIMIT, INTERRUPTED, BROKEN_PIPE = 3, 130, 141
DEBUG = "WIDEN_DEBUG"
"""The environment variable that turns on tracebacks."""

_UsageError: type[Exception] = typer.BadParameter.__mro__[2]
"""The base class of usage errors; versions of typer take it from different packages."""


class WidenGroup(TyperGroup):
    """The commands. Every call ends with an exit code and, if it fails, with a message on stderr."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command and exit with its code."""
        run = partial(super().main, *args, **{**extra, "standalone_mode": False})
        return run() if not extra.get("standalone_mode", True) else sys.exit(_outcome(run))

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Call a command. A broken pipe ends it quietly; an interrupt shows what is committed already.

        Raises:
            typer.Exit: the pipe is broken.
        """
        with recorded_commits() as made:
            return self._invoke(ctx, made)

    def _invoke(self, ctx: typer.Context, made: Sequence[tuple[str, int]]) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()
            for location, version in made[-1:]:
                note(f"Version {version} of {location} is committed; its output was not read.", "bold")
            raise typer.Exit(BROKEN_PIPE) from None
        except PostCommitFailed as error:
            if not isinstance(error.__cause__, BrokenPipeError):
                raise
            discard_output()
            show_error(error)
            raise typer.Exit(BROKEN_PIPE) from None
        except StorageError as error:
            if not made or error.committed is not None:
                raise
            if error.fields.get("location") == STDOUT:
                error.committed = made[-1]
                raise
            # What is read to report a change may also fail: a caller who repeated the command would make it twice.
            location, version = made[-1]
            raise PostCommitFailed(version=version, location=location, reason=error.message.rstrip(".")) from error
        except KeyboardInterrupt as interrupt:
            for text in notes_of(interrupt):
                note(text, "bold")
            raise
        return result


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from widen.model.native_kernel import describe_kernel

        show_line(f"widen {package.__version__} ({describe_kernel()})")
        raise typer.Exit


package = import_lazily("widen")

app = typer.Typer(
    cls=WidenGroup,
    name="widen",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the panels of Rich cut the names of options at 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Evolve schemas and widen types of Delta Lake and Iceberg tables, without rewriting files or losing values."""
    logging.getLogger(READERS_LOG).disabled = True  # the output of a command says it


def _with_groups(commands: Mapping[str, Callable[..., None]]) -> Mapping[str, Callable[..., None]]:
    return {name: shared_options.with_groups(command) for name, command in commands.items()}


_COMMANDS: Mapping[str, Callable[..., None]] = _with_groups(
    {
        "ingest": ingest_commands.ingest_command,
        "plan": ingest_commands.plan_command,
        "flow": flow_commands.flow_command,
        "init": flow_commands.init_command,
        "run": flow_commands.run_command,
        "show": show_commands.show_table,
        "history": show_commands.history,
        "contract": show_commands.contract,
        "diff": show_commands.diff,
        "loads": show_commands.loads,
        "report": show_commands.report,
        "readers": reader_commands.readers_command,
        "read": show_commands.read,
        "explain": show_commands.explain,
        "alter": alter_commands.alter,
        "properties": alter_commands.properties,
        "rewrite": maintenance_commands.rewrite,
        "optimize": maintenance_commands.optimize,
        "vacuum": maintenance_commands.vacuum,
        "forget": maintenance_commands.forget,
        "restore": maintenance_commands.restore,
        "branch": iceberg_commands.branch_command,
        "layout": iceberg_commands.layout_command,
        "drop-feature": maintenance_commands.drop_feature,
        "handover": maintenance_commands.handover,
        "mirror": maintenance_commands.mirror,
        "sql": alter_commands.sql_command,
        "view": maintenance_commands.view,
        "fold": maintenance_commands.fold,
        "replay": maintenance_commands.replay_command,
    }
)

_FOR_ICEBERG: Mapping[str, Callable[..., None]] = _with_groups(
    {
        "show": iceberg_commands.show_iceberg,
        "history": iceberg_commands.history_iceberg,
        "contract": iceberg_commands.contract_iceberg,
        "diff": iceberg_commands.diff_iceberg,
        "loads": iceberg_commands.loads_iceberg,
        "report": iceberg_commands.report_iceberg,
        "readers": reader_commands.readers_iceberg,
        "read": iceberg_commands.read_iceberg_table,
        "alter": iceberg_commands.alter_iceberg,
        "properties": iceberg_commands.properties_iceberg,
        "rewrite": iceberg_commands.rewrite_iceberg,
        "optimize": iceberg_commands.optimize_iceberg,
        "vacuum": iceberg_commands.vacuum_iceberg,
        "forget": iceberg_commands.forget_iceberg,
        "restore": iceberg_commands.restore_iceberg,
        "view": iceberg_commands.view_iceberg,
        "fold": iceberg_commands.fold_iceberg,
    }
)
"""What these commands do for the table of a ``--catalog``."""

_NOT_FOR_ICEBERG: Mapping[str, str] = {
    "drop-feature": "Iceberg tables have a format version instead of features",
    "handover": "Clients of Iceberg read the table as it is",
    "mirror": "It is an Iceberg table already",
}
"""Why these commands do not take the table of a ``--catalog``, each in a line."""


_MAY_START_SPARK = (
    *(
        "ingest",
        "plan",
        "replay",
        "run",
        "flow",
        "show",
        "report",
        "read",
        "alter",
        "properties",
        "rewrite",
        "optimize",
    ),
    *("drop-feature", "handover", "sql", "fold"),
)
"""The commands with the option ``--engine``."""


def with_engine(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the option ``--engine``, which holds for all that the command does."""
    signature = inspect.signature(command, eval_str=True)
    is_own = "engine" in signature.parameters
    option = inspect.Parameter("engine", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=shared_options.Engine)

    @wraps(command)
    def wrapper(**given: Any) -> None:
        engine = given.get("engine") if is_own else given.pop("engine")
        if engine is None:
            command(**given)
            return
        from widen.spark.session import asking_for

        with asking_for(engine.value):
            command(**given)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
    every = parameters if is_own else [*parameters, option]
    wrapper.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in every}
    return wrapper


_MAY_BE_QUIET = (
    *("ingest", "plan", "flow", "run", "replay", "alter", "properties", "rewrite", "optimize", "vacuum", "forget"),
    *("restore", "branch", "layout", "drop-feature", "handover", "mirror", "fold"),
)
"""The commands with the option ``--quiet``."""

_QUIET: Any = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Write only warnings and errors, to stderr; with --json also the JSON."),
]


def with_quiet(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the option ``--quiet``."""
    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_QUIET)

    @wraps(command)
    def wrapper(**given: Any) -> None:
        with quiet_output() if given.pop("quiet") else nullcontext():
            command(**given)

    every = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()), option]
    wrapper.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in every}
    return wrapper


def _command_of(name: str) -> Callable[..., None]:
    command = _COMMANDS[name]
    if name in _NOT_FOR_ICEBERG:
        command = for_delta_only(command, name, _NOT_FOR_ICEBERG[name])
    elif name in _FOR_ICEBERG:
        command = for_both_formats(command, _FOR_ICEBERG[name])
    command = with_quiet(command) if name in _MAY_BE_QUIET else command
    return with_engine(command) if name in _MAY_START_SPARK else command


for _name in _COMMANDS:
    app.command(_name, epilog=examples_text(_name))(_command_of(_name))


_YOUNG_OBJECTS = 100_000
"""How many objects are made before the garbage collector looks at them."""


def main() -> None:
    """Run the command line and exit with its code."""
    # What is imported stays: to look for garbage among it, again and again and at the end, takes long.
    gc.set_threshold(_YOUNG_OBJECTS)
    atexit.register(gc.freeze)
    prepare_streams()
    if not os.environ.get(DEBUG):
        output.redirect_stderr()
    app(prog_name="widen")


def _outcome(call: Callable[[], object]) -> int:
    try:
        with spark_required():
            code = call()
    except WidenError as error:
        if os.environ.get(DEBUG):
            raise
        show_error(error)
        return OVER_LIMIT if isinstance(error, LimitExceeded) else 1
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help; typer does not export the class
            show_line(str(error))
        else:
            show_error(error)
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        return _explain(error)
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> int:
    """Show an error that no part of the program has translated, and return the exit code.

    What went wrong first is the reason: the handling of an error may fail with another one.
    """
    first: BaseException = error
    for each in _chain(error):
        if isinstance(each, KeyboardInterrupt):
            return INTERRUPTED
        if isinstance(each, (WidenError, OSError)):
            first = each
    if isinstance(first, WidenError):
        show_error(first)
    elif isinstance(first, OSError):
        place = first.filename or "the system"
        fix = f"Mend this and repeat the command. {DEBUG}=1 shows where it happened."
        show_error(StorageError(location=os.fsdecode(place), reason=first.strerror or str(first), fix=fix))
    else:
        reason = f"{type(error).__name__}: {error}"
        show_error(InternalError(reason=f"{reason}. {DEBUG}=1 shows where it happened."))
    return 1


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, what it was raised from, or while handling which it was raised, and so on."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__
