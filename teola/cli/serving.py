"""`teola serve`: applications over HTTP."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from teola.cli import options as o

SERVE_EXAMPLES = o.examples(
    "teola serve",
    "teola serve advanced-rag --llm http://localhost:8000/v1 --port 9000",
    "teola serve mine.py:app",
    "teola serve --config teola.toml",
)


def part(name: str) -> Any:
    """A module of `teola.serve`. Raises InputError where what it needs is not installed."""
    from teola.errors import InputError

    try:
        return import_module(f"teola.serve.{name}")
    except ImportError as error:
        missing = error.name or str(error)
        raise InputError(f"{missing} is not installed: pip install 'teola[server]'") from None


def serve(
    apps: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[APP]...",
            show_default=False,
            help="Applications, installed ones or path/to/file.py:variable; by default all that "
            "are installed.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="A configuration, TOML or YAML (`teola config init` writes one); options here "
            "go before it.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(show_default=False, help="Address to listen on; else 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, show_default=False, help="Port, 0 for a free one; else 8080."
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="API keys (`teola keys create`); then every request needs one. Without keys only "
            "this machine is served.",
        ),
    ] = None,
    profile: o.ProfileName = None,
    batching: o.Batching = None,
    llm: o.Llm = None,
    web_search: o.WebSearch = None,
    ray: o.OnRay = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    dtype: o.Precision = None,
    debug: o.Debug = False,
) -> int:
    """Serve applications over HTTP, in our own form and in OpenAI's.

    Prints the URL, serves until Ctrl-C or SIGTERM, and lets queries that run end.
    """
    from rich.console import Console

    from teola.catalogue import installed, load_app
    from teola.cli.given import Engines
    from teola.config import Configuration, read
    from teola.errors import InputError

    server = part("server")
    configuration = read(config) if config else Configuration()
    configuration.check()
    where = configuration.server
    chosen = [load_app(name) for name in apps or configuration.apps]
    served = {app.name: app for app in chosen or [x.app for x in installed() if x.app]}
    if len(served) < len(chosen):
        raise InputError("two applications have the same name; rename one")
    engines = Engines(llm, dsn, data_dir, dtype, batching, profile, debug, web_search, ray)
    console = Console(stderr=True)
    keys = keys or (Path(where.keys) if where.keys else None)
    address = (host or where.host, where.port if port is None else port)
    with (
        server.listen(*address, keys=keys) as listener,
        engines.configured(configuration, served.values()) as runtime,
    ):
        for app in served.values():
            app.runtime = runtime
        name, number = listener.getsockname()[:2]
        typer.echo(f"http://{f'[{name}]' if ':' in name else name}:{number}")
        console.print(f"serving {', '.join(served)}; starting engines ...")
        ready = lambda: console.print("ready; Ctrl-C stops")  # noqa: E731
        limits = server.Limits(
            where.max_queries, where.max_queries_per_tenant, drain_s=where.drain_s
        )
        server.serve(runtime, served, listener, keys=keys, limits=limits, started=ready)
    return 0
