"""How well does the model of an LLM's step predict a measured run? See README.md here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy
from rich.console import Console

from experiments.common import command, pages
from experiments.common.command import Report
from teola.errors import InputError, TeolaError
from teola.profile import EngineProfile, StepTime, load_profile
from teola.runtime.step_fit import RecordedRequest, RecordedRun, learned, load
from teola.runtime.step_fit.stepping import TERMS, replay

LEARNED: Final = 3
"""One part in so many of the requests, the first ones, is what the terms are fitted to."""
PAGE: Final = Path(__file__).with_name("README.md")
Figure = Callable[[Sequence[RecordedRequest]], float]


def _p99(answered: Sequence[RecordedRequest]) -> float:
    return float(numpy.percentile([one.ttft_s for one in answered], 99))


FIGURES: Final[dict[str, tuple[str, Figure]]] = {
    "ttft_mean_error": ("first token, mean", lambda some: fmean(one.ttft_s for one in some)),
    "ttft_p99_error": ("first token, p99", _p99),
    "tpot_error": ("each token after it", lambda some: fmean(one.tpot_s for one in some)),
    "latency_mean_error": ("whole answer, mean", lambda some: fmean(one.latency_s for one in some)),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = _parser()
    given = parser.parse_args(argv)
    try:
        report = (
            _read(given.report) if given.report else measure(given.run, given.profile, given.fit)
        )
    except TeolaError as error:
        parser.error(str(error))
    if given.out:
        command.save(report, given.out)
    if given.docs:
        pages.write("step_model_memory" if "fit" in report else "step_model", section(report), PAGE)
    if given.json:
        print(json.dumps({name: row["error"] for name, row in report["figures"].items()}))
    else:
        show(report, Console())


def measure(folder: Path, profile: str | None = None, other: Path | None = None) -> Report:
    """other: a run to which the step is fitted instead of the first requests of `folder`. figures:
    seconds, and the error as a fraction of what was recorded. kv_blocks: of the KV memory, told by
    the run or found (None: it was not the limit). preemptions: how many are predicted. longer_ttft:
    by which fraction first tokens would come later if every step took 1 % longer. Raises
    TeolaError."""
    run = load(folder)
    count = 0 if other else len(run.requests) // LEARNED
    if profile:
        run, time = _profiled(profile, run)
    elif other:
        run, time = _as_of(other, run)
    else:
        run, time = learned(run, count)
    recorded, predicted = figures(run, run.requests, count), predict(run, time, count)
    slower = predict(run, StepTime(**{k: v * 1.01 for k, v in asdict(time).items()}), count)
    return {
        "run": folder.name,
        **({"fit": other.name} if other else {}),
        "requests": len(run.requests),
        "learned": count,
        "kv_blocks": run.kv_blocks,
        "block_tokens": run.block_tokens,
        "preemptions": replay(run, time).preemptions,
        "figures": {
            name: {
                "recorded_s": recorded[name],
                "predicted_s": predicted[name],
                "error": round(abs(predicted[name] / recorded[name] - 1), 4),
            }
            for name in FIGURES
        },
        "step": asdict(time),
        "longer_ttft": slower["ttft_mean_error"] / predicted["ttft_mean_error"] - 1,
    }


def show(report: Report, console: Console) -> None:
    """The table on the terminal."""
    lines = [
        (about, f"{row['recorded_s']:.4f}", f"{row['predicted_s']:.4f}", f"{row['error']:.1%}")
        for about, row in _rows(report)
    ]
    told = f"{report['run']}: requests {report['learned'] + 1} to {report['requests']}, seconds"
    console.print(pages.terminal(told, ("", "recorded", "predicted", "error"), lines, left=1))
    if report["kv_blocks"] is not None:
        console.print(_memory(report))
    console.print("Step: " + ", ".join(f"{term} {report['step'][term]:.3g}" for term in TERMS))
    more = report["longer_ttft"]
    console.print(f"Were every step 1 % longer, first tokens would take {more:.1%} longer.")


def section(report: Report) -> str:
    """What README.md says of the kept report."""
    lines = [
        (about, _time(row["recorded_s"]), _time(row["predicted_s"]), f"{100 * row['error']:.1f} %")
        for about, row in _rows(report)
    ]
    step, later = report["step"], f"{100 * report['longer_ttft']:.1f} % later"
    pair = f"{1e9 * step['per_pair_s']:.2g} ns for a pair, "
    return "\n\n".join(
        [
            pages.table(("", "recorded", "predicted", "error"), lines),
            *([_memory(report)] if report["kv_blocks"] is not None else []),
            f"Steps 1 % longer would make first tokens {later}. The terms that were found are\n"
            f"{1e3 * step['base_s']:.1f} ms for a step, "
            f"{1e3 * step['per_sequence_s']:.3f} ms for each sequence, "
            f"{1e6 * step['per_context_s']:.3f} ms for each 1,000 tokens of\ncontext, "
            f"{1e3 * step['per_token_s']:.3f} ms for a prompt token, "
            f"{pair if step['per_pair_s'] > 1e-15 else 'nothing for a pair, '}"
            f"and {1e3 * step['prefill_s']:.1f} ms more where there are any\nprompt tokens.",
        ]
    )


def _memory(report: Report) -> str:
    tokens = report["kv_blocks"] * report["block_tokens"]
    times = report["preemptions"]
    return f"The KV memory holds {tokens:,} tokens; {times} preemptions are predicted."


def _rows(report: Report) -> list[tuple[str, dict[str, Any]]]:
    return [(FIGURES[name][0], row) for name, row in report["figures"].items()]


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.1f} ms"


def _read(path: Path) -> Report:
    found: Report = json.loads(path.read_text(encoding="utf-8"))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.step_model",
        description="Replays a recorded run of vLLM through the simulator's model of an LLM, and "
        "compares times. The terms of the step's time are fitted to the run's first third; the "
        "rest is compared.",
    )
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument(
        "--run",
        type=Path,
        metavar="FOLDER",
        help="a folder with requests.jsonl (queued_ts, first_token_ts, last_token_ts, input_toks, "
        "output_toks of each request) and meta.json (vLLM's engine_kwargs)",
    )
    given.add_argument("--report", type=Path, metavar="FILE", help="replay nothing, read this")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--profile",
        metavar="NAME",
        help="take the LLM's step from this profile (a name, or a JSON file) and fit nothing",
    )
    source.add_argument(
        "--fit",
        type=Path,
        metavar="FOLDER",
        help="fit the step to the first half of another run of the same engine, and predict all of "
        "this one",
    )
    parser.add_argument("--json", action="store_true", help="the errors, as fractions, and no more")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="report.json goes there")
    parser.add_argument("--docs", action="store_true", help="write the table of README.md")
    return parser


def _profiled(name: str, run: RecordedRun) -> tuple[RecordedRun, StepTime]:
    """The run with the profile's KV memory, if it tells of none, and the profile's step. Raises
    InputError if the profile tells nothing of an LLM."""
    engine = load_profile(name).engines.get("llm")
    if engine is None or engine.step == StepTime():
        raise InputError(f"profile {name!r} has no times of an engine called 'llm'")
    return _with_memory(run, engine), engine.step


def _with_memory(run: RecordedRun, engine: EngineProfile) -> RecordedRun:
    if run.kv_blocks is not None or engine.kv_blocks is None:
        return run
    found = replace(run, kv_blocks=engine.kv_blocks, block_tokens=engine.block_tokens)
    if found.largest > engine.kv_blocks:
        raise InputError(
            f"a request of the run takes {found.largest} KV blocks, and the profile has "
            f"{engine.kv_blocks}: take one of the machine that the run was made on"
        )
    return found


def _as_of(other: Path, run: RecordedRun) -> tuple[RecordedRun, StepTime]:
    """The run with its KV memory, and the step by the first half of another one."""
    known = load(other)
    _, time = learned(known, len(known.requests) // 2)
    if run.kv_blocks is None:
        run, _ = learned(run, len(run.requests) // LEARNED)
    return run, time


def predict(run: RecordedRun, time: StepTime, count: int) -> dict[str, float]:
    """The figures if steps took this time."""
    return figures(run, replay(run, time).answered, count)


def figures(run: RecordedRun, answered: Sequence[RecordedRequest], count: int) -> dict[str, float]:
    """Seconds, of all but the first `count` requests."""
    assert len(answered) == len(run.requests)
    return {name: figure(answered[count:]) for name, (_, figure) in FIGURES.items()}


if __name__ == "__main__":
    main()
