"""The command line: its commands and exit codes.

Exit codes: 0, success (for ``plan``: nothing to change); 1, an error, usage errors included; 2, ``plan`` found changes;
3, ``plan`` found what the mode refuses or keeps out, or ``ingest`` or ``flow`` a batch over a limit; 130, interrupted;
141, the reader of the output closed it. An error is a message with a hint and never a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from widen.cli import (
    alter_command,
    flow_command,
    handover_command,
    iceberg_commands,
    ingest_commands,
    maintenance_commands,
    properties_and_sql,
    repair_commands,
    show_commands,
    spark_session,
)
from widen.cli.help_examples import examples_text
from widen.cli.output import STDOUT, discard_output, note, prepare_streams, show_error, show_line
from widen.cli.table_formats import for_both_formats
from widen.errors import LimitExceeded, PostCommitFailed, StorageError, WidenError
from widen.errors.foreign import notes_of
from widen.model.lazy_module import import_lazily
from widen.model.progress import recorded_commits

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
            if made and error.fields.get("location") == STDOUT:
                error.committed = made[-1]
            raise
        except KeyboardInterrupt as interrupt:
            for text in notes_of(interrupt):
                note(text, "bold")
            raise
        return result


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        show_line(f"widen {package.__version__}")
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


_COMMANDS: Mapping[str, Callable[..., None]] = {
    "ingest": ingest_commands.ingest,
    "plan": ingest_commands.plan,
    "flow": flow_command.flow,
    "show": show_commands.show,
    "history": show_commands.history,
    "contract": show_commands.contract,
    "diff": show_commands.diff,
    "loads": show_commands.loads,
    "report": show_commands.report,
    "read": show_commands.read,
    "explain": show_commands.explain,
    "alter": alter_command.alter,
    "properties": properties_and_sql.properties,
    "rewrite": maintenance_commands.rewrite,
    "optimize": maintenance_commands.optimize,
    "vacuum": maintenance_commands.vacuum,
    "restore": maintenance_commands.restore,
    "drop-feature": maintenance_commands.drop_feature,
    "handover": handover_command.handover,
    "mirror": handover_command.mirror,
    "sql": properties_and_sql.sql,
    "view": repair_commands.view,
    "fold": repair_commands.fold,
    "replay": repair_commands.replay,
}

_FOR_ICEBERG: Mapping[str, Callable[..., None]] = {
    "show": iceberg_commands.show,
    "history": iceberg_commands.history,
    "contract": iceberg_commands.contract,
    "diff": iceberg_commands.diff,
    "loads": iceberg_commands.loads,
    "report": iceberg_commands.report,
    "read": iceberg_commands.read,
    "alter": iceberg_commands.alter,
    "view": iceberg_commands.view,
    "fold": iceberg_commands.fold,
}
"""What these commands do for the table of a ``--catalog``."""

for _name, _command in _COMMANDS.items():
    _other = _FOR_ICEBERG.get(_name)
    app.command(_name, epilog=examples_text(_name))(for_both_formats(_command, _other) if _other else _command)


def main() -> None:
    """Run the command line and exit with its code."""
    prepare_streams()
    if not os.environ.get(DEBUG):
        spark_session.redirect_stderr()
    app(prog_name="widen")


def _outcome(call: Callable[[], object]) -> int:
    try:
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
    return code if isinstance(code, int) else 0
