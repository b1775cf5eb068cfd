"""How well does the model of an LLM's step predict a measured run? See README.md here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy
from rich.console import Console

from experiments.common import pages
from experiments.step_model.fit import fitted
from experiments.step_model.recorded import Answered, Recorded, load
from experiments.step_model.replay import TERMS, replay
from teola.errors import InputError, TeolaError
from teola.profile import StepTime
from teola.profile import load as load_profile

LEARNED: Final = 3
"""One part in so many of the requests, the first ones, is what the terms are fitted to."""
Figure = Callable[[Sequence[Answered]], float]


def _p99(answered: Sequence[Answered]) -> float:
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
        run = load(given.run)
        count = len(run.requests) // LEARNED
        time = _profiled(given.profile) if given.profile else fitted(run, count)
    except TeolaError as error:
        parser.error(str(error))
    recorded, predicted = figures(run, run.requests, count), predict(run, time, count)
    errors = {name: round(abs(predicted[name] / recorded[name] - 1), 4) for name in FIGURES}
    if given.json:
        print(json.dumps(errors))
        return
    lines = [
        (about, f"{recorded[name]:.4f}", f"{predicted[name]:.4f}", f"{errors[name]:.1%}")
        for name, (about, _) in FIGURES.items()
    ]
    told = f"{given.run.name}: requests {count + 1} to {len(run.requests)}, seconds"
    console = Console()
    console.print(pages.terminal(told, ("", "recorded", "predicted", "error"), lines, left=1))
    console.print("Step: " + ", ".join(f"{term} {getattr(time, term):.3g}" for term in TERMS))
    slower = predict(run, StepTime(**{k: v * 1.01 for k, v in asdict(time).items()}), count)
    more = slower["ttft_mean_error"] / predicted["ttft_mean_error"] - 1
    console.print(f"Were every step 1 % longer, first tokens would take {more:.1%} longer.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.step_model",
        description="Replays a recorded run of vLLM through the simulator's model of an LLM, and "
        "compares times. The terms of the step's time are fitted to the run's first third; the "
        "rest is compared.",
    )
    parser.add_argument(
        "--run",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="a folder with requests.jsonl (queued_ts, first_token_ts, last_token_ts, input_toks, "
        "output_toks of each request) and meta.json (vLLM's engine_kwargs)",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="take the LLM's step from this profile (a name, or a JSON file) and fit nothing",
    )
    parser.add_argument("--json", action="store_true", help="the errors, as fractions, and no more")
    return parser


def _profiled(name: str) -> StepTime:
    """Raises InputError if the profile tells nothing of an LLM."""
    engine = load_profile(name).engines.get("llm")
    if engine is None or engine.step == StepTime():
        raise InputError(f"profile {name!r} has no times of an engine called 'llm'")
    return engine.step


def predict(run: Recorded, time: StepTime, count: int) -> dict[str, float]:
    """The figures if steps took this time."""
    return figures(run, replay(run, time).answered, count)


def figures(run: Recorded, answered: Sequence[Answered], count: int) -> dict[str, float]:
    """Seconds, of all but the first `count` requests."""
    assert len(answered) == len(run.requests)
    return {name: figure(answered[count:]) for name, (_, figure) in FIGURES.items()}


if __name__ == "__main__":
    main()
