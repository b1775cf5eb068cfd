"""`teola index`, `collections` and `delete`: documents that many queries search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from teola.cli import options as o
from teola.cli.visible import visible

INDEX_EXAMPLES = o.examples(
    "teola index report.pdf notes/ --collection work",
    "teola index papers/ -c papers --set index.chunk_size=128",
    'teola run naive-rag -i question="What is new?" -i collection=papers',
)
COLLECTIONS_EXAMPLES = o.examples("teola collections", "teola collections papers --json")
DELETE_EXAMPLES = o.examples(
    "teola delete --collection papers --document draft.pdf", "teola delete -c papers --yes"
)


def index(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            show_default=False,
            help="Files and directories: text, Markdown, HTML, PDF, office files and more.",
        ),
    ],
    collection: o.Collection,
    sets: o.Sets = None,
    deadline: Annotated[
        float, typer.Option("--deadline", metavar="SECONDS", help="For each document.")
    ] = 3600.0,
    embedding: o.Embedding = None,
    dimensions: o.Dimensions = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    dtype: o.Precision = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Index documents into a collection, which is made if it is new.

    What the collection has already is not indexed again. A document that cannot
    be read is reported and the others go on; the exit code is 1 then.
    """
    from teola import collections as c
    from teola.cli.given import Engines, parse_overrides
    from teola.cli.showing import print_json
    from teola.cli.watching import watching

    overrides = parse_overrides(sets or [])
    engines = Engines(
        dsn=dsn,
        data_dir=data_dir,
        dtype=dtype,
        debug=debug,
        embedding=embedding,
        dimensions=dimensions,
    )
    with engines.runtime() as runtime, watching(bar=True) as watch:
        found = c.index(
            paths,
            collection=collection,
            runtime=runtime,
            overrides=overrides,
            on_progress=watch.step,
            deadline_s=deadline,
        )
    for failure in found["failed"]:
        typer.echo(visible(f"teola: {failure['document']}: {failure['reason']}"), err=True)
    if as_json:
        print_json(found)
    else:
        _show_index(found)
    return 1 if found["failed"] else 0


def _show_index(found: dict[str, Any]) -> None:
    from teola.runtime.documents import passed_over

    parts = [f"{_count(found['new'], 'document')} indexed ({_count(found['chunks'], 'chunk')})"]
    if found["known"]:
        parts.append(f"{found['known']} known already")
    if found["failed"]:
        parts.append(f"{len(found['failed'])} failed")
    if found["hidden"]:
        parts.append(f"{_count(found['hidden'], 'hidden text')} left out")
    typer.echo(f"{found['collection']}: {', '.join(parts)}")
    if found["passed_over"]:
        typer.echo(visible(passed_over(found["passed_over"])))


def collections(
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
            found = c.list_collections(runtime=runtime)
        else:
            found = c.list_documents(name, runtime=runtime)
    if as_json:
        print_json([{**entry, **_iso(entry)} for entry in found])
    elif name is not None:
        rows = [(d["name"], str(d["chunks"]), f"{d['created_at']:%Y-%m-%d %H:%M}") for d in found]
        show_table(["document", "chunks", "indexed at"], rows)
    elif found:
        rows = [(e["name"], str(e["documents"]), str(e["chunks"])) for e in found]
        show_table(["collection", "documents", "chunks"], rows)
    else:
        typer.echo("no collections yet; make one: teola index PATH --collection NAME", err=True)
    return 0


def delete(
    collection: o.Collection,
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
    yes: Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Do not ask.")] = False,
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
        what = ", ".join(documents) if documents else f"all {_count(len(there), 'document')}"
        if not yes and not typer.confirm(f"Delete {what} of collection {collection}?", err=True):
            typer.echo("nothing was deleted", err=True)
            return 1
        deleted = c.delete(collection, documents or None, runtime=runtime)
    if as_json:
        print_json({"collection": collection, "deleted": deleted})
    else:
        typer.echo(f"{collection}: {_count(deleted, 'document')} deleted")
    return 0


def _iso(entry: dict[str, Any]) -> dict[str, str]:
    return {"created_at": entry["created_at"].isoformat()} if "created_at" in entry else {}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
