"""`teola index`: documents that many queries search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from teola.cli import options as o
from teola.cli.collecting import with_plural
from teola.cli.visible import visible

EXAMPLES = o.examples(
    "teola index report.pdf notes/ --collection work",
    "teola index papers/ -c papers --sync --metadata year=2026",
    "teola index papers/ -c papers --set index.chunk_size=128",
    'teola run naive-rag -i question="What is new?" -i collection=papers',
)
COLUMNS: Final = 80


def index(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            show_default=False,
            help="Files and directories: text, Markdown, HTML, PDF, office files and more.",
        ),
    ],
    collection: o.CollectionOption,
    sync: Annotated[
        bool,
        typer.Option(
            "--sync",
            metavar="",
            help="Delete documents of the directories whose files are gone; asks before more than "
            "half go.",
        ),
    ] = False,
    yes: o.Yes = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            metavar="",
            help="Let a file take the place of a file of its name from elsewhere.",
        ),
    ] = False,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            help="Name documents by their paths within it; by default from the name of the "
            "directory on that is given, such as notes/today.md.",
        ),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata",
            "-m",
            metavar="KEY=VALUE",
            show_default=False,
            help="Of every document, for filters; may be repeated. Numbers, true, false and lists "
            "are read as JSON, everything else is a text.",
        ),
    ] = None,
    sets: o.Sets = None,
    deadline: Annotated[
        float, typer.Option("--deadline", metavar="SECONDS", help="For each document.")
    ] = 3600.0,
    embedding: o.EmbeddingOption = None,
    dimensions: o.Dimensions = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    dtype: o.Precision = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Index documents into a collection, which is made if it is new.

    A name is one document: a changed file replaces what it was. What the collection
    has already is not indexed again. A document that cannot be read is reported and
    the others go on; the exit code is 1 then.
    """
    from teola import collections as c
    from teola.cli.given import Engines, parse_metadata, parse_overrides
    from teola.cli.showing import print_json
    from teola.cli.watching import watching

    overrides, parsed_metadata = parse_overrides(sets or []), parse_metadata(metadata or [])
    engines = Engines(
        dsn=dsn,
        data_dir=data_dir,
        dtype=dtype,
        debug=debug,
        embedding=embedding,
        dimensions=dimensions,
    )
    with engines.runtime() as runtime, watching(bar=True) as watch:
        consent = _Consent(collection, yes, watch.hide)
        report = c.index(
            paths,
            collection=collection,
            runtime=runtime,
            overrides=overrides,
            on_progress=watch.step,
            deadline_s=deadline,
            root=root,
            sync=sync,
            replace=replace,
            metadata=parsed_metadata,
            may_delete=consent,
        )
    for failure in report["failed"]:
        typer.echo(visible(f"teola: {failure['document']}: {failure['reason']}"), err=True)
    if as_json:
        print_json(report)
    else:
        _show_index(report)
    if consent.refused:
        typer.echo(f"teola: {consent.refused}", err=True)
    return 1 if report["failed"] or consent.refused else 0


class _Consent:
    """Asks whether so many documents may be deleted; without a terminal the answer is no. before:
    clears the progress. refused: why they stay, in a line."""

    def __init__(self, collection: str, yes: bool, before: Callable[[], None]) -> None:
        self._collection, self._yes, self._before = collection, yes, before
        self.refused = ""

    def __call__(self, number: int, of: int) -> bool:
        from teola.cli.prompting import at_a_terminal

        if self._yes:
            return True
        gone = f"the files of {number} of {with_plural(of, 'document')} are gone"
        if at_a_terminal():
            self._before()
            if typer.confirm(f"{self._collection}: {gone}. Delete these documents?", err=True):
                return True
            self.refused = "nothing was deleted"
        else:
            self.refused = f"{gone}, more than half: nothing was deleted; give --yes to delete them"
        return False


def _show_index(report: dict[str, Any]) -> None:
    from teola.runtime.documents import passed_over

    typer.echo(index_line(report))
    if report["hidden"]:
        typer.echo(f"{with_plural(report['hidden'], 'hidden text')} left out")
    if report["passed_over"]:
        typer.echo(visible(passed_over(report["passed_over"])))


def index_line(report: dict[str, Any]) -> str:
    """What indexing did, in a line that fits a terminal. A line that is too long goes without the
    collection's name, then without the chunks."""
    numbers = {
        "replaced": len(report["replaced"]),
        "taken over": report["taken"],
        "deleted": report["deleted"],
        "known already": report["known"],
        "failed": len(report["failed"]),
    }
    indexed = f"{report['new'] - report['taken']} indexed"
    rest = "".join(f", {number} {what}" for what, number in numbers.items() if number)
    whole = f"{indexed} ({with_plural(report['chunks'], 'chunk')}){rest}"
    forms = (f"{report['collection']}: {whole}", whole, f"{indexed}{rest}")
    return visible(next((form for form in forms if len(form) <= COLUMNS), forms[-1]))
