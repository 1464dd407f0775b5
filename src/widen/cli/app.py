"""The application: its commands, and how its calls end.

Exit codes: 0, done (for ``plan``: nothing to change); 2, ``plan`` found changes; 1, an error, also one in the words of
the command; 130, interrupted; 141, nobody reads the output any more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import typer
from typer.core import TyperGroup

from widen.cli import (
    alter_command,
    ingest_commands,
    maintenance_commands,
    properties_and_sql,
    repair_commands,
    show_commands,
    spark_session,
)
from widen.cli.output import note, show_error
from widen.errors import WidenError
from widen.errors.foreign import notes_of

INTERRUPTED, BROKEN_PIPE = 130, 141
DEBUG = "WIDEN_DEBUG"
"""The environment variable that asks for tracebacks."""

_UsageError: type[Exception] = typer.BadParameter.__mro__[2]
"""What all errors in the words of a command are, whichever package the version of typer takes it from."""


class WidenGroup(TyperGroup):
    """The commands; every call ends with an exit code and, if it fails, with a message on stderr."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command and leave with its exit code."""
        run = partial(super().main, *args, **{**extra, "standalone_mode": False})
        return run() if not extra.get("standalone_mode", True) else sys.exit(_outcome(run))

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Call a command; one whose output nobody reads any more ends quietly, an interrupted one says what stands.

        Raises:
            typer.Exit: that is so.
        """
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _forget_output()
            raise typer.Exit(BROKEN_PIPE) from None
        except KeyboardInterrupt as interrupt:
            for text in notes_of(interrupt):
                note(text, "bold")
            raise
        return result


app = typer.Typer(
    cls=WidenGroup,
    name="widen",
    help="Schemas that grow with the data, without rewriting a table and without losing a value.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("ingest")(ingest_commands.ingest)
app.command("plan")(ingest_commands.plan)
app.command("show")(show_commands.show)
app.command("history")(show_commands.history)
app.command("report")(show_commands.report)
app.command("read")(show_commands.read)
app.command("alter")(alter_command.alter)
app.command("properties")(properties_and_sql.properties)
app.command("rewrite")(maintenance_commands.rewrite)
app.command("restore")(maintenance_commands.restore)
app.command("drop-feature")(maintenance_commands.drop_feature)
app.command("sql")(properties_and_sql.sql)
app.command("view")(repair_commands.view)
app.command("fold")(repair_commands.fold)
app.command("replay")(repair_commands.replay)


def main() -> None:
    """Run the command line and leave with its exit code."""
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
        return 1
    except _UsageError as error:
        if str(error):  # one without a word is the help, which is shown already
            show_error(error)
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _forget_output() -> None:
    """Let what is still to be written go nowhere, so that Python does not complain of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
