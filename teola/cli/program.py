"""The program itself: its commands, and how errors, signals and pipes end it.

Exit codes: 0 an answer, 1 the query (or a document) failed, 2 wrong usage, 3 the query waits for
people and nobody can be asked here, 130 and 143 interrupted.
Errors are one line on standard error; what other code says in more stands below, indented. Modules
that take long to import are imported by the commands that need them, so that `--help` need not
wait.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from typer.main import get_command

from teola.cli import (
    answers_kept,
    collecting,
    configuring,
    index_documents,
    inquiring,
    journaling,
    keys,
    listing,
    model_server,
    profiling,
    querying,
    replaying,
    server_queries,
    serving,
    tables_sql,
    tracing,
)
from teola.cli.options import examples
from teola.cli.visible import visible
from teola.errors import InputError, TeolaError, error_text

FAILED, MISUSED, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="teola",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        'teola run advanced-rag --input question="Why?" --input documents=notes.pdf',
        "teola explain advanced-rag --profile paper-13b",
        "teola index papers/ --collection papers",
        "teola run --help",
    ),
)
app.command("run", epilog=querying.RUN_EXAMPLES)(querying.run)
app.command("explain", epilog=querying.EXPLAIN_EXAMPLES)(querying.explain)
app.command("apps", epilog=listing.APPS_EXAMPLES)(listing.apps)
app.command("engines", epilog=listing.ENGINES_EXAMPLES)(listing.engines)
app.command("serve", epilog=serving.SERVE_EXAMPLES)(serving.serve)
app.command("trace", epilog=tracing.TRACE_EXAMPLES)(tracing.trace)
app.command("replay", epilog=replaying.REPLAY_EXAMPLES)(replaying.replay)
app.command("queries", epilog=server_queries.QUERIES_EXAMPLES)(server_queries.queries)
app.command("waiting", epilog=inquiring.WAITING_EXAMPLES)(inquiring.waiting)
app.command("answer", epilog=inquiring.ANSWER_EXAMPLES)(inquiring.answer)
app.command("index", epilog=index_documents.EXAMPLES)(index_documents.index)
app.command("delete", epilog=collecting.DELETE_EXAMPLES)(collecting.delete)
app.command("sql", epilog=tables_sql.EXAMPLES)(tables_sql.sql)
app.add_typer(answers_kept.app, name="answers")
app.add_typer(collecting.app, name="collections")
app.add_typer(profiling.app, name="profile")
app.add_typer(configuring.app, name="config")
app.add_typer(keys.app, name="keys")
app.add_typer(journaling.app, name="journal")
app.add_typer(model_server.app, name="llm")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"teola {version('teola')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _teola(
    context: typer.Context,
    _: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Answers questions with LLM applications, orchestrated primitive by primitive."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> NoReturn:
    """The installed program `teola`."""
    words = sys.argv[1:]
    if "--debug" not in words:
        _hush()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    code = call(words)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone; so that the exit does not try again:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def call(words: Sequence[str]) -> int:
    """Run one command line, without the program's name; the exit code."""
    try:
        code = get_command(app)(list(words), prog_name="teola", standalone_mode=False)
        return _say("cancelled", INTERRUPTED) if code == INTERRUPTED else int(code or 0)
    except (EOFError, typer.Abort):
        return _say("cancelled", INTERRUPTED)
    except typer.TyperException as error:
        where = getattr(getattr(error, "ctx", None), "command_path", "teola")
        message = error.format_message().rstrip(".").replace("Value error, ", "")
        return _say(f"{message[:1].lower()}{message[1:]} (see `{where} --help`)", MISUSED)
    except InputError as error:
        return _failed(error, words, str(error), MISUSED)
    except TeolaError as error:
        return _failed(error, words, str(error), FAILED)
    except Exception as error:  # noqa: BLE001 - the program's edge: a bug is one line, too
        message = (
            f"internal error, {type(error).__name__} (--debug shows where): {error_text(error)}"
        )
        return _failed(error, words, message, FAILED)


def _failed(error: Exception, words: Sequence[str], message: str, code: int) -> int:
    if "--debug" in words:
        traceback.print_exception(error)
    return _say(message, code)


def _say(message: str, code: int) -> int:
    first, *rest = message.strip().splitlines() or [""]
    lines = [" ".join(first.split()), *(line.rstrip() for line in rest)]
    print("teola:", visible("\n".join(lines)), file=sys.stderr)
    return code


def _stop(number: int, _: object) -> NoReturn:
    """Unwind as for Ctrl-C: the query is cancelled and the engines are closed."""
    raise SystemExit(128 + number)


def _hush() -> None:
    """Keep the logs and warnings of libraries from the user. Their errors come as ours."""
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
