"""The options that several commands share."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from teola.price import FORM

QUERY, BOUNDS = "The query", "What it may take"
OPTIMISER, ENGINES, OUTPUT = "The optimiser", "Engines", "Output"


_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|\bpassword\s*=\s*[^\s&]", re.IGNORECASE)


def without_password(context: typer.Context, dsn: str | None) -> str | None:
    """The DSN as it is, with a warning where its password stands on the command line."""
    return _warned(context, "dsn", dsn, "give the address in the environment variable TEOLA_DSN")


def answers_without_password(context: typer.Context, place: str | None) -> str | None:
    """Where answers are kept, with a warning where a password stands on the command line."""
    return _warned(context, "answers", place, "leave it out, and give it in PGPASSWORD")


def _warned(context: typer.Context, name: str, dsn: str | None, instead: str) -> str | None:
    source = context.get_parameter_source(name)
    if dsn and source and source.name == "COMMANDLINE" and _PASSWORD.search(dsn):
        typer.echo(
            f"teola: everybody on this machine can read the password in --{name} in the list of "
            f"processes: {instead}",
            err=True,
        )
    return dsn


class EmbeddingDtype(StrEnum):
    """Precision of the embedding model."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


AppName = Annotated[
    str,
    typer.Argument(
        metavar="APP",
        show_default=False,
        help="An installed application (`teola apps` lists them), or your own: "
        "[bold]path/to/file.py:variable[/bold].",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=VALUE",
        show_default=False,
        rich_help_panel=QUERY,
        help="An input. [bold]documents[/bold] is a file or a directory and may be repeated; "
        "[bold]collection[/bold] names documents that were indexed before; [bold]filters[/bold] "
        "is a JSON object that the documents' metadata must match.",
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="COMPONENT.PARAMETER=VALUE",
        show_default=False,
        rich_help_panel=QUERY,
        help="A parameter of a component, for this query (`teola apps APP` lists them).",
    ),
]
_DEADLINE = typer.Option(
    "--deadline", metavar="SECONDS", rich_help_panel=BOUNDS, help="Give the query up after this."
)
Deadline = Annotated[float, _DEADLINE]
DeadlineOrNone = Annotated[float | None, _DEADLINE]
FinishBy = Annotated[
    float | None,
    typer.Option(
        "--finish-by",
        metavar="SECONDS",
        show_default=False,
        rich_help_panel=BOUNDS,
        help="The answer is wanted by then; nothing is given up.",
    ),
]
MostTokens = Annotated[
    int | None,
    typer.Option(
        "--most-tokens",
        min=1,
        metavar="N",
        show_default=False,
        rich_help_panel=BOUNDS,
        help="Tokens that its calls of LLMs may take, prompts included.",
    ),
]
MostCost = Annotated[
    float | None,
    typer.Option(
        "--most-cost",
        metavar="MONEY",
        show_default=False,
        rich_help_panel=BOUNDS,
        help="The same in money; needs --price.",
    ),
]
PriceOption = Annotated[
    str | None,
    typer.Option(
        "--price",
        metavar=FORM,
        show_default=False,
        rich_help_panel=BOUNDS,
        help="What 10^6 tokens of prompts, of cached ones, and of answers cost. IN,OUT where "
        "cached ones cost as others do.",
    ),
]
PassesOption = Annotated[
    str | None,
    typer.Option(
        "--passes",
        metavar="all|none|A,B",
        show_default=False,
        rich_help_panel=OPTIMISER,
        help="Which optimisation passes run; by default those of the application.",
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME|FILE",
        show_default=False,
        rich_help_panel=OPTIMISER,
        help="Latency profile that the passes and the estimates go by: paper-7b, paper-13b, "
        "paper-30b, one with an LLM of today (llama-8b-h100; a wrong name lists them) or a JSON "
        "file. By default what the engines declare, until their times are "
        "learned.",
    ),
]
Learn = Annotated[
    str | None,
    typer.Option(
        "--learn",
        metavar="FOLDER|off",
        show_default=False,
        rich_help_panel=OPTIMISER,
        help="Keep in this folder how long engines take and how much components write, and go by "
        "what it holds; [bold]off[/bold] learns nothing. By default it is learned, and kept by "
        "`teola serve` only, with its data. `teola profile show` shows it.",
    ),
]
Batching = Annotated[
    str | None,
    typer.Option(
        "--batching",
        metavar="POLICY",
        show_default=False,
        rich_help_panel=OPTIMISER,
        help="Batching policy of all engines: critical_path (the default), topology, fair, fifo, "
        "per_invocation.",
    ),
]
Llm = Annotated[
    list[str] | None,
    typer.Option(
        "--llm",
        metavar="URL|PATH",
        show_default=False,
        rich_help_panel=ENGINES,
        help="An OpenAI-compatible server, such as http://localhost:8000/v1, or the folder of a "
        "Hugging Face model, which then runs in this process. Several servers of one model are "
        "one engine: give the option once for each. By default an extractive reader, which needs "
        "nothing: it quotes sentences and generates no text.",
    ),
]
EmbeddingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--embedding",
        metavar="URL|MODEL",
        show_default=False,
        rich_help_panel=ENGINES,
        help="What embeds texts: an OpenAI-compatible server, such as http://localhost:8001/v1 "
        "(or several of one model, the option once for each), or a sentence-transformers model, "
        "its folder or its name. By default MiniLM, in this process (the extra "
        "[bold]local[/bold]).",
    ),
]
Dimensions = Annotated[
    int | None,
    typer.Option(
        "--dimensions",
        metavar="N",
        min=1,
        show_default=False,
        rich_help_panel=ENGINES,
        help="How long the vectors of the embedding model are, if not 384 as MiniLM's: the vector "
        "store is made for one length.",
    ),
]
WebSearchOption = Annotated[
    str | None,
    typer.Option(
        "--web-search",
        metavar="NAME|URL|DIR",
        show_default=False,
        rich_help_panel=ENGINES,
        help="Where to search, if the application searches the web: [bold]google[/bold] or "
        "[bold]tavily[/bold] (with their keys in the environment), the URL of a SearXNG server, or "
        "a folder of documents. By default Python's language reference, offline.",
    ),
]
OnRay = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="local|auto|ADDRESS",
        show_default=False,
        rich_help_panel=ENGINES,
        help="Run the engines that compute much in Ray actors: [bold]local[/bold] starts Ray on "
        "this machine, [bold]auto[/bold] or an address joins a cluster. By default nothing runs "
        "on Ray.",
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        rich_help_panel=ENGINES,
        help="How many workers of the Ray cluster ask, each with an engine of its own.",
    ),
]
RowsOnRay = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="local|auto|ADDRESS",
        show_default=False,
        rich_help_panel=ENGINES,
        help="Ask the rows on workers of a Ray cluster: [bold]local[/bold] starts Ray on this "
        "machine, [bold]auto[/bold] or an address joins a cluster. By default they are asked here.",
    ),
]
Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        metavar="DSN",
        envvar="TEOLA_DSN",
        callback=without_password,
        show_default=False,
        rich_help_panel=ENGINES,
        help="A PostgreSQL server with pgvector, postgresql://user@host:5432/database. By default "
        "an embedded one. One with a password goes into the variable: others see command lines.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        show_default=False,
        rich_help_panel=ENGINES,
        help="Where the embedded PostgreSQL keeps its data; by default in the folder that "
        "TEOLA_DATA_DIR names, else in your data folder.",
    ),
]
Precision = Annotated[
    EmbeddingDtype | None,
    typer.Option(
        "--dtype",
        show_default=False,
        rich_help_panel=ENGINES,
        help="Precision of the embedding model; auto is the fastest one of this machine, float32 "
        "the same to the last digit on every machine.",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", metavar="", rich_help_panel=OUTPUT, help="Print JSON, for programs."),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        metavar="",
        rich_help_panel=OUTPUT,
        help="Verify what each pass does; show warnings, and where errors come from.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Do not ask.")]
CollectionOption = Annotated[
    str,
    typer.Option("--collection", "-c", metavar="NAME", show_default=False, help="The collection."),
]


def examples(*lines: str) -> str:
    """An epilog of command lines."""
    return "\n".join(["[bold]Examples[/bold]", *(f"[dim]$[/dim] {line}" for line in lines)])
