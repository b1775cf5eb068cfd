"""`teola config`: the configuration file of `teola serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from teola.cli import options as o

app = typer.Typer(
    no_args_is_help=True,
    help="Write or check a configuration file for `teola serve --config`.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("init", epilog=o.examples("teola config init", "teola config init server.toml"))
def init(
    file: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("teola.toml"),
    debug: o.Debug = False,
) -> int:
    """Write a commented configuration with all defaults."""
    from teola.config import TEMPLATE
    from teola.errors import InputError

    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(TEMPLATE)
    except FileExistsError:
        raise InputError(f"{str(file)!r} is there already; name another file") from None
    except OSError as error:
        raise InputError(f"cannot write {str(file)!r}: {error.strerror}") from None
    typer.echo(str(file))
    return 0


@app.command("check", epilog=o.examples("teola config check teola.toml"))
def check(
    file: Annotated[Path, typer.Argument(show_default=False, help="TOML or YAML.")],
    debug: o.Debug = False,
) -> int:
    """Say whether a configuration is right, without starting anything."""
    from teola.catalogue import installed, load_app
    from teola.cli.given import brought, check_budgets
    from teola.config import read
    from teola.runtime.engines import merged
    from teola.runtime.fitting import Fitting

    configuration = read(file)
    apps = [load_app(name) for name in configuration.apps] or [
        listing.app for listing in installed() if listing.app
    ]
    configuration.check()
    check_budgets(configuration, apps)
    fitting = Fitting(*(app.runtime.fitting for app in apps if app.runtime))
    configs = merged(configuration.engine_configs(brought(apps, configuration.engines)))
    for app in apps:
        fitting.add(app, app.name, app.users, configs)
    fitting.look(configs)
    typer.echo(f"{file} is right")
    return 0


@app.command("reference", epilog=o.examples("teola config reference > docs/configuration.md"))
def reference(debug: o.Debug = False) -> int:
    """Write the reference of all keys, as Markdown."""
    from teola.cli.reference import markdown

    typer.echo(markdown(), nl=False)
    return 0
