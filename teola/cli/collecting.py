"""`teola collections` and `delete`: which there are, what is in one, what mends one and what goes.

    teola collections            all of them
    teola collections papers     `show papers`: the documents of one
    teola collections tidy ...   a command

A collection that is called like a command is shown by `teola collections show NAME`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from teola.cli import options as o
from teola.cli.visible import visible

SHOW: str = "show"
EXAMPLES = o.examples(
    "teola collections",
    "teola collections papers --json",
    "teola collections tidy papers",
    "teola collections reindex papers --embedding http://localhost:8001/v1",
)
DELETE_EXAMPLES = o.examples(
    "teola delete --collection papers --document draft.pdf", "teola delete -c papers --yes"
)


class _ShowsOthers(TyperGroup):
    """Hands a first word that is no command of the group to `show`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] in ctx.help_option_names:
            args = args[:1]
        elif not args or args[0] not in self.commands:
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ShowsOthers,
    help="List the collections, or the documents in one of them; tidy or reindex one.",
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
CollectionName = Annotated[
    str, typer.Argument(metavar="NAME", show_default=False, help="The collection.")
]


@app.command(SHOW, epilog=o.examples("teola collections show papers"))
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", show_default=False, help="List this one's documents."),
    ] = None,
    dimensions: o.Dimensions = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """List the collections, or the documents in one of them."""
    from teola import collections as c
    from teola.cli.given import Engines
    from teola.cli.showing import print_json, show_table
    from teola.cli.watching import watching

    engines = Engines(dsn=dsn, data_dir=data_dir, debug=debug, dimensions=dimensions)
    with engines.runtime() as runtime, watching() as watch:
        watch.show("starting vectorstore")
        if name is None:
            entries = c.list_collections(runtime=runtime)
        else:
            entries = c.list_documents(name, runtime=runtime)
    if as_json:
        print_json([{**entry, **_iso(entry)} for entry in entries])
    elif name is not None:
        _show_documents(name, entries)
    elif entries:
        rows = [(e["name"], str(e["documents"]), str(e["chunks"])) for e in entries]
        show_table(["collection", "documents", "chunks"], rows)
    else:
        typer.echo("no collections yet; make one: teola index PATH --collection NAME", err=True)
    return 0


@app.command("tidy", epilog=o.examples("teola collections tidy papers"))
def tidy(
    name: CollectionName,
    yes: o.Yes = False,
    dimensions: o.Dimensions = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Leave the newest document of each name.

    Collections of older versions may have several of one name. They stay until that
    name is indexed again, or until this.
    """
    from teola import collections as c
    from teola.cli.given import Engines
    from teola.cli.showing import print_json

    engines = Engines(dsn=dsn, data_dir=data_dir, debug=debug, dimensions=dimensions)
    with engines.runtime() as runtime:
        doubled = several(c.list_documents(name, runtime=runtime))
        if doubled and not yes:
            older = sum(doubled.values()) - len(doubled)
            typer.echo(visible(_named(doubled)), err=True)
            if not typer.confirm(
                f"Delete {with_plural(older, 'older document')} of these?", err=True
            ):
                typer.echo("nothing was deleted", err=True)
                return 1
        tidied = c.tidy(name, runtime=runtime) if doubled else []
    if as_json:
        print_json({"collection": name, "tidied": tidied})
    else:
        typer.echo(visible(f"{name}: {with_plural(len(tidied), 'name')} tidied"))
    return 0


@app.command(
    "reindex",
    epilog=o.examples("teola collections reindex papers --embedding http://localhost:8001/v1"),
)
def reindex(
    name: CollectionName,
    embedding: o.EmbeddingOption = None,
    dimensions: o.Dimensions = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    dtype: o.Precision = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Embed a collection anew, for another embedding model.

    Its stored chunks are embedded, no file is read. Searches find the old vectors
    until all new ones are there; what is interrupted can be begun again.
    """
    from teola import collections as c
    from teola.cli.given import Engines
    from teola.cli.showing import print_json
    from teola.cli.watching import watching

    engines = Engines(
        dsn=dsn,
        data_dir=data_dir,
        dtype=dtype,
        debug=debug,
        embedding=embedding,
        dimensions=dimensions,
    )
    with engines.runtime() as runtime, watching(bar=True) as watch:
        watch.show("starting embedding, vectorstore")

        def report(done: int, of: int) -> None:
            watch.show("embedding chunks anew", done, of)

        summary = c.reindex(name, runtime=runtime, on_progress=report)
    if as_json:
        print_json(summary)
    else:
        typer.echo(visible(f"{name}: {with_plural(summary['embedded'], 'chunk')} embedded anew"))
    return 0


def delete(
    collection: o.CollectionOption,
    documents: Annotated[
        list[str] | None,
        typer.Option(
            "--document",
            "-d",
            metavar="NAME|ID",
            show_default=False,
            help="Only this document; may be repeated.",
        ),
    ] = None,
    yes: o.Yes = False,
    dimensions: o.Dimensions = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Delete a collection, or some documents of it."""
    from teola import collections as c
    from teola.cli.given import Engines
    from teola.cli.showing import print_json

    engines = Engines(dsn=dsn, data_dir=data_dir, debug=debug, dimensions=dimensions)
    with engines.runtime() as runtime:
        there = c.list_documents(collection, runtime=runtime)
        what = ", ".join(documents) if documents else f"all {with_plural(len(there), 'document')}"
        if not yes and not typer.confirm(f"Delete {what} of collection {collection}?", err=True):
            typer.echo("nothing was deleted", err=True)
            return 1
        deleted = c.delete(collection, documents or None, runtime=runtime)
    if as_json:
        print_json({"collection": collection, "deleted": deleted})
    else:
        typer.echo(f"{collection}: {with_plural(deleted, 'document')} deleted")
    return 0


def with_plural(number: int, noun: str) -> str:
    """A number and its noun, in the plural if need be."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def several(documents: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Names that more than one document has, with how many."""
    names = Counter(str(document["name"]) for document in documents)
    return {name: number for name, number in names.items() if number > 1}


def _show_documents(collection: str, documents: Sequence[dict[str, Any]]) -> None:
    from teola.cli.showing import show_table
    from teola.engine import UNNAMED

    doubled = several(documents) if collection != UNNAMED else {}
    left, rows = dict(doubled), []
    for document in documents:  # the oldest first
        left[document["name"]] = left.get(document["name"], 1) - 1
        older = ", older" if left[document["name"]] > 0 else ""
        indexed = f"{document['created_at']:%Y-%m-%d %H:%M}{older}"
        rows.append((document["name"], str(document["chunks"]), indexed))
    show_table(["document", "chunks", "indexed at"], rows)
    if doubled:
        hint = f"{_named(doubled)}: indexing a name again, or"
        typer.echo(visible(f"{hint} `teola collections tidy {collection}`, leaves the newest"))


def _named(doubled: dict[str, int]) -> str:
    """Names with several documents, in a line."""
    shown = [f"{name} ({number})" for name, number in list(doubled.items())[:8]]
    more = [f"{len(doubled) - len(shown)} more"] if len(doubled) > len(shown) else []
    return f"several documents of one name: {', '.join([*shown, *more])}"


def _iso(entry: dict[str, Any]) -> dict[str, str]:
    return {"created_at": entry["created_at"].isoformat()} if "created_at" in entry else {}
