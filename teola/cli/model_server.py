"""`teola llm up`: a vLLM of one's own in the foreground, ready for `--llm URL`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from teola.cli import options as o

UP_EXAMPLES = o.examples(
    "teola llm up --model .teola/models/tiny-82m",
    "teola llm up --model Qwen/Qwen3-0.6B --port 8001 --cores 0-3",
)

app = typer.Typer(
    no_args_is_help=True,
    help="Run a language model server.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("up", epilog=UP_EXAMPLES)
def up(
    model: Annotated[
        str,
        typer.Option(metavar="DIR|ID", show_default=False, help="A model's folder, or its id."),
    ],
    port: Annotated[int, typer.Option(help="Where to listen; 0 takes a free port.")] = 8000,
    name: Annotated[
        str | None,
        typer.Option(show_default=False, help="What clients call the model; else the folder."),
    ] = None,
    cores: Annotated[
        str | None,
        typer.Option(show_default=False, help="Keep all of it on these cores, such as 0 or 0-3."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="Such as bfloat16 or float32.")] = "auto",
    window: Annotated[
        int | None,
        typer.Option(show_default=False, help="Most tokens of a prompt and its answer."),
    ] = None,
    kv_gib: Annotated[int, typer.Option("--kv-gib", help="KV cache on a CPU, in GiB.")] = 2,
    python: Annotated[
        Path | None,
        typer.Option(show_default=False, help="Of the environment with vLLM; else .venv-vllm."),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(show_default=False, help="File for the server's own output.")
    ] = None,
    kv_events: Annotated[
        str | None,
        typer.Option(
            "--kv-events",
            metavar="ENDPOINT",
            show_default=False,
            help="Where to publish what its prefix cache keeps; else a socket for this user.",
        ),
    ] = None,
    debug: o.Debug = False,
) -> int:
    """Start a vLLM, print its URL once it is ready, and stop it on Ctrl-C."""
    from rich.console import Console

    from teola.runtime.hosts.model_server import ModelServer, ServerOptions

    options = ServerOptions(model, port, python, name, cores, dtype, kv_gib, window, log, kv_events)
    server = ModelServer(options)
    console = Console(stderr=True)
    try:
        with console.status("starting vLLM") as status:
            server.start(lambda phase, seconds: status.update(f"vLLM: {phase} ({seconds:.0f} s)"))
        typer.echo(server.url)
        console.print(f"serving {options.served_name!r}; Ctrl-C stops it; log: {server.log}")
        console.print(f"what its prefix cache keeps (kv_events): {server.kv_events}")
        server.wait()
    finally:
        server.stop()
    return 0
