"""Question and answer lengths, and arrival times, from public data sets.

They are read from a folder that the user names (`--data` or TEOLA_DATA); nothing is downloaded and
nothing of them is in this repository but how their lengths are distributed, which is what lengths
are drawn from without a folder. Where each file comes from is in README.md here.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from teola.errors import InputError

CHARACTERS_PER_TOKEN: Final = 4.2


class Pair(NamedTuple):
    """Tokens of a question and of its answer."""

    question: int
    answer: int


MEANS: Final = {"truthfulqa": Pair(14, 12), "hotpotqa": Pair(22, 4)}
"""Of the two sets."""
TWENTIETHS: Final = {
    "truthfulqa": (
        (5, 7, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 14, 15, 16, 16, 18, 20, 26, 42),
        (2, 4, 5, 6, 8, 9, 10, 11, 11, 12, 13, 13, 14, 15, 15, 16, 17, 19, 21, 25),
    ),
    "hotpotqa": (
        (11, 13, 14, 15, 16, 17, 18, 19, 19, 20, 21, 22, 23, 24, 25, 27, 29, 31, 34, 42),
        (1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 7, 12),
    ),
}
"""Tokens of questions and of answers: the mean of each twentieth of them, the shortest first."""
FILES: Final = {"truthfulqa": "truthfulqa.csv", "hotpotqa": "hotpotqa_dev_simplified.json"}
TRACES: Final = {
    "azure-code": "azure_llm_code_2023.csv",
    "azure-conv": "azure_llm_conv_2023.csv",
    "mooncake": "mooncake_conversation_trace.jsonl",
}


def tokens(text: str) -> int:
    """Tokens of a text, at 4.2 characters each; at least one."""
    return max(1, round(len(text) / CHARACTERS_PER_TOKEN))


def draw(source: random.Random, name: str, folder: Path | None) -> Pair:
    """Lengths of a question of a data set and of its answer. Without a folder they are drawn apart,
    from the distributions of the two. Raises InputError as `pairs` does."""
    if folder is not None:
        return source.choice(pairs(name, folder))
    questions, answers = TWENTIETHS[name]
    return Pair(source.choice(questions), source.choice(answers))


@cache
def pairs(name: str, folder: Path) -> Sequence[Pair]:
    """Lengths of every question and answer of a data set.

    Raises InputError where the folder does not hold the file, or it is not what it should be.
    """
    path = _file(folder, FILES[name])
    try:
        if name == "truthfulqa":
            with path.open(encoding="utf-8-sig", newline="") as file:
                found = [(row["Question"], row["Best Answer"]) for row in csv.DictReader(file)]
        else:
            rows = json.loads(path.read_text(encoding="utf-8"))
            found = [(row["question"], row["answer"]) for row in rows]
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not the expected {name} file: {error!r}") from None
    return tuple(Pair(tokens(question), tokens(answer)) for question, answer in found)


@cache
def trace(name: str, folder: Path | None) -> Sequence[float]:
    """Arrival times of a trace in seconds from its first request, ascending.

    Mooncake's are rounded to its batches of a few seconds. Raises InputError.
    """
    if folder is None:
        raise InputError(f"arrivals {name!r} need a data folder: give --data FOLDER or TEOLA_DATA")
    path = _file(folder, TRACES[name])
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix == ".jsonl":
                times = [json.loads(line)["timestamp"] / 1000 for line in file if line.strip()]
            else:
                times = [timestamp(row["TIMESTAMP"]) for row in csv.DictReader(file)]
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not the expected {name} trace: {error!r}") from None
    times.sort()
    return tuple(at - times[0] for at in times)


def timestamp(text: str) -> float:
    """Seconds; the traces give seven decimals, Python reads six."""
    return datetime.fromisoformat(text.strip()[:26]).timestamp()


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise InputError(f"{folder} has no {name}; experiments/common/README.md says where it is")
    return path
