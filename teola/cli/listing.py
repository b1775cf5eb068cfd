"""`teola apps` and `teola engines`: what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from teola.cli import options as o

if TYPE_CHECKING:
    from teola.app import App
    from teola.catalogue import Listing

APPS_EXAMPLES = o.examples("teola apps", "teola apps advanced-rag", "teola apps mine.py:app --json")
ENGINES_EXAMPLES = o.examples("teola engines", "teola engines --json")


def apps(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP", show_default=False, help="Show this one with all its parameters."
        ),
    ] = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """List the installed applications, or one with its inputs, outputs and parameters."""
    from teola.catalogue import installed, load_app
    from teola.cli.showing import print_json, show_table

    if app is not None:
        chosen = load_app(app)
        if as_json:
            print_json(_described(chosen))
        else:
            _show(chosen)
        return 0
    listings = installed()
    if as_json:
        print_json([_listed(listing) for listing in listings])
    else:
        show_table(["app", "inputs", "description"], [_row(listing) for listing in listings])
    return 0


def _row(listing: Listing) -> tuple[str, str, str]:
    if listing.app is None:
        return listing.name, "", f"broken: {listing.error}"
    return listing.name, ", ".join(listing.app.inputs), listing.app.description


def _listed(listing: Listing) -> dict[str, Any]:
    if listing.app is None:
        return {"name": listing.name, "source": listing.source, "error": listing.error}
    return {**_described(listing.app), "name": listing.name, "source": listing.source}


def _described(app: App) -> dict[str, Any]:
    from teola.passes import select

    return {
        "name": app.name,
        "description": app.description,
        "inputs": {name: kind.value for name, kind in app.inputs.items()},
        "defaults": {
            name: declared.default for name, declared in app.declared.items() if declared.optional
        },
        "outputs": app.outputs,
        "passes": [step.name for step in select(app.passes)],
        "components": {
            component.name: {
                "type": type(component).__name__,
                "engine": component.engine,
                "parameters": component.config.model_dump(mode="json"),
            }
            for component in app.builder.template.components
        },
    }


def _show(app: App) -> None:
    """One application on a screen."""
    from rich.text import Text

    from teola.cli.showing import console, show_table

    out = console()
    out.print(Text.assemble((app.name, "bold cyan"), f"  {app.description}"))
    out.print()
    inputs = [(name, kind.value, _default(app, name)) for name, kind in app.inputs.items()]
    show_table(["input", "kind", "default"], inputs)
    out.print()
    out.print(Text.assemble(("outputs", "bold"), "  ", ", ".join(app.outputs)))
    out.print()
    rows = []
    for component in app.builder.template.components:
        config = component.config
        values = config.model_dump(mode="json").items()
        settable = [(key, value) for key, value in values if not callable(getattr(config, key))]
        rows += [(f"{component.name}.{key}", _short(value)) for key, value in settable]
    show_table(["parameter (--set)", "default"], rows)


def _default(app: App, name: str) -> str:
    declared = app.declared[name]
    if not declared.optional:
        return ""
    return "none" if declared.default is None else _short(declared.default)


def _short(value: Any) -> str:
    import json
    import textwrap

    return textwrap.shorten(json.dumps(value, ensure_ascii=False), 100, placeholder=" …")


def engines(as_json: o.Json = False, debug: o.Debug = False) -> int:
    """List the engine types that are installed, and which of them run by default."""
    from teola.cli.showing import print_json, show_table
    from teola.runtime.engines import engine_types

    types = engine_types()
    if as_json:
        print_json(types)
        return 0
    rows = [
        (e["name"], e.get("kind", ""), "yes" if e["default"] else "", e.get("error") or e["about"])
        for e in types
    ]
    show_table(["engine", "kind", "default", "description"], rows)
    return 0
