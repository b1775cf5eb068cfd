"""`teola profile`: what engines take on this machine, as it is measured, and as it was learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from teola.cli import options as o
from teola.cli import profile_fit, remembered

if TYPE_CHECKING:
    from teola.runtime.profiler import Measured, Point

MEASURE_EXAMPLES = o.examples(
    "teola profile measure embedding",
    "teola profile measure llm --llm http://localhost:8000/v1 --out here.json",
    "teola explain advanced-rag --profile here.json",
)

app = typer.Typer(
    no_args_is_help=True,
    help="Measure how long engines take, fit it to runs that were measured, or show what was "
    "learned of it.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("show", epilog=remembered.SHOW_EXAMPLES)(remembered.show)
app.command("fit", epilog=profile_fit.FIT_EXAMPLES)(profile_fit.fit)


@app.command("measure", epilog=MEASURE_EXAMPLES)
def measure(
    engine: Annotated[
        str,
        typer.Argument(
            metavar="ENGINE", show_default=False, help="embedding, rerank, vectorstore or llm."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            show_default=False,
            help="File to write; engines already in it are kept. By default profile.json.",
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each batch size.")] = 3,
    limit: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Largest batch (an LLM: tokens) to try."),
    ] = None,
    llm: o.Llm = None,
    embedding: o.EmbeddingOption = None,
    dimensions: o.Dimensions = None,
    dsn: o.Dsn = None,
    data_dir: o.DataDir = None,
    dtype: o.Precision = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Measure an engine's latency by batch size and tokens, and its best batch size.

    Batches are doubled until throughput stops growing. What is written is a
    profile, as `--profile` takes it: the passes, the estimates and the simulator
    go by it. The machine and the versions it was measured with are kept in it.
    """
    from teola.cli.given import Engines
    from teola.cli.showing import print_json
    from teola.cli.watching import watching
    from teola.errors import InputError
    from teola.runtime.machine import describe
    from teola.runtime.profiler import Profiler

    path = out or Path("profile.json")
    kept = profile_fit.kept_in(path)
    options = Engines(
        llm=llm,
        dsn=dsn,
        data_dir=data_dir,
        dtype=dtype,
        debug=debug,
        embedding=embedding,
        dimensions=dimensions,
    )
    for option, urls in {"--llm": llm, "--embedding": embedding}.items():
        if urls and len(urls) > 1:
            raise InputError(
                f"one server is measured at a time: give {option} once, and each server's profile "
                "in its entry of the pool"
            )
    with options.runtime() as runtime, watching(bar=True) as watch:
        watch.start(runtime, [engine], ())
        profiler = Profiler(runtime.host(engine), repeats=repeats, limit=limit)
        measured = runtime.start(profiler.measure(watch.show)).result()
        on = {"engine": type(runtime.host(engine).engine).__name__, **describe()}
    data = _joined(kept, engine, measured, on, path.stem)
    path.write_text(json.dumps(data, indent=2) + "\n")
    if as_json:
        print_json(data)
    else:
        _show(engine, measured, path)
    return 0


def _joined(
    kept: dict[str, Any], engine: str, measured: Measured, on: dict[str, Any], name: str
) -> dict[str, Any]:
    """The file's contents: the profile, the points it was fitted to, and what they were made on."""
    from teola.profile import Profile, to_json

    fresh = to_json(Profile(name, {engine: measured.profile}))
    points = [point._asdict() for point in measured.points]
    return {
        **kept,
        **fresh,
        "engines": {**kept["engines"], **fresh["engines"]},
        "measured": {**kept.get("measured", {}), engine: points},
        "measured_on": {**kept.get("measured_on", {}), engine: on},
    }


def _show(engine: str, measured: Measured, path: Path) -> None:
    from teola.cli.showing import console, show_table

    rows = [
        (point.op, str(point.items), str(point.tokens or ""), f"{point.seconds:.4f}", _rate(point))
        for point in measured.points
    ]
    show_table(["op", "items", "tokens", "seconds", "rate"], rows)
    profile = measured.profile
    best, unit = (
        profile.max_efficient or profile.max_batch,
        "item" if profile.max_efficient else "token",
    )
    best_batch = f"{best} {unit}{'s' if best > 1 else ''}"
    console().print(f"\n{engine}: best batch {best_batch}; written to {path}")


def _rate(point: Point) -> str:
    """Throughput; a step of decoding gives every sequence a token."""
    if not point.seconds:
        return ""
    if point.op == "prefilling":
        return f"{point.tokens / point.seconds:.0f} tokens/s"
    unit = "tokens" if point.op == "decoding" else "items"
    return f"{point.items / point.seconds:.1f} {unit}/s"
