"""`teola keys`: who may ask a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teola.cli import options as o
from teola.cli.serving import part

if TYPE_CHECKING:
    from teola.serve.access.auth import Key

File = Annotated[Path, typer.Option("--file", help="The server's file of keys.")]
KEYS = Path("teola-keys.json")

app = typer.Typer(
    no_args_is_help=True,
    help="Create, list and revoke API keys for `teola serve --keys`.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(
    "create",
    epilog=o.examples("teola keys create alice --tenant shop", "teola keys create prom -s metrics"),
)
def create(
    name: Annotated[str, typer.Argument(show_default=False, help="What the key is called.")],
    tenant: Annotated[str, typer.Option(help="Whose data it opens.")] = "default",
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", "-s", show_default=False, help="query (the default) or metrics."),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens-a-day",
            min=1,
            show_default=False,
            help="Tokens that its queries may take in a day.",
        ),
    ] = None,
    cost: Annotated[
        float | None,
        typer.Option(
            "--cost-a-day",
            show_default=False,
            help="The same in money, by the server's prices.",
        ),
    ] = None,
    file: File = KEYS,
    debug: o.Debug = False,
) -> int:
    """Print a new key, the only time that it can be seen."""
    auth = part("serve.access.auth")
    budget = {"tokens_a_day": tokens, "cost_a_day": cost}
    typer.echo(auth.KeyFile(file).create(name, tenant, scopes or ("query",), **budget))
    return 0


@app.command("list", epilog=o.examples("teola keys list"))
def list_keys(file: File = KEYS, as_json: o.Json = False, debug: o.Debug = False) -> int:
    """List the keys without what opens anything."""
    from datetime import UTC, datetime

    from teola.cli.showing import print_json, show_table

    auth = part("serve.access.auth")
    keys = auth.KeyFile(file).read()
    if as_json:
        print_json([auth.listed(key) for key in keys])
        return 0
    rows = [
        (
            key.name,
            key.tenant,
            ", ".join(key.scopes),
            f"{datetime.fromtimestamp(key.created, UTC):%Y-%m-%d %H:%M}",
            _a_day(key),
        )
        for key in keys
    ]
    show_table(["key", "tenant", "scopes", "created (UTC)", "a day"], rows)
    return 0


def _a_day(key: Key) -> str:
    """What queries with a key may take in a day, in words."""
    from teola.price import shown_cost

    bounds = []
    if (tokens := key.tokens_a_day) is not None:
        bounds.append("1 token" if tokens == 1 else f"{tokens:,} tokens")
    if key.cost_a_day is not None:
        bounds.append(f"a cost of {shown_cost(key.cost_a_day)}")
    return ", ".join(bounds)


@app.command("revoke", epilog=o.examples("teola keys revoke alice"))
def revoke(
    name: Annotated[str, typer.Argument(show_default=False)],
    file: File = KEYS,
    debug: o.Debug = False,
) -> int:
    """Take a key away; running servers notice within a second."""
    part("serve.access.auth").KeyFile(file).revoke(name)
    typer.echo(f"revoked {name}")
    return 0
