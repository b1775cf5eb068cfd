"""Question and answer lengths, and arrival times, from public data sets.

They are read from a folder that the user names (`--data` or TEOLA_DATA); nothing is downloaded and
nothing of them is in this repository. Where each file comes from is in README.md here.
"""

from __future__ import annotations

import csv
import json
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
"""What is used without a data folder: the means of the two sets."""
FILES: Final = {"truthfulqa": "truthfulqa.csv", "hotpotqa": "hotpotqa_dev_simplified.json"}
TRACES: Final = {
    "azure-code": "azure_llm_code_2023.csv",
    "azure-conv": "azure_llm_conv_2023.csv",
    "mooncake": "mooncake_conversation_trace.jsonl",
}


def tokens(text: str) -> int:
    """Tokens of a text, at 4.2 characters each; at least one."""
    return max(1, round(len(text) / CHARACTERS_PER_TOKEN))


@cache
def pairs(name: str, folder: Path | None) -> Sequence[Pair]:
    """Lengths of every question and answer of a data set; its means alone without a folder.

    Raises InputError where the folder does not hold the file, or it is not what it should be.
    """
    if folder is None:
        return (MEANS[name],)
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
                times = [_timestamp(row["TIMESTAMP"]) for row in csv.DictReader(file)]
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not the expected {name} trace: {error!r}") from None
    times.sort()
    return tuple(at - times[0] for at in times)


def _timestamp(text: str) -> float:
    """Seconds; the traces give seven decimals, Python reads six."""
    return datetime.fromisoformat(text.strip()[:26]).timestamp()


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise InputError(f"{folder} has no {name}; experiments/common/README.md says where it is")
    return path
