"""`teola journal`: the journal of background queries, beside the servers that use it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teola.cli import options as o
from teola.cli.serving import part

if TYPE_CHECKING:
    from teola.query.journal.journal import Journal
    from teola.query.journal.resealing import Sealing

app = typer.Typer(
    no_args_is_help=True,
    help="Seal what lies in the journal of `teola serve` in plain.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("seal", epilog=o.examples("teola journal seal --config teola.toml"))
def seal(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="The servers' configuration, which has server.journal and server.journal_key.",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Also what was written in plain since the journal was sealed, by a server of an "
            "older version. Make sure first that nobody else can write there.",
        ),
    ] = False,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    debug: o.Debug = False,
) -> int:
    """Seal what the journal has in plain or in the older form, a query at a time.

    Servers may run meanwhile, and it may be stopped and run again. From then on nothing else is
    believed.
    """
    from teola.cli.given import Engines
    from teola.config import Configuration, read
    from teola.errors import InputError

    configuration = read(config) if config else Configuration()
    where = configuration.server
    if where.journal_key is None:
        raise InputError(
            "there is no key to seal with: give the configuration a server.journal_key"
        )
    engines = Engines(dsn=dsn, data_dir=data_dir, learn="off", debug=debug)
    with engines.configured(configuration, ()) as runtime:
        how = where.journal, where.journal_days, where.journal_key
        journal = part("query.journal.journal").journal_of(runtime, *how)
        if journal is None:
            raise InputError("there is no journal: server.journal is false, or has no PostgreSQL")
        done = asyncio.run(_sealed(journal, again))
    typer.echo(f"sealed {done.values} values of {done.queries} queries")
    if done.unreadable:
        message = f"{done.unreadable} queries were left as they are: another key has sealed them"
        print(message, file=sys.stderr)
    return 0


async def _sealed(journal: Journal, again: bool) -> Sealing:
    from teola.query.journal.resealing import seal_rest

    try:
        await journal.open()
        return await seal_rest(journal, again, lambda id: typer.echo(f"sealed {id}", err=True))
    finally:
        await journal.close()
