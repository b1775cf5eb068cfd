"""`teola profile fit`: a profile of an LLM from runs that somebody measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from teola.cli import options as o

if TYPE_CHECKING:
    from teola.profile import StepTime

FIT_EXAMPLES = o.examples(
    "teola profile fit measured_runs.csv -w system=h100_sxm -w tp_size=1 --out here.json",
    "teola profile fit run/requests.jsonl",
    "teola explain advanced-rag --profile here.json",
)
TOKEN_BUDGET: Final = 2048
SEQUENCES: Final = 256
BLOCK_TOKENS: Final = 16
"""Limits that engines have if nobody says otherwise."""


class _Fitted(NamedTuple):
    """A step that was found. runs: how many measurements there were. error: of them, the mean of
    what it is off, as a fraction. kv_blocks: of its KV memory, None where nothing tells."""

    step: StepTime
    runs: int
    error: float
    token_budget: int = TOKEN_BUDGET
    sequences: int = SEQUENCES
    kv_blocks: int | None = None
    block_tokens: int = BLOCK_TOKENS


def fit(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Measured runs (.csv), or one recorded run (its folder, or its requests.jsonl).",
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            "-w",
            metavar="COLUMN=VALUE",
            show_default=False,
            help="Take only the rows of a .csv whose column says this. May be repeated.",
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="Name of the engine in the profile.")] = "llm",
    out: Annotated[
        Path | None,
        typer.Option(
            show_default=False,
            help="File to write; engines already in it are kept. By default profile.json.",
        ),
    ] = None,
    kv_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help="Tokens that the memory for KV holds. By default what a recorded run tells.",
        ),
    ] = None,
    sequences: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Calls that run at once. By default 256."),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Prompt tokens of a step. By default 2,048."),
    ] = None,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Find out how long a step of an LLM takes, from runs that were measured.

    A .csv file has a row for each run: isl and osl (tokens of prompts and of
    answers), concurrency (or batch_size) and tpot (milliseconds for each token).
    A recorded run is a folder with requests.jsonl, a line for each request, and
    meta.json. Of all times that have no negative term, the one of least relative
    error is taken. How much KV memory there was is in meta.json (kv_cache), or is
    found from how many requests ran at once. What is written is a profile, as
    `--profile` takes it.
    """
    from teola.cli.showing import console, print_json
    from teola.profile import EngineProfile, Profile, to_json

    path = out or Path("profile.json")
    kept = kept_in(path)
    found = _of_rates(file, _chosen(where)) if file.suffix == ".csv" else _of_run(file, where)
    kv_blocks = max(1, kv_tokens // found.block_tokens) if kv_tokens else found.kv_blocks
    profile = EngineProfile(
        step=found.step,
        max_batch=budget or found.token_budget,
        max_sequences=sequences or found.sequences,
        prefix_reuse=True,
        keeps_prefixes=True,
        block_tokens=found.block_tokens,
        kv_blocks=kv_blocks,
    )
    fresh = to_json(Profile(path.stem, {engine: profile}))
    about = {"file": str(file), "runs": found.runs, "error": round(found.error, 4)}
    data: dict[str, Any] = {
        **kept,
        **fresh,
        "engines": {**kept["engines"], **fresh["engines"]},
        "fitted": {**kept.get("fitted", {}), engine: about},
    }
    path.write_text(json.dumps(data, indent=2) + "\n")
    if as_json:
        print_json(data)
    else:
        console().print(_told(engine, found, profile.kv_tokens, path))
    return 0


def kept_in(path: Path) -> dict[str, Any]:
    """What the profile says that is to be written to, if there is one. Raises InputError if that is
    something else, which must not be overwritten."""
    from teola.errors import InputError
    from teola.profile import load_profile

    if not path.parent.is_dir():
        raise InputError(f"there is no folder {str(path.parent)!r} for --out: make it first")
    if not path.exists():
        return {"engines": {}}
    load_profile(str(path))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _told(engine: str, found: _Fitted, kv_tokens: int | None, path: Path) -> str:
    step = found.step
    terms = [
        f"{1e3 * step.base_s:.3g} ms for a step",
        f"{1e3 * step.per_sequence_s:.3g} for each sequence",
        f"{1e6 * step.per_context_s:.3g} for 1,000 tokens of context",
        f"{1e3 * step.per_token_s:.3g} for a prompt token",
        f"{1e9 * step.per_pair_s:.3g} for 1,000,000 pairs of tokens",
    ]
    if step.prefill_s:
        terms.append(f"{1e3 * step.prefill_s:.3g} more with any prompt")
    lines = [f"{engine}: " + ", ".join(terms)]
    if kv_tokens is not None:
        lines.append(f"memory for {kv_tokens:,} tokens of KV")
    lines.append(f"off by {found.error:.1%} on average, of {found.runs} measurements")
    lines.append(f"written to {path}")
    return "\n".join(lines)


def _chosen(where: list[str] | None) -> dict[str, str]:
    from teola.errors import InputError

    found = {}
    for one in where or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise InputError(f"--where takes COLUMN=VALUE, not {one!r}")
        found[name] = value
    return found


def _of_rates(file: Path, where: dict[str, str]) -> _Fitted:
    from teola.runtime.step_fit import errors, fitted_to_rates, measured_rates

    measured = measured_rates(file, where)
    step = fitted_to_rates(measured)
    off = [abs(one) for one in errors(measured, step)]
    return _Fitted(step, len(measured), sum(off) / len(off))


def _of_run(file: Path, where: list[str] | None) -> _Fitted:
    from teola.errors import InputError
    from teola.runtime.step_fit import learned, load, replay

    if where:
        raise InputError("--where chooses rows of a .csv file; a recorded run is one run")
    run = load(file if file.is_dir() else file.parent)
    run, step = learned(run, len(run.requests))
    pairs = zip(replay(run, step).answered, run.requests, strict=True)
    off = [abs(one.latency_s / told.latency_s - 1) for one, told in pairs if told.latency_s > 0]
    return _Fitted(
        step,
        len(run.requests),
        sum(off) / len(off),
        run.token_budget,
        run.max_sequences,
        run.kv_blocks,
        run.block_tokens,
    )
