"""Seconds of so many answers at once."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from experiments.common.command import Report
from experiments.decoding.asking import ask, text_of
from experiments.decoding.checking import Plain
from teola_engines.llm import TransformersModel


def measure(
    model: Path, sequences: Sequence[int], prompt: int, output: int, repetitions: int, seed: int
) -> list[Report]:
    """A row for each system and number of sequences; the median of repetitions, of which one more
    comes first and is not counted."""
    rows: list[Report] = []
    texts: dict[int, list[list[str]]] = {}
    for system, graphs in (("teola", True), ("teola without CUDA graphs", False)):
        engine = TransformersModel(
            model=model,
            dtype="bfloat16",
            chat=False,
            max_batch=8192,
            max_sequences=max(sequences),
            prefix_cache=False,
            cuda_graphs=graphs,
        )
        engine.start()
        try:
            texts = texts or _texts(engine, sequences, prompt, repetitions + 1, seed)
            for count in sequences:
                rows.append(_row(system, count, [_engine(engine, t, output) for t in texts[count]]))
        finally:
            engine.close()
    plain = Plain(model, "bfloat16")
    for count in sequences:
        rows.append(_row("transformers", count, [_plain(plain, t, output) for t in texts[count]]))
    return rows


def _texts(
    engine: TransformersModel, sequences: Sequence[int], prompt: int, times: int, seed: int
) -> dict[int, list[list[str]]]:
    chance = random.Random(seed)
    return {
        count: [[text_of(engine, chance, prompt) for _ in range(count)] for _ in range(times)]
        for count in sequences
    }


Times = tuple[float, float, float]
"""Seconds to the first token, of a step, and tokens a second."""


def _engine(engine: TransformersModel, texts: list[str], output: int) -> Times:
    answers = ask(engine, texts, output)
    steps = [(one.last_s - one.first_s) / (one.tokens - 1) for one in answers]
    seconds = max(one.last_s for one in answers)
    first_s = fmean(one.first_s for one in answers)
    return first_s, fmean(steps), sum(one.tokens for one in answers) / seconds


def _plain(plain: Plain, texts: list[str], output: int) -> Times:
    began = time.perf_counter()
    plain.answers(texts, 1)
    first = time.perf_counter()
    plain.answers(texts, output)
    first_s, seconds = first - began, time.perf_counter() - first
    return first_s, (seconds - first_s) / (output - 1), len(texts) * output / seconds


def _row(system: str, sequences: int, runs: Sequence[Any]) -> Report:
    first_s, step_s, rate = (median(one) for one in zip(*runs[1:], strict=True))
    return {
        "system": system,
        "sequences": sequences,
        "first_s": round(first_s, 4),
        "step_ms": round(1e3 * step_s, 3),
        "tokens_per_s": round(rate, 1),
    }
