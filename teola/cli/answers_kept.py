"""`teola answers`: what answers of queries over tables are kept."""

from __future__ import annotations

from typing import Annotated

import typer

from teola.cli import options as o

app = typer.Typer(
    no_args_is_help=True,
    help="Answers that queries over tables have kept.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
LIST_EXAMPLES = o.examples(
    "teola answers list", "teola answers list --answers postgresql://user@host/db --json"
)
SHOW_EXAMPLES = o.examples("teola answers show 3f2a9c1b")
DELETE_EXAMPLES = o.examples(
    "teola answers delete 3f2a9c1b", "teola answers delete --before 2026-01-01"
)

AnswersOption = Annotated[
    str | None,
    typer.Option(
        "--answers",
        metavar="PATH|DSN",
        callback=o.answers_without_password,
        show_default=False,
        help="The file, if not answers.duckdb in the data folder; or postgresql://...",
    ),
]


@app.command("list", epilog=LIST_EXAMPLES)
def list_(answers: AnswersOption = None, as_json: o.Json = False, debug: o.Debug = False) -> int:
    """List the calls whose answers are kept."""
    from teola.cli.showing import console, print_json, show_table
    from teola.tables.kept import kept_operators

    operators = kept_operators(answers)
    if as_json:
        print_json(operators)
    elif not operators:
        console().print("no answers are kept", style="dim")
    else:
        names = ("operator", "model", "instruction", "answers", "errors", "bytes", "first", "last")
        show_table(names, [[str(row[name]) for name in names] for row in operators])
    return 0


@app.command("show", epilog=SHOW_EXAMPLES)
def show(
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", show_default=False)],
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")] = 20,
    answers: AnswersOption = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Show answers of one call. OPERATOR: its digest, or the beginning of it."""
    from teola.cli.showing import print_json, show_table
    from teola.tables.kept import kept_answers

    rows = kept_answers(answers, operator, limit)
    if as_json:
        print_json(rows)
    else:
        names = ("key", "value", "error", "prompt_tokens", "completion_tokens", "at")
        show_table(
            names,
            [["" if row[name] is None else str(row[name]) for name in names] for row in rows],
        )
    return 0


@app.command("delete", epilog=DELETE_EXAMPLES)
def delete(
    operator: Annotated[str | None, typer.Argument(metavar="OPERATOR", show_default=False)] = None,
    before: Annotated[
        str | None,
        typer.Option(metavar="DATE", show_default=False, help="Those that are older."),
    ] = None,
    answers: AnswersOption = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Delete answers: of one call, or those before a date. A file becomes smaller."""
    from teola.cli.showing import console, print_json
    from teola.tables.kept import delete_answers

    count = delete_answers(answers, operator, before)
    if as_json:
        print_json({"deleted": count})
    else:
        console().print(f"deleted {count:,} answers")
    return 0
